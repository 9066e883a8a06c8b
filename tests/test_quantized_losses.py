"""What ONNX Runtime runs on integers it still does, and it rounds nothing that it did not."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike, DTypeLike
from onnx import ModelProto

import onnx_sched
from onnx_sched.passes.quantized_losses import Manners, worse
from tests.example_parts import codes
from tests.nets import ints, net, numbers
from tests.quantized_nets import BYTES, CUTS, LANES, agree, cut, fused, lanes
from tests.rule_examples import IR

FLOATS = frozenset(
    {"FusedMatMul", "MatMul", "MatMulNBits", "FusedGemm", "Gemm", "Conv", "FusedConv"}
)

BETWEEN = {
    "nothing": "m@ = Identity(d@)",
    "moves": "u@ = Unsqueeze(d@, first) m@ = Squeeze(u@, first)",
    "Mul": "m@ = Mul(d@, half)",
}
BEHIND = {
    "floats": ("p@ = MatMul(m@, w@) y@ = Identity(p@)", "float"),
    "bytes": ("p@ = MatMul(m@, w@) y@ = QuantizeLinear(p@, t, z)", ""),
    "both": (
        "p@ = MatMul(m@, w@) b@ = QuantizeLinear(p@, t, z) y@ = DequantizeLinear(b@, t, z)",
        "float",
    ),
    "Gemm": ("y@ = Gemm(m@, w@)", "float"),
    "Gemm, added": ("y@ = Gemm(m@, w@, bias@)", "float"),
}


def products(
    dtype: DTypeLike, opset: int, rank: int, how: str, between: str, behind: str, widths: str
) -> ModelProto:
    """Lanes of one tensor that are quantised, and multiplied by weights that are dequantised."""
    opening, weights = cut(how, rank - 1)
    last, out = BEHIND[behind]
    columns = widths == "by columns"
    axis = "<axis=1>" if columns else ""
    body = "q@ = QuantizeLinear(a@, s, z) d@ = DequantizeLinear(q@, s, z) "
    body += f"{BETWEEN[between]} w@ = DequantizeLinear{axis}(c@, e@, o@) {last}"
    weights |= {"s": np.float32(0.05), "t": np.float32(0.5), "z": np.array(3, dtype)}
    weights |= {"first": ints(0), "half": np.float32(0.5)}
    for k in range(LANES):
        width = 8 if widths == "equal" else 4 + 4 * k
        weights[f"c{k}"] = (np.asarray(codes(8, width)(k)) // 2).astype(dtype)
        weights[f"e{k}"] = np.full(width if columns else (), 0.05 * (k + 1), np.float32)
        weights[f"bias{k}"] = numbers(width)
        weights[f"o{k}"] = np.full(width if columns else (), k, dtype)
    names = ", ".join(f"{out or np.dtype(dtype).name}[] y{k}" for k in range(LANES))
    sizes = ",".join(["N", "M"][: rank - 1])
    text = f"(float[{sizes},24] x) => ({names}) {{ {opening}{lanes(body)} }}"
    return net(text, weights, opset=opset, ir=IR[opset])


CASES = [
    case
    for case in product(
        (np.uint8, np.int8),
        (13, 16, 21),
        (2, 3),
        CUTS,
        BETWEEN,
        BEHIND,
        ("equal", "other", "by columns"),
    )
    if not (case[2] == 3 and "Gemm" in case[5])
    and (case[3] == "Split" or case[4] == "nothing")
    and case[:2] + case[4:5] != (np.int8, 21, "moves")  # the runtime does not load the original
]


@pytest.mark.parametrize(
    ("dtype", "opset", "rank", "how", "between", "behind", "widths"),
    CASES,
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_products_on_integers_stay_on_integers(
    dtype: DTypeLike,
    opset: int,
    rank: int,
    how: str,
    between: str,
    behind: str,
    widths: str,
    tmp_path: Path,
) -> None:
    """Where only what is around them runs as one, none becomes a product of floats, or is rounded."""
    model = products(dtype, opset, rank, how, between, behind, widths)
    new = onnx_sched.optimize(model, choose="always", check=False).proto
    agree(model, new, N=5, M=3)
    before, after = fused(model, tmp_path / "a.onnx"), fused(new, tmp_path / "b.onnx")
    assert after["MatMulNBits"] <= before["MatMulNBits"]
    if sum(n.op_type in ("Gemm", "MatMul") for n in new.graph.node) == LANES:
        assert sum(after[op] for op in FLOATS) <= sum(before[op] for op in FLOATS)


@BYTES
@pytest.mark.parametrize("opset", [13, 16, 21])
@pytest.mark.parametrize("columns", [True, False])
def test_products_of_floats_that_are_quantised_behind_are_not_rounded(
    columns: bool, opset: int, dtype: DTypeLike, tmp_path: Path
) -> None:
    """The runtime rounds what they read where nothing quantises right behind them."""
    opening, weights = cut("Split", 2)
    axis, many = ("<axis=2>", (8,)) if columns else ("", ())
    body = (
        "m@ = Mul(a@, h@) w@ = DequantizeLinear(c@, e, o) p@ = MatMul(m@, w@) "
        f"b@ = QuantizeLinear{axis}(p@, t, z) y@ = DequantizeLinear{axis}(b@, t, z)"
    )
    weights |= {"z": np.full(many, 3, dtype), "t": np.full(many, 0.0625, np.float32)}
    weights |= {"e": np.float32(0.05), "o": np.array(1, dtype)}
    for k in range(LANES):
        weights[f"c{k}"] = (np.asarray(codes(8, 8)(k)) // 2).astype(dtype)
        weights[f"h{k}"] = np.float32(k + 2)
    text = f"(float[N,M,24] x) => (float[] y) {{ {opening} {lanes(body, 'y = Sum(y0, y1, y2)')} }}"
    model = net(text, weights, opset=opset, ir=IR[opset])
    new = onnx_sched.optimize(model, choose="always", check=False).proto
    before, after = fused(model, tmp_path / "a.onnx"), fused(new, tmp_path / "b.onnx")
    assert after["MatMulNBits"] <= before["MatMulNBits"]


@BYTES
@pytest.mark.parametrize("opset", [13, 16, 21])
@pytest.mark.parametrize("rank", [2, 3])
def test_a_weight_that_several_share_rounds_nothing(
    rank: int, opset: int, dtype: DTypeLike, tmp_path: Path
) -> None:
    """Lanes with scales of their own keep from integers a product that nobody rounded."""
    opening, weights = cut("Split", rank - 1)
    body = "q@ = QuantizeLinear(a@, s@, z) d@ = DequantizeLinear(q@, s@, z) y@ = MatMul(d@, w)"
    many = np.asarray(codes(8, 3000)(0))  # too many to be kept as floats
    weights |= {"z": np.array(3, dtype), "c": (many // 2).astype(dtype)}
    weights |= {"e": np.float32(0.05), "o": np.array(0, dtype)}
    weights |= {f"s{k}": np.float32(0.05 * (k + 1)) for k in range(LANES)}
    sizes = ",".join(["N", "M"][: rank - 1])
    text = f"(float[{sizes},24] x) => (float[] y0, float[] y1, float[] y2) "
    text += f"{{ {opening} w = DequantizeLinear(c, e, o) {lanes(body)} }}"
    model = net(text, weights, opset=opset, ir=IR[opset])
    new = onnx_sched.optimize(model, choose="always", check=False).proto
    agree(model, new, N=5, M=3)
    assert fused(new, tmp_path / "b.onnx")["MatMulNBits"] == 0


def test_no_batched_product_is_rounded_that_was_not() -> None:
    """Whatever a group makes of products that run on integers."""
    weights: dict[str, ArrayLike] = {"c": np.zeros((8, 8), np.int8), "s": np.float32(0.05)}
    weights["z"] = np.uint8(3)
    whole = (
        "(float[N,8] x) => (float[] y) { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) "
    )
    model = net(f"{whole} w = DequantizeLinear(c, s) y = MatMul(d, w) }}", weights)
    other = net(f"{whole} e = Relu(d) w = DequantizeLinear(c, s) y = MatMul(e, w) }}", weights)
    old, new = (manners(m) for m in (model, other))
    made = [(node, 0) for node in other.graph.node]
    members = {0: list(model.graph.node)}
    assert worse(old, new, made, members) == (0, "ONNX Runtime would round what the product reads")
    rounded = {0: list(other.graph.node)}
    assert worse(new, new, made, rounded) is None
    assert worse(old, old, [(node, 0) for node in model.graph.node], members) is None


HOPS = {
    "nothing": "",
    "Identity": "{0}i = Identity({0})",
    "Concat": "{0}i = Concat<axis=0>({0}, {0})",
    "Transpose": "{0}i = Transpose<perm=[0,1,3,2]>({0})",
}


@BYTES
@pytest.mark.parametrize("place", ["q", "d", "c", "r"])
@pytest.mark.parametrize("hop", HOPS)
def test_it_is_known_what_runs_on_integers(
    hop: str, place: str, dtype: DTypeLike, tmp_path: Path
) -> None:
    """A convolution, with something between it and what quantises or dequantises, or between those."""
    name = {at: f"{at}i" if at == place and HOPS[hop] else at for at in "qdcr"}
    steps = {
        "q": "q = QuantizeLinear(x, s, z)",
        "d": f"d = DequantizeLinear({name['q']}, s, z)",
        "c": f"k = DequantizeLinear(w, s, o) c = Conv({name['d']}, k)",
        "r": f"r = QuantizeLinear({name['c']}, t, z)",
    }
    body = " ".join(f"{t} {HOPS[hop].format(at) if at == place else ''}" for at, t in steps.items())
    text = f"(float[2,8,5,4] x) => (float[] y) {{ {body} y = DequantizeLinear({name['r']}, t, z) }}"
    weights: dict[str, ArrayLike] = {"s": np.float32(0.05), "t": np.float32(0.5)}
    weights |= {"z": np.array(3, dtype), "o": np.array(0, dtype)}
    weights["w"] = (np.asarray(codes(8, 8, 1, 1)(0)) // 2).astype(dtype)
    model = net(text, weights)
    conv = next(node for node in model.graph.node if node.op_type == "Conv")
    on_bytes = fused(model, tmp_path / "m.onnx")["QLinearConv"] == 1
    assert (manners(model).of(conv) == "bytes") == on_bytes


def manners(model: ModelProto) -> Manners:
    """How the products of a model run."""
    known = {t.name: (tuple(t.dims), t.data_type) for t in model.graph.initializer}
    return Manners(model.graph.node, {"y"}, lambda name: known.get(name, (None, 0)))
