"""Arithmetic with sizes, as exporters write it into graphs, on symbols (pure).

Every symbol stands for a size: it is not negative.  What has no spelling as a product becomes a symbol of
its own, named by what made it: equal sums of equal sizes are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnx import NodeProto, TensorProto

from onnx_sched.dims import Dim, own, product, quotient
from onnx_sched.nodes import attributes

Vector = tuple[Dim, ...]

WHOLE_NUMBERS = frozenset({TensorProto.INT64, TensorProto.INT32})


def added(x: Dim, y: Dim) -> Dim | None:
    """The sum of two sizes."""
    if isinstance(x, int) and isinstance(y, int):
        return x + y
    if 0 in (x, y):
        return x if y == 0 else y
    first, second = sorted((str(x), str(y)))
    return own(f"{len(first)}:{first}+{second}") if _sizes(x, y) else None


def multiplied(x: Dim, y: Dim) -> Dim | None:
    """The product of two sizes."""
    if isinstance(x, int) and isinstance(y, int):
        return x * y
    return product((x, y)) if _sizes(x, y) else None


def divided(x: Dim, y: Dim) -> Dim | None:
    """The quotient of a size by a number, rounded down."""
    if not isinstance(y, int) or y <= 0 or not _sizes(x, y):
        return None
    if isinstance(x, int):
        return x // y
    even = quotient(x, y)
    return own(f"{x}/{y}") if even is None else even


def equal(x: Dim, y: Dim) -> Dim | None:
    """Whether two sizes are equal, 0 or 1, as far as that is sure: no size is negative."""
    if x == y or (isinstance(x, int) and isinstance(y, int)):
        return int(x == y)
    return None if _sizes(x, y) else 0


def same(x: Dim, y: Dim) -> Dim | None:
    """The larger or smaller of two that are one."""
    return x if x == y else None


def _sizes(*dims: Dim) -> bool:
    return all(not isinstance(d, int) or d >= 0 for d in dims)


PAIRS: Mapping[str, Callable[[Dim, Dim], Dim | None]] = {
    "Add": added,
    "Mul": multiplied,
    "Div": divided,
    "Equal": equal,
    "Max": same,
    "Min": same,
}
RULES = frozenset({*PAIRS, "Where", "ReduceProd"})
"""Ops that are followed."""


def told(node: NodeProto, vectors: Sequence[Vector], elem_type: int) -> Vector | None:
    """What an op makes of vectors (or single numbers) of sizes, of rank 1 at most; None if that is not sure.

    Args:
        node: One of `RULES`.
        vectors: Its operands.
        elem_type: Of the first of them.
    """
    if node.op_type == "ReduceProd":
        whole = len(vectors) == 1 and _sizes(*vectors[0])
        whole = whole and not attributes(node).get("noop_with_empty_axes")
        return (product(vectors[0]),) if whole and elem_type in WHOLE_NUMBERS else None
    length = max(map(len, vectors))
    if any(len(v) not in (1, length) for v in vectors):
        return None
    columns = list(zip(*(v * (length // len(v)) for v in vectors), strict=True))
    found: list[Dim | None]
    if node.op_type == "Where":
        found = [(c[1] if c[0] else c[2]) if isinstance(c[0], int) else None for c in columns]
    elif elem_type in WHOLE_NUMBERS and len(vectors) == 2:
        found = [PAIRS[node.op_type](x, y) for x, y in columns]
    else:
        return None
    sure = tuple(d for d in found if d is not None)
    return sure if len(sure) == length else None
