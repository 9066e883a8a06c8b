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

from onnx_sched import calls, cutting, diagonal, files, plan_file
from onnx_sched.analysis import analyse
from onnx_sched.assemble import assemble, doubled
from onnx_sched.choose import Chooser
from onnx_sched.constants import Const
from onnx_sched.cost import load, profile_for
from onnx_sched.disagreement import disagrees
from onnx_sched.errors import UsageError
from onnx_sched.judge.agree import Agreement
from onnx_sched.judge.profiling import Profile
from onnx_sched.judge.provider import SelectedProvider, select_provider
from onnx_sched.objections import Objection, too_large, too_slow, unfused, unmeasured
from onnx_sched.observe import Observer
from onnx_sched.options import BODIES, FUNCTIONS, Options, check_skips, skipper, unsummed
from onnx_sched.passes.rewrite import rewrite
from onnx_sched.plan import Plan, Refusal
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

UNUSED = "named; nothing was run on it"
"""Of a provider with `--no-check`."""

OPSETS = range(7, 29)
"""Versions of the default domain whose forms are known."""


def optimize(model: ModelProto | Path | str | gs.Graph, options: Options) -> Result:
    """Rewrite a model, check it and race it; see `onnx_sched.optimize`."""
    begin = time.perf_counter()
    options.progress(Step("read"))
    source, convert = take(model)
    named = options.provider.lower() != "auto"  # and never falls back, whether it is used or not
    provider = select_provider(options.provider) if options.check or named else None
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
    whole, names = seen.analysis, cutting.wanted(seen.analysis, options, replayed)
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
        run.note(cutting.stay_whole(len(wanted) - len(names)))
    findings = replace(run.findings, seconds=round(time.perf_counter() - begin, 3))
    report = build(whole, analysis, run.draft, findings)
    skeleton, fresh, shapes = run.skeleton, run.fresh, trial.shapes()
    return Result(
        run.draft.plan, report, source, skeleton, fresh, convert, nonempty, analysis, shapes
    )


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
        self._provider = provider if options.check else None
        self._trial = trial
        self._deadline = time.monotonic() + options.time_limit
        self.findings = Findings(
            provider=provider.name if provider else "",
            provider_note=(provider.note if options.check else UNUSED) if provider else "",
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
        told = device.name if target is not None else ""
        self.findings = replace(self.findings, expected=Expected(device), target=told)
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
        if wanted != "always" and not self._races:
            self.note(f"decided by the profile {device.name}: estimated, not measured")
        if self._races and self._provider is not None:
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
        plan = cutting.told(draft.plan, self._analysis, self._options)
        self._take(replace(draft, plan=plan))

    @property
    def _races(self) -> bool:
        """Whether races decide: then what could not be compared and raced must not be changed."""
        options = self._options
        asked = options.choose == "measured" and options.target is None and options.plan is None
        return asked and self._provider is not None

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
        """Check the rewritten model, take regions back while it is slower or too large, and tell.

        Raises:
            MismatchError: If it gives other outputs than the original.
        """
        if self._provider is None:
            if self.draft.rewritten is not None:
                self._unvalidated("validation was switched off")
            return
        while self.draft.rewritten is not None:
            path = self._trial.write(self.skeleton, self.fresh)
            self._check(path)
            found = self._objection(path)
            if found is None:
                break
            plan = self.draft.plan
            self._take(without(self._analysis, plan, found.sites, found.code, found.reason))
            if self.draft.rewritten is None:
                unchanged = Agreement("bitwise", (), 0, "the model is unchanged")
                self.findings = replace(self.findings, agreement=unchanged, profiles=None, raced=())
        self._tell()

    def _tell(self) -> None:
        """Note that the original does not run, or that it was raced at some sizes only."""
        refused = self._trial.refused()
        if refused:
            self.note(
                f"the original does not run, so that nothing was compared or measured: {refused}"
            )
            if self.draft.rewritten is None:
                self._unvalidated(f"the original does not run: {refused}")
        narrow = self._trial.narrow() if self.findings.raced else ""
        if narrow:
            self.note(f"raced at {narrow} only; other sizes may be slower")

    def _unvalidated(self, why: str) -> None:
        unsure = Agreement("unvalidated", (), 0, why)
        self.findings = replace(self.findings, agreement=unsure)

    def _check(self, path: Path) -> None:
        self._options.progress(Step("check"))
        agreement = self._trial.check(path)
        if agreement.verdict == "mismatch":
            by_default = self._trial.check_by_default(path)
            name = self._analysis.source.name
            raise disagrees(name, agreement, self._options, by_default)
        profiles: tuple[Profile, Profile] | None = None
        if agreement.verdict != "unvalidated" and self._trial.running():
            profiles = self._trial.profiles(path)
        self.findings = replace(self.findings, agreement=agreement, profiles=profiles)

    def _objection(self, path: Path) -> Objection | None:
        """What speaks against the plan, if anything does; the cheapest to see goes first."""
        options, plan = self._options, self.draft.plan
        if options.plan is not None or not (plan.groups or plan.bodies):
            return None
        if self.findings.profiles is None:
            why = self._trial.refused() or self.findings.agreement.reason
            return unmeasured(why, plan) if self._races else None
        lost = unfused(self.findings.profiles, plan)
        if lost is not None or options.choose == "always":
            return lost
        large = too_large(self.findings.profiles, plan, options.max_activation)
        if large is not None or not self._races:
            return large
        raced = self._trial.race(path, self._deadline + options.time_limit / 2)
        self.findings = replace(self.findings, raced=tuple(raced))
        return too_slow(raced, plan)
