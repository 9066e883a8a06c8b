"""What samples of several openings or processes say: a ratio, its interval, and whether it is noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from onnx_sched.judge.measure import RESAMPLES, Speedup, paired
from onnx_sched.judge.timing import Samples, Times

SpeedVerdict = Literal["faster", "slower", "not_significant"]


def effect(samples: Sequence[Samples], seed: int = 0) -> Speedup:
    """How much faster the other model is than the original, over all groups of samples."""
    return pooled([(one.before, one.after) for one in samples], seed)


def noise(samples: Sequence[Samples], seed: int = 0) -> Speedup:
    """The same number for the original against itself (A/A)."""
    return pooled([(one.before, one.again) for one in samples], seed)


def pooled(pairs: Sequence[tuple[Times, Times]], seed: int = 0) -> Speedup:
    """The ratio over one or more groups of paired samples.

    The bootstrap draws groups first and pairs within them after: what a whole process or a session has in
    common, such as where its memory lies, is one draw, not hundreds.

    Args:
        pairs: For each group (sessions that were opened together, or a process), the samples of both.
        seed: Of the bootstrap.
    """
    if len(pairs) == 1:
        return paired(np.array(pairs[0][0]), np.array(pairs[0][1]), seed)
    ratios = [np.log(before) - np.log(after) for before, after in pairs]
    longest, total = max(map(len, ratios)), sum(map(len, ratios))
    # Groups weigh alike, however many samples each had time for.
    logs: NDArray[np.float64] = np.array([np.resize(row, longest) for row in ratios])
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, len(logs), (RESAMPLES, len(logs), 1))
    places = rng.integers(0, longest, (RESAMPLES, len(logs), round(total / len(logs))))
    medians = np.median(logs[groups, places].reshape(RESAMPLES, -1), axis=1)
    low, high = np.exp(np.percentile(medians, (2.5, 97.5)))
    return Speedup(
        round(float(np.median(np.concatenate([before for before, _ in pairs]))), 3),
        round(float(np.median(np.concatenate([after for _, after in pairs]))), 3),
        round(float(np.exp(np.median(logs))), 4),
        round(float(low), 4),
        round(float(high), 4),
        total,
    )


def band(floor: Speedup) -> tuple[float, float]:
    """The noise floor as an interval around 1: which of two equal models is called first is chance.

    >>> band(Speedup(1, 1, 1.01, 0.8, 1.03, 80))
    (0.8, 1.25)
    """
    return min(floor.low, 1 / floor.high), max(floor.high, 1 / floor.low)


def verdict(found: Speedup, floor: Speedup) -> SpeedVerdict:
    """Faster or slower only if the whole interval lies beyond 1 and beyond the noise floor.

    An interval that holds 1, or that lies within or reaches into the A/A interval, is not significant.

    >>> floor = Speedup(1, 1, 1.0, 0.98, 1.02, 80)
    >>> verdict(Speedup(2, 1, 2.0, 1.9, 2.1, 80), floor)
    'faster'
    >>> verdict(Speedup(1, 1, 1.015, 1.005, 1.02, 80), floor)
    'not_significant'
    """
    low, high = band(floor)
    if found.low > high:
        return "faster"
    return "slower" if found.high < low else "not_significant"
