"""Optimize random models and see whether the results are right.

    python -m scripts.fuzz --count 20000 --seed 0 [--jobs 2] [--json FILE]

Every model is rewritten wherever that is legal, checked by onnx, compared in its interface, and run in
ONNX Runtime with optimizations off and on, at two batch sizes, against the original with optimizations
off.  The same again with the groups in other forms, drawn by the seed.  One model in four is fed NaN
and Inf as well, one in four an empty batch.  How far outputs may lie apart follows from how far the
original moves when its inputs and weights move by a few last bits.  Prints one line for each failure
and a summary; exits 1 if anything failed.
"""

from __future__ import annotations

import json
import multiprocessing as mp
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper

import onnx_sched
from onnx_sched import planner, variants
from onnx_sched.analysis import analyse
from onnx_sched.assemble import assemble
from onnx_sched.circuit import Circuit
from onnx_sched.files import Source
from onnx_sched.find import regions
from onnx_sched.judge.runtime import RuntimeRefused, open_session, run
from onnx_sched.plan import Group
from onnx_sched.writing import fill_all
from tests.random_models import BATCH_NAMES, REGRESSIONS, make_feeds, random_model

Array = NDArray[Any]
Case = int | str
"""A seed, or the name of a kept model."""

At = Callable[[str], None]
"""Is told what comes next, so that a crash can be laid at someone's door."""

SIZES = ((1, 3), (5, 2))
"""Batch and sequence length of each comparison."""

BASE = {"float64": 1e-9, "float32": 1e-4, "float16": 6e-3}
"""How far floats may always lie apart, relative to themselves and to their root mean square."""

NUDGE = {"float64": 1e-14, "float32": 1e-6, "float16": 1e-3}
"""Relative size of the perturbation that shows how well conditioned a model is."""

MARGIN = 30.0
"""How many times the effect of the perturbation is forgiven."""

HOPELESS = 0.05
"""Outputs that move by more than this part of their root mean square prove nothing."""

PATIENCE = 120.0
"""Seconds after which a model counts as hung."""

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


class Skip(Exception):  # noqa: N818 - a signal inside this file
    """The model cannot judge anything."""


class Wrong(Exception):  # noqa: N818 - a signal inside this file
    """The optimizer made a mistake."""


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


def judge(case: Case, at: At = lambda _: None) -> Outcome:
    """Optimize the model of a seed or of a name, and compare the result with it.

    Args:
        case: The seed or the name; a named model goes through every check.
        at: Is told whose turn it is.
    """
    named = isinstance(case, str)
    model = REGRESSIONS[case]() if isinstance(case, str) else random_model(case)
    seed = 0 if isinstance(case, str) else case
    at(ORIGINAL)
    try:
        sound = _is_sound(model)
        references = _references(model, seed)
    except Skip as skip:
        return Outcome(case, "skipped", str(skip))
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
                _compare(model, result, references, optimize, counts, at)
            if named or seed % 4 == 0:
                _check_wild(model, result, references[-1], seed, at)
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
        raise Wrong(f"raises {_where(error)}") from error
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
        raise Wrong(f"raises {_where(error)}") from error


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


def _where(error: Exception) -> str:
    """An exception and the place in the optimizer where it came up."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "onnx_sched" in f.filename] or frames
    at = f"{Path(own[-1].filename).name}:{own[-1].lineno} {own[-1].name}"
    return " ".join(f"{type(error).__name__} at {at}: {error}".split())[:200]


def _line(error: Exception, length: int = 180) -> str:
    """A message on one line."""
    return " ".join(str(error).split())[:length]


def _is_sound(model: ModelProto) -> bool:
    """Whether onnx's full check accepts the original; it refuses files that are not in order."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        if "topologically sorted" not in str(error):
            raise Skip("the checker refuses the original") from None
        return False
    return True


def _run(model: ModelProto, feeds: Iterable[Mapping[str, Array]], optimize: bool) -> list[Any]:
    """Outputs for each feed; each in a session of its own, since random nodes count their calls."""
    data = model.SerializeToString()
    return [run(open_session(data, "cpu", optimize=optimize), f) for f in feeds]


