"""Hold a merged model against the models that it was made of: does it give the same, and what did it buy?

Batching was checked and raced against the merged model already.  Here the reference is each model by itself.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from onnx_sched import files
from onnx_sched.choose import Condition
from onnx_sched.disagreement import flags
from onnx_sched.errors import MismatchError
from onnx_sched.judge.agree import Agreement
from onnx_sched.judge.critical_path import depth
from onnx_sched.judge.measure import Speedup, runner
from onnx_sched.judge.members import (
    Members,
    members,
    one_after_another,
    profiles,
    validate_members,
)
from onnx_sched.judge.profiling import Profile, profile
from onnx_sched.judge.runtime import RuntimeRefused
from onnx_sched.judge.tolerances import parse_tolerances
from onnx_sched.merge import Join, Merged
from onnx_sched.options import Options
from onnx_sched.progress import Step
from onnx_sched.races import race
from onnx_sched.reading import model_in
from onnx_sched.report.build import latency_row
from onnx_sched.report.data import AgreementRow, Change, Report
from onnx_sched.report.merge_data import Merge, MergedFile, MergeReport, Origin
from onnx_sched.report.merge_words import names
from onnx_sched.result import Result
from onnx_sched.trial import Trial

SHOWN = 3
"""Outputs that an error tells of."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was to become of which models.

    Attributes:
        paths: The models.
        join: What becomes of their outputs.
        separate_inputs: Whether each gets inputs of its own.
        output: Where the one is to be written.
    """

    paths: tuple[Path, ...]
    join: Join
    separate_inputs: bool
    output: Path


@dataclass(frozen=True, slots=True)
class _Seen:
    """What runs of the models and of the one showed."""

    agreement: Agreement
    apart: tuple[Profile, ...] = ()
    whole: Profile | None = None
    races: tuple[tuple[Condition, Speedup], ...] = ()
    notes: tuple[str, ...] = ()


def judged(merged: Merged, result: Result, asked: Asked, options: Options) -> Result:
    """The result of batching a merged model, with a report that compares it with the models themselves.

    Args:
        merged: The models as one, as they were put together.
        result: What batching made of it; it is not written yet.
        asked: What was merged, and where it goes.
        options: As for batching.

    Raises:
        MismatchError: If an output is not what the models give, each run by itself.
        ModelError: If a model cannot be read any more.
    """
    begin = time.perf_counter()
    apart = members(asked.paths, asked.join, separate_inputs=asked.separate_inputs)
    if options.check:
        with tempfile.TemporaryDirectory(prefix="onnx_sched_") as folder:
            whole = Path(folder) / "merged.onnx"
            result.save(whole)
            source = files.Source(merged.model, None)
            trial = Trial(Path(folder), source, options, result.report.provider)
            seen = _look(apart, whole, trial, asked)
    else:
        seen = _Seen(Agreement("unvalidated", (), 0, "validation was switched off"))
    took = time.perf_counter() - begin
    return replace(result, report=_report(merged, result.report, asked, apart, seen, took))


def _look(apart: Members, whole: Path, trial: Trial, asked: Asked) -> _Seen:
    """Compare outputs, count, and race."""
    options, provider = trial.options, trial.provider
    options.progress(Step("check"))
    outputs = [o.name for o in trial.source.model.graph.output]
    agreement = validate_members(
        apart,
        whole,
        [fed for _, fed in trial.sets()],
        provider,
        tolerances=parse_tolerances(options.rtol, options.atol, outputs),
    )
    if agreement.verdict == "mismatch":
        raise _disagrees(apart, agreement, asked.output, options)
    if agreement.verdict == "unvalidated" and not agreement.outputs:
        return _Seen(agreement)
    try:
        fed = trial.profiled()
        counted = profiles(apart, fed, provider), profile(whole, fed, provider)
        races = _race(apart, whole, trial)
    except RuntimeRefused as error:
        return _Seen(agreement, notes=(f"not raced against the models themselves: {error}",))
    return _Seen(agreement, *counted, races)


def _race(apart: Members, whole: Path, trial: Trial) -> tuple[tuple[Condition, Speedup], ...]:
    """Race the one against the models, one after another; not where nothing is to be measured here."""
    options = trial.options
    if options.target is not None or options.plan is not None:
        return ()
    deadline = time.monotonic() + options.time_limit / 2
    found: list[tuple[Condition, Speedup]] = []
    conditions = trial.conditions()
    for condition in conditions:
        options.progress(Step("race", len(found), len(conditions), condition.label))
        threads = condition.threads or None
        entered = [
            partial(one_after_another, apart, condition.feeds, trial.provider, threads),
            partial(runner, whole, condition.feeds, trial.provider, threads),
        ]
        found.append((condition, race(entered, deadline)))
    return tuple(found)


def _disagrees(apart: Members, seen: Agreement, output: Path, options: Options) -> MismatchError:
    """The error for a merged model that gives something else than the models do."""
    wrong = [
        f"{part.name} is not {apart.origin(part.name)}, run by itself: {part.note or 'it differs'}"
        for part in seen.outputs
        if part.verdict == "mismatch"
    ]
    more = f"; and {len(wrong) - SHOWN} more outputs" if len(wrong) > SHOWN else ""
    told = "; ".join(wrong[:SHOWN]) + more if wrong else seen.reason
    given = flags(options)
    return MismatchError(
        f"{names([str(path) for path in apart.paths])}: merged, they give something else: {told}",
        f"{output} was not written. "
        + (f"You asked for {given}; allow more, or " if given else "Please ")
        + "report these models.",
    )


def _report(
    merged: Merged, report: Report, asked: Asked, apart: Members, seen: _Seen, took: float
) -> MergeReport:
    """The report of batching, turned into one of merging: before are the models, after is the one."""
    told = [str(path) for path in asked.paths]
    whole = seen.whole
    merge = Merge(
        inputs=tuple(map(MergedFile, told, merged.nodes)),
        output=str(asked.output),
        join=asked.join,
        separate_inputs=asked.separate_inputs,
        nodes=len(merged.model.graph.node),
        weights_once=merged.shared.weights,
        nodes_once=merged.shared.nodes,
        bytes_saved=merged.shared.weight_bytes,
        batched=bool(report.groups),
        batching=report.latency,
        outputs=tuple(
            Origin(o.name, apart.origin(o.name), o.verdict) for o in seen.agreement.outputs
        ),
    )
    changed = {
        "status": "optimized",  # a model that was not there before, whether batched or not
        "model": names(told),
        "nodes": Change(sum(merged.nodes), report.nodes.after),
        "depth": Change(max(depth(model_in(path)) for path in asked.paths), report.depth.after),
        "dispatches": Change(None, None),
        "peak": Change(None, None),
        "verdict": seen.agreement.verdict,
        "verdict_reason": seen.agreement.reason,
        "outputs": tuple(
            AgreementRow(o.name, o.max_abs, o.max_rel, o.max_ulp, o.bitwise)
            for o in seen.agreement.outputs
        ),
        "checks": seen.agreement.checks,
        "latency": tuple(latency_row(c, s) for c, s in seen.races),
        "seconds": round(report.seconds + took, 3),
        "notes": (*report.notes, *seen.notes),
        "merge": merge,
    }
    if whole is not None:
        changed["dispatches"] = Change(_sum([p.dispatches for p in seen.apart]), whole.dispatches)
        peaks = _sum([p.peak_activation_bytes for p in seen.apart])
        changed["peak"] = Change(peaks, whole.peak_activation_bytes)
        changed["peak_source"] = f"before: the sum; {whole.source}"
    return MergeReport(**{**_values(report), **changed})


def _sum(numbers: Sequence[int | None]) -> int | None:
    """The sum, if all are known."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _values(report: Report) -> Mapping[str, Any]:
    return {field.name: getattr(report, field.name) for field in fields(report)}
