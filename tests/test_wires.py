"""Laws of wires: the reduction, the lanes, the words and what faithful means."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_sched.errors import SchedError
from onnx_sched.layers import depth
from onnx_sched.wires import (
    Support,
    checked,
    is_faithful,
    lanes,
    neighbours,
    transitive_reduction,
    words,
)
from tests.dags import (
    Dag,
    ancestors,
    dags,
    grouped_mlp,
    long_dag,
    longest_paths,
    models,
    wire_systems,
)


def _covers(preds: Dag) -> Dag:
    """The definition: an edge stays if no op lies between its ends."""
    above = ancestors(preds)
    return tuple(
        tuple(
            pred
            for pred in sorted(set(before))
            if not any(pred in above[other] for other in before)
        )
        for before in preds
    )


def _wire_per_tensor(preds: Dag) -> tuple[Support, ...]:
    """What the lanes are not: one wire for each op's result, which the op and all readers touch."""
    return tuple(tuple(sorted({op, *before})) for op, before in enumerate(preds))


@settings(deadline=None)
@given(dags())
def test_reduction_keeps_exactly_the_edges_with_nothing_between(preds: Dag) -> None:
    """An edge p -> x stays if and only if no other path leads from p to x."""
    assert transitive_reduction(preds) == _covers(preds)


@pytest.mark.parametrize(("window", "seed"), [(4, 0), (12, 1), (40, 2), (600, 3)])
def test_reduction_of_long_graphs_survives_the_reuse_of_bits(window: int, seed: int) -> None:
    """Bits that are handed out again never stand for an op that they stood for before."""
    preds = long_dag(1500, window, seed)
    assert transitive_reduction(preds) == _covers(preds)


def test_reduction_of_nested_skips_keeps_none() -> None:
    """A chain with a skip from op i to op n-1-i, all open at one time, reduces to the chain."""
    count = 400
    preds = tuple(
        tuple({op - 1, count - 1 - op} - {-1} if 2 * op >= count else {op - 1} - {-1})
        for op in range(count)
    )
    assert transitive_reduction(preds) == tuple((op - 1,) if op else () for op in range(count))


def test_reading_twice_is_reading_once() -> None:
    """A repeated predecessor (Mul(x, x)) is one edge."""
    assert transitive_reduction([(), (0, 0), (1, 0, 1)]) == ((), (0,), (1,))
    assert lanes([(), (0, 0), (1, 1)]) == ((0,), (0,), (0,))


@pytest.mark.parametrize("preds", [[(0,)], [(1,), ()], [(), (2,), ()], [(), (-1,)], [(), (0, 7)]])
def test_ops_out_of_order_are_refused(preds: list[tuple[int, ...]]) -> None:
    """An op that reads itself, a later op or no op at all is an error that names both."""
    with pytest.raises(SchedError, match=r"op \d+ of \d+ reads op -?\d+") as caught:
        checked(preds)
    assert "topological" in caught.value.hint
    with pytest.raises(SchedError):
        transitive_reduction(preds)
    with pytest.raises(SchedError):
        lanes(preds)


@settings(deadline=None)
@given(st.one_of(dags(), models()))
def test_lanes_are_paths_that_cover_the_reduction(preds: Dag) -> None:
    """Every lane steps along edges of the reduction, and every such edge has a lane."""
    reduced = transitive_reduction(preds)
    supports = lanes(preds)
    steps = {step for word in words(supports) for step in pairwise(word)}
    assert steps == {(pred, op) for op, before in enumerate(reduced) for pred in before}


@settings(deadline=None)
@given(st.one_of(dags(), models()))
def test_every_op_has_lanes_numbered_without_gaps(preds: Dag) -> None:
    """Supports are not empty, ascending, and name lanes 0..m-1, each of them somewhere."""
    supports = lanes(preds)
    assert len(supports) == len(preds)
    assert all(support and list(support) == sorted(set(support)) for support in supports)
    used = {wire for support in supports for wire in support}
    assert used == set(range(len(used)))


@settings(deadline=None)
@given(models())
def test_lanes_open_only_at_forks_that_are_too_wide(preds: Dag) -> None:
    """An op has the lanes of its in-edges, plus only those that its out-edges still lack."""
    reduced = transitive_reduction(preds)
    supports = lanes(preds)
    for op, before in enumerate(reduced):
        arriving = {
            wire for pred in before for wire in supports[pred] if _next(supports, wire, pred) == op
        }
        readers = sum(op in later for later in reduced)
        assert len(supports[op]) == max(1, readers, len(arriving))


def _next(supports: tuple[Support, ...], wire: int, op: int) -> int | None:
    return next((x for x in range(op + 1, len(supports)) if wire in supports[x]), None)


def test_groups_keep_their_lane_from_layer_to_layer() -> None:
    """Split and Concat of a 4-group MLP carry lanes 0..3, and branch g is lane g in every layer."""
    trunk, branches = (0, 1, 2, 3), [(0,), (1,), (2,), (3,)]
    layer = [trunk, *branches, trunk]
    assert lanes(grouped_mlp(layers=3, groups=4)) == (*layer, *layer, *layer)