def _references(model: ModelProto, seed: int) -> list[Reference]:
    """Run the original at every size, and with inputs and weights nudged."""
    feeds = [make_feeds(model, n, s, seed + k) for k, (n, s) in enumerate(SIZES)]
    try:
        outputs = _run(model, feeds, False)
    except RuntimeRefused as refused:
        raise Skip(_line(refused)) from None
    references = [Reference(f, o) for f, o in zip(feeds, outputs, strict=True)]
    size = max((NUDGE[d] for d in _float_types(model)), default=0.0)
    moved: list[list[dict[str, Any]]] = []
    for k in range(2):
        rng = np.random.default_rng([seed, k, 7])
        shaken = _nudged_model(model, rng, size)
        shaken_feeds = [{n: _nudged(a, rng, size) for n, a in f.items()} for f in feeds]
        try:
            moved.append(_run(shaken, shaken_feeds, False))
        except RuntimeRefused:
            raise Skip("the original breaks when its weights move a little") from None
    for k, reference in enumerate(references):
        for name, array in reference.outputs.items():
            reference.limits[name] = _limit(array, [m[k][name] for m in moved])
    if all(limit is None for r in references for limit in r.limits.values()):
        raise Skip("every output is ill-conditioned")
    return references


def _float_types(model: ModelProto) -> list[str]:
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


def _limit(array: Array, moved: Sequence[Array]) -> Array | None:
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
    base = BASE[str(array.dtype)]
    return np.asarray(base * np.abs(wide) + base * max(1.0, size) * 0.3 + MARGIN * spread)


def _check_form(model: ModelProto, new: ModelProto, sound: bool, before: bytes) -> None:
    """The new model is valid, keeps interface, opset and IR version; the original is what it was."""
    if model.SerializeToString(deterministic=True) != before:
        raise Wrong("the original was changed")
    if sound or len(new.graph.node) != len(model.graph.node):
        try:
            onnx.checker.check_model(new, full_check=True)
        except Exception as error:  # the checker raises several kinds, and bare ones
            raise Wrong(f"the checker refuses the result: {_line(error)}") from None
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
        results = _run(new, [r.feeds for r in references], optimize)
    except RuntimeRefused as refused:
        if optimize and own is None:
            return
        raise Wrong(f"does not run {level} optimizations: {_line(refused, 220)}") from None
    for k, (reference, got) in enumerate(zip(references, results, strict=True)):
        if list(got) != list(reference.outputs):
            raise Wrong("the outputs are others")
        for name, want in reference.outputs.items():
            limit = reference.limits[name]
            counts[0 if limit is not None else 1] += 1
            reason = differs(want, got[name], limit)
            if reason and own is not None:  # ONNX Runtime itself may move the original
                reason = differs(want, got[name], _wider(limit, want, own[k][name]))
            if reason:
                sizes = "batch {}, length {}".format(*SIZES[k])
                raise Wrong(f"output {name!r} {level} optimizations at {sizes}: {reason}")


def _tried(model: ModelProto, feeds: Sequence[Mapping[str, Array]]) -> list[Any] | None:
    """Outputs with optimizations; None if ONNX Runtime breaks the model."""
    try:
        return _run(model, feeds, True)
    except RuntimeRefused:
        return None


def _wider(limit: Array | None, want: Array, own: Array) -> Array | None:
    """A limit that also forgives what ONNX Runtime's optimizations do to the original."""
    if limit is None or want.dtype.kind != "f" or want.shape != own.shape:
        return limit
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


def _check_wild(
    model: ModelProto, new: ModelProto, reference: Reference, seed: int, at: At
) -> None:
    """With NaN and Inf among the inputs, both models have them in the same places."""
    feeds = make_feeds(model, *SIZES[-1], seed + len(SIZES) - 1, wild=True)
    at(ORIGINAL)
    try:
        want = _run(model, [feeds], False)[0]
    except RuntimeRefused:
        return
    at(REWRITTEN)
    try:
        got = _run(new, [feeds], False)[0]
    except RuntimeRefused as refused:
        raise Wrong(f"does not run with NaN: {_line(refused)}") from None
    for name in want:
        if reference.limits[name] is None or want[name].dtype.kind != "f":
            continue
        a, b = want[name], got[name]
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            raise Wrong(f"output {name!r} with NaN and Inf fed: not finite in other places")


def _check_empty(model: ModelProto, new: ModelProto, seed: int, at: At) -> None:
    """An empty batch gives outputs of the same shapes, if the original takes one.

    What ONNX Runtime makes of a reduction over nothing follows no rule: such models are left out.
    """
    dims = [d for v in model.graph.input for d in v.type.tensor_type.shape.dim]
    reducing = ("Reduce", "Arg", "TopK", "Lp", "Hardmax", "Cumsum", "Global")
    if any(n.op_type.startswith(reducing) for n in model.graph.node) or not any(
        d.dim_param in BATCH_NAMES for d in dims
    ):
        return
    feeds = make_feeds(model, 0, 2, seed)
    for optimize in (False, True):
        level = "with" if optimize else "without"
        at(f"{ORIGINAL} at batch 0 {level} optimizations")
        try:
            want = _run(model, [feeds], optimize)[0]
        except RuntimeRefused:
            return
        at(f"{REWRITTEN} at batch 0 {level} optimizations")
        try:
            got = _run(new, [feeds], optimize)[0]
        except RuntimeRefused as refused:
            raise Wrong(
                f"does not run {level} optimizations at batch 0: {_line(refused)}"
            ) from None
        for name, array in want.items():
            if array.shape != got[name].shape:
                raise Wrong(
                    f"output {name!r} at batch 0: shape {got[name].shape} instead of {array.shape}"
                )


