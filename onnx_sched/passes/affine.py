"""What a chain of ops makes of the features of one value: an affine map, if it is one (pure).

    Mul(Add(Gather(x, i), Mul(Sub(Gather(x, j), Gather(x, i)), t)), g)  ==>  x R + c
    Mul(Resize(Unsqueeze(x), linear), g)                                ==>  x R

Conditions: every op takes features from one place to another, mixes them by constants, or renames axes; all
that is read is constant or comes from one value.  R and c are worked out in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Const
from onnx_sched.dims import Shape, product
from onnx_sched.plan import AFFINE, ARITHMETIC, MIXING, VIEWS
from onnx_sched.resizing import SCALES

Numbers = NDArray[np.float64]

LONGEST = 32
"""A chain of more units than this is not followed."""

EXTREME = 256.0
"""What a chain multiplies by, or adds, is not beyond this: else it would round or overflow elsewhere."""

LARGEST = 1 << 16
"""A map of more numbers than this is not worked out."""

RESIZING = ("coordinate_transformation_mode", "mode", "nearest_mode")
"""Attributes of a Resize that say which numbers it takes, where it is one of those below."""

MODES = frozenset({b"linear", b"nearest"})
COORDINATES = frozenset({b"half_pixel", b"pytorch_half_pixel", b"align_corners", b"asymmetric"})


@dataclass(frozen=True, slots=True)
class Affine:
    """A value whose rows are x R + c for the rows x of another one.

    Attributes:
        root: That other one; its features are its last axis.
        linear: R, [features of the root, features].
        shift: c, [features].
        units: The units in between, in order.
    """

    root: str
    linear: Numbers
    shift: Numbers
    units: tuple[Unit, ...]

    @property
    def used(self) -> bool:
        """Whether each feature of the root is part of some result."""
        return bool(np.all(np.any(self.linear != 0, axis=1)))


@dataclass(frozen=True, slots=True)
class _State:
    """A value in the middle: its features stand on one axis, all others together are the root's rows."""

    linear: Numbers
    shift: Numbers
    axis: int
    shape: Shape

    @property
    def is_tame(self) -> bool:
        """Whether the numbers are such that one map of them rounds as the chain does."""
        size = np.abs(self.linear).max(initial=0.0)
        finite = np.all(np.isfinite(self.linear)) and np.all(np.isfinite(self.shift))
        large = max(size, np.abs(self.shift).max(initial=0.0)) > EXTREME
        return bool(finite and not large and size * EXTREME >= 1)

    def along(self, change: Callable[[Numbers], Numbers], shape: Shape) -> _State | None:
        """The state after a linear change of the features."""
        linear, shift = change(self.linear), change(self.shift[None])[0]
        fits = len(shape) == len(self.shape) and shape[self.axis] == linear.shape[1]
        return _State(linear, shift, self.axis, shape) if fits else None


def affine(circuit: Circuit, value: str) -> Affine | None:
    """The affine map by which a value follows from the farthest one that it so follows from.

    None if there is none; if nothing but axes is changed; or if the rows stand elsewhere in the end.
    """
    units: dict[int, Unit] = {}
    roots: set[str] = set()
    ahead = [value]
    while ahead:
        name = ahead.pop()
        maker = circuit.maker.get(name)
        if maker is None or maker.domain or maker.kind not in AFFINE or len(maker.outputs) != 1:
            roots.add(name)
        elif maker.number not in units:
            units[maker.number] = maker
            read = maker.operands[:1] if maker.kind not in ARITHMETIC else maker.operands
            ahead += [o for o in read if isinstance(o, str)]
        if len(units) > LONGEST:
            return None
    chain = tuple(units[n] for n in sorted(units))
    if len(roots) != 1 or not any(u.kind in MIXING for u in chain):
        return None
    return _mapped(circuit, roots.pop(), chain, value)


def _mapped(circuit: Circuit, root: str, chain: tuple[Unit, ...], value: str) -> Affine | None:
    """The map of a chain."""
    shape, end = circuit.shape(root), circuit.shape(value)
    width = shape[-1] if shape else None
    if (
        not shape
        or len(shape) < 2
        or not end
        or not isinstance(width, int)
        or not 1 < width * width <= LARGEST
    ):
        return None
    start = _State(np.eye(width), np.zeros(width), len(shape) - 1, shape)
    states: dict[str, _State] = {root: start}
    for unit in chain:
        after = _after(circuit, unit, states)
        if after is None or after.linear.size > LARGEST or not after.is_tame:
            return None
        states[unit.outputs[0]] = after
    last = states[value]
    same_rows = last.shape[:-1] == shape[:-1] and last.axis == len(last.shape) - 1
    return Affine(root, last.linear, last.shift, chain) if same_rows else None


def _after(circuit: Circuit, unit: Unit, states: Mapping[str, _State]) -> _State | None:
    """The state of a unit's result; None if it is no affine map of features."""
    shape = circuit.shape(unit.outputs[0])
    if shape is None or circuit.elem_type(unit.outputs[0]) != TensorProto.FLOAT:
        return None
    if unit.kind in ARITHMETIC:
        return _arithmetic(unit, states, shape)
    before = states[str(unit.operands[0])]
    if unit.kind in VIEWS:
        return _view(unit, before, shape)
    if unit.kind == "Resize":
        return _resized(unit, before, shape)
    return _gathered(unit, before, shape)


