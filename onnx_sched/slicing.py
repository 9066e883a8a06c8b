"""Which entries of which axes a Slice takes (pure): axes that it leaves whole do not count.

Exporters spell `x[:, a:b]` with a range for every axis; that of a whole axis ends at the largest number.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from onnx_sched.dims import Dim, Shape, own

WHOLE = 2**31 - 1
"""What stands for the end of an axis of unknown size; ONNX recommends INT_MAX of 32 or of 64 bits."""


class Cut(NamedTuple):
    """The entries of one axis: from `start` to before `end`, as a Slice counts them."""

    axis: int
    start: int
    end: int
    step: int


Numbers = Sequence[Dim] | None
"""Bounds as far as they are known: None where they are computed."""


def cuts(
    shape: Shape, operands: Sequence[Numbers], attributes: Mapping[str, Hashable], opset: int
) -> tuple[Cut, ...] | None:
    """The axes of which a Slice surely or maybe leaves something out, in order; None if not all is known.

    Args:
        shape: Of what it reads.
        operands: Its starts, ends, axes and steps, as far as it has them; before opset 10 it has none.
        attributes: Those of the node.
        opset: Of the model.

    >>> cuts(("N", 8), [(0, 2), (2**31 - 1, 4)], {}, 17)
    (Cut(axis=1, start=2, end=4, step=1),)
    >>> cuts(("N", 8), [(0, 2), ("N", 4)], {}, 17)
    (Cut(axis=1, start=2, end=4, step=1),)
    """
    given: list[Numbers] = [*operands, (), (), (), ()][:4]
    if opset < 10:
        named = [attributes.get(name, ()) for name in ("starts", "ends", "axes")]
        given = [*(n if isinstance(n, tuple) else () for n in named), ()]
    starts, ends, axes, steps = given
    if not starts or not ends or axes is None or steps is None:
        return None
    where, by = axes or range(len(starts)), steps or (1,) * len(starts)
    if not len(starts) == len(ends) == len(where) == len(by):
        return None
    found = []
    for axis, start, end, step in zip(where, starts, ends, by, strict=True):
        if isinstance(end, str) and isinstance(axis, int) and isinstance(step, int) and step > 0:
            rank = len(shape)  # up to the size of the axis itself: up to its end
            end = WHOLE if -rank <= axis < rank and end == shape[axis] else end
        if not isinstance(axis, int) or not isinstance(start, int) or not isinstance(end, int):
            return None
        if not isinstance(step, int) or step == 0 or not -len(shape) <= axis < len(shape):
            return None
        found.append(Cut(axis % len(shape), start, end, step))
    if len({cut.axis for cut in found}) < len(found):
        return None
    return tuple(sorted(cut for cut in found if not _keeps(cut, shape[cut.axis])))


def sliced(shape: Shape, found: Sequence[Cut], otherwise: Shape) -> Shape:
    """The shape that results: an open size stays where its axis does; equal cuts of one make equal sizes.

    >>> sliced(("N", 8), cuts(("N", 8), [(0, 2), (2**31 - 1, 4)], {}, 17), ("?", 2))
    ('N', 2)
    >>> sliced(("N", 8), cuts(("N", 8), [(0, 2), ("N", 4)], {}, 17), ("?", "?"))
    ('N', 2)
    """
    by_axis = {cut.axis: cut for cut in found}
    sizes: list[Dim] = []
    for axis, (size, known) in enumerate(zip(shape, otherwise, strict=True)):
        cut = by_axis.get(axis)
        if isinstance(known, int):
            sizes.append(known)
        elif cut is None:
            sizes.append(size)
        elif isinstance(size, int):
            there = range(size)[cut.start : cut.end : cut.step] if cut.step > 0 else None
            sizes.append(known if there is None else len(there))
        else:
            sizes.append(own(f"{size}[{cut.start}:{cut.end}:{cut.step}]"))
    return tuple(sizes)


def _keeps(cut: Cut, size: Dim) -> bool:
    """Whether an axis surely stays whole."""
    if cut.step != 1:
        return False
    if isinstance(size, int):
        return slice(cut.start, cut.end).indices(size)[:2] == (0, size)
    return cut.start == 0 and cut.end >= WHOLE
