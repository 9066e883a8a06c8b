"""How one layout becomes another, by the fewest nodes (pure).

Every change of layout is at most Reshape, Transpose, Reshape, each of which may turn out to be a Squeeze,
an Unsqueeze or nothing; `steps` finds the fewest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from onnx_sched.dims import Shape, own, product
from onnx_sched.stacking import LANE, SPARE, Atom, Axis, Bulk, Layout, spare_axis, without_spare


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

    >>> from onnx_sched.stacking import lead, packed
    >>> steps(Bulk(4, ("B", 8)), packed(2, 1), lead(2))
    (Reshape(target=(0, 4, 8)), Transpose(perm=(1, 0, 2)))
    >>> steps(Bulk(4, (1, 8)), packed(2, 1), lead(2))
    (Reshape(target=(4, 1, 8)),)
    """
    if source == target:
        return ()
    spare, room = spare_axis(source), spare_axis(target)
    if spare is not None and room is not None and _as_one(bulk, source[spare], target[room]):
        return steps(_with_spare(bulk, source[spare]), without_spare(source), without_spare(target))
    if spare is not None:
        rest = steps(bulk, without_spare(source), target)
        found = None if rest is None else (Crop(spare), *rest)
        return _turned_first(bulk, source, target, found) if _is_image(source) else found
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


def _turned_first(
    bulk: Bulk, source: Layout, target: Layout, otherwise: tuple[Step, ...] | None
) -> tuple[Step, ...] | None:
    """Out of an image, channels last before its spare pixel goes, unless another way takes fewer nodes."""
    last: Layout = ((), (), *without_spare((source[3],)), source[1])
    rest = steps(bulk, last, target)
    turned = None if rest is None else (Transpose((0, 2, 3, 1)), Crop(2), *rest)
    ways = [way for way in (turned, otherwise) if way is not None]
    return min(ways, key=effort, default=None)


def _moves(bulk: Bulk, source: Layout, target: Layout) -> tuple[list[Axis], list[int]]:
    """The pieces that a Transpose moves whole, in their order before it, and its perm.

    Axes of size 1 of the source, or else of the target, take part where that saves a Reshape; each
    stays beside the piece that it precedes, so that few axes seem to move.  Into an image and out of
    one, the Transpose is that from and to channels last, [1, 1, rows, channels]: a runtime may take it
    into the reordering that its convolutions need anyway.
    """
    want = bulk.core(target)
    have = bulk.core(source)
    aims = [tuple(a for a in axis if bulk.dim(a) != 1) for axis in target]
    direct = all(not aim or _stands_in(aim, have) for aim in aims)
    cut = _chunks(bulk, source, want)
    if all(len(chunks) <= 1 for chunks in cut) and not (direct and _is_image(target)):
        pieces = [chunks[0] if chunks else () for chunks in cut]
        order = _preceding(pieces, lambda piece: want.index(piece[0]))
        return pieces, order
    if direct:
        back = _preceding(aims, lambda aim: have.index(aim[0]))
        return [aims[k] for k in back], [back.index(k) for k in range(len(aims))]
    pieces = [chunk for chunks in cut for chunk in chunks]
    return pieces, sorted(range(len(pieces)), key=lambda k: want.index(pieces[k][0]))


def _is_image(layout: Layout) -> bool:
    """Whether a layout is that of one image with features as channels: `stacking.columns`."""
    return len(layout) == 4 and not layout[0] and LANE in layout[1] and not layout[2]


def _stands_in(part: Axis, whole: Sequence[Atom]) -> bool:
    """Whether the atoms stand side by side, in this order."""
    start = whole.index(part[0])
    return tuple(whole[start : start + len(part)]) == part


def _preceding(pieces: Sequence[Axis], place: Callable[[Axis], int]) -> list[int]:
    """The pieces sorted by their place; an empty one goes with the next, in front and at the end it stays."""
    keys: list[tuple[int, int]] = []
    for k, piece in enumerate(pieces):
        after = next((p for p in pieces[k:] if p), None)
        before = any(pieces[:k]) or bool(piece)
        keys.append((-1 if not before else len(pieces) if after is None else place(after), k))
    return sorted(range(len(pieces)), key=lambda k: keys[k])


def _as_one(bulk: Bulk, axis: Axis, other: Axis) -> bool:
    """Whether two axes with a spare entry hold the same in the same order: it need not go and come."""
    if axis == (SPARE,) or LANE in axis or set(axis) != set(other):
        return False
    return [a for a in axis if bulk.dim(a) != 1] == [a for a in other if bulk.dim(a) != 1]


def _with_spare(bulk: Bulk, axis: Axis) -> Bulk:
    """Sizes in which the atoms of one axis, and its spare entry, are one atom."""
    atoms = [a for a in axis if isinstance(a, int)]
    longer = own(f"{product(bulk.shape[a] for a in atoms)}+1")
    shape = [1 if a in atoms[1:] else d for a, d in enumerate(bulk.shape)]
    shape[atoms[0]] = longer
    return Bulk(bulk.lanes, tuple(shape), bulk.nonempty, bulk.given)


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
