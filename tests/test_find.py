"""What runs together: groups lie in levels, hold alike and independent units, and keep one lane order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, numpy_helper

import onnx_sched
from onnx_sched.circuit import LINEAR, Circuit, Unit
from onnx_sched.find import Finder, heavy_regions, is_heavy, regions
from onnx_sched.levelling import best_groups, saved
from onnx_sched.levels import agenda, foata, heavy_depth, is_level_function, quotient_is_acyclic
from onnx_sched.passes.rules import rule_for
from onnx_sched.plan import Group
from onnx_sched.signature import signature
from onnx_sched.sums import reductions
from tests.nets import COMMITTED, analysed, committed, ints, name_nodes, net, numbers
from tests.rule_examples import carried_out, compare, with_ranks

NAMED = [n for n in COMMITTED if not n.startswith("near_")]

Levels = Callable[[Circuit], Sequence[int]]
LEVELS: dict[str, Levels] = {
    "foata": lambda c: foata(c.preds),
    "heavy depth": lambda c: heavy_depth(c.preds, [is_heavy(u) for u in c.units]),
    "agenda": lambda c: agenda(c.preds, [u.kind for u in c.units]),
}


def anything(unit: Unit) -> bool:
    """Skip nothing."""
    return False


def ancestors(circuit: Circuit) -> list[set[int]]:
    """By unit: all units before it."""
    found: list[set[int]] = []
    for before in circuit.preds:
        found.append(set(before).union(*(found[p] for p in before)))
    return found


def check_groups(circuit: Circuit, levels: Sequence[int], groups: Sequence[Group]) -> None:
    """The laws of groups; every one is an assertion."""
    assert is_level_function(levels, circuit.preds)
    seen: list[int] = [u.number for g in groups for u in g.units]
    assert len(seen) == len(set(seen))
    assert quotient_is_acyclic(circuit.preds, [[u.number for u in g.units] for g in groups])
    before = ancestors(circuit)
    for group in groups:
        members = {u.number for u in group.units}
        assert len(members) > 1
        assert {levels[n] for n in members} == {group.level}
        assert not any(before[n] & members for n in members)
        rule = rule_for(group.units[0])
        assert rule is not None
        assert all(rule.check(u, circuit) is None for u in group.units)
        signs = [
            signature(u, circuit, rule.static, rule.optional, rule.spread) for u in group.units
        ]
        start = 0
        for length in group.segments or (group.size,):
            assert len(set(signs[start : start + length])) == 1
            start += length
        assert start == group.size


@pytest.mark.parametrize("by", LEVELS)
@pytest.mark.parametrize("name", COMMITTED)
def test_groups_hold_alike_and_independent_units(name: str, by: str) -> None:
    """Under any level function: disjoint groups of alike units; contracting them all makes no cycle."""
    circuit = analysed(committed(name)).circuit
    levels = LEVELS[by](circuit)
    check_groups(circuit, levels, Finder(circuit, levels, anything).run())


STEPS = ("Relu", "Tanh", "MatMul", "Add", "Mix", "LayerNormalization")


@st.composite
def tangles(draw: st.DrawFn) -> ModelProto:
    """Values of one shape that read each other in any order: maps, norms, sums, products of two values."""
    seed = draw(st.integers(0, 10**6))
    rng = random.Random(seed)
    lines = ["v0, v1, v2 = Split<axis=1>(x, thirds)"]
    weights = {"thirds": ints(4, 4, 4), "g": np.abs(numbers(4)) + 0.5}
    weights |= {f"w{k}": numbers(4, 4, seed=k) * 0.5 for k in range(3)}
    count = 3
    for _ in range(draw(st.integers(4, 16))):
        kind = draw(st.sampled_from(STEPS))
        recent = [f"v{count - 1 - rng.randrange(min(5, count))}" for _ in range(2)]
        text = {
            "MatMul": f"MatMul({recent[0]}, w{rng.randrange(3)})",
            "Add": f"Add({recent[0]}, {recent[1]})",
            "Mix": f"Mul({recent[0]}, {recent[1]})",
            "LayerNormalization": f"LayerNormalization({recent[0]}, g)",
        }.get(kind, f"{kind}({recent[0]})")
        lines.append(f"v{count} = {text}")
        count += 1
    ends = sorted({*rng.sample(range(count), min(3, count)), count - 1})
    names = [f"v{k}" for k in ends if k > 2] or ["v3"]
    declared = ", ".join(f"float[] {n}" for n in names)
    text = f"(float[N,12] x) => ({declared}) {{ {' '.join(lines)} }}"
    return with_ranks(name_nodes(net(text, weights)))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(tangles())
def test_tangled_graphs_give_lawful_groups(model: ModelProto) -> None:
    """The laws of groups hold whatever reads whatever, and the batched model gives the same."""
    circuit = analysed(model).circuit
    for by in LEVELS.values():
        levels = by(circuit)
        check_groups(circuit, levels, Finder(circuit, levels, anything).run())
    levels, groups = best_groups(circuit, anything)
    check_groups(circuit, levels, groups)
    new = onnx_sched.optimize(model, choose="always", check=False).proto
    assert compare(model, new, {"N": 3}, {"N": 0}, tolerance=1e-3) == 2


@pytest.mark.parametrize("name", COMMITTED)
def test_the_order_of_the_file_changes_no_group(name: str) -> None:
    """Shuffling the node list of a file gives the same sets of nodes, in the same forms."""
    model = committed(name)

    def found(proto: ModelProto) -> set[tuple[str, frozenset[str]]]:
        circuit = analysed(proto).circuit
        _, groups = best_groups(circuit, anything)
        return {(g.form, frozenset(circuit.labels(g.units))) for g in groups}

    expected = found(model)
    for seed in range(2):
        shuffled = ModelProto()
        shuffled.CopyFrom(model)
        nodes = list(model.graph.node)
        random.Random(seed).shuffle(nodes)
        del shuffled.graph.node[:]
        shuffled.graph.node.extend(nodes)
        assert found(shuffled) == expected


def permuting(model: ModelProto, known: set[str]) -> list[str]:
    """New nodes that take several different entries of an axis in an order of their own."""
    weights = {t.name: t for t in model.graph.initializer}
    found = []
    for node in model.graph.node:
        if node.op_type == "Gather" and node.name not in known and node.input[1] in weights:
            index = numpy_helper.to_array(weights[node.input[1]])
            if index.ndim and len(set(index.tolist())) == index.size > 1:
                found.append(node.name)
    return found


@pytest.mark.parametrize("name", NAMED)
def test_lanes_keep_one_order_from_layer_to_layer(name: str) -> None:
    """No lane changes its place between the groups of a region: nothing is permuted."""
    model = committed(name)
    new = onnx_sched.optimize(model, choose="always", check=False).proto
    assert not permuting(new, {n.name for n in model.graph.node})


@pytest.mark.parametrize("name", ["grouped_mlp", "grouped_mlp_norm", "conv_towers"])
def test_lane_k_stays_lane_k(name: str) -> None:
    """Where each layer reads the one before, member k of a group reads what member k made."""
    circuit = analysed(committed(name)).circuit
    _, groups = best_groups(circuit, anything)
    linked = 0
    for before, after in pairwise(groups):
        made = {o: k for k, u in enumerate(before.units) for o in u.outputs}
        read = [(k, made[o]) for k, u in enumerate(after.units) for o in u.operands if o in made]
        assert all(k == place for k, place in read)
        linked += bool(read)
    assert linked >= len(groups) - 2


SKEWED = (
    "p0, p1, p2 = Split<axis=1>(x, thirds) a0 = MatMul(p0, w0) a1 = MatMul(p1, w1) "
    "a2 = MatMul(p2, w2) {light} c0 = MatMul(b0, w1) c1 = MatMul(b1, w2) c2 = MatMul(b2, w0) "
    "y = Concat<axis=1>(c0, c1, c2)"
)


def skewed(light: str) -> ModelProto:
    """Three lanes of two maps, with light steps between them."""
    weights = {f"w{k}": numbers(4, 4, seed=k) for k in range(3)} | {"thirds": ints(4, 4, 4)}
    text = f"(float[N,12] x) => (float[] y) {{ {SKEWED.format(light=light)} }}"
    return with_ranks(name_nodes(net(text, weights)))


def test_a_longer_branch_meets_the_others_at_its_next_map() -> None:
    """One lane has a step more: by layers its second map would stand alone, by heavy depth it does not."""
    model = skewed("b0 = Relu(a0) e = Sigmoid(a1) b1 = Tanh(e) b2 = Exp(a2)")
    circuit = analysed(model).circuit
    levels, groups = best_groups(circuit, anything)
    assert list(levels) == list(LEVELS["heavy depth"](circuit))
    assert [g.size for g in groups if g.kind == LINEAR] == [3, 3]
    by_layer = Finder(circuit, foata(circuit.preds), anything).run()
    assert [g.size for g in by_layer if g.kind == LINEAR] == [3, 2]
    assert saved(groups) > saved(by_layer)
    outcome = carried_out(model)
    assert compare(model, outcome.model, {"N": 3}, {"N": 0}) == 2


def test_equal_branches_are_cut_into_layers() -> None:
    """Where layers leave as few nodes as any other level function, layers it is."""
    circuit = analysed(skewed("b0 = Relu(a0) b1 = Relu(a1) b2 = Relu(a2)")).circuit
    levels, _ = best_groups(circuit, anything)
    assert list(levels) == list(foata(circuit.preds))


def test_light_steps_join_where_they_carry_lanes() -> None:
    """A light op joins behind a map and before one; by itself, on strangers, it is no group."""
    text = (
        "(float[N,4] x, float[N,4] z, float[N,4] t) => (float[] y, float[] r, float[] s) { "
        "e0 = Exp(x) e1 = Exp(z) a0 = MatMul(e0, w0) a1 = MatMul(e1, w1) b0 = Relu(a0) "
        "b1 = Relu(a1) y = Concat<axis=1>(b0, b1) r = Sigmoid(t) s = Sigmoid(z) }"
    )
    model = net(text, {"w0": numbers(4, 4), "w1": numbers(4, 4, seed=1)})
    _, groups = best_groups(analysed(model).circuit, anything)
    assert [(g.kind, g.size) for g in groups] == [("Exp", 2), (LINEAR, 2), ("Relu", 2)]


def test_what_is_skipped_is_in_no_group() -> None:
    """A unit that must stay as it is takes no part; the others still do."""
    circuit = analysed(skewed("b0 = Relu(a0) b1 = Relu(a1) b2 = Relu(a2)")).circuit
    _, groups = best_groups(circuit, lambda u: u.kind == "Relu" or "c1" in u.outputs)
    names = [set(circuit.labels(g.units)) for g in groups]
    assert names == [{"a0", "a1", "a2"}, {"c0", "c2"}]


def test_products_of_one_value_are_one_group_whatever_their_width() -> None:
    """Widths 4, 4, 3, 2 on one value: one wide group, the equal ones side by side as a bundle."""
    maps = " ".join(f"a{k} = MatMul(x, w{k})" for k in range(4))
    weights = {f"w{k}": numbers(5, n, seed=k) for k, n in enumerate((4, 3, 4, 2))}
    model = net(
        f"(float[N,5] x) => (float[] a0, float[] a1, float[] a2, float[] a3) {{ {maps} }}", weights
    )
    _, groups = best_groups(analysed(model).circuit, anything)
    assert [(g.form, g.size, sorted(g.segments)) for g in groups] == [("wide", 4, [1, 1, 2])]
    bundles = groups[0].bundles(0)
    assert ("a0", "a2") in bundles


READERS = {2: "a@ = MatMul(x@, w@) b@ = MatMul(x@, v@)", 3: "c@ = MatMul(x@, u@)"}


@pytest.mark.parametrize("readers", [2, 3])
def test_values_with_as_many_readers_each_are_lanes(readers: int) -> None:
    """Members that make several things of an input of their own run together, not input by input."""
    weights = {f"{n}{k}": numbers(4, 4, seed=ord(n) + k) for n in "wvu" for k in range(3)}
    body = " ".join(READERS[n] for n in range(2, readers + 1))
    names = "abc"[:readers]
    lines = [body.replace("@", str(k)) for k in range(3)]
    lines += [
        f"s{k} = Sum({', '.join(f'{n}{k}' for n in names)}) y{k} = Relu(s{k})" for k in range(3)
    ]
    inputs = ", ".join(f"float[N,4] x{k}" for k in range(3))
    text = f"({inputs}) => (float[] y0, float[] y1, float[] y2) {{ {' '.join(lines)} }}"
    model = with_ranks(name_nodes(net(text, weights)))
    _, groups = best_groups(analysed(model).circuit, anything)
    assert [g.size for g in groups if g.kind == LINEAR] == [3 * readers]
    assert compare(model, carried_out(model).model, {"N": 1}, {"N": 3}, {"N": 0}) == 3


def test_a_value_with_more_readers_than_others_keeps_them() -> None:
    """Two experts of one value and three of another: two wide products."""
    weights = {f"w{k}": numbers(4, 4, seed=k) for k in range(5)}
    lines = [f"a{k} = MatMul(x{int(k > 1)}, w{k}) b{k} = Relu(a{k})" for k in range(5)]
    lines.append("y = Sum(b0, b1, b2, b3, b4)")
    text = f"(float[N,4] x0, float[N,4] x1) => (float[] y) {{ {' '.join(lines)} }}"
    _, groups = best_groups(analysed(with_ranks(net(text, weights))).circuit, anything)
    assert sorted(g.size for g in groups if g.kind == LINEAR) == [2, 3]


@pytest.mark.parametrize("name", COMMITTED)
def test_regions_are_groups_that_hand_on_lanes(name: str) -> None:
    """Two groups are in one region exactly if a chain of groups hands on two lanes or more at each step."""
    _, groups = best_groups(analysed(committed(name)).circuit, anything)
    links = []
    for m, before in enumerate(groups):
        made = {o for u in before.units for o in u.outputs if o}
        for n, after in enumerate(groups):
            for k in range(len(after.units[0].operands)):
                if (
                    sum(
                        u.operands[k] in made for u in after.units if isinstance(u.operands[k], str)
                    )
                    > 1
                ):
                    links.append((m, n))
    region = list(range(len(groups)))
    for _ in groups:
        for m, n in links:
            region[m] = region[n] = min(region[m], region[n])
    pairs = [(m, n) for m in range(len(groups)) for n in range(m)]
    for m, n in pairs:
        assert (groups[m].region == groups[n].region) == (region[m] == region[n])
    assert regions(groups) == tuple(groups)
    assert sorted({g.region for g in groups}) == list(range(len({g.region for g in groups})))


def test_heavy_regions_hold_a_heavy_group() -> None:
    """A region of light ops alone is not worth a boundary."""
    for name in COMMITTED:
        _, groups = best_groups(analysed(committed(name)).circuit, anything)
        heavy = {g.region for g in groups if g.kind in (LINEAR, "MatMul", "Conv", "Embedding")}
        assert heavy_regions(groups) == heavy


SUMS = {
    "chain": ("s = Add(b0, b1) y = Add(s, b2)", False, ["b0", "b1", "b2"]),
    "Sum": ("y = Sum(b0, b2, b1)", False, ["b0", "b2", "b1"]),
    "Mean": ("y = Mean(b0, b1, b2)", True, ["b0", "b1", "b2"]),
    "with a stranger": (
        "s = Add(b0, z) t = Add(s, b1) y = Add(t, b2)",
        False,
        ["b0", "z", "b1", "b2"],
    ),
    "twice": ("s = Add(b0, b0) y = Add(s, b1)", False, ["b0", "b0", "b1"]),
}
NO_SUMS = {
    "one lane": "y = Add(b0, z)",
    "a mean with a stranger": "y = Mean(b0, z, b1)",
    "another shape": "y = Add(b0, row)",
    "a product": "s = Mul(b0, b1) y = Mul(s, b2)",
    "a constant": "s = Add(b0, row) y = Add(s, b1)",
}


def summed(body: str) -> ModelProto:
    """Three lanes behind maps, and a body that adds them up."""
    light = "b0 = Relu(a0) b1 = Relu(a1) b2 = Relu(a2) "
    start = SKEWED[: SKEWED.index("{light}")]
    weights = {f"w{k}": numbers(4, 4, seed=k) for k in range(3)} | {"thirds": ints(4, 4, 4)}
    weights["row"] = numbers(4)
    text = f"(float[N,12] x, float[N,4] z) => (float[] y) {{ {start}{light}{body} }}"
    return net(text, weights)


@pytest.mark.parametrize("what", SUMS)
def test_sums_over_lanes_are_seen(what: str) -> None:
    """Add chains, Sum and Mean over lanes of one group: all terms in the file's order, repeats kept."""
    body, mean, terms = SUMS[what]
    circuit = analysed(summed(body)).circuit
    _, groups = best_groups(circuit, anything)
    found = reductions(circuit, groups)
    assert [(r.mean, sorted(r.terms), r.output) for r in found] == [(mean, sorted(terms), "y")]


@pytest.mark.parametrize("what", NO_SUMS)
def test_other_sums_are_left_alone(what: str) -> None:
    """Fewer than two lanes, other shapes, constants or products: no sum over lanes."""
    circuit = analysed(summed(NO_SUMS[what])).circuit
    _, groups = best_groups(circuit, anything)
    assert reductions(circuit, groups) == ()
