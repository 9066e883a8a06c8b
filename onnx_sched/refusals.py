"""Why nodes that might have run together do not: one refusal for each set of look-alikes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

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
    for family, units in families.items():
        if len(units) < 2:
            continue
        at: dict[int, list[Unit]] = {}
        for unit in units:
            at.setdefault(levels[unit.number], []).append(unit)
        alone: list[Unit] = []
        reasons: dict[tuple[str, str], list[Unit]] = {}
        for unit in units:
            if unit.number in taken:
                continue
            peers = [p for p in at[levels[unit.number]] if p is not unit]
            if is_batched(circuit, unit):
                reasons.setdefault(("S402", "they are batched nodes already"), []).append(unit)
            elif skip(unit):
                reasons.setdefault(("S401", "you asked not to touch them"), []).append(unit)
            elif not peers:
                alone.append(unit)
            else:
                reasons.setdefault(why(circuit, unit, peers), []).append(unit)
        for (code, reason), members in reasons.items():
            found.append(Refusal(code, f"{family}: {reason}", circuit.labels(members)))
        if alone:
            reason = f"{family}: each stands alone at its level, before or after the others"
            found.append(Refusal("S101", reason, circuit.labels(alone)))
    return tuple(found)


def is_batched(circuit: Circuit, unit: Unit) -> bool:
    """Whether a unit was made by an earlier run."""
    nodes = (circuit.graph.nodes[k] for k in unit.nodes)
    return any(p.key == MEMBERS for node in nodes for p in node.metadata_props)


def why(circuit: Circuit, unit: Unit, peers: Sequence[Unit]) -> tuple[str, str]:
    """Code and reason why a unit does not run with others of its kind and level."""
    reason = unbatched(circuit, unit)
    if reason:
        return ("S202" if "not known" in reason else "S102"), reason
    closest = min((difference(circuit, unit, p) for p in peers), key=lambda d: d[2])
    return closest[:2]


def unbatched(circuit: Circuit, unit: Unit) -> str:
    """Why a unit runs with no other, whatever that is; empty if the unit itself does not stand in the way."""
    rule = rule_for(unit)
    if rule is None:
        return f"there is no batching rule for {unit.kind}"
    return rule.check(unit, circuit) or ""


def difference(circuit: Circuit, a: Unit, b: Unit) -> tuple[str, str, int]:
    """Code, reason, and how far apart two units are; 0 if nothing that counts differs."""
    if a.kind != b.kind and LINEAR in (a.kind, b.kind):
        return "S106", "the weight is constant in some and computed in others", 5
    if a.kind != b.kind:
        return "S105", f"{a.kind} beside {b.kind}", 5
    found: list[tuple[str, str, int]] = []
    for k, (x, y) in enumerate(zip(a.operands, b.operands, strict=False)):
        if (x is None) != (y is None):
            continue
        if isinstance(x, Const) != isinstance(y, Const):
            found.append(("S106", "the weight is constant in some and computed in others", 4))
        elif circuit.elem_type(x) != circuit.elem_type(y):
            found.append(("S104", "the element types differ", 3))
        elif circuit.shape(x) != circuit.shape(y) and (a.kind != LINEAR or k < 2):
            what = f"{_shown(circuit.shape(x))} beside {_shown(circuit.shape(y))}"
            found.append(("S103", f"shapes differ, {what}", 2))
    here, there = dict(a.attributes), dict(b.attributes)
    for name in sorted(here.keys() | there.keys()):
        v, w = (_setting(given, name) for given in (here, there))
        if v != w:
            found.append(("S105", f"attribute {name} differs, {v} beside {w}", 1))
    if not found:
        return "S301", "their inputs come from different places, so that gluing would cost more", 0
    return max(found, key=lambda f: f[2])


def _setting(given: Mapping[str, object], name: str) -> str:
    return repr(given[name]) if name in given else "not given"


def _shown(shape: Sequence[object] | None) -> str:
    return "unknown" if shape is None else "[" + ", ".join(map(str, shape)) + "]"
