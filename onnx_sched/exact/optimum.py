"""The optimum, component by component."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from time import monotonic
from typing import Any, Literal

from onnx_sched.errors import SchedError
from onnx_sched.exact.parts import Part, components
from onnx_sched.exact.search import Task, search
from onnx_sched.exact.solver import cp_sat, solve
from onnx_sched.levels import is_level_function
from onnx_sched.wires import Preds, checked

OPS = 20_000
"""Larger graphs keep the hint: sets of ops are bits of integers, one for each op."""

STEPS_A_SECOND, WORK_A_SECOND = 10_000, 0.03
"""What one second of the limit is worth, in batches tried and in CP-SAT's own units: a quarter of what a
machine of 2024 does in it, so that hardly ever the clock, which no two runs share, ends anything."""

Stopped = Literal["", "time", "clock", "size"]


@dataclass(frozen=True, slots=True)
class Exact:
    """The best level function found.

    Attributes:
        levels: By op: its level; strictly grows along every edge.
        cost: The weighted launches that it leaves.
        bound: No level function leaves less.
        stopped: Why there is no proof: "time" if the limit's work was done, "clock" if the limit itself
            came first (another run may end elsewhere), "size" if the graph is too large; "" if there is one.
    """

    levels: tuple[int, ...]
    cost: int
    bound: int
    stopped: Stopped = ""

    @property
    def proven(self) -> bool:
        """Whether this is the optimum."""
        return self.cost == self.bound


def exact(
    preds: Preds,
    signatures: Sequence[Hashable],
    weights: Sequence[int],
    hint: Sequence[int],
    seconds: float,
) -> Exact:
    """Return the level function whose distinct pairs of level and signature weigh the least.

    The hint comes back as it is unless something cheaper is found.  The levels found are the longest
    paths of the graph of batches, so that they depend only on which ops share a batch.  The answer is
    the same in every run: the limit is counted in work, and the clock is only asked to make sure.

    Args:
        preds: The ops that each op reads.
        signatures: For each op what it must have in common with the ops that it is batched with.
        weights: For each op what a launch of its signature costs; with 0 it may stand anywhere.
        hint: The best level function known.
        seconds: The time limit; none is used at 0 or below.

    Raises:
        SchedError: If numbers of ops differ, they are not in a topological order, the hint is no
            level function, or weights are negative or differ within a signature.
        UsageError: If OR-tools is not installed.
    """
    cp_model = cp_sat()
    deadline = monotonic() + seconds
    dag = checked(preds)
    prices = _prices(dag, signatures, weights, hint)
    cost, least = _cost(hint, signatures, prices), sum(prices.values())
    if cost == least:
        return Exact(tuple(hint), cost, least)
    if seconds <= 0 or len(dag) > OPS:
        return Exact(tuple(hint), cost, least, "time" if seconds <= 0 else "size")
    fixed, parts = components(dag, signatures, weights)
    tasks: dict[Part, Task] = {}
    for ops, part in parts:
        if part not in tasks:
            tasks[part] = Task(part)
        tasks[part].start([hint[op] for op in ops])
    stopped = _settle(cp_model, list(tasks.values()), seconds, deadline)
    bound = fixed + sum(tasks[part].bound for _, part in parts)
    if fixed + sum(tasks[part].cost for _, part in parts) == cost:
        return Exact(tuple(hint), cost, bound, stopped)
    levels = _assembled(dag, [(ops, tasks[part].levels) for ops, part in parts])
    cost = _cost(levels, signatures, prices)  # batches that wait for the same may have become one
    return Exact(levels, cost, bound, stopped if bound < cost else "")


def _settle(cp_model: Any, tasks: Sequence[Task], seconds: float, deadline: float) -> Stopped:
    """Find the optimum of every component, as far as the limit allows; say what is in the way."""
    search([task for task in tasks if task.open], int(seconds * STEPS_A_SECOND), deadline)
    still = sorted((task for task in tasks if task.open), key=lambda t: len(t.part.kinds))
    work, small = seconds * WORK_A_SECOND, True
    for n, task in enumerate(still):
        done, fits = solve(cp_model, task, work / (len(still) - n), deadline)
        work, small = max(0.0, work - done), small and fits
    if not any(task.open for task in tasks):
        return ""
    if monotonic() > deadline:
        return "clock"
    return "time" if small else "size"


def _prices(
    dag: Preds, signatures: Sequence[Hashable], weights: Sequence[int], hint: Sequence[int]
) -> dict[Hashable, int]:
    """The weight of each signature, once everything that was given is seen to fit together."""
    for given, what in ((signatures, "a signature"), (weights, "a weight")):
        if len(given) != len(dag):
            raise SchedError(f"{len(given)} of {len(dag)} ops have {what}")
    if not is_level_function(hint, dag):
        raise SchedError("the hint does not grow along every edge")
    prices: dict[Hashable, int] = {}
    for op, (signature, weight) in enumerate(zip(signatures, weights, strict=True)):
        if weight < 0:
            raise SchedError(f"op {op} has the negative weight {weight}")
        if prices.setdefault(signature, weight) != weight:
            raise SchedError(f"op {op} has another weight than the first op of its signature")
    return prices


def _cost(
    levels: Sequence[int], signatures: Sequence[Hashable], prices: Mapping[Hashable, int]
) -> int:
    return sum(prices[sign] for _, sign in set(zip(levels, signatures, strict=True)))


def _assembled(dag: Preds, found: Sequence[tuple[Sequence[int], Sequence[int]]]) -> tuple[int, ...]:
    """The longest paths of the graph of batches, given as the ops and levels of each component."""
    batch: list[Hashable] = list(range(len(dag)))
    for n, (ops, levels) in enumerate(found):
        for op, level in zip(ops, levels, strict=True):
            batch[op] = (n, level)
    waits: dict[Hashable, set[Hashable]] = {}
    for op, before in enumerate(dag):
        waits.setdefault(batch[op], set()).update(batch[pred] for pred in before)
    place: dict[Hashable, int] = {}
    for node in TopologicalSorter(waits).static_order():
        place[node] = 1 + max((place[other] for other in waits[node]), default=-1)
    return tuple(place[node] for node in batch)
