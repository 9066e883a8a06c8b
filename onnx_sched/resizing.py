"""By how much a Resize resizes each axis, whichever of its inputs says so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import NodeProto

from onnx_sched.constants import Const
from onnx_sched.dims import Dim, Shape
from onnx_sched.nodes import attributes

SCALES = "onnx_sched.scales"
"""Attribute of a unit: the factor of every axis of its first operand."""


def factors(
    node: NodeProto, shape: Shape, scales: Const | None, sizes: Sequence[Dim] | None, opset: int
) -> tuple[float, ...] | None:
    """The factor of every axis; None where one is not known, or the op crops as well.

    A factor that stands for a size gives that size again: what is resized by it is the same number by
    number.

    Args:
        node: The Resize.
        shape: Of its first operand.
        scales: Its operand of that name, if it is constant.
        sizes: What is known of its operand of that name, which goes first.
        opset: Of the model.
    """
    attrs = attributes(node)
    if opset < 11 or attrs.get("coordinate_transformation_mode") == b"tf_crop_and_resize":
        return None
    if attrs.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        return None
    axes = attrs.get("axes", tuple(range(len(shape))))
    assert isinstance(axes, tuple)
    named = [int(a) % len(shape) for a in axes]
    given: list[float | None]
    if len(node.input) > 3 and node.input[3]:
        if sizes is None or len(sizes) != len(named):
            return None
        given = [factor(shape[a], size) for a, size in zip(named, sizes, strict=True)]
    elif scales is not None:
        given = [float(v) for v in np.asarray(scales.load()).ravel()]
    else:
        return None
    if len(given) != len(named):
        return None
    found = [1.0] * len(shape)
    for axis, value in zip(named, given, strict=True):
        size = shape[axis]
        if value is None or value <= 0 or (isinstance(size, int) and scaled(size, value) is None):
            return None
        found[axis] = value
    return tuple(found)


def factor(before: Dim, after: Dim) -> float | None:
    """What makes one size of another, in single precision; None if nothing surely does.

    >>> factor(8, 32), factor("B", "B"), factor("B", 32), factor(3, 5)
    (4.0, 1.0, None, None)
    """
    if before == after:
        return 1.0
    if not isinstance(before, int) or not isinstance(after, int) or before <= 0 or after <= 0:
        return None
    by = float(np.float32(after) / np.float32(before))
    return by if scaled(before, by) == after else None


def scaled(size: int, by: float) -> int | None:
    """A size times a factor, rounded down; None where that depends on how exactly it is worked out.

    ONNX Runtime multiplies in single precision and ONNX's shape inference in double: 3 by 5/3 is 5 or 4.
    """
    single = int(np.float32(size) * np.float32(by))
    return single if single == int(size * float(np.float32(by))) else None


def resized(shape: Shape, by: Sequence[float], otherwise: Sequence[Dim]) -> Shape:
    """The shape that results; a size known only at run time is `otherwise` unless it stays."""
    found: list[Dim] = []
    for dim, factor_, open_ in zip(shape, by, otherwise, strict=True):
        known = scaled(dim, factor_) if isinstance(dim, int) else None
        found.append(dim if factor_ == 1 else open_ if known is None else known)
    return tuple(found)
