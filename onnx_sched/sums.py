"""Sums and means whose terms are lanes: Add chains, Sum, Mean become one reduction over the lane axis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from onnx_sched.circuit import Circuit, Operand, Unit
from onnx_sched.plan import Group, Reduction

SUMS = frozenset({"Add", "Sum", "Mean"})

SUMMED = frozenset({1, 11, 6, 7, 10})
"""Element types whose sums are made by ReduceSum everywhere: float, double, int32, int64, float16."""


def reductions(circuit: Circuit, groups: Sequence[Group]) -> tuple[Reduction, ...]:
    """The sums and means of which at least two terms are lanes of one group.

    A chain of Adds is one sum where the values between them are read by no one else.
    """
    taken = {u.number for g in groups for u in g.units}
    taken |= {u.number for u in circuit.units if u.kind in SUMS and _stays(circuit, u)}
    home = {
        v: (n, j)
        for n, g in enumerate(groups)
        for j in range(len(g.units[0].outputs))
        for b in g.bundles(j)
        for v in b
    }
    aliased = frozenset(circuit.values.canon.values())
    found: list[Reduction] = []
    for unit in reversed(circuit.units):
        if unit.number in taken or unit.domain or unit.kind not in SUMS:
            continue
        members, terms = _chain(circuit, unit, taken, aliased)
        shape = circuit.values.shape(unit.outputs[0])
        names = [t for t in terms if isinstance(t, str) and circuit.values.shape(t) == shape]
        if circuit.elem_type(unit.outputs[0]) not in SUMMED or shape is None:
            continue
        most = max(Counter(home[n] for n in names if n in home).values(), default=0)
        mean = unit.kind == "Mean"
        if len(names) == len(terms) and most >= (len(names) if mean else 2) and most > 1:
            taken.update(m.number for m in members)
            found.append(Reduction(tuple(members), mean, tuple(names)))
    return tuple(found[::-1])


def _chain(
    circuit: Circuit, last: Unit, taken: Collection[int], aliased: Collection[str]
) -> tuple[list[Unit], list[Operand]]:
    """The Adds that lead to one sum, in order, and all its terms."""
    shape = circuit.values.shape(last.outputs[0])
    members, terms, k = [last], list(last.operands), 0
    while last.kind == "Add" and k < len(terms):
        maker = _inner(circuit, terms[k], aliased)
        if (
            maker is not None
            and maker.number not in taken
            and circuit.values.shape(maker.outputs[0]) == shape
        ):
            members.append(maker)
            terms[k : k + 1] = list(maker.operands)
        else:
            k += 1
    return sorted(members, key=lambda m: m.number), terms


def _inner(circuit: Circuit, term: Operand, aliased: Collection[str]) -> Unit | None:
    """The Add that makes a term which nobody else reads, by this or any other name."""
    maker = circuit.maker.get(term) if isinstance(term, str) else None
    if maker is None or maker.kind != "Add" or maker.domain or maker.outputs[0] != term:
        return None
    seen = term in circuit.graph.output_set or term in aliased
    return None if seen or len(circuit.graph.readers.get(term, ())) != 1 else maker


def _stays(circuit: Circuit, unit: Unit) -> bool:
    """Whether somebody asked for a unit not to become part of a sum over lanes."""
    nodes = (circuit.graph.nodes[k] for k in unit.nodes)
    return any(circuit.unsummed(n) for node in nodes for n in circuit.values.spellings(node))
