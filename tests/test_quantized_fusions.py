"""Lanes with scales of their own load with all optimizations of ONNX Runtime, and give what they gave.

All numbers are whole multiples of powers of two, so that no order of sums rounds: the results are equal.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import DTypeLike
from onnx import ModelProto, numpy_helper

import onnx_sched
from onnx_sched.judge.runtime import open_session
from onnx_sched.judge.runtime import run as optimized_run
from onnx_sched.passes.quantized_fusions import FUSED
from tests.example_parts import codes
from tests.nets import Array, feeds, nodes_of, run
from tests.rule_examples import FLAT, IMAGES, LANES, Example, Maker, floats, number

OPSET = 16

PLACES = ("rows", "wide", "rows3")
"""Ways to lanes that lie in front, side by side, and in front with two axes of unknown size."""

BEFORE = "q@ = QuantizeLinear(a@, s@, z@) f@ = DequantizeLinear(q@, s@, z@) "
OTHER = "l@ = Abs(b@) r@ = QuantizeLinear(l@, s@, z@) g@ = DequantizeLinear(r@, s@, z@) "
BEHIND = " y@ = QuantizeLinear(h@, t@, u@)"

UNARY = {
    "Sigmoid": "h@ = Sigmoid(f@)",
    "LeakyRelu": "h@ = LeakyRelu<alpha=0.25>(f@)",
    "Softmax": "h@ = Softmax(f@)",
    "Relu": "h@ = Relu(f@)",
    "Clip": "h@ = Clip(f@, low, high)",
    "Neg": "h@ = Neg(f@)",
    "ReduceMax": "h@ = ReduceMax<axes=[-1]>(f@)",
    "Transpose": "n@ = Sigmoid(f@) h@ = Transpose<perm=[1,0]>(n@)",
    "turned": "m@ = Transpose<perm=[1,0]>(f@) h@ = Sigmoid(m@)",
}
BINARY = {
    "Add": "h@ = Add(f@, g@)",
    "Mul": "h@ = Mul(f@, g@)",
    "square": "o@ = Neg(g@) h@ = Mul(f@, f@)",
    "Sub": "h@ = Sub(f@, g@)",
    "clipped": "m@ = Add(f@, g@) h@ = Relu(m@)",
    "Concat": "h@ = Concat<axis=-1>(f@, g@)",
    "Where": "h@ = Where(c@, f@, g@)",
    "MatMul": "m@ = Transpose<perm=[1,0]>(g@) h@ = MatMul(f@, m@)",
}
POOLS = {
    "AveragePool": "h@ = AveragePool<kernel_shape=[2,2]>(f@)",
    "GlobalAveragePool": "h@ = GlobalAveragePool(f@)",
    "MaxPool": "h@ = MaxPool<kernel_shape=[2,2]>(f@)",
    "pool of a sum": "m@ = Add(f@, g@) h@ = MaxPool<kernel_shape=[2,1]>(m@)",
}
OPS = UNARY | BINARY | POOLS

WHICH = ("both", "before", "behind", "neither")
"""Whose scales differ by lane."""


def steps(differ: bool, *shape: int, odd: bool = False) -> Maker:
    """Scales: powers of two, or three times as much in every other place."""

    def make(lane: int) -> Array:
        factors = np.where(np.arange(np.prod(shape, dtype=int)) % 2 * odd, 3, 1).reshape(shape)
        return np.float32(2.0 ** -(4 + lane * differ)) * factors.astype(np.float32)

    return make


def origins(differ: bool, dtype: DTypeLike) -> Maker:
    """Zero points in the middle of what a type holds."""
    middle = 128 if dtype == np.uint8 else 0
    return lambda lane: np.array(middle + 3 * lane * differ, dtype)


def whole(model: ModelProto) -> ModelProto:
    """The model with whole numbers as the weights that bring lanes about."""
    for tensor in model.graph.initializer:
        if tensor.name in {f"{value}{k}" for value in "wv" for k in range(LANES)}:
            rounded = np.rint(2 * numpy_helper.to_array(tensor))
            tensor.CopyFrom(numpy_helper.from_array(rounded, tensor.name))
    return model


def built(
    body: str, weights: Mapping[str, Maker], which: str, dtype: DTypeLike, way: str
) -> ModelProto:
    """Three lanes that quantise around a body."""
    before, behind = which in ("both", "before"), which in ("both", "behind")
    parts = [BEFORE, OTHER if "g@" in body else "", body, BEHIND if "h@" in body else ""]
    scales: dict[str, Maker] = {"s@": steps(before), "z@": origins(before, dtype)}
    if "h@" in body:
        scales |= {"t@": steps(behind), "u@": origins(behind, dtype)}
    out = np.dtype(dtype).name if "h@" in body else "float"
    text = "".join(parts)
    example = Example("QuantizeLinear", text, {**weights, **scales}, (way,), (OPSET,), out)
    return whole(example.build(way, OPSET))


def agrees(model: ModelProto) -> ModelProto:
    """The batched model; it gives what the original gives, and with optimizations that or what those give."""
    new = onnx_sched.optimize(model, choose="always", check=False).proto
    given = feeds(model, N=3, S=2)
    given = {name: np.rint(4 * array).astype(array.dtype) for name, array in given.items()}
    plain = run(model, given)
    for name, array in run(new, given).items():
        np.testing.assert_array_equal(array, plain[name])
    original, batched = (open_session(m.SerializeToString(), "cpu") for m in (model, new))
    fused, got = optimized_run(original, given), optimized_run(batched, given)
    for name, array in got.items():
        assert array.dtype == plain[name].dtype
        same = np.array_equal(array, plain[name]) or np.array_equal(array, fused[name])
        assert same, (name, array, plain[name])
    return new


def small(op: str) -> dict[str, Maker]:
    """Constants of the bodies."""
    made: dict[str, Maker] = {
        "low": number(-1.5),
        "high": number(2.0),
        "c@": lambda lane: np.arange(4) % 3 == lane,
    }
    return {name: make for name, make in made.items() if name in OPS[op]}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8], ids=["uint8", "int8"])
@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("op", OPS)
def test_ops_between_scales_by_lane(op: str, which: str, dtype: DTypeLike) -> None:
    """Every op that the runtime knows by integers, and some that it does not, runs batched and agrees."""
    flat = ("rows", "wide") if "perm" in OPS[op] else PLACES
    for way in IMAGES if op in POOLS else flat:
        model = built(OPS[op], small(op), which, dtype, way)
        new = agrees(model)
        for kind in FUSED - {"MatMul"}:
            count = len(nodes_of(model, kind))
            assert not count or len(nodes_of(new, kind)) < count, kind


WEIGHTS = {
    "one scale": ("", ()),
    "one a column": ("<axis=1>", (3000,)),
}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8], ids=["uint8", "int8"])
@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize(
    "last", ["h@ = MatMul(f@, k@)", "y@ = MatMul(f@, k@)"], ids=["Q", "floats"]
)
def test_products_by_weights_that_stay_quantised(
    last: str, weight: str, which: str, dtype: DTypeLike
) -> None:
    """The weights are too many to be kept as floats, and the runtime might multiply integers by them."""
    axis, shape = WEIGHTS[weight]
    body = f"k@ = DequantizeLinear{axis}(c@, e@, d) {last}"
    zeros: Maker = lambda lane: np.zeros(shape, np.int8)  # noqa: E731
    weights = {"c@": codes(4, 3000), "e@": steps(which != "neither", *shape, odd=True), "d": zeros}
    for way in FLAT:
        new = agrees(built(body, weights, which, dtype, way))
        assert len(nodes_of(new, "DequantizeLinear")) == 2


CONVS = {
    "Conv": "h@ = Conv(f@, k@)",
    "Conv, Relu": "m@ = Conv(f@, k@) h@ = Relu(m@)",
    "Conv, bias": "h@ = Conv(f@, k@, i@)",
    "Conv, Relu, MaxPool": "m@ = Conv(f@, k@) n@ = Relu(m@) h@ = MaxPool<kernel_shape=[2,2]>(n@)",
}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8], ids=["uint8", "int8"])
@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("conv", CONVS)
def test_weights_of_convolutions_are_not_rounded_once_more(
    conv: str, which: str, dtype: DTypeLike
) -> None:
    """Dequantised weights are floats, which the runtime would quantise by one scale for all lanes."""
    body = f"k@ = DequantizeLinear<axis=0>(c@, e@, d) {CONVS[conv]}"
    weights: dict[str, Maker] = {
        "c@": codes(6, 4, 2, 1),
        "e@": steps(True, 6, odd=True),
        "d": lambda lane: np.zeros(6, np.int8),
    }
    if "i@" in body:
        weights["i@"] = lambda lane: np.rint(floats(6)(lane))
    new = agrees(built(body, weights, which, dtype, "channels"))
    assert len(nodes_of(new, "Conv")) == 2  # one brings the lanes about
