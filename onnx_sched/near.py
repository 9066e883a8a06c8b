"""Who a node nearly ran with: the most alike others, and all that tells them apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx import TensorProto

from onnx_sched.circuit import LINEAR, Circuit, Operand, Unit
from onnx_sched.constants import Const
from onnx_sched.passes.rules import rule_for
from onnx_sched.refusals import FAMILY
from onnx_sched.spoken import in_words, role, told

MOST = 3
"""How many of the nearest are given."""

FAR = 100
"""More than all differences of one pair can weigh."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing in which two nodes differ: what it is, and how it is here and there."""

    what: str
    here: str
    there: str


@dataclass(frozen=True, slots=True)
class Near:
    """A node of the same kind, and how it differs."""

    node: str
    differences: tuple[Difference, ...]


def nearest(circuit: Circuit, levels: Sequence[int], unit: Unit) -> tuple[Near, ...]:
    """The units of the same family that are most alike, the nearest first.

    Args:
        circuit: Where the unit stands.
        levels: By unit: its level.
        unit: Whose neighbours are wanted.
    """
    peers = [u for u in circuit.units if u is not unit and family(u) == family(unit)]

    def far(peer: Unit) -> tuple[int, int, int]:
        apart = abs(levels[peer.number] - levels[unit.number])
        unlike = sum(weight for weight, _ in unlikeness(circuit, unit, peer))
        return unlike + (FAR if apart else 0), apart, abs(peer.number - unit.number)

    found = []
    for peer in sorted(peers, key=far)[:MOST]:
        differences = [d for _, d in unlikeness(circuit, unit, peer)]
        if levels[peer.number] != levels[unit.number]:
            differences.append(_levels(circuit, levels, unit, peer))
        if not differences:
            differences = _origins(circuit, unit, peer)
        found.append(Near(circuit.label(peer), tuple(differences)))
    return tuple(found)


def family(unit: Unit) -> tuple[str, str]:
    """What a reader takes for the same op."""
    return unit.domain, FAMILY.get(unit.kind, unit.kind)


def unlikeness(circuit: Circuit, a: Unit, b: Unit) -> list[tuple[int, Difference]]:
    """In what two units differ, whatever their level, each with a weight."""
    found: list[tuple[int, Difference]] = []
    if a.kind != b.kind and LINEAR in (a.kind, b.kind):
        here, there = ("constant" if u.kind == LINEAR else "computed in every run" for u in (a, b))
        return [(5, Difference("weight", here, there))]
    if a.kind != b.kind:
        return [(5, Difference("op", a.kind, b.kind))]
    given, others = dict(a.attributes), dict(b.attributes)
    for name in sorted(given.keys() | others.keys()):
        here, there = (in_words(g[name]) if name in g else "not given" for g in (given, others))
        if here != there:
            found.append((1, Difference(f"attribute {name}", here, there)))
    for k in range(max(len(a.operands), len(b.operands))):
        x, y = (u.operands[k] if k < len(u.operands) else None for u in (a, b))
        here, there = fact(circuit, x), fact(circuit, y)
        if here != there and not (a.kind == LINEAR and k == 2):  # a missing bias is a row of zeros
            found.append((_weight(circuit, x, y), Difference(role(a, k), here, there)))
        elif _must_be_equal(a, k) and isinstance(x, Const) and isinstance(y, Const):
            found += [(1, Difference(role(a, k), *_values(x, y)))] if x.key != y.key else []
    return found


def _must_be_equal(unit: Unit, k: int) -> bool:
    """Whether an operand must be one constant for all."""
    rule = rule_for(unit)
    return rule is not None and k in rule.static


def _values(x: Const, y: Const) -> tuple[str, str]:
    here, there = told(x, y) or ("some numbers", "others")
    return here, there


def _weight(circuit: Circuit, x: Operand, y: Operand) -> int:
    if isinstance(x, Const) != isinstance(y, Const):
        return 4
    return 3 if circuit.elem_type(x) != circuit.elem_type(y) else 2


def fact(circuit: Circuit, operand: Operand) -> str:
    """Type and shape of an operand, such as `float[N, 4]`, and whether it is constant."""
    if operand is None:
        return "missing"
    elem_type, shape = circuit.elem_type(operand), circuit.shape(operand)
    name = TensorProto.DataType.Name(elem_type).lower() if elem_type else "unknown type"
    sizes = in_words(shape) if shape is not None else " of unknown shape"
    return ("constant " if isinstance(operand, Const) else "") + name + sizes


def _levels(circuit: Circuit, levels: Sequence[int], a: Unit, b: Unit) -> Difference:
    """Two units of different levels: whether one waits for the other."""
    here, there = f"level {levels[a.number]}", f"level {levels[b.number]}"
    if feeds(circuit, b, a):
        here += ", waits for that one"
    elif feeds(circuit, a, b):
        there += ", waits for this one"
    return Difference("when it can run", here, there)


def feeds(circuit: Circuit, a: Unit, b: Unit) -> bool:
    """Whether a must have run before b can."""
    seen, todo = {b.number}, [b.number]
    while todo:
        for p in circuit.preds[todo.pop()]:
            if p == a.number:
                return True
            if p > a.number and p not in seen:
                seen.add(p)
                todo.append(p)
    return False


def _origins(circuit: Circuit, a: Unit, b: Unit) -> list[Difference]:
    """Where the operands of two alike units come from."""
    found = []
    for k, (x, y) in enumerate(zip(a.operands, b.operands, strict=False)):
        if isinstance(x, str) and isinstance(y, str) and x != y:
            here, there = _origin(circuit, x), _origin(circuit, y)
            found.append(Difference(f"{role(a, k)} comes from", here, there))
    return found


def _origin(circuit: Circuit, value: str) -> str:
    maker = circuit.maker.get(value)
    return f"{maker.kind} {circuit.label(maker)}" if maker is not None else f"input {value}"
