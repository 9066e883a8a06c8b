"""The whole flow: read, analyse, decide, rewrite, check, measure, report."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from onnx_sched import calls, diagonal, files, plan_file
from onnx_sched.analysis import Analysis, analyse
from onnx_sched.assemble import assemble, doubled
from onnx_sched.choose import Chooser
from onnx_sched.constants import Const
from onnx_sched.cost import load, profile_for
from onnx_sched.errors import MismatchError, UsageError
from onnx_sched.judge.agree import Agreement
from onnx_sched.judge.profiling import Profile
from onnx_sched.judge.provider import SelectedProvider, select_provider
from onnx_sched.objections import Objection, too_large, too_slow, unfused
from onnx_sched.observe import Observer
from onnx_sched.options import BODIES, FUNCTIONS, Options, check_skips, skipper, unsummed
from onnx_sched.passes.rewrite import rewrite
from onnx_sched.plan import Plan, Refusal
from onnx_sched.plan_rows import Part
from onnx_sched.planner import (
    Draft,
    measured_plan,
    modelled_plan,
    planned_bodies,
    with_bodies,
    without,
)
from onnx_sched.progress import Step
from onnx_sched.replay import replayed_plan
from onnx_sched.report.build import Findings, build
from onnx_sched.report.region_rows import Expected
from onnx_sched.result import Result
from onnx_sched.trial import Trial

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

OPSETS = range(7, 29)
"""Versions of the default domain whose forms are known."""


def optimize(model: ModelProto | Path | str | gs.Graph, options: Options) -> Result:
    """Rewrite a model, check it and race it; see `onnx_sched.optimize`."""
    begin = time.perf_counter()
    options.progress(Step("read"))
    source, convert = take(model)
    provider = select_provider(options.provider) if options.check else None
    replayed = plan_file.read(options.plan) if options.plan is not None else None
    nonempty = options.nonempty or bool(replayed and replayed.get("nonempty"))
    options.progress(Step("analyse"))
    check_skips(options, source.model)
    saved = plan_file.unsummed(replayed) if replayed is not None else None
    analysis = analyse(source, nonempty=nonempty, unsummed=saved or unsummed(options))
    if replayed is not None and options.plan is not None:
        seen = calls.replayed(analysis, plan_file.inlined(replayed), options.plan)
    elif FUNCTIONS in options.skip_passes:
        seen = calls.Opened(analysis)
    else:
        seen = calls.opened(analysis, partial(skipper, options))
    whole, names = seen.analysis, _to_cut(seen.analysis, options, replayed)
    wanted = names
    with tempfile.TemporaryDirectory(prefix="onnx_sched_") as folder:
        trial = Trial(Path(folder), source, options, provider.name if provider else "")
        while True:
            made = diagonal.cut(whole, names) if names else None
            seen = calls.Opened(made.analysis if made else whole, seen.functions, names)
            run = _Run(seen, options, provider, trial)
            run.decide(replayed)
            run.settle()
            left = diagonal.kept(run.draft.plan, made.parts) if made else ()
            if replayed is not None or left == names:
                break
            names = left  # what is cut and not batched had better stay whole
    analysis = seen.analysis
    if len(names) < len(wanted):
        run.note(
            f"{len(wanted) - len(names)} block-diagonal product(s) stay whole: cut, they would not pay"
        )
    findings = replace(run.findings, seconds=round(time.perf_counter() - begin, 3))
    report = build(whole, analysis, run.draft, findings)
    skeleton, fresh, shapes = run.skeleton, run.fresh, trial.shapes()
    return Result(
        run.draft.plan, report, source, skeleton, fresh, convert, nonempty, analysis, shapes
    )


def _to_cut(
    analysis: Analysis, options: Options, replayed: dict[str, Any] | None
) -> tuple[str, ...]:
    """The results of the products that are to be cut into blocks: the plan's, or all there are."""
    if replayed is None and not options.assume_finite:
        return ()
    skip = skipper(options, analysis.circuit)
    found = [unit for unit, _ in diagonal.products(analysis.circuit) if not skip(unit)]
    there = tuple(unit.outputs[0] for unit in found)
    if replayed is None:
        return there
    wanted = tuple(replayed.get("cut", ()))
    missing = [name for name in wanted if name not in there]
    if missing:
        what = f"cuts the product that makes {missing[0]}, and this model has no such product"
        raise Part(options.plan or Path()).wrong(what)
    return wanted


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
    given = type(model).__name__
    raise UsageError(f"a model must be a path, a ModelProto or a graphsurgeon Graph, not {given}")


