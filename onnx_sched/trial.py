"""Try a rewritten model: does it agree, how fast is it, how much memory does it take?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from onnx import ModelProto

from onnx_sched import files, writing
from onnx_sched.choose import Condition
from onnx_sched.constants import Const
from onnx_sched.judge import agree, feeds, profiling, runnable
from onnx_sched.judge.measure import Speedup, runner
from onnx_sched.judge.runtime import RuntimeRefused
from onnx_sched.judge.tolerances import Tolerances, parse_tolerances
from onnx_sched.options import Options
from onnx_sched.progress import Step
from onnx_sched.races import WHOLE, race

TIMED = 2
"""How many of the default sizes are raced: batch 1 and 32; the odd one is for checking only."""


Fed = tuple[tuple[tuple[str, int], ...], Mapping[str, Any]]
"""Sizes by name, and inputs of these sizes."""


@dataclass
class Trial:
    """Runs the original and rewritten models beside each other in a folder of its own.

    Attributes:
        folder: Where models are written.
        source: The original.
        options: What the user asked for.
        provider: Execution provider.
    """

    folder: Path
    source: files.Source
    options: Options
    provider: str
    _sets: list[Fed] = field(default_factory=list)
    _refusals: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        names = [o.name for o in self.source.model.graph.output]
        self._tolerances = parse_tolerances(self.options.rtol, self.options.atol, names)
        self._bindings = feeds.plan_sizes(
            feeds.input_specs(self.source.model), self.options.dims, self.options.shapes
        )

    @property
    def original(self) -> Path:
        """The original as a file."""
        if self.source.path is not None:
            return self.source.path
        path = self.folder / "original.onnx"
        if not path.exists():
            path.write_bytes(self.source.model.SerializeToString())
        return path

    def sets(self) -> list[Fed]:
        """The sizes and inputs to check with: the user's own, or seeded ones."""
        if not self._sets:
            given, model = self.options.inputs, self.source.model
            if isinstance(given, str | Path):
                self._sets = [((), f) for f in feeds.load_feeds(given, model)]
            elif given is not None:
                self._sets = [((), f) for f in feeds.fit_feeds(given, model)]
            else:
                for binding in self._bindings:
                    made = feeds.make_feeds(model, binding, self.options.seed)
                    self._sets.append((binding.dims, made))
        return self._sets

    def running(self) -> list[Fed]:
        """The sizes and inputs on which ONNX Runtime runs the original."""
        if self._refusals is None:
            inputs = [fed for _, fed in self.sets()]
            self._refusals = runnable.refusals(self.original, inputs, self.provider)
        return [fed for fed, why in zip(self.sets(), self._refusals, strict=True) if not why]

    def refused(self) -> str:
        """Why ONNX Runtime does not run the original; empty if it does.

        Where there was nothing to try it on inputs for, it is loaded only.
        """
        if not self._sets:
            return runnable.load_refusal(self.original, self.provider)
        return "" if self.running() else next(iter(self._refusals or ()), "")

    def conditions(self) -> tuple[Condition, ...]:
        """Where races are held: sizes asked for (or batch 1 and 32), and numbers of threads.

        Raises:
            RuntimeRefused: If the original runs at none of them.
        """
        timed = self.running()
        if not timed:
            raise RuntimeRefused(self.refused())
        if not self.options.dims and self.options.inputs is None:
            timed = timed[:TIMED]
        return tuple(
            Condition(sizes, fed, threads)
            for sizes, fed in timed
            for threads in dict.fromkeys(self.options.threads)
        )

    def write(self, model: ModelProto, fresh: Mapping[str, Const]) -> Path:
        """Put a rewritten model into the folder."""
        path = self.folder / "rewritten.onnx"
        data = (
            self.folder / "rewritten.onnx.data" if writing.needs_data(model, self.source) else None
        )
        writing.write(model, fresh, self.source, path, data)
        return path

    def check(self, path: Path) -> agree.Agreement:
        """Compare all outputs with the original's."""
        return self._compared(path, self._tolerances)

    def check_by_default(self, path: Path) -> agree.Agreement | None:
        """Likewise by the default tolerances; None if no others were asked for."""
        return self._compared(path, Tolerances()) if self._tolerances != Tolerances() else None

    def _compared(self, path: Path, tolerances: Tolerances) -> agree.Agreement:
        inputs = [fed for _, fed in self.sets()]
        return agree.validate(self.original, path, inputs, self.provider, tolerances=tolerances)

    def profiles(self, path: Path) -> tuple[profiling.Profile, profiling.Profile]:
        """What the runtime says of a run of both at the largest sizes that are timed."""
        fed = self.profiled()
        return (
            profiling.profile(self.original, fed, self.provider),
            profiling.profile(path, fed, self.provider),
        )

    def profiled(self) -> Mapping[str, Any]:
        """The inputs at which models are profiled: the largest sizes that are timed."""
        sets = self.running() or self.sets()
        return sets[min(len(sets), TIMED) - 1][1]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs at which the models were profiled; none if nothing was run."""
        fed = self.profiled() if self._sets else {}
        return {name: tuple(v.shape) for name, v in fed.items() if hasattr(v, "shape")}

    def race(self, path: Path, deadline: float) -> list[tuple[Condition, Speedup]]:
        """Race the whole model against the original under every condition."""
        found: list[tuple[Condition, Speedup]] = []
        conditions = self.conditions()
        for condition in conditions:
            self.options.progress(Step("race", len(found), len(conditions), condition.label))
            threads = condition.threads or None
            entered = [
                partial(runner, model, condition.feeds, self.provider, threads)
                for model in (self.original, path)
            ]
            speedup = race(entered, deadline)
            found.append((condition, speedup))
        return found

    def narrow(self) -> str:
        """The sizes at which alone races are held, if the user named them and others are possible."""
        options = self.options
        named = options.dims or options.shapes or options.inputs is not None
        if not named or not any(binding.dims for binding in self._bindings):
            return ""
        sizes = dict.fromkeys(condition.sizes for condition in self.conditions())
        labels = [", ".join(f"{name}={size}" for name, size in each) for each in sizes if each]
        return " and at ".join(labels) or "the sizes of the inputs given"


def undecided(
    races: Sequence[tuple[Condition, Speedup]],
) -> tuple[Condition, Speedup] | None:
    """The condition under which a model gained most, if it is not worth the change under any."""
    if any(s.low > WHOLE.worth for _, s in races):
        return None
    return max(races, key=lambda cs: cs[1].low, default=None)


def slower(races: Sequence[tuple[Condition, Speedup]]) -> tuple[Condition, Speedup] | None:
    """The condition under which a model lost most, if it is not safe under all."""
    lost = [(c, s) for c, s in races if s.low < WHOLE.safe]
    return min(lost, key=lambda cs: cs[1].ratio, default=None)
