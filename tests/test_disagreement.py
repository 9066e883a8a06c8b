"""What is said when outputs disagree: tolerances that were asked for are named, with what was seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

import onnx_sched
from onnx_sched.errors import MismatchError
from onnx_sched.judge.agree import Agreement
from onnx_sched.judge.verdicts import OutputAgreement
from tests.nets import committed
from tests.shell import lay_out, model, refused, run


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small models in it."""
    return lay_out(tmp_path, monkeypatch)


def judged(monkeypatch: pytest.MonkeyPatch, default: str) -> None:
    """Judge outputs to be outside what was asked for, and give a verdict by the defaults."""
    part = OutputAgreement("y", "mismatch", False, 2.4e-7, 1.1e-6, 2, 3, 96, "3 of 96 outside")

    def validate(*_: Any, tolerances: Any = None, **__: Any) -> Agreement:
        verdict: Any = "mismatch" if tolerances.atol is not None else default
        return Agreement(verdict, (part,), 6, "y: 3 of 96 outside")

    monkeypatch.setattr("onnx_sched.trial.agree.validate", validate)


def test_tolerances_that_were_asked_for_are_named(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the defaults the model is fine: the hint names the flags and the differences, no report."""
    judged(monkeypatch, "within_tolerance")
    result = run("plan", "lanes.onnx", "--choose", "always", "--atol", "0", "--rtol", "y:0")
    refused(result, 3, "--atol 0 --rtol y:0; seen were 2.4e-07 (1.1e-06 relative) in y")
    assert "passes by the default tolerances" in result.stderr
    assert "report this model" not in result.stderr


def test_what_fails_by_the_defaults_too_is_to_be_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flags are named all the same; where none were given, there is nothing to name."""
    judged(monkeypatch, "mismatch")
    with pytest.raises(MismatchError) as caught:
        onnx_sched.optimize(model(), choose="always", atol=0)
    assert "You asked for atol 0" in caught.value.hint
    assert "report this model" in caught.value.hint
    monkeypatch.setattr(
        "onnx_sched.trial.agree.validate", lambda *_, **__: Agreement("mismatch", (), 6, "y")
    )
    with pytest.raises(MismatchError) as caught:
        onnx_sched.optimize(model(), choose="always")
    assert "asked for" not in caught.value.hint
    assert "report this model" in caught.value.hint


def test_real_rounding_is_no_fault_of_ours(place: Path) -> None:
    """Exit 3 with --atol 0 --rtol 0 where sums are added in another order; nothing is written."""
    sums = (*("-o", "out.onnx", "--choose", "always", "--atol", "0", "--rtol", "0"),)
    result = run("optimize", str(onnx_sums(place)), *sums)
    assert result.exit_code == 3, result.output
    assert "--atol 0 --rtol 0" in result.stderr
    assert "report this model" not in result.stderr
    assert not (place / "out.onnx").exists()


def onnx_sums(place: Path) -> Path:
    """A committed model whose lanes are summed up."""
    path = place / "sums.onnx"
    onnx.save(committed("mmoe"), path)
    return path
