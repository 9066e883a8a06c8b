"""Make the report of a run from what was decided and what was seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from onnx_sched.analysis import Analysis
from onnx_sched.choose import Condition
from onnx_sched.circuit import node_label
from onnx_sched.judge.agree import Agreement
from onnx_sched.judge.measure import Speedup
from onnx_sched.judge.profiling import Profile
from onnx_sched.passes.compose import ends
from onnx_sched.passes.rewrite import Rewritten
from onnx_sched.plan import Group, Plan
from onnx_sched.planner import Draft
from onnx_sched.report.data import AgreementRow, Change, ExactRow, GroupRow, LatencyRow, Report
from onnx_sched.report.optimum import sentence
from onnx_sched.report.region_rows import Expected, numbers, region_rows


@dataclass(frozen=True, slots=True)
class Findings:
    """What was seen in a run.

    Attributes:
        provider, provider_note: Who ran the models, and why.
        target: The device profile that decided; empty if none was named.
        agreement: How outputs compare.
        profiles: The runtime's profile of the original and of the new model.
        raced: Speed-ups of the whole model, by condition.
        seconds: Time of the whole run.
        notes: Further things to tell.
        expected: What is known about the gain of single regions.
    """

    provider: str
    provider_note: str
    agreement: Agreement
    profiles: tuple[Profile, Profile] | None = None
    raced: tuple[tuple[Condition, Speedup], ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    expected: Expected = field(default_factory=Expected)
    target: str = ""


def build(original: Analysis, analysis: Analysis, draft: Draft, findings: Findings) -> Report:
    """The report of a run.

    Args:
        original: The model before anything was taken apart for the plan.
        analysis: The model that was planned.
        draft: What was decided.
        findings: What was seen.
    """
    rewritten = draft.rewritten
    searched = tuple(_searched(draft.plan))
    nodes, depth = len(original.graph.nodes), original.annotation.depth
    dispatches, peak, source = Change(None, None), Change(None, None), "not measured"
    if findings.profiles is not None:
        before, after = findings.profiles
        dispatches = Change(before.dispatches, after.dispatches)
        peak = Change(before.peak_activation_bytes, after.peak_activation_bytes)
        source = after.source
    return Report(
        status="unchanged" if rewritten is None else "optimized",
        provider=findings.provider,
        provider_note=findings.provider_note,
        target=findings.target,
        model=analysis.source.name,
        opset=analysis.graph.opset,
        ir_version=analysis.graph.ir_version,
        nodes=Change(nodes, len(rewritten.nodes) if rewritten else nodes),
        depth=Change(depth, deep(rewritten) if rewritten else depth),
        lanes=analysis.annotation.lanes,
        dispatches=dispatches,
        groups=tuple(_groups(analysis, draft)),
        refusals=draft.plan.refusals,
        verdict=findings.agreement.verdict,
        verdict_reason=findings.agreement.reason,
        outputs=tuple(
            AgreementRow(o.name, o.max_abs, o.max_rel, o.max_ulp, o.bitwise)
            for o in findings.agreement.outputs
        ),
        checks=findings.agreement.checks,
        peak=peak,
        peak_source=source,
        seconds=findings.seconds,
        latency=tuple(latency_row(c, s) for c, s in findings.raced),
        notes=(*findings.notes, *map(sentence, searched)),
        exact=searched,
        regions=region_rows(analysis, draft, findings.expected),
    )


def _searched(plan: Plan) -> Iterator[ExactRow]:
    """What an exact search for levels came to, in the main graph and in bodies where something is done."""
    for body, part in (("", plan), *plan.bodies):
        if part.optimum is not None:
            yield ExactRow(body, part.optimum)


def latency_row(condition: Condition, speedup: Speedup) -> LatencyRow:
    """A race as a row of the report."""
    return LatencyRow(
        dict(condition.sizes),
        condition.threads,
        speedup.before_us,
        speedup.after_us,
        speedup.ratio,
        speedup.low,
        speedup.high,
        speedup.pairs,
    )


def _groups(analysis: Analysis, draft: Draft) -> Iterator[GroupRow]:
    """The groups of the main graph, then those of bodies."""
    number = numbers(draft)
    parts = [(analysis, draft.rewritten, "", draft.plan)]
    plans = dict(draft.plan.bodies)
    parts += [(b.analysis, made, b.label, plans[b.label]) for b, made in draft.bodies]
    for part, rewritten, body, plan in parts:
        main, maps = _mains(rewritten), ends(part.circuit, plan.groups)
        for place, group in enumerate(plan.groups):
            end = maps.get(place) if place not in main else None
            node = main.get(place if end is None else end, "")
            row = _group(part, group, node, body, number[body, group.region])
            yield replace(row, taken_in=end is not None)


def _mains(rewritten: Rewritten | None) -> dict[int, str]:
    """The first node that computes a group's members, by the group's place in the plan."""
    found: dict[int, str] = {}
    for made in rewritten.nodes if rewritten else ():
        if made.main and made.group is not None:
            found.setdefault(made.group, made.proto.name)
    return found


def _group(
    analysis: Analysis,
    group: Group,
    node: str,
    body: str,
    region: int,
) -> GroupRow:
    return GroupRow(
        op_type=analysis.values.op(analysis.graph.nodes[group.units[0].nodes[0]]).op_type,
        size=group.size,
        level=group.level,
        form=group.form,
        node=node,
        members=tuple(node_label(analysis.graph, k) for u in group.units for k in u.nodes),
        body=body,
        region=region,
        firsts=analysis.circuit.labels(group.units),
        summed=group.summed,
    )


def deep(rewritten: Rewritten) -> int:
    """Layers of the new graph: the longest chain of its nodes."""
    level: dict[str, int] = {}
    deepest = 0
    for node in (m.proto for m in rewritten.nodes):
        if node.op_type == "Constant":
            continue
        mine = 1 + max((level.get(i, 0) for i in node.input), default=0)
        deepest = max(deepest, mine)
        level.update(dict.fromkeys(node.output, mine))
    return deepest
