"""Why nodes that might have run together do not: one refusal for each set of look-alikes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from onnx_sched.circuit import LINEAR, Circuit, Unit
from onnx_sched.constants import Const
from onnx_sched.dims import Shape, is_own
from onnx_sched.passes.rewrite import MEMBERS
from onnx_sched.passes.rules import rule_for
from onnx_sched.plan import Group, Refusal
from onnx_sched.spoken import blind, in_words, role, same_but_for_names, told

_PLAIN = frozenset(
    "Attention Conv ConvInteger ConvTranspose DeformConv Einsum GRU Gemm LSTM MatMul MatMulInteger "
    "QLinearConv QLinearMatMul RNN".split()
)
_CONTRIB = frozenset(
    "DecoderMaskedMultiHeadAttention DynamicQuantizeLSTM FusedMatMul GroupQueryAttention MatMulBnb4 "
    "MatMulNBits MoE MultiHeadAttention PackedAttention PackedMultiHeadAttention QAttention QGemm "
    "QMoE QOrderedMatMul".split()
)
_FUSED = frozenset(
    "DynamicQuantizeMatMul FusedConv FusedGemm FusedMatMulActivation GemmFastGelu "
    "MatMulIntegerToFloat MatMulNBitsMlp MatMulNBitsQkv NhwcConv NhwcFusedConv".split()
)
HEAVY = _PLAIN | _CONTRIB | _FUSED | {LINEAR}
"""Kinds that are worth a group, whether or not there is a rule for them."""

FAMILY = {LINEAR: "MatMul", "Gemm": "MatMul"}
"""Kinds that a reader takes for the same op."""

MADE_BY_ORT = (
    "which ONNX Runtime makes where it optimizes: start from the model as it was before that"
)
"""Of an op that no exporter writes, and what to do."""

ONE_NAME = (
    "where they are always equal, export with one name for them (dim_param): then the nodes can run "
    "as one"
)
"""What to do where sizes differ in their names alone."""

COMPUTED = "the weight is constant in some and computed in others"

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
        advice: What to do about it, where the code's own advice is too wide.
    """

    code: str
    words: str
    sides: tuple[str, ...] = ()
    far: int = 0
    advice: str = ""

    @property
    def reason(self) -> str:
        """In words, with the values."""
        more = f" and {len(self.sides) - SIDES} more" if len(self.sides) > SIDES else ""
        sides = f", {' beside '.join(self.sides[:SIDES])}{more}" if self.sides else ""
        return f"{self.words}{sides}{'; ' if self.advice else ''}{self.advice}"


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
            replace(new, sides=sides),
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
    if "not known" in reason:
        silent = blind(circuit, unit)
        return Cause("S202", f"{reason}: {silent} tells none" if silent else reason)
    if reason:
        return Cause("S102", reason)
    return min((difference(circuit, unit, p) for p in peers), key=lambda d: d.far)


def unbatched(circuit: Circuit, unit: Unit) -> str:
    """Why a unit runs with no other, whatever that is; empty if the unit itself does not stand in the way."""
    rule = rule_for(unit)
    if rule is None:
        made = unit.domain.startswith("com.microsoft.") or unit.kind in _FUSED
        more = f", {MADE_BY_ORT}" if made else ""
        return f"there is no batching rule for {unit.kind}{more}"
    return rule.check(unit, circuit) or ""


def difference(circuit: Circuit, a: Unit, b: Unit) -> Cause:
    """What keeps two units apart most."""
    if a.kind != b.kind and LINEAR in (a.kind, b.kind):
        return Cause("S106", COMPUTED, far=6)
    if a.kind != b.kind:
        return Cause("S105", " beside ".join(sorted((a.kind, b.kind))), far=6)
    found = [*_unlike_operands(circuit, a, b), *_unlike_attributes(a, b)]
    if [bool(o) for o in a.outputs] != [bool(o) for o in b.outputs]:
        found.append(Cause("S102", "one makes an output that the other leaves out", far=2))
    if not found:
        words = "their inputs come from different places, so that gluing would cost more"
        return Cause("S301", words)
    return max(found, key=lambda c: c.far)


def _unlike_operands(circuit: Circuit, a: Unit, b: Unit) -> Iterator[Cause]:
    """What keeps the operands of two units of a kind apart."""
    rule = rule_for(a)
    static, optional = (rule.static, rule.optional) if rule is not None else ((), ())
    spread = rule is not None and rule.spread
    for k, (x, y) in enumerate(zip_longest(a.operands, b.operands)):
        if x is None or y is None:
            if x is not y and k not in optional:
                yield Cause("S302", f"{role(a, k)} is missing in some", far=2)
        elif isinstance(x, Const) != isinstance(y, Const):
            yield Cause("S106", COMPUTED, far=5)
        elif circuit.elem_type(x) != circuit.elem_type(y):
            yield Cause("S104", "the element types differ", far=4)
        elif isinstance(x, Const) and isinstance(y, Const) and k in static:
            if x.key != y.key:
                yield Cause("S302", f"{role(a, k)} differs", told(x, y), 2)
        elif k not in optional and not (spread and isinstance(x, Const)):
            yield from _unlike_shapes(circuit, circuit.shape(x), circuit.shape(y))


def _unlike_shapes(circuit: Circuit, here: Shape | None, there: Shape | None) -> Iterator[Cause]:
    sides = in_words(here), in_words(there)
    if here != there and same_but_for_names(circuit, here, there):
        nameless = any(is_own(dim) for shape in (here, there) for dim in shape or ())
        names = "no common name" if nameless else "different names"
        yield Cause("S103", f"open sizes bear {names}", sides, 1, ONE_NAME)
    elif here != there:
        yield Cause("S103", "shapes differ", sides, 3)


def _unlike_attributes(a: Unit, b: Unit) -> Iterator[Cause]:
    here, there = dict(a.attributes), dict(b.attributes)
    for name in sorted(here.keys() | there.keys()):
        v, w = (_setting(given, name) for given in (here, there))
        if v != w:
            yield Cause("S105", f"attribute {name} differs", (v, w), 2)


def _setting(given: Mapping[str, object], name: str) -> str:
    return in_words(given[name]) if name in given else "not given"
