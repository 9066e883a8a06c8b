"""Facts about a component that the search and the solver look up again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onnx_sched.exact.parts import Part, above_of


@dataclass(frozen=True, slots=True)
class Tables:
    """Facts about a component; sets of ops are bits of integers.

    Attributes:
        above, below: By op: all ops before it and after it.
        needs: By op: the ops that it waits for.
        readers: By op: the ops that wait for it.
        members: By kind: its ops.
        depth, height: By op: the ops of its kind before it and after it on a longest chain of them.
        rungs: By kind and height: the ops.
    """

    above: list[int]
    below: list[int]
    needs: list[int]
    readers: list[list[int]]
    members: list[int]
    depth: list[int]
    height: list[int]
    rungs: list[list[int]]


def tables_of(part: Part) -> Tables:
    """The tables of a component."""
    ops = range(len(part.kinds))
    readers: list[list[int]] = [[] for _ in ops]
    for op, before in enumerate(part.preds):
        for pred in before:
            readers[pred].append(op)
    above, below = above_of(part.preds, ops), [0 for _ in ops]
    for op in reversed(ops):
        for reader in readers[op]:
            below[op] |= below[reader] | 1 << reader
    members = [0 for _ in part.prices]
    for op, kind in enumerate(part.kinds):
        members[kind] |= 1 << op
    depth, _ = _rungs(part, ops, above)
    height, rungs = _rungs(part, ops[::-1], below)
    needs = [sum(1 << pred for pred in before) for before in part.preds]
    return Tables(above, below, needs, readers, members, depth, height, rungs)


def _rungs(
    part: Part, order: Sequence[int], related: Sequence[int]
) -> tuple[list[int], list[list[int]]]:
    """How many ops of its kind stand on a chain to each op; the ops by kind and that number.

    An op related to one on a rung is related to one on every lower rung.
    """
    place = [0] * len(part.kinds)
    rungs: list[list[int]] = [[] for _ in part.prices]
    for op in order:
        own = rungs[part.kinds[op]]
        rung = len(own)
        while rung and not related[op] & own[rung - 1]:
            rung -= 1
        if rung == len(own):
            own.append(0)
        own[rung] |= 1 << op
        place[op] = rung
    return place, rungs


def bits(ops: int) -> Iterator[int]:
    """The ops of a set, ascending."""
    while ops:
        low = ops & -ops
        ops ^= low
        yield low.bit_length() - 1
