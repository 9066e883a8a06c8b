"""What a rewritten random model must fulfil: its form, its outputs, and what it does with strange inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

from onnx_sched.judge.runtime import RuntimeRefused
from scripts.fuzz_limits import (
    BLOCKED,
    SIZES,
    Array,
    Reference,
    differs,
    float_types,
    line,
    run_model,
    wider,
)
from tests.random_models import BATCH_NAMES, make_feeds

At = Callable[[str], None]
"""Is told what comes next, so that a crash can be laid at someone's door."""

ORIGINAL, REWRITTEN = "the original", "the result"


class Wrong(Exception):  # noqa: N818 - a signal to the judge
    """The optimizer made a mistake."""


def check_form(model: ModelProto, new: ModelProto, sound: bool, before: bytes) -> None:
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


def compare(
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


def check_wild(model: ModelProto, new: ModelProto, reference: Reference, seed: int, at: At) -> None:
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


def check_empty(model: ModelProto, new: ModelProto, seed: int, at: At) -> None:
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
