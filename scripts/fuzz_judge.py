"""Optimize one random model, and see whether the result is right.

Every model is rewritten wherever that is legal, checked by onnx, compared in its interface, and run in
ONNX Runtime with optimizations off and on, at two batch sizes, against the original with optimizations
off.  The same again with the groups in other forms, drawn by the seed.  One model in four is fed NaN
and Inf as well, one in four an empty batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

import onnx_sched
from onnx_sched import planner, variants
from onnx_sched.analysis import analyse
from onnx_sched.assemble import assemble
from onnx_sched.circuit import Circuit
from onnx_sched.files import Source
from onnx_sched.find import regions
from onnx_sched.judge.runtime import RuntimeRefused
from onnx_sched.plan import Group
from onnx_sched.writing import fill_all
from scripts.fuzz_limits import (
    BLOCKED,
    MANY,
    SIZES,
    Array,
    Reference,
    Skip,
    differs,
    float_types,
    is_sound,
    line,
    references,
    run_model,
    where,
    wider,
)
from tests.random_models import BATCH_NAMES, REGRESSIONS, make_feeds, random_model

Case = int | str
"""A seed, or the name of a kept model."""

At = Callable[[str], None]
"""Is told what comes next, so that a crash can be laid at someone's door."""

ORIGINAL, REWRITTEN = "the original", "the result"


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


class Wrong(Exception):  # noqa: N818 - a signal inside this file
    """The optimizer made a mistake."""


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
            _check_form(model, result, sound, before)
            for optimize in (False, True):
                _compare(model, result, known, optimize, counts, at)
            if named or seed % 4 == 0:
                _check_wild(model, result, known[-1], seed, at)
            if named or seed % 4 == 1:
                _check_empty(model, result, seed, at)
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
    options = {variants.kind_key(g, circuit): variants.forms(g) for g in groups}
    options = {key: forms for key, forms in options.items() if len(forms) > 1}
    if seed is None:
        every = dict.fromkeys(f for forms in options.values() for f in forms)
        return [{key: f for key, forms in options.items() if f in forms} for f in every]
    rng = np.random.default_rng([seed, 11])
    drawn = {key: forms[int(rng.integers(len(forms)))] for key, forms in options.items()}
    return [drawn] if drawn else []


def _check_form(model: ModelProto, new: ModelProto, sound: bool, before: bytes) -> None:
    """The new model is valid, keeps interface, opset and IR version; the original is what it was."""
    if model.SerializeToString(deterministic=True) != before:
        raise Wrong("the original was changed")
    if sound or len(new.graph.node) != len(model.graph.node):
        try:
            onnx.checker.check_model(new, full_check=True)
        except Exception as error:  # the checker raises several kinds, and bare ones
            raise Wrong(f"the checker refuses the result: {line(error)}") from None
    weights = {t.name for t in new.graph.initializer} if model.ir_version < 4 else set()
    old_weights = {t.name for t in model.graph.initializer} if model.ir_version < 4 else set()
    asked = [v.SerializeToString() for v in model.graph.input if v.name not in old_weights]
    asks = [v.SerializeToString() for v in new.graph.input if v.name not in weights | old_weights]
    if asked != asks:
        raise Wrong("the inputs are others")
    if [v.SerializeToString() for v in model.graph.output] != [
        v.SerializeToString() for v in new.graph.output
    ]:
        raise Wrong("the outputs are others")
    if model.ir_version != new.ir_version or list(model.opset_import) != list(new.opset_import):
        raise Wrong("the IR version or an opset is another")
    twice = [n for n, c in Counter(n.name for n in new.graph.node if n.name).items() if c > 1]
    if twice:
        raise Wrong(f"two nodes are called {twice[0]!r}")


