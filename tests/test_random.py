"""Random models come out right: the laws of `scripts/fuzz.py` on a fixed set of seeds and kept models."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from scripts import fuzz_judge
from scripts.fuzz import outcomes
from scripts.fuzz_judge import Outcome, judge
from scripts.fuzz_limits import differs
from tests.random_models import REGRESSIONS, make_feeds, random_model, text

SEEDS = range(150)
SKIPPED = 0.15
"""Part of the models that may prove nothing."""


@pytest.fixture(scope="module")
def judged() -> list[Outcome]:
    """Every seed judged, each in a process that may crash."""
    return list(outcomes(SEEDS, 2))


def test_random_models_come_out_right(judged: list[Outcome]) -> None:
    """Whatever is batched, outputs and interface stay what they were."""
    assert [f"{o.case}: {o.reason}" for o in judged if o.status == "failed"] == []


def test_random_models_prove_something(judged: list[Outcome]) -> None:
    """Most models are comparable, most are batched, and most outputs are tame enough to compare."""
    assert {o.case for o in judged} == set(SEEDS)
    assert sum(o.status == "skipped" for o in judged) <= SKIPPED * len(SEEDS)
    assert sum(bool(o.groups) for o in judged) > 0.5 * len(SEEDS)
    compared, sensitive = (sum(o.compared[k] for o in judged) for k in (0, 1))
    assert compared > 10 * sensitive


@pytest.mark.parametrize("name", REGRESSIONS)
def test_kept_models_come_out_right(name: str) -> None:
    """What once went wrong goes right."""
    (outcome,) = outcomes([name], 1)
    assert (outcome.status, outcome.reason) == ("ok", "")


@pytest.mark.parametrize("name", REGRESSIONS)
def test_kept_models_are_valid(name: str) -> None:
    """A kept model is one that onnx accepts."""
    onnx.checker.check_model(REGRESSIONS[name](), full_check=True)


def test_one_seed_one_model() -> None:
    """A model follows from its seed alone."""
    for seed in range(20):
        once, twice = random_model(seed), random_model(seed)
        assert once.SerializeToString() == twice.SerializeToString()


def test_feeds_have_the_sizes_asked_for() -> None:
    """Open axes get the sizes that are given; wild feeds hold a NaN or an Inf."""
    model = text("(float[N,S,3] x) => (float[N,S,3] y) { y = Relu(x) }")
    assert make_feeds(model, 5, 2, 0)["x"].shape == (5, 2, 3)
    assert np.isfinite(make_feeds(model, 5, 2, 0)["x"]).all()
    assert not np.isfinite(make_feeds(model, 5, 2, 0, wild=True)["x"]).all()


def test_the_judge_sees_a_wrong_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimizer that moves one weight by one in a thousand is caught."""
    right = fuzz_judge._optimized

    def wrong(model: onnx.ModelProto, found: Outcome) -> tuple[onnx.ModelProto, Outcome]:
        new, outcome = right(model, found)
        tensor = next(t for t in new.graph.initializer if t.data_type == 1 and len(t.dims) > 1)
        moved = numpy_helper.to_array(tensor) * np.float32(1.001)
        tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))
        return new, outcome

    monkeypatch.setattr(fuzz_judge, "_optimized", wrong)
    outcome = judge("different epsilons")
    assert outcome.status == "failed"
    assert "off by" in outcome.reason


def test_differences_are_named() -> None:
    """NaN, Inf, types, shapes and plain errors each have their own word."""
    a = np.array([1.0, np.nan, np.inf], np.float32)
    limit = np.full(3, 1e-3)
    assert differs(a, a.copy(), limit) == ""
    assert "NaN" in differs(a, np.array([np.nan, 1, np.inf], np.float32), limit)
    assert "Inf" in differs(a, np.array([1, np.nan, -np.inf], np.float32), limit)
    assert "off by" in differs(a, np.array([1.1, np.nan, np.inf], np.float32), limit)
    assert "float64" in differs(a, a.astype(np.float64), limit)
    assert "shape" in differs(a, a[:2], limit)
    assert "differ" in differs(np.array([1, 2]), np.array([1, 3]), np.zeros(2))
