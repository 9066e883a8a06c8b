"""Decide what to do: the best level function, the groups that can be made, the regions that pay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from onnx_sched.analysis import Analysis
from onnx_sched.bodies import Body, bodies
from onnx_sched.choose import Chooser
from onnx_sched.circuit import Circuit
from onnx_sched.cost import Device
from onnx_sched.find import Finder, heavy_regions, is_heavy, regions
from onnx_sched.levelling import Skip, best_groups, exact_level, saved
from onnx_sched.passes.rewrite import GroupRefused, Rewritten, rewrite
from onnx_sched.payoff import idle_regions
from onnx_sched.plan import Group, Optimum, Plan, Refusal, merged
from onnx_sched.progress import Step
from onnx_sched.refusals import called, explain
from onnx_sched.sums import reductions, settled
from onnx_sched.variants import Modeller


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan, and what it makes.

    Attributes:
        plan: What is decided.
        rewritten: The new graph; None if there is nothing to do.
        bodies: The bodies in which something is done, with their new graphs.
    """

    plan: Plan
    rewritten: Rewritten | None
    bodies: tuple[tuple[Body, Rewritten], ...] = ()


def modelled_plan(
    analysis: Analysis, skip: Skip, device: Device | None, seconds: float | None = None
) -> Draft:
    """Plan what the cost model says pays on a device, or all that is legal.

    Args:
        analysis: The model.
        skip: Which units must stay as they are.
        device: For whom it must pay; None to take all that is legal.
        seconds: The time limit of an exact search for levels; None for none.
    """
    found = sought(analysis, skip, seconds)
    groups, refusals = found.groups, list(found.refusals)
    if device is not None:
        kept: list[Group] = []
        modeller = Modeller(analysis, device)
        for region in region_numbers(groups):
            members = of_region(groups, region)
            variant, why = modeller.decide(members)
            kept += variant
            refusals += left_apart(analysis, members, variant)
            if not variant:
                refusals += refuse(analysis, members, "S303", f"would not pay: {why}")
        groups = regions(kept)
    return _draft(analysis, skip, found, groups, refusals)


def measured_plan(
    analysis: Analysis, skip: Skip, chooser: Chooser, seconds: float | None = None
) -> Draft:
    """Plan what a race on the target says is faster, region by region.

    Args:
        analysis: The model.
        skip: Which units must stay as they are.
        chooser: Who holds the races.
        seconds: The time limit of an exact search for levels; None for none.
    """
    found = sought(analysis, skip, seconds)
    groups, refusals = found.groups, list(found.refusals)
    kept: list[Group] = []
    numbers = region_numbers(groups)
    for n, region in enumerate(numbers):
        members = of_region(groups, region)
        what = f"region of {members[0].size} x {members[0].kind}"
        chooser.progress(Step("measure", n, len(numbers), what))
        decision = chooser.decide(members)
        kept += decision.groups
        refusals += left_apart(analysis, members, decision.groups)
        if not decision.groups:
            lost = "would not pay: " if decision.code == "S303" else ""
            refusals += refuse(analysis, members, decision.code, f"{lost}{decision.reason}")
    return _draft(analysis, skip, found, regions(kept), refusals)


Site = tuple[str, int]
"""Where a region is: the label of its body, "" for the main graph, and its number."""


def sites(plan: Plan) -> dict[Site, tuple[Group, ...]]:
    """All regions of a plan with their groups, those of bodies too."""
    parts = {"": plan, **dict(plan.bodies)}
    return {
        (label, region): of_region(part.groups, region)
        for label, part in parts.items()
        for region in region_numbers(part.groups)
    }


def least(plan: Plan) -> Site:
    """The region that saves the fewest nodes."""
    saves = {site: sum(g.size - 1 for g in groups) for site, groups in sites(plan).items()}
    return min(saves, key=lambda site: saves[site])


