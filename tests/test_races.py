"""Races between sessions: how long they last, who takes part, and that all are opened anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from onnx_sched import races
from onnx_sched.judge.measure import Runner, Speedup
from onnx_sched.judge.runtime import RuntimeRefused
from onnx_sched.races import MOST_ROUNDS, PATIENT_ROUNDS, ROUNDS, SAFE, Opener, close_race, race
from tests.nets import Array


class Stopwatch:
    """Takes the place of races whose speed-ups are given; it counts rounds and openings."""

    def __init__(self, low: float) -> None:
        self.low = low
        self.rounds = 0
        self.openings: list[list[object]] = []

    def __call__(self, runners: Sequence[object], seed: int, *, warm: bool) -> Stopwatch:
        """Another opening."""
        self.openings.append(list(runners))
        self.now = 0
        return self

    def run(self, rounds: int) -> None:
        """Take samples."""
        self.rounds += rounds
        self.now += rounds

    def samples(self, place: int) -> Array:
        """As many as were taken since the opening."""
        return np.ones(self.now)

    def pooled(self, pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Speedup:
        """What the interval is after so many rounds."""
        return Speedup(
            1.0, 1.0, self.low + 0.1, self.low, self.low + 0.2, sum(len(b) for b, _ in pairs)
        )


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Stopwatch]:
    """Makes the stopwatch and starts it."""

    def make(low: float) -> Stopwatch:
        made = Stopwatch(low)
        monkeypatch.setattr(races, "Race", made)
        monkeypatch.setattr(races, "pooled", made.pooled)
        return made

    return make


def nothing() -> Runner:
    """Opens at once."""
    return lambda: None


def refused() -> Runner:
    """Does not run."""
    raise RuntimeRefused("no")


TWO: list[Opener] = [nothing, nothing]


@pytest.mark.parametrize("low", [1.5, 0.5])
def test_a_clear_race_is_short(watch: Callable[[float], Stopwatch], low: float) -> None:
    """Few rounds settle what is clear, but more than one opening."""
    seen = watch(low)
    close_race(TWO, {0: (0, 1)}, time.monotonic() + 3600)
    assert 2 * ROUNDS <= seen.rounds <= 3 * ROUNDS
    assert len(seen.openings) > 1


@pytest.mark.parametrize(("patience", "most"), [(-1.0, MOST_ROUNDS), (3600.0, PATIENT_ROUNDS)])
def test_a_close_race_has_an_end(
    monkeypatch: pytest.MonkeyPatch,
    watch: Callable[[float], Stopwatch],
    patience: float,
    most: int,
) -> None:
    """After MOST_ROUNDS if they took long, after PATIENT_ROUNDS in any case."""
    seen = watch(SAFE - 0.01)
    monkeypatch.setattr(races, "PATIENCE", patience)
    close_race(TWO, {0: (0, 1)}, time.monotonic() + 3600)
    assert most <= seen.rounds <= most + 2 * ROUNDS


def test_a_race_ends_at_the_deadline(watch: Callable[[float], Stopwatch]) -> None:
    """A close race stops when the time is up, with the samples that it has."""
    seen = watch(SAFE - 0.01)
    found = close_race(TWO, {0: (0, 1)}, time.monotonic() - 1)
    assert len(seen.openings) == 1
    assert found[0].pairs == seen.rounds > 0


def test_all_are_opened_anew_in_changing_order(watch: Callable[[float], Stopwatch]) -> None:
    """Where the memory of a session lies is a draw of its own, and so is who comes first."""
    seen = watch(SAFE - 0.01)
    made: list[int] = []

    def opener(k: int) -> Opener:
        def opened() -> Runner:
            made.append(k)
            return lambda: k

        return opened

    close_race([opener(k) for k in range(3)], {0: (0, 1), 1: (0, 2)}, time.monotonic() + 3600)
    orders = [tuple(made[k : k + 3]) for k in range(0, len(made), 3)]
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    assert len(set(orders)) == 6
    assert len({id(r) for opening in seen.openings for r in opening}) == len(made)


def test_who_does_not_run_is_left_out(watch: Callable[[float], Stopwatch]) -> None:
    """A variant that is refused is out; without the original, all are; a race of two is an error."""
    watch(1.5)
    end = time.monotonic() + 3600
    assert set(close_race([nothing, refused, nothing], {0: (0, 1), 1: (0, 2)}, end)) == {1}
    assert close_race([refused, nothing], {0: (0, 1)}, end) == {}
    assert close_race([refused], {}, end) == {}
    with pytest.raises(RuntimeRefused):
        race([nothing, refused], end)


def test_who_stops_running_in_between_is_left_out(watch: Callable[[float], Stopwatch]) -> None:
    """An opening may fail where an earlier one did not: for want of memory, say."""
    watch(SAFE - 0.01)
    openings: list[int] = []

    def once() -> Runner:
        openings.append(1)
        return refused() if len(openings) > 1 else nothing()

    found = close_race([nothing, once, nothing], {0: (0, 1), 1: (0, 2)}, time.monotonic() + 3600)
    assert set(found) == {1}


def test_samples_are_those_of_each_runner() -> None:
    """A runner that takes three times as long is three times as slow, whatever the order."""

    def busy(microseconds: float) -> Opener:
        def once() -> None:
            end = time.perf_counter() + microseconds / 1e6
            while time.perf_counter() < end:
                pass

        return lambda: once

    found = close_race([busy(600), busy(200)], {0: (0, 1)}, time.monotonic() + 60)[0]
    assert found.low > 2
