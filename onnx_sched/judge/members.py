"""Does one model give what several gave, each run by itself? Is it faster than they, one after another?

    y_k = model_k(x), k < K: outputs y_0, y_1, ...; or their mean; or their stack along a new first axis

The models themselves are the only reference, and numpy joins what they give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from onnx import ModelProto

from onnx_sched.judge.agree import Agreement, Feed, Outputs, compare_runs, run_all
from onnx_sched.judge.measure import Runner, runner
from onnx_sched.judge.precision import coarser, computed_in
from onnx_sched.judge.profiling import Profile, profile
from onnx_sched.judge.randomness import randomness
from onnx_sched.judge.tolerances import Tolerances
from onnx_sched.reading import model_in

Join = Literal["outputs", "mean", "stack"]


@dataclass(frozen=True, slots=True)
class Members:
    """Several models that one model stands for.

    Attributes:
        paths: Their files.
        join: What becomes of their outputs in the one.
        outputs: The outputs of each of them.
        inputs: For each of them: its inputs, and which inputs of the one these are.
    """

    paths: tuple[Path, ...]
    join: Join
    outputs: tuple[str, ...]
    inputs: tuple[Mapping[str, str], ...]

    def feed(self, place: int, feed: Feed) -> dict[str, Any]:
        """What one of them reads of the inputs of the one."""
        return {own: feed[name] for own, name in self.inputs[place].items() if name in feed}

    def origin(self, output: str) -> str:
        """What an output of the one must be, in words that name the files."""
        if self.join != "outputs":
            return f"the {self.join} of {output} of {', '.join(map(str, self.paths))}"
        for place, path in enumerate(self.paths):
            for name in self.outputs:
                if output == f"{name}_{place}":
                    return f"{name} of {path}"
        return "an output of any of them"

    def joined(self, given: Sequence[Outputs]) -> Outputs | str:
        """What the one must give where they give this, or why there is no such thing."""
        found: Outputs = {}
        for name in self.outputs:
            values = [outputs[name] for outputs in given]
            if self.join == "outputs":
                found.update((f"{name}_{place}", value) for place, value in enumerate(values))
                continue
            shapes = {value.shape for value in values}
            if len(shapes) > 1:
                return f"output {name} has other shapes in other models: {sorted(shapes)}"
            found[name] = _mean(values) if self.join == "mean" else np.stack(values)
        return found


def _mean(values: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The mean, in double precision as long as it is not done."""
    with np.errstate(over="ignore", invalid="ignore"):  # of infinite values there is none either
        mean = np.mean([value.astype(np.float64) for value in values], axis=0)
        return np.asarray(mean).astype(values[0].dtype)


def members(paths: Sequence[Path], join: Join, *, separate_inputs: bool = False) -> Members:
    """Read what inputs and outputs models have.

    Args:
        paths: The models; all have the same outputs.
        join: What becomes of their outputs.
        separate_inputs: Whether each has inputs of its own: `x_0`, `x_1`, ...

    Raises:
        ModelError: If a file cannot be read.
    """
    models = [model_in(path) for path in paths]
    outputs = tuple(value.name for value in models[0].graph.output)
    inputs = tuple(_inputs(place, model, separate_inputs) for place, model in enumerate(models))
    return Members(tuple(paths), join, outputs, inputs)


def _inputs(place: int, model: ModelProto, separate: bool) -> Mapping[str, str]:
    """The inputs of a model, and what they are called in the one."""
    weights = {tensor.name for tensor in model.graph.initializer}
    found = {}
    for value in model.graph.input:
        own = f"{value.name}_{place}" if separate else value.name
        found[value.name] = f"m{place}/{value.name}" if value.name in weights else own
    return found


def validate_members(
    apart: Members,
    whole: Path,
    feeds: Sequence[Feed],
    provider: str,
    *,
    tolerances: Tolerances | None = None,
    threads: int | None = 1,
) -> Agreement:
    """Run the one and each of the several on the same inputs, and compare all outputs of the one.

    Args:
        apart: The several, each of which is run by itself.
        whole: The one.
        feeds: Inputs of the one.
        provider: `cpu`, `cuda` or a full name.
        tolerances: What the user asked for, by outputs of the one; otherwise the defaults for the coarsest
            type in which the several compute an output.
        threads: Threads within a node; None leaves it to ONNX Runtime.

    Raises:
        ModelError: A model cannot be read.
        ProviderError: The models would run elsewhere than on `provider`.
    """
    if not feeds:
        return Agreement("unvalidated", (), 0, "there are no inputs to run it on")
    random = randomness(model_in(whole))

    def run(path: Path, wanted: Sequence[Feed], level: bool) -> list[Outputs | str]:
        return run_all(path, wanted, provider, level, threads, random.stateful)

    return compare_runs(
        partial(_run_apart, apart, run),
        partial(run, whole),
        feeds,
        random,
        replace(tolerances or Tolerances(), computed_in=tuple(_computed_in(apart).items())),
    )


def _computed_in(apart: Members) -> dict[str, str]:
    """The coarsest type in which the several compute each output of the one."""
    found = [computed_in(model_in(path)) for path in apart.paths]
    if apart.join == "outputs":
        found = [
            {f"{name}_{place}": kind for name, kind in each.items()}
            for place, each in enumerate(found)
        ]
    return coarser(*found)


def _run_apart(
    apart: Members,
    run: Callable[[Path, Sequence[Feed], bool], list[Outputs | str]],
    feeds: Sequence[Feed],
    level: bool,
) -> list[Outputs | str]:
    """What the one must give for every feed, or which of the several does not run, and why."""
    columns = [
        run(path, [apart.feed(place, feed) for feed in feeds], level)
        for place, path in enumerate(apart.paths)
    ]
    found: list[Outputs | str] = []
    for row in zip(*columns, strict=True):
        pairs = zip(apart.paths, row, strict=True)
        failed = [f"{path}: {why}" for path, why in pairs if isinstance(why, str)]
        given = [outputs for outputs in row if isinstance(outputs, dict)]
        found.append(failed[0] if failed else apart.joined(given))
    return found


def one_after_another(apart: Members, feeds: Feed, provider: str, threads: int | None) -> Runner:
    """A function that runs each of the several once, in their order; joining what they give is not in it.

    Raises:
        RuntimeRefused: If one of them does not load or run.
    """
    each = [
        runner(path, apart.feed(place, feeds), provider, threads)
        for place, path in enumerate(apart.paths)
    ]

    def all_of_them() -> object:
        for once in each:
            once()
        return each

    return all_of_them


def profiles(apart: Members, feeds: Feed, provider: str) -> tuple[Profile, ...]:
    """What the runtime says of a run of each of the several.

    Raises:
        RuntimeRefused: If one of them does not load or run.
    """
    return tuple(
        profile(path, apart.feed(place, feeds), provider) for place, path in enumerate(apart.paths)
    )
