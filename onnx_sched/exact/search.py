"""Search a component batch by batch, from ever more sets of ops that have run."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple

from onnx_sched.exact.parts import Part
from onnx_sched.exact.tables import Tables, bits, tables_of
from onnx_sched.levels import agenda, foata

OPS_A_STEP = 500
"""A batch of a component with as many ops more takes twice the time: it counts as one step more."""

_WIDTHS = (8, 64, 512, 4096)
"""Sets of ops kept after every batch, try by try."""


class Task:
    """A component with the best levels found and the bound proved so far."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.tables = tables_of(part)
        self.bound = sum(len(r) * p for r, p in zip(self.tables.rungs, part.prices, strict=True))
        self.levels: Sequence[int] = ()
        self.cost = sum(part.prices[kind] for kind in part.kinds) + 1
        self.start(agenda(part.preds, part.kinds))
        self.start(foata(part.preds))

    @property
    def open(self) -> bool:
        """Whether the optimum is not known."""
        return self.bound < self.cost

    def start(self, levels: Sequence[int]) -> None:
        """Take levels if they are the best so far."""
        pairs = set(zip(levels, self.part.kinds, strict=True))
        cost = sum(self.part.prices[kind] for _, kind in pairs)
        if cost < self.cost:
            self.levels, self.cost = levels, cost


class _State(NamedTuple):
    """A set of ops that have run.

    Attributes:
        least: What the batches cost so far, and by the chain bound what is left.
        done, ready: The ops that have run; those that have not, but could.
        left: By kind: the longest chain of ops that have not run.
        trail: The batches, as the last one and those before it.
    """

    least: int
    done: int
    ready: int
    left: tuple[int, ...]
    trail: _Trail


_Trail = tuple["_Trail", int] | None


def search(tasks: Sequence[Task], steps: int, deadline: float) -> None:
    """Search every component, ever wider, as far as the steps are likely to last.

    Args:
        tasks: The components.
        steps: Batches to try in all, those of large components counted more than once.  This, not the
            clock, is what should end the search: it is the same in every run.
        deadline: Time (of `time.monotonic`) at which it ends in any case.
    """
    spent = dict.fromkeys(tasks, 0)
    for width in _WIDTHS:
        for task in tasks:
            if task.open and 4 * spent[task] < steps:
                spent[task] = _search(task, width, steps, deadline)
                steps -= spent[task]


def _search(task: Task, width: int, steps: int, deadline: float) -> int:
    """Run batch after batch from up to `width` sets of ops that have run, those of the least bound.

    If no other set was dropped than those that cannot be cheaper than the best, that one is optimal.

    Returns:
        The steps taken.
    """
    part, tables = task.part, task.tables
    price = 1 + len(part.kinds) // OPS_A_STEP
    ready = sum(1 << op for op, before in enumerate(part.preds) if not before)
    states = [_State(task.bound, 0, ready, tuple(map(len, tables.rungs)), None)]
    taken, complete = 0, True
    while states:
        new, count = _further(task, states)
        taken += count * price
        if taken > steps or monotonic() > deadline:
            return taken
        states = [state for state in new if state.least < task.cost]
        if len(states) > width:
            complete = False
            states.sort(key=lambda s: (s.least, -s.done.bit_count()))
            del states[width:]
    if complete:
        task.bound = task.cost
    return taken


def _further(task: Task, states: Sequence[_State]) -> tuple[list[_State], int]:
    """The sets of ops one batch further, those that may lead to anything cheaper; the batches tried."""
    part, tables = task.part, task.tables
    everything = (1 << len(part.kinds)) - 1
    new: dict[int, _State] = {}
    tried = 0
    for state in states:
        for kind, batch in _moves(tables, state):
            tried += 1
            done, left = state.done | batch, state.left[kind]
            while left and not tables.rungs[kind][left - 1] & ~done:
                left -= 1
            least = state.least + part.prices[kind] * (1 - state.left[kind] + left)
            if least >= task.cost or (done in new and new[done].least <= least):
                continue
            trail = (state.trail, batch)
            if done == everything:
                task.start(_levels(trail, len(part.kinds)))
                continue
            lefts = (*state.left[:kind], left, *state.left[kind + 1 :])
            new[done] = _State(least, done, _ready(tables, state, batch), lefts, trail)
    return list(new.values()), tried


def _moves(tables: Tables, state: _State) -> list[tuple[int, int]]:
    """The batches that may come next: all ready ops of one kind each.

    If all others of its kind that are left come after one op of a batch, none can ever join that op:
    the batch may as well be next, and need not be compared with anything.
    """
    moves: list[tuple[int, int]] = []
    for kind, members in enumerate(tables.members):
        batch = state.ready & members
        if batch:
            others = members & ~state.done & ~batch
            if not others or any(not others & ~tables.below[op] for op in bits(batch)):
                return [(kind, batch)]
            moves.append((kind, batch))
    return moves


def _ready(tables: Tables, state: _State, batch: int) -> int:
    """The ops that are ready after a batch."""
    ready, done = state.ready ^ batch, state.done | batch
    for op in bits(batch):
        for reader in tables.readers[op]:
            if not tables.needs[reader] & ~done:
                ready |= 1 << reader
    return ready


def _levels(trail: _Trail, count: int) -> list[int]:
    """The batches of a trail as levels."""
    batches: list[int] = []
    while trail is not None:
        trail, batch = trail
        batches.append(batch)
    levels = [0] * count
    for n, batch in enumerate(reversed(batches)):
        for op in bits(batch):
            levels[op] = n
    return levels