def _check_repeats(model: ModelProto, new: ModelProto) -> None:
    """The same model gives the same result."""
    again, _ = _optimized(model, Outcome(0, ""))
    if again.SerializeToString() != new.SerializeToString():
        raise Wrong("a second run gives another model")


# -- many ----------------------------------------------------------------------------------------------


def _work(pipe: Connection) -> None:
    """Judge the cases that come in until None comes."""
    while (case := pipe.recv()) is not None:
        try:
            pipe.send(judge(case, pipe.send))
        except Exception as error:  # a mistake of the generator or of the judge
            pipe.send(Outcome(case, "failed", f"the judge raises {_where(error)}"))


class _Worker:
    """A process that judges one case after another."""

    def __init__(self) -> None:
        context = mp.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.case: Case = -1
        self.stage = ""
        self.since = 0.0

    def give(self, case: Case) -> None:
        """Hand over a case."""
        self.case, self.stage, self.since = case, "", time.monotonic()
        self.pipe.send(case)

    def take(self) -> Outcome | None:
        """What the worker says next; None if it only says whose turn it is, or is still at work."""
        late = time.monotonic() - self.since > PATIENCE
        if not late and not self.pipe.poll():
            return None
        try:
            said = self.pipe.recv() if self.pipe.poll() else None
        except EOFError:
            self.process.join()
            said = None
        if isinstance(said, str):
            self.stage = said
            return None
        if isinstance(said, Outcome):
            return said
        what = "hangs" if late else f"crashes the process, exit code {self.process.exitcode}"
        status = "skipped" if self.stage.startswith(ORIGINAL) else "failed"
        return Outcome(self.case, status, f"{self.stage or 'the generator'} {what}")

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def outcomes(cases: Iterable[Case], jobs: int) -> Iterator[Outcome]:
    """Judge cases in processes of their own, so that a crash is an outcome, too."""
    left = iter(cases)
    workers: list[_Worker] = []
    for _ in range(jobs):
        if (case := next(left, None)) is not None:
            workers.append(_Worker())
            workers[-1].give(case)
    while workers:
        wait([w.pipe for w in workers], timeout=1.0)
        for worker in list(workers):
            if (outcome := worker.take()) is None:
                continue
            yield outcome
            case = next(left, None)
            if case is None or not worker.process.is_alive() or "hangs" in outcome.reason:
                worker.stop()
                workers.remove(worker)
            if case is not None:
                if worker not in workers:
                    workers.append(worker := _Worker())
                worker.give(case)


@click.command(help=(__doc__ or "").split("\n", 1)[0])
@click.option("--count", default=20000, show_default=True, help="Number of models.")
@click.option("--seed", default=0, show_default=True, help="The first seed.")
@click.option("--jobs", default=2, show_default=True, help="Worker processes.")
@click.option("--json", "target", type=click.Path(path_type=Path), help="Write the summary here.")
def main(count: int, seed: int, jobs: int, target: Path | None) -> None:
    """Judge many models and sum up."""
    begin = time.monotonic()
    status, groups, refusals, skipped = (Counter[str]() for _ in range(4))
    failures: list[Outcome] = []
    compared = np.zeros(2, int)
    batched = 0
    for outcome in outcomes(range(seed, seed + count), jobs):
        status[outcome.status] += 1
        groups.update(outcome.groups)
        refusals.update(outcome.refusals)
        compared += outcome.compared
        batched += bool(outcome.groups)
        if outcome.status == "skipped":
            skipped[outcome.reason[:60]] += 1
        if outcome.status == "failed":
            failures.append(outcome)
            print(f"{outcome.case}: {outcome.reason}", flush=True)
    summary = {
        "models": count,
        "status": dict(status),
        "batched": batched,
        "outputs_compared": int(compared[0]),
        "outputs_too_sensitive": int(compared[1]),
        "groups": dict(groups.most_common()),
        "refusals": dict(sorted(refusals.items())),
        "skipped": dict(skipped.most_common(20)),
        "failures": [{"case": f.case, "reason": f.reason} for f in failures],
        "seconds": round(time.monotonic() - begin, 1),
    }
    shown = {k: v for k, v in summary.items() if k != "failures"}
    print(json.dumps(shown, indent=2))
    if target is not None:
        target.write_text(json.dumps(summary, indent=2) + "\n")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
