"""All batching rules, by domain and op type: the sum of the tables."""

from __future__ import annotations

from onnx_sched.circuit import Unit
from onnx_sched.passes import axes, convs, elementwise, lookups, norms, products, shapes
from onnx_sched.passes.rule import Rule, Table

RULES: Table = {
    **elementwise.RULES,
    **axes.RULES,
    **shapes.RULES,
    **norms.RULES,
    **products.RULES,
    **convs.RULES,
    **lookups.RULES,
}

BY_DOMAIN = {"": RULES, "com.microsoft": elementwise.CONTRIB}


def rule_for(unit: Unit) -> Rule | None:
    """The rule of a unit's kind; None if nobody wrote one."""
    return BY_DOMAIN.get(unit.domain, {}).get(unit.kind)
