"""Carrying out a plan: what stays is untouched, what is new is named, ordered, needed and signed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from onnx import ModelProto, NodeProto

from onnx_sched.analysis import Analysis
from onnx_sched.circuit import LINEAR, node_label
from onnx_sched.extract import reads
from onnx_sched.find import Finder
from onnx_sched.levelling import best_groups
from onnx_sched.levels import foata, quotient_is_acyclic
from onnx_sched.passes.compose import ends
from onnx_sched.passes.rewrite import MEMBERS, GroupRefused, Rewritten, rewrite
from onnx_sched.plan import Group, Plan, Refusal
from onnx_sched.planner import made
from onnx_sched.sums import reductions
from onnx_sched.variants import forms
from tests.nets import COMMITTED, analysed, committed, feeds, name_nodes, net, numbers
from tests.rule_examples import Runs, carried_out, compare, with_ranks

FORMS = ("", "stacked", "conv_t", "grouped_conv", "apart")


def rewritten(analysis: Analysis, form: str = "") -> tuple[Rewritten, tuple[Group, ...]]:
    """All that is legal, in a form where a group has it."""
    _, groups = best_groups(analysis.circuit, lambda unit: False)
    circuit = analysis.circuit
    groups = tuple(replace(g, form=form) if form in forms(g, circuit) else g for g in groups)
    refusals: list[Refusal] = []
    new, left = made(analysis, groups, refusals)
    if new is None:
        new = rewrite(analysis.circuit, Plan(), analysis.names, analysis.known)
    return new, left


def members(node: NodeProto) -> list[str]:
    """The nodes that a node says it replaces."""
    return [name for p in node.metadata_props if p.key == MEMBERS for name in json.loads(p.value)]


CASES = [(n, f) for n in COMMITTED for f in (("",) if n.startswith("near_") else FORMS)]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request: pytest.FixtureRequest) -> tuple[Analysis, Rewritten, tuple[Group, ...]]:
    """A committed model, rewritten in one form."""
    name, form = request.param
    analysis = analysed(committed(name))
    return analysis, *rewritten(analysis, form)


Case = tuple[Analysis, Rewritten, tuple[Group, ...]]


def test_nodes_stand_after_what_they_read(case: Case) -> None:
    """The new node list is in order, and every value is made once."""
    analysis, new, _ = case
    there = set(analysis.graph.constants) | set(new.fresh)
    there |= {v.name for v in analysis.source.model.graph.input}
    for node in (m.proto for m in new.nodes):
        assert set(reads(node)) <= there
        outputs = [o for o in node.output if o]
        assert not set(outputs) & there
        there.update(outputs)
    assert set(analysis.graph.outputs) <= there


def test_what_stays_is_the_same_node_in_the_same_order(case: Case) -> None:
    """A node in no group is handed on as it is; such nodes keep their order in the file."""
    analysis, new, _ = case
    place, taken = {id(n): k for k, n in enumerate(analysis.graph.nodes)}, analysis.names
    kept = [place[id(m.proto)] for m in new.nodes if id(m.proto) in place]
    assert kept == sorted(kept)
    for made_ in new.nodes:
        if made_.group is None and made_.proto.op_type != "Concat":
            assert id(made_.proto) in place or made_.proto.name not in taken


def test_no_member_of_a_group_is_left(case: Case) -> None:
    """The nodes that a group stands for are gone, and its own nodes name them all."""
    analysis, new, groups = case
    there = {id(m.proto) for m in new.nodes}
    maps = ends(analysis.circuit, groups)
    for number, group in enumerate(groups):
        nodes = [k for u in group.units for k in u.nodes]
        assert not any(id(analysis.graph.nodes[k]) in there for k in nodes)
        names = [node_label(analysis.graph, k) for k in nodes]
        main = [m.proto for m in new.nodes if m.group == number and m.main]
        if not main and number in maps:  # part of a linear map that ends with another group
            main = [m.proto for m in new.nodes if m.group == maps[number] and m.main]
            assert all(set(names) <= set(members(node)) for node in main)
        elif number in maps.values():
            assert all(set(names) <= set(members(node)) for node in main)
        else:
            assert all(members(node) == names for node in main)
        assert main or group.kind in ("Transpose", "Unsqueeze", "Squeeze", "Reshape")


def test_every_new_node_is_signed_and_no_other(case: Case) -> None:
    """Nodes say what they stand for exactly if they are new: a group's own, and those at its borders."""
    analysis, new, _ = case
    old = {id(node) for node in analysis.graph.nodes}
    for made_ in new.nodes:
        assert bool(members(made_.proto)) == (id(made_.proto) not in old)
        assert not made_.main or members(made_.proto)


