"""How the values of several lanes lie in one tensor (pure).

A *bundle* is an ordered tuple of values of one shape, one per lane.  A `Layout` says how a bundle lies
in one physical tensor: it lists the physical axes, each a tuple of atoms, major first.  An atom is
`LANE` (which lane) or an int (an axis of the lanes' own shape).  An axis without atoms has size 1.  For
lanes of shape (B, K):

    ((LANE,), (0,), (1,))     [G, B, K]       stacked in front: `lead(2)`
    ((0,), (LANE, 1))         [B, G*K]        side by side, what Concat makes: `packed(2, 1)`
    ((0,), (LANE,), (1,))     [B, G, K]       what Unsqueeze + Concat make: `at(2, 1)`
    ((0,), (LANE, 1), (), ()) [B, G*K, 1, 1]  rows first, for a grouped 1x1 convolution
    ((), (LANE, 1), (), (0,)) [1, G*K, 1, B]  channels first, for the same: `columns(2)`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from onnx_sched.constants import Array
from onnx_sched.dims import Dim, Shape, product

LANE = "G"
SPARE = "+1"
"""Marks an axis that is one longer than its atoms say: a spare entry that keeps it from being empty."""

Atom = str | int
Axis = tuple[Atom, ...]
Layout = tuple[Axis, ...]


def at(rank: int, position: int) -> Layout:
    """Lanes on an axis of their own at `position`."""
    axes: list[Axis] = [(i,) for i in range(rank)]
    axes.insert(position, (LANE,))
    return tuple(axes)


def lead(rank: int) -> Layout:
    """Lanes on an axis of their own in front."""
    return at(rank, 0)


def packed(rank: int, axis: int) -> Layout:
    """Lanes side by side along one of their own axes, as Concat leaves them."""
    return tuple((LANE, i) if i == axis else (i,) for i in range(rank))


def flat(rank: int) -> Layout:
    """Lanes in front, all rows on one axis: [G, B*S, K], what a batched product likes best."""
    return ((LANE,), tuple(range(rank - 1)), (rank - 1,))


def rows(rank: int, spatial: int = 2) -> Layout:
    """Features of all lanes side by side as channels of one-pixel images: [B, G*K, 1, 1] or [B, G*K, 1]."""
    return (tuple(range(rank - 1)), (LANE, rank - 1), *((),) * spatial)


def columns(rank: int, spare: bool) -> Layout:
    """Features of all lanes side by side as channels, rows as pixels: [1, G*K, 1, B].

    A runtime's convolution may refuse an image without pixels, what an empty batch makes of this; a
    spare pixel prevents it.
    """
    pixels: Axis = tuple(range(rank - 1))
    return ((), (LANE, rank - 1), (), (*pixels, SPARE) if spare else pixels)


def without_spare(layout: Layout) -> Layout:
    """The layout without the mark of a spare entry."""
    return tuple(tuple(a for a in axis if a != SPARE) for axis in layout)


def spare_axis(layout: Layout) -> int | None:
    """The physical axis with a spare entry, if there is one."""
    return next((k for k, axis in enumerate(layout) if SPARE in axis), None)


def plain(rank: int) -> Layout:
    """One value by itself."""
    return tuple((i,) for i in range(rank))


def lane_axis(layout: Layout) -> int:
    """The physical axis that holds the lanes."""
    return next(k for k, axis in enumerate(layout) if LANE in axis)


def in_blocks(layout: Layout) -> bool:
    """Whether each lane is one block of the axis that holds them: what Slice, Split and Concat need.

    >>> in_blocks(packed(2, 1)), in_blocks(((0,), (1, LANE)))
    (True, False)
    """
    return layout[lane_axis(layout)][0] == LANE


def is_packed(layout: Layout) -> bool:
    """Whether the lanes share an axis with something else."""
    return len(layout[lane_axis(layout)]) > 1


@dataclass(frozen=True, slots=True)
class Bulk:
    """The sizes behind a bundle: number of lanes and the shape of each.

    Attributes:
        lanes: Number of lanes.
        shape: Of each.
        nonempty: A promise that no size known only at run time is 0.
        given: Sizes known only at run time that a graph input shows.
    """

    lanes: int
    shape: Shape
    nonempty: bool = False
    given: frozenset[str] = frozenset()

    def dim(self, atom: Atom) -> Dim:
        """Size of an atom."""
        if isinstance(atom, int):
            return self.shape[atom]
        return self.lanes if atom == LANE else 1

    def physical(self, layout: Layout) -> Shape:
        """Shape of the tensor that holds the bundle in a layout."""
        return tuple(product(self.dim(a) for a in axis) for axis in layout)

    def core(self, layout: Layout) -> list[Atom]:
        """The atoms that are not surely of size 1, major first."""
        return [a for axis in layout for a in axis if self.dim(a) != 1]


def separate(layout: Layout, bulk: Bulk) -> Layout:
    """The same order of atoms, each on an axis of its own; rows with a spare entry stay together."""
    found: list[Axis] = []
    for axis in layout:
        if SPARE in axis:
            found.append(axis)
        else:
            found += [(a,) for a in axis]
    named = {a for axis in found for a in axis}
    missing: list[Axis] = [(a,) for a, d in enumerate(bulk.shape) if d == 1 and a not in named]
    return tuple(found + missing)


def compact(layout: Layout, bulk: Bulk) -> Layout:
    """The layout without axes of size 1: an innermost one slows broadcasting down fifty times."""
    return tuple(axis for axis in layout if SPARE in axis or any(bulk.dim(a) != 1 for a in axis))


def renumber(layout: Layout, axes: Mapping[int, int]) -> Layout:
    """The same tensor seen by other axis numbers; an axis without a new number is dropped.

    Seen through a Transpose, a Squeeze or an Unsqueeze, a bundle lies as before: only the names of its
    axes change.
    """
    return tuple(
        tuple(a if isinstance(a, str) else axes[a] for a in axis if isinstance(a, str) or a in axes)
        for axis in layout
    )


def regrouped(layout: Layout, before: Shape, after: Shape) -> Layout | None:
    """The same tensor seen through a Reshape of the lanes; None if it must be made.

    An axis that is cut into several lies as their merger; several that lie merged become one.

    >>> regrouped(flat(3), ("B", 24, 8), ("24*B", 8))
    (('G',), (0,), (1,))
    """
    pairs = _matched(before, after)
    if pairs is None:
        return None
    found: list[Axis] = []
    for axis in layout:
        renamed: list[Atom] = []
        left = list(axis)
        while left:
            atom = left.pop(0)
            if isinstance(atom, str):
                renamed.append(atom)
                continue
            old, new = next(p for p in pairs if atom in p[0])
            rest = [a for a in old if before[a] != 1]
            if before[atom] == 1:
                continue
            if rest[0] != atom or left[: len(rest) - 1] != rest[1:]:
                return None
            del left[: len(rest) - 1]
            renamed += new
        found.append(tuple(renamed))
    return tuple(found)


def _matched(before: Shape, after: Shape) -> list[tuple[tuple[int, ...], tuple[int, ...]]] | None:
    """Runs of old axes and runs of new axes of equal size, one of the two a single axis."""
    pairs: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    old = [a for a, d in enumerate(before) if d != 1]
    new = [a for a, d in enumerate(after) if d != 1]
    i = j = 0
    while i < len(old) and j < len(new):
        options = [(1, n) for n in range(1, len(new) - j + 1)]
        options += [(n, 1) for n in range(2, len(old) - i + 1)]
        for m, n in options:
            left, right = old[i : i + m], new[j : j + n]
            if product(before[a] for a in left) == product(after[a] for a in right):
                pairs.append((tuple(left), tuple(right)))
                i, j = i + m, j + n
                break
        else:
            return None
    if i < len(old) or j < len(new):
        return None
    return [*pairs, *(((a,), ()) for a, d in enumerate(before) if d == 1)]


def aligned(layout: Layout, rank: int, operand_rank: int) -> Layout:
    """The layout in which an operand of lower rank meets `layout` under right-aligned broadcasting.

    >>> aligned(lead(2), 2, 1)
    (('G',), (), (0,))
    """
    shift = rank - operand_rank
    return renumber(layout, {i: i - shift for i in range(shift, rank)})


def lay(array: Array, layout: Layout, bulk: Bulk) -> Array | None:
    """Bring a constant into a layout so that it broadcasts against a bundle of shape `bulk`.

    Args:
        array: Shape [G or 1, *dims], dims as many as the bundle's rank, each full or 1.
        layout: The bundle's layout.
        bulk: The bundle's sizes.

    Returns:
        The array with one axis per physical axis; None if an axis shared with others would have to be
        widened to a size that is not known.
    """
    position = {LANE: 0} | {i: i + 1 for i in range(len(bulk.shape))}
    widened = list(array.shape)
    spare = spare_axis(layout)
    if spare is not None and any(
        array.shape[position[a]] != 1 for a in layout[spare] if a != SPARE
    ):
        return None
    layout = without_spare(layout)
    for axis in layout:
        sizes = [array.shape[position[a]] for a in axis]
        if any(s != 1 for s in sizes):
            for atom in axis:
                dim = bulk.dim(atom)
                if widened[position[atom]] == dim:
                    continue
                if not isinstance(dim, int):
                    return None
                widened[position[atom]] = dim
    order = [position[a] for axis in layout for a in axis]
    order += [p for p in range(array.ndim) if p not in order]  # of size 1
    moved = np.broadcast_to(array, widened).transpose(order)
    shape, k = [], 0
    for axis in layout:
        size = 1
        for _ in axis:
            size *= moved.shape[k]
            k += 1
        shape.append(size)
    return moved.reshape(shape)
