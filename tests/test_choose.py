"""Choosing by races: what wins somewhere and loses nowhere is kept; nothing is raced twice or too long."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from onnx_sched import choose, trial
from onnx_sched.choose import Chooser, Condition, Decision, gain
from onnx_sched.choose import saved as time_saved
from onnx_sched.circuit import Unit
from onnx_sched.cost import device
from onnx_sched.extract import Excerpt, excerpts, fingerprint
from onnx_sched.judge.measure import Race, Speedup, paired
from onnx_sched.judge.runtime import RuntimeRefused
from onnx_sched.plan import Group
from onnx_sched.planner import legal, made, measured_plan, of_region
from onnx_sched.races import ROUNDS, SAFE, WHOLE, settled
from onnx_sched.variants import Variant
from tests.nets import Array, analysed, committed, name_nodes, net, numbers

CPU = device("cpu")
ONE, MANY = (
    Condition((("batch", 1),), {"x": np.zeros((1, 12), np.float32)}, 1),
    Condition((("batch", 32),), {"x": np.zeros((32, 12), np.float32)}, 0),
)


def anything(unit: Unit) -> bool:
    """Skip nothing."""
    return False


def speed(low: float, high: float | None = None, pairs: int = 40, before: float = 100.0) -> Speedup:
    """A speed-up whose interval begins at `low`."""
    high = low + 0.05 if high is None else high
    ratio = (low + high) / 2
    return Speedup(before, before / ratio, ratio, low, high, pairs)


Cut = Sequence[tuple[Variant, tuple[Excerpt, Excerpt]]]
Script = Callable[[Variant, Condition], Speedup]


@dataclass
class Track:
    """Heats that follow a script, and what was raced in each."""

    script: Script
    heats: list[tuple[Condition, list[set[str]]]] = field(default_factory=list)

    def heat(
        self,
        chooser: Chooser,
        cut: Cut,
        alive: Sequence[int],
        seen: Mapping[str, Any],
        condition: Condition,
    ) -> dict[int, Speedup]:
        """One heat."""
        self.heats.append((condition, [{g.form for g in cut[k][0].groups} for k in alive]))
        return {k: self.script(cut[k][0], condition) for k in alive}


def region(name: str = "grouped_mlp") -> tuple[Chooser, tuple[Group, ...]]:
    """A chooser for a committed model, and its first region."""
    analysis = analysed(committed(name))
    _, groups, _ = legal(analysis, anything)
    chooser = Chooser(
        analysis,
        CPU,
        "CPUExecutionProvider",
        lambda: (ONE, MANY),
        lambda names, feeds: dict.fromkeys(names),
        time.monotonic() + 1000,
    )
    return chooser, of_region(groups, 0)


def decide(monkeypatch: pytest.MonkeyPatch, script: Script) -> tuple[Decision, Track]:
    """What becomes of a region if heats follow a script."""
    track = Track(script)

    def heat(self: Chooser, *args: Any) -> dict[int, Speedup]:
        return track.heat(self, *args)

    monkeypatch.setattr(Chooser, "_heat", heat)
    chooser, groups = region()
    return chooser.decide(groups), track


def forms(variant: Variant) -> set[str]:
    """The forms of a variant's heavy groups."""
    return {g.form for g in variant.groups if g.kind == "Linear"}


KEPT = {
    "faster everywhere": (1.2, 1.3),
    "faster at one, equal at the other": (1.2, SAFE + 0.001),
    "barely faster": (1.0001, 1.0001),
}
LEFT = {
    "slower at one": (1.5, SAFE - 0.001),
    "slower at the first": (SAFE - 0.001, 1.5),
    "slower everywhere": (0.5, 0.6),
    "equal": (1.0, 1.0),
    "safe but no faster": (SAFE + 0.001, SAFE + 0.001),
}


