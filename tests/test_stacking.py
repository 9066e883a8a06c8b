"""The layout algebra: every change of layout moves every number to where the definition says."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from onnx_sched.constants import Array
from onnx_sched.dims import Dim, Shape, is_static
from onnx_sched.relayout import (
    Crop,
    Extend,
    Reshape,
    Squeeze,
    Step,
    Transpose,
    Unsqueeze,
    reshape_target,
    steps,
)
from onnx_sched.stacking import (
    LANE,
    SPARE,
    Atom,
    Bulk,
    Layout,
    aligned,
    at,
    columns,
    compact,
    flat,
    is_packed,
    lane_axis,
    lay,
    lead,
    packed,
    plain,
    regrouped,
    renumber,
    rows,
    separate,
    spare_axis,
    without_spare,
)
from tests.nets import evaluate, physical

Binding = dict[str, int]

static_dims: st.SearchStrategy[Dim] = st.sampled_from([1, 1, 2, 3, 4])
open_dims: st.SearchStrategy[Dim] = st.sampled_from([1, 2, 3, "B", "S", "2*B", "B*S"])
filled = st.fixed_dictionaries({"B": st.integers(1, 3), "S": st.integers(1, 3)})
maybe_empty = st.fixed_dictionaries({"B": st.integers(0, 3), "S": st.integers(0, 3)})


@st.composite
def bulks(
    draw: st.DrawFn,
    dims: st.SearchStrategy[Dim] = open_dims,
    least: int = 0,
    most: int = 3,
    nonempty: bool = False,
) -> Bulk:
    """A number of lanes and a shape for each."""
    shape = draw(st.lists(dims, min_size=least, max_size=most))
    return Bulk(draw(st.integers(1, 3)), tuple(shape), nonempty)


@st.composite
def layouts(draw: st.DrawFn, bulk: Bulk) -> Layout:
    """Any layout: the well-known ones, channels first, and any order, any cuts, axes of size 1."""
    rank = len(bulk.shape)
    known: list[Layout] = [at(rank, p) for p in range(rank + 1)]
    known += [packed(rank, a) for a in range(rank)]
    if rank:
        known += [flat(rank), rows(rank), columns(rank, False)]
    if draw(st.booleans()):
        return draw(st.sampled_from(known))
    every: list[Atom] = [LANE, *range(rank)]
    atoms = [a for a in every if a == LANE or bulk.dim(a) != 1 or draw(st.booleans())]
    axes: list[list[Atom]] = []
    for atom in draw(st.permutations(atoms)):
        joins: bool = draw(st.booleans())
        if axes and joins:
            axes[-1].append(atom)
        else:
            axes.append([atom])
    for _ in range(draw(st.integers(0, 2))):
        axes.insert(draw(st.integers(0, len(axes))), [])
    return tuple(map(tuple, axes))


@st.composite
def changes(
    draw: st.DrawFn, dims: st.SearchStrategy[Dim] = open_dims, nonempty: bool = False
) -> tuple[Bulk, Layout, Layout]:
    """A bundle and two layouts of it."""
    bulk = draw(bulks(dims, nonempty=nonempty))
    return bulk, draw(layouts(bulk)), draw(layouts(bulk))


def stack_of(bulk: Bulk, binding: Mapping[str, int]) -> Array:
    """The lanes of a bundle, every entry another number."""
    shape = (bulk.lanes, *(evaluate(d, binding) for d in bulk.shape))
    return np.arange(prod(shape)).reshape(shape)


def onnx_reshape(array: Array, target: Sequence[int]) -> Array:
    """Reshape as ONNX has it: 0 copies a size, -1 takes what is left, if anything tells how much."""
    sizes = [array.shape[k] if d == 0 else d for k, d in enumerate(target)]
    if -1 in sizes:
        hole = sizes.index(-1)
        rest = prod(s for k, s in enumerate(sizes) if k != hole)
        if not rest:
            raise ZeroDivisionError(f"nothing tells what -1 is: {array.shape} to {target}")
        sizes[hole] = array.size // rest
    return array.reshape(sizes)


def carry_out(array: Array, way: Sequence[Step]) -> Array:
    """Do the steps with numpy."""
    for step in way:
        if isinstance(step, Reshape):
            array = onnx_reshape(array, step.target)
        elif isinstance(step, Transpose):
            array = array.transpose(step.perm)
        elif isinstance(step, Unsqueeze):
            array = np.expand_dims(array, step.axes)
        elif isinstance(step, Squeeze):
            array = np.squeeze(array, step.axes)
        elif isinstance(step, Crop):
            array = np.delete(array, -1, step.axis)
        else:
            assert isinstance(step, Extend)
            assert step.rank == array.ndim
            array = np.insert(array, array.shape[step.axis], 0, step.axis)
    return array


def same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and bool((one == other).all())


@settings(max_examples=200)
@given(st.one_of(changes(), changes(nonempty=True)), filled)
def test_steps_lead_from_one_layout_to_the_other(
    change: tuple[Bulk, Layout, Layout], binding: Binding
) -> None:
    """Carrying out the steps on the tensor of layout a gives the tensor of layout b; three will do."""
    bulk, a, b = change
    way = steps(bulk, a, b)
    if way is not None:
        stack = stack_of(bulk, binding)
        assert same(carry_out(physical(stack, a), way), physical(stack, b))
        assert len(way) <= 3


@settings(max_examples=200)
@example((Bulk(2, ("B", "S")), lead(2), packed(2, 1)), {"B": 0, "S": 3})
@given(changes(), maybe_empty)
def test_steps_hold_for_empty_lanes(change: tuple[Bulk, Layout, Layout], binding: Binding) -> None:
    """They do where a size that is known only at run time turns out to be 0, unless that is ruled out."""
    bulk, a, b = change
    way = steps(bulk, a, b)
    if way is not None:
        stack = stack_of(bulk, binding)
        assert same(carry_out(physical(stack, a), way), physical(stack, b))


@given(bulks(), st.data())
def test_no_change_takes_no_steps(bulk: Bulk, data: st.DataObject) -> None:
    """From a layout to itself there is nothing to do, whatever the sizes."""
    layout = data.draw(layouts(bulk))
    assert steps(bulk, layout, layout) == ()


def widened(array: Array, layout: Layout, entry: int) -> Array:
    """The tensor of a layout with a spare entry, which may hold anything."""
    axis = spare_axis(layout)
    return array if axis is None else np.insert(array, array.shape[axis], entry, axis)


@st.composite
def spared(draw: st.DrawFn, layout: Layout) -> Layout:
    """The layout with a spare entry on one of its axes, or none."""
    axis = draw(st.integers(-1, len(layout) - 1))
    return tuple((*atoms, SPARE) if k == axis else atoms for k, atoms in enumerate(layout))


@st.composite
def spared_changes(draw: st.DrawFn) -> tuple[Bulk, Layout, Layout]:
    """A bundle and two layouts of it, each with a spare entry or not."""
    bulk, a, b = draw(changes())
    if draw(st.booleans()):
        return bulk, draw(spared(a)), draw(spared(b))
    rank = len(bulk.shape)
    known = [columns(rank, True), lead(rank), packed(rank, rank - 1)] if rank else [lead(rank)]
    if rank > 2:  # other rows first
        known.append(((), (LANE, rank - 1), (), (*reversed(range(rank - 1)), SPARE)))
    return bulk, draw(st.sampled_from(known)), draw(st.sampled_from(known))


ROWS = ((), (LANE, 2), (), (0, 1, SPARE))
OTHER_ROWS = ((), (LANE, 2), (), (1, 0, SPARE))


@settings(max_examples=200)
@example((Bulk(2, (2, 3, 4)), ROWS, OTHER_ROWS), {})
@given(spared_changes(), filled)
def test_a_spare_entry_comes_and_goes(
    change: tuple[Bulk, Layout, Layout], binding: Binding
) -> None:
    """Into a layout with a spare entry one is added, out of it the entry is dropped, whatever it is.

    All the others are where they belong; from a layout to itself there is nothing to do.
    """
    bulk, a, b = change
    way = steps(bulk, a, b)
    if a == b:
        assert way == ()
    elif way is not None:
        stack = stack_of(bulk, binding)
        found = carry_out(widened(physical(stack, without_spare(a)), a, -7), way)
        axis = spare_axis(b)
        if axis is not None:
            assert found.take(-1, axis).max(initial=-7) <= 0  # what it was, or zero
            found = np.delete(found, -1, axis)
        assert same(found, physical(stack, without_spare(b)))


@settings(max_examples=200)
@given(changes(static_dims))
def test_known_sizes_always_find_a_way(change: tuple[Bulk, Layout, Layout]) -> None:
    """Only sizes known at run time alone can stand in the way."""
    assert steps(*change) is not None


@example((Bulk(2, ("B", "S", 1)), lead(3), ((), (LANE,), (0,), (1,))))
@given(changes())
def test_open_sizes_alone_on_their_axes_need_not_be_known(
    change: tuple[Bulk, Layout, Layout],
) -> None:
    """There is a way between layouts that keep every atom on an axis of its own.

    They differ by a Transpose and by axes of size 1.
    """
    bulk, a, b = change
    if all(len(axis) <= 1 for axis in (*a, *b)):
        assert steps(bulk, a, b) is not None


def single_steps(one: Array, other: Array) -> bool:
    """Whether one Reshape or one Transpose makes `other` of `one`."""
    if same(one.reshape(other.shape), other):
        return True
    turns = itertools.permutations(range(one.ndim)) if one.ndim == other.ndim else ()
    return any(same(one.transpose(p), other) for p in turns)


def double_steps(one: Array, other: Array) -> bool:
    """Whether a Transpose after or before a Reshape makes `other` of `one`."""
    after = itertools.permutations(range(one.ndim))
    before = itertools.permutations(range(other.ndim))
    return any(same(one.transpose(p).reshape(other.shape), other) for p in after) or any(
        same(other.transpose(p).reshape(one.shape), one) for p in before
    )


@settings(max_examples=200)
@example((Bulk(4, (2, 1, 8)), lead(3), packed(3, 2)))
@given(changes(static_dims))
def test_there_are_no_fewer_steps(change: tuple[Bulk, Layout, Layout]) -> None:
    """Two steps only where neither a Reshape nor a Transpose alone will do, three where no two will."""
    bulk, a, b = change
    way = steps(bulk, a, b)
    assert way is not None
    one, other = (physical(stack_of(bulk, {}), layout) for layout in (a, b))
    assert one.ndim < 7
    if len(way) == 1:
        assert not same(one, other)
    if len(way) == 2:
        assert not single_steps(one, other)
    if len(way) == 3:
        assert not double_steps(one, other)


@given(bulks(static_dims, least=1), st.data())
def test_the_named_layouts_are_those_of_numpy(bulk: Bulk, data: st.DataObject) -> None:
    """`lead`, `at` are np.stack, `packed` is np.concatenate, the others a Reshape or more of these.

    A single lane is `plain`.
    """
    stack = stack_of(bulk, {})
    rank, lanes = len(bulk.shape), list(stack)
    position = data.draw(st.integers(0, rank))
    axis = data.draw(st.integers(0, rank - 1))
    cases = [
        (lead(rank), np.stack(lanes), 0, False),
        (flat(rank), stack.reshape(bulk.lanes, -1, stack.shape[-1]), 0, False),
        (
            rows(rank),
            np.concatenate(lanes, -1).reshape(-1, bulk.lanes * stack.shape[-1], 1, 1),
            1,
            True,
        ),
        (
            columns(rank, False),
            np.concatenate(lanes, -1).reshape(-1, bulk.lanes * stack.shape[-1]).T[None, :, None],
            1,
            True,
        ),
        (at(rank, position), np.stack(lanes, position), position, False),
        (packed(rank, axis), np.concatenate(lanes, axis), axis, True),
    ]
    for layout, expected, where, shared in cases:
        assert same(physical(stack, layout), expected)
        assert bulk.physical(layout) == expected.shape
        assert lane_axis(layout) == where
        assert is_packed(layout) == shared
        assert bulk.core(layout) == [a for axis in layout for a in axis if bulk.dim(a) != 1]
    assert plain(rank) == renumber(lead(rank), {i: i for i in range(rank)})[1:]
    assert plain(rank) == tuple((i,) for i in range(rank))


@given(bulks(), st.data(), maybe_empty)
def test_the_physical_shape_is_that_of_the_tensor(
    bulk: Bulk, data: st.DataObject, binding: Binding
) -> None:
    """Symbolic sizes of the physical axes, bound, are the sizes of the tensor."""
    layout = data.draw(layouts(bulk))
    found = tuple(evaluate(d, binding) for d in bulk.physical(layout))
    assert found == physical(stack_of(bulk, binding), layout).shape


@st.composite
def regroupings(draw: st.DrawFn) -> tuple[Shape, Shape]:
    """Two shapes of equal elements in equal order: one row of sizes, cut in two ways."""
    row: list[Dim] = draw(st.lists(st.sampled_from([1, 2, 3, "B", "S"]), max_size=4))

    def cut() -> Shape:
        groups: list[list[int]] = [[]]
        for place in range(len(row)):
            if draw(st.booleans()):
                groups.append([])
            groups[-1].append(place)
        bulk = Bulk(1, tuple(row))
        return bulk.physical(tuple(map(tuple, groups)))

    return cut(), cut()


@given(regroupings(), st.booleans(), maybe_empty)
def test_a_reshape_target_gives_the_shape(
    shapes: tuple[Shape, Shape], nonempty: bool, binding: Binding
) -> None:
    """The operand of Reshape, in ONNX's terms, makes the one shape into the other.

    There is none exactly if two sizes are open: known only at run time, and not where they were.  Or if
    one is, and another that is copied might be 0, which would say nothing about it.
    """
    before, after = shapes
    target = reshape_target(before, after, nonempty)
    unknown = [k for k, d in enumerate(after) if not isinstance(d, int)]
    left = [k for k in unknown if before[k : k + 1] != after[k : k + 1]]
    unclear = bool(left) and len(unknown) > len(left) and not nonempty
    assert (target is None) == (len(left) > 1 or unclear)
    if nonempty and 0 in binding.values():
        return
    if target is not None:
        bound = [tuple(evaluate(d, binding) for d in shape) for shape in shapes]
        assert onnx_reshape(np.zeros(bound[0]), target).shape == bound[1]


@pytest.mark.parametrize("shapes", [((0, 3), (3, 0)), ((2, 0), (0,)), (("B", 0), (0, "B"))])
def test_a_size_that_is_zero_for_sure_has_no_target(shapes: tuple[Shape, Shape]) -> None:
    """A zero in the operand of Reshape means "copy", so that no zero can be asked for."""
    assert reshape_target(*shapes) is None


@st.composite
def constants(draw: st.DrawFn, bulk: Bulk) -> Array:
    """A constant for every lane, or one for all; each of its sizes is the lanes' own, or 1."""
    shape = [draw(st.sampled_from([1, bulk.lanes]))]
    for dim in bulk.shape:
        shape.append(draw(st.sampled_from([1, dim])) if isinstance(dim, int) else 1)
    return np.arange(1, prod(shape) + 1).reshape(shape) * 1000


