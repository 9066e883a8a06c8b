"""Keep what wins: race the variants of every region against the original, on the target itself.

Each region is cut out, as it was and as it would be, and fed with the values that it sees in a run of the
model.  A variant is kept if its interval says faster under one condition at least and slower under none.
At last the whole model is raced, and regions are taken back until it is not slower anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from onnx_sched.analysis import Analysis
from onnx_sched.cost import Device
from onnx_sched.extract import Excerpt, excerpts, fingerprint
from onnx_sched.judge.measure import Runner, Speedup, runner
from onnx_sched.judge.runtime import RuntimeRefused
from onnx_sched.plan import Group
from onnx_sched.progress import Progress, nobody
from onnx_sched.races import SAFE, Opener, close_race
from onnx_sched.variants import Explorer, Variant, formed, trials_for

CANDIDATES = 6
"""How many variants of a region are raced at least."""

MORE = 14
"""How many where that takes little time: the cost model ranks kinds of regions better than variants."""

LONG = 3000.0
"""Microseconds of a region, estimated at its largest size, from which on a race takes long."""

Feeds = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Condition:
    """Where a race is held: inputs of the model at some sizes, and a number of threads (0: all)."""

    sizes: tuple[tuple[str, int], ...]
    feeds: Feeds
    threads: int

    @property
    def label(self) -> str:
        """For people."""
        dims = ", ".join(f"{n}={s}" for n, s in self.sizes) or "as declared"
        return f"{dims}, {self.threads or 'all'} thread{'' if self.threads == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of one region.

    Attributes:
        groups: The variant that is kept; empty if the region stays as it was.
        speedups: Of the best variant, by condition.
        reason: Why nothing was kept; empty otherwise.
        code: That of the refusal, if nothing was kept.
    """

    groups: tuple[Group, ...]
    speedups: tuple[Speedup, ...]
    reason: str
    code: str = "S303"


@dataclass
class Chooser:
    """Decides region by region.

    Attributes:
        analysis: The model.
        device: Profile that ranks the variants.
        provider: Execution provider that runs the races.
        conditions: Gives where it must not be slower; raises RuntimeRefused if the model runs nowhere.
        values: Gives named values of the model in a run, by condition's feeds.
        deadline: Time (of `time.monotonic`) after which nothing more is measured.
        progress: Is told which region is measured.
        raced: By unit that is batched: the speed-ups of its region, by condition.
    """

    analysis: Analysis
    device: Device
    provider: str
    conditions: Callable[[], Sequence[Condition]]
    values: Callable[[Sequence[str], Feeds], dict[str, Any]]
    deadline: float
    progress: Progress = nobody
    raced: dict[int, tuple[tuple[Condition, Speedup], ...]] = field(default_factory=dict)
    _known: dict[bytes, tuple[Mapping[Hashable, str] | None, tuple[Speedup, ...]]] = field(
        default_factory=dict
    )

    def decide(self, region: Sequence[Group]) -> Decision:
        """Find the best variant of a region and race it; regions that are alike are raced once."""
        if time.monotonic() > self.deadline:
            return Decision((), (), "the time limit was reached before it was measured", "S900")
        try:
            return self._decide(region)
        except RuntimeRefused as error:  # of the original: a variant that is refused is merely out
            return Decision((), (), f"nothing could be measured: {error}", "S901")

    def _decide(self, region: Sequence[Group]) -> Decision:
        """As `decide`, in time.

        Raises:
            RuntimeRefused: If the original does not run.
        """
        self.conditions()
        trials = trials_for(self.analysis)
        explorer = Explorer(self.analysis, region, self.device, trials)
        plain = explorer.plain()
        pair = excerpts(self.analysis, plain.rewritten) if plain is not None else None
        key = b"|".join(map(fingerprint, pair)) if pair is not None else None
        if key is None or key not in self._known:
            before = max(plain.costs.before.values()) if plain is not None else LONG
            variants = explorer.best(MORE if before < LONG else CANDIDATES)
            cut = [
                (v, e)
                for v in variants
                if (e := excerpts(self.analysis, v.rewritten, v.base)) is not None
            ]
            if not cut:
                return Decision((), (), "no form of it can be made")
            winner, speedups = self._race(cut)
            outcome = (cut[winner][0].chosen if winner >= 0 else None, speedups)
            if key is None:
                return self._decision(region, *outcome)
            self._known[key] = outcome
        return self._decision(region, *self._known[key])

    def _decision(
        self,
        region: Sequence[Group],
        chosen: Mapping[Hashable, str] | None,
        speedups: tuple[Speedup, ...],
    ) -> Decision:
        if chosen is None:
            undecided = bool(speedups) and all(s.high >= SAFE for s in speedups)
            if undecided and time.monotonic() > self.deadline:
                best = max(speedups, key=lambda s: s.ratio)
                reason = f"the time limit ended its race, so far {best.words}"
                return Decision((), speedups, reason, "S900")
            return Decision((), speedups, _why(self.conditions(), speedups))
        groups = formed(region, chosen, self.analysis.circuit)
        races = tuple(zip(self.conditions(), speedups, strict=False))
        self.raced.update({u.number: races for g in groups for u in g.units})
        return Decision(groups, speedups, "")

    def _race(
        self, cut: Sequence[tuple[Variant, tuple[Excerpt, Excerpt]]]
    ) -> tuple[int, tuple[Speedup, ...]]:
        """The winner (-1 for none) and its speed-ups, or those of the best of the losers."""
        names = list(dict.fromkeys(n for _, pair in cut for part in pair for n in part.inputs))
        results: dict[int, list[Speedup]] = {k: [] for k in range(len(cut))}
        alive = set(results)
        for condition in self.conditions():
            seen = self.values(names, condition.feeds)
            for k, speedup in self._heat(cut, sorted(alive), seen, condition).items():
                results[k].append(speedup)
                if speedup.low < SAFE:
                    alive.discard(k)
            alive &= {k for k in alive if len(results[k]) > 0}
        whole = [k for k in sorted(alive) if len(results[k]) == len(self.conditions())]
        good = [k for k in whole if any(s.low > 1 for s in results[k])]
        if good:
            best = max(good, key=lambda k: saved(results[k], results.values()))
            return best, tuple(results[best])
        tried = [k for k in results if results[k]]
        best = max(tried, key=lambda k: (len(results[k]), gain(results[k])), default=-1)
        return -1, tuple(results[best]) if best >= 0 else ()

    def _heat(
        self,
        cut: Sequence[tuple[Variant, tuple[Excerpt, Excerpt]]],
        alive: Sequence[int],
        seen: Feeds,
        condition: Condition,
    ) -> dict[int, Speedup]:
        """Race the variants under one condition, each against what it replaces."""
        openers: list[Opener] = []
        originals: dict[bytes, int] = {}
        lanes: dict[int, tuple[int, int]] = {}
        for k in alive:
            old, new = cut[k][1]
            if fingerprint(old) not in originals:
                originals[fingerprint(old)] = len(openers)
                openers.append(partial(self._runner, old, seen, condition))
            lanes[k] = (originals[fingerprint(old)], len(openers))
            openers.append(partial(self._runner, new, seen, condition))
        return close_race(openers, lanes, self.deadline)

    def _runner(self, part: Excerpt, seen: Feeds, condition: Condition) -> Runner:
        feeds = {name: seen[name] for name in part.inputs}
        return runner(
            part.model.SerializeToString(), feeds, self.provider, condition.threads or None
        )