@pytest.mark.parametrize("what", KEPT)
def test_what_is_faster_somewhere_and_slower_nowhere_is_kept(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Kept: the whole interval above 1 at one condition at least, above SAFE at all."""
    lows = dict(zip((ONE.label, MANY.label), KEPT[what], strict=True))
    decision, _ = decide(monkeypatch, lambda variant, condition: speed(lows[condition.label]))
    assert decision.groups
    assert decision.reason == ""
    assert [s.low for s in decision.speedups] == list(KEPT[what])


@pytest.mark.parametrize("what", LEFT)
def test_what_is_slower_anywhere_or_faster_nowhere_is_left(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Left as it was: an interval that reaches below SAFE anywhere, or above 1 nowhere."""
    lows = dict(zip((ONE.label, MANY.label), LEFT[what], strict=True))
    decision, _ = decide(monkeypatch, lambda variant, condition: speed(lows[condition.label], 1.6))
    assert decision.groups == ()
    assert decision.reason.startswith("measured ")
    worst = next((c for c in (ONE, MANY) if lows[c.label] < SAFE), None)
    if worst is None:
        assert "no difference" in decision.reason
    else:
        assert worst.label in decision.reason
        assert f"[{lows[worst.label]:.2f}, 1.60]" in decision.reason


def test_the_variant_that_saves_most_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the good ones the one that saves the largest share of time is kept, not the first."""

    def script(variant: Variant, condition: Condition) -> Speedup:
        return speed(2.0 if forms(variant) == {"conv_t"} else 1.1)

    decision, track = decide(monkeypatch, script)
    assert {g.form for g in decision.groups if g.kind == "Linear"} == {"conv_t"}
    assert len(track.heats[0][1]) > 1


def test_a_fast_but_unsafe_variant_loses_to_a_safe_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times faster at batch 1 is no use if it is slower at 32; it is not raced on either."""

    def script(variant: Variant, condition: Condition) -> Speedup:
        if forms(variant) == {"conv_t"}:
            return speed(3.0 if condition is MANY else 0.9)
        return speed(1.05)

    decision, track = decide(monkeypatch, script)
    assert decision.groups
    assert {g.form for g in decision.groups if g.kind == "Linear"} != {"conv_t"}
    (_, first), (_, second) = track.heats
    lost = [f for f in first if f == {"conv_t", "stacked"} or f == {"conv_t"}]
    assert lost
    assert not any(f in second for f in lost)


def test_who_does_not_run_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variant that the runtime refuses is no variant; if none runs, that is the reason."""

    def refuse(*args: object) -> None:
        raise RuntimeRefused("no kernel")

    monkeypatch.setattr(Chooser, "_runner", refuse)
    chooser, groups = region()
    decision = chooser.decide(groups)
    assert (decision.groups, decision.speedups) == ((), ())
    assert decision.reason == "it does not run by itself"


def test_after_the_time_limit_nothing_is_raced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the deadline a region stays as it was, with code S900 and no heat."""
    track = Track(lambda variant, condition: speed(2.0))

    def heat(self: Chooser, *args: Any) -> dict[int, Speedup]:
        return track.heat(self, *args)

    monkeypatch.setattr(Chooser, "_heat", heat)
    chooser, groups = region()
    late = replace(chooser, deadline=time.monotonic() - 1)
    decision = late.decide(groups)
    assert decision.groups == ()
    assert "time limit" in decision.reason
    draft = measured_plan(late.analysis, anything, late)
    assert (draft.plan.groups, draft.rewritten) == ((), None)
    assert [r.code for r in draft.plan.refusals] == ["S900"]
    assert len(draft.plan.refusals[0].nodes) == 48
    assert track.heats == []


def test_a_measured_plan_says_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regions that lost are refused by S303 with their numbers; regions that won are planned."""
    slow = Track(lambda variant, condition: speed(0.5, 0.6))
    monkeypatch.setattr(Chooser, "_heat", lambda self, *args: slow.heat(self, *args))
    chooser, _ = region()
    draft = measured_plan(chooser.analysis, anything, chooser)
    assert draft.rewritten is None
    assert [(r.code, len(r.nodes)) for r in draft.plan.refusals] == [("S303", 48)]
    assert "would not pay: measured 0.55x [0.50, 0.60] at batch=1, 1 thread" in (
        draft.plan.refusals[0].reason
    )
    fast = Track(lambda variant, condition: speed(1.5))
    monkeypatch.setattr(Chooser, "_heat", lambda self, *args: fast.heat(self, *args))
    chooser, groups = region()
    draft = measured_plan(chooser.analysis, anything, chooser)
    assert draft.rewritten is not None
    assert sum(g.size for g in draft.plan.groups) == sum(g.size for g in groups)


def twins(second: int = 4) -> Chooser:
    """A chooser for two regions that are alike but for names, numbers and, maybe, widths."""
    lanes = []
    for region_ in "ab":
        lanes.append(f"{region_}p0, {region_}p1 = Split<axis=1>({region_}x)")
        for k in range(2):
            lanes.append(f"{region_}m{k} = MatMul({region_}p{k}, {region_}w{k})")
            lanes.append(f"{region_}r{k} = Relu({region_}m{k})")
            lanes.append(f"{region_}n{k} = MatMul({region_}r{k}, {region_}w{k})")
        lanes.append(f"{region_}y = Concat<axis=1>({region_}n0, {region_}n1)")
    weights = {
        f"{r}w{k}": numbers(w, w, seed=k + ord(r))
        for r, w in (("a", 4), ("b", second))
        for k in range(2)
    }
    text = (
        f"(float[N,8] ax, float[N,{2 * second}] bx) => (float[N,8] ay, float[N,{2 * second}] by) "
        f"{{ {' '.join(lanes)} }}"
    )
    analysis = analysed(name_nodes(net(text, weights)))
    return Chooser(
        analysis,
        CPU,
        "CPUExecutionProvider",
        lambda: (ONE, MANY),
        lambda names, feeds: dict.fromkeys(names),
        time.monotonic() + 1000,
    )


@pytest.mark.parametrize(("width", "heats"), [(4, 2), (5, 4)])
def test_regions_that_are_alike_are_raced_once(
    monkeypatch: pytest.MonkeyPatch, width: int, heats: int
) -> None:
    """Equal structure and shapes, other names and numbers: one race for all; other widths: one each."""
    track = Track(lambda variant, condition: speed(1.5 if forms(variant) == {"stacked"} else 0.5))
    monkeypatch.setattr(Chooser, "_heat", lambda self, *args: track.heat(self, *args))
    chooser = twins(width)
    draft = measured_plan(chooser.analysis, anything, chooser)
    assert [g.region for g in draft.plan.groups].count(1) == 3
    assert {g.form for g in draft.plan.groups} == {"stacked"}
    assert len(track.heats) == heats


def test_a_fingerprint_knows_what_is_computed_on_what_shapes() -> None:
    """Names and numbers of weights do not count; ops, attributes, wiring and shapes do."""

    def prints(chooser: Chooser) -> list[bytes]:
        _, groups, _ = legal(chooser.analysis, anything)
        found = []
        for number in (0, 1):
            rewritten, _ = made(chooser.analysis, of_region(groups, number), [])
            assert rewritten is not None
            pair = excerpts(chooser.analysis, rewritten)
            assert pair is not None
            found += [fingerprint(part) for part in pair]
        return found

    before_a, after_a, before_b, after_b = prints(twins())
    assert (before_a, after_a) == (before_b, after_b)
    assert before_a != after_a
    before_a, _, before_b, after_b = prints(twins(5))
    assert before_a != before_b
    part = excerpts_of(twins())
    changed = Excerpt(type(part.model)(), part.inputs, part.outputs)
    changed.model.CopyFrom(part.model)
    relu = next(n for n in changed.model.graph.node if n.op_type == "Relu")
    relu.op_type = "Tanh"
    assert fingerprint(changed) != fingerprint(part)


def excerpts_of(chooser: Chooser) -> Excerpt:
    """The first region as it was."""
    _, groups, _ = legal(chooser.analysis, anything)
    rewritten, _ = made(chooser.analysis, of_region(groups, 0), [])
    assert rewritten is not None
    pair = excerpts(chooser.analysis, rewritten)
    assert pair is not None
    return pair[0]


# -- one heat ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lows", "named"),
    [
        ((1.2, 1.2, 0.5, 0.5), "--dim n=1"),
        ((1.2, 0.5, 0.5, 0.5), ""),
        ((0.5, 1.2, 1.2, 1.2), "--dim n=32"),
        ((1.2, 0.5, 1.0, 0.5), "--threads 1"),
        ((1.2, 0.5), ""),
        ((1.0, 1.0, 0.5), ""),
    ],
)
def test_a_reason_names_what_alone_would_win(lows: tuple[float, ...], named: str) -> None:
    """Sizes at which every number of threads is safe, or threads with every size; and all were raced."""
    conditions = [Condition((("n", n),), {}, t) for n in (1, 32) for t in (1, 2)]
    reason = choose._why(conditions, [speed(low, low + 0.2, 40) for low in lows])
    assert re.findall(r"if (.*) is all that you run", reason) == ([named] if named else [])


def test_a_race_that_the_time_limit_ended_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the interval leaves open then is S900, with what is known so far; what is lost, is lost."""
    for high, code in ((1.4, "S900"), (0.9, "S303")):
        monkeypatch.setattr(
            choose,
            "close_race",
            lambda o, lanes, d, high=high: {k: speed(0.5, high, 20) for k in lanes},
        )
        chooser, groups = region()
        monkeypatch.setattr(Chooser, "_runner", lambda *args: None)
        late = replace(chooser, conditions=lambda: (ONE,), deadline=time.monotonic() + 0.3)
        known = late._race

        def slowly(cut: Any, known: Any = known, late: Chooser = late) -> Any:
            late.deadline = time.monotonic() - 1
            return known(cut)

        monkeypatch.setattr(late, "_race", slowly, raising=False)
        decision = late.decide(groups)
        assert (decision.code, f"[0.50, {high:.2f}]" in decision.reason) == (code, True)


def test_variants_of_one_original_share_its_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    """What several variants replace alike is run once a round for all of them."""
    heats: list[list[bytes]] = []

    def heat(
        openers: Sequence[Callable[[], Any]], lanes: Mapping[int, tuple[int, int]], deadline: float
    ) -> dict[int, Speedup]:
        heats.append([opener() for opener in openers])
        return {k: speed(1.5, 1.7, 40) for k in lanes}

    monkeypatch.setattr(choose, "close_race", heat)
    monkeypatch.setattr(Chooser, "_runner", lambda self, part, *args: fingerprint(part))
    chooser, groups = region()
    replace(chooser, conditions=lambda: (ONE,)).decide(groups)
    (runners,) = heats
    assert len(runners) == len(set(runners))
    assert len(runners) >= 3


# -- what numbers say ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "pairs", "clear"),
    [
        (1.2, 1.3, 2 * ROUNDS, True),
        (1.2, 1.3, 2 * ROUNDS - 1, False),
        (0.5, 0.9, 2 * ROUNDS, True),
        (0.9, 1.1, 2 * ROUNDS, False),
        (0.99, 1.02, 2 * ROUNDS, True),
        (0.99, 1.2, 2 * ROUNDS, False),
    ],
)
def test_a_race_is_settled_when_more_pairs_would_change_nothing(
    low: float, high: float, pairs: int, clear: bool
) -> None:
    """Surely unsafe, or safe and either surely faster or as good as equal; never before 2 portions."""
    assert settled(speed(low, high, pairs)) is clear


