"""Models of quantised lanes load with all optimizations, and no weights of several lanes get one scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike, DTypeLike

import onnx_sched
from tests.example_parts import codes
from tests.nets import feeds, ints, name_nodes, net, numbers
from tests.quantized_nets import BYTES, LANES, agree, fused, lanes, needs_a_runtime, outputs
from tests.rule_examples import IR

Names = str | Sequence[str]

PLACES = {
    "before the lanes": (
        "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) "
        "a0, a1, a2 = Split<axis=@>(d, sizes) ",
        "r@ = Identity(a@) ",
    ),
    "in the lanes": (
        "a0, a1, a2 = Split<axis=@>(x, sizes) ",
        "q@ = QuantizeLinear(a@, s, z) r@ = DequantizeLinear(q@, s, z) ",
    ),
    "behind the lanes": (
        "a0, a1, a2 = Split<axis=@>(x, sizes) ",
        "f@ = MatMul(a@, v@) q@ = QuantizeLinear(f@, s, z) r@ = DequantizeLinear(q@, s, z) ",
    ),
    "twice": (
        "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) "
        "a0, a1, a2 = Split<axis=@>(d, sizes) ",
        "b@ = QuantizeLinear(a@, t@, z) r@ = DequantizeLinear(b@, t@, z) ",
    ),
}
USES = {
    "products": "y@ = MatMul(r@, w@)",
    "moves": "t@ = Transpose(r@) y@ = Unsqueeze(t@, first)",
    "outputs": "y@ = DequantizeLinear(q@, s, z) g@ = MatMul(r@, w@)",
    "joined": "y@ = Identity(r@)",
    "both": "g@ = MatMul(r@, w@) t@ = Transpose<perm=[1,0]>(r@) h@ = MatMul(v@, t@) y@ = Add(g@, h@)",
}


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16], ids=["uint8", "int8", "int16"])
@pytest.mark.parametrize("opset", [16, 21, 23])
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("seen", ["", "d", "o"])
def test_what_loads_before_loads_after(
    seen: str, place: str, use: str, rank: int, opset: int, dtype: DTypeLike
) -> None:
    """Numbers of every type are moved such that the runtime's optimizations can make sense of it."""
    if (dtype is np.int16 and opset < 21) or (use == "both" and rank == 3):
        return
    opening, body = PLACES[place]
    if (use == "outputs" and "q@" not in body) or (seen and " d = " not in opening):
        return
    weights: dict[str, ArrayLike] = {"sizes": ints(8, 8, 8), "s": np.float32(0.05)}
    weights |= {"z": np.array(3, dtype), "first": ints(0)}
    for k in range(LANES):
        weights |= {f"w{k}": numbers(8, 8, seed=k), f"v{k}": numbers(8, 8, seed=k + 9)}
        weights[f"t{k}"] = np.float32(0.05 * (k + 1))
    sizes = ",".join(["N", "8" if use == "both" else "M"][: rank - 1])
    sizes = "8" if use == "both" else sizes
    names = ", ".join(f"float[] {name}" for name in ("y0", "y1", "y2", seen) if name)
    join = "o = Relu(d)" if seen == "o" else ""
    if use == "joined":
        names, join = (
            names.replace("y0, float[] y1, float[] y2", "y"),
            join + " y = Concat<axis=0>(y0, y1, y2)",
        )
    text = f"(float[{sizes},24] x) => ({names}) "
    text += f"{{ {opening.replace('@', str(rank - 1))} {lanes(body + USES[use], join)} }}"
    model = net(text, weights, opset=opset, ir=IR[opset])
    needs_a_runtime(model)
    new = onnx_sched.optimize(model, choose="always", check=False).proto
    agree(model, new, N=5, M=3)
    again = onnx_sched.optimize(new, choose="always", check=False)
    assert not again.changed


GLUE = {
    "Split": ("k0, k1, k2 = Split<axis=1>(q, sizes) ", "c0, c1, c2 = Split<axis=1>(c, sizes) "),
    "Slice": (
        lanes("k@ = Slice(q, from@, to@, one) "),
        lanes("c@ = Slice(c, from@, to@, one) "),
    ),
    "Gather": (lanes("k@ = Gather<axis=1>(q, at@) "), lanes("c@ = Gather<axis=1>(c, at@) ")),
}
JOINTS = {
    "Conv": "c = Conv<group=3>(e, w) ",
    "Conv, Relu": "f = Conv<group=3>(e, w) c = Relu(f) ",
    "moved": "t = Unsqueeze(e, one) u = Squeeze(t, one) c = Conv<group=3>(u, w) ",
}


