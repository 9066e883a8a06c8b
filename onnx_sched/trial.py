"""Try a rewritten model: does it agree, how fast is it, how much memory does it take?"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnx import ModelProto

from onnx_sched import files, writing
from onnx_sched.choose import MOST_ROUNDS, ROUNDS, SAFE, Condition, settled
from onnx_sched.constants import Const
from onnx_sched.judge import agree, feeds, profiling
from onnx_sched.judge.measure import Race, Speedup, runner
from onnx_sched.judge.tolerances import parse_tolerances
from onnx_sched.options import Options
from onnx_sched.progress import Step

TIMED = 2
"""How many of the default sizes are raced: batch 1 and 32; the odd one is for checking only."""


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
    _sets: list[tuple[tuple[tuple[str, int], ...], Mapping[str, Any]]] = field(default_factory=list)

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

    def sets(self) -> list[tuple[tuple[tuple[str, int], ...], Mapping[str, Any]]]:
        """The sizes and inputs to check with: the user's own, or seeded ones."""
        if not self._sets:
            given, model = self.options.inputs, self.source.model
            if isinstance(given, str | Path):
                self._sets = [((), f) for f in feeds.load_feeds(given, model)]
            elif given is not None:
                self._sets = [((), f) for f in given]
            else:
                for binding in self._bindings:
                    made = feeds.make_feeds(model, binding, self.options.seed)
                    self._sets.append((binding.dims, made))
        return self._sets

    def conditions(self) -> tuple[Condition, ...]:
        """Where races are held: sizes asked for (or batch 1 and 32), and numbers of threads."""
        timed = self.sets()
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
        data = self.folder / "rewritten.onnx.data" if writing.needs_data(model) else None
        writing.write(model, fresh, self.source, path, data)
        return path

    def check(self, path: Path) -> agree.Agreement:
        """Compare all outputs with the original's."""
        inputs = [fed for _, fed in self.sets()]
        return agree.validate(
            self.original, path, inputs, self.provider, tolerances=self._tolerances
        )

    def profiles(self, path: Path) -> tuple[profiling.Profile, profiling.Profile]:
        """What the runtime says of a run of both at the largest sizes that are timed."""
        fed = self.profiled()
        return (
            profiling.profile(self.original, fed, self.provider),
            profiling.profile(path, fed, self.provider),
        )

    def profiled(self) -> Mapping[str, Any]:
        """The inputs at which models are profiled: the largest sizes that are timed."""
        return self.sets()[min(len(self.sets()), TIMED) - 1][1]

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
                runner(model, condition.feeds, self.provider, threads)
                for model in (self.original, path)
            ]
            race = Race(entered)
            while True:
                race.run(ROUNDS)
                speedup = race.speedup(0, 1)
                if settled(speedup) or speedup.pairs >= MOST_ROUNDS or time.monotonic() > deadline:
                    break
            found.append((condition, speedup))
        return found


def slower(raced: Sequence[tuple[Condition, Speedup]]) -> tuple[Condition, Speedup] | None:
    """The condition under which a model lost most, if it is not safe under all."""
    lost = [(c, s) for c, s in raced if s.low < SAFE]
    return min(lost, key=lambda cs: cs[1].ratio, default=None)
