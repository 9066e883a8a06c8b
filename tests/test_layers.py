"""Laws of the head rule: L1, L2, T1 and T2 of the theory."""

from __future__ import annotations

import itertools
import json
import runpy
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_sched.errors import SchedError
from onnx_sched.layers import (
    Deadlock,
    Layer,
    depth,
    head_layers,
    head_layers_of_words,
    layer_numbers,
)
from onnx_sched.wires import Support, lanes, neighbours, words
from tests.dags import Dag, dags, longest_paths, models, orders, relabel, shuffled, wire_systems

BENCH = Path(__file__).parents[1] / "scripts" / "bench_layers.py"


def _literal(supports: tuple[Support, ...]) -> list[set[int]]:
    """F as it is written: every op that is first on all its wires, found by looking at all ops."""
    left = [list(word) for word in words(supports)]
    layers: list[set[int]] = []
    todo = set(range(len(supports)))
    while todo:
        feasible = {op for op in todo if all(left[wire][0] == op for wire in supports[op])}
        layers.append(feasible)
        todo -= feasible
        left = [[op for op in word if op not in feasible] for word in left]
    return layers


def _ops(layers: tuple[Layer, ...]) -> list[set[int]]:
    return [set(layer.ops) for layer in layers]


@given(wire_systems())
def test_layers_partition_the_ops(supports: tuple[Support, ...]) -> None:
    """Every op stands in exactly one layer, with its own support; no layer is empty."""
    layers = head_layers(supports)
    assert sorted(op for layer in layers for op in layer.ops) == list(range(len(supports)))
    for layer in layers:
        assert layer.ops
        assert layer.supports == tuple(supports[op] for op in layer.ops)


@given(wire_systems())
def test_supports_in_a_layer_are_disjoint(supports: tuple[Support, ...]) -> None:
    """L1: two feasible ops never share a wire."""
    for layer in head_layers(supports):
        for one, other in itertools.combinations(layer.supports, 2):
            assert not set(one) & set(other)


@given(wire_systems())
def test_word_order_is_kept(supports: tuple[Support, ...]) -> None:
    """Reading a wire layer by layer gives its word back."""
    read: list[list[int]] = [[] for _ in words(supports)]
    for layer in head_layers(supports):
        for op in layer.ops:
            for wire in supports[op]:
                read[wire].append(op)
    assert tuple(map(tuple, read)) == words(supports)


@given(wire_systems())
def test_no_op_can_move_left(supports: tuple[Support, ...]) -> None:
    """T1: in the layer just before it, every op has an earlier op of one of its wires."""
    layers = head_layers(supports)
    for before, layer in itertools.pairwise(layers):
        for op in layer.ops:
            assert any(
                other < op and set(supports[other]) & set(supports[op]) for other in before.ops
            )


@given(wire_systems())
def test_depth_is_the_longest_chain_of_wire_neighbours(supports: tuple[Support, ...]) -> None:
    """T1: no layering that keeps the words is shallower, since along a chain layers must grow."""
    chain = 1 + max(longest_paths(neighbours(supports)), default=-1)
    assert depth(supports) == len(head_layers(supports)) == chain


@settings(deadline=None)
@given(wire_systems(max_ops=4, max_wires=3))
def test_no_layering_of_the_wires_is_shallower(supports: tuple[Support, ...]) -> None:
    """T1, by trying them all: fewer layers always break the order of some wire."""
    fewer = depth(supports) - 1
    pairs = [pair for word in words(supports) for pair in itertools.pairwise(word)]
    for layering in itertools.product(range(max(fewer, 0)), repeat=len(supports)):
        assert not all(layering[one] < layering[other] for one, other in pairs) or not supports


@given(wire_systems())
def test_head_rule_is_the_literal_rule(supports: tuple[Support, ...]) -> None:
    """The counters find the same F as looking at every op each time."""
    assert _ops(head_layers(supports)) == _literal(supports)


