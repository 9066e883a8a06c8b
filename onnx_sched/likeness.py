"""Who can run with whom: one answer for those who find groups, and for those who check a plan's."""

from __future__ import annotations

from collections.abc import Hashable

from onnx_sched.circuit import LINEAR, Circuit, Unit
from onnx_sched.constants import Const
from onnx_sched.passes.rules import rule_for
from onnx_sched.signature import Signature, signature


def likeness(circuit: Circuit, unit: Unit) -> Signature | None:
    """What a unit must share with others to run as one node; None if it can run with none."""
    rule = rule_for(unit)
    if rule is None or rule.check(unit, circuit) is not None or is_void(circuit, unit):
        return None
    return signature(unit, circuit, rule.static, rule.optional, rule.spread)


def is_void(circuit: Circuit, unit: Unit) -> bool:
    """Whether a unit works on tensors that are always empty: nothing to gain, and runtimes stumble."""
    shapes = [circuit.shape(v) or () for v in (*unit.operands, *unit.outputs)]
    return any(0 in shape for shape in shapes)


def wide_key(unit: Unit) -> Hashable:
    """What products must share to stand side by side although their widths differ; None if they cannot."""
    if unit.kind not in (LINEAR, "Conv") or unit.integer("group", 1) != 1:
        return None
    x, weight = unit.operands[:2]
    if not isinstance(weight, Const) or not isinstance(x, str):
        return None
    inner = weight.shape[0] if unit.kind == LINEAR else weight.shape[1:]
    return (unit.kind, unit.attributes, x, inner, weight.elem_type)
