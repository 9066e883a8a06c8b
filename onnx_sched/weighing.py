"""How a sum of products over one axis is a matrix product: which axis plays which part (pure).

sum over k of w[b, r, k, 1] * x[b, 1, k, c]  =  sum over k of W_b[r, k] * X_b[k, c]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from onnx_sched.dims import Dim, Shape
from onnx_sched.stacking import LANE, Axis, Layout

FORM = "weighted_sum"
"""The form of a group whose products are summed by a matrix product: its own sums, or that over its lanes."""

MULTIPLIED = frozenset({1, 10, 11})
"""Element types of which every runtime has matrix products: float, float16, double."""

SMALLEST = 32
"""Numbers in one product from which on it is worth it; an open size counts as large.

ONNX Runtime 1.31 on a CPU, ten thousand products: 4 x 4 numbers take 1.2 times as long as Mul and ReduceSum,
4 x 8 from 0.7 to 1.0 times, 3 x 16 0.6 times, 8 x 64 0.5 times.
"""


@dataclass(frozen=True, slots=True)
class Factors:
    """Two operands that are multiplied and then summed over one axis, axes counted as Mul broadcasts.

    Attributes:
        shapes: Of the operands, in each lane.
        inner: The axis that is summed over; None where it is the lanes and nothing else.
        keep: Whether that axis stays, with size 1.
    """

    shapes: tuple[Shape, Shape]
    inner: int | None
    keep: bool = False

    @property
    def rank(self) -> int:
        """Number of axes of what is summed."""
        return max(map(len, self.shapes))

    def size(self, k: int, axis: int) -> Dim:
        """Size of an axis of operand k; an axis that it does not have is one of size 1."""
        own = axis - self.rank + len(self.shapes[k])
        return self.shapes[k][own] if own >= 0 else 1

    @property
    def others(self) -> tuple[int, ...]:
        """The axes that are not summed over."""
        return tuple(a for a in range(self.rank) if a != self.inner)

    @property
    def batches(self) -> tuple[int, ...]:
        """The axes along which both operands go together."""
        return tuple(a for a in self.others if self.size(0, a) == self.size(1, a) != 1)

    def free(self, k: int) -> tuple[int, ...]:
        """The axes that operand k has alone: rows or columns of matrices."""
        return tuple(a for a in self.others if self.size(k, a) != 1 == self.size(1 - k, a))

    @property
    def fits(self) -> bool:
        """Whether the sizes surely broadcast, one operand at least along an axis of the other."""
        sizes = [(self.size(0, a), self.size(1, a)) for a in self.others]
        return all(a == b or 1 in (a, b) for a, b in sizes) and any(a != b for a, b in sizes)

    def pays(self, lanes: int = 1) -> bool:
        """Whether one product is large enough; where lanes are summed over, with so many of them."""
        return max(self._numbers(0), self._numbers(1)) * lanes >= SMALLEST

    def _numbers(self, k: int) -> int:
        """How many numbers of operand k one product takes."""
        total = 1
        for a in (*self.free(k), *(() if self.inner is None else (self.inner,))):
            size = self.size(k, a)
            total *= size if isinstance(size, int) else SMALLEST
        return total

    def own(self, k: int, axes: Iterable[int]) -> Axis:
        """Axes as operand k counts them."""
        return tuple(a - self.rank + len(self.shapes[k]) for a in axes)

    def left_over(self, axes: Iterable[int]) -> Axis:
        """Axes as the sum counts them."""
        gone = self.rank if self.keep or self.inner is None else self.inner
        return tuple(a if a < gone else a - 1 for a in axes)

    @property
    def result(self) -> Shape:
        """Shape of the sum."""
        found: list[Dim] = []
        for a in range(self.rank):
            if a != self.inner:
                found.append(self.size(0, a) if self.size(1, a) == 1 else self.size(1, a))
            elif self.keep:
                found.append(1)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Place:
    """Where lanes stand in a product.

    Attributes:
        slots: The operands that hold them.
        part: Among the batches of matrices, with the free axes of an operand, or on the axis that is
            summed over.
        at: Before which of the batch axes.
    """

    slots: tuple[int, ...]
    part: Literal["batch", "free", "inner"]
    at: int = 0


@dataclass(frozen=True, slots=True)
class Way:
    """One matrix product.

    Attributes:
        left: The operand that is the left factor.
        layouts: How the operands must lie, in their order.
        whole: How the product lies; without lanes where they are summed over.
    """

    left: int
    layouts: tuple[Layout, Layout]
    whole: Layout


def ways(factors: Factors, place: Place) -> Iterator[Way]:
    """The two matrix products that a weighted sum can be, one the other's transpose.

    >>> gate = Factors((("B", 8, 1), ("B", 8, 32)), inner=1)
    >>> next(ways(gate, Place((0,), "free")))
    Way(left=0, layouts=(((0,), ('G',), (1,)), ((0,), (1,), (2,))), whole=((0,), ('G',), (1,)))
    """
    batches = _batches(factors.left_over(factors.batches), place, True)
    free = [_free(factors.left_over(factors.free(k)), k, place) for k in (0, 1)]
    for left in (0, 1):
        layouts = (_lying(factors, 0, place, left == 0), _lying(factors, 1, place, left == 1))
        yield Way(left, layouts, (*batches, free[left], free[1 - left]))


def _lying(factors: Factors, k: int, place: Place, left: bool) -> Layout:
    """How operand k lies as the left factor or the right one."""
    batches = _batches(factors.own(k, factors.batches), place, k in place.slots)
    free = _free(factors.own(k, factors.free(k)), k, place)
    inner: Axis = ()
    if factors.inner is not None and factors.size(k, factors.inner) != 1:
        inner = factors.own(k, [factors.inner])
    if place.part == "inner" and k in place.slots:
        inner = (LANE, *inner)
    return (*batches, free, inner) if left else (*batches, inner, free)


def _batches(axes: Axis, place: Place, lanes: bool) -> tuple[Axis, ...]:
    """The axes of the matrices; an operand that all lanes share broadcasts along theirs."""
    found: list[Axis] = [(a,) for a in axes]
    if place.part == "batch":
        found.insert(place.at, (LANE,) if lanes else ())
    return tuple(found)


def _free(axes: Axis, k: int, place: Place) -> Axis:
    return (LANE, *axes) if place.part == "free" and k in place.slots else axes
