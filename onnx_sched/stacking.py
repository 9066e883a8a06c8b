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

Every change of layout is at most Reshape, Transpose, Reshape; `steps` finds the fewest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from onnx_sched.constants import Array
from onnx_sched.dims import Dim, Shape, own, product

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


def rows(rank: int) -> Layout:
    """Features of all lanes side by side as channels of one-pixel images: [B, G*K, 1, 1]."""
    return (tuple(range(rank - 1)), (LANE, rank - 1), (), ())


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


@dataclass(frozen=True, slots=True)
class Reshape:
    """Reshape to `target`, in ONNX's terms: 0 copies a size, -1 takes the rest."""

    target: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shaped:
    """Reshape to a shape that takes sizes from graph inputs at run time."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class Transpose:
    """Transpose by `perm`."""

    perm: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unsqueeze:
    """Put in axes of size 1; `axes` count in the result."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Squeeze:
    """Take out axes of size 1."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Crop:
    """Drop the last entry of an axis."""

    axis: int


@dataclass(frozen=True, slots=True)
class Extend:
    """Add one entry, zero, at the end of an axis of a tensor of the given rank."""

    axis: int
    rank: int


Step = Reshape | Shaped | Transpose | Unsqueeze | Squeeze | Crop | Extend


def effort(route: Sequence[Step]) -> int:
    """About how many nodes a change of layout takes."""
    return sum(3 if isinstance(step, Shaped) else 1 for step in route)


def reshape_target(before: Shape, after: Shape, nonempty: bool = False) -> tuple[int, ...] | None:
    """The operand of a Reshape between two shapes of equal size; None if it would need run-time sizes.

    A size that is copied may be 0, and then says nothing about one that is left to be worked out.

    >>> reshape_target(("B", "S", 12), ("B", "S", 4, 3))
    (0, 0, 4, 3)
    >>> reshape_target((4, "B", 3), ("4*B", 3))
    (-1, 3)
    """
    if 0 in before or 0 in after:
        return None  # a zero in the target means "copy"
    target = []
    for axis, dim in enumerate(after):
        if isinstance(dim, int):
            target.append(dim)
        elif axis < len(before) and before[axis] == dim:
            target.append(0)
        else:
            target.append(-1)
    if target.count(-1) > 1 or (-1 in target and 0 in target and not nonempty):
        return None
    return tuple(target)


def steps(bulk: Bulk, source: Layout, target: Layout) -> tuple[Step, ...] | None:
    """The fewest nodes that change a layout; None if sizes known only at run time would be needed.

    >>> steps(Bulk(4, ("B", 8)), packed(2, 1), lead(2))
    (Reshape(target=(0, 4, 8)), Transpose(perm=(1, 0, 2)))
    >>> steps(Bulk(4, (1, 8)), packed(2, 1), lead(2))
    (Reshape(target=(4, 1, 8)),)
    """
    if source == target:
        return ()
    spare, room = spare_axis(source), spare_axis(target)
    if spare is not None and room is not None and _as_one(source[spare], target[room]):
        return steps(_with_spare(bulk, source[spare]), without_spare(source), without_spare(target))
    if spare is not None:
        rest = steps(bulk, without_spare(source), target)
        return None if rest is None else (Crop(spare), *rest)
    if room is not None:
        rest = steps(bulk, source, without_spare(target))
        return None if rest is None else (*rest, Extend(room, len(target)))
    before, after = bulk.physical(source), bulk.physical(target)
    have, want = bulk.core(source), bulk.core(target)
    if have == want:
        if before == after:
            return ()
        alone = _resize(before, after, bulk)
        if alone is not None:
            return alone
    direct = _permutation(bulk, source, target)
    if direct is not None:
        return (Transpose(direct),)
    pieces, order = _moves(bulk, source, target)
    middle = tuple(product(bulk.dim(a) for a in piece) for piece in pieces)
    moved = tuple(middle[k] for k in order)
    first = () if before == middle else _resize(before, middle, bulk)
    last = () if moved == after else _resize(moved, after, bulk)
    if first is None or last is None:
        return None
    return (*first, Transpose(tuple(order)), *last) if order != sorted(order) else (*first, *last)


def _moves(bulk: Bulk, source: Layout, target: Layout) -> tuple[list[Axis], list[int]]:
    """The pieces that a Transpose moves whole, in their order before it, and its perm.

    Axes of size 1 of the source, or else of the target, take part where that saves a Reshape; each
    stays beside the piece that it follows, so that few axes seem to move.
    """
    want = bulk.core(target)
    cut = _chunks(bulk, source, want)
    if all(len(chunks) <= 1 for chunks in cut):
        pieces = [chunks[0] if chunks else () for chunks in cut]
        order = _following(pieces, lambda piece: want.index(piece[0]))
        return pieces, order
    have = bulk.core(source)
    aims = [tuple(a for a in axis if bulk.dim(a) != 1) for axis in target]
    if all(not aim or _stands_in(aim, have) for aim in aims):
        back = _following(aims, lambda aim: have.index(aim[0]))
        return [aims[k] for k in back], [back.index(k) for k in range(len(aims))]
    pieces = [chunk for chunks in cut for chunk in chunks]
    return pieces, sorted(range(len(pieces)), key=lambda k: want.index(pieces[k][0]))


def _stands_in(part: Axis, whole: Sequence[Atom]) -> bool:
    """Whether the atoms stand side by side, in this order."""
    start = whole.index(part[0])
    return tuple(whole[start : start + len(part)]) == part


def _following(pieces: Sequence[Axis], place: Callable[[Axis], int]) -> list[int]:
    """The pieces sorted by their place, where an empty one follows the one before it."""
    keys: list[tuple[int, int]] = []
    for k, piece in enumerate(pieces):
        keys.append((place(piece) if piece else keys[-1][0] if keys else -1, k))
    return sorted(range(len(pieces)), key=lambda k: keys[k])


def _as_one(axis: Axis, other: Axis) -> bool:
    """Whether two axes with a spare entry hold the same, so that it need not go and come."""
    return axis != (SPARE,) and LANE not in axis and set(axis) == set(other)


def _with_spare(bulk: Bulk, axis: Axis) -> Bulk:
    """Sizes in which the atoms of one axis, and its spare entry, are one atom."""
    atoms = [a for a in axis if isinstance(a, int)]
    longer = own(f"{product(bulk.shape[a] for a in atoms)}+1")
    shape = [1 if a in atoms[1:] else d for a, d in enumerate(bulk.shape)]
    shape[atoms[0]] = longer
    return Bulk(bulk.lanes, tuple(shape), bulk.nonempty, bulk.given)


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


def _resize(before: Shape, after: Shape, bulk: Bulk) -> tuple[Step, ...] | None:
    """The nodes between two shapes of equal elements in equal order, by the plainest ops; one mostly."""
    if len(before) < len(after):
        added = _unit_axes(before, after)
        if added is not None:
            return (Unsqueeze(added),)
    if len(before) > len(after):
        removed = _unit_axes(after, before)
        if removed is not None:
            return (Squeeze(removed),)
    target = reshape_target(before, after, bulk.nonempty)
    if target is not None:
        return (Reshape(target),)
    core = tuple(d for d in before if d != 1)
    if core == tuple(d for d in after if d != 1):
        added, removed = _unit_axes(core, after), _unit_axes(core, before)
        assert added is not None
        assert removed is not None
        return Squeeze(removed), Unsqueeze(added)
    had = 0 not in after and all(isinstance(d, int) or d in bulk.given for d in after)
    return (Shaped(after),) if had else None


def _unit_axes(short: Shape, long: Shape) -> tuple[int, ...] | None:
    """The axes of size 1 that `long` has and `short` has not; None if more differs."""
    axes, k = [], 0
    for axis, dim in enumerate(long):
        if k < len(short) and short[k] == dim:
            k += 1
        elif dim == 1:
            axes.append(axis)
        else:
            return None
    return tuple(axes) if k == len(short) else None


def _permutation(bulk: Bulk, source: Layout, target: Layout) -> tuple[int, ...] | None:
    """The perm that alone turns one layout into the other, if there is one."""
    have = [tuple(a for a in axis if bulk.dim(a) != 1) for axis in source]
    want = [tuple(a for a in axis if bulk.dim(a) != 1) for axis in target]
    if len(have) != len(want):
        return None
    free = list(range(len(have)))
    perm = []
    for axis in want:
        k = next((k for k in free if have[k] == axis), None)
        if k is None:
            return None
        free.remove(k)
        perm.append(k)
    return tuple(perm)


def _chunks(bulk: Bulk, source: Layout, want: Sequence[Atom]) -> list[list[Axis]]:
    """The pieces of each of the source's axes that can be moved whole."""
    after = dict(pairwise(want))
    found: list[list[Axis]] = []
    for axis in source:
        chunks: list[Axis] = []
        chunk: list[Atom] = []
        for atom in axis:
            if bulk.dim(atom) == 1:
                continue
            if chunk and after.get(chunk[-1]) != atom:
                chunks.append(tuple(chunk))
                chunk = []
            chunk.append(atom)
        if chunk:
            chunks.append(tuple(chunk))
        found.append(chunks)
    return found


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
