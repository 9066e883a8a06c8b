"""Do again what a plan file says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from onnx_sched.analysis import Analysis
from onnx_sched.bodies import bodies
from onnx_sched.passes.rewrite import GroupRefused, Rewritten, rewrite
from onnx_sched.plan import Plan
from onnx_sched.plan_check import cannot
from onnx_sched.plan_rows import Part
from onnx_sched.planner import Draft, with_bodies


def replayed_plan(analysis: Analysis, plan: Plan, path: Path) -> Draft:
    """The graph that a plan from a file makes.

    Raises:
        UsageError: If the plan cannot be carried out on this model.
    """
    inner = {b.label: b.analysis for b in bodies(analysis)} if plan.bodies else {}
    for label, body in plan.bodies:
        _as_planned(inner[label], body, Part(path, label))
    rewritten = _as_planned(analysis, plan, Part(path))
    return with_bodies(analysis, Draft(replace(plan, bodies=()), rewritten), dict(plan.bodies))


def _as_planned(analysis: Analysis, plan: Plan, part: Part) -> Rewritten | None:
    """Rewrite with every group of a file; None if there is none.

    Raises:
        UsageError: If one cannot be made.
    """
    circuit = analysis.circuit
    if not plan.groups:
        return None
    try:
        return rewrite(circuit, plan, analysis.names, analysis.known)
    except GroupRefused as error:
        raise cannot(circuit, plan.groups, part, error.group, error.refused.reason) from None
