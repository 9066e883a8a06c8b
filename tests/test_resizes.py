"""Resize: by which factors, and that lanes do not reach into each other."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto

from onnx_sched.constants import from_array
from onnx_sched.resizing import factor, factors, resized
from tests.nets import Array, ints
from tests.rule_examples import carried_out, compare
from tests.test_fold import build


@given(st.integers(1, 4000), st.integers(1, 4000))
def test_a_factor_gives_the_size_that_it_stands_for(before: int, after: int) -> None:
    """Rounded down, in single precision as in double; where it would not, there is no factor."""
    by = factor(before, after)
    scale = np.float32(after) / np.float32(before)
    both = int(np.float32(before) * scale), int(before * float(scale))
    assert (by is not None) == (both == (after, after))
    if by is not None:
        assert resized((before,), (by,), ("?",)) == (after,)


def test_sizes_known_only_at_run_time_stay_or_are_not_known() -> None:
    """An open size that stays has the factor 1; one that changes has none."""
    assert factor("N", "N") == 1
    assert factor("N", "M") is None
    assert factor("N", 4) is None
    assert factor(4, "N") is None
    assert resized(("N", 4, "S"), (1, 2, 3), ("?", "?", "new")) == ("N", 8, "new")


def by(text: str, opset: int = 21, **known: object) -> tuple[float, ...] | None:
    """Factors of a node for [N, 4, 6]."""
    node = onnx.parser.parse_node(text)
    scales = known.get("scales")
    const = from_array(np.array(scales, np.float32), 1) if scales is not None else None
    sizes = known.get("sizes")
    assert sizes is None or isinstance(sizes, tuple)
    return factors(node, ("N", 4, 6), const, sizes, opset)


def test_factors_come_from_whatever_says_them() -> None:
    """Scales, or sizes, which go first; of all axes, or of those named."""
    assert by("y = Resize(x, , s)", scales=[1, 2, 0.5]) == (1, 2, 0.5)
    assert by("y = Resize(x, , , z)", sizes=("N", 8, 3)) == (1, 2, 0.5)
    assert by("y = Resize(x, , s, z)", scales=[1, 9, 9], sizes=("N", 8, 3)) == (1, 2, 0.5)
    assert by("y = Resize<axes=[-1]>(x, , , z)", sizes=(3,)) == (1, 1, 0.5)
    assert by("y = Resize<axes=[2, 1]>(x, , s)", scales=[0.5, 2]) == (1, 2, 0.5)


NOT_KNOWN = [
    ("y = Resize(x, , s)", 21, {}),
    ("y = Resize(x, , , z)", 21, {"scales": [1, 1, 1]}),
    ("y = Resize(x, , , z)", 21, {"sizes": (5, 8, 3)}),
    ("y = Resize(x, , , z)", 21, {"sizes": ("N", 8)}),
    ("y = Resize(x, , s)", 21, {"scales": [1, 2]}),
    ("y = Resize(x, , s)", 21, {"scales": [1, 0, 1]}),
    ("y = Resize(x, , s)", 21, {"scales": [1, 1, 7 / 6 - 1e-9]}),
    ("y = Resize(x, s)", 10, {"scales": [1, 2, 2]}),
    ('y = Resize<keep_aspect_ratio_policy="not_larger">(x, , s)', 21, {"scales": [1, 2, 2]}),
    (
        'y = Resize<coordinate_transformation_mode="tf_crop_and_resize">(x, r, s)',
        21,
        {"scales": [1] * 3},
    ),
]


@pytest.mark.parametrize(("text", "opset", "known"), NOT_KNOWN)
def test_what_is_not_known_is_no_factor(text: str, opset: int, known: dict[str, object]) -> None:
    """A size that changes although it is open, one of another number of axes, and what crops, too."""
    assert by(text, opset, **known) is None


def run(model: ModelProto, x: Array) -> Array:
    """The one output, the model taken as it stands."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("how", ["half_pixel", "align_corners", "asymmetric"])
def test_no_lane_reaches_into_another(mode: str, how: str) -> None:
    """What is no number in one lane leaves the others what they were, bit by bit."""
    kept = f'mode="{mode}", coordinate_transformation_mode="{how}"'
    body = f"r@ = Resize<{kept}>(a@, , by) y@ = Relu(r@)"
    more = {"by": np.array([1, 1, 2], np.float32)}
    model = build(body, rows="float[N,5,12]", more=more)
    outcome = carried_out(model)
    assert not outcome.refusals
    assert Counter(n.op_type for n in outcome.model.graph.node)["Resize"] == 1
    assert compare(model, outcome.model, {"N": 3}, {"N": 1}, {"N": 0}) == 3
    x = np.random.default_rng(0).standard_normal((2, 5, 12), np.float32)
    whole = run(outcome.model, x)
    for value in (np.nan, np.inf):
        broken = x.copy()
        broken[1, 2, 5] = value  # of the middle lane
        found = run(outcome.model, broken)
        for lane in (0, 2):
            assert (
                found[..., lane * 8 : lane * 8 + 8] == whole[..., lane * 8 : lane * 8 + 8]
            ).all()
        assert not (found[..., 8:16] == whole[..., 8:16]).all()


def test_a_target_that_was_computed_is_not_computed_any_more() -> None:
    """Sizes that every lane read from its own shape are known: their arithmetic goes with the lanes."""
    body = (
        "j@ = Shape(a@) n@ = Gather<axis=0>(j@, zero) t@ = Concat<axis=0>(n@, rest) "
        "s@ = Reshape(a@, t@) r@ = Relu(s@) y@ = Reshape(r@, back)"
    )
    more = {"zero": ints(0), "rest": ints(2, 2), "back": ints(-1, 4)}
    model = build(body, more=more)
    outcome = carried_out(model)
    assert not outcome.refusals
    found = Counter(n.op_type for n in outcome.model.graph.node)
    assert (found["Shape"], found["Relu"]) == (0, 1)
    assert compare(model, outcome.model, {"N": 3}, {"N": 1}, {"N": 0}) == 3
