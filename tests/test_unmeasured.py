"""What could not be compared and raced is not changed, and that is said; a race says where it was held."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto

import onnx_sched
from onnx_sched import pipeline
from onnx_sched.choose import Condition
from onnx_sched.errors import ProviderError
from onnx_sched.judge.measure import Speedup
from onnx_sched.judge.ortlib import CPU
from onnx_sched.judge.probe import ProviderStatus
from onnx_sched.judge.runtime import RuntimeRefused
from onnx_sched.options import Options
from onnx_sched.plan import Refusal
from onnx_sched.planner import modelled_plan
from onnx_sched.trial import Trial
from tests.nets import committed
from tests.shell import CHAIN, LANES, lay_out, model, refused, run

MULL = LANES.replace("b1 = Relu(a1)", "b1 = Mull(a1)")
"""An op that nobody knows."""

BAKED = LANES.replace(
    "y = Concat<axis=1>(b0, b1)",
    "s = Constant<value_ints = [1, 8]>() j = Concat<axis=1>(b0, b1) y = Reshape(j, s)",
)
"""It says that its batch is open, but runs at batch 1 alone."""

FAST = Speedup(100.0, 50.0, 2.0, 1.9, 2.1, 40)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small models in it."""
    folder = lay_out(tmp_path, monkeypatch)
    onnx.save(model(MULL), folder / "mull.onnx")
    onnx.save(model(CHAIN.replace("MatMul(a", "Mull(a")), folder / "mullchain.onnx")
    return folder


@pytest.fixture
def raced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, int], int]]:
    """Every region wins, and so does the whole model; where it was raced."""
    seen: list[tuple[dict[str, int], int]] = []

    def plan(analysis: Any, skip: Any, chooser: Any, *_: Any) -> Any:
        return modelled_plan(analysis, skip, None)

    def race(self: Trial, *_: Any) -> list[tuple[Condition, Speedup]]:
        found = self.conditions()
        seen.extend((dict(c.sizes), c.threads) for c in found)
        return [(c, FAST) for c in found]

    monkeypatch.setattr(pipeline, "measured_plan", plan)
    monkeypatch.setattr(Trial, "race", race)
    return seen


def told(refusals: Sequence[Refusal], code: str) -> str:
    """The reason of the one refusal with a code."""
    (found,) = (r.reason for r in refusals if r.code == code)
    return found


# -- nothing to compare --------------------------------------------------------------------------------


def test_what_cannot_be_compared_is_not_changed(raced: list[Any]) -> None:
    """An empty batch alone proves nothing: measured leaves the model, with S901; nothing is raced."""
    original = model()
    result = onnx_sched.optimize(original, dims={"batch": [0]})
    assert (result.report.status, result.proto) == ("unchanged", original)
    reason = told(result.report.refusals, "S901")
    assert reason.startswith("nothing could be measured: y: empty with these inputs")
    assert raced == []


@pytest.mark.parametrize("given", [{"choose": "always"}, {"choose": "model"}, {"target": "cpu"}])
def test_what_is_not_to_be_measured_may_change_unvalidated(given: dict[str, Any]) -> None:
    """Where no race decides, the rewriting stays, and the verdict says that nobody could compare it."""
    result = onnx_sched.optimize(committed("grouped_mlp"), dims={"batch": [0]}, **given)
    assert (result.report.status, result.report.verdict) == ("optimized", "unvalidated")
    assert not [r for r in result.report.refusals if r.code == "S901"]


def test_one_size_that_computes_something_is_enough(raced: list[Any]) -> None:
    """An empty batch among others is no trouble: the others are compared."""
    report = onnx_sched.optimize(model(), dims={"batch": [0, 3]}, threads=[1]).report
    assert report.status == "optimized"
    assert report.verdict in ("bitwise", "within_tolerance")
    assert raced == [({"batch": 0}, 1), ({"batch": 3}, 1)]


