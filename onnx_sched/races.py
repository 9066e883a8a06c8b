"""Races between sessions: opened anew again and again, until more samples would hardly change a verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_sched.judge.measure import Race, Runner, Speedup
from onnx_sched.judge.runtime import RuntimeRefused
from onnx_sched.judge.significance import pooled

Opener = Callable[[], Runner]

Samples = tuple[float, ...]
"""Microseconds a run."""


SAFE = 1 / 1.02
"""A variant is safe under a condition if the whole interval of its speed-up lies above this."""

ROUNDS = 20
"""Samples of every runner that are taken at a time, at most."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What makes a verdict.

    Attributes:
        pairs: Of so many samples at least.
        safe: Not slower is what has its whole interval above this.
        worth: Faster is what has its whole interval above this.
    """

    pairs: int
    safe: float
    worth: float


REGION = Demand(2 * ROUNDS, SAFE, 1.0)
"""Of a variant of a region: the whole model is raced yet."""

WHOLE = Demand(4 * ROUNDS, 1 / 1.01, 1.02)
"""Of a whole model: the last word, and of variants that were picked for having been lucky, too.

Where its memory lies makes a session faster or slower by more than a percent from one opening to the next.
"""

MOST_ROUNDS = 160
"""Samples after which a close race is over, if they took long; who is not safe by then has lost."""

PATIENCE = 2.0
"""Seconds from the start in which a close race may take more of them."""

PATIENT_ROUNDS = 1000
"""Samples after which any race is over."""


def race(openers: Sequence[Opener], deadline: float) -> Speedup:
    """Race a model, the first, against another, the second.

    Raises:
        RuntimeRefused: If one of them does not run.
    """
    return close_race(openers, {0: (0, 1)}, deadline, WHOLE, strict=True)[0]


def close_race(
    openers: Sequence[Opener],
    lanes: Mapping[int, tuple[int, int]],
    deadline: float,
    demand: Demand = REGION,
    *,
    strict: bool = False,
) -> dict[int, Speedup]:
    """Race sessions until more samples would hardly change a verdict, or it has taken long enough.

    Where the memory of a session lies makes it faster or slower for as long as it lives.  So all are
    opened anew, in random order, for every few samples.

    Args:
        openers: Each opens a session and gives what runs it once, or raises RuntimeRefused.
        lanes: Who is to be compared with whom, by any key.
        deadline: Time (of `time.monotonic`) after which it is over in any case.
        demand: What makes a verdict.
        strict: Whether it is an error if one does not run, at the first opening or later; else it is
            left out.
    """
    rng, begin = np.random.default_rng(len(openers)), time.monotonic()
    taken: list[dict[int, Samples]] = []
    while True:
        taken.append(_opening(openers, rng, strict))
        ran = {k: pair for k, pair in lanes.items() if all(n in one for one in taken for n in pair)}
        speedups = {
            k: pooled([(one[before], one[after]) for one in taken])
            for k, (before, after) in ran.items()
        }
        now, pairs = time.monotonic(), sum(len(next(iter(one.values()), ())) for one in taken)
        enough = pairs >= (MOST_ROUNDS if now - begin > PATIENCE else PATIENT_ROUNDS)
        if all(settled(s, demand) for s in speedups.values()) or enough or now > deadline:
            return speedups


def _opening(
    openers: Sequence[Opener], rng: np.random.Generator, strict: bool
) -> dict[int, Samples]:
    """Samples of all that run, opened in random order; more of them where opening takes longer."""
    begin = time.monotonic()
    runners: dict[int, Runner] = {}
    for k in map(int, rng.permutation(len(openers))):
        try:
            runners[k] = openers[k]()
        except RuntimeRefused:
            if strict:
                raise
    if not runners:
        return {}
    heat = Race(list(runners.values()), int(rng.integers(2**31)), warm=True)
    ready, rounds = time.monotonic(), 0
    while not rounds or (time.monotonic() - ready < ready - begin and rounds < ROUNDS):
        heat.run(ROUNDS // 2)
        rounds += ROUNDS // 2
    return {k: tuple(heat.samples(place)) for place, k in enumerate(runners)}


def settled(speedup: Speedup, demand: Demand = REGION) -> bool:
    """Whether more pairs would hardly change the verdict: safe, or surely not."""
    if speedup.pairs < demand.pairs:
        return False
    safe = demand.safe
    clear = speedup.low > demand.worth or speedup.high < 1.03
    return speedup.high < safe or (speedup.low > safe and clear)