def test_gain_is_the_mean_logarithm() -> None:
    """Twice as fast here and half as fast there is no gain; nothing raced is none."""
    assert gain([]) == 0.0
    assert gain([speed(2.0, 2.0), speed(0.5, 0.5)]) == pytest.approx(0.0)
    assert gain([speed(np.e, np.e)]) == pytest.approx(1.0)


def test_time_saved_is_a_share_of_the_widest_part() -> None:
    """A variant that replaces little cannot win by its ratio: time saved counts against the widest rival."""
    narrow, wide = [speed(3.0, 3.0, before=10.0)], [speed(1.25, 1.25, before=100.0)]
    rivals = [narrow, wide]
    assert time_saved(wide, rivals) == pytest.approx(0.2)
    assert time_saved(narrow, rivals) == pytest.approx(0.0667, abs=1e-3)


def test_the_whole_model_is_blamed_where_it_lost_most() -> None:
    """The condition whose speed-up is least among the unsafe ones; none if all are safe."""
    raced = [
        (ONE, speed(1.2)),
        (MANY, speed(0.8)),
        (ONE, speed(0.7)),
        (MANY, speed(WHOLE.safe + 0.001)),
    ]
    lost = trial.slower(raced)
    assert lost is not None
    assert lost[1].low == 0.7
    assert trial.slower([raced[0], raced[3]]) is None
    assert trial.slower([]) is None


