"""Timing two models: what is noise is not called a difference, and no time is wasted."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from onnx_sched.judge.latency import latency_row
from onnx_sched.judge.measure import Speedup
from onnx_sched.judge.opening import Setup
from onnx_sched.judge.ortlib import CPU
from onnx_sched.judge.significance import band, effect, noise, verdict
from onnx_sched.judge.timing import Samples, settle


def samples(rng: np.random.Generator, ratio: float, pairs: int = 60, drift: float = 0.3) -> Samples:
    """What a noisy machine would give: a common drift of each pair, and noise of each sample."""
    common = np.exp(drift * rng.standard_normal(pairs).cumsum() / np.sqrt(pairs))
    own = np.exp(0.05 * rng.standard_normal((3, pairs)))
    rows = [tuple(map(float, 10 * common * row)) for row in own]
    after = tuple(value / ratio for value in rows[2])
    one = (1.0, 2.0)
    return Samples(rows[0], rows[1], after, one, one, one, one, one, one, True)


@pytest.mark.parametrize("processes", [1, 3])
def test_a_model_against_itself_is_rarely_significant(processes: int) -> None:
    """Of 20 comparisons of equal models at most one may claim a difference."""
    claimed = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        taken = [samples(rng, 1.0) for _ in range(processes)]
        claimed += verdict(effect(taken), noise(taken)) != "not_significant"
    assert claimed <= 1


@pytest.mark.parametrize(("ratio", "word"), [(1.25, "faster"), (0.8, "slower")])
@pytest.mark.parametrize("processes", [1, 3])
def test_a_real_difference_is_found(ratio: float, word: str, processes: int) -> None:
    """A quarter is far outside the noise of these samples: always found, near its true size."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        taken = [samples(rng, ratio) for _ in range(processes)]
        said = effect(taken)
        assert verdict(said, noise(taken)) == word
        assert said.ratio == pytest.approx(ratio, rel=0.05)
        assert said.low < said.ratio < said.high
        assert said.pairs == 60 * processes


def test_processes_that_differ_widen_the_interval() -> None:
    """What a whole process has in common counts as one draw: three lucky processes are no 180 pairs."""
    rng = np.random.default_rng(0)
    taken = [samples(rng, ratio) for ratio in (0.8, 1.0, 1.25)]
    said = effect(taken)
    pooled = [
        tuple(itertools.chain.from_iterable(row))
        for row in zip(*((one.before, one.again, one.after) for one in taken), strict=True)
    ]
    naive = effect([replace(taken[0], before=pooled[0], again=pooled[1], after=pooled[2])])
    assert said.high - said.low > 2 * (naive.high - naive.low)
    assert said.low < 0.9 < 1.1 < said.high


def test_no_sample_is_thrown_away_and_groups_weigh_alike() -> None:
    """Groups may have had time for unequal numbers of pairs: all count, and none outvotes the others."""
    rng = np.random.default_rng(0)
    parts = [samples(rng, ratio, pairs) for ratio, pairs in ((1.5, 10), (1.0, 40), (1.5, 10))]
    said = effect(parts)
    assert said.pairs == 60
    assert said.ratio > 1.25


@pytest.mark.parametrize(
    ("low", "high", "floor", "word"),
    [
        (1.02, 1.05, (0.99, 1.01), "faster"),
        (0.90, 0.95, (0.99, 1.01), "slower"),
        (0.99, 1.30, (0.99, 1.01), "not_significant"),  # holds 1
        (0.90, 1.00, (0.99, 1.01), "not_significant"),  # ends at 1
        (1.01, 1.03, (0.95, 1.05), "not_significant"),  # within the A/A interval
        (1.01, 1.30, (0.95, 1.05), "not_significant"),  # reaches into it
        (
            1.02,
            1.04,
            (0.95, 0.98),
            "not_significant",
        ),  # A/A leans the other way: that is noise, too
    ],
)
def test_significance_needs_more_than_noise(
    low: float, high: float, floor: tuple[float, float], word: str
) -> None:
    """An interval that touches 1 or the noise floor, on either side, claims nothing."""
    aside = Speedup(1, 1, 1.0, *floor, 80)
    assert verdict(Speedup(1, 1, (low * high) ** 0.5, low, high, 80), aside) == word
    assert band(aside)[0] < 1 < band(aside)[1]


def test_percentiles_and_cold_start_come_from_their_own_samples() -> None:
    """Tails are those of single runs, never of the means that make a pair."""
    taken = replace(
        samples(np.random.default_rng(0), 1.0),
        single_before=(*[10.0] * 99, 1000.0),
        create_after=(3.0, 5.0, 4.0),
        first_after=(1.0, 1.0, 2.0),
    )
    row = latency_row((), Setup(CPU), [[taken]])
    assert row.before.p50_us == 10.0
    assert row.before.p99_us > 10.0
    assert row.before.runs == 100
    assert (row.cold_after.create_ms, row.cold_after.first_run_ms) == (4.0, 1.0)
    assert row.tf32 is None


class Clock:
    """A clock that only a run moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, runs: Sequence[float]) -> None:
        self.now = 0.0
        self.runs = itertools.chain(runs, itertools.repeat(runs[-1]))
        self.count = 0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "perf_counter_ns", lambda: int(self.now * 1e9))

    def __call__(self) -> None:
        self.now += next(self.runs)
        self.count += 1


def test_warm_up_ends_when_times_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a run becomes faster and faster, it goes on; then it ends, and says that it settled."""
    falling = [0.01 * 0.98**k for k in range(100)]
    once = Clock(monkeypatch, falling)
    assert settle(once, most_seconds=10.0)
    assert once.count > 100


def test_warm_up_gives_up_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that never stands still is not waited for: it ends in time and says so."""
    restless = [0.001 * (1 + k % 40) for k in range(2000)]
    restless = [value * 1.004**k for k, value in enumerate(restless)]
    once = Clock(monkeypatch, restless)
    assert not settle(once, most_seconds=1.0)
    assert once.now < 1.2


def test_a_slow_model_is_not_run_ten_times_to_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds a run: two runs, then on."""
    once = Clock(monkeypatch, [5.0])
    assert not settle(once, most_seconds=1.0)
    assert once.count == 2
