"""A contest: many ways to compute the same, raced against each other in one run.

What is opened first is a little slower, for nothing but where its memory lies.  So everything is opened anew
several times, in random order, and an interval says what holds over all openings.  Within an opening all
take turns in random order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from onnx_sched.judge.measure import SAMPLE_US, Race, Runner, Speedup
from onnx_sched.judge.significance import SpeedVerdict, pooled, verdict
from onnx_sched.judge.timing import Times

ORIGINAL, AGAIN = "original", "original again"
"""The original and its twin: what tells them apart is noise."""

TURN = 4
"""Runs in a row that make a turn, at most: the first finds the caches as a rival left them."""

TURN_US = 5 * SAMPLE_US
"""Slow ones run less often in a turn, so that it takes about this long."""


@dataclass
class Contest:
    """Races all entrants, and keeps every sample.

    Attributes:
        makers: Opens an entrant, by name, and gives what runs it once.
        seed: Of all orders.
    """

    makers: Mapping[str, Callable[[], Runner]]
    seed: int = 0
    _taken: list[dict[str, Times]] = field(default_factory=list)

    def run(self, pairs: int, openings: int) -> None:
        """Take samples of all, spread evenly over some openings; again to take more."""
        rng = np.random.default_rng([self.seed, len(self._taken)])
        names = list(self.makers)
        for _ in range(openings):
            opened = {names[k]: self.makers[names[k]]() for k in rng.permutation(len(names))}
            turns = max(1, min(TURN, int(TURN_US / max(map(_microseconds, opened.values())))))
            race = Race([_turn(opened[n], turns) for n in names], int(rng.integers(2**31)))
            race.run(-(-pairs // openings))
            self._taken.append(
                {n: tuple(race.samples(k) / turns) for k, n in enumerate(names)},
            )

    def speedup(self, before: str, after: str) -> Speedup:
        """How much faster one is than another."""
        return pooled([(taken[before], taken[after]) for taken in self._taken])

    def gain(self, name: str) -> Speedup:
        """How much faster one is than the original."""
        return self.speedup(ORIGINAL, name)

    @property
    def floor(self) -> Speedup:
        """The original against its twin (A/A)."""
        return self.speedup(ORIGINAL, AGAIN)

    def verdict(self, before: str, after: str) -> SpeedVerdict:
        """Whether one is faster than another, or slower, beyond the intervals and the A/A noise."""
        return verdict(self.speedup(before, after), self.floor)


def _microseconds(once: Runner) -> float:
    """About how long a run takes."""
    once()
    begin = time.perf_counter_ns()
    once()
    return max(0.1, (time.perf_counter_ns() - begin) / 1e3)


def _turn(once: Runner, turns: int) -> Runner:
    """Several runs in a row as one."""

    def several() -> object:
        for _ in range(turns):
            once()
        return None

    return several
