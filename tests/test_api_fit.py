"""Arguments that do not fit the model: named as Python names them, and never passed over."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from onnx import parser

import onnx_sched
from onnx_sched import option_checks
from onnx_sched.errors import MismatchError, UsageError
from onnx_sched.judge.agree import Agreement
from onnx_sched.judge.feeds import fit_feeds
from tests.nets import committed, numbers

SMALL = "near_tapped_lane"
FED = {"x": numbers(2, 32)}

UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"dims": {"bach": 1}}, "dims bach: the model has no such dimension"),
    ({"shapes": {"x": (3, 31)}}, "shapes x: 3x31 does not fit"),
    ({"inputs": "gone.npz"}, "inputs gone.npz: no such file"),
    ({"atol": "tiny"}, "atol tiny: not a tolerance"),
    ({"atol": math.inf}, "atol inf: not a tolerance"),
    ({"rtol": ["q:1"]}, "rtol q:1: the model has no output q"),
    ({"skip_ops": "Matmul"}, "skip_ops Matmul: no such op type"),
    ({"skip_nodes": ["nobody"]}, "skip_nodes nobody: no such node"),
    ({"skip_passes": "sum"}, "skip_passes sum: there is no such pass"),
    ({"provider": "cudo"}, "provider cudo: there is no such execution provider"),
    ({"target": "cuda-a10"}, "target cuda-a10: no such device profile"),
    ({"plan": "gone.json"}, "plan gone.json"),
    ({"plan": "gone.json", "exact": True}, "plan carries out a saved plan as it is, exact would"),
    ({"inputs": {"x": 1}}, "inputs set 0: x is a scalar, not batchx32"),
    ({"inputs": {"x0": numbers(2, 32)}}, "inputs set 0: the model has no input x0"),
    ({"inputs": [FED, {}]}, "inputs set 1: x missing"),
    ({"inputs": {"x": np.zeros((2, 32))}}, "inputs set 0: x is float64, not float32"),
    ({"inputs": {"x": numbers(2, 31)}}, "inputs set 0: x is 2x31, not batchx32"),
    ({"inputs": {"x": [[1.0], []]}}, "inputs set 0: x is no array"),
    ({"inputs": {"x": [[1e300] * 32]}}, "inputs set 0: x is no array: overflow"),
    ({"inputs": {"x": None}}, "inputs set 0: x is no array"),
    ({"inputs": {"x": object()}}, "inputs set 0: x is no array"),
    ({"inputs": {"x": "words"}}, "inputs set 0: x is string, not float32"),
]
"""Arguments that are what they may be, but fit not this model."""


@pytest.mark.parametrize(("given", "words"), UNFIT, ids=[words for _, words in UNFIT])
def test_what_does_not_fit_the_model_is_named(given: dict[str, Any], words: str) -> None:
    """The argument is named, never the flag of the command line; nothing passes unchecked."""
    asked = {"choose": "always", "provider": "cpu", **given}
    with pytest.raises(UsageError) as refused:
        onnx_sched.optimize(committed(SMALL), **asked)
    assert words in str(refused.value)
    assert "--" not in str(refused.value) + refused.value.hint


def test_lists_become_arrays_of_the_inputs_type() -> None:
    """Numbers without a type of their own are taken for the input's."""
    fed = {"x": numbers(2, 32).tolist()}
    report = onnx_sched.optimize(committed(SMALL), choose="always", inputs=fed).report
    assert report.verdict in ("bitwise", "within_tolerance")


def test_lists_are_never_cut_to_fit() -> None:
    """Whole numbers become whole numbers of any width; a fraction, or one too large, is refused."""
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (uint8[N] x) => (uint8[N] y) { y = Identity(x) }'
    )
    (fed,) = fit_feeds([{"x": [1, 255]}], model)
    assert fed["x"].dtype == np.uint8
    assert fed["x"].tolist() == [1, 255]
    assert fit_feeds([{"x": []}], model)[0]["x"].dtype == np.uint8
    for values in ([1.5], [1.0], [256], [-1], [None], ["1"], [1j]):
        with pytest.raises(UsageError, match="--inputs set 0: x is "):
            fit_feeds([{"x": values}], model)


def test_hints_name_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """What to do is said in Python's words; the kind of error and its exit code stay."""
    wrong = Agreement("mismatch", (), 4, "y differs")
    monkeypatch.setattr("onnx_sched.trial.agree.validate", lambda *args, **kwargs: wrong)
    with pytest.raises(MismatchError) as failed:
        onnx_sched.optimize(committed(SMALL), choose="always")
    assert "skip_ops and skip_nodes" in failed.value.hint
    assert "--" not in failed.value.hint


@pytest.mark.parametrize(
    "text", ["a--dim b", "no--plan.onnx", "dir/--plan x", "--dims x", "--planned", "--skip"]
)
def test_only_flags_are_renamed(text: str) -> None:
    """Names of files and nodes stay as they are."""
    with pytest.raises(UsageError) as refused, option_checks.in_arguments():
        raise UsageError(text, text)
    assert (str(refused.value), refused.value.hint) == (text, text)
