"""Agreement where ONNX Runtime itself moves the outputs: by its optimizations, or at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from onnx_sched.judge import agree
from onnx_sched.judge.agree import validate
from onnx_sched.judge.randomness import Randomness
from onnx_sched.judge.runtime import RuntimeRefused
from tests.test_agree import check, parse


class _Fake:
    """Stands in for ONNX Runtime: gives the outputs that were laid out per (model, optimize)."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, outputs: dict[tuple[bytes, bool], Any]
    ) -> None:
        self.outputs = outputs
        monkeypatch.setattr(agree, "open_session", self.open)
        monkeypatch.setattr(agree, "run", lambda session, _feed: session)

    def open(
        self, model: bytes, _provider: str, *, optimize: bool, exact: bool, **_options: Any
    ) -> Any:
        assert exact, "what rounds activations or sums in TF32 must be off"
        result = self.outputs[model, optimize]
        if isinstance(result, Exception):
            raise result
        return {"y": np.array(result, np.float32)}


A, B = (
    parse(f"{name} (float x) => (float y) {{ y = Neg(x) }}").SerializeToString() for name in "ab"
)


def test_faults_of_the_optimizer_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ONNX Runtime's optimizations alone move the outputs, like is compared with like."""
    _Fake(monkeypatch, {(A, False): [1], (A, True): [2], (B, False): [1], (B, True): [2]})
    result = validate(A, B, [{}], "cpu")
    assert result.verdict == "bitwise"
    assert result.outputs[0].noise_abs == 1.0
    # The optimizations are wrong for the original and right for the rewritten model.
    _Fake(monkeypatch, {(A, False): [1], (A, True): [2], (B, False): [1], (B, True): [1]})
    assert validate(A, B, [{}], "cpu").verdict == "bitwise"
    _Fake(monkeypatch, {(A, False): [1], (A, True): [1], (B, False): [1], (B, True): [2]})
    assert validate(A, B, [{}], "cpu").verdict == "mismatch"
    _Fake(monkeypatch, {(A, False): [1], (A, True): [1], (B, False): [2], (B, True): [1]})
    assert validate(A, B, [{}], "cpu").verdict == "mismatch"


def test_a_level_that_the_original_does_not_load_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A model that loads only with optimizations is compared with them, and the other way round."""
    refused = RuntimeRefused("no kernel")
    outputs = {(A, False): refused, (A, True): [1], (B, False): refused, (B, True): [1]}
    _Fake(monkeypatch, outputs)
    result = validate(A, B, [{}], "cpu")
    assert (result.verdict, result.checks, result.outputs[0].noise_abs) == ("bitwise", 1, None)
    _Fake(monkeypatch, {**outputs, (A, False): [1]})
    assert validate(A, B, [{}], "cpu").verdict == "mismatch"


NOISE = "n = RandomNormalLike<%s>(x) s = Add(x, n) y = Neg(s) z = Abs(x)"


def noisy(attributes: str, extra: str = "") -> ModelProto:
    return parse(f"g (float[N] x) => (float[N] y, float[N] z) {{ {NOISE % attributes} {extra} }}")


def test_random_outputs_are_compared_by_kind() -> None:
    """Without a seed only type and shape can be compared, and the note says so; the rest decides."""
    result = check(noisy("mean=0.0"), noisy("mean=5.0"))
    assert [part.verdict for part in result.outputs] == ["unvalidated", "bitwise"]
    assert result.verdict == "bitwise"
    assert "y: random without a seed" in result.reason
    only = parse("g (float[N] x) => (float[N] y) { y = RandomNormalLike(x) }")
    assert check(only, only).verdict == "unvalidated"


def test_random_outputs_of_another_type_are_a_mismatch() -> None:
    """Even a random output keeps its type and shape."""
    other = parse(
        f"g (float[N] x) => (double[N] y, float[N] z) {{ {NOISE % 'mean=0.0'} }}".replace(
            "y = Neg(s)", "d = Neg(s) y = Cast<to=11>(d)"
        )
    )
    result = check(noisy("mean=0.0"), other)
    assert result.verdict == "mismatch"
    assert "type float64 instead of float32" in result.reason


def test_seeded_outputs_are_compared_by_value() -> None:
    """A seed gives the same numbers in every fresh session, so every input gets one."""
    assert check(noisy("seed=3.0"), noisy("seed=3.0"), seeds=2).verdict == "bitwise"
    assert check(noisy("seed=3.0"), noisy("seed=4.0"), seeds=2).verdict == "mismatch"


def test_seeded_outputs_that_the_optimizer_draws_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ONNX Runtime's optimizations change the numbers drawn, only the plain ones must agree."""
    seeded = Randomness(True, (), ("y",))
    monkeypatch.setattr(agree, "randomness", lambda _model: seeded)
    _Fake(monkeypatch, {(A, False): [1], (A, True): [5], (B, False): [1], (B, True): [7]})
    result = validate(A, B, [{}], "cpu")
    assert result.verdict == "bitwise"
    assert "only type and shape" in result.outputs[0].note
    _Fake(monkeypatch, {(A, False): [1], (A, True): [5], (B, False): [2], (B, True): [5]})
    assert validate(A, B, [{}], "cpu").verdict == "mismatch"
    _Fake(monkeypatch, {(A, False): [1], (A, True): [5], (B, False): [1], (B, True): [[5]]})
    assert validate(A, B, [{}], "cpu").verdict == "mismatch"
    _Fake(monkeypatch, {(A, False): [1], (A, True): [1], (B, False): [1], (B, True): [7]})
    assert validate(A, B, [{}], "cpu").verdict == "mismatch"


def test_seeded_outputs_do_not_depend_on_what_ran_before() -> None:
    """An input that the original refuses halfway does not shift the numbers of the next one."""
    model = parse(
        """g (float[4] x, int64[1] shape) => (float[N] y) {
             n = RandomNormalLike<seed=3.0>(x) s = Add(x, n) y = Reshape(s, shape) }"""
    )
    data, x = model.SerializeToString(), np.ones(4, np.float32)
    feeds = [{"x": x, "shape": np.array([size])} for size in (5, 4)]
    result = validate(data, data, feeds, "cpu")
    assert (result.verdict, result.checks) == ("bitwise", 2)
