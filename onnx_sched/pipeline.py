"""The whole flow: read, analyse, decide, rewrite, check, report."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from onnx_sched import agree, feeds, files, profiling, provider
from onnx_sched.analysis import Analysis, analyse
from onnx_sched.constants import Const
from onnx_sched.cost import profile_for
from onnx_sched.errors import MismatchError, UsageError
from onnx_sched.options import Options, skipper
from onnx_sched.passes.assemble import assemble, doubled
from onnx_sched.passes.rewrite import Rewritten, rewrite
from onnx_sched.plan import Group, Plan, Refusal
from onnx_sched.planner import decide
from onnx_sched.report.data import AgreementRow, Change, GroupRow, Report
from onnx_sched.result import Result
from onnx_sched.tolerances import parse_tolerances

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

OPSETS = range(7, 29)
"""Versions of the default domain whose forms are known."""


def optimize(model: ModelProto | Path | str | gs.Graph, options: Options) -> Result:
    """Rewrite a model and check the result; see `onnx_sched.optimize`."""
    begin = time.perf_counter()
    source, convert = take(model)
    chosen = provider.select_provider(options.provider) if options.check else None
    analysis = analyse(source)
    plan, rewritten = _decide(analysis, options, chosen.name if chosen else options.provider)
    notes: tuple[str, ...] = ()
    twice = doubled(source.model.graph.node)
    if twice:
        notes = (
            f"{len(twice)} node name(s) stood more than once, such as {twice[0]!r}: made distinct",
        )
        if rewritten is None:  # ONNX Runtime refuses the original; a byte copy would be no use
            rewritten = rewrite(analysis.circuit, Plan(), analysis.names, analysis.known)
    skeleton, fresh = source.model, dict[str, Const]()
    if rewritten is not None:
        skeleton = assemble(source.model, analysis.circuit, rewritten)
        fresh = rewritten.fresh
    with tempfile.TemporaryDirectory(prefix="onnx_sched_") as folder:
        checked = _Check(Path(folder), source, options, chosen)
        if rewritten is not None:
            checked.run(skeleton, fresh)
    report = _report(analysis, plan, rewritten, checked, chosen)
    report = replace(report, notes=notes, seconds=round(time.perf_counter() - begin, 3))
    if report.verdict == "mismatch":
        worst = next((o.name for o in report.outputs), "")
        raise MismatchError(
            f"{source.name}: the rewritten model disagrees with the original: "
            f"{report.verdict_reason or worst}",
            "Nothing was written. Please report this model; --skip-op or --skip-node leave parts alone.",
        )
    return Result(plan, report, source, skeleton, fresh, convert)


def take(
    model: ModelProto | Path | str | gs.Graph,
) -> tuple[files.Source, Callable[[ModelProto], Any] | None]:
    """A model in any form as a source, and how to give it back in the same form."""
    if isinstance(model, str | Path):
        return files.read(Path(model)), None
    if isinstance(model, ModelProto):
        source = files.Source(model, None)
        files.check(source)
        return source, None
    if type(model).__module__.startswith("onnx_graphsurgeon"):
        import onnx_graphsurgeon as gs

        source = files.Source(gs.export_onnx(model), None)
        files.check(source)
        return source, gs.import_onnx
    raise UsageError(
        f"a model must be a path, a ModelProto or an onnx_graphsurgeon.Graph, not {type(model).__name__}"
    )


def _decide(analysis: Analysis, options: Options, chosen: str) -> tuple[Plan, Rewritten | None]:
    skip = skipper(options, analysis.circuit)
    opset = analysis.graph.opset
    if opset not in OPSETS:
        reason = f"opset {opset} is outside {OPSETS[0]} to {OPSETS[-1]}, whose forms are known"
        return Plan(refusals=(Refusal("S204", reason, ()),)), None
    device = profile_for(chosen) if options.choose == "model" else None
    decided = decide(analysis, skip, device)
    return decided.plan, decided.rewritten


class _Check:
    """Runs both models and keeps what was seen."""

    def __init__(
        self,
        folder: Path,
        source: files.Source,
        options: Options,
        chosen: provider.SelectedProvider | None,
    ) -> None:
        self._folder = folder
        self._source = source
        self._options = options
        self._chosen = chosen
        self.agreement = agree.Agreement("unvalidated", (), 0, "nothing was changed")
        names = [o.name for o in source.model.graph.output]
        self._tolerances = parse_tolerances(options.rtol, options.atol, names)
        self._bindings = feeds.plan_sizes(
            feeds.input_specs(source.model), options.dims, options.shapes
        )
        self.before: profiling.Profile | None = None
        self.after: profiling.Profile | None = None

    def run(self, skeleton: ModelProto, fresh: dict[str, Const]) -> None:
        if self._chosen is None:
            self.agreement = agree.Agreement("unvalidated", (), 0, "validation was switched off")
            return
        sets = self._feeds()
        original = self._original()
        rewritten = self._folder / "rewritten.onnx"
        files.write(skeleton, fresh, self._source, rewritten, "rewritten.onnx.data")
        self.agreement = agree.validate(
            original, rewritten, sets, self._chosen.name, tolerances=self._tolerances
        )
        if self.agreement.verdict in ("bitwise", "within_tolerance"):
            self.before = profiling.profile(original, sets[0], self._chosen.name)
            self.after = profiling.profile(rewritten, sets[0], self._chosen.name)

    def _original(self) -> bytes | Path:
        if self._source.path is not None:
            return self._source.path
        path = self._folder / "original.onnx"
        path.write_bytes(self._source.model.SerializeToString())
        return path

    def _feeds(self) -> list[Any]:
        given = self._options.inputs
        model = self._source.model
        if isinstance(given, str | Path):
            return feeds.load_feeds(given, model)
        if given is not None:
            return list(given)
        return [feeds.make_feeds(model, b, self._options.seed) for b in self._bindings]


def _report(
    analysis: Analysis,
    plan: Plan,
    rewritten: Rewritten | None,
    checked: _Check,
    chosen: provider.SelectedProvider | None,
) -> Report:
    nodes = len(analysis.graph.nodes)
    depth = analysis.annotation.depth
    after, deep = nodes, depth
    if rewritten is not None:
        after = len(rewritten.nodes)
        deep = _depth(rewritten)
    before, now = checked.before, checked.after
    return Report(
        status="unchanged" if rewritten is None else "optimized",
        provider=chosen.name if chosen else "",
        provider_note=chosen.note if chosen else "",
        model=analysis.source.name,
        opset=analysis.graph.opset,
        ir_version=analysis.graph.ir_version,
        nodes=Change(nodes, after),
        depth=Change(depth, deep),
        lanes=analysis.annotation.lanes,
        dispatches=Change(before.dispatches if before else None, now.dispatches if now else None),
        groups=tuple(_row(analysis, n, g, rewritten) for n, g in enumerate(plan.groups)),
        refusals=plan.refusals,
        verdict=checked.agreement.verdict if rewritten is not None else "bitwise",
        verdict_reason=checked.agreement.reason
        if rewritten is not None
        else "the model is unchanged",
        outputs=tuple(
            AgreementRow(o.name, o.max_abs, o.max_rel, o.max_ulp, o.bitwise)
            for o in checked.agreement.outputs
        ),
        checks=checked.agreement.checks,
        peak=Change(
            before.peak_activation_bytes if before else None,
            now.peak_activation_bytes if now else None,
        ),
        peak_source=now.source if now else "not measured",
        seconds=0.0,
    )


def _row(analysis: Analysis, place: int, group: Group, rewritten: Rewritten | None) -> GroupRow:
    nodes = rewritten.nodes if rewritten else ()
    made = [m.proto.name for m in nodes if m.group == place and m.main]
    members = tuple(
        analysis.graph.nodes[k].name or analysis.graph.nodes[k].output[0]
        for u in group.units
        for k in u.nodes
    )
    kinds = analysis.graph.nodes[group.units[0].nodes[0]].op_type
    return GroupRow(kinds, group.size, group.level, group.form, made[0] if made else "", members)


def _depth(rewritten: Rewritten) -> int:
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
