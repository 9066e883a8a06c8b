"""Do two models give the same outputs? The original is the only reference.

Both run without the optimizations of ONNX Runtime (what the model says) and with them (as it will be
deployed). Like is compared with like; where the optimizations move the original further than the
tolerance, the unoptimized original may stand in, so that their faults are not taken for ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from onnx import ModelProto

from onnx_sched.errors import ModelError
from onnx_sched.judge.differences import compare_arrays, compare_kinds, compare_values
from onnx_sched.judge.precision import computed_in
from onnx_sched.judge.randomness import Randomness, randomness
from onnx_sched.judge.runtime import RuntimeRefused, open_session, run
from onnx_sched.judge.tolerances import Tolerances, parse_tolerances
from onnx_sched.judge.verdicts import OutputAgreement, Verdict, differs, merge, same, worst_verdict

__all__ = [
    "Agreement",
    "OutputAgreement",
    "Tolerances",
    "compare_arrays",
    "compare_runs",
    "parse_tolerances",
    "run_all",
    "validate",
]

Feed = Mapping[str, Any]
Outputs = dict[str, Any]
Runs = Callable[[Sequence[Feed], bool], list[Outputs | str]]

_RANDOM = "random without a seed: only type and shape were compared"
_RESEEDED = "random: with the optimizations of ONNX Runtime only type and shape were compared"
_OPTIMIZER = "the optimizations of ONNX Runtime move the original more than the tolerance"
_LEVELS = (False, True)  # without and with the optimizations of ONNX Runtime


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a rewritten model agrees with the original.

    Attributes:
        verdict: The worst of the outputs; `unvalidated` if no values could be compared.
        outputs: One entry per output of the original; empty if nothing ran.
        checks: How many runs of the rewritten model were compared.
        reason: Why not, or what was left out; empty if there is nothing to say.
    """

    verdict: Verdict
    outputs: tuple[OutputAgreement, ...]
    checks: int
    reason: str


def validate(
    original: bytes | Path,
    rewritten: bytes | Path,
    feeds: Sequence[Feed],
    provider: str,
    *,
    tolerances: Tolerances | None = None,
    threads: int | None = 1,
) -> Agreement:
    """Run both models on the same inputs and compare all outputs.

    Inputs that the original cannot run are left out and counted. Outputs that depend on random nodes
    without a seed are compared by type and shape only.

    Args:
        original: Serialized, or the path of its file.
        rewritten: Likewise.
        feeds: Inputs, each a dict of input name -> value.
        provider: `cpu`, `cuda` or a full name.
        tolerances: What the user asked for; otherwise the defaults for the coarsest type in which the
            original computes an output.
        threads: Threads within a node; None leaves it to ONNX Runtime.

    Raises:
        ModelError: The original is not an ONNX model, or cannot be read.
        ProviderError: The models would run elsewhere than on `provider`.
    """
    if not feeds:
        return Agreement("unvalidated", (), 0, "there are no inputs to run it on")
    proto = _skeleton(original)
    random = randomness(proto)
    computed = tuple(computed_in(proto).items())
    allowed = replace(tolerances or Tolerances(), computed_in=computed)

    def runs(model: bytes | Path) -> Runs:
        return lambda wanted, level: run_all(
            model, wanted, provider, level, threads, random.stateful
        )

    return compare_runs(runs(original), runs(rewritten), feeds, random, allowed)


def compare_runs(
    original: Runs,
    rewritten: Runs,
    feeds: Sequence[Feed],
    random: Randomness,
    tolerances: Tolerances,
) -> Agreement:
    """Compare what two things give for the same inputs; `validate` is this for two models.

    Args:
        original: The reference: what it gives for inputs, with the optimizations of ONNX Runtime or without.
        rewritten: Likewise.
        feeds: Inputs; one at least.
        random: Which outputs of the reference depend on random nodes.
        tolerances: What counts as the same.
    """
    before = [original(feeds, level) for level in _LEVELS]
    done = [
        {index: result for index, result in enumerate(results) if isinstance(result, dict)}
        for results in before
    ]
    if not any(done):
        return Agreement("unvalidated", (), 0, f"the original does not run: {before[0][0]}")
    judge = _Judge(random, tolerances)
    for level, own in zip(_LEVELS, done, strict=True):
        wanted = [feeds[index] for index in own]
        after = rewritten(wanted, level)
        for (index, ref), got in zip(own.items(), after, strict=True):
            judge.compare(done[0].get(index, ref), ref, got)
    skipped = [why for place, why in enumerate(before[0]) if not any(place in d for d in done)]
    note = f"{len(skipped)} of {len(feeds)} inputs left out: {skipped[0]}" if skipped else ""
    return judge.sum_up(note)