@settings(max_examples=200)
@given(bulks(), st.data(), maybe_empty)
def test_a_constant_is_laid_as_every_lane_broadcasts_it(
    bulk: Bulk, data: st.DataObject, binding: Binding
) -> None:
    """Adding the laid constant to the bundle is adding to every lane its own.

    It cannot be laid exactly if it varies along an axis that an atom of open size, or a spare entry,
    shares.
    """
    plain_layout = data.draw(layouts(bulk))
    layout = data.draw(spared(plain_layout))
    const = data.draw(constants(bulk))
    stack = stack_of(bulk, binding)
    per_lane = np.stack([lane + const[g % len(const)] for g, lane in enumerate(stack)])
    laid = lay(const, layout, bulk)

    def size(atom: Atom) -> int:
        return int(const.shape[0 if isinstance(atom, str) else atom + 1])

    stuck = any(
        any(size(a) != 1 for a in axis if a != SPARE)
        and (SPARE in axis or not is_static(bulk.dim(a) for a in axis))
        for axis in layout
    )
    assert (laid is None) == stuck
    if laid is not None:
        assert laid.ndim == len(layout)
        total = widened(physical(stack, plain_layout), layout, 0) + laid
        axis = spare_axis(layout)
        total = total if axis is None else np.delete(total, -1, axis)
        assert same(total, physical(per_lane, plain_layout))