def without(
    analysis: Analysis, plan: Plan, doomed: Collection[Site], code: str, reason: str
) -> Draft:
    """The plan without some of its regions, and why they had to go."""
    parts = {"": plan, **dict(plan.bodies)}
    inner = {b.label: b.analysis for b in bodies(analysis)} if plan.bodies else {}
    for label in dict.fromkeys(label for label, _ in doomed):
        place, part = inner.get(label, analysis), parts[label]
        gone = [g for g in part.groups if (label, g.region) in doomed]
        left = regions([g for g in part.groups if (label, g.region) not in doomed])
        left = settled(place.circuit, left)
        refusals = merged([*part.refusals, *refuse(place, gone, code, reason)])
        sums = reductions(place.circuit, left)
        parts[label] = replace(part, groups=left, reductions=sums, refusals=refusals, bodies=())
    main = replace(parts.pop(""), bodies=())
    rewritten, _ = made(analysis, main.groups, [])
    return with_bodies(analysis, Draft(main, rewritten), parts)


def planned_bodies(
    analysis: Analysis,
    skip: Callable[[Circuit], Skip],
    device: Device | None,
    seconds: float | None = None,
) -> dict[str, Plan]:
    """What to do in the bodies of a model, by label: what the cost model says pays, or all that is legal.

    A body runs as often as it runs: it is never raced by itself, only with the whole model.  All
    bodies together have the time limit of an exact search.
    """
    found = bodies(analysis)
    share = seconds / max(1, len(found)) if seconds is not None else None
    return {
        b.label: modelled_plan(b.analysis, skip(b.analysis.circuit), device, share).plan
        for b in found
    }


def with_bodies(analysis: Analysis, draft: Draft, plans: Mapping[str, Plan]) -> Draft:
    """A draft of the main graph together with what is done in bodies.

    Their new names avoid the main graph's new names and each other's.
    """
    taken = set(_made_names(draft.rewritten))
    inner: list[tuple[Body, Rewritten]] = []
    refusals = list(draft.plan.refusals)
    for body in bodies(analysis) if any(p.groups for p in plans.values()) else ():
        plan = plans.get(body.label, Plan())
        reserved = replace(body.analysis, reserved=frozenset(taken))
        rewritten, _ = made(reserved, plan.groups, [])
        if rewritten is not None:
            inner.append((body, rewritten))
            taken.update(_made_names(rewritten))
    for plan in plans.values():
        refusals += plan.refusals
    main = draft.rewritten
    if inner and main is None:
        main = rewrite(analysis.circuit, Plan(), analysis.names, analysis.known)
    kept = tuple((b.label, plans[b.label]) for b, _ in inner)
    return Draft(replace(draft.plan, refusals=merged(refusals), bodies=kept), main, tuple(inner))


def _made_names(rewritten: Rewritten | None) -> list[str]:
    """Every name in a new graph."""
    if rewritten is None:
        return []
    nodes = [m.proto for m in rewritten.nodes]
    return [*rewritten.fresh, *(n.name for n in nodes), *(o for n in nodes for o in n.output)]


def of_region(groups: Sequence[Group], region: int) -> tuple[Group, ...]:
    """The groups of one region."""
    return tuple(g for g in groups if g.region == region)


def region_numbers(groups: Sequence[Group]) -> list[int]:
    """The regions' numbers, ascending."""
    return sorted({g.region for g in groups})


@dataclass(frozen=True, slots=True)
class Sought:
    """What can be done under the best level function found.

    Attributes:
        level: By unit: its level.
        groups: All that can be made.
        refusals: Why others cannot.
        optimum: What an exact search came to; None if none was asked for.
    """

    level: tuple[int, ...]
    groups: tuple[Group, ...]
    refusals: tuple[Refusal, ...]
    optimum: Optimum | None = None


def legal(
    analysis: Analysis, skip: Skip
) -> tuple[tuple[int, ...], tuple[Group, ...], list[Refusal]]:
    """The level function, all groups that can be made, and why others cannot."""
    found = sought(analysis, skip)
    return found.level, found.groups, list(found.refusals)