def test_four_heads_of_query_key_value_are_twelve_lanes() -> None:
    """A fork to 4 heads, each a fork to 3 that joins: 12 lanes, head h on 3h, 3h+1, 3h+2."""
    preds: list[tuple[int, ...]] = [()]
    for _ in range(4):
        preds.append((0,))
        head = len(preds) - 1
        preds += [(head,)] * 3
        preds.append((head + 1, head + 2, head + 3))
    joins = [op for op, before in enumerate(preds) if len(before) == 3]
    preds.append(tuple(joins))
    supports = lanes(preds)
    # The outer fork knows of four branches only, so lanes 4.. open at the heads.
    assert len({wire for support in supports for wire in support}) == 12
    assert supports[-1] == tuple(range(12))
    assert [len(supports[op]) for op in joins] == [3, 3, 3, 3]


def test_uneven_lanes_are_spread_in_blocks() -> None:
    """Five lanes over two out-edges: neighbours stay together, no edge goes without."""
    preds = [(), *[(0,)] * 5, (1, 2, 3, 4, 5), (6,), (6,), (7, 8)]
    supports = lanes(preds)
    assert supports[7] + supports[8] == supports[6] == (0, 1, 2, 3, 4)
    assert {len(supports[7]), len(supports[8])} == {2, 3}


def test_ops_alone_and_ops_without_inputs_open_lanes() -> None:
    """Isolated ops have a lane each; a source that joins later brings its own."""
    assert lanes([(), (), ()]) == ((0,), (1,), (2,))
    assert lanes([(), (), (0, 1)]) == ((0,), (1,), (0, 1))
    assert lanes([]) == ()


def test_a_residual_skip_needs_no_lane() -> None:
    """In x -> f -> g -> Add(g, x) the skip is implied by the path, one lane does."""
    assert lanes([(), (0,), (1,), (2, 0)]) == ((0,), (0,), (0,), (0,))


@given(wire_systems())
def test_words_are_the_supports_read_by_wire(supports: tuple[Support, ...]) -> None:
    """Op x stands on wire i exactly if i is in S_x, and every word ascends."""
    pairs = {(op, wire) for wire, word in enumerate(words(supports)) for op in word}
    assert pairs == {(op, wire) for op, support in enumerate(supports) for wire in support}
    assert all(list(word) == sorted(set(word)) for word in words(supports))


def test_impossible_supports_are_refused() -> None:
    """A negative wire or a wire named twice is an error that names the op."""
    with pytest.raises(SchedError, match=r"op 1 names wire -1"):
        words([(0,), (-1, 0)])
    with pytest.raises(SchedError, match=r"op 1 names a wire twice"):
        words([(0,), (2, 2)])


@settings(deadline=None, max_examples=400)
@given(st.one_of(dags(), models()))
def test_lanes_are_faithful(preds: Dag) -> None:
    """T2: (a) every edge of the reduction shares a lane, (b) neighbours on a lane are comparable.

    Hence the order along the lanes is reachability, neither more nor less.
    """
    supports = lanes(preds)
    assert is_faithful(preds, supports)
    assert ancestors(neighbours(supports)) == ancestors(preds)


@settings(deadline=None, max_examples=400)
@given(dags(max_ops=6), st.data())
def test_faithful_is_what_the_two_conditions_say(preds: Dag, data: st.DataObject) -> None:
    """`is_faithful` agrees with (a) and (b) of T2 checked one by one, on lanes and on any wires."""
    wires = st.sets(st.integers(0, 3), min_size=1, max_size=3)
    supports = data.draw(
        st.one_of(
            st.just(_wire_per_tensor(preds)),
            st.tuples(*[wires.map(lambda some: tuple(sorted(some)))] * len(preds)),
        )
    )
    above = ancestors(preds)
    shares = all(
        set(supports[pred]) & set(supports[op])
        for op, before in enumerate(_covers(preds))
        for pred in before
    )
    comparable = all(
        earlier in above[later] for word in words(supports) for earlier, later in pairwise(word)
    )
    assert is_faithful(preds, supports) == (shares and comparable)


def test_one_wire_per_tensor_makes_parallel_readers_wait() -> None:
    """Q, K and V read one tensor: on a wire of that tensor they would run one after the other."""
    preds: Dag = ((), (0,), (0,), (0,), (1, 2, 3))
    assert not is_faithful(preds, _wire_per_tensor(preds))
    assert depth(_wire_per_tensor(preds)) == 5
    assert depth(lanes(preds)) == 1 + max(longest_paths(preds)) == 3


def test_faithful_needs_a_support_for_each_op() -> None:
    """A missing support is an error, not an answer."""
    with pytest.raises(SchedError, match="2 ops have predecessors, but 1 have supports"):
        is_faithful([(), (0,)], [(0,)])
