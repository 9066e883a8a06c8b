"""All batching rules, by domain and op type: the sum of the tables."""

from __future__ import annotations

from onnx_sched.circuit import Unit
from onnx_sched.passes import (
    axes,
    channel_norms,
    contrib,
    convs,
    elementwise,
    equations,
    gemms,
    joins,
    lookups,
    norms,
    products,
    quantized,
    quantized_products,
    recurrent,
    scatters,
    selects,
    shapes,
    skip_norms,
    transposed_convs,
    windows,
)
from onnx_sched.passes.rule import Rule, Table

RULES: Table = {
    **elementwise.RULES,
    **axes.RULES,
    **shapes.RULES,
    **norms.RULES,
    **products.RULES,
    **convs.RULES,
    **lookups.RULES,
    **windows.RULES,
    **joins.RULES,
    **selects.RULES,
    **scatters.RULES,
    **quantized.RULES,
    **quantized_products.RULES,
    **equations.RULES,
    **gemms.RULES,
    **recurrent.RULES,
    **channel_norms.RULES,
    **transposed_convs.RULES,
    **skip_norms.RULES,
}

CONTRIB: Table = {**elementwise.CONTRIB, **contrib.RULES, **skip_norms.CONTRIB}

BY_DOMAIN = {"": RULES, contrib.DOMAIN: CONTRIB}


def rule_for(unit: Unit) -> Rule | None:
    """The rule of a unit's kind; None if nobody wrote one."""
    row = selects.row_of(unit) if unit.kind == "Gather" and not unit.domain else unit.kind
    return BY_DOMAIN.get(unit.domain, {}).get(row)