def _compare(
    model: ModelProto,
    new: ModelProto,
    references: Sequence[Reference],
    optimize: bool,
    counts: list[int],
    at: At,
) -> None:
    """Run the new model and compare every output."""
    level = "with" if optimize else "without"
    own: list[dict[str, Any]] | None = None
    if optimize:
        at(ORIGINAL)
        own = _tried(model, [r.feeds for r in references])
        at(REWRITTEN)
    try:
        results = run_model(new, [r.feeds for r in references], optimize)
    except RuntimeRefused as refused:
        if optimize and own is None:
            return
        raise Wrong(f"does not run {level} optimizations: {line(refused, 220)}") from None
    for k, (reference, got) in enumerate(zip(references, results, strict=True)):
        if list(got) != list(reference.outputs):
            raise Wrong("the outputs are others")
        for name, want in reference.outputs.items():
            limit = reference.limits[name]
            counts[0 if limit is not None else 1] += 1
            reason = differs(want, got[name], limit)
            if reason and own is not None:  # ONNX Runtime itself may move the original
                reason = differs(want, got[name], wider(limit, want, own[k][name]))
            if reason:
                sizes = "batch {}, length {}".format(*SIZES[k])
                raise Wrong(f"output {name!r} {level} optimizations at {sizes}: {reason}")


def _tried(model: ModelProto, feeds: Sequence[Mapping[str, Array]]) -> list[Any] | None:
    """Outputs with optimizations; None if ONNX Runtime breaks the model."""
    try:
        return run_model(model, feeds, True)
    except RuntimeRefused:
        return None


def _both(
    model: ModelProto, new: ModelProto, feeds: Mapping[str, Array], optimize: bool, at: At, fed: str
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Outputs of both models for special feeds; None if ONNX Runtime refuses them to the original."""
    when = f"{'with' if optimize else 'without'} optimizations {fed}"
    at(f"{ORIGINAL} {when}")
    try:
        want = run_model(model, [feeds], optimize)[0]
    except RuntimeRefused:
        return None
    at(f"{REWRITTEN} {when}")
    try:
        return want, run_model(new, [feeds], optimize)[0]
    except RuntimeRefused as refused:
        if BLOCKED in str(refused):
            return None
        raise Wrong(f"does not run {when}: {line(refused)}") from None


def _check_wild(
    model: ModelProto, new: ModelProto, reference: Reference, seed: int, at: At
) -> None:
    """With NaN and Inf among the inputs, both models have them in the same places.

    Where ONNX Runtime takes the largest or smallest of some numbers, it depends on their places whether
    NaN counts, and half floats overflow early: such models say nothing.  A Resize that interpolates lets
    NaN into a neighbour that it weighs with zero; batched it has no such neighbours across rows, so that
    there may be less of it.
    """
    choosing = ("MaxPool", "ReduceMax", "ReduceMin")
    if any(n.op_type in choosing for n in model.graph.node) or "float16" in float_types(model):
        return
    feeds = make_feeds(model, *SIZES[-1], seed + len(SIZES) - 1, wild=True)
    if (both := _both(model, new, feeds, False, at, "with NaN")) is None:
        return
    less = any(
        n.op_type == "Resize" and any(a.name == "mode" and a.s != b"nearest" for a in n.attribute)
        for n in model.graph.node
    )
    for name, a in both[0].items():
        if reference.limits[name] is None or a.dtype.kind != "f":
            continue
        b = both[1][name]
        fine = np.isfinite(a), np.isfinite(b)
        if a.shape != b.shape or not (
            np.array_equal(*fine) or (less and (fine[0] <= fine[1]).all())
        ):
            raise Wrong(f"output {name!r} with NaN and Inf fed: not finite in other places")


def _check_empty(model: ModelProto, new: ModelProto, seed: int, at: At) -> None:
    """An empty batch gives outputs of the same shapes, if the original takes one.

    What ONNX Runtime makes of a reduction over nothing follows no rule: such models are left out.
    """
    dims = [d for v in model.graph.input for d in v.type.tensor_type.shape.dim]
    reducing = ("Reduce", "Arg", "TopK", "Lp", "Hardmax", "Global")
    if any(n.op_type.startswith(reducing) for n in model.graph.node) or not any(
        d.dim_param in BATCH_NAMES for d in dims
    ):
        return
    feeds = make_feeds(model, 0, 2, seed)
    for optimize in (False, True):
        if (both := _both(model, new, feeds, optimize, at, "at batch 0")) is None:
            return
        for name, array in both[0].items():
            shape = both[1][name].shape
            if array.shape != shape:
                raise Wrong(f"output {name!r} at batch 0: shape {shape} instead of {array.shape}")


def _check_repeats(model: ModelProto, new: ModelProto) -> None:
    """The same model gives the same result."""
    again, _ = _optimized(model, Outcome(0, ""))
    if again.SerializeToString() != new.SerializeToString():
        raise Wrong("a second run gives another model")