@given(bulks(static_dims, least=1), st.data())
def test_an_operand_of_lower_rank_meets_the_bundle_in_the_aligned_layout(
    bulk: Bulk, data: st.DataObject
) -> None:
    """Adding lane by lane, right-aligned, is adding the tensors, the lower one in `aligned`.

    For that, no axis of the layout may hold both an atom that the operand has and one that it lacks.
    """
    rank = len(bulk.shape)
    low = data.draw(st.integers(0, rank))
    layout = data.draw(layouts(bulk))
    lacking = [{a for a in axis if isinstance(a, int) and a < rank - low} for axis in layout]
    assume(all(not gone or gone == {*axis} for gone, axis in zip(lacking, layout, strict=True)))
    stack = stack_of(bulk, {})
    lower = Bulk(bulk.lanes, bulk.shape[rank - low :])
    other = stack_of(lower, {}) * 1000
    per_lane = np.stack([a + b for a, b in zip(stack, other, strict=True)])
    found = physical(other, aligned(layout, rank, low))
    assert same(physical(stack, layout) + found, physical(per_lane, layout))


@given(bulks(static_dims), st.data())
def test_a_renumbered_layout_is_the_same_tensor(bulk: Bulk, data: st.DataObject) -> None:
    """Lanes seen through a Transpose, Unsqueeze or Squeeze lie where they lay."""
    rank = len(bulk.shape)
    layout = data.draw(layouts(bulk))
    stack = stack_of(bulk, {})
    tensor = physical(stack, layout)

    perm = data.draw(st.permutations(range(rank)))
    turned = stack.transpose(0, *(p + 1 for p in perm))
    assert same(physical(turned, renumber(layout, {p: k for k, p in enumerate(perm)})), tensor)

    added = data.draw(st.integers(0, rank))
    raised = np.expand_dims(stack, added + 1)
    assert same(
        physical(raised, renumber(layout, {i: i + (i >= added) for i in range(rank)})), tensor
    )

    units = [i for i, d in enumerate(bulk.shape) if d == 1]
    if units:
        gone = data.draw(st.sampled_from(units))
        rest = {i: i - (i > gone) for i in range(rank) if i != gone}
        assert same(physical(np.squeeze(stack, gone + 1), renumber(layout, rest)), tensor)