# -- intervals -----------------------------------------------------------------------------------------


def noisy(seed: int, pairs: int, ratio: float) -> tuple[Array, Array]:
    """Times of two runners in turn on a machine that drifts, jitters and stalls now and then."""
    rng = np.random.default_rng(seed)
    drift = np.exp(np.cumsum(rng.normal(0, 0.02, pairs)))
    stalls = [np.where(rng.random(pairs) < 0.05, rng.uniform(2, 10, pairs), 1.0) for _ in range(2)]
    jitter = [np.exp(rng.normal(0, 0.08, pairs)) for _ in range(2)]
    return 50 * ratio * drift * jitter[0] * stalls[0], 50 * drift * jitter[1] * stalls[1]


@pytest.mark.parametrize("ratio", [0.5, 0.97, 1.0, 1.05, 3.0])
def test_the_interval_holds_the_true_ratio(ratio: float) -> None:
    """In 18 of 20 noisy races at least; for a model against itself it then holds 1."""
    held = 0
    for seed in range(20):
        found = paired(*noisy(seed, 60, ratio))
        assert found.low <= found.ratio <= found.high
        held += found.low <= ratio <= found.high
    assert held >= 18


def test_more_pairs_make_the_interval_narrower() -> None:
    """Four times the pairs, about half the width: drift and stalls do not stop it."""
    widths = []
    for pairs in (40, 160):
        found = [paired(*noisy(seed, pairs, 1.0)) for seed in range(20)]
        widths.append(float(np.median([f.high - f.low for f in found])))
    assert 0.3 * widths[0] < widths[1] < 0.75 * widths[0]


