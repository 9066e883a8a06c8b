"""What each region would replace and become: its nodes, its glue, and what it is expected to gain.

Glue is what only brings lanes together or takes them apart: nodes at the borders of a region, and changes
of layout inside it that are no member's own work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnx import NodeProto

from onnx_sched.analysis import Analysis
from onnx_sched.choose import Condition
from onnx_sched.cost import FREE, Device, Estimate
from onnx_sched.judge.measure import Speedup
from onnx_sched.passes.rewrite import Made, Rewritten
from onnx_sched.payoff import SIZES, by_region, new_shapes
from onnx_sched.plan import Group, Plan
from onnx_sched.planner import Draft
from onnx_sched.report.data import EstimateRow, LatencyRow, RegionRow
from onnx_sched.report.lineage import LAYOUT, workers

Races = Mapping[int, Sequence[tuple[Condition, Speedup]]]
"""By unit of the main graph: how its region fared in a race of its own."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What is known about gains before the whole model is raced: a profile, and races of regions."""

    device: Device | None = None
    races: Races | None = None


def region_rows(analysis: Analysis, draft: Draft, expected: Expected) -> tuple[RegionRow, ...]:
    """A row for each region: those of the main graph, then those of bodies.

    Args:
        analysis: The original.
        draft: What was decided and made of it.
        expected: What is known about gains.
    """
    found: list[RegionRow] = []
    plans = dict(draft.plan.bodies)
    places = [("", analysis, draft.plan, draft.rewritten)]
    places += [(b.label, b.analysis, plans[b.label], made) for b, made in draft.bodies]
    for label, place, plan, made in places:
        if made is not None:
            found += _rows(place, plan, made, label, expected, len(found))
    return tuple(found)


def numbers(draft: Draft) -> dict[tuple[str, int], int]:
    """The running number, from 1, of every region by its body and its number there."""
    plans = {"": draft.plan, **dict(draft.plan.bodies)}
    labels = ["", *(body.label for body, _ in draft.bodies)]
    keys = dict.fromkeys((label, g.region) for label in labels for g in plans[label].groups)
    return {
        key: n for n, key in enumerate(sorted(keys, key=lambda k: (labels.index(k[0]), k[1])), 1)
    }


def _rows(
    analysis: Analysis, plan: Plan, made: Rewritten, label: str, expected: Expected, done: int
) -> list[RegionRow]:
    old = by_region(analysis, plan.groups, made)
    new: dict[int, list[Made]] = {}
    for node in made.nodes:
        if node.group is not None and node.proto.op_type not in FREE:
            new.setdefault(plan.groups[node.group].region, []).append(node)
    estimates = _Estimates(analysis, made, expected.device)
    rows = []
    members: dict[int, list[Group]] = {}
    for group in plan.groups:
        members.setdefault(group.region, []).append(group)
    for n, (region, groups) in enumerate(sorted(members.items()), done + 1):
        gone = [analysis.graph.nodes[k] for k in sorted(old.get(region, ()))]
        come = [m.proto for m in new.get(region, ())]
        glue = glue_of(new.get(region, ()), plan.groups, analysis)
        rows.append(
            RegionRow(
                number=n,
                body=label,
                lanes=max(g.size for g in groups),
                groups=len(groups),
                before=sum(node.op_type not in FREE for node in gone),
                after=len(come),
                glue=tuple(Counter(node.op_type for node in glue).most_common()),
                profile=expected.device.name if expected.device else "",
                estimates=estimates.of(gone, come, glue),
                latency=_raced(groups, expected.races or {}) if not label else (),
            )
        )
    return rows


def glue_of(made: Sequence[Made], groups: Sequence[Group], analysis: Analysis) -> list[NodeProto]:
    """The new nodes that only bring lanes together or take them apart."""
    nodes = analysis.graph.nodes
    places = {m.group for m in made if m.main and m.group is not None}
    op = analysis.values.op
    own = {n: {op(nodes[k]).op_type for u in groups[n].units for k in u.nodes} for n in places}
    looks = [
        (m.proto.op_type, m.group, own[m.group])
        if m.main and m.group is not None
        else (m.proto.op_type, None, ())
        for m in made
    ]
    return [
        m.proto
        for m, works in zip(made, workers(looks), strict=True)
        if not works and m.proto.op_type in LAYOUT
    ]


def _raced(groups: Sequence[Group], races: Races) -> tuple[LatencyRow, ...]:
    """The first race that a unit of a region took part in: its region may have grown since."""
    found = next((races[u.number] for g in groups for u in g.units if u.number in races), ())
    return tuple(
        LatencyRow(
            dict(c.sizes), c.threads, s.before_us, s.after_us, s.ratio, s.low, s.high, s.pairs
        )
        for c, s in found
    )


class _Estimates:
    """Estimated times of some nodes of one rewriting."""

    def __init__(self, analysis: Analysis, made: Rewritten, device: Device | None) -> None:
        self._by_size: dict[int, Estimate] = {}
        if device is None:
            return
        shapes = new_shapes(analysis, made)
        weights = set(analysis.values.constants) | set(made.fresh)
        open_sizes = any(isinstance(d, str) for shape in shapes.values() for d in shape)
        for size in SIZES if open_sizes else SIZES[:1]:
            self._by_size[size] = Estimate(device, shapes.get, weights.__contains__, size)

    def of(
        self, gone: Sequence[NodeProto], come: Sequence[NodeProto], glue: Sequence[NodeProto]
    ) -> tuple[EstimateRow, ...]:
        """Before, after, and the glue's share of that; a row for each size taken for open ones."""
        return tuple(
            EstimateRow(size, e.total(gone), e.total(come), e.total(glue))
            for size, e in self._by_size.items()
        )