@given(bulks(), st.data(), filled)
def test_separated_atoms_stand_in_the_same_order(
    bulk: Bulk, data: st.DataObject, binding: Binding
) -> None:
    """Every atom is named, on an axis of its own; number for number the tensor is the same."""
    layout = data.draw(layouts(bulk))
    apart = separate(layout, bulk)
    assert all(len(axis) == 1 for axis in apart)
    assert {a for axis in apart for a in axis} == {LANE, *range(len(bulk.shape))}
    stack = stack_of(bulk, binding)
    assert same(physical(stack, apart).ravel(), physical(stack, layout).ravel())


@given(bulks(), st.data(), filled)
def test_a_compact_layout_has_no_axis_of_size_one(
    bulk: Bulk, data: st.DataObject, binding: Binding
) -> None:
    """Axes that are 1 for sure are gone, others stay; number for number the tensor is the same."""
    layout = data.draw(layouts(bulk))
    dense = compact(layout, bulk)
    assert 1 not in bulk.physical(dense)
    assert [d for d in bulk.physical(layout) if d != 1] == list(bulk.physical(dense))
    stack = stack_of(bulk, binding)
    assert same(physical(stack, dense).ravel(), physical(stack, layout).ravel())


@settings(max_examples=200)
@given(regroupings(), st.integers(1, 3), st.data(), filled)
def test_lanes_that_are_reshaped_lie_as_before(
    shapes: tuple[Shape, Shape], lanes: int, data: st.DataObject, binding: Binding
) -> None:
    """Where a Reshape of every lane needs no work, the tensor holds the new lanes in the new layout."""
    before, after = shapes
    layout = data.draw(layouts(Bulk(lanes, before)))
    seen = regrouped(layout, before, after)
    if seen is not None:
        stack = stack_of(Bulk(lanes, before), binding)
        new = stack.reshape(lanes, *(evaluate(d, binding) for d in after))
        assert same(physical(new, seen), physical(stack, layout))


