"""Where a runtime changes into its own layout of images: as often as it says that it does."""

from __future__ import annotations

import platform
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest

from onnx_sched.reorders import in_blocks, reorders
from tests.nets import analysed, ints, net, numbers
from tests.rule_examples import carried_out, compare, with_ranks

WEIGHTS = {
    "w": numbers(32, 16, 1, 1),
    "v": numbers(32, 2, 1, 1),
    "line": numbers(32, 16, 1),
    "many": numbers(24, 16, 1, 1),
    "u": numbers(32, 16, 1, 1, seed=1),
    "first": numbers(32, 3, 3, 3),
    "some": numbers(20, 24, 1, 1),
    "each": numbers(32, 1, 3, 3),
}

CONV = "a = Conv<group=2>(x, w) "

COUNTS = {
    "alone": (CONV + "y = Neg(a)", 2),
    "one after another": (CONV + "b = Conv<group=2>(a, w) y = Neg(b)", 2),
    "through what keeps it": (CONV + "r = Tanh(a) b = Conv<group=2>(r, w) y = Neg(b)", 2),
    "through a pool": (CONV + "p = GlobalAveragePool(a) b = Conv<group=2>(p, w) y = Neg(b)", 2),
    "a result that is read twice": (CONV + "b = Conv<group=2>(a, w) c = Neg(a) y = Add(b, c)", 3),
    "a result of the model": (CONV + "y = Relu(a)", 2),
    "channels last": (
        "t = Transpose<perm=[0,3,1,2]>(z) a = Conv<group=2>(t, w) y = Transpose<perm=[0,2,3,1]>(a)",
        0,
    ),
    "other turns": (
        "t = Transpose<perm=[0,1,3,2]>(x) a = Conv<group=2>(t, w) y = Transpose<perm=[0,1,3,2]>(a)",
        2,
    ),
    "no whole blocks": ("a = Conv<group=16>(x, v) y = Neg(a)", 0),
    "half a block of filters": ("a = Conv<group=2>(x, many) y = Neg(a)", 0),
    "few channels, read as they lie": ("a = Conv(i, first) y = Neg(a)", 1),
    "any channels without groups": ("a = Conv(h, some) y = Neg(a)", 2),
    "channel by channel": ("a = Conv<group=32>(x, each) y = Neg(a)", 2),
    "a sum": (CONV + "b = Conv<group=2>(x, u) c = Add(a, b) y = Neg(c)", 2),
    "a join": (CONV + "b = Conv<group=2>(x, u) c = Concat<axis=1>(a, b) y = Neg(c)", 2),
    "a difference": (CONV + "b = Conv<group=2>(x, u) y = Sub(a, b)", 3),
    "on lines": ("a = Conv<group=2>(l, line) y = Neg(a)", 0),
    "none": ("y = Neg(x)", 0),
}


def built(body: str) -> onnx.ModelProto:
    """A net on images, lines, and images with channels last."""
    inputs = (
        "float[N,32,5,3] x, float[N,32,5] l, float[N,5,3,32] z, float[N,3,5,3] i, float[N,24,5,3] h"
    )
    return net(f"({inputs}) => (float[] y) {{ {body} }}", WEIGHTS)


@pytest.mark.parametrize("what", COUNTS)
def test_changes_are_counted(what: str) -> None:
    """Into the layout before the first, out of it behind the last; a Transpose may be the change."""
    body, count = COUNTS[what]
    analysis = analysed(built(body))
    assert len(reorders(analysis.graph.nodes, analysis.values.shape)) == count


BLOCKED = platform.machine().lower() in ("x86_64", "amd64")


@pytest.mark.parametrize("what", COUNTS)
def test_the_runtime_makes_as_many(what: str, tmp_path: Path) -> None:
    """ONNX Runtime's own graph has one node a change; those that took a Transpose replace it."""
    body, count = COUNTS[what]
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "out.onnx")
    options.log_severity_level = 4
    model = built(body)
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    kinds = [n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node]
    changes = sum(kind.startswith("Reorder") for kind in kinds)
    if not BLOCKED and count:
        pytest.skip("this processor has no blocked convolutions")
    turns = sum(n.op_type == "Transpose" for n in model.graph.node) - kinds.count("Transpose")
    assert changes - turns == count


def test_an_unknown_weight_is_in_no_layout() -> None:
    """A weight whose sizes are not known is not said to be in blocks."""
    node = onnx.parser.parse_node("y = Conv(x, w)")
    assert not in_blocks(node, lambda name: None)
    assert not in_blocks(node, lambda name: ("C", 16, 1, 1))
    assert in_blocks(node, lambda name: (16, 16, 1, 1))


POOLED = [
    ("m@ = ReduceMean(r@, both)", 1),
    ("m@ = ReduceMean<keepdims=0>(r@, both) ", 0),
    ("m@ = ReduceMean(r@, last)", 0),
    ("m@ = ReduceMax(r@, both)", 0),
]


@pytest.mark.parametrize(("body", "pools"), POOLED)
def test_a_mean_over_all_places_is_a_pool(body: str, pools: int) -> None:
    """As convolutions leave images, such a mean stays in their layout; others are what they were."""
    lanes = "a@ = Conv(p@, w@) r@ = Relu(a@) " + body
    text = " ".join(lanes.replace("@", str(k)) for k in range(3))
    model = net(
        "(float[N,12,5,3] x) => (float[] m0, float[] m1, float[] m2) "
        f"{{ p0, p1, p2 = Split<axis=1>(x, four) {text} }}",
        {f"w{k}": numbers(2, 4, 1, 1, seed=k) for k in range(3)}
        | {"four": ints(4, 4, 4), "both": ints(2, 3), "last": ints(3)},
        opset=18,
    )
    model = with_ranks(model)
    outcome = carried_out(model)
    assert not outcome.refusals
    kinds = [n.op_type for n in outcome.model.graph.node]
    assert kinds.count("GlobalAveragePool") == pools
    assert compare(model, outcome.model, {"N": 3}, {"N": 1}, {"N": 0}) == 3


def test_a_mean_of_what_no_convolution_makes_stays_a_mean() -> None:
    """Where nothing is in blocks a pool is the slower of the two: on an image, and on lanes of three axes."""
    for rows, axes in (("float[N,12,5,3]", (2, 3)), ("float[N,12,5]", (1, 2))):
        lanes = "t@ = Tanh(p@) r@ = Mul(t@, w@) m@ = ReduceMean(r@, both)"
        text = " ".join(lanes.replace("@", str(k)) for k in range(3))
        model = net(
            f"({rows} x) => (float[] m0, float[] m1, float[] m2) "
            f"{{ p0, p1, p2 = Split<axis=1>(x, four) {text} }}",
            {f"w{k}": numbers(1, seed=k) for k in range(3)}
            | {"four": ints(4, 4, 4), "both": ints(*axes)},
            opset=18,
        )
        outcome = carried_out(with_ranks(model))
        kinds = [n.op_type for n in outcome.model.graph.node]
        assert (kinds.count("GlobalAveragePool"), kinds.count("ReduceMean")) == (0, 1)
