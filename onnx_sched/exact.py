"""The level function that leaves the fewest launches, with a proof where time allows.

Running batch after batch, it never hurts to let a batch take along every ready op of its signature: an
op that has run can only make others ready.  So a plan is a word of signatures, and what is left to do
depends only on the set of ops that have run.  Three facts make the optimum near at hand on real graphs:

- Ops of one signature on one path are in different batches: the longest such chain of each signature
  is a lower bound, at the start and after every batch.
- Where all earlier ops of a signature precede all later ones, the two sides never share a batch: they
  are told apart.  What is then alone costs its weight wherever it stands.
- Let ops depend on each other both ways if they have one signature.  Strongly connected components of
  that graph share no batch and do not wait for each other in a circle: each is a problem of its own.

A component is searched batch by batch with the chain bound, keeping a limited number of sets; if none
was dropped, the search is a proof.  What stays open goes to CP-SAT, which looks for anything cheaper than
the best found: that leaves each op few batches that it can be in.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from time import monotonic
from typing import Any, NamedTuple

from onnx_sched.errors import SchedError, UsageError
from onnx_sched.levels import agenda, foata, is_level_function
from onnx_sched.wires import Preds, checked

OPS = 20_000
"""Larger graphs keep the hint: sets of ops are bits of integers, one for each op."""

STEPS = 150_000
"""Batches that the search tries in all, some ten microseconds each; it has no clock, to be repeatable."""

CHOICES = 40_000
"""Components with more pairs of an op and a batch that it could be in are too large for CP-SAT."""

_WIDTHS = (8, 64, 512, 4096)


@dataclass(frozen=True, slots=True)
class Exact:
    """The best level function found.

    Attributes:
        levels: By op: its level; strictly grows along every edge.
        cost: The weighted launches that it leaves.
        bound: No level function leaves less.
    """

    levels: tuple[int, ...]
    cost: int
    bound: int

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
    *,
    workers: int = 1,
) -> Exact:
    """Return the level function whose distinct pairs of level and signature weigh the least.

    The hint comes back as it is unless something cheaper is found.  The levels found are the longest
    paths of the graph of batches, so that they depend only on which ops share a batch.  With one
    worker a proven answer is the same in every run.  Without a proof the time limit decides what is
    found; with more workers so does chance, among equally cheap answers.

    Args:
        preds: The ops that each op reads.
        signatures: For each op what it must have in common with the ops that it is batched with.
        weights: For each op what a launch of its signature costs; with 0 it may stand anywhere.
        hint: The best level function known.
        seconds: The time limit; none is used at 0 or below.
        workers: The threads of CP-SAT.

    Raises:
        SchedError: If numbers of ops differ, they are not in a topological order, the hint is no
            level function, or weights are negative or differ within a signature.
        UsageError: If OR-tools is not installed.
    """
    cp_model = _cp_model()
    deadline = monotonic() + seconds
    dag = checked(preds)
    prices = _prices(dag, signatures, weights, hint)
    cost = _cost(hint, signatures, prices)
    least = sum(prices.values())
    if seconds <= 0 or len(dag) > OPS or cost == least:
        return Exact(tuple(hint), cost, least)
    fixed, parts = _parts(dag, signatures, weights)
    tasks: dict[_Part, _Task] = {}
    for ops, part in parts:
        tasks.setdefault(part, _Task(part)).start([hint[op] for op in ops])
    _search_all([task for task in tasks.values() if task.open], deadline)
    still = sorted((task for task in tasks.values() if task.open), key=lambda t: len(t.part.kinds))
    for n, task in enumerate(still):
        share = max(0.0, deadline - monotonic()) / (len(still) - n)
        _solve(cp_model, task, monotonic() + share, workers)
    bound = fixed + sum(tasks[part].bound for _, part in parts)
    if fixed + sum(tasks[part].cost for _, part in parts) == cost:
        return Exact(tuple(hint), cost, bound)
    levels = _assembled(dag, [(ops, tasks[part].levels) for ops, part in parts])
    return Exact(levels, _cost(levels, signatures, prices), bound)


def _cp_model() -> Any:
    """The module of OR-tools; it takes a second to load, and only this needs it."""
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise UsageError("--exact needs OR-tools", "pip install 'onnx-sched[exact]'") from None
    return cp_model


def _prices(
    dag: Preds, signatures: Sequence[Hashable], weights: Sequence[int], hint: Sequence[int]
) -> dict[Hashable, int]:
    """The weight of each signature."""
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


def _assembled(
    dag: Preds, found: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> tuple[int, ...]:
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