def test_it_is_raced_and_profiled_where_the_original_runs(raced: list[Any]) -> None:
    """Sizes that the original refuses are left out of comparing and racing; the rest decides."""
    result = onnx_sched.optimize(model(BAKED), threads=[1])
    assert result.changed
    assert raced == [({"batch": 1}, 1)]
    assert "2 of 3 inputs left out" in result.report.verdict_reason
    assert result.report.dispatches.after is not None


def test_regions_are_raced_where_the_original_runs() -> None:
    """The same in the race of a region: no size that the original refuses stops it."""
    report = onnx_sched.optimize(model(BAKED), threads=[1], time_limit=1).report
    assert "S901" not in {r.code for r in report.refusals}
    assert report.notes == ()


def test_an_original_that_runs_nowhere_is_left(place: Path) -> None:
    """Not one size at which it runs: S901 with the runtime's reason, a note, and not validated."""
    original = model(BAKED)
    result = onnx_sched.optimize(original, dims={"batch": [2, 3]})
    report = result.report
    assert (report.status, report.verdict, result.proto) == ("unchanged", "unvalidated", original)
    assert "does not run the model" in told(report.refusals, "S901")
    (note,) = report.notes
    assert note.startswith("the original does not run, so that nothing was compared or measured: ")


def test_the_reason_of_conditions_is_the_runtimes(tmp_path: Path) -> None:
    """A trial without a place to race at says why."""
    source, _ = pipeline.take(model(MULL))
    with pytest.raises(RuntimeRefused, match="Mull"):
        Trial(tmp_path, source, Options(), CPU).conditions()


# -- the runtime does not load it ----------------------------------------------------------------------


@pytest.mark.parametrize("command", ["plan", "optimize"])
@pytest.mark.parametrize("name", ["mull.onnx", "mullchain.onnx"])
def test_a_model_that_does_not_load_is_told(place: Path, command: str, name: str) -> None:
    """By default: unchanged, byte for byte; the screen gives the runtime's reason, and no measurement."""
    output = ["-o", "out.onnx"] if command == "optimize" else []
    result = run(command, name, *output)
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    assert "the original does not run, so that nothing was compared or measured: " in said
    assert said.count("Mull") >= 2
    assert "agreement not validated" in said
    assert "bit for bit" not in said
    assert "measured 0" not in said
    assert "measured 1" not in said
    if output:
        assert (place / "out.onnx").read_bytes() == (place / name).read_bytes()


def test_the_reason_names_no_temporary_file() -> None:
    """The same model gives the same report, wherever it was written to be tried."""
    first, second = (onnx_sched.optimize(model(MULL)).report for _ in range(2))
    assert first.verdict_reason == second.verdict_reason
    assert "original.onnx" not in "".join((first.verdict_reason, *first.notes))
    assert (first.status, first.verdict) == ("unchanged", "unvalidated")
    assert "Mull" in told(first.refusals, "S901")


@pytest.mark.parametrize("choose", ["always", "model"])
def test_a_rewriting_of_what_does_not_load_is_told(place: Path, choose: str) -> None:
    """Asked for without a race, it may stay; the verdict is unvalidated, and the note stands there."""
    result = run("optimize", "mull.onnx", "-o", "out.onnx", "--choose", choose)
    assert result.exit_code == 0
    said = " ".join(result.stdout.split())
    assert "not validated" in said
    assert "the original does not run" in said


def test_without_a_check_nobody_asks_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """--no-check runs nothing, not even to see whether it loads; a profile decides, and that is noted."""
    monkeypatch.setattr("onnx_sched.trial.runnable", None)
    report = onnx_sched.optimize(model(MULL), check=False).report
    assert report.notes == ("decided by the profile cpu: estimated, not measured",)


# -- the provider and the target -----------------------------------------------------------------------


def unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    """No provider can run here."""
    status = ProviderStatus(
        "CUDAExecutionProvider", False, "no-driver", "no NVIDIA driver", "get it"
    )
    monkeypatch.setattr("onnx_sched.judge.provider.probe", lambda _name: status)