def _skeleton(model: bytes | Path) -> ModelProto:
    proto = ModelProto()
    try:
        proto.ParseFromString(model.read_bytes() if isinstance(model, Path) else model)
    except (OSError, DecodeError) as error:
        where = model if isinstance(model, Path) else "the model"
        raise ModelError(f"{where} cannot be read: {error}") from None
    return proto


def run_all(
    model: bytes | Path,
    feeds: Sequence[Feed],
    provider: str,
    optimize: bool,
    threads: int | None,
    fresh: bool,
) -> list[Outputs | str]:
    """The outputs for every feed, or why there are none.

    `fresh` opens a new session for every feed: random nodes go on counting within one.
    """
    results: list[Outputs | str] = []
    session = None
    for feed in feeds:
        try:
            if session is None or fresh:
                session = open_session(
                    model, provider, optimize=optimize, threads=threads, exact=True
                )
        except RuntimeRefused as error:
            return [str(error)] * len(feeds)
        try:
            results.append(run(session, feed))
        except RuntimeRefused as error:
            results.append(str(error))
    return results


class _Judge:
    """Collects comparisons against the runs of the original."""

    def __init__(self, random: Randomness, tolerances: Tolerances) -> None:
        self.random = random
        self.tolerances = tolerances
        self.parts: dict[str, list[OutputAgreement]] = {}
        self.failures: list[str] = []
        self.checks = 0

    def compare(self, plain: Outputs, own: Outputs, got: Outputs | str) -> None:
        """Compare a run of the rewritten model with the original at the same level, and plain."""
        self.checks += 1
        if isinstance(got, str):
            self.failures.append(f"the other model fails where the original runs: {got}")
            return
        for name, ref in own.items():
            if name not in got:
                part = differs(name, "the other model has no such output")
            elif name in self.random.unseeded:
                part = compare_kinds(name, ref, got[name], _RANDOM)
            else:
                part = self._compare(name, plain[name], ref, got[name])
            self.parts.setdefault(name, []).append(part)
        if list(got) != list(own):
            self.failures.append(f"outputs {', '.join(got)} instead of {', '.join(own)}")

    def _compare(self, name: str, plain: Any, own: Any, got: Any) -> OutputAgreement:
        """Compare one output with the original at the same level, or else with the plain one."""
        part = compare_values(name, own, got, self.tolerances)
        if own is plain:
            return part
        noise = compare_values(name, plain, own, self.tolerances)
        if part.verdict == "mismatch":
            second = compare_values(name, plain, got, self.tolerances)
            kinds = compare_kinds(name, own, got, "")
            if second.verdict != "mismatch":
                part = replace(second, note=_OPTIMIZER)
            elif name in self.random.seeded and noise.verdict == "mismatch":
                part = kinds if kinds.verdict == "mismatch" else same(name, 0, _RESEEDED)
        return replace(part, noise_abs=noise.max_abs)

    def sum_up(self, note: str) -> Agreement:
        """One verdict from all comparisons."""
        outputs = tuple(_not_vacuous(merge(parts)) for parts in self.parts.values())
        unsure = [part for part in outputs if part.verdict in ("mismatch", "unvalidated")]
        reasons = [*self.failures, *(f"{part.name}: {part.note}" for part in unsure), note]
        reason = "; ".join(filter(None, dict.fromkeys(reasons)))
        compared = [part.verdict for part in outputs if part.verdict != "unvalidated"]
        verdict = worst_verdict(compared) if compared else "unvalidated"
        return Agreement("mismatch" if self.failures else verdict, outputs, self.checks, reason)


def _not_vacuous(part: OutputAgreement) -> OutputAgreement:
    """An output without any comparable element proves nothing, though nothing differs."""
    if part.total or part.verdict != "bitwise":
        return part
    note = part.note or "empty with these inputs: nothing was compared"
    return replace(part, verdict="unvalidated", bitwise=False, note=note)
