"""Ask CP-SAT, the constraint solver of OR-tools, for anything cheaper, or for a proof."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from time import monotonic
from typing import Any

from onnx_sched.errors import UsageError
from onnx_sched.exact.parts import nearest
from onnx_sched.exact.search import Task

CHOICES = 40_000
"""Components with more pairs of an op and a batch that it could be in are too large for CP-SAT."""


def cp_sat() -> Any:
    """The solver's module; it takes most of a second to load, and only `--exact` needs it.

    Raises:
        UsageError: If OR-tools is not installed.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise UsageError(
            "--exact needs OR-tools, which is not installed", "pip install 'onnx-sched[exact]'"
        ) from None
    return cp_model


def solve(cp_model: Any, task: Task, work: float, deadline: float) -> tuple[float, bool]:
    """Look for anything cheaper than the best levels of a component, or prove that there is nothing.

    Args:
        cp_model: The solver's module.
        task: The component; it takes what is found.
        work: The limit, in the solver's own deterministic units: one worker and one seed stop at the
            same place in every run, which no clock does.
        deadline: Time (of `time.monotonic`) at which it ends in any case.

    Returns:
        The work done, and whether the component was small enough to ask about.
    """
    prices = task.part.prices
    slack = task.cost - task.bound - 1
    model = cp_model.CpModel()
    rows = zip(prices, task.tables.members, task.tables.rungs, strict=True)
    added = [
        _steps(model, min(slack // price, members.bit_count() - len(rungs)))
        for price, members, rungs in rows
    ]
    places = _ordered(model, task, added)
    if places is None:
        return 0.0, False
    more = sum(price * step for price, row in zip(prices, added, strict=True) for step in row)
    model.add(more <= slack)
    model.minimize(more)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.linearization_level = 0  # positions say nothing to a linear relaxation
    solver.parameters.cp_model_presolve = False  # its work is not counted, and it finds little here
    solver.parameters.max_deterministic_time = work
    solver.parameters.max_time_in_seconds = max(0.0, deadline - monotonic())
    _take(cp_model, task, places, solver, solver.solve(model))
    return float(solver.deterministic_time), True


def _take(cp_model: Any, task: Task, places: Sequence[Any], solver: Any, status: Any) -> None:
    """Take what the solver found, and what it proved."""
    base = task.bound
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        task.start([solver.value(place) for place in places])
    if status in (cp_model.OPTIMAL, cp_model.INFEASIBLE):
        task.bound = task.cost
    elif status != cp_model.MODEL_INVALID:
        proved = math.ceil(max(0.0, solver.best_objective_bound) - 1e-6)
        task.bound = min(task.cost, base + proved)


def _ordered(model: Any, task: Task, added: Sequence[Sequence[Any]]) -> list[Any] | None:
    """Say of every op which batch it may be in, and where that stands; return the places.

    The batches of a kind are in order: as many as its longest chain, and the added ones.  An op leaves
    room for the longest chains of its kind before and after it.  One order of all batches in which
    every op stands after what it waits for makes the whole acyclic.

    Returns:
        By op: its place in that order; None if there are too many choices.
    """
    part, tables = task.part, task.tables
    counts = [len(r) + len(more) for r, more in zip(tables.rungs, added, strict=True)]
    room = [
        counts[kind] - 1 - tables.depth[op] - tables.height[op]
        for op, kind in enumerate(part.kinds)
    ]
    if sum(room) > CHOICES:
        return None
    last = sum(counts) - 1
    batches = [[model.new_int_var(0, last, "") for _ in range(count)] for count in counts]
    for row in batches:
        for one, other in pairwise(row):
            model.add(one < other)
    later: list[list[Any]] = []  # by op and n: it is in a batch after batch depth + n of its kind
    places: list[Any] = []
    for op, kind in enumerate(part.kinds):
        first, steps = tables.depth[op], _steps(model, room[op])
        if added[kind]:
            for step, more in zip(steps[-len(added[kind]) :], added[kind], strict=True):
                model.add_implication(step, more)
        for pred in nearest(tables.above[op] & tables.members[kind], tables.above):
            skip = first - tables.depth[pred] - 1
            for step, forced in zip(later[pred][skip:], steps, strict=False):
                model.add_implication(step, forced)
        later.append(steps)
        places.append(_place(model, batches[kind][first : first + room[op] + 1], steps, last))
        for pred in part.preds[op]:
            if part.kinds[pred] != kind:
                model.add(places[pred] < places[op])
    return places


def _steps(model: Any, count: int) -> list[Any]:
    """Truths of which each implies the one before it."""
    steps = [model.new_bool_var("") for _ in range(count)]
    for one, other in pairwise(steps):
        model.add_implication(other, one)
    return steps


def _place(model: Any, row: Sequence[Any], steps: Sequence[Any], last: int) -> Any:
    """The place of the batch in a row that comes after as many batches as steps are true."""
    if not steps:
        return row[0]
    place = model.new_int_var(0, last, "")
    model.add(row[0] <= place)
    model.add(place <= row[-1])
    for one, other, step in zip(row, row[1:], steps, strict=False):
        model.add(other <= place).only_enforce_if(step)
        model.add(place <= one).only_enforce_if(~step)
    return place
