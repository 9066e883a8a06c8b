"""Optimize one random model, and see whether the result is right.

Every model is rewritten wherever that is legal, checked by onnx, compared in its interface, and run in
ONNX Runtime with optimizations off and on, at two batch sizes, against the original with optimizations
off.  The same again with the groups in other forms, drawn by the seed.  One model in four is fed NaN
and Inf as well, one in four an empty batch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from onnx import ModelProto

import onnx_sched
from onnx_sched import planner, variants
from onnx_sched.analysis import analyse
from onnx_sched.assemble import assemble
from onnx_sched.circuit import Circuit
from onnx_sched.files import Source
from onnx_sched.find import regions
from onnx_sched.plan import Group
from onnx_sched.writing import fill_all
from scripts.fuzz_laws import (
    ORIGINAL,
    REWRITTEN,
    At,
    Wrong,
    check_empty,
    check_form,
    check_wild,
    compare,
)
from scripts.fuzz_limits import MANY, Reference, Skip, is_sound, references, where
from tests.random_models import REGRESSIONS, random_model

Case = int | str
"""A seed, or the name of a kept model."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened to one model.

    Attributes:
        case: The seed or name that makes the model.
        status: "ok", "skipped" (nothing can be said), or "failed".
        reason: One line; empty if all went well.
        groups: "op type/form" of every group that was batched.
        refusals: Codes of what was not.
        compared: Outputs that were compared, and those too sensitive to be.
    """

    case: Case
    status: str
    reason: str = ""
    groups: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    compared: tuple[int, int] = (0, 0)


def judge(case: Case, at: At = lambda _: None) -> Outcome:
    """Optimize the model of a seed or of a name, and compare the result with it.

    Args:
        case: The seed or the name; a named model goes through every check.
        at: Is told whose turn it is.
    """
    model = REGRESSIONS[case]() if isinstance(case, str) else random_model(case)
    seed = 0 if isinstance(case, str) else case
    at(ORIGINAL)
    try:
        sound = is_sound(model)
        known = references(model, seed)
    except Skip as skip:
        return Outcome(case, "skipped", str(skip))
    outcome = _judged(case, model, sound, known, at)
    if outcome.status == "failed":  # is the model as steady as two nudges made it seem?
        at(ORIGINAL)
        try:
            known = references(model, seed, MANY)
        except Skip as skip:
            return Outcome(case, "skipped", str(skip))
        outcome = _judged(case, model, sound, known, at)
    return outcome


def _judged(
    case: Case, model: ModelProto, sound: bool, known: Sequence[Reference], at: At
) -> Outcome:
    """Optimize a model, and compare the result with what the original gives."""
    named = isinstance(case, str)
    seed = 0 if isinstance(case, str) else case
    found = Outcome(case, "failed")
    counts, other = [0, 0], False
    try:
        at(REWRITTEN)
        before = model.SerializeToString(deterministic=True)
        new, found = _optimized(model, found)
        for result in chain([new], _reformed(model, None if named else seed)):
            other = result is not new
            at(REWRITTEN)
            check_form(model, result, sound, before)
            for optimize in (False, True):
                compare(model, result, known, optimize, counts, at)
            if named or seed % 4 == 0:
                check_wild(model, result, known[-1], seed, at)
            if named or seed % 4 == 1:
                check_empty(model, result, seed, at)
        if named or seed % 8 == 0:
            _check_repeats(model, new)
    except Wrong as wrong:
        return replace(found, reason=f"in other forms, {wrong}" if other else str(wrong))
    return replace(found, status="ok", compared=(counts[0], counts[1]))


def _optimized(model: ModelProto, found: Outcome) -> tuple[ModelProto, Outcome]:
    """The new model, and what was batched in it."""
    try:
        result = onnx_sched.optimize(model, choose="always", provider="cpu", check=False)
        new = result.proto
    except Exception as error:  # whatever it is, it must not come out of the optimizer
        raise Wrong(f"raises {where(error)}") from error
    report = result.report.to_dict()
    groups = tuple(f"{g['op_type']}/{g['form']}" for g in report["groups"])
    return new, replace(found, groups=groups, refusals=tuple(r["code"] for r in report["refusals"]))


def _reformed(model: ModelProto, seed: int | None) -> Iterator[ModelProto]:
    """The model with its groups in other forms: drawn by a seed, or each form in turn."""
    try:
        analysis = analyse(Source(model, None))
        _, groups, _ = planner.legal(analysis, lambda _: False)
        for chosen in _choices(groups, analysis.circuit, seed):
            formed = regions(variants.formed(groups, chosen, analysis.circuit))
            rewritten, _ = planner.made(analysis, formed, [])
            if rewritten is not None:
                new = assemble(model, analysis.circuit, rewritten)
                fill_all(new, rewritten.fresh)
                yield new
    except Exception as error:  # as above
        raise Wrong(f"raises {where(error)}") from error


def _choices(
    groups: Sequence[Group], circuit: Circuit, seed: int | None
) -> list[dict[Hashable, str]]:
    """Forms by kind of group."""
    options = variants.choices(groups, circuit)
    if seed is None:
        every = dict.fromkeys(f for forms in options.values() for f in forms)
        return [{key: f for key, forms in options.items() if f in forms} for f in every]
    rng = np.random.default_rng([seed, 11])
    drawn = {key: forms[int(rng.integers(len(forms)))] for key, forms in options.items()}
    return [drawn] if drawn else []


def _check_repeats(model: ModelProto, new: ModelProto) -> None:
    """The same model gives the same result."""
    again, _ = _optimized(model, Outcome(0, ""))
    if again.SerializeToString() != new.SerializeToString():
        raise Wrong("a second run gives another model")