def _arithmetic(unit: Unit, states: Mapping[str, _State], shape: Shape) -> _State | None:
    """Add, Sub, Mul, Div or Neg of what comes from the root, or of that and a constant a feature."""
    found = [states[o] if isinstance(o, str) else o for o in unit.operands]
    values = [s for s in found if isinstance(s, _State)]
    first = values[0]
    if any(s.shape != shape or s.axis != first.axis for s in values):
        return None
    if unit.kind == "Neg":
        return _State(-first.linear, -first.shift, first.axis, shape)
    sign = -1.0 if unit.kind == "Sub" else 1.0
    if len(values) == 2:
        if unit.kind in ("Mul", "Div"):
            return None
        a, b = values
        return _State(a.linear + sign * b.linear, a.shift + sign * b.shift, first.axis, shape)
    where = next(k for k, s in enumerate(found) if not isinstance(s, _State))
    const = found[where]
    row = _by_feature(const, first) if isinstance(const, Const) else None
    if row is None or (unit.kind == "Div" and (where == 0 or not np.all(row))):
        return None
    if unit.kind in ("Mul", "Div"):
        factor = row if unit.kind == "Mul" else 1 / row
        return _State(first.linear * factor, first.shift * factor, first.axis, shape)
    if where == 0:  # c + x or c - x
        return _State(sign * first.linear, row + sign * first.shift, first.axis, shape)
    return _State(first.linear, first.shift + sign * row, first.axis, shape)


def _by_feature(const: Const, state: _State) -> Numbers | None:
    """A constant as one number a feature; None if it differs along another axis."""
    rank, width = len(state.shape), state.linear.shape[1]
    if const.rank > rank or const.elem_type != TensorProto.FLOAT:
        return None
    shape = (1,) * (rank - const.rank) + const.shape
    if any(d != 1 for k, d in enumerate(shape) if k != state.axis):
        return None
    return np.broadcast_to(np.asarray(const.load(), np.float64).ravel(), (width,))


def _view(unit: Unit, before: _State, shape: Shape) -> _State | None:
    """Axes renamed: features stay together, and rows in order."""
    width = before.linear.shape[1]
    if unit.kind == "Transpose":
        perm = unit.attribute("perm", tuple(range(len(shape)))[::-1])
        assert isinstance(perm, tuple)
        rest = [p for p in perm if p != before.axis and before.shape[p] != 1]
        if rest != sorted(rest):
            return None
        return _State(before.linear, before.shift, perm.index(before.axis), shape)
    outer, inner = product(before.shape[: before.axis]), product(before.shape[before.axis + 1 :])
    for axis, dim in enumerate(shape):
        if dim == width and product(shape[:axis]) == outer and product(shape[axis + 1 :]) == inner:
            return _State(before.linear, before.shift, axis, shape)
    return None


def _gathered(unit: Unit, before: _State, shape: Shape) -> _State | None:
    """Features taken by constant indices."""
    index = unit.operands[1]
    if not isinstance(index, Const):
        return None
    if unit.kind == "Gather":
        axis, rank = unit.integer("axis") % len(before.shape), 1
    else:
        axis, rank = 0, 2
        if unit.integer("batch_dims") or index.shape[-1:] != (1,):
            return None
    if axis != before.axis or index.rank != rank:
        return None
    width = before.linear.shape[1]
    chosen = np.asarray(index.load(), np.int64).ravel()
    if np.any(chosen < -width) or np.any(chosen >= width):
        return None
    return before.along(lambda rows: rows[:, chosen], shape)


def _resized(unit: Unit, before: _State, shape: Shape) -> _State | None:
    """Features between which a Resize interpolates; ONNX's reference says how."""
    scales, width = unit.attribute(SCALES), before.linear.shape[1]
    where = unit.attribute("coordinate_transformation_mode")
    known = unit.attribute("mode") in MODES and where in COORDINATES
    if not isinstance(scales, tuple) or not known or unit.integer("antialias"):
        return None
    by = float(scales[before.axis])
    if any(f != 1 for k, f in enumerate(scales) if k != before.axis):
        return None
    if width * by != shape[before.axis] or width * width * by > LARGEST:
        return None  # its coordinates would depend on how the size was rounded
    given: dict[str, Any] = {k: v for k, v in unit.attributes if k in RESIZING}
    kept = _interpolation(given, width, by)
    return before.along(lambda rows: rows @ kept, shape)


def _interpolation(given: Mapping[str, Any], width: int, by: float) -> Numbers:
    """The matrix of a Resize along one axis."""
    node = helper.make_node("Resize", ["x", "", "by"], ["y"], **given)
    evaluator = ReferenceEvaluator(node)
    feeds = {"x": np.eye(width, dtype=np.float32)[:, None], "by": np.array([1, 1, by], np.float32)}
    outputs: Any = evaluator.run(["y"], feeds)
    return np.asarray(outputs[0], np.float64)[:, 0]
