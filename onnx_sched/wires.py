"""Wires: the threads of dataflow on which ops wait for each other.

A graph is given as `preds`: for each op the ops that it reads, where the ops are numbered 0..n-1 in
some topological order. A wire system is given as `supports`: for each op the wires that it touches.
It is faithful when "earlier on a shared wire, step by step" says exactly what reachability says: no
more (parallel readers stay parallel), no less (nothing runs too early).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise

from onnx_sched.errors import SchedError

Wire = int
Support = tuple[Wire, ...]
Preds = Sequence[Sequence[int]]


def checked(preds: Preds) -> tuple[tuple[int, ...], ...]:
    """Return the predecessors of each op sorted and without repetition.

    Raises:
        SchedError: If an op reads itself, a later op or an op that does not exist.
    """
    rows: list[tuple[int, ...]] = []
    for op, before in enumerate(preds):
        row = tuple(before) if len(before) < 2 else tuple(sorted(set(before)))
        if row and (row[0] < 0 or row[-1] >= op):
            wrong = row[0] if row[0] < 0 else row[-1]
            raise SchedError(
                f"op {op} of {len(preds)} reads op {wrong}, which does not come before it",
                hint="number the ops 0, 1, 2, ... in a topological order",
            )
        rows.append(row)
    return tuple(rows)


def transitive_reduction(preds: Preds) -> tuple[tuple[int, ...], ...]:
    """Drop every edge that a longer path implies: `p -> x` where `p` reaches another read of `x`.

    A descendant is nearer than its ancestors, so taking the predecessors nearest first, `p` is
    implied exactly if it is an ancestor of one that was kept. Ancestors are bits of an integer.
    Only an op about which that question can still be asked has a bit, and bits are handed out
    again: the integers are as wide as the graph is tangled (skips open at one time), not as it is
    long. An integer is dropped after the last reader of its op.

    Args:
        preds: The ops that each op reads, in any order, repetitions allowed.

    Returns:
        For each op the remaining predecessors, ascending.

    Raises:
        SchedError: If the ops are not numbered in a topological order.
    """
    dag = checked(preds)
    count = len(dag)
    first_read, last_read, last_asked = [count] * count, [-1] * count, [-1] * count
    for op, before in enumerate(dag):
        for pred in before:
            first_read[pred] = min(first_read[pred], op)
            last_read[pred] = op
        for pred in before[:-1]:
            last_asked[pred] = op

    reduced: list[tuple[int, ...]] = []
    above: dict[int, int] = {}  # op -> bits of itself and its ancestors, until its last reader
    slot: dict[int, int] = {}  # op -> its bit, until the last op that asks for it
    free: list[int] = []
    retired: list[int] = []  # slots out of use, whose bits still stand in `above`
    width = 0
    for op, before in enumerate(dag):
        seen = above[before[-1]] if before else 0
        kept = list(before[-1:])
        for pred in before[-2::-1]:
            if not (pred in slot and seen >> slot[pred] & 1):
                kept.append(pred)
                seen |= above[pred]
        reduced.append(before if len(kept) == len(before) else tuple(reversed(kept)))

        for pred in before:
            if last_asked[pred] == op and pred in slot:
                retired.append(slot.pop(pred))
            if last_read[pred] == op:
                del above[pred]
        # At its first reader an op cannot be anyone else's ancestor yet: no bit for plain forks.
        if first_read[op] < last_asked[op]:
            if not free:
                free.append(width)
                width += 1
            slot[op] = free.pop()
            seen |= 1 << slot[op]
        if last_read[op] >= 0:
            above[op] = seen
        # Waiting for more retired slots than integers to clean keeps the cleaning linear.
        if len(retired) > 64 + len(above):
            stale = sum(1 << used for used in retired)
            keep = (1 << width) - 1 ^ stale
            for live, bits in above.items():
                above[live] = bits & keep
            free.extend(sorted(retired, reverse=True))
            retired.clear()
    return tuple(reduced)


def lanes(preds: Preds) -> tuple[Support, ...]:
    """Cover the graph with paths, so that branch g of a fork is branch g of the next fork again.

    In topological order, an op carries the lanes of its reduced in-edges, opens fresh ones while it
    has fewer than out-edges (at least one), and hands them block-wise to its readers in op order.
    Every lane is a path of the transitive reduction and every edge of it has a lane: faithful.
    A lane goes on until an op without readers, so that a trunk carries all lanes that joined it. The
    cost is the sum of all supports: linear for blocks of branches, quadratic for a recurrence
    unrolled over many steps, each of which brings a lane of its own.

    Args:
        preds: The ops that each op reads.

    Returns:
        For each op its lanes, ascending, at least one. Lanes are numbered 0, 1, ... as they open.

    Raises:
        SchedError: If the ops are not numbered in a topological order.
    """
    reduced = transitive_reduction(preds)
    readers = [0] * len(reduced)
    for before in reduced:
        for pred in before:
            readers[pred] += 1
    served = [0] * len(reduced)
    supports: list[Support] = []
    opened = 0
    for op, before in enumerate(reduced):
        blocks: list[Support] = []
        for pred in before:
            held, shares, turn = supports[pred], readers[pred], served[pred]
            served[pred] = turn + 1
            start, stop = turn * len(held) // shares, (turn + 1) * len(held) // shares
            blocks.append(held[start:stop])
        carried = blocks[0] if len(blocks) == 1 else tuple(sorted(chain.from_iterable(blocks)))
        missing = max(1, readers[op]) - len(carried)
        if missing > 0:
            carried += tuple(range(opened, opened + missing))
            opened += missing
        supports.append(carried)
    return tuple(supports)


def words(supports: Sequence[Support]) -> tuple[tuple[int, ...], ...]:
    """Return for each wire the ops that touch it, in op order; wires that none touches are empty.

    Raises:
        SchedError: If a wire is negative or an op names a wire twice.
    """
    touched: list[list[int]] = [
        [] for _ in range(1 + max(map(max, filter(None, supports)), default=-1))
    ]
    for op, wires in enumerate(supports):
        if wires and min(wires) < 0:
            raise SchedError(f"op {op} names wire {min(wires)}: wires are numbered from 0")
        if len(set(wires)) < len(wires):
            raise SchedError(f"op {op} names a wire twice: {wires}")
        for wire in wires:
            touched[wire].append(op)
    return tuple(map(tuple, touched))


def neighbours(supports: Sequence[Support]) -> tuple[tuple[int, ...], ...]:
    """Return for each op the ops just before it on its wires: the waiting that the wires impose.

    Raises:
        SchedError: If a wire is negative or an op names a wire twice.
    """
    before: list[set[int]] = [set() for _ in supports]
    for word in words(supports):
        for earlier, later in pairwise(word):
            before[later].add(earlier)
    return tuple(tuple(sorted(ops)) for ops in before)


def is_faithful(preds: Preds, supports: Sequence[Support]) -> bool:
    """Say whether the wires impose exactly the order of the graph, no more and no less.

    Every edge of the transitive reduction shares a wire, and neighbours on a wire are comparable in
    the graph, if and only if the graph and the neighbour relation of the wires have one and the
    same transitive closure, that is one and the same transitive reduction.

    Raises:
        SchedError: If the numbers of ops differ, or they are not in a topological order.
    """
    if len(preds) != len(supports):
        raise SchedError(f"{len(preds)} ops have predecessors, but {len(supports)} have supports")
    return transitive_reduction(neighbours(supports)) == transitive_reduction(preds)
