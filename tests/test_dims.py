"""Sizes with symbols compute as the numbers that they stand for."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from onnx_sched.dims import Dim, Shape, broadcast, count, is_static, product, quotient, symbol
from tests.nets import evaluate

NAMES = ("a", "b", "n.0", "<7>")
PRIMES = dict(zip(NAMES, (1009, 1013, 1019, 1021), strict=True))

atoms: st.SearchStrategy[Dim] = st.one_of(st.integers(0, 12), st.sampled_from(NAMES))
factors = st.lists(atoms, max_size=5)
dims = factors.map(product)
sizes = st.fixed_dictionaries({name: st.integers(0, 5) for name in NAMES})
small: st.SearchStrategy[Dim] = st.sampled_from([1, 1, 2, 3, "a", "b", "2*a"])
shapes = st.lists(small, max_size=3).map(tuple)


@given(st.lists(st.one_of(dims, atoms), max_size=4), sizes)
def test_a_product_is_the_product_of_the_numbers(parts: list[Dim], binding: dict[str, int]) -> None:
    """Binding the symbols before or after multiplying gives the same number."""
    expected = 1
    for part in parts:
        expected *= evaluate(part, binding)
    assert evaluate(product(parts), binding) == expected


@given(factors, st.data())
def test_a_product_has_one_spelling(parts: list[Dim], data: st.DataObject) -> None:
    """Neither the order of the factors nor how they are bracketed shows in the result."""
    shuffled = data.draw(st.permutations(parts))
    cut = data.draw(st.integers(0, len(parts)))
    assert product(shuffled) == product(parts)
    assert product([product(parts[:cut]), product(parts[cut:])]) == product(parts)
    assert product([product(parts)]) == product(parts)


@given(dims, dims)
def test_two_sizes_are_spelled_alike_only_if_they_are_equal(one: Dim, other: Dim) -> None:
    """Equal text means equal for every binding, and the other way round.

    The coefficients stay below the primes, so that the primes tell different products apart.
    """
    same = evaluate(one, PRIMES) == evaluate(other, PRIMES)
    assert (one == other) == same


@given(dims, dims)
def test_a_quotient_undoes_a_product(whole: Dim, part: Dim) -> None:
    """(whole * part) / part is whole, wherever neither is zero."""
    if whole != 0 and part != 0:
        assert quotient(product([whole, part]), part) == whole


@given(dims, dims)
def test_a_quotient_comes_out_even_or_not_at_all(whole: Dim, part: Dim) -> None:
    """Where there is a quotient, times the divisor it is the dividend again; nothing is divided by 0."""
    result = quotient(whole, part)
    if part == 0:
        assert result is None
    if result is not None:
        assert product([result, part]) == whole
    elif part != 0 and whole != 0:
        assert evaluate(whole, PRIMES) % evaluate(part, PRIMES)


@given(st.text(min_size=1, max_size=6))
def test_a_name_is_one_symbol_whatever_is_written_in_it(name: str) -> None:
    """A name from a model is no number and no product: it counts once, divides out once, and stays."""
    one = symbol(name)
    assert product([one]) == one
    assert quotient(product([6, one, one]), product([2, one])) == product([3, one])
    assert count([one], assume=7) == 7
    assert not is_static([one])


def test_different_names_are_different_symbols() -> None:
    """Two names that a model tells apart are never taken for one size."""
    names = ["2*n", "2.n", "7", "<7>", "n", "n*n", "n.n", "2*n*m"]
    assert len({symbol(name) for name in names}) == len(names)


@given(st.lists(dims, max_size=4), st.integers(1, 9))
def test_count_takes_every_symbol_as_one_number(shape: list[Dim], assume: int) -> None:
    """Counting elements is multiplying with all symbols bound to the same size."""
    binding = dict.fromkeys(NAMES, assume)
    assert count(shape, assume) == np.prod([evaluate(d, binding) for d in shape], dtype=object)


def test_only_numbers_are_static() -> None:
    """One symbol among the sizes and the shape is not known; the empty shape is."""
    assert is_static(())
    assert is_static((2, 0))
    assert not is_static((2, "n"))


@given(st.lists(shapes, max_size=4))
def test_broadcasting_agrees_with_numpy_under_every_binding(parts: list[Shape]) -> None:
    """A common shape is the one that numpy finds, for all sizes of the symbols.

    Without one, there are sizes for which numpy finds the shapes to clash.
    """
    result = broadcast(parts)
    clashes = False
    for a, b in itertools.product((0, 1, 2, 3, 5), repeat=2):
        binding = {"a": a, "b": b}
        bound = [tuple(evaluate(d, binding) for d in shape) for shape in parts]
        try:
            expected = np.broadcast_shapes(*bound)
        except ValueError:
            clashes = True
            continue
        if result is not None:
            assert tuple(evaluate(d, binding) for d in result) == expected
    assert clashes == (result is None)
