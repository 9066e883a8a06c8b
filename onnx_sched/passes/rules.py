"""All batching rules, by domain and op type: the sum of the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    resizes,
    scatters,
    selects,
    shapes,
    skip_norms,
    transposed_convs,
    weighted_sums,
    windows,
)
from onnx_sched.passes.rule import Rule, Table
from onnx_sched.plan import Group

PASSES: Mapping[str, tuple[Table, Table]] = {
    "elementwise": (elementwise.RULES, elementwise.CONTRIB),
    "axes": (axes.RULES, {}),
    "shapes": (shapes.RULES, {}),
    "norms": (norms.RULES, {}),
    "products": (products.RULES, {}),
    "convs": (convs.RULES, {}),
    "lookups": (lookups.RULES, {}),
    "windows": (windows.RULES, {}),
    "resizes": (resizes.RULES, {}),
    "joins": (joins.RULES, {}),
    "selects": (selects.RULES, {}),
    "scatters": (scatters.RULES, {}),
    "quantized": (quantized.RULES, {}),
    "quantized_products": (quantized_products.RULES, {}),
    "equations": (equations.RULES, {}),
    "gemms": (gemms.RULES, {}),
    "weighted_sums": (weighted_sums.RULES, {}),
    "recurrent": (recurrent.RULES, {}),
    "channel_norms": (channel_norms.RULES, {}),
    "transposed_convs": (transposed_convs.RULES, {}),
    "contrib": ({}, contrib.RULES),
    "skip_norms": (skip_norms.RULES, skip_norms.CONTRIB),
}
"""The tables of each pass, for the default domain and for com.microsoft; no op stands twice."""

RULES: Table = {op: rule for own, _ in PASSES.values() for op, rule in own.items()}
CONTRIB: Table = {op: rule for _, own in PASSES.values() for op, rule in own.items()}
BY_DOMAIN = {"": RULES, contrib.DOMAIN: CONTRIB}

_PASS_OF = {
    (domain, op): name
    for name, tables in PASSES.items()
    for domain, table in zip(BY_DOMAIN, tables, strict=True)
    for op in table
}


def rule_for(unit: Unit) -> Rule | None:
    """The rule of a unit's kind; None if nobody wrote one."""
    return BY_DOMAIN.get(unit.domain, {}).get(_row(unit))


def read_by(group: Group) -> Iterator[int]:
    """The operands that the batched nodes of a group read."""
    rule = rule_for(group.units[0])
    unread = rule.unread if rule is not None else ()
    return (k for k in range(len(group.units[0].operands)) if k not in unread)


def pass_of(unit: Unit) -> str:
    """The pass whose rule serves a unit; empty if none does."""
    return _PASS_OF.get((unit.domain, _row(unit)), "")


def _row(unit: Unit) -> str:
    return selects.row_of(unit) if unit.kind == "Gather" and not unit.domain else unit.kind
