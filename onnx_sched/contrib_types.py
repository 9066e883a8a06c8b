"""Types of ops that onnx has no schema for (com.microsoft), or whose inference says too little (pure).

Each function of the table gets the shapes of the operands and the attributes, and gives one `Typed` an
output; it holds only ops whose sizes follow from shapes and attributes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from onnx_sched.dims import Shape, broadcast, product

MICROSOFT = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Typed:
    """An output: its shape, and which operand has its element type."""

    shape: Shape
    like: int


Shapes = Sequence[Shape | None]
Attributes = Mapping[str, Hashable]
Outputs = tuple[Typed | None, ...]


def like_first(shapes: Shapes, attributes: Attributes) -> Outputs:
    """The first output is as the first operand; others are not known."""
    return (_typed(shapes[0], 0),)


def skip_norm(shapes: Shapes, attributes: Attributes) -> Outputs:
    """The norm, two statistics, and the sum that was normalised."""
    first = _typed(shapes[0], 0)
    return (first, None, None, first)


def scaled(shapes: Shapes, attributes: Attributes) -> Outputs:
    """DequantizeLinear: the shape of the numbers, the type of the scale."""
    return (_typed(shapes[0], 1),)


def zeroed(shapes: Shapes, attributes: Attributes) -> Outputs:
    """QuantizeLinear: the shape of the numbers, the type of the zero point."""
    return (_typed(shapes[0], 2) if len(shapes) > 2 else None,)


def fused_matmul(shapes: Shapes, attributes: Attributes) -> Outputs:
    """MatMul whose last two axes may be transposed.

    >>> fused_matmul([("n", 4, 2), (5, 4)], {"transA": 1, "transB": 1})[0].shape
    ('n', 2, 5)
    """
    a, b = shapes[:2]
    batches = attributes.get("transBatchA", 0) or attributes.get("transBatchB", 0)
    if a is None or b is None or len(a) < 2 or len(b) < 2 or batches:
        return (None,)
    outer = broadcast([a[:-2], b[:-2]])
    rows = a[-1] if attributes.get("transA", 0) else a[-2]
    columns = b[-2] if attributes.get("transB", 0) else b[-1]
    return (None if outer is None else Typed((*outer, rows, columns), 0),)


def four_bits(shapes: Shapes, attributes: Attributes) -> Outputs:
    """MatMulNBits: N columns."""
    first, width = shapes[0], attributes.get("N")
    if not first or not isinstance(width, int):
        return (None,)
    return (Typed((*first[:-1], width), 0),)


def widened(
    op_type: str, shape: Shape, inferred: Shape | None, ints: Sequence[Shape | None]
) -> Shape | None:
    """The shape that Tile or Pad gives: an axis that does not grow keeps its size, whatever that is.

    Args:
        op_type: "Tile" or "Pad".
        shape: Of the first operand.
        inferred: What is known already.
        ints: The other operands as sizes: repeats, or pads, value and axes.

    >>> widened("Tile", ("n", 3), ("a", "b"), [(1, 2)])
    ('n', 6)
    >>> widened("Pad", ("n", "m", 3), ("a", "b", 5), [(1, 0, 0, 2), None, (1, -1)])
    ('n', 'b', 5)
    """
    first = ints[0] if ints else None
    if first is None or inferred is None or len(inferred) != len(shape):
        return inferred
    if op_type == "Tile":
        known = len(first) == len(shape)
        return tuple(map(product, zip(shape, first, strict=True))) if known else inferred
    axes = ints[2] if len(ints) > 2 else tuple(range(len(shape)))
    if axes is None or len(first) != 2 * len(axes):
        return inferred
    grown = set[int]()
    for k, axis in enumerate(axes):
        if not isinstance(axis, int):
            return inferred
        if (first[k], first[k + len(axes)]) != (0, 0):
            grown.add(axis % len(shape))
    return tuple(inferred[a] if a in grown else d for a, d in enumerate(shape))


def _typed(shape: Shape | None, like: int) -> Typed | None:
    return None if shape is None else Typed(shape, like)


Inferred = Callable[[Shapes, Attributes], Outputs]

TABLE: Mapping[tuple[str, str], Inferred] = {
    **dict.fromkeys(
        ((MICROSOFT, k) for k in ("BiasGelu", "FastGelu", "Gelu", "QuickGelu")), like_first
    ),
    ("", "GroupNormalization"): like_first,
    ("", "SimplifiedLayerNormalization"): like_first,
    (MICROSOFT, "SkipLayerNormalization"): skip_norm,
    (MICROSOFT, "SkipSimplifiedLayerNormalization"): skip_norm,
    (MICROSOFT, "DequantizeLinear"): scaled,
    (MICROSOFT, "QuantizeLinear"): zeroed,
    (MICROSOFT, "FusedMatMul"): fused_matmul,
    (MICROSOFT, "MatMulNBits"): four_bits,
}
"""By domain and op type."""