def sought(analysis: Analysis, skip: Skip, seconds: float | None = None) -> Sought:
    """The best level function, after an exact search if one is asked for, and what can be done under it.

    The levels of the exact search are taken if what can be made under them saves more units, and the
    nodes that bring lanes together for that do not make the graph larger.
    """
    level, groups = best_groups(analysis.circuit, skip)
    best = _possible(analysis, level, groups)
    if seconds is None:
        return best
    level, optimum = exact_level(analysis.circuit, skip, level, seconds)
    if level != best.level:
        other = _possible(analysis, level, Finder(analysis.circuit, level, skip).run())
        more = saved(other.groups) > saved(best.groups)
        if more and _nodes_left(analysis, other) <= _nodes_left(analysis, best):
            best, optimum = other, replace(optimum, taken=True)
    return replace(best, optimum=optimum)


def _possible(analysis: Analysis, level: tuple[int, ...], groups: tuple[Group, ...]) -> Sought:
    """The groups of a level function that can be made and are worth a boundary."""
    refusals: list[Refusal] = []
    rewritten, groups = made(analysis, groups, refusals)
    if rewritten is not None:
        idle = idle_regions(analysis, groups, rewritten)
        groups = regions([g for g in groups if g.region not in idle])
    return Sought(level, groups, tuple(refusals))


def _nodes_left(analysis: Analysis, found: Sought) -> int:
    """How many nodes there are if all groups are made."""
    rewritten, _ = made(analysis, found.groups, [])
    return len(rewritten.nodes if rewritten is not None else analysis.graph.nodes)


def _draft(
    analysis: Analysis,
    skip: Skip,
    found: Sought,
    groups: tuple[Group, ...],
    refusals: list[Refusal],
) -> Draft:
    """A plan with a reason for every heavy node that is in no group."""
    circuit = analysis.circuit
    rewritten, groups = made(analysis, groups, refusals)
    refused = {n for r in refusals for n in r.nodes}
    for refusal in explain(circuit, found.level, groups, skip):
        names = tuple(n for n in refusal.nodes if n not in refused)
        if names:
            refusals.append(Refusal(refusal.code, refusal.reason, names))
    sums = reductions(circuit, groups)
    plan = Plan(groups, sums, merged(refusals), optimum=found.optimum)
    return Draft(plan, rewritten)


def made(
    analysis: Analysis, groups: tuple[Group, ...], refusals: list[Refusal]
) -> tuple[Rewritten | None, tuple[Group, ...]]:
    """Rewrite; a group that turns out to be impossible is left out, and the reason noted."""
    circuit = analysis.circuit
    while groups:
        groups = settled(circuit, groups)
        plan = Plan(groups, reductions(circuit, groups))
        try:
            return rewrite(circuit, plan, analysis.names, analysis.known), groups
        except GroupRefused as error:
            gone = groups[error.group]
            if gone.region in heavy_regions(groups):
                reason = f"{called(circuit, gone.units)}: {error.refused.reason}"
                refusals.append(Refusal(error.refused.code, reason, circuit.labels(gone.units)))
            groups = regions([g for g in groups if g is not gone])
    return None, groups


def left_apart(analysis: Analysis, region: Sequence[Group], kept: Sequence[Group]) -> list[Refusal]:
    """Why heavy groups of a region that is kept are not: its best form runs their members one by one."""
    there = {u.number for g in kept for u in g.units}
    gone = [g for g in region if kept and not any(u.number in there for u in g.units)]
    reason = "would not pay: the best form of their region runs them one by one"
    return [
        Refusal(
            "S303",
            f"{called(analysis.circuit, g.units)}: {reason}",
            analysis.circuit.labels(g.units),
        )
        for g in gone
        if is_heavy(g.units[0])
    ]


def refuse(analysis: Analysis, groups: Sequence[Group], code: str, reason: str) -> list[Refusal]:
    """A refusal of a region: its heavy nodes stand for it; none where it has none."""
    heavy = [u for g in groups if is_heavy(g.units[0]) for u in g.units]
    return [Refusal(code, reason, analysis.circuit.labels(heavy))] if heavy else []