class _Run:
    """One run of `optimize`: what was decided, what was made of it, what was seen."""

    def __init__(
        self,
        seen: calls.Opened,
        options: Options,
        provider: SelectedProvider | None,
        trial: Trial,
    ) -> None:
        self._analysis = seen.analysis
        self._inlined = seen.functions
        self._cut = seen.cut
        self._options = options
        self._provider = provider
        self._trial = trial
        self._deadline = time.monotonic() + options.time_limit
        self.findings = Findings(
            provider=provider.name if provider else "",
            provider_note=provider.note if provider else "",
            agreement=Agreement("bitwise", (), 0, "the model is unchanged"),
        )
        self.draft = Draft(Plan(), None)
        self.skeleton: ModelProto = trial.source.model
        self.fresh: dict[str, Const] = {}

    def decide(self, replayed: dict[str, Any] | None) -> None:
        """Make a plan, or take one from a file, and the graph that it asks for."""
        self._options.progress(Step("plan"))
        name = self._provider.name if self._provider else self._options.provider
        target = self._options.target
        device = load(target) if target is not None else profile_for(name)
        self.findings = replace(self.findings, expected=Expected(device))
        skips = partial(skipper, self._options)
        skip = skips(self._analysis.circuit)
        opset = self._analysis.graph.opset
        if opset not in OPSETS:
            reason = f"opset {opset} is outside {OPSETS[0]} to {OPSETS[-1]}, whose forms are known"
            self.draft = Draft(Plan(refusals=(Refusal("S204", reason, ()),)), None)
            return
        if replayed is not None and self._options.plan is not None:
            path = self._options.plan
            without = self._options.skip_passes
            asked = plan_file.Asked(skips, unsummed(self._options), without)
            plan = plan_file.to_plan(replayed, self._analysis, path, asked)
            self._take(replayed_plan(self._analysis, plan, path))
            return
        wanted, search = self._options.choose, self._options.search
        pays = device if wanted != "always" else None
        if wanted != "always" and (wanted == "model" or target is not None):
            self.note(f"decided by the profile {device.name}: estimated, not measured")
        if wanted == "measured" and target is None and self._provider is not None:
            chooser = Chooser(
                self._analysis,
                device,
                self._provider.name,
                self._trial.conditions,
                Observer(self._analysis.source, self._provider.name).values,
                self._deadline,
                self._options.progress,
            )
            draft = measured_plan(self._analysis, skip, chooser, search)
            self.findings = replace(self.findings, expected=Expected(device, chooser.raced))
        else:
            draft = modelled_plan(self._analysis, skip, pays, search)
        aside = BODIES in self._options.skip_passes
        inner = {} if aside else planned_bodies(self._analysis, skips, pays, search)
        draft = with_bodies(self._analysis, draft, inner)
        self._take(replace(draft, plan=self._with_blocks_told(draft.plan)))

    def _with_blocks_told(self, plan: Plan) -> Plan:
        """The plan with S306 for products that would be cut if that were promised to be harmless."""
        if self._options.assume_finite:
            return plan
        taken = {u.number for g in plan.groups for u in g.units}
        circuit = self._analysis.circuit
        found = [u for u, _ in diagonal.products(circuit) if u.number not in taken]
        if not found:
            return plan
        reason = (
            "the weight is block-diagonal; --assume-finite lets its blocks run as one batched node"
        )
        told = Refusal("S306", reason, circuit.labels(found))
        return replace(plan, refusals=(*plan.refusals, told))

    def _take(self, draft: Draft) -> None:
        analysis = self._analysis
        twice = doubled(analysis.source.model.graph.node)
        if twice:
            self.note(f"{len(twice)} node name(s) such as {twice[0]!r} stood twice: made distinct")
            if draft.rewritten is None:  # ONNX Runtime refuses the original: a copy would be no use
                same = rewrite(analysis.circuit, Plan(), analysis.names, analysis.known)
                draft = replace(draft, rewritten=same)
        if draft.rewritten is not None:
            plan = replace(draft.plan, inlined=self._inlined, cut=self._cut)
            draft = replace(draft, plan=plan)
            for domain, name in self._inlined:
                self.note(f"calls of function {domain}::{name} were replaced by its nodes")
        self.draft = draft
        self.skeleton, self.fresh = self._trial.source.model, {}
        if draft.rewritten is not None:
            inner = draft.bodies
            model = analysis.source.model
            self.skeleton = assemble(model, analysis.circuit, draft.rewritten, inner)
            for made in (draft.rewritten, *(m for _, m in inner)):
                self.fresh.update(made.fresh)

    def note(self, note: str) -> None:
        """Add a note to the findings, once."""
        if note not in self.findings.notes:
            self.findings = replace(self.findings, notes=(*self.findings.notes, note))

    def settle(self) -> None:
        """Check the rewritten model, and take regions back while it is slower or too large.

        Raises:
            MismatchError: If it gives other outputs than the original.
        """
        while self.draft.rewritten is not None:
            if self._provider is None:
                why = "validation was switched off"
                self.findings = replace(
                    self.findings, agreement=Agreement("unvalidated", (), 0, why)
                )
                return
            path = self._trial.write(self.skeleton, self.fresh)
            self._check(path)
            done = self.draft.plan.groups or self.draft.plan.bodies
            if self.findings.agreement.verdict == "unvalidated" or not done:
                return
            if self._options.plan is not None:
                return
            found = self._objection(path)
            if found is None:
                return
            plan = self.draft.plan
            self._take(without(self._analysis, plan, found.sites, found.code, found.reason))
            if self.draft.rewritten is None:
                unchanged = Agreement("bitwise", (), 0, "the model is unchanged")
                self.findings = replace(self.findings, agreement=unchanged, profiles=None, raced=())

    def _check(self, path: Path) -> None:
        self._options.progress(Step("check"))
        agreement = self._trial.check(path)
        if agreement.verdict == "mismatch":
            raise MismatchError(
                f"{self._analysis.source.name}: the rewritten model disagrees with the original: "
                f"{agreement.reason or 'outputs differ'}",
                "Nothing was written. Please report this model; --skip-op and --skip-node leave "
                "parts alone.",
            )
        profiles: tuple[Profile, Profile] | None = None
        if agreement.verdict != "unvalidated":
            profiles = self._trial.profiles(path)
        self.findings = replace(self.findings, agreement=agreement, profiles=profiles)

    def _objection(self, path: Path) -> Objection | None:
        """What speaks against the plan, if anything does; the cheapest to see goes first."""
        options, plan = self._options, self.draft.plan
        if self.findings.profiles is None:
            return None
        lost = unfused(self.findings.profiles, plan)
        if lost is not None or options.choose == "always":
            return lost
        large = too_large(self.findings.profiles, plan, options.max_activation)
        if large is not None or options.choose != "measured" or options.target is not None:
            return large
        raced = self._trial.race(path, self._deadline + options.time_limit / 2)
        self.findings = replace(self.findings, raced=tuple(raced))
        return too_slow(raced, plan)
