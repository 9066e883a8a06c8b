"""Weighted sums: every way to a product gives the sum, and gates over lanes take one node."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from onnx import ModelProto, NodeProto

import onnx_sched
from onnx_sched.assemble import assemble
from onnx_sched.circuit import LINEAR, keep_nothing
from onnx_sched.errors import UsageError
from onnx_sched.levelling import best_groups
from onnx_sched.options import Options, unsummed
from onnx_sched.planner import made
from onnx_sched.sums import addable, settled
from onnx_sched.variants import choices, formed, forms, kind_key
from onnx_sched.weighing import FORM, SMALLEST, Factors, Place, ways
from onnx_sched.writing import fill_all
from tests.examples_weighted import WEIGHTED
from tests.nets import analysed, ints, name_nodes, net, nodes_of, numbers, physical, run
from tests.rule_examples import WAYS, Example, all_made, carried_out, compare, with_ranks

LANES = 3


@st.composite
def factors(draw: st.DrawFn) -> Factors:
    """Two operands that broadcast, and an axis that both have, or none."""
    rank = draw(st.integers(1, 4))
    inner = draw(st.none() | st.integers(0, rank - 1))
    sizes = [draw(st.sampled_from([(2, 2), (1, 3), (4, 1), (1, 1)])) for _ in range(rank)]
    if inner is not None:
        sizes[inner] = (5, 5)
    shapes = tuple(tuple(s[k] for s in sizes) for k in (0, 1))
    shorter = draw(st.integers(0, 1))  # axes of size 1 in front may be left out
    ones = next((n for n, d in enumerate(shapes[shorter]) if d != 1), rank)
    cut = [draw(st.integers(0, ones)) if k == shorter else 0 for k in (0, 1)]
    return Factors((shapes[0][cut[0] :], shapes[1][cut[1] :]), inner, draw(st.booleans()))


@st.composite
def places(draw: st.DrawFn, found: Factors) -> Place:
    """Where lanes may stand in their product."""
    held = draw(st.sampled_from([(0,), (1,), (0, 1)]))
    part = "inner" if found.inner is None else draw(st.sampled_from(["batch", "free", "inner"]))
    if part == "inner" and found.inner is None:
        return Place((0, 1), "inner")
    if part == "batch":
        return Place(held, "batch", draw(st.integers(0, len(found.batches))))
    return Place(held[:1], "free") if part == "free" else Place((0, 1), "inner")


@given(st.data())
def test_every_way_to_a_product_gives_the_sum(data: st.DataObject) -> None:
    """Whatever part lanes and axes play, the matrix product is the sum of the products."""
    found = data.draw(factors())
    assume(found.fits)
    place = data.draw(places(found))
    operands = [
        numbers(LANES if k in place.slots else 1, *(int(d) for d in found.shapes[k]), seed=k)
        for k in (0, 1)
    ]
    each = _raised(operands[0], found.rank) * _raised(operands[1], found.rank)
    axes = () if found.inner is None else (found.inner + 1,)
    total = each.sum(axis=axes, keepdims=True)
    if place.part == "inner":
        total = total.sum(axis=0, keepdims=True)
    lanes = (total.shape[0],)
    want = total.reshape((*lanes, *(int(d) for d in found.result)))
    for way in ways(found, place):
        laid = [physical(o, la) for o, la in zip(operands, way.layouts, strict=True)]
        got = np.matmul(laid[way.left], laid[1 - way.left])
        np.testing.assert_allclose(got, physical(want, way.whole), rtol=1e-4, atol=1e-5)


def _raised(array: np.ndarray, rank: int) -> np.ndarray:
    """Lanes in front, and axes of size 1 where the lanes have fewer than others."""
    return array.reshape((array.shape[0], *(1,) * (rank + 1 - array.ndim), *array.shape[1:]))


@pytest.mark.parametrize(
    ("shapes", "inner", "lanes", "pays"),
    [
        (((8, 1), (8, 4)), 0, 1, True),
        (((8, 1), (8, 3)), 0, 1, False),
        (((1,), (4,)), None, 8, True),
        (((1,), (4,)), None, 7, False),
        ((("N", 1), ("N", 2)), 0, 1, True),
    ],
)
def test_small_products_do_not_pay(
    shapes: tuple[tuple[int | str, ...], tuple[int | str, ...]],
    inner: int | None,
    lanes: int,
    pays: bool,
) -> None:
    """From 32 numbers on; a size that is not known counts as large."""
    assert SMALLEST == 32
    assert Factors(shapes, inner).pays(lanes) == pays


# -- over lanes -------------------------------------------------------------------------------------

JOINS = {
    "stacked behind": (
        "{experts} u{k} = Unsqueeze(e{k}, one)",
        "j = Concat<axis=1>({u}) g = Unsqueeze(s, two) m = Mul({order}) y = ReduceSum<keepdims=0>(m, one)",
    ),
    "stacked last": (
        "{experts} u{k} = Unsqueeze(e{k}, two)",
        "j = Concat<axis=-1>({u}) g = Unsqueeze(s, one) m = Mul({order}) y = ReduceSum<keepdims=0>(m, two)",
    ),
    "axis kept": (
        "{experts} u{k} = Unsqueeze(e{k}, one)",
        "j = Concat<axis=1>({u}) g = Unsqueeze(s, two) m = Mul({order}) y = ReduceSum(m, one)",
    ),
    "added up": (
        "{experts} t{k} = Mul(e{k}, s{k})",
        "{split} y = Sum({t})",
    ),
    "added one by one": (
        "{experts} t{k} = Mul(s{k}, e{k})",
        "{split} c = Add(t0, t1) d = Add(c, t2) y = Add(d, t3)",
    ),
}
EXPERTS = 4


def gated(join: str, width: int = 16, order: str = "g, j", tail: str = "") -> ModelProto:
    """Four experts of one input, mixed by a Softmax."""
    first, last = JOINS[join]
    weights: dict[str, ArrayLike] = {"one": ints(1), "two": ints(2), "ones": ints(1, 1, 1, 1)}
    lines = ["l = MatMul(x, wg)", "s = Softmax<axis=1>(l)"]
    weights["wg"] = numbers(6, EXPERTS, seed=50)
    if "{split}" in last:
        lines.append("s0, s1, s2, s3 = Split<axis=1>(s, ones)")
    for k in range(EXPERTS):
        weights |= {f"a{k}": numbers(6, width, seed=k), f"b{k}": numbers(width, width, seed=9 + k)}
        experts = f"h{k} = MatMul(x, a{k}) r{k} = Relu(h{k}) e{k} = MatMul(r{k}, b{k})"
        lines.append(first.format(experts=experts, k=k))
    named = {c: ", ".join(f"{c}{k}" for k in range(EXPERTS)) for c in "ut"}
    lines.append(last.format(split="", order=order, **named))
    text = f"(float[N,6] x) => (float[] y{tail and ', float[] ' + tail}) {{ {' '.join(lines)} }}"
    return with_ranks(name_nodes(net(text, weights, opset=17)))


def optimised(model: ModelProto, keeps: Callable[[NodeProto], bool] = keep_nothing) -> ModelProto:
    """All that is legal batched, what can be a weighted sum as one product, checked against the original."""
    analysis = analysed(model)
    circuit = replace(analysis.circuit, unsummed=keeps)
    analysis = replace(analysis, circuit=circuit)
    _, found = best_groups(circuit, lambda unit: False)
    sums = addable(circuit, found)
    groups = [replace(g, summed=n in sums) for n, g in enumerate(found)]
    groups = [replace(g, form=FORM) if FORM in forms(g, circuit) else g for g in groups]
    new = all_made(model, analysis, groups)
    assert compare(model, new, *({"N": n} for n in (1, 3, 0))) == 3
    return new


@pytest.mark.parametrize("order", ["g, j", "j, g"])
@pytest.mark.parametrize("join", JOINS)
def test_a_gate_over_lanes_is_one_product(join: str, order: str) -> None:
    """Neither the products nor their sum are left, nor what put lanes side by side for them."""
    new = optimised(gated(join, order=order))
    assert not [
        n.op_type for n in new.graph.node if n.op_type in {"Mul", "ReduceSum", "Concat", "Sum"}
    ]
    assert len(nodes_of(new, "MatMul")) + len(nodes_of(new, "Gemm")) <= 4
    assert "y" in {o for n in new.graph.node for o in n.output}


@pytest.mark.parametrize("join", JOINS)
def test_a_small_gate_is_left_as_it_is(join: str) -> None:
    """Where a product of so few numbers is slower, Mul stays."""
    new = optimised(gated(join, width=4))
    assert len(nodes_of(new, "Mul")) == 1


@pytest.mark.parametrize("join", JOINS)
def test_sums_are_left_alone_on_request(join: str) -> None:
    """`--skip-pass sums` keeps what is summed in the order in which the model sums it."""
    new = optimised(gated(join), unsummed(Options(skip_passes=("sums",))))
    assert nodes_of(new, "Mul")


@pytest.mark.parametrize(("join", "seen"), [("stacked last", "j"), ("added up", "t1")])
def test_what_somebody_else_reads_is_still_made(join: str, seen: str) -> None:
    """The experts side by side, or one product, as an output of the graph."""
    new = optimised(gated(join, tail=seen))
    assert seen in {o for n in new.graph.node for o in n.output}


@pytest.mark.parametrize("join", JOINS)
def test_a_plan_replays_weighted_sums(join: str, tmp_path: Path) -> None:
    """A plan that asks for products gets them, and the plan of that gives the same bytes again."""
    model, asked, saved = gated(join), tmp_path / "asked.json", tmp_path / "saved.json"
    first = onnx_sched.optimize(model, choose="always")
    first.save_plan(asked)
    data = json.loads(asked.read_text("utf-8"))
    sums = addable(analysed(model).circuit, first.plan.groups)
    assert sums
    for n, row in enumerate(data["groups"]):
        row["summed"] = n in sums
    del data["sums"]
    asked.write_text(json.dumps(data), "utf-8")
    second = onnx_sched.optimize(model, plan=asked)
    assert len(nodes_of(second.proto, "MatMul")) > len(nodes_of(first.proto, "MatMul"))
    second.save_plan(saved)
    third = onnx_sched.optimize(model, plan=saved)
    assert third.proto.SerializeToString() == second.proto.SerializeToString()


ACROSS = {
    "weighed": "m = Mul(j, q) y = ReduceSum<keepdims=0>(m, two)",
    "averaged": "y = ReduceMean<axes=[2]>(j)",
    "added": "y = ReduceSum<keepdims=0>(j, zero)",
}


@pytest.mark.parametrize("across", ACROSS)
def test_sums_across_another_axis_are_no_sums_over_lanes(across: str) -> None:
    """Lanes side by side on one axis, of one entry each on all, and a sum over another."""
    weights: dict[str, ArrayLike] = {"one": ints(1), "two": ints(2), "zero": ints(0)}
    lines = []
    for k in range(EXPERTS):
        weights |= {f"a{k}": numbers(6, 6, seed=k), f"b{k}": numbers(6, 16, seed=k)}
        body = "h@ = MatMul(x, a@) r@ = Relu(h@) e@ = MatMul(r@, b@) u@ = Unsqueeze(e@, one)"
        lines.append(body.replace("@", str(k)))
    lines.append(f"j = Concat<axis=1>(u0, u1, u2, u3) {ACROSS[across]}")
    text = f"(float[1,6] x, float[1,1,16] q) => (float[] y) {{ {' '.join(lines)} }}"
    new = optimised(with_ranks(name_nodes(net(text, weights, opset=17))))
    assert "y" in {o for n in new.graph.node for o in n.output}


def test_a_plan_cannot_ask_for_sums_that_are_not_there(tmp_path: Path) -> None:
    """Groups whose lanes nobody adds up."""
    model, path = gated("added up"), tmp_path / "plan.json"
    onnx_sched.optimize(model, choose="always").save_plan(path)
    data = json.loads(path.read_text("utf-8"))
    data["groups"][0]["summed"] = True
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(UsageError, match="nothing adds up its lanes"):
        onnx_sched.optimize(model, plan=path)


def test_numbers_that_are_none_stay_where_they_were() -> None:
    """NaN in one row of the batch reaches that row of the sum and no other."""
    for join in JOINS:
        model = gated(join)
        x = numbers(4, 6)
        x[2, 1] = np.nan
        want, got = run(model, {"x": x})["y"], run(optimised(model), {"x": x})["y"]
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        assert 0 < np.isnan(want).sum() < prod(want.shape)


# -- terms that all count the same ------------------------------------------------------------------

MIXES = {
    "added": "y = Sum(e0, e1, e2, e3)",
    "averaged": "y = Mean(e0, e1, e2, e3)",
    "more added": "c = Add(e0, e1) d = Add(c, e2) e = Add(d, e3) y = Add(e, x6)",
    "stacked and averaged": "{u} j = Concat<axis=0>(u0, u1, u2, u3) y = ReduceMean<axes=[0], keepdims=0>(j)",
    "stacked and kept": "{u} j = Concat<axis=0>(u0, u1, u2, u3) y = ReduceMean<axes=[0]>(j)",
    "stacked and added": "{u} j = Concat<axis=0>(u0, u1, u2, u3) y = ReduceSum<keepdims=0>(j, zero)",
}


NO_KERNEL = ("averaged", "double")
"""ONNX Runtime has no Mean in double precision."""


def mixed(mix: str, kind: str = "float") -> ModelProto:
    """Members of an ensemble, each of an input of its own, and their sum or mean."""
    lines = ["p0, p1, p2, p3 = Split<axis=1>(x, sizes)"]
    weights: dict[str, ArrayLike] = {"sizes": ints(6, 6, 6, 6), "zero": ints(0)}
    for k in range(EXPERTS):
        weights[f"a{k}"] = numbers(6, 6, seed=k).astype(
            np.float64 if kind == "double" else np.float32
        )
        lines.append(f"h{k} = MatMul(p{k}, a{k}) e{k} = Tanh(h{k})")
    stacked = " ".join(f"u{k} = Unsqueeze(e{k}, zero)" for k in range(EXPERTS))
    lines.append(MIXES[mix].format(u=stacked))
    text = f"({kind}[N,24] x, {kind}[N,6] x6) => ({kind}[] y) {{ {' '.join(lines)} }}"
    return with_ranks(name_nodes(net(text, weights, opset=17)))


@pytest.mark.parametrize(
    ("mix", "kind"),
    [(mix, kind) for mix in MIXES for kind in ("float", "double") if (mix, kind) != NO_KERNEL],
)
def test_sums_and_means_of_lanes_are_products_with_ones(mix: str, kind: str) -> None:
    """No reduction over lanes is left, nor the Concat that it read."""
    new = optimised(mixed(mix, kind))
    left = [n.op_type for n in new.graph.node if n.op_type in {"ReduceSum", "ReduceMean", "Concat"}]
    assert (left, len(nodes_of(new, "MatMul"))) == ([], 2)


# -- a weighted sum in every lane ---------------------------------------------------------------------

IN_LANES = [
    pytest.param(example, way, opset, id=f"{n}-{way}-{opset}")
    for n, example in enumerate(WEIGHTED)
    for way, opset in example.cases
]


@pytest.mark.parametrize(("example", "way", "opset"), IN_LANES)
def test_weighted_sums_of_lanes_are_one_product(example: Example, way: str, opset: int) -> None:
    """Wherever the lanes lie, and whether the gate or what it weighs is one value for all."""
    model, how = example.build(way, opset), WAYS[way]
    kinds = {LINEAR: how.form, "WeightedSum": FORM}
    new = carried_out(model, kinds=kinds, nonempty=how.nonempty).model
    assert not [n.op_type for n in new.graph.node if n.op_type in {"Mul", "ReduceSum"}]
    rows = (1, 3, 0) if how.zero else (1, 3)
    assert compare(model, new, *({"N": n, "S": 5} for n in rows)) >= 2


OPEN_ROWS = ["N,S", "N,S,3", "N,3,S"]


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("rows", OPEN_ROWS)
def test_every_choice_makes_a_whole_graph(rows: str, axis: int, opset: int) -> None:
    """Where sizes stand in the way a choice is refused: no lane of a product inside is read by itself."""
    shape = [*rows.split(","), "8"]
    gate = ",".join(d if a == axis else "1" for a, d in enumerate(shape))
    weights: dict[str, ArrayLike] = {"over": ints(axis)}
    weights |= {f"w{k}": numbers(6, 8, seed=k) for k in range(LANES)}
    lines = [
        f"h{k} = MatMul(x, w{k}) m{k} = Mul(h{k}, g{k}) s{k} = ReduceSum<keepdims=0>(m{k}, over) "
        f"y{k} = Tanh(s{k})"
        for k in range(LANES)
    ]
    inputs = ", ".join(f"float[{gate}] g{k}" for k in range(LANES))
    outputs = ", ".join(f"float[] y{k}" for k in range(LANES))
    text = f"(float[{rows},6] x, {inputs}) => ({outputs}) {{ {' '.join(lines)} }}"
    model = with_ranks(name_nodes(net(text, weights, opset=opset)))
    analysis = analysed(model)
    _, found = best_groups(analysis.circuit, lambda unit: False)
    options = choices(found, analysis.circuit)
    assert any("weighted_sum" in o for o in options.values())
    for combination in product(*options.values()):
        chosen = dict(zip(options, combination, strict=True))
        rewritten, _ = made(analysis, formed(found, chosen, analysis.circuit), [])
        if rewritten is None:
            continue
        new = assemble(model, analysis.circuit, rewritten)
        fill_all(new, rewritten.fresh)
        onnx.checker.check_model(new, full_check=True)
        assert compare(model, new, {"N": 2, "S": 5}) == 1


@pytest.mark.parametrize("lanes", ["hold the gate", "hold what it weighs", "hold both"])
def test_nothing_to_sum_is_a_row_of_zeros(lanes: str) -> None:
    """Attention pooling over an empty axis: ONNX Runtime cannot repeat a matrix without columns."""
    own = {"hold the gate": "10", "hold what it weighs": "01", "hold both": "11"}[lanes]
    weights: dict[str, ArrayLike] = {"over": ints(1), "wg": numbers(6, 1), "wh": numbers(6, 8)}
    lines = ["g = MatMul(x, wg) h = MatMul(x, wh)"]
    for k in range(LANES):
        for role, width in (("a", 6), ("b", 8), ("c", 6), ("d", 1)):
            weights[f"{role}{k}"] = numbers(6, width, seed=k + ord(role))
        gate, value = (f"g{k}" if own[0] == "1" else "g"), (f"h{k}" if own[1] == "1" else "h")
        lines.append(
            f"p{k} = MatMul(x, a{k}) r{k} = Tanh(p{k}) h{k} = MatMul(r{k}, b{k}) "
            f"q{k} = MatMul(x, c{k}) t{k} = Tanh(q{k}) g{k} = MatMul(t{k}, d{k}) "
            f"m{k} = Mul({gate}, {value}) y{k} = ReduceSum<keepdims=0>(m{k}, over)"
        )
    lines.append("y = Concat<axis=1>(y0, y1, y2)")
    text = f"(float[N,S,6] x) => (float[] y) {{ {' '.join(lines)} }}"
    model = with_ranks(name_nodes(net(text, weights)))
    analysis = analysed(model)
    _, found = best_groups(analysis.circuit, lambda unit: False)
    options = choices(found, analysis.circuit)
    sizes = [{"N": n, "S": s} for n in (0, 1, 3) for s in (0, 1, 5)]
    for form in ("stacked", "conv_t", "grouped_conv", "wide"):
        chosen = {k: next((f for f in (FORM, form) if f in o), o[0]) for k, o in options.items()}
        rewritten, _ = made(analysis, formed(found, chosen, analysis.circuit), [])
        if rewritten is None:
            continue
        new = assemble(model, analysis.circuit, rewritten)
        fill_all(new, rewritten.fresh)
        assert compare(model, new, *sizes) == len(sizes)


@pytest.mark.parametrize("mix", MIXES)
def test_only_what_is_added_up_so_is_asked_for(mix: str) -> None:
    """A plan asks for sums by a product where there are some: what else asks is refused when it is read."""
    circuit = analysed(mixed(mix)).circuit
    _, found = best_groups(circuit, lambda unit: False)
    there = addable(circuit, found)
    assert 0 < len(there) < len(found)
    asked = [replace(g, summed=True) for g in found]
    assert [g.summed for g in settled(circuit, asked)] == [n in there for n in range(len(found))]
    every: dict[Hashable, str] = {("sum", kind_key(g, circuit)): FORM for g in found}
    assert [g.summed for g in formed(found, every, circuit)] == [
        n in there for n in range(len(found))
    ]
