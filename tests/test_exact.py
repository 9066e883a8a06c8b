"""The exact search: the optimum by brute force, bounds that hold, and what is said where they do not meet."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from heapq import heappop, heappush
from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onnx_sched.errors import SchedError, UsageError
from onnx_sched.exact import optimum, search, solver
from onnx_sched.exact.optimum import exact
from onnx_sched.levels import agenda, foata, is_level_function, launches
from tests.dags import Dag, chains, dags, grouped_mlp, models

needs_ortools = pytest.mark.skipif(
    importlib.util.find_spec("ortools") is None, reason="needs OR-tools: extra `exact`"
)

LONG = 20.0
"""Seconds; what is small is proven within a fraction of it."""

Problem = tuple[Dag, tuple[str, ...], tuple[int, ...]]


@st.composite
def woven(draw: st.DrawFn) -> Dag:
    """A few long chains side by side, with links between them."""
    lengths = draw(st.lists(st.integers(2, 6), min_size=2, max_size=4))
    order = sorted((step, chain) for chain, n in enumerate(lengths) for step in range(n))
    number = {place: op for op, place in enumerate(order)}
    preds = [{number[step - 1, chain]} if step else set() for step, chain in order]
    for _ in range(draw(st.integers(0, 4))):
        a, b = draw(st.tuples(*[st.integers(0, len(order) - 1)] * 2))
        if a != b:
            preds[max(a, b)].add(min(a, b))
    return tuple(tuple(sorted(before)) for before in preds)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """A small graph with letters for signatures, and what a launch of each letter costs."""
    preds = draw(st.one_of(woven(), dags(max_ops=9), models(max_blocks=2)))
    letters = draw(st.sampled_from(["AB", "ABC", "ABCD"]))
    signatures = draw(st.tuples(*[st.sampled_from(letters)] * len(preds)))
    price = {letter: draw(st.sampled_from([1, 1, 1, 0, 2, 5])) for letter in letters}
    return preds, signatures, tuple(price[s] for s in signatures)


def cheapest(preds: Dag, signatures: Sequence[Hashable], weights: Sequence[int]) -> int:
    """The least weight of batches, each any part of the ready ops of a signature: Dijkstra over sets."""
    whole = (1 << len(preds)) - 1
    needs = [sum(1 << pred for pred in set(before)) for before in preds]
    heap, settled = [(0, 0)], set()
    while True:
        cost, done = heappop(heap)
        if done == whole:
            return cost
        if done in settled:
            continue
        settled.add(done)
        ready: dict[Hashable, list[int]] = {}
        for op, need in enumerate(needs):
            if not done >> op & 1 and not need & ~done:
                ready.setdefault(signatures[op], []).append(op)
        for ops in ready.values():
            for size in range(1, len(ops) + 1):
                for batch in combinations(ops, size):
                    after = done | sum(1 << op for op in batch)
                    heappush(heap, (cost + weights[batch[0]], after))


def weight(levels: Sequence[int], signatures: Sequence[Hashable], weights: Sequence[int]) -> int:
    """What the distinct pairs of level and signature weigh."""
    price = dict(zip(signatures, weights, strict=True))
    return sum(price[sign] for _, sign in set(zip(levels, signatures, strict=True)))


def supersequence(words: Sequence[str], price: Mapping[str, int]) -> int:
    """The price of the cheapest word that holds all words as subsequences."""

    @cache
    def left(places: tuple[int, ...]) -> int:
        nexts = {w[p] for w, p in zip(words, places, strict=True) if p < len(w)}
        return min(
            (
                price[c]
                + left(tuple(p + (w[p : p + 1] == c) for w, p in zip(words, places, strict=True)))
                for c in nexts
            ),
            default=0,
        )

    return left(tuple(0 for _ in words))


def hard() -> tuple[Dag, tuple[str, ...]]:
    """Six long chains of random letters: more than the search proves by itself."""
    rng = random.Random(7)
    return chains(*["".join(rng.choices("ABCD", k=20)) for _ in range(6)])


@needs_ortools
@settings(deadline=None, max_examples=300)
@given(problems())
def test_the_cost_is_that_of_brute_force(problem: Problem) -> None:
    """A proven optimum, reached by levels that grow along every edge."""
    preds, signatures, weights = problem
    found = exact(preds, signatures, weights, foata(preds), LONG)
    assert found.cost == cheapest(preds, signatures, weights)
    assert found.proven
    assert found.stopped == ""
    assert is_level_function(found.levels, preds)
    assert weight(found.levels, signatures, weights) == found.cost


@needs_ortools
@settings(deadline=None, max_examples=200)
@given(problems())
@example((((), (0,), (), (0, 2), (2, 3), (2,), (3, 5), (0,)), tuple("ABBAAAAA"), (1,) * 8))
def test_cp_sat_alone_finds_and_proves_the_same(problem: Problem) -> None:
    """The model that CP-SAT is given says what the problem is, without any help of the search."""
    preds, signatures, weights = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimum, "STEPS_A_SECOND", 0)
        patch.setattr(search, "agenda", lambda preds, kinds: tuple(range(len(preds))))
        patch.setattr(search, "foata", lambda preds: tuple(range(len(preds))))
        found = exact(preds, signatures, weights, range(len(preds)), LONG)
    assert (found.cost, found.bound) == (cheapest(preds, signatures, weights),) * 2
    assert is_level_function(found.levels, preds)


@needs_ortools
@settings(deadline=None, max_examples=150)
@given(problems(), st.sampled_from([(), (1,), (1, 2)]))
def test_a_search_cut_short_proves_nothing_wrong(problem: Problem, widths: tuple[int, ...]) -> None:
    """However few sets are kept, the bound is none too high and the levels are levels."""
    preds, signatures, weights = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_WIDTHS", widths)
        patch.setattr(optimum, "solve", lambda *_: (0.0, True))
        found = exact(preds, signatures, weights, foata(preds), LONG)
    assert found.bound <= cheapest(preds, signatures, weights) <= found.cost
    assert (found.stopped == "") == found.proven
    assert is_level_function(found.levels, preds)
    assert weight(found.levels, signatures, weights) == found.cost


@needs_ortools
@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.text("ABC", min_size=1, max_size=12), min_size=2, max_size=3),
    st.fixed_dictionaries({letter: st.sampled_from([1, 2, 5]) for letter in "ABC"}),
)
@example(["CBACBA", "CAAABCA"], {"A": 1, "B": 1, "C": 2})
def test_chains_are_a_cheapest_common_supersequence(
    words: list[str], price: dict[str, int]
) -> None:
    """Where all ops stand in independent chains, the launches spell the cheapest word that holds them all."""
    preds, letters = chains(*words)
    weights = [price[letter] for letter in letters]
    found = exact(preds, letters, weights, agenda(preds, letters), LONG)
    assert (found.cost, found.bound) == (supersequence(words, price),) * 2


@needs_ortools
@settings(deadline=None, max_examples=100)
@given(problems())
def test_nothing_better_leaves_the_hint_as_it_is(problem: Problem) -> None:
    """An optimal hint comes back as it was given, whatever its numbers are."""
    preds, signatures, weights = problem
    best = exact(preds, signatures, weights, foata(preds), LONG).levels
    hint = tuple(3 * level + 1 for level in best)
    assert exact(preds, signatures, weights, hint, LONG).levels == hint


@needs_ortools
def test_towers_of_one_build_are_solved_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layer after layer of alike branches: a proof without a search, and as deep as the graph."""
    monkeypatch.setattr(optimum, "search", lambda tasks, *_: tasks and pytest.fail("searched"))
    preds = grouped_mlp(200, 8, 4)
    block = ["split", *["abcd"[k % 4] for k in range(32)], "join"]
    signatures = block * 200
    found = exact(preds, signatures, [1] * len(preds), range(len(preds)), LONG)
    assert found.cost == launches(foata(preds), signatures) == 200 * 6
    assert found.proven


