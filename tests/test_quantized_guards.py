"""No op between numbers of several scales becomes one op of integers, and no other op is kept from it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import ArrayLike, DTypeLike
from onnx import ModelProto, numpy_helper

from onnx_sched.judge.runtime import open_session
from onnx_sched.judge.runtime import run as optimized_run
from onnx_sched.passes.emit import Emitter
from onnx_sched.passes.fusion_guards import guards
from onnx_sched.passes.quantized_fusions import FUSED
from tests.example_parts import codes
from tests.nets import feeds, ints, net, run

FUSIBLE = {
    "Add": "h = Add(f, g)",
    "AveragePool": "h = AveragePool<kernel_shape=[2,2]>(f)",
    "Concat": "h = Concat<axis=3>(f, g)",
    "Conv": "h = Conv(f, k)",
    "Conv of floats": "h = Conv(f, v)",
    "ConvTranspose": "m = ConvTranspose(f, v) h = Relu(m)",
    "Gemm": "h = Gemm(f, k)",
    "GlobalAveragePool": "h = GlobalAveragePool(f)",
    "LeakyRelu": "h = LeakyRelu<alpha=0.25>(f)",
    "MatMul": "h = MatMul(f, g)",
    "Mul": "h = Mul(f, g)",
    "Sigmoid": "h = Sigmoid(f)",
    "Softmax": "h = Softmax(f)",
    "Where": "h = Where(c, f, g)",
    "Where of a constant": "h = Where(c, f, half)",
    "Where of a Constant": "e = Constant<value_float=0.5>() h = Where(c, f, e)",
    "between Transposes": "m = Transpose<perm=[1,0,3,2]>(f) n = Sigmoid(m) h = Transpose<perm=[1,0,3,2]>(n)",
    "behind an Identity": "m = Identity(f) h = Softmax(m)",
    "before a pool": "m = Add(f, g) h = MaxPool<kernel_shape=[2,2]>(m)",
    "before a Reshape": "m = Sigmoid(f) h = Reshape(m, deep)",
}
"""Ops, most of them by their names; their operands have one scale or several, as the result has."""

WEIGHED = {
    "Conv": ("<axis=0>", "h = Conv(f, k)", 0),
    "Conv by inputs": ("<axis=1>", "h = Conv(f, k)", 2),
    "Conv of turned weights": ("<axis=0>", "w2 = Transpose<perm=[1,0,2,3]>(k) h = Conv(f, w2)", 2),
    "Gemm": ("<axis=1>", "h = Gemm(f, k)", 0),
    "Gemm by rows": ("<axis=0>", "h = Gemm(f, k)", 2),
    "Gemm, turned": ("<axis=0>", "h = Gemm<transB=1>(f, k)", 0),
    "Gemm by rows, turned": ("<axis=1>", "h = Gemm<transB=1>(f, k)", 2),
    "MatMul by stacks": ("<axis=0>", "h = MatMul(f, k)", 2),
}
"""Weights of several scales: along which axis, an op, and how many nodes keep it from being fused."""

SPARED = {
    "Conv of floats": "m = Conv(f, v) h = Relu(m)",
    "Mul, Relu": "m = Mul(f, g) h = Relu(m)",
    "Reshape, Mul": "m = Reshape(f, same) h = Mul(m, m)",
    "Mul, Reshape": "m = Mul(f, f) h = Reshape(m, same)",
    "Mul by a constant": "h = Mul(f, half)",
    "another op": "m = Neg(f) h = Mul(m, g)",
    "Tanh": "h = Tanh(f)",
}
"""What is not fused between numbers of several scales."""

DTYPES = pytest.mark.parametrize("dtype", [np.uint8, np.int8], ids=["uint8", "int8"])


def shapes(body: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the lanes are but for the number of rows, and the weights that suit a body."""
    return ((3,), (3, 3)) if "Gemm" in body else ((3, 4, 4), (3, 3, 2, 2))