@given(wire_systems())
def test_layer_numbers_are_the_layers(supports: tuple[Support, ...]) -> None:
    """layer(x) = 1 + max layer of the ops before x on its wires is the head rule."""
    numbers = layer_numbers(supports)
    layers = head_layers(supports)
    assert [set(layer.ops) for layer in layers] == [
        {op for op, number in enumerate(numbers) if number == place} for place in range(len(layers))
    ]


@given(wire_systems(), st.data())
def test_the_order_of_independent_ops_does_not_matter(
    supports: tuple[Support, ...], data: st.DataObject
) -> None:
    """The normal form is unique: any order with the same words gives the same layers."""
    order = data.draw(orders(neighbours(supports)))
    assert head_layers(supports, order) == head_layers(supports)


@settings(deadline=None)
@given(shuffled())
def test_shuffling_the_node_list_moves_no_op(case: tuple[Dag, tuple[int, ...]]) -> None:
    """Numbering the ops in another topological order leaves each op in its layer."""
    preds, order = case
    numbers = layer_numbers(lanes(preds))
    assert layer_numbers(lanes(relabel(preds, order))) == tuple(numbers[op] for op in order)


@given(wire_systems(), st.permutations(range(5)))
def test_renaming_wires_changes_nothing(supports: tuple[Support, ...], names: list[int]) -> None:
    """Layers depend on which ops share wires, not on what the wires are called."""
    renamed = [tuple(sorted(names[wire] for wire in wires)) for wires in supports]
    assert _ops(head_layers(renamed)) == _ops(head_layers(supports))


@settings(deadline=None, max_examples=400)
@given(st.one_of(dags(), models()))
def test_layers_of_lanes_are_longest_path_levels(preds: Dag) -> None:
    """T2: on lanes, layer(x) is the number of edges on the longest path to x in the graph."""
    assert list(layer_numbers(lanes(preds))) == longest_paths(preds)


def test_groups_run_in_one_layer() -> None:
    """Two ops on two wires, a join on both, two ops again: three layers."""
    supports = ((0,), (1,), (0, 1), (0,), (1,))
    assert head_layers(supports) == (
        Layer((0, 1), ((0,), (1,))),
        Layer((2,), ((0, 1),)),
        Layer((3, 4), ((0,), (1,))),
    )


def test_no_ops_make_no_layers() -> None:
    """The empty graph has no layer and depth 0."""
    assert head_layers(()) == ()
    assert head_layers_of_words([(), ()]) == ()
    assert layer_numbers(()) == ()
    assert depth(()) == 0


def test_a_layer_refuses_overlapping_supports() -> None:
    """A wrong layer cannot exist: the error names both ops and the wire."""
    with pytest.raises(SchedError, match="op 4 and op 7 of one layer share wire 2"):
        Layer((4, 5, 7), ((0, 2), (1,), (2, 3)))
    with pytest.raises(SchedError, match="a layer of 2 ops has 1 supports"):
        Layer((0, 1), ((0,),))


def test_an_op_without_wires_is_refused() -> None:
    """Empty supports would be feasible for ever: an error that names the op."""
    for layering in (head_layers, layer_numbers, depth):
        with pytest.raises(SchedError, match="op 1 touches no wire") as caught:
            layering([(0,), (), (0,)])
        assert "a wire of its own" in caught.value.hint


@pytest.mark.parametrize("order", [(0, 1), (0, 0, 1), (0, 1, 3), (0, 1, 2, 2)])
def test_an_order_must_name_every_op_once(order: tuple[int, ...]) -> None:
    """Anything but a permutation of the ops is an error."""
    with pytest.raises(SchedError, match="each of the 3 ops once"):
        head_layers([(0,), (0,), (1,)], order)


def test_the_order_decides_who_comes_first() -> None:
    """On one shared wire the ops run in the order that is given."""
    assert [layer.ops for layer in head_layers([(0,), (0,), (0,)], (2, 0, 1))] == [(2,), (0,), (1,)]


