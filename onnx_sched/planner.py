"""Decide what to do: the best level function, the groups that can be made, the regions that pay."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from onnx_sched import levels
from onnx_sched.analysis import Analysis
from onnx_sched.circuit import Circuit, Unit
from onnx_sched.find import Finder, is_heavy, reductions, regions
from onnx_sched.passes.rewrite import GroupRefused, Rewritten, rewrite
from onnx_sched.passes.rules import rule_for
from onnx_sched.plan import Group, Plan, Refusal
from onnx_sched.refusals import explain, inside
from onnx_sched.signature import signature

Skip = Callable[[Unit], bool]


@dataclass(frozen=True, slots=True)
class Decided:
    """A plan, and the graph that it makes; None if there is nothing to do."""

    plan: Plan
    rewritten: Rewritten | None


def decide(analysis: Analysis, skip: Skip) -> Decided:
    """Plan everything that is legal."""
    circuit = analysis.circuit
    level, groups = best_groups(circuit, skip)
    refusals: list[Refusal] = []
    rewritten: Rewritten | None = None
    while groups:
        plan = Plan(groups, reductions(circuit, groups))
        try:
            rewritten = rewrite(circuit, plan, analysis.names, analysis.known)
            break
        except GroupRefused as error:
            labels = circuit.labels(error.group.units)
            refusals.append(
                Refusal(error.refused.code, f"{error.group.kind}: {error.refused.reason}", labels)
            )
            groups = regions([g for g in groups if g is not error.group])
    refusals += explain(circuit, level, groups, skip)
    refusals += inside(circuit)
    plan = Plan(groups, reductions(circuit, groups), tuple(refusals))
    return Decided(plan, rewritten if groups else None)


def best_groups(circuit: Circuit, skip: Skip) -> tuple[tuple[int, ...], tuple[Group, ...]]:
    """The level function under which the fewest nodes are left, and its groups."""
    heavy = [is_heavy(u) for u in circuit.units]
    best: tuple[tuple[int, ...], tuple[Group, ...]] | None = None
    options = (
        levels.foata(circuit.preds),
        levels.heavy_depth(circuit.preds, heavy),
        levels.agenda(circuit.preds, _signatures(circuit)),
    )
    for level in options:
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