def around(
    body: str, dtype: DTypeLike, before: str = "", behind: str = "", weight: str = ""
) -> ModelProto:
    """Numbers that are dequantised and quantised around a body, with three scales where there is an axis."""
    kind = np.dtype(dtype).name
    middle = 128 if dtype == np.uint8 else 0
    inner, kernel = shapes(body)
    if "MatMul(f, k)" in body:
        kernel = (3, 4, 5)
    odd = np.array([1, 3, 5], np.float32) / np.float32(64)
    weights: dict[str, ArrayLike] = {
        "w": codes(*kernel)(0),
        "ws": odd if weight else np.float32(0.25),
        "wz": np.zeros(3 if weight else (), np.int8),
        "v": np.asarray(codes(*kernel)(1)) * odd.reshape(3, *[1] * (len(kernel) - 1)),
        "c": np.arange(16).reshape(4, 4) % 3 == 1,
        "half": np.float32(0.5),
        "deep": ints(0, 0, -1),
        "same": ints(0, 0, 4, 4),
    }
    for place, axis in enumerate((before, before, behind)):
        exponents = np.arange(3) if axis else np.array(0)
        weights[f"s{place}"] = (2.0 ** (exponents - 5 + place)).astype(np.float32)
        weights[f"z{place}"] = (middle + 3 * exponents).astype(dtype)
    text = f"""f = DequantizeLinear{before}(x, s0, z0) g = DequantizeLinear{before}(t, s1, z1)
    k = DequantizeLinear{weight}(w, ws, wz) {body} y = QuantizeLinear{behind}(h, s2, z2)"""
    read = f"{kind}[N,{','.join(map(str, inner))}]"
    return net(f"({read} x, {read} t) => ({kind}[] y) {{ {text} }}", weights)


def guarded(model: ModelProto) -> ModelProto:
    """The model with what keeps the runtime from fusions, as if all its nodes were new."""
    constants = {t.name: (len(t.dims), t.data_type) for t in model.graph.initializer}
    nodes = list(model.graph.node)
    emit = Emitter(17, {name for n in nodes for name in (*n.input, *n.output)}, {})
    new = {id(n) for n in nodes}
    made = guards(nodes, new, lambda v: constants.get(v, (None, 1)), emit, may_be_empty=False)
    kept = ModelProto()
    kept.CopyFrom(model)
    del kept.graph.node[:]
    kept.graph.node.extend(n for node in nodes for n in made.get(id(node), [node]))
    for name, const in emit.fresh.items():
        kept.graph.initializer.append(numpy_helper.from_array(const.load(), name))
    return kept


def added(model: ModelProto) -> int:
    """How many nodes keep the model as it is; with them and all optimizations it computes what it says."""
    kept = guarded(model)
    rng = np.random.default_rng(3)
    given = {}
    for name, array in feeds(model, N=3).items():
        info = np.iinfo(array.dtype)
        given[name] = rng.integers(info.min, info.max, array.shape, array.dtype)
    got = optimized_run(open_session(kept.SerializeToString(), "cpu"), given)["y"]
    np.testing.assert_array_equal(got, run(model, given)["y"])
    return len(kept.graph.node) - len(model.graph.node)


@DTYPES
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("which", ["both", "before", "behind"])
@pytest.mark.parametrize("case", FUSIBLE)
def test_no_op_is_fused_with_several_scales(
    case: str, which: str, axis: int, dtype: DTypeLike
) -> None:
    """Whichever of operands and result have them; two nodes that change nothing keep them apart."""
    by_lane = f"<axis={axis}>"
    before, behind = ("" if which == side else by_lane for side in ("behind", "before"))
    assert added(around(FUSIBLE[case], dtype, before, behind)) in (0, 2)


@DTYPES
@pytest.mark.parametrize("case", WEIGHED)
def test_weights_are_multiplied_by_the_scales_of_their_columns(case: str, dtype: DTypeLike) -> None:
    """Those the runtime knows; others are kept from it."""
    axis, body, count = WEIGHED[case]
    assert added(around(body, dtype, weight=axis)) == count


@DTYPES
@pytest.mark.parametrize("case", SPARED)
def test_what_is_not_fused_is_left_as_it_is(case: str, dtype: DTypeLike) -> None:
    """Nothing stands between what the runtime does not bring together."""
    assert added(around(SPARED[case], dtype, "<axis=1>", "<axis=1>")) == 0


def test_every_op_that_is_fused_is_tried() -> None:
    """None is known to the guards that is not among the examples."""
    assert set(FUSIBLE) >= FUSED