@given(wire_systems(), st.data())
def test_words_of_one_sequence_never_deadlock(
    supports: tuple[Support, ...], data: st.DataObject
) -> None:
    """L2: words that are projections of one sequence, whichever, use up all ops."""
    sequence = data.draw(st.permutations(range(len(supports))))
    width = 1 + max((max(wires) for wires in supports), default=-1)
    orders_ = [[op for op in sequence if wire in supports[op]] for wire in range(width)]
    assert head_layers_of_words(orders_) == head_layers(supports, sequence)


@settings(deadline=None, max_examples=300)
@given(wire_systems(max_ops=7), st.data())
def test_deadlock_exactly_if_the_orders_make_a_cycle(
    supports: tuple[Support, ...], data: st.DataObject
) -> None:
    """L2: words in any order either layer all ops or raise, with a cycle that is one."""
    shuffled_words = [data.draw(st.permutations(word)) for word in words(supports)]
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for word in shuffled_words:
        for earlier, later in itertools.pairwise(word):
            sorter.add(later, earlier)
    try:
        sorter.prepare()
    except CycleError:
        with pytest.raises(Deadlock) as caught:
            head_layers_of_words(shuffled_words)
        cycle = caught.value.cycle
        assert len(cycle) == len(set(cycle)) >= 2
        for waiting, awaited in itertools.pairwise((*cycle, cycle[0])):
            assert any(
                waiting in word and awaited in word and word.index(awaited) < word.index(waiting)
                for word in shuffled_words
            )
    else:
        layers = head_layers_of_words(shuffled_words)
        assert sum(len(layer.ops) for layer in layers) == len(supports)
        numbers = {op: place for place, layer in enumerate(layers) for op in layer.ops}
        for word in shuffled_words:
            assert [numbers[op] for op in word] == sorted({numbers[op] for op in word})


def test_a_deadlock_names_the_ops_and_wires_of_the_cycle() -> None:
    """The message is enough to find the contradiction, and stays short for a long cycle."""
    with pytest.raises(Deadlock) as caught:
        head_layers_of_words([(9, 3, 5), (5, 3), (9,)])
    assert caught.value.cycle == (3, 5)
    assert "op 3 waits for op 5 on wire 1; op 5 waits for op 3 on wire 0" in str(caught.value)
    assert isinstance(caught.value, SchedError)
    with pytest.raises(Deadlock, match="500 ops in all") as caught:
        head_layers_of_words([(op, (op + 1) % 500) for op in range(500)])
    assert len(caught.value.cycle) == 500
    assert len(str(caught.value)) < 400


def test_an_op_stands_once_on_a_wire() -> None:
    """A word that repeats an op is an error that names the op and the wire."""
    with pytest.raises(SchedError, match="op 3 stands twice on wire 1"):
        head_layers_of_words([(3,), (3, 4, 3)])


def test_long_chains_need_no_recursion() -> None:
    """100,000 ops in a row are 100,000 layers; a cycle of 100,000 ops is found."""
    count = 100_000
    supports = lanes([(op - 1,) if op else () for op in range(count)])
    assert len(head_layers(supports)) == depth(supports) == count
    with pytest.raises(Deadlock) as caught:
        head_layers_of_words([(op, (op + 1) % count) for op in range(count)])
    assert len(caught.value.cycle) == count


def test_the_benchmark_runs_and_its_bar_can_fail(tmp_path: Path) -> None:
    """On small graphs the benchmark writes its figures; with no time allowed it exits 1."""
    main = runpy.run_path(str(BENCH))["main"]
    out = tmp_path / "bench.json"
    small = ["--size", "300", "--size", "600", "--repeats", "1", "--json", str(out)]
    with pytest.raises(SystemExit) as caught:
        main([*small, "--growth", "1000"])
    assert caught.value.code == 0
    report = json.loads(out.read_text())
    assert report["passed"] is True
    assert {row["graph"] for row in report["rows"]} == {"lanes", "branches", "random"}
    assert all(row["ops"] >= 300 and row["seconds"] > 0 for row in report["rows"])
    with pytest.raises(SystemExit) as caught:
        main([*small, "--growth", "1000", "--limit", "0", "--limit-at", "600"])
    assert caught.value.code == 1
    assert json.loads(out.read_text())["passed"] is False
