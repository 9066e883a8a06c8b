"""Time two models against each other under one condition: cold, warm, paired and run by run.

The original is raced against itself in the same race.  What that shows is the noise floor: a
difference no larger than that is none.

The session that is opened first is slower by a percent or two on some machines, for nothing but where its
memory lies.  So all sessions are opened anew several times, each model taking every place in turn.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from onnx_sched.judge.measure import Race, Runner, bind
from onnx_sched.judge.opening import Setup, open_for
from onnx_sched.judge.ortlib import first_line, ort_errors
from onnx_sched.judge.runtime import RuntimeRefused

LEAST_PAIRS = 10
"""Taken of every opening, even where the time is up: fewer have no honest interval."""

ORDERS = ((0, 1, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0), (1, 0, 2), (0, 2, 1))
"""In which order the sessions are opened: after three openings each has been in every place."""

_FEWEST, _PATIENCE = 3, 3.0

_CHUNK = 10
_WARM_SHARE, _SINGLE_SHARE = 0.3, 0.2
_MOST_SINGLE = 1000
_WINDOWS_ALIKE = 0.05


Times = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Samples:
    """All that was measured under one condition since sessions were opened; times in microseconds.

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
) -> tuple[Samples, ...]:
    """Time two models on the same inputs, in up to six openings of all sessions.

    Args:
        before: The original.
        after: The other model.
        feeds: Inputs by name.
        setup: How to run both.
        pairs: Paired samples to take in all, spread evenly over the openings.
        seconds: When this time is over, no further opening begins; but three are made unless they take
            three times as long.
        seed: Of the order of the samples.

    Raises:
        RuntimeRefused: A model does not load or run so.
        ProviderError: A model would run elsewhere.
    """
    start = time.monotonic()
    count = max(1, min(len(ORDERS), pairs // LEAST_PAIRS))
    rng = np.random.default_rng(seed)
    found: list[Samples] = []
    # The first opening of all is the slowest: whom it hits is left to chance.
    places = [*rng.permutation(3), *(3 + rng.permutation(3))]
    for order in [ORDERS[place] for place in places[:count]]:
        allowed = seconds * _PATIENCE if len(found) < _FEWEST else seconds
        if found and time.monotonic() - start >= allowed:
            break
        each = -(-pairs // count)
        found.append(
            _open_and_time((before, before, after), order, feeds, setup, each, seconds / count, rng)
        )
    return tuple(found)


def _open_and_time(
    models: tuple[Path, Path, Path],
    order: tuple[int, ...],
    feeds: Mapping[str, Any],
    setup: Setup,
    pairs: int,
    seconds: float,
    rng: np.random.Generator,
) -> Samples:
    """One opening: cold start of each model, warm-up, pairs, single runs."""
    start = time.monotonic()
    opened: dict[int, Runner] = {}
    cold: dict[int, tuple[float, float]] = {}
    try:
        for place in order:
            opened[place], cold[place] = _open(models[place], feeds, setup)
        runners = [opened[place] for place in range(len(models))]
        warm = seconds * _WARM_SHARE / len(runners)
        stood_still = [settle(runner, most_seconds=warm) for runner in runners]
        race = Race(runners, int(rng.integers(2**31)))
        deadline = start + seconds * (1 - _SINGLE_SHARE)
        taken = 0
        while taken < pairs and (taken < LEAST_PAIRS or time.monotonic() < deadline):
            more = min(_CHUNK, pairs - taken)
            race.run(more)
            taken += more
        single = single_runs(
            (runners[0], runners[2]),
            rng,
            most_seconds=seconds * _SINGLE_SHARE,
            block=race.inner,
            most_runs=_MOST_SINGLE // len(ORDERS) + 1,
        )
    except ort_errors() as error:
        raise RuntimeRefused(f"ONNX Runtime does not run the model: {first_line(error)}") from None
    paired = [tuple(map(float, race.samples(place))) for place in range(len(models))]
    return Samples(
        before=paired[0],
        again=paired[1],
        after=paired[2],
        single_before=single[0],
        single_after=single[1],
        create_before=(cold[0][0],),
        create_after=(cold[2][0],),
        first_before=(cold[0][1],),
        first_after=(cold[2][1],),
        settled=all(stood_still),
    )


def _open(
    model: Path, feeds: Mapping[str, Any], setup: Setup
) -> tuple[Runner, tuple[float, float]]:
    """Open a session and run it once; and how long either took, in ms."""
    begin = time.perf_counter()
    session = open_for(model, setup)
    opened = time.perf_counter()
    once = bind(session, feeds, setup.provider)
    done = time.perf_counter()
    return once, ((opened - begin) * 1e3, (done - opened) * 1e3)


def joined(parts: Sequence[Samples]) -> Samples:
    """Several openings as one; there must be one at least."""
    times = [f.name for f in fields(Samples) if f.name != "settled"]
    rows = {name: tuple(chain.from_iterable(getattr(p, name) for p in parts)) for name in times}
    return Samples(**rows, settled=all(part.settled for part in parts))


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
