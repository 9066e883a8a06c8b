"""Level functions: numbers that strictly grow along every dependency.

Ops of one level are never in each other's past, and more: contracting any family of groups, each
inside one level of one common level function, keeps the graph acyclic, since the level grows along
every remaining edge. Independence of the members of each group alone does not do that. The
functions here differ in how many launches they leave, one for each signature in each level: `foata`
has the fewest levels, the others bring alike ops together across branches of unequal length.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from heapq import heappop, heappush

from onnx_sched.errors import SchedError
from onnx_sched.wires import Preds, checked


def foata(preds: Preds) -> tuple[int, ...]:
    """Return level(x) = 1 + max level of the predecessors: as soon as possible, counted from 0.

    Raises:
        SchedError: If the ops are not numbered in a topological order.
    """
    levels: list[int] = []
    for before in checked(preds):
        levels.append(1 + max((levels[pred] for pred in before), default=-1))
    return tuple(levels)


def heavy_depth(preds: Preds, heavy: Sequence[bool]) -> tuple[int, ...]:
    """Level by (most heavy ops on any path up to and with x, steps since the last of them).

    With (H, t) the largest pair of a predecessor, in lexicographic order, x has (H + 1, 0) if it is
    heavy and (H, t + 1) if not. Both are larger than (H, t), so that the level strictly grows. An
    op before all heavy ones counts its steps from the start. Branches with unequal numbers of light
    ops meet again at their next heavy op.

    Args:
        preds: The ops that each op reads.
        heavy: For each op whether it is one whose batching pays (MatMul, Gemm, Conv).

    Returns:
        The ranks of the pairs: 0, 1, 2, ... without gaps.

    Raises:
        SchedError: If the numbers of ops differ, or they are not in a topological order.
    """
    dag = checked(preds)
    _same_length(len(dag), len(heavy), "a flag for heavy")
    pairs: list[tuple[int, int]] = []
    for before, is_heavy in zip(dag, heavy, strict=True):
        heavies, steps = max((pairs[pred] for pred in before), default=(0, -1))
        pairs.append((heavies + 1, 0) if is_heavy else (heavies, steps + 1))
    rank = {pair: place for place, pair in enumerate(sorted(set(pairs)))}
    return tuple(rank[pair] for pair in pairs)


def agenda(preds: Preds, signatures: Sequence[Hashable]) -> tuple[int, ...]:
    """Level by batches: run all ready ops of one signature at a time, shallowest signature first.

    The signature run next is the one, among those with ready ops, whose ops that have not yet run
    have the least mean depth (`foata`); of equals, the one that the op order names first. Only
    running a batch changes the mean of its signature, so that a heap never holds an outdated one:
    O(E + V log V).

    Source: agenda-based batching in DyNet, arXiv 1705.07860.

    Args:
        preds: The ops that each op reads.
        signatures: For each op what it must have in common with the ops that it is batched with.

    Returns:
        For each op the number of its batch; every batch is a level of its own.

    Raises:
        SchedError: If the numbers of ops differ, or they are not in a topological order.
    """
    dag = checked(preds)
    _same_length(len(dag), len(signatures), "a signature")
    number: dict[Hashable, int] = {}
    kind = [number.setdefault(signature, len(number)) for signature in signatures]
    depth = foata(dag)
    depth_left, ops_left = [0] * len(number), [0] * len(number)
    readers: list[list[int]] = [[] for _ in dag]
    for op, before in enumerate(dag):
        depth_left[kind[op]] += depth[op]
        ops_left[kind[op]] += 1
        for pred in before:
            readers[pred].append(op)

    waits = [len(before) for before in dag]
    ready: list[list[int]] = [[] for _ in number]
    heap: list[tuple[float, int]] = []

    def release(op: int) -> None:
        group = kind[op]
        if not ready[group]:
            heappush(heap, (depth_left[group] / ops_left[group], group))
        ready[group].append(op)

    for op, count in enumerate(waits):
        if not count:
            release(op)
    levels = [0] * len(dag)
    batches = 0
    while heap:
        _, group = heappop(heap)
        batch, ready[group] = ready[group], []
        ops_left[group] -= len(batch)
        depth_left[group] -= sum(depth[op] for op in batch)
        for op in batch:
            levels[op] = batches
            for reader in readers[op]:
                waits[reader] -= 1
                if not waits[reader]:
                    release(reader)
        batches += 1
    return tuple(levels)


def is_level_function(levels: Sequence[int], preds: Preds) -> bool:
    """Say whether the levels strictly grow along every edge.

    Raises:
        SchedError: If the numbers of ops differ, or they are not in a topological order.
    """
    dag = checked(preds)
    _same_length(len(dag), len(levels), "a level")
    return all(levels[pred] < levels[op] for op, before in enumerate(dag) for pred in before)


def launches(levels: Sequence[int], signatures: Sequence[Hashable]) -> int:
    """Count the batches that the levels leave: distinct pairs of level and signature.

    Raises:
        SchedError: If the numbers of ops differ.
    """
    _same_length(len(levels), len(signatures), "a signature")
    return len(set(zip(levels, signatures, strict=True)))


def quotient_is_acyclic(preds: Preds, groups: Iterable[Iterable[int]]) -> bool:
    """Say whether the graph stays acyclic when each group becomes one op.

    Ops outside all groups stay as they are. An edge inside a group is a cycle: the batched op would
    read its own result.

    Raises:
        SchedError: If an op does not exist or stands in two groups or twice in one, or the ops are
            not in a topological order.
    """
    dag = checked(preds)
    into: dict[int, int] = {}
    for group, members in enumerate(groups, start=len(dag)):
        for op in members:
            if not 0 <= op < len(dag):
                raise SchedError(f"a group names op {op}, but the ops are 0 to {len(dag) - 1}")
            if op in into:
                raise SchedError(f"op {op} stands in two groups, or twice in one")
            into[op] = group
    edges = {
        (into.get(pred, pred), into.get(op, op)) for op, before in enumerate(dag) for pred in before
    }
    readers: dict[int, list[int]] = {}
    waits: dict[int, int] = {}
    for source, target in edges:
        readers.setdefault(source, []).append(target)
        waits[target] = waits.get(target, 0) + 1
    ready = [source for source in readers if source not in waits]
    while ready:
        for target in readers.get(ready.pop(), ()):
            waits[target] -= 1
            if not waits[target]:
                del waits[target]
                ready.append(target)
    return not waits


def _same_length(ops: int, given: int, what: str) -> None:
    if ops != given:
        raise SchedError(f"{given} of {ops} ops have {what}")