def test_intervals_are_the_same_each_time() -> None:
    """The same samples give the same interval; swapping the runners turns the ratio over."""
    before, after = noisy(3, 50, 1.3)
    first = paired(before, after)
    assert paired(before, after) == first
    swapped = paired(after, before)
    assert swapped.ratio == pytest.approx(1 / first.ratio, rel=1e-3)
    assert swapped.low == pytest.approx(1 / first.high, rel=2e-2)
    assert (first.pairs, first.before_us) == (50, swapped.after_us)


def test_a_race_takes_as_many_samples_as_asked() -> None:
    """Every runner is sampled once a round, whatever the order in which they run."""
    counts = [0, 0, 0]

    def runner(k: int) -> Callable[[], object]:
        def once() -> None:
            counts[k] += 1

        return once

    race = Race([runner(k) for k in range(3)])
    race.run(7)
    race.run(3)
    assert race.speedup(0, 2).pairs == race.speedup(1, 1).pairs == 10
    assert race.speedup(1, 1).ratio == 1.0


def test_a_condition_has_a_name_for_people() -> None:
    """Sizes by name, threads in words; a model without open sizes is `as declared`."""
    assert ONE.label == "batch=1, 1 thread"
    assert MANY.label == "batch=32, all threads"
    assert Condition((), {}, 4).label == "as declared, 4 threads"
    assert Condition((("n", 2), ("s", 3)), {}, 1).label == "n=2, s=3, 1 thread"
