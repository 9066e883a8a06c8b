"""Time two models against each other under one condition: cold, warm, paired and run by run.

The original is raced against itself in the same race.  What that shows is the noise floor: a
difference no larger than that is none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnx_sched.judge.measure import Race, Runner, bind
from onnx_sched.judge.opening import Setup, open_for
from onnx_sched.judge.ortlib import first_line, ort_errors
from onnx_sched.judge.runtime import RuntimeRefused

LEAST_PAIRS = 10
"""Taken even where the time is up: fewer have no honest interval."""

_CHUNK = 10
_COLD_SHARE, _WARM_SHARE, _SINGLE_SHARE = 0.2, 0.2, 0.2
_MOST_COLD = 5
_MOST_SINGLE = 1000
_WINDOWS_ALIKE = 0.05


Times = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Samples:
    """All that one process measured under one condition; times of a run in microseconds.

    Attributes:
        before, again, after: Paired samples: the original, the original once more, the other model.
        single_before, single_after: Times of single runs.
        create_before, create_after: Times that sessions took to open, in milliseconds.
        first_before, first_after: Times of the first run of each session, in milliseconds.
        settled: Whether the time of a run stood still when the warm-up ended.
    """

    before: Times
    again: Times
    after: Times
    single_before: Times
    single_after: Times
    create_before: Times
    create_after: Times
    first_before: Times
    first_after: Times
    settled: bool

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Samples:
        """From JSON."""
        times = {key: tuple(value) for key, value in data.items() if key != "settled"}
        return cls(**times, settled=bool(data["settled"]))


def time_models(
    before: Path,
    after: Path,
    feeds: Mapping[str, Any],
    setup: Setup,
    *,
    pairs: int,
    seconds: float,
    seed: int = 0,
) -> Samples:
    """Time two models on the same inputs.

    Args:
        before: The original.
        after: The other model.
        feeds: Inputs by name.
        setup: How to run both.
        pairs: Paired samples to take.
        seconds: Stop taking samples when this time is over; at least `LEAST_PAIRS` are taken.
        seed: Of the order of the samples.

    Raises:
        RuntimeRefused: A model does not load or run so.
        ProviderError: A model would run elsewhere.
    """
    start = time.monotonic()
    rng = np.random.default_rng(seed)
    try:
        cold = _cold((before, after), feeds, setup, seconds * _COLD_SHARE, rng)
        sessions = [open_for(model, setup) for model in (before, before, after)]
        runners = [bind(session, feeds, setup.provider) for session in sessions]
        warm = seconds * _WARM_SHARE / len(runners)
        stood_still = [settle(runner, most_seconds=warm) for runner in runners]
        race = Race(runners, seed)
        deadline = start + seconds * (1 - _SINGLE_SHARE)
        taken = 0
        while taken < pairs and (taken < LEAST_PAIRS or time.monotonic() < deadline):
            more = min(_CHUNK, pairs - taken)
            race.run(more)
            taken += more
        left = seconds * _SINGLE_SHARE
        single = single_runs((runners[0], runners[2]), rng, most_seconds=left, block=race.inner)
    except ort_errors() as error:
        raise RuntimeRefused(f"ONNX Runtime does not run the model: {first_line(error)}") from None
    paired = [tuple(map(float, race.samples(place))) for place in range(3)]
    return Samples(
        before=paired[0],
        again=paired[1],
        after=paired[2],
        single_before=single[0],
        single_after=single[1],
        create_before=tuple(cold[0][0]),
        create_after=tuple(cold[1][0]),
        first_before=tuple(cold[0][1]),
        first_after=tuple(cold[1][1]),
        settled=all(stood_still),
    )


def settle(
    once: Runner,
    *,
    least_seconds: float = 0.2,
    most_seconds: float = 2.0,
    least_runs: int = 10,
) -> bool:
    """Run until the time of a run stands still; returns whether it did before the time was over.

    Compares the medians of windows of ten runs or more: caches, clocks, arenas and the choice of kernels
    have settled when two neighbouring ones differ by less than 5%.
    """
    begin = time.monotonic()
    least_seconds = min(least_seconds, most_seconds)
    last = float("inf")
    runs = 0
    while True:
        window: list[int] = []
        until = time.monotonic() + least_seconds / 8
        while len(window) < least_runs or time.monotonic() < until:
            start = time.perf_counter_ns()
            once()
            window.append(time.perf_counter_ns() - start)
            # A model of seconds is not run ten times before the clock is looked at.
            if time.monotonic() - begin > most_seconds and runs + len(window) >= 2:
                return False
        runs += len(window)
        middle = float(np.median(window))
        still = abs(middle - last) < _WINDOWS_ALIKE * last
        if still and time.monotonic() - begin >= least_seconds / 2:
            return True
        last = middle


def single_runs(
    runners: Sequence[Runner],
    rng: np.random.Generator,
    *,
    most_seconds: float,
    block: int,
    most_runs: int = _MOST_SINGLE,
) -> list[Times]:
    """Time single runs of each runner, in blocks in random order: what percentiles are made of.

    The pairs of a race are means of many runs, which hide the slow ones.
    """
    until = time.monotonic() + most_seconds
    taken: list[list[float]] = [[] for _ in runners]
    while len(taken[0]) < most_runs and (len(taken[0]) < LEAST_PAIRS or time.monotonic() < until):
        size = min(block, most_runs - len(taken[0]))
        for place in rng.permutation(len(runners)):
            once = runners[place]
            for _ in range(size):
                start = time.perf_counter_ns()
                once()
                taken[place].append((time.perf_counter_ns() - start) / 1e3)
    return [tuple(row) for row in taken]


def _cold(
    models: tuple[Path, Path],
    feeds: Mapping[str, Any],
    setup: Setup,
    seconds: float,
    rng: np.random.Generator,
) -> list[tuple[list[float], list[float]]]:
    """For each model, in random order: times to open a session, and of its first run, in ms."""
    until = time.monotonic() + seconds
    found: list[tuple[list[float], list[float]]] = [([], []) for _ in models]
    while not found[0][0] or (len(found[0][0]) < _MOST_COLD and time.monotonic() < until):
        for place in rng.permutation(len(models)):
            begin = time.perf_counter()
            session = open_for(models[place], setup)
            opened = time.perf_counter()
            bind(session, feeds, setup.provider)
            done = time.perf_counter()
            found[place][0].append((opened - begin) * 1e3)
            found[place][1].append((done - opened) * 1e3)
            del session  # not part of what the next one takes
    return found
