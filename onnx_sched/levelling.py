"""Choose the level function: the one under which the fewest nodes are left."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from onnx_sched import levels
from onnx_sched.circuit import Circuit, Unit
from onnx_sched.exact.optimum import exact
from onnx_sched.find import Finder, is_heavy
from onnx_sched.likeness import likeness
from onnx_sched.passes.rules import rule_for
from onnx_sched.plan import Group, Launches, Optimum
from onnx_sched.signature import signature

Skip = Callable[[Unit], bool]


def best_groups(circuit: Circuit, skip: Skip) -> tuple[tuple[int, ...], tuple[Group, ...]]:
    """The level function under which the fewest nodes are left, and its groups."""
    heavy = [is_heavy(u) for u in circuit.units]
    best: tuple[tuple[int, ...], tuple[Group, ...]] | None = None
    signs = _signatures(circuit)
    first = levels.foata(circuit.preds)
    others = (levels.heavy_depth(circuit.preds, heavy), levels.agenda(circuit.preds, signs))
    fewest = levels.launches(first, signs)
    for level in (first, *(o for o in others if levels.launches(o, signs) < fewest)):
        groups = Finder(circuit, level, skip).run()
        if best is None or saved(groups) > saved(best[1]):
            best = (level, groups)
    assert best is not None
    return best


def saved(groups: Sequence[Group]) -> tuple[int, int]:
    """Heavy units and units that groups save."""
    heavy = sum(g.size - 1 for g in groups if is_heavy(g.units[0]))
    return heavy, sum(g.size - 1 for g in groups)


def _signatures(circuit: Circuit) -> list[Hashable]:
    """By unit: what it is like; units that nothing can be batched with are like no other."""
    found: list[Hashable] = []
    for unit in circuit.units:
        rule = rule_for(unit)
        sign = None
        if rule is not None:
            sign = signature(unit, circuit, rule.static, rule.optional, rule.spread)
        found.append(sign if sign is not None else ("alone", unit.number))
    return found


def exact_level(
    circuit: Circuit, skip: Skip, hint: Sequence[int], seconds: float
) -> tuple[tuple[int, ...], Optimum]:
    """The level function that leaves the fewest launches, heavy ones counted first.

    What `saved` is measured by, with one difference: units of one level that are alike count as one
    launch here, and may still be parted by where their operands come from.

    Args:
        circuit: The graph.
        skip: Which units stay as they are: each is a launch of its own.
        hint: The best level function known.
        seconds: The time limit of the search.

    Raises:
        UsageError: If OR-tools is not installed.
    """
    signs: list[Hashable] = []
    for unit in circuit.units:
        sign = None if skip(unit) else likeness(circuit, unit)
        signs.append(sign if sign is not None else ("alone", unit.number))
    heavy = [is_heavy(unit) for unit in circuit.units]
    weight = 1 + heavy.count(False)  # of a heavy launch: more than all light ones together
    found = exact(circuit.preds, signs, [weight if h else 1 for h in heavy], hint, seconds)
    pairs = set(zip(hint, signs, heavy, strict=True))
    before = sum(h for _, _, h in pairs)
    return found.levels, Optimum(
        before=Launches(before, len(pairs) - before),
        cost=Launches(*divmod(found.cost, weight)),
        bound=Launches(*divmod(found.bound, weight)),
        stopped=found.stopped,
    )