def gain(speedups: Sequence[Speedup]) -> float:
    """Mean logarithm of the speed-ups."""
    return float(np.mean([np.log(s.ratio) for s in speedups])) if speedups else 0.0


def saved(speedups: Sequence[Speedup], rivals: Iterable[Sequence[Speedup]]) -> float:
    """Time saved, as a share of what the widest of all variants replaces, over the conditions."""
    widest = [
        max(times)
        for times in zip(
            *([s.before_us for s in r] for r in rivals if len(r) == len(speedups)), strict=True
        )
    ]
    return float(
        np.mean([(s.before_us - s.after_us) / w for s, w in zip(speedups, widest, strict=True)])
    )


def _why(conditions: Sequence[Condition], speedups: Sequence[Speedup]) -> str:
    """Why no variant was kept, in words, and at which other sizes or threads it would be."""
    races = list(zip(conditions, speedups, strict=False))
    lost = next(((c, s) for c, s in races if s.low < SAFE), None)
    if lost is None:
        best = max(speedups, key=lambda s: s.ratio, default=None)
        if best is None:
            return "it does not run by itself"
        return f"measured no difference: at best {best.words}"
    where, speedup = lost
    words = f"measured {speedup.words} at {where.label}"
    for flag in (_dims, _threads):
        for value in dict.fromkeys(map(flag, conditions)):
            found = [s for c, s in races if flag(c) == value]
            complete = len(found) == sum(flag(c) == value for c in conditions)
            if complete and all(s.low >= SAFE for s in found) and any(s.low > 1 for s in found):
                there = ", ".join(s.words for s in found)
                return f"{words}; if {value} is all that you run, name it: there it was {there}"
    return words


def _dims(condition: Condition) -> str:
    """How a user asks for the sizes of a condition."""
    return " ".join(f"--dim {n}={size}" for n, size in condition.sizes)


def _threads(condition: Condition) -> str:
    """How a user asks for the threads of a condition."""
    return f"--threads {condition.threads}"
