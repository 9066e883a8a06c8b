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
from itertools import pairwise
from time import monotonic
from typing import Any, NamedTuple

from onnx_sched.errors import SchedError, UsageError
from onnx_sched.levels import agenda, foata, is_level_function
from onnx_sched.wires import Preds, checked

OPS = 20_000
"""Larger graphs keep the hint: sets of ops are bits of integers, one for each op."""

STEPS = 300_000
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


@dataclass(frozen=True, slots=True)
class _Part:
    """A component: ops numbered 0..n-1, what each waits for at least, kinds numbered 0..k-1.

    Attributes:
        preds: By op: the covering relation, without what longer paths imply.
        kinds: By op: what it can share a batch with.
        prices: By kind: what a batch costs.
    """

    preds: tuple[tuple[int, ...], ...]
    kinds: tuple[int, ...]
    prices: tuple[int, ...]


def _parts(
    dag: Preds, signatures: Sequence[Hashable], weights: Sequence[int]
) -> tuple[int, list[tuple[list[int], _Part]]]:
    """What alone ops cost, and the components with their ops."""
    often = Counter(signatures)
    ops = [op for op, sign in enumerate(signatures) if weights[op] and often[sign] > 1]
    kinds = _split([signatures[op] for op in ops], _above(dag, ops))
    alike = Counter(kinds)
    kept = [(op, kind) for op, kind in zip(ops, kinds, strict=True) if alike[kind] > 1]
    ops, kinds = [op for op, _ in kept], [kind for _, kind in kept]
    batched = set(ops)
    fixed = sum(weight for op, weight in enumerate(weights) if op not in batched)
    above = _above(dag, ops)
    covers = [_nearest(mask, above) for mask in above]
    after: dict[int, set[int]] = {kind: set() for kind in kinds}
    for kind, before in zip(kinds, covers, strict=True):
        for pred in before:
            after[kinds[pred]].add(kind)
    number = {kind: n for n, knot in enumerate(_knots(after)) for kind in knot}
    inside: dict[int, list[int]] = {}
    for place, kind in enumerate(kinds):
        inside.setdefault(number[kind], []).append(place)
    parts: list[tuple[list[int], _Part]] = []
    for places in inside.values():
        at = {place: n for n, place in enumerate(places)}
        new: dict[int, int] = {}
        part = _Part(
            tuple(tuple(at[p] for p in sorted(covers[place]) if p in at) for place in places),
            tuple(new.setdefault(kinds[place], len(new)) for place in places),
            tuple({kinds[place]: weights[ops[place]] for place in places}.values()),
        )
        parts.append(([ops[place] for place in places], part))
    return fixed, parts


def _above(dag: Preds, ops: Sequence[int]) -> list[int]:
    """For each of some ops the set of those among them that precede it, as bits in their order."""
    bit = {op: 1 << n for n, op in enumerate(ops)}
    before: list[int] = []
    for preds in dag:
        mask = 0
        for pred in preds:
            mask |= before[pred] | bit.get(pred, 0)
        before.append(mask)
    return [before[op] for op in ops]


def _nearest(mask: int, above: Sequence[int]) -> list[int]:
    """The ops of a set that precede no other of it; the highest one left never does."""
    found: list[int] = []
    while mask:
        top = mask.bit_length() - 1
        found.append(top)
        mask &= ~(above[top] | 1 << top)
    return found


def _split(signatures: Sequence[Hashable], above: Sequence[int]) -> list[int]:
    """Tell apart ops of one signature where all earlier ones precede all later ones.

    Returns:
        For each op the first op of its kind.
    """
    members: dict[Hashable, list[int]] = {}
    for op, signature in enumerate(signatures):
        members.setdefault(signature, []).append(op)
    kinds = [0] * len(signatures)
    for ops in members.values():
        earlier, reach = 0, []
        for op in ops:
            beside = earlier & ~above[op]
            reach.append((beside & -beside).bit_length() - 1 if beside else op)
            earlier |= 1 << op
        kind, lowest = [], len(above)
        for op, low in zip(reversed(ops), reversed(reach), strict=True):
            kind.append(op)
            lowest = min(lowest, low)
            if lowest == op:
                for member in kind:
                    kinds[member] = op
                kind = []
    return kinds


def _knots(after: Mapping[int, set[int]]) -> list[list[int]]:
    """Strongly connected components, by Kosaraju's two walks."""
    back: dict[int, set[int]] = {node: set() for node in after}
    for node, others in after.items():
        for other in others:
            back[other].add(node)
    seen: set[int] = set()
    order = [node for start in after for node in _walk(start, after, seen)]
    seen = set()
    return [knot for start in reversed(order) if (knot := _walk(start, back, seen))]


def _walk(start: int, links: Mapping[int, set[int]], seen: set[int]) -> list[int]:
    """The nodes not yet seen that a node reaches, each after those that it leads to."""
    if start in seen:
        return []
    seen.add(start)
    stack, left = [(start, iter(links[start]))], []
    while stack:
        _, rest = stack[-1]
        for other in rest:
            if other not in seen:
                seen.add(other)
                stack.append((other, iter(links[other])))
                break
        else:
            left.append(stack.pop()[0])
    return left