def test_merged_axes_that_lie_merged_are_one() -> None:
    """A Reshape that cuts or joins whole axes of the lanes is a change of names in any flat layout."""
    assert regrouped(flat(3), ("B", 24, 8), ("24*B", 8)) == ((LANE,), (0,), (1,))
    assert regrouped(lead(2), ("24*B", 8), ("B", 24, 8)) == flat(3)
    assert regrouped(packed(2, 1), ("B", 12), ("B", 3, 4)) == ((0,), (LANE, 1, 2))
    assert regrouped(packed(3, 1), ("B", 3, 4), ("B", 12)) is None
    assert regrouped(lead(2), (4, 6), (6, 4)) is None


EXAMPLES: list[tuple[Bulk, Layout, Layout, tuple[Step, ...] | None]] = [
    (Bulk(4, ("B", 8)), packed(2, 1), lead(2), (Reshape((0, 4, 8)), Transpose((1, 0, 2)))),
    (Bulk(4, ("B", 8)), lead(2), packed(2, 1), (Transpose((1, 0, 2)), Reshape((0, 32)))),
    (Bulk(4, (1, 8)), packed(2, 1), lead(2), (Reshape((4, 1, 8)),)),
    (Bulk(4, ("B", 8)), at(2, 1), packed(2, 1), (Reshape((0, 32)),)),
    (Bulk(4, ("B", 8)), at(2, 1), lead(2), (Transpose((1, 0, 2)),)),
    (
        Bulk(4, ("B", 8)),
        packed(2, 1),
        ((), (LANE, 1), (), (0,)),
        (Unsqueeze((0, 1)), Transpose((0, 3, 1, 2))),
    ),
    (
        Bulk(4, ("B", 8)),
        ((), (LANE, 1), (), (0,)),
        lead(2),
        (Reshape((4, 8, -1)), Transpose((0, 2, 1))),
    ),
    (
        Bulk(4, ("B", 8)),
        packed(2, 1),
        columns(2, True),
        (Unsqueeze((0, 1)), Transpose((0, 3, 1, 2)), Extend(3, 4)),
    ),
    (
        Bulk(4, ("B", 8)),
        columns(2, True),
        packed(2, 1),
        (Transpose((0, 2, 3, 1)), Crop(2), Squeeze((0, 1))),
    ),
    (
        Bulk(4, ("B", 8)),
        columns(2, True),
        ((0, SPARE), (LANE,), (1,)),
        (Transpose((0, 2, 3, 1)), Reshape((-1, 4, 8))),
    ),
    (
        Bulk(4, ("B", 5, 8)),
        ((0, 1), (LANE,), (2,)),
        columns(3, False),
        (Reshape((1, 1, -1, 32)), Transpose((0, 3, 1, 2))),
    ),
    (
        Bulk(4, ("B", 8)),
        columns(2, True),
        lead(2),
        (Crop(3), Reshape((4, 8, -1)), Transpose((0, 2, 1))),
    ),
    (Bulk(4, ("B", 8)), columns(2, False), ((), (0,), (), (LANE, 1)), (Transpose((0, 3, 2, 1)),)),
    (Bulk(4, ("B", "S")), ((0, 1, LANE),), lead(2), None),
]


@pytest.mark.parametrize(("bulk", "before", "after", "way"), EXAMPLES)
def test_the_common_changes(
    bulk: Bulk, before: Layout, after: Layout, way: tuple[Step, ...] | None
) -> None:
    """Split to batched is Reshape, Transpose; at batch 1, or if the lanes stand alone, one of them.

    Into an image and out of one the Transpose is that from and to channels last.
    """
    assert steps(bulk, before, after) == way
