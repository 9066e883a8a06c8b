"""Laws of level functions, and T3: groups inside one level may be contracted together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_sched.errors import SchedError
from onnx_sched.layers import layer_numbers
from onnx_sched.levels import (
    agenda,
    foata,
    heavy_depth,
    is_level_function,
    launches,
    quotient_is_acyclic,
)
from onnx_sched.wires import lanes
from tests.dags import (
    Dag,
    ancestors,
    chains,
    dags,
    grouped_mlp,
    longest_paths,
    models,
    orders,
    relabel,
)

GRAPHS = st.one_of(dags(), models())


def _letters(preds: Dag) -> st.SearchStrategy[tuple[str, ...]]:
    return st.tuples(*[st.sampled_from("ABC")] * len(preds))


def _flags(preds: Dag) -> st.SearchStrategy[tuple[bool, ...]]:
    return st.tuples(*[st.booleans()] * len(preds))


def _paths_to(preds: Dag, op: int) -> list[tuple[int, ...]]:
    """All paths that end in an op and start anywhere."""
    return [(op,)] + [(*path, op) for pred in preds[op] for path in _paths_to(preds, pred)]


def _slow_agenda(preds: Dag, signatures: Sequence[Hashable]) -> tuple[int, ...]:
    """The agenda as it is told, with exact means: look at everything before every batch."""
    depths = longest_paths(preds)
    first = {signature: signatures.index(signature) for signature in signatures}
    levels: dict[int, int] = {}
    batch = 0
    while len(levels) < len(preds):
        left = [op for op in range(len(preds)) if op not in levels]
        ready = [op for op in left if all(pred in levels for pred in preds[op])]

        def mean(signature: Hashable, left: list[int] = left) -> Fraction:
            alike = [depths[op] for op in left if signatures[op] == signature]
            return Fraction(sum(alike), len(alike))

        best = min((mean(signatures[op]), first[signatures[op]]) for op in ready)
        for op in ready:
            if first[signatures[op]] == best[1]:
                levels[op] = batch
        batch += 1
    return tuple(levels[op] for op in range(len(preds)))


@settings(deadline=None)
@given(GRAPHS)
def test_foata_is_the_longest_path_and_the_layer_on_lanes(preds: Dag) -> None:
    """foata(x) = edges on the longest path to x = layer of x by the head rule on lanes."""
    assert list(foata(preds)) == longest_paths(preds)
    assert foata(preds) == layer_numbers(lanes(preds))


@settings(deadline=None)
@given(GRAPHS, st.data())
def test_all_levels_grow_along_every_dependency(preds: Dag, data: st.DataObject) -> None:
    """Each of the functions here is a level function, also along paths."""
    letters = data.draw(_letters(preds))
    flags = data.draw(_flags(preds))
    above = ancestors(preds)
    for levels in (foata(preds), heavy_depth(preds, flags), agenda(preds, letters)):
        assert is_level_function(levels, preds)
        assert all(levels[one] < levels[op] for op in range(len(preds)) for one in above[op])
        assert set(levels) == set(range(len(set(levels))))


@settings(deadline=None)
@given(dags(max_ops=8), st.data())
def test_heavy_depth_counts_heavy_ops_and_the_steps_since(preds: Dag, data: st.DataObject) -> None:
    """Levels are the ranks of (most heavy ops on a path, most steps since the last of them)."""
    heavy = data.draw(_flags(preds))
    pairs = []
    for op in range(len(preds)):
        best = (-1, -1)
        for path in _paths_to(preds, op):
            last = max((place for place, x in enumerate(path) if heavy[x]), default=0)
            best = max(best, (sum(heavy[x] for x in path), len(path) - 1 - last))
        pairs.append(best)
    ranks = sorted(set(pairs))
    assert heavy_depth(preds, heavy) == tuple(ranks.index(pair) for pair in pairs)


@settings(deadline=None, max_examples=300)
@given(GRAPHS, st.data())
def test_agenda_is_what_its_definition_says(preds: Dag, data: st.DataObject) -> None:
    """The heap picks the same batches as exact means over all ops left, batch by batch."""
    letters = data.draw(_letters(preds))
    assert agenda(preds, letters) == _slow_agenda(preds, letters)


@settings(deadline=None)
@given(GRAPHS, st.data())
def test_every_agenda_batch_has_one_signature(preds: Dag, data: st.DataObject) -> None:
    """A level of the agenda is one launch."""
    letters = data.draw(_letters(preds))
    levels = agenda(preds, letters)
    assert launches(levels, letters) == len(set(levels))


@settings(deadline=None)
@given(GRAPHS, st.data())
def test_shuffling_the_node_list_changes_no_level(preds: Dag, data: st.DataObject) -> None:
    """Foata levels and heavy depth belong to the op, not to its place in the file."""
    order = data.draw(orders(preds))
    heavy = data.draw(_flags(preds))
    moved = relabel(preds, order)
    assert foata(moved) == tuple(foata(preds)[op] for op in order)
    assert heavy_depth(moved, [heavy[op] for op in order]) == tuple(
        heavy_depth(preds, heavy)[op] for op in order
    )


@settings(deadline=None, max_examples=300)
@given(GRAPHS, st.data())
def test_groups_inside_one_level_contract_to_an_acyclic_graph(
    preds: Dag, data: st.DataObject
) -> None:
    """T3: any family of groups, each inside one level of one level function, is safe."""
    letters = data.draw(_letters(preds))
    levels = data.draw(
        st.sampled_from(
            [foata(preds), heavy_depth(preds, [x == "A" for x in letters]), agenda(preds, letters)]
        )
    )
    parts = data.draw(st.tuples(*[st.integers(0, 2)] * len(preds)))
    groups: dict[tuple[int, int], list[int]] = {}
    for op, key in enumerate(zip(levels, parts, strict=True)):
        groups.setdefault(key, []).append(op)
    assert quotient_is_acyclic(preds, groups.values())


@settings(deadline=None)
@given(dags(max_ops=9), st.data())
def test_the_quotient_test_agrees_with_reachability(preds: Dag, data: st.DataObject) -> None:
    """The quotient has a cycle if and only if some group reaches itself through its edges."""
    parts = data.draw(st.tuples(*[st.integers(0, 5)] * len(preds)))
    groups = [[op for op in range(len(preds)) if parts[op] == part] for part in range(4)]
    name = [part if part < 4 else 10 + op for op, part in enumerate(parts)]
    reach = {(name[pred], name[op]) for op, before in enumerate(preds) for pred in before}
    while True:
        further = {(a, d) for a, b in reach for c, d in reach if b == c} - reach
        if not further:
            break
        reach |= further
    assert quotient_is_acyclic(preds, groups) == all(a != b for a, b in reach)


def test_independent_members_alone_are_not_enough() -> None:
    """T3: a1 -> b1 and b2 -> a2; {a1, a2} and {b1, b2} are independent pairs, yet a cycle."""
    a1, b2, b1, a2 = 0, 1, 2, 3
    preds: Dag = ((), (), (a1,), (b2,))
    above = ancestors(preds)
    for one, other in ((a1, a2), (b1, b2)):
        assert one not in above[other]
        assert other not in above[one]
    assert not quotient_is_acyclic(preds, [(a1, a2), (b1, b2)])
    assert quotient_is_acyclic(preds, [(a1, a2)])
    assert quotient_is_acyclic(preds, [(a1, b2), (b1, a2)])
    # No level function has both groups inside its levels.
    assert foata(preds)[a1] != foata(preds)[a2]


def test_an_edge_inside_a_group_is_a_cycle() -> None:
    """A batched op cannot read its own result."""
    assert not quotient_is_acyclic([(), (0,)], [(0, 1)])


HALF_LONGER = chains(*["MRMRMR"] * 4, *["NMRMRMR"] * 4)
SKEWED = chains("NANA", "ANA")
HEADS_4 = grouped_mlp(layers=3, groups=4), ("S", *"MMMM", "C") * 3


@pytest.mark.parametrize(
    ("case", "by_foata", "by_heavy", "by_agenda"),
    [(SKEWED, 7, 4, 4), (HALF_LONGER, 13, 7, 7), (HEADS_4, 9, 9, 9)],
    ids=["NANA + ANA", "half the branches with one leading extra op", "4-group MLP"],
)
def test_known_launches(
    case: tuple[Dag, tuple[str, ...]], by_foata: int, by_heavy: int, by_agenda: int
) -> None:
    """Depth-minimal is not launch-minimal: skewed branches part in Foata layers."""
    preds, letters = case
    heavy = [letter in "AM" for letter in letters]
    assert launches(foata(preds), letters) == by_foata
    assert launches(heavy_depth(preds, heavy), letters) == by_heavy
    assert launches(agenda(preds, letters), letters) == by_agenda


def test_is_level_function_notices_a_flat_edge() -> None:
    """Equal or falling levels along an edge are not a level function."""
    preds = [(), (0,), (1,)]
    assert is_level_function([0, 1, 5], preds)
    assert not is_level_function([0, 1, 1], preds)
    assert not is_level_function([0, 2, 1], preds)


def test_wrong_lengths_are_refused() -> None:
    """One flag, signature or level for each op, or an error that says what is missing."""
    preds = [(), (0,)]
    with pytest.raises(SchedError, match="1 of 2 ops have a signature"):
        agenda(preds, ["A"])
    with pytest.raises(SchedError, match="1 of 2 ops have a flag for heavy"):
        heavy_depth(preds, [True])
    with pytest.raises(SchedError, match="3 of 2 ops have a level"):
        is_level_function([0, 1, 2], preds)
    with pytest.raises(SchedError, match="1 of 2 ops have a signature"):
        launches([0, 1], ["A"])


def test_ops_out_of_order_are_refused() -> None:
    """No level for a graph that is not numbered in a topological order."""
    preds = [(1,), ()]
    with pytest.raises(SchedError, match="op 0 of 2 reads op 1"):
        foata(preds)
    with pytest.raises(SchedError, match="op 0 of 2 reads op 1"):
        heavy_depth(preds, [True, False])
    with pytest.raises(SchedError, match="op 0 of 2 reads op 1"):
        agenda(preds, "AB")


@pytest.mark.parametrize("groups", [[(0, 1), (1,)], [(0, 0)], [(0, 2)], [(-1,)]])
def test_impossible_groups_are_refused(groups: list[tuple[int, ...]]) -> None:
    """Groups that overlap or name ops that do not exist are an error."""
    with pytest.raises(SchedError, match=r"op -?[0-9]"):
        quotient_is_acyclic([(), ()], groups)


def test_long_chains_need_no_recursion() -> None:
    """100,000 ops in a row, all of one signature, are 100,000 levels of every kind."""
    count = 100_000
    preds = [(op - 1,) if op else () for op in range(count)]
    straight = tuple(range(count))
    assert foata(preds) == straight
    assert heavy_depth(preds, [True] * count) == straight
    assert agenda(preds, "M" * count) == straight
    assert quotient_is_acyclic(preds, [])