# -- limits --------------------------------------------------------------------------------------------


@needs_ortools
def test_a_limit_of_nothing_keeps_the_hint() -> None:
    """No second: the hint, its cost, and what every signature costs at the least."""
    preds, letters = hard()
    hint = agenda(preds, letters)
    found = exact(preds, letters, [1] * len(preds), hint, 0.0)
    assert (found.levels, found.cost) == (hint, launches(hint, letters))
    assert (found.bound, found.stopped) == (4, "time")


Patch = tuple[object, str, object]
LIMITS: dict[str, tuple[float, tuple[Patch, ...], str]] = {
    "too many ops": (LONG, ((optimum, "OPS", 100),), "size"),
    "too many choices": (
        LONG,
        ((solver, "CHOICES", 100), (optimum, "STEPS_A_SECOND", 100)),
        "size",
    ),
    "too little work": (
        LONG,
        ((optimum, "WORK_A_SECOND", 1e-9), (optimum, "STEPS_A_SECOND", 100)),
        "time",
    ),
    "a clock that runs out": (1e-6, (), "clock"),
}


@needs_ortools
@pytest.mark.parametrize("what", LIMITS)
def test_what_stopped_it_is_told(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a proof the bound is below the cost, the levels are no worse than the hint, and why is said."""
    seconds, patches, reason = LIMITS[what]
    for where, name, value in patches:
        monkeypatch.setattr(where, name, value)
    preds, letters = hard()
    hint = agenda(preds, letters)
    found = exact(preds, letters, [1] * len(preds), hint, seconds)
    assert found.stopped == reason
    assert not found.proven
    assert found.bound < found.cost <= launches(hint, letters)
    assert weight(found.levels, letters, [1] * len(preds)) == found.cost
    assert is_level_function(found.levels, preds)


@needs_ortools
def test_an_answer_without_proof_is_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is counted in work, not by a clock: stopped in the middle of it, two runs end alike."""
    monkeypatch.setattr(optimum, "STEPS_A_SECOND", 100)
    monkeypatch.setattr(optimum, "WORK_A_SECOND", 0.0005)
    preds, letters = hard()
    one, two = (exact(preds, letters, [1] * len(preds), foata(preds), 5 * LONG) for _ in range(2))
    assert one.stopped == "time"
    assert one == two
    assert 4 < one.bound < one.cost < launches(foata(preds), letters)


# -- what is refused -----------------------------------------------------------------------------------

WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "signatures": (lambda: exact(((), ()), "A", (1, 1), (0, 0), 1), "1 of 2 ops have a signature"),
    "weights": (lambda: exact(((), ()), "AA", (1,), (0, 0), 1), "1 of 2 ops have a weight"),
    "hint": (lambda: exact(((), (0,)), "AA", (1, 1), (0, 0), 1), "does not grow along every edge"),
    "below zero": (lambda: exact(((),), "A", (-1,), (0,), 1), "the negative weight -1"),
    "two weights": (lambda: exact(((), ()), "AA", (1, 2), (0, 0), 1), "op 1 has another weight"),
    "order": (lambda: exact(((1,), ()), "AB", (1, 1), (1, 0), 1), "op 0"),
}


@needs_ortools
@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_together_is_refused(what: str) -> None:
    """Numbers that differ, weights that no launch has, and a hint that is no level function."""
    call, words = WRONG[what]
    with pytest.raises(SchedError, match=words):
        call()


def test_without_or_tools_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which package is missing, and the hint how to get it."""
    for module in ("ortools", "ortools.sat", "ortools.sat.python"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match="OR-tools, which is not installed") as caught:
        exact(((), ()), "AA", (1, 1), (0, 1), LONG)
    assert caught.value.hint == "pip install 'onnx-sched[exact]'"
    assert caught.value.exit_code == 2