def scales(dtype: DTypeLike) -> dict[str, ArrayLike]:
    """Of what is read and of what is made, and their zero point."""
    return {"s": np.float32(0.05), "t": np.float32(0.002), "z": np.array(3, dtype)}


@BYTES
@pytest.mark.parametrize("opset", [13, 16, 21])
@pytest.mark.parametrize("joint", JOINTS)
@pytest.mark.parametrize("glue", GLUE)
def test_no_weights_of_several_lanes_get_one_scale(
    glue: str, joint: str, opset: int, dtype: DTypeLike
) -> None:
    """Nor where lanes are brought together for a convolution and taken apart behind it."""
    before, behind = GLUE[glue]
    text = "(float[N,24,H,4] x) => (float[] y) { q = QuantizeLinear(x, s, z) "
    text += before + lanes("d@ = DequantizeLinear(k@, s, z)", "e = Concat<axis=1>(d0, d1, d2) ")
    text += (
        JOINTS[joint]
        + behind
        + lanes("r@ = QuantizeLinear(c@, t, z) y@ = DequantizeLinear(r@, t, z)")
    )
    text += "y = Concat<axis=1>(y0, y1, y2) }"
    kernels = [numbers(8, 8, 1, 1, seed=k) * np.float32(10.0**-k) for k in range(LANES)]
    weights: dict[str, ArrayLike] = {
        "sizes": ints(8, 8, 8),
        "one": ints(1),
        "w": np.concatenate(kernels),
    }
    weights |= scales(dtype)
    for k in range(LANES):
        weights |= {
            f"from{k}": ints(8 * k),
            f"to{k}": ints(8 * k + 8),
            f"at{k}": np.arange(8 * k, 8 * k + 8),
        }
    model = net(text, weights, opset=opset, ir=IR[opset])
    needs_a_runtime(model)
    new = onnx_sched.optimize(model, choose="always", check=False)
    agree(model, new.proto, N=3, H=5)
    assert not onnx_sched.optimize(new.proto, choose="always", check=False).changed


@BYTES
@pytest.mark.parametrize("opset", [13, 16, 21])
@pytest.mark.parametrize("glue", ["Gather", "Split"])
def test_nor_where_lanes_are_taken_out_of_what_is_dequantised(
    glue: str, opset: int, dtype: DTypeLike, tmp_path: Path
) -> None:
    """What takes them out is gone where the convolutions run as one."""
    takes = lanes("a@ = Gather<axis=0>(d, at@)")
    if glue == "Split":
        takes = "b0, b1, b2 = Split<axis=0>(d, sizes) " + lanes("a@ = Squeeze(b@, first)")
    body = "c@ = Conv(a@, w@) r@ = QuantizeLinear(c@, t, z) y@ = DequantizeLinear(r@, t, z)"
    text = "(float[3,1,8,5,4] x) => (float[] y) { q = QuantizeLinear(x, s, z) "
    text += f"d = DequantizeLinear(q, s, z) {takes} {lanes(body, 'y = Sum(y0, y1, y2)')} }}"
    weights: dict[str, ArrayLike] = {"sizes": ints(1, 1, 1), "first": ints(0)}
    weights |= scales(dtype)
    for k in range(LANES):
        weights[f"w{k}"] = numbers(8, 8, 1, 1, seed=k) * np.float32(10.0**-k)
        weights[f"at{k}"] = np.int64(k)
    model = net(text, weights, opset=opset, ir=IR[opset])
    needs_a_runtime(model)
    new = onnx_sched.optimize(model, choose="always", check=False).proto
    agree(model, new)
    before, after = fused(model, tmp_path / "a.onnx"), fused(new, tmp_path / "b.onnx")
    assert after["QLinearConv"] <= before["QLinearConv"]


TAILS = {
    "Relu": "y@ = Relu(d@)",
    "Mul": "u@ = Mul(d@, m@) y@ = Sigmoid(u@)",
    "quantised once more": "g@ = QuantizeLinear(d@, m@, z) h@ = DequantizeLinear(g@, m@, z) y@ = Relu(h@)",
}


