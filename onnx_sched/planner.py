"""Decide what to do: the best level function, the groups that can be made, the regions that pay."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from onnx_sched import levels
from onnx_sched.analysis import Analysis
from onnx_sched.circuit import Circuit, Unit
from onnx_sched.cost import Device
from onnx_sched.find import Finder, heavy_regions, is_heavy, reductions, regions
from onnx_sched.passes.rewrite import GroupRefused, Rewritten, rewrite
from onnx_sched.passes.rules import rule_for
from onnx_sched.payoff import idle_regions, unpaid
from onnx_sched.plan import Group, Plan, Refusal
from onnx_sched.refusals import explain, inside
from onnx_sched.signature import signature

Skip = Callable[[Unit], bool]


@dataclass(frozen=True, slots=True)
class Decided:
    """A plan, and the graph that it makes; None if there is nothing to do."""

    plan: Plan
    rewritten: Rewritten | None


def decide(analysis: Analysis, skip: Skip, device: Device | None) -> Decided:
    """Plan everything that is legal, or what of it pays on a device.

    Args:
        analysis: The model.
        skip: Which units must stay as they are.
        device: For whom it must pay; None to take all that is legal.
    """
    circuit = analysis.circuit
    level, groups = best_groups(circuit, skip)
    refusals: list[Refusal] = []
    rewritten, groups = _made(analysis, groups, refusals)
    if rewritten is not None:
        idle = idle_regions(analysis, groups, rewritten)
        if idle:
            left = [g for g in groups if g.region not in idle]
            rewritten, groups = _made(analysis, regions(left), refusals)
    if device is not None and rewritten is not None:
        dear = unpaid(analysis, groups, rewritten, device)
        if dear:
            refusals += [_too_dear(circuit, groups, region, why) for region, why in dear.items()]
            left = [g for g in groups if g.region not in dear]
            rewritten, groups = _made(analysis, regions(left), refusals)
    refused = {n for r in refusals for n in r.nodes}
    for refusal in (*explain(circuit, level, groups, skip), *inside(circuit)):
        names = tuple(n for n in refusal.nodes if n not in refused)
        if names:
            refusals.append(Refusal(refusal.code, refusal.reason, names))
    return Decided(Plan(groups, reductions(circuit, groups), tuple(refusals)), rewritten)


def _made(
    analysis: Analysis, groups: tuple[Group, ...], refusals: list[Refusal]
) -> tuple[Rewritten | None, tuple[Group, ...]]:
    """Rewrite; a group that turns out to be impossible is left out, and the reason noted."""
    circuit = analysis.circuit
    while groups:
        plan = Plan(groups, reductions(circuit, groups))
        try:
            return rewrite(circuit, plan, analysis.names, analysis.known), groups
        except GroupRefused as error:
            gone = groups[error.group]
            if gone.region in heavy_regions(groups):
                reason = f"{gone.kind}: {error.refused.reason}"
                refusals.append(Refusal(error.refused.code, reason, circuit.labels(gone.units)))
            groups = regions([g for g in groups if g is not gone])
    return None, groups


def _too_dear(circuit: Circuit, groups: Sequence[Group], region: int, why: str) -> Refusal:
    heavy = [u for g in groups if g.region == region and is_heavy(g.units[0]) for u in g.units]
    return Refusal("S303", f"would not pay: {why}", circuit.labels(heavy))


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