def test_new_names_are_new(case: Case) -> None:
    """A new node or value has a name that nothing in the model has; only taps bear names of old values."""
    analysis, new, _ = case
    old, taken = {id(node) for node in analysis.graph.nodes}, analysis.names
    produced = set(analysis.graph.producer)
    names = [m.proto.name for m in new.nodes if m.proto.name]
    assert len(names) == len(set(names))
    assert not set(new.fresh) & taken
    for made_ in new.nodes:
        if id(made_.proto) not in old:
            assert made_.proto.name not in taken or made_.proto.op_type == "Concat"
            assert all(o in produced or o not in taken for o in made_.proto.output)


def test_everything_new_is_read(case: Case) -> None:
    """No new node or weight is made for nobody."""
    analysis, new, _ = case
    old = {id(node) for node in analysis.graph.nodes}
    read = {name for m in new.nodes for name in reads(m.proto)} | set(analysis.graph.outputs)
    assert set(new.fresh) <= read
    for made_ in new.nodes:
        if id(made_.proto) not in old:
            assert any(o in read for o in made_.proto.output), made_.proto.name


def test_doing_it_again_gives_the_same(case: Case) -> None:
    """Two rewritings by one plan are equal, node by node and byte by byte."""
    analysis, new, groups = case
    plan = Plan(groups, reductions(analysis.circuit, groups))
    again = rewrite(analysis.circuit, plan, analysis.names, analysis.known)
    assert [m.proto for m in again.nodes] == [m.proto for m in new.nodes]
    assert list(again.fresh) == list(new.fresh)


def test_names_avoid_bodies_and_functions() -> None:
    """A new name is fresh against all scopes: a body's own value may have the name that would be taken."""
    body = (
        "p0, p1 = Split<axis=1>(x) a0 = MatMul(p0, w0) a1 = MatMul(p1, w1) b = Concat<axis=1>(a0, a1) "
        "y = If (c) <then_branch = t () => (float[N,8] u) { a0_x2 = Neg(b) a0_x2_out = Exp(a0_x2) "
        "u = Neg(a0_x2_out) }, else_branch = e () => (float[N,8] v) { v = Identity(b) }>"
    )
    weights = {"w0": numbers(4, 4), "w1": numbers(4, 4, seed=1), "a0_x2_weight": numbers(1)}
    model = name_nodes(net(f"(float[N,8] x, bool c) => (float[N,8] y) {{ {body} }}", weights))
    analysis = analysed(model)
    new, groups = rewritten(analysis)
    assert [g.kind for g in groups] == [LINEAR]
    fresh = {o for m in new.nodes for o in m.proto.output} | set(new.fresh)
    assert not fresh & {"a0_x2", "a0_x2_out", "a0_x2_weight"}
    outcome = carried_out(model)
    for choice in (True, False):
        inputs = {**feeds(model, N=3), "c": np.array(choice)}
        want, got = Runs(model)(inputs)["y"], Runs(outcome.model)(inputs)["y"]
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def crossing() -> ModelProto:
    """Lane 0 is a map then a norm, lane 1 a norm then a map."""
    text = (
        "(float[N,8] x) => (float[] y) { p0, p1 = Split<axis=1>(x) a0 = MatMul(p0, w0) "
        "n0 = LayerNormalization(a0, g) n1 = LayerNormalization(p1, g) a1 = MatMul(n1, w1) "
        "y = Concat<axis=1>(n0, a1) }"
    )
    weights = {"w0": numbers(4, 4), "w1": numbers(4, 4, seed=1), "g": np.abs(numbers(4))}
    return with_ranks(name_nodes(net(text, weights)))


def test_groups_that_wait_for_each_other_are_a_fault_of_the_planner() -> None:
    """Independent members are not enough: groups that would make a cycle are never emitted."""
    analysis = analysed(crossing())
    by_kind: dict[str, list[int]] = {}
    for unit in analysis.circuit.units:
        by_kind.setdefault(unit.kind, []).append(unit.number)
    units = analysis.circuit.units
    pairs = [by_kind[LINEAR], by_kind["LayerNormalization"]]
    assert not quotient_is_acyclic(analysis.circuit.preds, pairs)
    groups = tuple(Group(tuple(units[n] for n in pair), "stacked", 0) for pair in pairs)
    with pytest.raises(AssertionError, match="circle"):
        rewrite(analysis.circuit, Plan(groups), analysis.names, analysis.known)