@pytest.mark.parametrize("flags", [(), ("--no-check",)])
def test_a_named_provider_never_falls_back(
    place: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    """Exit 5 with the reason, whether anything was to be run on it or not; nothing is written."""
    unusable(monkeypatch)
    words = ("-o", "out.onnx", "--provider", "cuda", "--choose", "always")
    result = run("optimize", "lanes.onnx", *words, *flags)
    refused(result, 5, "no NVIDIA driver")
    assert not (place / "out.onnx").exists()
    with pytest.raises(ProviderError):
        onnx_sched.optimize(model(), provider="cuda", check=False)


def test_a_misspelt_provider_is_an_error_unchecked(place: Path) -> None:
    """So is a name that no provider has."""
    result = run("plan", "lanes.onnx", "--provider", "cuta", "--no-check")
    refused(result, 2, "--provider cuta", "did you mean cuda?")


def test_a_named_provider_is_told_unchecked(place: Path) -> None:
    """The report says whom it is for, and that nothing was run; `auto` then asks nobody."""
    named = onnx_sched.optimize(model(), provider="cpu", choose="always", check=False).report
    assert (named.provider, named.provider_note) == (CPU, "named; nothing was run on it")
    assert named.verdict == "unvalidated"
    asked = onnx_sched.optimize(model(), choose="always", check=False).report
    assert (asked.provider, asked.provider_note) == ("", "")


@pytest.mark.parametrize("command", ["plan", "optimize"])
def test_a_target_heads_the_report(
    place: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First whose profile decides and what it expects; only then who compared the outputs."""
    monkeypatch.setenv("COLUMNS", "200")  # one line
    onnx.save(committed("grouped_mlp"), place / "mlp.onnx")
    output = ["-o", "out.onnx"] if command == "optimize" else []
    words = ("mlp.onnx", *output, "--target", "cuda-a100", "--provider", "cpu")
    result = run(command, *words)
    assert result.exit_code == 0, result.output
    _, target, checked, *_ = result.stdout.splitlines()
    assert target.startswith("target cuda-a100: by its profile, nothing is raced; what is")
    assert "estimated " in target
    assert "x at size 1, " in target
    assert checked == f"checked on {CPU}"
    report = onnx_sched.optimize(place / "mlp.onnx", target="cuda-a100", provider="cpu").report
    assert report.to_dict()["target"] == "cuda-a100"


def test_without_a_target_the_provider_heads_the_report(place: Path) -> None:
    """No target, no line about one."""
    lines = run("plan", "lanes.onnx", "--choose", "always", "--provider", "cpu").stdout.splitlines()
    assert lines[1] == f"provider {CPU}"
    assert not [line for line in lines if line.startswith("target")]


# -- where it was raced --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"dims": {"batch": [1]}}, "batch=1"),
        ({"dims": {"batch": [1, 32]}}, "batch=1 and at batch=32"),
        ({"shapes": {"x": [4, 8]}}, "batch=4"),
        ({"inputs": [{"x": np.ones((2, 8), np.float32)}]}, "the sizes of the inputs given"),
    ],
)
def test_sizes_that_were_named_are_told(
    raced: list[Any], given: dict[str, Any], where: str
) -> None:
    """One note: it was raced there only."""
    report = onnx_sched.optimize(model(), **given).report
    assert report.notes == (f"raced at {where} only; other sizes may be slower",)
    assert raced


def closed() -> ModelProto:
    """The small model with a batch of 2."""
    made = model()
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    return made


def test_nothing_is_told_where_there_is_nothing_to_tell(raced: list[Any]) -> None:
    """Default sizes, no open size, or no race: no note."""
    fed = [{"x": np.ones((2, 8), np.float32)}]
    assert onnx_sched.optimize(model()).report.notes == ()
    assert onnx_sched.optimize(closed(), inputs=fed).report.notes == ()
    assert raced
    always = onnx_sched.optimize(model(), dims={"batch": [1]}, choose="always")
    assert always.report.notes == ()
