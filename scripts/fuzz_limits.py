"""What a model gives in ONNX Runtime, and how far the outputs of another may lie apart from it.

How far follows from how far the original moves when its inputs and weights move by a few last bits.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnx_sched.judge.runtime import RuntimeRefused, open_session, run
from tests.random_models import make_feeds

Array = NDArray[Any]

SIZES = ((1, 3), (5, 2))
"""Batch and sequence length of each comparison."""

BASE = {"float64": 1e-9, "float32": 1e-4, "float16": 6e-3}
"""How far floats may always lie apart, relative to themselves and to their root mean square."""

NUDGE = {"float64": 1e-14, "float32": 1e-6, "float16": 1e-3}
"""Relative size of the perturbation that shows how well conditioned a model is."""

MARGIN = 30.0
"""How many times the effect of the perturbation is forgiven."""

MANY = 16
"""Perturbations that a model must stand where the result seems wrong: of two, none may meet a tie."""

HOPELESS = 0.05
"""Outputs that move by more than this part of their root mean square prove nothing."""


BLOCKED = "requested shape:{0,-1,"
"""What a node says that ONNX Runtime puts in where it keeps channels of convolutions in blocks.

It asks how many blocks there are, which nothing does not answer; the original is as exposed to that.
"""


class Skip(Exception):  # noqa: N818 - a signal to the judge
    """The model cannot judge anything."""


@dataclass(slots=True)
class Reference:
    """What the original gives for one set of feeds, and how far each output may be off.

    Attributes:
        feeds: The inputs.
        outputs: The original's outputs without optimizations.
        limits: By output: the largest error allowed for each element, None if nothing can be said.
    """

    feeds: dict[str, Array]
    outputs: dict[str, Array]
    limits: dict[str, Array | None] = field(default_factory=dict)


def line(error: Exception, length: int = 180) -> str:
    """A message on one line."""
    return " ".join(str(error).split())[:length]


def where(error: Exception) -> str:
    """An exception and the place in the optimizer where it came up."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "onnx_sched" in f.filename] or frames
    at = f"{Path(own[-1].filename).name}:{own[-1].lineno} {own[-1].name}"
    return " ".join(f"{type(error).__name__} at {at}: {error}".split())[:200]


def run_model(model: ModelProto, feeds: Iterable[Mapping[str, Array]], optimize: bool) -> list[Any]:
    """Outputs for each feed; each in a session of its own, since random nodes count their calls."""
    data = model.SerializeToString()
    return [run(open_session(data, "cpu", optimize=optimize), f) for f in feeds]


def is_sound(model: ModelProto) -> bool:
    """Whether onnx's full check accepts the original; it refuses files that are not in order."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        if "topologically sorted" not in str(error):
            raise Skip("the checker refuses the original") from None
        return False
    return True


def references(model: ModelProto, seed: int, nudges: int = 2) -> list[Reference]:
    """Run the original at every size, and with inputs and weights nudged so many times.

    With many nudges, half floats are also rounded wherever they stand: ONNX Runtime computes them in
    single precision as far as it can, and not as far in a result that is cut up elsewhere.
    """
    feeds = [make_feeds(model, n, s, seed + k) for k, (n, s) in enumerate(SIZES)]
    try:
        outputs = run_model(model, feeds, False)
    except RuntimeRefused as refused:
        raise Skip(line(refused)) from None
    references = [Reference(f, o) for f, o in zip(feeds, outputs, strict=True)]
    size = max((NUDGE[d] for d in float_types(model)), default=0.0)
    moved: list[list[dict[str, Any]]] = []
    for k in range(nudges):
        rng = np.random.default_rng([seed, k, 7])
        shaken = _nudged_model(model, rng, size)
        shaken_feeds = [{n: _nudged(a, rng, size) for n, a in f.items()} for f in feeds]
        try:
            moved.append(run_model(shaken, shaken_feeds, False))
        except RuntimeRefused:
            raise Skip("the original breaks when its weights move a little") from None
    rounded = [_rounded(model, f) for f in feeds] if nudges == MANY else [None]
    if None not in rounded:
        moved.append([r for r in rounded if r is not None])
    # A double may come of a float: rounding goes by the coarsest type in the model.
    base = max((BASE[d] for d in float_types(model)), default=0.0)
    for k, reference in enumerate(references):
        for name, array in reference.outputs.items():
            reference.limits[name] = _limit(array, [m[k][name] for m in moved], base)
    if all(limit is None for r in references for limit in r.limits.values()):
        raise Skip("every output is ill-conditioned")
    return references


def float_types(model: ModelProto) -> list[str]:
    """Types of floats that the model computes in, as far as its weights and casts say."""
    numbers = {t.data_type for t in model.graph.initializer}
    numbers |= {v.type.tensor_type.elem_type for v in model.graph.input}
    numbers |= {a.i for n in model.graph.node for a in n.attribute if a.name == "to"}
    names = {onnx.TensorProto.FLOAT: "float32", 10: "float16", 11: "float64"}
    return [names[n] for n in sorted(numbers) if n in names]


def _nudged(array: Array, rng: np.random.Generator, size: float) -> Array:
    """Floats moved by a few last bits; whole numbers stay, they are exponents and the like."""
    if array.dtype.kind != "f" or np.array_equal(array, np.round(array)):
        return array
    signs = rng.choice([-1.0, 1.0], array.shape)
    own = max(size, NUDGE.get(str(array.dtype), 0.0))
    with np.errstate(all="ignore"):
        return np.asarray(array * (1 + own * signs)).astype(array.dtype)


def _nudged_model(model: ModelProto, rng: np.random.Generator, size: float) -> ModelProto:
    """The model with its weights moved."""
    copy = ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if tensor.data_type in (1, 10, 11):
            array = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(_nudged(array, rng, size), tensor.name))
    return copy


def _rounded(model: ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array] | None:
    """What ONNX's reference, which rounds every half float, makes of a model that has some."""
    if "float16" not in float_types(model):
        return None
    copy = ModelProto()
    copy.CopyFrom(model)
    for opset in copy.opset_import:
        if opset.domain == "ai.onnx":  # it does not know the default domain by this name
            opset.domain = ""
    try:
        outputs = ReferenceEvaluator(copy).run(None, dict(feeds))
    except Exception:  # it lacks ops, and says so in many ways: then nothing is known
        return None
    return dict(zip([o.name for o in model.graph.output], map(np.asarray, outputs), strict=True))


