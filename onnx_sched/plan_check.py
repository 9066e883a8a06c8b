"""Whether the groups of a plan file can be: what does not make sense is an error with its place.

A file may be old, cut, written by hand or by another program.  All that the planner guarantees for its own
groups is therefore held against the model again before anything is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from onnx_sched.circuit import Circuit, Keep, Unit, node_label
from onnx_sched.errors import UsageError
from onnx_sched.find import form_of
from onnx_sched.likeness import likeness, wide_key
from onnx_sched.plan import Group, Plan
from onnx_sched.plan_rows import Part, short
from onnx_sched.refusals import difference, is_batched, unbatched
from onnx_sched.signature import Signature
from onnx_sched.sums import addable
from onnx_sched.variants import SEPARATE, forms


def check(
    circuit: Circuit, groups: Sequence[Group], part: Part, skip: Callable[[Unit], bool]
) -> None:
    """Refuse groups that the planner would never make.

    Args:
        circuit: The graph that they are for.
        groups: The groups, in the file's order.
        part: Where in the file they stand.
        skip: Which units must stay as they are.

    Raises:
        UsageError: If one makes no sense; it names the file and the group.
    """
    owner: dict[int, int] = {}
    for n, group in enumerate(groups):
        what = _wrong(circuit, group, skip)
        twice = next((u for u in group.units if u.number in owner), None)
        if what is None and twice is not None:
            what = f"holds {circuit.label(twice)}, and so does group {owner[twice.number] + 1}"
        if what is not None:
            raise _error(circuit, part, n, group, what)
        owner.update((u.number, n) for u in group.units)
    asked = [n for n, g in enumerate(groups) if g.summed]
    adds_up = addable(circuit, groups) if asked else frozenset()
    for n in asked:
        if n not in adds_up:
            what = "is summed by a product, but nothing adds up its lanes so"
            raise _error(circuit, part, n, groups[n], what)
    _check_order(circuit, groups, part, owner)


def _error(circuit: Circuit, part: Part, n: int, group: Group, what: str) -> UsageError:
    return part.error(n, group.kind, circuit.label(group.units[0]), what)


def cannot(
    circuit: Circuit, groups: Sequence[Group], part: Part, n: int, reason: str
) -> UsageError:
    """The error that a group is that turned out to be impossible while it was made."""
    return _error(circuit, part, n, groups[n], f"cannot be made: {reason}")


def _wrong(circuit: Circuit, group: Group, skip: Callable[[Unit], bool]) -> str | None:
    """What is wrong with a group by itself; None if nothing is."""
    for unit in group.units:
        if is_batched(circuit, unit):
            return f"holds {circuit.label(unit)}, which is a batched node already"
        if skip(unit):
            return f"holds {circuit.label(unit)}, which a --skip flag leaves alone"
    signs = [likeness(circuit, unit) for unit in group.units]
    for unit, sign in zip(group.units, signs, strict=True):
        if sign is None:
            why = unbatched(circuit, unit) or "too little is known about it, or it is always empty"
            return f"holds {circuit.label(unit)}, which runs with no other: {why}"
    what = _unlike(circuit, group, signs)
    if what is not None:
        return what
    known = set(forms(replace(group, form=form_of(group.units)), circuit)) - {SEPARATE, "parts"}
    if group.form not in known:
        return f"has form {short(group.form)!r}, but can only have {', '.join(sorted(known))}"
    return None


def _unlike(circuit: Circuit, group: Group, signs: Sequence[Signature | None]) -> str | None:
    """Which members differ where they must not; None if all are alike."""
    keys = {wide_key(unit) for unit in group.units}
    if group.segments and (len(keys) > 1 or None in keys):
        return "has segments, but its members are not products of one value"
    start = 0
    for length in group.segments or (group.size,):
        first = group.units[start]
        for k in range(start, start + length):
            if signs[k] != signs[start]:
                other = group.units[k]
                names = f"{circuit.label(first)} and {circuit.label(other)}"
                return f"holds {names}, which are not alike: {_how(circuit, first, other)}"
        start += length
    return None


def _how(circuit: Circuit, a: Unit, b: Unit) -> str:
    found = difference(circuit, a, b)
    return found.reason if found.far else "their operands or results differ"


def _check_order(
    circuit: Circuit, groups: Sequence[Group], part: Part, owner: dict[int, int]
) -> None:
    """Refuse levels that do not grow along the dependencies.

    If they grow, no group waits for itself, however far around (T3): the levels are the proof.
    """
    above: dict[int, int] = {}  # by unit: the group of the highest level that it waits for
    for unit in circuit.units:
        found = [n for p in circuit.preds[unit.number] if (n := above.get(p)) is not None]
        highest = max(found, key=lambda n: groups[n].level, default=None)
        own = owner.get(unit.number)
        if own is not None and highest is not None:
            low, high = groups[own], groups[highest]
            if low.level <= high.level:
                other = "itself" if own == highest else f"group {highest + 1}"
                levels = f"level {low.level} is not above level {high.level}"
                raise _error(circuit, part, own, low, f"waits for {other}: {levels}")
        reached = own if own is not None else highest
        if reached is not None:
            above[unit.number] = reached


def check_sums(
    circuit: Circuit, plan: Plan, named: Sequence[str] | None, part: Part, unsummed: Keep
) -> None:
    """Refuse sums over lanes that are none in this model, or that a flag forbids.

    Args:
        circuit: The graph that they are for.
        plan: The groups, and the sums that the graph has.
        named: The values of sums that the file names; None if it says nothing about them.
        part: Where in the file they stand.
        unsummed: Which nodes must not become part of a sum.

    Raises:
        UsageError: It names the file, and the value or the node.
    """
    units = [u for r in plan.reductions for u in r.units]
    there = {name for r in plan.reductions for name in r.values}
    strange = next((name for name in named or () if name not in there), None)
    if strange is not None:
        raise part.wrong(f"sums {short(strange)}, which is no sum over the lanes of its groups")
    named_by = circuit.values.spellings
    kept = next(
        (k for u in units for k in u.nodes if any(map(unsummed, named_by(circuit.graph.nodes[k])))),
        None,
    )
    if kept is not None:
        name = short(node_label(circuit.graph, kept))
        raise part.wrong(f"sums {name}, which a --skip flag leaves alone")