@BYTES
@pytest.mark.parametrize("opset", [13, 16, 21])
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("by_lane", [True, False])
def test_convolutions_whose_weights_are_rounded_are_left_alone(
    by_lane: bool, tail: str, opset: int, dtype: DTypeLike
) -> None:
    """One of them all would have floats for weights: both models give the same, as people deploy them."""
    scale = "s@" if by_lane else "s0"
    text = "(float[N,24,H,4] x) => (float[] y) { a0, a1, a2 = Split<axis=1>(x, sizes) "
    text += lanes(
        f"q@ = QuantizeLinear(a@, {scale}, z) e@ = DequantizeLinear(q@, {scale}, z) c@ = Conv(e@, w@) "
        f"r@ = QuantizeLinear(c@, {scale}, z) d@ = DequantizeLinear(r@, {scale}, z) {TAILS[tail]}",
        "y = Concat<axis=1>(y0, y1, y2) }",
    )
    weights: dict[str, ArrayLike] = {"sizes": ints(8, 8, 8)}
    weights["z"] = np.array(128 if dtype is np.uint8 else 0, dtype)
    for k in range(LANES):
        weights |= {f"s{k}": np.float32(0.05 * (1 + k)), f"m{k}": np.float32(1 + k)}
        weights[f"w{k}"] = numbers(8, 8, 1, 1, seed=k) * np.float32(0.1)
    model = net(text, weights, opset=opset, ir=IR[opset])
    new = onnx_sched.optimize(model, choose="always", check=False).proto
    given = feeds(model, N=2, H=5)
    np.testing.assert_allclose(outputs(new, given)["y"], outputs(model, given)["y"], atol=1e-5)


@BYTES
@pytest.mark.parametrize("opset", [13, 16, 21])
@pytest.mark.parametrize("weights_of", ["floats", "bytes"])
@pytest.mark.parametrize(("ops", "nodes"), [("Conv", ()), ((), "r*")])
def test_convolutions_that_stay_run_on_integers(
    ops: Names, nodes: Names, weights_of: str, opset: int, dtype: DTypeLike, tmp_path: Path
) -> None:
    """Where only what is behind them runs as one."""
    text = "(float[N,24,H,4] x) => (float[] y) { a0, a1, a2 = Split<axis=1>(x, sizes) "
    kernel = "k@ = DequantizeLinear(v@, u, o)" if weights_of == "bytes" else "k@ = Identity(w@)"
    text += lanes(
        f"{kernel} q@ = QuantizeLinear(a@, s@, z@) e@ = DequantizeLinear(q@, s@, z@) "
        "c@ = Conv<strides=[1,1]>(e@, k@) r@ = QuantizeLinear(c@, t, z) d@ = DequantizeLinear(r@, t, z) "
        "f@ = Mul(d@, m@) g@ = QuantizeLinear(f@, s@, z@) h@ = DequantizeLinear(g@, s@, z@) "
        "y@ = Relu(h@)",
        "y = Sum(y0, y1, y2) }",
    )
    weights: dict[str, ArrayLike] = {"sizes": ints(8, 8, 8), "u": np.float32(0.02)}
    weights |= {"z": np.array(3, dtype), "t": np.float32(0.05), "o": np.array(0, dtype)}
    for k in range(LANES):
        weights |= {f"s{k}": np.float32(0.05 * (1 + k)), f"z{k}": np.array(k, dtype)}
        weights |= {f"m{k}": np.float32(1 + k), f"w{k}": numbers(8, 8, 1, 1, seed=k)}
        weights[f"v{k}"] = (np.asarray(codes(8, 8, 1, 1)(k)) // 2).astype(dtype)
    model = name_nodes(net(text, weights, opset=opset, ir=IR[opset]))
    made = onnx_sched.optimize(model, choose="always", check=False, skip_ops=ops, skip_nodes=nodes)
    new = made.proto
    before, after = fused(model, tmp_path / "a.onnx"), fused(new, tmp_path / "b.onnx")
    assert before["QLinearConv"] == LANES
    if sum(n.op_type == "Conv" for n in new.graph.node) == LANES:
        assert after["QLinearConv"] == LANES


CODES = ("S201", "S305")


def test_a_refusal_says_that_weights_are_rounded() -> None:
    """Of lanes that are left alone for it, and of lanes that would need scales of their own for it."""
    body = (
        "q@ = QuantizeLinear(a@, s, z) e@ = DequantizeLinear(q@, s, z) c@ = Conv(e@, w@) "
        "r@ = QuantizeLinear(c@, s, z) y@ = DequantizeLinear(r@, s, z)"
    )
    text = "(float[N,24,H,W] x) => (float[] y0, float[] y1, float[] y2) { "
    text += f"a0, a1, a2 = Split<axis=1>(x, sizes) {lanes(body)} }}"
    weights: dict[str, ArrayLike] = {
        "sizes": ints(8, 8, 8),
        "s": np.float32(0.05),
        "z": np.uint8(9),
    }
    weights |= {f"w{k}": numbers(8, 8, 1, 1, seed=k) for k in range(LANES)}
    made = onnx_sched.optimize(net(text, weights, opset=13), choose="always", check=False)
    reasons = {code: [r.reason for r in made.plan.refusals if r.code == code] for code in CODES}
    assert all("on integers" in reason for reason in reasons["S305"])
    assert all("round the weights" in reason for reason in reasons["S201"])
    assert all(reasons.values())
