"""Sums of linear maps: one map of what they read, side by side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from numpy.typing import ArrayLike
from onnx import ModelProto

from onnx_sched.levelling import best_groups
from onnx_sched.sums import addable, reductions
from tests.nets import analysed, ints, name_nodes, net, nodes_of, numbers, run
from tests.rule_examples import all_made, compare, with_ranks

LANES = 3

HEADS = {
    "own": "p@ = MatMul(x, a@) r@ = Tanh(p@)",
    "own, normed": "p@ = MatMul(x, a@) r@ = LayerNormalization(p@, g@, s@)",
    "one for all": "r@ = Identity(r)",
}
MAPS = {
    "bare": "h@ = MatMul(r@, w@)",
    "with a bias": "n@ = MatMul(r@, w@) h@ = Add(n@, c@)",
    "with a bias each": "n@ = MatMul(r@, w@) h@ = Add(c@, n@)",
}
SUMS = {
    "added": "y = Sum(h0, h1, h2)",
    "one by one": "t = Add(h0, h1) y = Add(t, h2)",
    "averaged": "y = Mean(h0, h1, h2)",
    "beside others": "t = Add(z, h0) u = Add(t, h1) v = Add(u, h2) y = Add(z, v)",
    "stacked and averaged": "{u} j = Concat<axis=0>(u0, u1, u2) y = ReduceMean<axes=[0], keepdims=0>(j)",
    "stacked and added": "{u} j = Concat<axis=0>(u0, u1, u2) y = ReduceSum<keepdims=0>(j, zero)",
}


def summed(head: str, maps: str, sum_: str, *, rows: str = "N", kind: str = "float") -> ModelProto:
    """Linear maps of three values, or of one, and their sum."""
    width = np.float64 if kind == "double" else np.float32
    weights: dict[str, ArrayLike] = {"zero": ints(0)}
    lines = ["r = Tanh(x)"] if head == "one for all" else []
    for k in range(LANES):
        for name, shape in (("a", (5, 4)), ("g", (4,)), ("s", (4,))):
            weights[f"{name}{k}"] = numbers(*shape, seed=k + ord(name)).astype(width)
        inner = 5 if head == "one for all" else 4
        weights[f"w{k}"] = numbers(inner, 6, seed=k).astype(width)
        if maps == "with a bias each" or (maps == "with a bias" and k):
            weights[f"c{k}"] = numbers(6, seed=20 + k).astype(width)
        body = MAPS["bare" if maps == "with a bias" and not k else maps]
        lines.append(f"{HEADS[head]} {body}".replace("@", str(k)))
    stacked = " ".join(f"u{k} = Unsqueeze(h{k}, zero)" for k in range(LANES))
    lines.append(SUMS[sum_].format(u=stacked))
    text = f"({kind}[{rows},5] x, {kind}[{rows},6] z) => ({kind}[] y) {{ {' '.join(lines)} }}"
    used = {
        k: v
        for k, v in weights.items()
        if any(k in f.replace(",", " ").replace(")", " ").replace("(", " ").split() for f in lines)
    }
    return with_ranks(name_nodes(net(text, used)))


def optimised(model: ModelProto) -> ModelProto:
    """All that is legal batched, sums made by products."""
    analysis = analysed(model)
    _, found = best_groups(analysis.circuit, lambda unit: False)
    sums = addable(analysis.circuit, found)
    groups = tuple(replace(g, summed=n in sums) for n, g in enumerate(found))
    new = all_made(model, analysis, groups)
    assert compare(model, new, *({"N": n, "S": 2} for n in (1, 3, 0))) == 3
    return new


def products(model: ModelProto) -> int:
    return sum(len(nodes_of(model, kind)) for kind in ("MatMul", "Gemm", "Conv"))


@pytest.mark.parametrize("rows", ["N", "N,7", "N,S"])
@pytest.mark.parametrize("sum_", SUMS)
@pytest.mark.parametrize("maps", MAPS)
@pytest.mark.parametrize("head", [h for h in HEADS if h != "one for all"])
def test_the_sum_of_maps_is_one_map(head: str, maps: str, sum_: str, rows: str) -> None:
    """No reduction, one product for the sum, whatever is beside it and whichever maps have a bias."""
    new = optimised(summed(head, maps, sum_, rows=rows))
    left = [
        n.op_type
        for n in new.graph.node
        if n.op_type.startswith(("Reduce", "Concat", "Sum", "Mean"))
    ]
    assert left == []
    assert products(new) == 2


@pytest.mark.parametrize("sum_", SUMS)
@pytest.mark.parametrize("maps", MAPS)
def test_maps_of_one_value_are_not_added_up(maps: str, sum_: str) -> None:
    """Infinities of both signs come to no number, and small weights beside large ones do not get lost."""
    model = summed("one for all", maps, sum_)
    model.graph.node[0].op_type = "Identity"
    new = optimised(model)
    x, z = numbers(4, 5, seed=1), numbers(4, 6, seed=2)
    x[0, 1], x[1, 2], x[2, 0] = np.inf, -np.inf, np.nan
    want, got = (run(m, {"x": x, "z": z})["y"] for m in (model, new))
    assert np.isnan(want[:2]).any()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_biases_whose_sum_does_not_fit_are_not_added_up() -> None:
    """What they are added to may bring the sum back: in half precision 30000 three times is not finite."""
    model = summed("own", "with a bias each", "added")
    for tensor in model.graph.initializer:
        if tensor.name[0] == "c":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.full(6, 3e38, np.float32), tensor.name))
    model.graph.node[-1].op_type = "Mean"
    circuit = analysed(model).circuit
    groups = tuple(replace(g, summed=True) for g in best_groups(circuit, lambda unit: False)[1])
    assert all(r.linear is None for r in reductions(circuit, groups))


@pytest.mark.parametrize("sum_", ["added", "stacked and averaged"])
def test_doubles_and_one_row_are_no_exception(sum_: str) -> None:
    """In double precision, and where the number of rows is known."""
    for kind, rows in (("double", "N"), ("float", "1"), ("float", "8")):
        assert products(optimised(summed("own", "with a bias", sum_, kind=kind, rows=rows))) == 2


@pytest.mark.parametrize("seen", ["h1", "u1", "t"])
def test_what_somebody_else_reads_is_made_by_itself(seen: str) -> None:
    """A map whose result is an output, or a partial sum, is no part of a sum that hides it."""
    sum_ = "one by one" if seen == "t" else "stacked and added"
    model = summed("own", "bare", sum_)
    shape: list[str | int | None] = ["N", 6] if seen != "u1" else [1, "N", 6]
    model.graph.output.append(onnx.helper.make_tensor_value_info(seen, 1, shape))
    new = optimised(model)
    assert seen in {o for n in new.graph.node for o in n.output}


IMAGES = {"own": "p@ = Conv(x, a@) r@ = Relu(p@)", "one for all": "r@ = Identity(x)"}


@pytest.mark.parametrize("head", IMAGES)
def test_the_sum_of_convolutions_is_one_convolution(head: str) -> None:
    """Channels side by side; those of one value stay apart, or side by side."""
    weights: dict[str, ArrayLike] = {}
    lines = []
    for k in range(LANES):
        inner = 3 if head == "one for all" else 4
        weights |= {f"w{k}": numbers(5, inner, 3, 3, seed=k), f"c{k}": numbers(5, seed=k)}
        if head == "own":
            weights[f"a{k}"] = numbers(4, 3, 1, 1, seed=7 + k)
        lines.append(f"{IMAGES[head]} h@ = Conv<pads=[1,1,1,1]>(r@, w@, c@)".replace("@", str(k)))
    lines.append("s = Sum(h0, h1, h2) y = Relu(s)")
    model = with_ranks(
        name_nodes(net(f"(float[N,3,6,6] x) => (float[] y) {{ {' '.join(lines)} }}", weights))
    )
    new = optimised(model)
    sums = [n.op_type for n in new.graph.node if n.op_type in {"Sum", "Add", "ReduceSum"}]
    assert (products(new), bool(sums)) == ((2, False) if head == "own" else (1, True))