def _limit(array: Array, moved: Sequence[Array], least: float) -> Array | None:
    """How far each element may be off; None where the output is too sensitive."""
    if any(m.shape != array.shape for m in moved):
        return None
    if array.dtype.kind != "f":
        exact = all(np.array_equal(array, m) for m in moved)
        return np.zeros(array.shape) if exact else None
    wide = array.astype(np.float64)
    finite = np.isfinite(wide)
    if any(not np.array_equal(np.isfinite(m), finite) for m in moved):
        return None
    size = float(np.sqrt(np.mean(np.square(wide[finite])))) if finite.any() else 0.0
    with np.errstate(all="ignore"):
        spread = max(
            (float(np.max(np.abs(m.astype(np.float64) - wide)[finite], initial=0)) for m in moved),
            default=0.0,
        )
    if spread > HOPELESS * max(size, 1e-3):
        return None
    base = max(BASE[str(array.dtype)], least)
    return np.asarray(base * np.abs(wide) + base * max(1.0, size) * 0.3 + MARGIN * spread)


def wider(limit: Array | None, want: Array, own: Array) -> Array | None:
    """A limit that also forgives what ONNX Runtime's optimizations do to the original."""
    if limit is None or want.shape != own.shape:
        return None
    if want.dtype.kind != "f":  # numbers of places, say: there is no near miss
        return limit if np.array_equal(want, own) else None
    with np.errstate(all="ignore"):
        apart = np.abs(want.astype(np.float64) - own.astype(np.float64))
    return np.asarray(limit + 3 * np.max(apart[np.isfinite(apart)], initial=0.0))


def differs(want: Array, got: Array, limit: Array | None) -> str:
    """How an output differs from what it should be; empty if it does not."""
    if want.dtype != got.dtype:
        return f"{got.dtype} instead of {want.dtype}"
    if want.shape != got.shape:
        return f"shape {got.shape} instead of {want.shape}" if limit is not None else ""
    if limit is None or not want.size:
        return ""
    if want.dtype.kind != "f":
        wrong = int(np.sum(want != got))
        return f"{wrong} of {want.size} elements differ" if wrong else ""
    if not np.array_equal(np.isnan(want), np.isnan(got)):
        return "NaN in other places"
    infinite = np.isinf(want)
    if not np.array_equal(infinite, np.isinf(got)) or np.any(want[infinite] != got[infinite]):
        return "Inf in other places"
    finite = np.isfinite(want)
    error = np.abs(want[finite].astype(np.float64) - got[finite].astype(np.float64))
    over = error > limit[finite]
    if not over.any():
        return ""
    return f"{int(over.sum())} of {want.size} elements are off by up to {error.max():.3g}"