def test_a_finder_never_makes_such_groups() -> None:
    """One level function for all groups: of two kinds that cross, one at most is batched."""
    circuit = analysed(crossing()).circuit
    groups = Finder(circuit, foata(circuit.preds), lambda unit: False).run()
    assert len(groups) < 2


def test_a_group_that_cannot_be_made_is_named() -> None:
    """Where sizes known only at run time stand in the way, the error says which group, by its place."""
    text = (
        "(float[N,S,8] x) => (float[] y) { p0, p1 = Split<axis=2>(x) a0 = MatMul(p0, w0) "
        "a1 = MatMul(p1, w1) b0 = Relu(a0) b1 = Relu(a1) y = Concat<axis=2>(b0, b1) }"
    )
    weights = {"w0": numbers(4, 4), "w1": numbers(4, 4, seed=1)}
    model = with_ranks(name_nodes(net(text, weights, opset=13)))
    analysis = analysed(model)
    _, groups = best_groups(analysis.circuit, lambda unit: False)
    planned = tuple(replace(g, form="conv_t") if g.kind == LINEAR else g for g in groups)
    with pytest.raises(GroupRefused) as refused:
        rewrite(analysis.circuit, Plan(planned), analysis.names, analysis.known)
    assert refused.value.refused.code == "S201"
    assert 0 <= refused.value.group < len(planned)
    refusals: list[Refusal] = []
    new, left = made(analysis, planned, refusals)
    assert (new, left) == (None, ())
    assert {n for r in refusals for n in r.nodes} >= {"a0", "a1"}
    assert {r.code for r in refusals} == {"S201"}
    outcome = carried_out(model)
    assert compare(model, outcome.model, {"N": 2, "S": 3}) == 1


def test_nodes_that_nobody_needs_stay() -> None:
    """Dead nodes of the model are not ours to remove, and what they read is still there."""
    text = (
        "(float[N,12] x) => (float[] y) { p0, p1, p2 = Split<axis=1>(x) a0 = MatMul(p0, w0) "
        "a1 = MatMul(p1, w1) b0 = Relu(a0) b1 = Relu(a1) y = Concat<axis=1>(b0, b1) "
        "d = Neg(a1) e = Exp(p2) f = Add(d, e) }"
    )
    weights = {"w0": numbers(4, 4), "w1": numbers(4, 4, seed=1)}
    model = with_ranks(name_nodes(net(text, weights)))
    outcome = carried_out(model)
    assert [g.kind for g in outcome.groups] == [LINEAR, "Relu"]
    assert {"d", "e", "f"} <= {n.name for n in outcome.model.graph.node}
    assert compare(model, outcome.model, {"N": 2}, {"N": 0}) == 2


def test_random_nodes_keep_their_order() -> None:
    """Nodes with effects run in the order of the file, whatever is batched around them."""
    draws = " ".join(f"r{k} = RandomNormalLike<seed={k + 1}.0>(a{k})" for k in (2, 0, 1))
    text = (
        "(float[N,12] x) => (float[] y, float[] r2, float[] r0, float[] r1) { "
        "p0, p1, p2 = Split<axis=1>(x) a0 = MatMul(p0, w0) a1 = MatMul(p1, w1) a2 = MatMul(p2, w2) "
        f"{draws} y = Concat<axis=1>(a0, a1, a2) }}"
    )
    model = name_nodes(net(text, {f"w{k}": numbers(4, 4, seed=k) for k in range(3)}))
    outcome = carried_out(model)
    assert [(g.kind, g.size) for g in outcome.groups] == [(LINEAR, 3)]
    order = [n.name for n in outcome.model.graph.node if n.op_type == "RandomNormalLike"]
    assert order == ["r2", "r0", "r1"]


def test_an_empty_plan_changes_nothing() -> None:
    """Nothing to do: the same protos, in the file's order, and no new weight."""
    analysis = analysed(crossing())
    new = rewrite(analysis.circuit, Plan(), analysis.names, analysis.known)
    kept: Sequence[NodeProto] = [m.proto for m in new.nodes]
    assert all(a is b for a, b in zip(kept, analysis.graph.nodes, strict=True))
    assert not new.fresh
