"""Why nodes that might have run together do not: one code, one sentence and the nodes, for each of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

import onnx_sched
from onnx_sched.circuit import Unit
from onnx_sched.plan import Refusal, merged
from onnx_sched.refusals import (
    FAMILY,
    HEAVY,
    ONE_NAME,
    Cause,
    explain,
    is_batched,
    together,
)
from tests.nets import COMMITTED, analysed, committed, name_nodes, net, numbers

WEIGHTS: Mapping[str, ArrayLike] = {
    **{f"w{k}": numbers(4, 4, seed=k) for k in range(4)},
    "d": numbers(4, 4, dtype=np.float64),
    "u": numbers(2, 4, 4),
    "d1": numbers(2, 4, 1, 1),
    "d2": numbers(2, 4, 1, 1, seed=1),
    "k1": numbers(2, 4, 3),
    "k2": numbers(2, 4, 1),
    "k3": numbers(2, 4, 3, seed=2),
}
CHAIN = "each stands alone at its level, before or after the others"
PLACES = "their inputs come from different places, so that gluing would cost more"
NAMES = "open sizes bear different names, [N, 4] beside [M, 4]"

Case = tuple[str, str, str, set[tuple[str, str, tuple[str, ...]]]]
CASES: dict[str, Case] = {
    "a chain": (
        "float[N,4] x",
        "float[] y",
        "a = MatMul(x, w0) b = MatMul(a, w1) y = MatMul(b, w2)",
        {("S101", f"MatMul: {CHAIN}", ("a", "b", "y"))},
    ),
    "no rule": (
        "float[N,4,5,5] x, float[N,2,5,5] o",
        "float[] y, float[] z",
        "y = DeformConv(x, d1, o) z = DeformConv(x, d2, o)",
        {("S102", "DeformConv: there is no batching rule for DeformConv", ("y", "z"))},
    ),
    "a vector": (
        "float[N,4] x, float[4] v, float[4] t",
        "float[] y, float[] z",
        "y = MatMul(x, v) z = MatMul(x, t)",
        {("S102", "MatMul: an operand is a vector", ("y", "z"))},
    ),
    "other rows": (
        "float[N,4] x, float[M,4] v",
        "float[] y, float[] z",
        "y = MatMul(x, w0) z = MatMul(v, w1)",
        {("S103", f"MatMul: {NAMES}; {ONE_NAME}", ("y", "z"))},
    ),
    "other kernels": (
        "float[N,4,9] x, float[N,4,9] v",
        "float[] y, float[] z",
        "y = Conv(x, k1) z = Conv(v, k2)",
        {("S103", "Conv: shapes differ, [2, 4, 3] beside [2, 4, 1]", ("y", "z"))},
    ),
    "another element type": (
        "float[N,4] x, double[N,4] v",
        "float[] y, double[] z",
        "y = MatMul(x, w0) z = MatMul(v, d)",
        {("S104", "MatMul: the element types differ", ("y", "z"))},
    ),
    "another attribute": (
        "float[N,4,9] x, float[N,4,9] v",
        "float[] y, float[] z",
        "y = Conv<pads=[2,2]>(x, k1) z = Conv<pads=[1,1]>(v, k3)",
        {("S105", "Conv: attribute pads differs, [2, 2] beside [1, 1]", ("y", "z"))},
    ),
    "a computed weight": (
        "float[N,4] x, float[N,4] v, float[2,4,4] q",
        "float[] y, float[] z",
        "y = MatMul(x, u) z = MatMul(v, q)",
        {("S106", "MatMul: the weight is constant in some and computed in others", ("y", "z"))},
    ),
    "an unknown shape": (
        "float[] x, float[] v",
        "float[] y, float[] z",
        "y = MatMul(x, w0) z = MatMul(v, w1)",
        {("S202", "MatMul: the shape of an operand is not known", ("y", "z"))},
    ),
    "another place": (
        "float[N,8] x, float[N,8] v",
        "float[] y, float[] z, float[] t",
        "p0, p1 = Split<axis=1, num_outputs=2>(x) q0, q1 = Split<axis=1, num_outputs=2>(v) "
        "y = MatMul(p0, w0) z = MatMul(p1, w1) t = MatMul(q0, w2)",
        {("S301", f"MatMul: {PLACES}", ("t",))},
    ),
}


@pytest.mark.parametrize(
    ("last", "names"),
    [("z = Gemm(v, w1)", "Gemm/MatMul"), ("z = MatMul(v, w1)", "MatMul")],
)
def test_nodes_are_called_what_they_are(last: str, names: str) -> None:
    """Gemm and MatMul are one family, but a reason calls its nodes as the file does."""
    model = net(
        f"(float[N,4] x, float[M,4] v) => (float[] y, float[] z) {{ y = MatMul(x, w0) {last} }}",
        {"w0": numbers(4, 4), "w1": numbers(4, 4, seed=1)},
    )
    (refusal,) = onnx_sched.optimize(model, choose="always", check=False).report.refusals
    assert refusal.reason == f"{names}: {NAMES}; {ONE_NAME}"
    both = net(
        "(float[N,4] x, float[M,4] v) => (float[] y, float[] z) "
        "{ y = Gemm(x, w0) z = Gemm(v, w1) }",
        {"w0": numbers(4, 4), "w1": numbers(4, 4, seed=1)},
    )
    (refusal,) = onnx_sched.optimize(both, choose="always", check=False).report.refusals
    assert refusal.reason.startswith("Gemm: ")


def test_reasons_that_say_the_same_are_one() -> None:
    """Four widths are one reason with all four nodes, and name no more shapes than one can read."""
    inputs = ", ".join(f"float[N,{k}] x{k}" for k in range(4, 9))
    outputs = ", ".join(f"float[] y{k}" for k in range(4, 9))
    nodes = " ".join(f"y{k} = MatMul(x{k}, w{k})" for k in range(4, 9))
    weights = {f"w{k}": numbers(k, 4) for k in range(4, 9)}
    model = net(f"({inputs}) => ({outputs}) {{ {nodes} }}", weights)
    report = onnx_sched.optimize(model, choose="always", check=False).report
    (refusal,) = report.refusals
    assert refusal.nodes == ("y4", "y5", "y6", "y7", "y8")
    assert refusal.reason == (
        "MatMul: shapes differ, [N, 4] beside [N, 5] beside [N, 6] and 2 more"
    )


SIDES = st.sampled_from("ABCDEF")
CAUSES = st.lists(st.tuples(st.sampled_from(["S103", "S105"]), st.lists(SIDES, max_size=2)))


@given(CAUSES)
def test_together(drawn: list[tuple[str, list[str]]]) -> None:
    """Every unit is in one of them; two that share a value are in the same; no value is in two."""
    units = [cast("Unit", n) for n in range(len(drawn))]
    given_ = [
        (Cause(code, "w", tuple(sides)), u) for (code, sides), u in zip(drawn, units, strict=True)
    ]
    found = together(given_)
    assert sorted(u for _, us in found for u in us) == units  # type: ignore[type-var]
    for code in ("S103", "S105"):
        seen = [s for c, _ in found if c.code == code for s in c.sides]
        assert len(seen) == len(set(seen))
        assert set(seen) == {s for c, sides in drawn if c == code for s in sides}
        assert sum(not c.sides for c, _ in found if c.code == code) <= 1


def build(inputs: str, outputs: str, body: str) -> onnx_sched.Result:
    """What is said about a model of these nodes."""
    read = {n: v for n, v in WEIGHTS.items() if re.search(rf"[ (]{n}[,)]", body)}
    model = name_nodes(net(f"({inputs}) => ({outputs}) {{ {body} }}", read, opset=19, ir=9))
    for node in model.graph.node:
        for attribute in node.attribute:
            for inner in attribute.g.node:
                inner.name = inner.output[0]
    return onnx_sched.optimize(model, choose="always", check=False)


@pytest.mark.parametrize("what", CASES)
def test_each_reason_has_its_code(what: str) -> None:
    """What keeps nodes apart is said by code and in words, with the names of the nodes."""
    inputs, outputs, body, expected = CASES[what]
    report = build(inputs, outputs, body).report
    assert {(r.code, r.reason, r.nodes) for r in report.refusals} == expected


def test_an_attribute_that_one_node_leaves_out_is_named() -> None:
    """Attributes without a default are compared by name: one that only one node spells is the reason."""
    report = build(
        "float[N,4,9] x, float[N,4,9] v",
        "float[] y, float[] z",
        "y = Conv(x, k1) z = Conv<pads=[1,1]>(v, k3)",
    ).report
    assert {r.code for r in report.refusals} == {"S105"}
    assert all("pads" in r.reason for r in report.refusals)


@pytest.mark.parametrize("name", ["near_weight_input", "near_weight_default"])
def test_a_weight_that_the_caller_gives_is_named(name: str) -> None:
    """A product whose weight is an input says so; no word of ours (Linear) stands in a reason."""
    result = onnx_sched.optimize(committed(name), choose="always", check=False)
    refusal = next(r for r in result.report.refusals if "lanes.1.0/MatMul" in r.nodes)
    assert refusal.code == "S106"
    assert "Linear" not in refusal.reason


@pytest.mark.parametrize("name", COMMITTED)
def test_every_heavy_node_has_one_outcome(name: str) -> None:
    """A heavy node that is one of several is in a group or in one refusal, never in both."""
    model = committed(name)
    analysis = analysed(model)
    plan = onnx_sched.optimize(model, choose="always", check=False).plan
    circuit = analysis.circuit
    told = Counter(circuit.label(u) for g in plan.groups for u in g.units if u.kind in HEAVY)
    told.update(n for r in plan.refusals for n in r.nodes)
    families: dict[str, list[str]] = {}
    for unit in circuit.units:
        if unit.kind in HEAVY:
            families.setdefault(FAMILY.get(unit.kind, unit.kind), []).append(circuit.label(unit))
    for members in families.values():
        if len(members) > 1:
            assert [told[m] for m in members] == [1] * len(members)


@pytest.mark.parametrize("name", COMMITTED)
def test_reasons_are_sentences_about_nodes_of_the_model(name: str) -> None:
    """Codes are S and three digits, reasons are for people, nodes are the model's; no reason stands twice."""
    model = committed(name)
    plan = onnx_sched.optimize(model, choose="always", check=False).plan
    names = {n.name or n.output[0] for n in model.graph.node}
    for refusal in plan.refusals:
        assert re.fullmatch(r"S[1-49]\d\d", refusal.code)
        assert len(refusal.reason) > 10
        assert set(refusal.nodes) <= names
        assert len(refusal.nodes) == len(set(refusal.nodes)) > 0
    assert merged(plan.refusals) == plan.refusals


