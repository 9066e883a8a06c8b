"""Sizes of axes that may be unknown until run time (pure).

A `Dim` is an int, or a string such as `"24*batch"`: a coefficient times named symbols, in one
canonical spelling, so that two equal products compare equal.  What is no product (a sum, a quotient
that does not come out even) becomes a symbol of its own, named by whoever makes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

Dim = int | str
Shape = tuple[Dim, ...]


def symbol(name: str) -> str:
    """Turn a name from a model into one symbol: different names, different symbols.

    A `*` in a name is spelling, not a product, and a name of digits is no number.

    >>> symbol("batch"), symbol("2*n"), symbol("7")
    ('batch', '2%2An', '%7')
    """
    escaped = name.replace("%", "%25").replace("*", "%2A")
    return f"%{escaped}" if name.isdigit() else escaped


OWN, MADE = "%.", "%.%."
"""How made up symbols begin: those for sizes of inputs, and those for sizes that follow from others."""


def own(name: str, made: bool = True) -> str:
    """Make up the symbol for a size that the model has no name for; no model can name it so.

    What is named by a value of the model is not `made`: a value may be called whatever a symbol is.

    >>> own("Reshape.0.1"), own("x.0", made=False), own("%.x", made=False)
    ('%.%.Reshape.0.1', '%.x.0', '%.%25.x')
    """
    return f"{MADE if made else OWN}{symbol(name)}"


def is_own(dim: Dim) -> bool:
    """Whether a size is such a symbol, and nothing else.

    >>> is_own(own("x.0")), is_own("n"), is_own(3)
    (True, False, False)
    """
    return isinstance(dim, str) and dim.startswith(OWN) and "*" not in dim


def _parts(dim: Dim) -> tuple[int, list[str]]:
    if isinstance(dim, int):
        return dim, []
    head, *rest = dim.split("*")
    return (int(head), rest) if head.isdigit() else (1, [head, *rest])


def _spell(coefficient: int, symbols: Sequence[str]) -> Dim:
    if not symbols or coefficient == 0:
        return coefficient
    text = "*".join(sorted(symbols))
    return text if coefficient == 1 else f"{coefficient}*{text}"


def product(dims: Iterable[Dim]) -> Dim:
    """Multiply sizes.

    >>> product([2, "n", 3, "b"]), product([])
    ('6*b*n', 1)
    """
    coefficient, symbols = 1, []
    for dim in dims:
        c, s = _parts(dim)
        coefficient *= c
        symbols += s
    return _spell(coefficient, symbols)


def quotient(whole: Dim, part: Dim) -> Dim | None:
    """Divide sizes; None where it does not come out even, or the divisor may be zero.

    >>> quotient("6*b*n", "2*n"), quotient("n", 2), quotient(0, 3)
    ('3*b', None, 0)
    """
    c, symbols = _parts(whole)
    d, divisors = _parts(part)
    if d == 0 or c % d:
        return None
    for name in divisors:
        if name not in symbols:
            return None
        symbols.remove(name)
    return _spell(c // d, symbols)


def vanishes_with(whole: Dim, part: Dim) -> bool:
    """Whether a size is surely 0 where another one turns out to be.

    >>> vanishes_with("n", "n"), vanishes_with("n", "m*n"), vanishes_with(0, "n"), vanishes_with(4, "n")
    (True, False, True, False)
    """
    return whole == 0 or set(_parts(part)[1]) <= set(_parts(whole)[1])


def told_apart(x: Dim, y: Dim) -> tuple[str, str] | None:
    """The symbols that must be equal if two different sizes are, the first in the alphabet first.

    >>> told_apart("2*m", "2*n"), told_apart("n", "2*n"), told_apart("m*n", "k"), told_apart("n", "n")
    (('m', 'n'), None, None, None)
    """
    (a, left), (b, right) = _parts(x), _parts(y)
    if a != b or a == 0 or len(left) != 1 or len(right) != 1 or left == right:
        return None
    first, second = sorted((left[0], right[0]))
    return first, second


def is_static(shape: Iterable[Dim]) -> bool:
    """Whether every size is known now."""
    return all(isinstance(d, int) for d in shape)


def count(shape: Iterable[Dim], assume: int = 1) -> int:
    """Number of elements, every symbol taken as `assume`.

    >>> count(["2*n", 3], assume=4)
    24
    """
    total = 1
    for dim in shape:
        c, symbols = _parts(dim)
        total *= c * prod(assume for _ in symbols)
    return total


def broadcast(shapes: Iterable[Shape]) -> Shape | None:
    """The common shape under right-aligned broadcasting; None where sizes may clash.

    >>> broadcast([("n", 1), (4,)]), broadcast([("n",), ("m",)])
    (('n', 4), None)
    """
    shapes = list(shapes)
    rank = max(map(len, shapes), default=0)
    out: list[Dim] = [1] * rank
    for shape in shapes:
        for i, dim in enumerate(shape, rank - len(shape)):
            if dim == 1 or dim == out[i]:
                continue
            if out[i] != 1:
                return None
            out[i] = dim
    return tuple(out)