@dataclass(frozen=True, slots=True)
class _Tables:
    """What the searches look up about a component; sets of ops are bits.

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


def _tables(part: _Part) -> _Tables:
    ops = range(len(part.kinds))
    readers: list[list[int]] = [[] for _ in ops]
    for op, before in enumerate(part.preds):
        for pred in before:
            readers[pred].append(op)
    above, below = _above(part.preds, ops), [0 for _ in ops]
    for op in reversed(ops):
        for reader in readers[op]:
            below[op] |= below[reader] | 1 << reader
    members = [0 for _ in part.prices]
    for op, kind in enumerate(part.kinds):
        members[kind] |= 1 << op
    depth, _ = _rungs(part, ops, above)
    height, rungs = _rungs(part, ops[::-1], below)
    needs = [sum(1 << pred for pred in before) for before in part.preds]
    return _Tables(above, below, needs, readers, members, depth, height, rungs)


def _rungs(
    part: _Part, order: Sequence[int], related: Sequence[int]
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


class _Task:
    """A component with the best levels found and the bound proved so far."""

    def __init__(self, part: _Part) -> None:
        self.part = part
        self.tables = _tables(part)
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
        cost = _cost(levels, self.part.kinds, dict(enumerate(self.part.prices)))
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


def _search_all(tasks: Sequence[_Task], deadline: float) -> None:
    """Search every component, ever wider, as far as the steps are likely to last."""
    left = STEPS
    spent = dict.fromkeys(tasks, 0)
    for width in _WIDTHS:
        for task in tasks:
            if task.open and 4 * spent[task] < left:
                spent[task] = _search(task, width, left, deadline)
                left -= spent[task]


def _search(task: _Task, width: int, steps: int, deadline: float) -> int:
    """Run batch after batch from up to `width` sets of ops that have run, those of the least bound.

    If no other set was dropped than those that cannot be cheaper than the best, that one is optimal.

    Returns:
        The batches tried.
    """
    part, tables = task.part, task.tables
    everything = (1 << len(part.kinds)) - 1
    ready = sum(1 << op for op, before in enumerate(part.preds) if not before)
    states = [_State(task.bound, 0, ready, tuple(map(len, tables.rungs)), None)]
    tried, complete = 0, True
    while states:
        new: dict[int, _State] = {}
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
        if tried > steps or monotonic() > deadline:
            return tried
        states = [state for state in new.values() if state.least < task.cost]
        if len(states) > width:
            complete = False
            states.sort(key=lambda s: (s.least, -s.done.bit_count()))
            del states[width:]
    if complete:
        task.bound = task.cost
    return tried


def _moves(tables: _Tables, state: _State) -> list[tuple[int, int]]:
    """The batches that may come next: all ready ops of one kind each.

    If all others of its kind that are left come after every op of a batch, none can join it later:
    it may as well be next, and need not be compared with anything.
    """
    moves: list[tuple[int, int]] = []
    for kind, members in enumerate(tables.members):
        batch = state.ready & members
        if batch:
            others = members & ~state.done & ~batch
            if all(not others & ~tables.below[op] for op in _bits(batch if others else 0)):
                return [(kind, batch)]
            moves.append((kind, batch))
    return moves


def _ready(tables: _Tables, state: _State, batch: int) -> int:
    """The ops that are ready after a batch."""
    ready, done = state.ready ^ batch, state.done | batch
    for op in _bits(batch):
        for reader in tables.readers[op]:
            if not tables.needs[reader] & ~done:
                ready |= 1 << reader
    return ready


def _bits(ops: int) -> Iterator[int]:
    while ops:
        low = ops & -ops
        ops ^= low
        yield low.bit_length() - 1


def _levels(trail: _Trail, count: int) -> list[int]:
    """The batches of a trail as levels."""
    batches: list[int] = []
    while trail is not None:
        trail, batch = trail
        batches.append(batch)
    levels = [0] * count
    for n, batch in enumerate(reversed(batches)):
        for op in _bits(batch):
            levels[op] = n
    return levels


def _solve(cp_model: Any, task: _Task, deadline: float, workers: int) -> None:
    """Ask CP-SAT for anything cheaper than the best levels of a component, or for a proof."""
    slack = task.cost - task.bound - 1
    sizes = [members.bit_count() for members in task.tables.members]
    chains = [len(rungs) for rungs in task.tables.rungs]
    prices = task.part.prices
    extra = [
        min(slack // price, size - chain)
        for price, size, chain in zip(prices, sizes, chains, strict=True)
    ]
    model = cp_model.CpModel()
    added = [_steps(model, more) for more in extra]
    places = _ordered(model, task, added, deadline)
    if places is None:
        return
    more = sum(price * step for price, row in zip(prices, added, strict=True) for step in row)
    model.add(more <= slack)
    model.minimize(more)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = 0
    solver.parameters.linearization_level = 0  # positions say nothing to a linear relaxation
    solver.parameters.max_time_in_seconds = max(0.0, deadline - monotonic())
    status = solver.solve(model)
    base = task.bound
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        task.start([solver.value(place) for place in places])
    if status in (cp_model.OPTIMAL, cp_model.INFEASIBLE):
        task.bound = task.cost
    elif status != cp_model.MODEL_INVALID:
        proved = math.ceil(max(0.0, solver.best_objective_bound) - 1e-6)
        task.bound = min(task.cost, base + proved)


def _ordered(
    model: Any, task: _Task, added: Sequence[Sequence[Any]], deadline: float
) -> list[Any] | None:
    """Say of every op which batch it may be in, and where that stands; return the places.

    The batches of a kind are in order: as many as its longest chain, and the added ones.  An op leaves
    room for the longest chains of its kind before and after it.  One order of all batches in which
    every op stands after what it waits for makes the whole acyclic.

    Returns:
        By op: its place in that order; None if the model is too large or time is over.
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
        if monotonic() > deadline:
            return None
        first, steps = tables.depth[op], _steps(model, room[op])
        if added[kind]:
            for step, more in zip(steps[-len(added[kind]) :], added[kind], strict=True):
                model.add_implication(step, more)
        for pred in _nearest(tables.above[op] & tables.members[kind], tables.above):
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