def test_what_was_asked_not_to_be_touched_says_so() -> None:
    """Skipped by op type or by name: code S401, and the nodes stay."""
    model = committed("near_tapped_lane")
    for skipped in ({"skip_ops": ["MatMul"]}, {"skip_nodes": ["lanes.*"]}):
        result = onnx_sched.optimize(model, choose="always", check=False, **skipped)  # type: ignore[arg-type]
        assert result.report.status == "unchanged"
        assert {(r.code, len(r.nodes)) for r in result.report.refusals} == {("S401", 8)}


def test_what_was_batched_before_says_so() -> None:
    """Batched nodes of an earlier run are left alone: S402 where there are several of a kind at a level."""
    first = onnx_sched.optimize(committed("mmoe"), choose="always", check=False)
    analysis = analysed(first.proto)
    batched = [u for u in analysis.circuit.units if is_batched(analysis.circuit, u)]
    assert {u.kind for u in batched if u.kind in HEAVY} == {"Linear", "MatMul"}
    levels = [0] * len(analysis.circuit.units)
    found = explain(analysis.circuit, levels, (), lambda unit: True)
    assert ("S402", "Gemm/MatMul: they are batched nodes already") in {
        (r.code, r.reason) for r in found
    }


def test_one_of_a_kind_needs_no_reason() -> None:
    """A single product, or a single one in a body, has nobody to run with: nothing is said."""
    body = "t () => (float[N,4] u) { u = MatMul(x, w0) }"
    report = build(
        "float[N,4] x, bool c",
        "float[] y",
        f"q = MatMul(x, w1) y = If (c) <then_branch = {body}, "
        "else_branch = e () => (float[N,4] v) { v = Neg(q) }>",
    ).report
    assert report.refusals == ()


def test_equal_reasons_are_told_once() -> None:
    """Refusals of one code and reason are put together, in the order of their first, no node twice."""
    given = (
        Refusal("S301", "far", ("a", "b")),
        Refusal("S103", "wide", ("c",)),
        Refusal("S301", "far", ("b", "d")),
        Refusal("S302", "far", ("e",)),
    )
    assert merged(given) == (
        Refusal("S301", "far", ("a", "b", "d")),
        Refusal("S103", "wide", ("c",)),
        Refusal("S302", "far", ("e",)),
    )
    assert merged(merged(given)) == merged(given)
    assert merged(()) == ()
