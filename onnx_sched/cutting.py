"""Which products by block-diagonal weights are cut into their blocks before anything is planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnx_sched import diagonal
from onnx_sched.analysis import Analysis
from onnx_sched.options import Options, skipper
from onnx_sched.plan import Plan, Refusal
from onnx_sched.plan_rows import Part


def wanted(
    analysis: Analysis, options: Options, replayed: Mapping[str, Any] | None
) -> tuple[str, ...]:
    """The results of the products that are to be cut: the plan's, or all there are if that is allowed.

    Raises:
        UsageError: If a plan cuts a product that the model has not.
    """
    asked = tuple(replayed.get("cut", ())) if replayed is not None else ()
    if not asked and (replayed is not None or not options.assume_finite):
        return ()
    skip = skipper(options, analysis.circuit)
    found = [unit for unit, _ in diagonal.products(analysis.circuit) if not skip(unit)]
    there = tuple(unit.outputs[0] for unit in found)
    if replayed is None:
        return there
    missing = [name for name in asked if name not in there]
    if missing:
        what = f"cuts the product that makes {missing[0]}, and this model has no such product"
        raise Part(options.plan or Path()).wrong(what)
    return asked


def told(plan: Plan, analysis: Analysis, options: Options) -> Plan:
    """The plan with S306 for products that would be cut if that were promised to be harmless."""
    if options.assume_finite:
        return plan
    taken = {u.number for g in plan.groups for u in g.units}
    circuit = analysis.circuit
    found = [u for u, _ in diagonal.products(circuit) if u.number not in taken]
    if not found:
        return plan
    reason = "the weight is block-diagonal; --assume-finite lets its blocks run as one batched node"
    refusal = Refusal("S306", reason, circuit.labels(found))
    return replace(plan, refusals=(*plan.refusals, refusal))


def stay_whole(count: int) -> str:
    """What is said of products that could have been cut."""
    return f"{count} block-diagonal product(s) stay whole: cut, they would not pay"
