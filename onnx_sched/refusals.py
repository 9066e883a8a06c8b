"""Why nodes that might have run together do not: one refusal for each set of look-alikes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from onnx_sched.circuit import LINEAR, Circuit, Unit
from onnx_sched.constants import Const
from onnx_sched.passes.rewrite import MEMBERS
from onnx_sched.passes.rules import rule_for
from onnx_sched.plan import Group, Refusal

HEAVY = frozenset(
    "Conv ConvInteger ConvTranspose DeformConv Einsum GRU Gemm LSTM MatMul MatMulInteger "
    "QLinearConv QLinearMatMul RNN".split()
) | {LINEAR}
"""Kinds that are worth a group, whether or not there is a rule for them."""

FAMILY = {LINEAR: "MatMul", "Gemm": "MatMul"}
"""Kinds that a reader takes for the same op."""

SIDES = 3
"""How many of the values in which nodes differ a reason names."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What keeps a unit from running with another.

    Attributes:
        code: Of the refusal.
        words: What it is.
        sides: How it is here and there, where the two differ in a value.
        far: How far apart that puts them; 0 if nothing that counts differs.
    """

    code: str
    words: str
    sides: tuple[str, ...] = ()
    far: int = 0

    @property
    def reason(self) -> str:
        """In words, with the values."""
        if not self.sides:
            return self.words
        more = f" and {len(self.sides) - SIDES} more" if len(self.sides) > SIDES else ""
        return f"{self.words}, {' beside '.join(self.sides[:SIDES])}{more}"


def explain(
    circuit: Circuit,
    levels: Sequence[int],
    groups: Iterable[Group],
    skip: Callable[[Unit], bool],
) -> tuple[Refusal, ...]:
    """A refusal for every heavy unit in no group, look-alikes together; none for what is one of a kind."""
    taken = {u.number for g in groups for u in g.units}
    families: dict[str, list[Unit]] = {}
    for unit in circuit.units:
        if unit.kind in HEAVY:
            families.setdefault(FAMILY.get(unit.kind, unit.kind), []).append(unit)
    found: list[Refusal] = []
    for units in families.values():
        if len(units) < 2:
            continue
        at: dict[int, list[Unit]] = {}
        for unit in units:
            at.setdefault(levels[unit.number], []).append(unit)
        alone: list[Unit] = []
        causes: list[tuple[Cause, Unit]] = []
        for unit in units:
            if unit.number in taken:
                continue
            peers = [p for p in at[levels[unit.number]] if p is not unit]
            if is_batched(circuit, unit):
                causes.append((Cause("S402", "they are batched nodes already"), unit))
            elif skip(unit):
                causes.append((Cause("S401", "you asked not to touch them"), unit))
            elif not peers:
                alone.append(unit)
            else:
                causes.append((cause(circuit, unit, peers), unit))
        for shared, members in together(causes):
            reason = f"{called(circuit, members)}: {shared.reason}"
            found.append(Refusal(shared.code, reason, circuit.labels(members)))
        if alone:
            words = "each stands alone at its level, before or after the others"
            reason = f"{called(circuit, alone)}: {words}"
            found.append(Refusal("S101", reason, circuit.labels(alone)))
    return tuple(found)


def called(circuit: Circuit, units: Sequence[Unit]) -> str:
    """What the nodes of some units are, as the file spells it."""
    nodes = circuit.graph.nodes
    own = {nodes[u.nodes[0]].op_type if u.kind == LINEAR else u.kind for u in units}
    return "/".join(sorted(own))


def together(causes: Iterable[tuple[Cause, Unit]]) -> list[tuple[Cause, list[Unit]]]:
    """The causes that say the same in one, also where A differs from B, and B from C, in the same thing."""
    found: list[tuple[Cause, list[Unit]]] = []
    for new, unit in causes:
        met = [
            (old, units)
            for old, units in found
            if (old.code, old.words) == (new.code, new.words)
            and (old.sides == new.sides or set(old.sides) & set(new.sides))
        ]
        sides = tuple(dict.fromkeys(s for c in (*(old for old, _ in met), new) for s in c.sides))
        merged = (
            Cause(new.code, new.words, sides, new.far),
            [*(u for _, us in met for u in us), unit],
        )
        at = found.index(met[0]) if met else len(found)
        found = [row for row in found if row not in met]
        found.insert(at, merged)
    return found


def is_batched(circuit: Circuit, unit: Unit) -> bool:
    """Whether a unit was made by an earlier run."""
    nodes = (circuit.graph.nodes[k] for k in unit.nodes)
    return any(p.key == MEMBERS for node in nodes for p in node.metadata_props)


def why(circuit: Circuit, unit: Unit, peers: Sequence[Unit]) -> tuple[str, str]:
    """Code and reason why a unit does not run with others of its kind and level."""
    found = cause(circuit, unit, peers)
    return found.code, found.reason


def cause(circuit: Circuit, unit: Unit, peers: Sequence[Unit]) -> Cause:
    """What keeps a unit from running with the most alike others of its kind and level."""
    reason = unbatched(circuit, unit)
    if reason:
        return Cause("S202" if "not known" in reason else "S102", reason)
    return min((difference(circuit, unit, p) for p in peers), key=lambda d: d.far)


def unbatched(circuit: Circuit, unit: Unit) -> str:
    """Why a unit runs with no other, whatever that is; empty if the unit itself does not stand in the way."""
    rule = rule_for(unit)
    if rule is None:
        return f"there is no batching rule for {unit.kind}"
    return rule.check(unit, circuit) or ""


def difference(circuit: Circuit, a: Unit, b: Unit) -> Cause:
    """What keeps two units apart most."""
    computed = "the weight is constant in some and computed in others"
    if a.kind != b.kind and LINEAR in (a.kind, b.kind):
        return Cause("S106", computed, far=5)
    if a.kind != b.kind:
        return Cause("S105", " beside ".join(sorted((a.kind, b.kind))), far=5)
    found: list[Cause] = []
    for k, (x, y) in enumerate(zip(a.operands, b.operands, strict=False)):
        if (x is None) != (y is None):
            continue
        if isinstance(x, Const) != isinstance(y, Const):
            found.append(Cause("S106", computed, far=4))
        elif circuit.elem_type(x) != circuit.elem_type(y):
            found.append(Cause("S104", "the element types differ", far=3))
        elif circuit.shape(x) != circuit.shape(y) and (a.kind != LINEAR or k < 2):
            sides = in_words(circuit.shape(x)), in_words(circuit.shape(y))
            found.append(Cause("S103", "shapes differ", sides, 2))
    here, there = dict(a.attributes), dict(b.attributes)
    for name in sorted(here.keys() | there.keys()):
        v, w = (_setting(given, name) for given in (here, there))
        if v != w:
            found.append(Cause("S105", f"attribute {name} differs", (v, w), 1))
    if not found:
        words = "their inputs come from different places, so that gluing would cost more"
        return Cause("S301", words)
    return max(found, key=lambda c: c.far)


def _setting(given: Mapping[str, object], name: str) -> str:
    return in_words(given[name]) if name in given else "not given"


def in_words(value: object) -> str:
    """A shape, or an attribute's value, for people.

    >>> in_words((1, "N")), in_words(b"SAME"), in_words(0.5), in_words(None)
    ('[1, N]', 'SAME', '0.5', 'unknown')
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace") if len(value) < 40 else f"{len(value)} bytes"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(in_words, value)) + "]"
    if value is None:
        return "unknown"
    return f"{value:g}" if isinstance(value, float) else str(value)
