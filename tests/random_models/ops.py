"""Ops and weights in the forms that each opset has, and in the spellings that exporters use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.random_models.builder import FLOATS, Array, Dim, Dims, Draft, Value, elem, known, need


class Build(Draft):
    """A model that grows by ops."""

    def cut(self, x: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
        """Slice one axis; bounds from the end, open ends and missing axes where nothing changes."""
        size = x.size(axis)
        low = start - size if self.flip(0.2) and start else start
        high = (
            2**31 - 1 if end == size and self.flip(0.3) else end - size if self.flip(0.1) else end
        )
        high = end if high == 0 else high
        shape = x.sized(axis, len(range(start, end, step)))
        if self.flip(0.2):
            return self._cut_among_all(x, axis, (low, high, step), shape)
        if self.opset < 10:
            attrs: dict[str, Any] = {} if axis == 0 and self.flip(0.3) else {"axes": [axis]}
            return self.op("Slice", [x], x.dtype, shape, starts=[low], ends=[high], **attrs)
        bounds = [self.ints(low), self.ints(high)]
        if axis or step != 1 or self.flip(0.7):
            bounds.append(self.ints(self.axis(axis, x.rank)))
            if step != 1 or self.flip(0.2):
                bounds.append(self.ints(step))
        return self.op("Slice", [x, *bounds], x.dtype, shape)

    def _cut_among_all(
        self, x: Value, axis: int, bounds: tuple[int, int, int], shape: Dims
    ) -> Value:
        """Slice one axis, the others written out from end to end, as TensorFlow does."""
        far = 2**31 - 1
        rows = [(0, far, 1) if a != axis else bounds for a in range(x.rank)]
        starts, ends, steps = ([row[k] for row in rows] for k in range(3))
        need(self.opset >= 10 or bounds[2] == 1)
        if self.opset < 10:
            return self.op("Slice", [x], x.dtype, shape, starts=starts, ends=ends)
        kind = self.pick(["int32", "int64"])
        names = [self.const(np.array(v, kind)) for v in (starts, ends, range(x.rank), steps)]
        short = 2 if bounds[2] == 1 and self.flip() else 4
        return self.op("Slice", [x, *names[:short]], x.dtype, shape)

    def split(self, x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
        """Split an axis into pieces."""
        kinds = [(x.dtype, x.sized(axis, s)) for s in sizes]
        attrs: dict[str, Any] = {"axis": self.axis(axis, x.rank)}
        even = len(set(sizes)) == 1
        if axis == 0 and self.flip(0.3):
            attrs = {}
        if self.opset < 13:
            if not even or self.flip(0.6):
                attrs["split"] = list(sizes)
        elif not even or not self.flip(0.4):
            return self.node("Split", [x, self.ints(*sizes)], kinds, **attrs)
        elif self.opset >= 18:
            attrs["num_outputs"] = len(sizes)
        return self.node("Split", [x], kinds, **attrs)

    def even_split(self, x: Value, axis: int, parts: int) -> list[Value]:
        """Split an axis into as many pieces of one size."""
        return self.split(x, axis, [x.size(axis) // parts] * parts)

    def with_axes(
        self, op: str, x: Value, axes: Sequence[int], since: int, shape: Dims, **attrs: Any
    ) -> Value:
        """An op whose axes are an attribute first and an input later."""
        written = [self.axis(a, len(shape) if op == "Unsqueeze" else x.rank) for a in axes]
        if self.opset >= since:
            return self.op(op, [x, self.ints(*written)], x.dtype, shape, **attrs)
        return self.op(op, [x], x.dtype, shape, axes=written, **attrs)

    def unsqueeze(self, x: Value, axis: int) -> Value:
        """Put in an axis of size 1."""
        return self.with_axes("Unsqueeze", x, [axis], 13, (*x.shape[:axis], 1, *x.shape[axis:]))

    def squeeze(self, x: Value, axis: int) -> Value:
        """Take out an axis of size 1."""
        shape = x.with_axes(axis)
        if self.flip(0.15) and x.shape.count(1) == 1 and known(x.shape):
            return self.op("Squeeze", [x], x.dtype, shape)
        return self.with_axes("Squeeze", x, [axis], 13, shape)

    def reduce(self, op: str, x: Value, axes: Sequence[int], keep: bool) -> Value:
        """A reduction; all axes are sometimes left unsaid."""
        left = [1 if a in axes else d for a, d in enumerate(x.shape)]
        shape = left if keep else [d for a, d in enumerate(x.shape) if a not in axes]
        attrs: dict[str, Any] = {} if keep and self.flip(0.4) else {"keepdims": int(keep)}
        since = 13 if op == "ReduceSum" else 18
        if len(axes) == x.rank and self.flip():
            return self.op(op, [x], x.dtype, shape, **attrs)
        if self.opset >= since and self.flip(0.2):
            attrs["noop_with_empty_axes"] = 1
        return self.with_axes(op, x, axes, since, shape, **attrs)

    def turn(self, x: Value, perm: Sequence[int]) -> Value:
        """Transpose."""
        need(len(perm) == x.rank)
        attrs = {"perm": list(perm)}
        if list(perm) == list(range(x.rank))[::-1] and self.flip(0.5):
            attrs = {}
        return self.op("Transpose", [x], x.dtype, [x.shape[p] for p in perm], **attrs)

    def gather(self, x: Value, axis: int, index: int | Sequence[int] | Array) -> Value:
        """Gather constant entries of an axis."""
        where = np.array(index, np.int32 if self.flip(0.1) else np.int64)
        attrs = {} if axis == 0 and self.flip() else {"axis": self.axis(axis, x.rank)}
        shape = x.with_axes(axis, *where.shape)
        return self.op("Gather", [x, self.const(where)], x.dtype, shape, **attrs)

    def join(self, parts: Sequence[Value], axis: int) -> Value:
        """Concat."""
        need(all(axis < p.rank for p in parts))
        sizes = [p.shape[axis] for p in parts]
        total: Dim = sum(s for s in sizes if isinstance(s, int))
        if any(isinstance(s, str) for s in sizes):
            total = f"{len(sizes)} of {sizes[0]} and more"
        x = parts[0]
        return self.op("Concat", parts, x.dtype, x.sized(axis, total), axis=self.axis(axis, x.rank))

    def reshape(self, x: Value, written: Sequence[int], shape: Dims, **attrs: Any) -> Value:
        """Reshape to a constant target."""
        return self.op("Reshape", [x, self.ints(*written)], x.dtype, shape, **attrs)

    def cast(self, x: Value, dtype: str) -> Value:
        """Cast."""
        return self.op("Cast", [x], dtype, x.shape, to=elem(dtype))

    def guarded(self, x: Value, guard: str) -> Value:
        """Bring numbers to where an op is defined and tame."""
        if guard == "unit":
            return self.same("Mul", self.same("Tanh", x), self.scalar(0.9))
        if guard == "small":
            return self.same("Tanh", x)
        return self.above(x, {"pos": 0.2, "ge1": 1.1}[guard]) if guard else x

    def above(self, x: Value, least: float) -> Value:
        """Numbers of some least size, none negative."""
        return self.same("Add", self.same("Abs", x), self.scalar(least))

    def param(self, array: Array, form: str) -> str:
        """A weight in one of the forms that models have."""
        if form == "fed":
            return self.fed(array.shape, str(array.dtype), "weight").name
        if form == "computed":
            return self.computed(array).name
        if form == "node":
            return self.constant(array)
        name = self.weight(array)
        if form == "overridable" and self.ir >= 4:
            self.listed.append(name)
        return name

    def computed(self, a: Array) -> Value:
        """A constant that follows from others; it has the shape of `a`, not always its numbers."""
        dtype, shape = str(a.dtype), a.shape
        w = self.weight(a)
        kind = self.whole(0, 9)
        floating = dtype in FLOATS

        def made(op: str, *inputs: str, **attrs: object) -> Value:
            return self.op(op, inputs, dtype, shape, **attrs)

        if kind == 0:
            perm = self.rng.permutation(a.ndim).tolist()
            turned = self.weight(a.transpose(np.argsort(perm)))
            return made("Transpose", turned, perm=perm) if a.ndim else Value(w, dtype, shape)
        if kind == 1:
            flat = self.weight(a.reshape(-1))
            return made("Reshape", flat, self.ints(*shape)) if a.ndim else Value(w, dtype, shape)
        if kind == 2:
            return made("Mul", w, self.const(self.numbers(())))
        if kind == 3 and floating:
            wide = self.weight(a.astype("float64" if dtype == "float32" else "float32"))
            return made("Cast", wide, to=elem(dtype))
        if kind == 4 and a.ndim and a.shape[0] > 1:
            return made("Concat", self.weight(a[:1]), self.weight(a[1:]), axis=0)
        if kind == 5 and floating:
            return made(self.pick(["Neg", "Abs", "Tanh", "Sigmoid", "Exp"]), w)
        if kind == 6 and floating:
            other = self.const((np.abs(self.numbers(shape[-1:], 0.3)) + 1).astype(dtype))
            return made(self.pick(["Div", "Sub", "Add"]), w, other)
        if kind == 7 and a.ndim:
            twice = Value(self.weight(np.concatenate([a, a])), dtype, (2 * shape[0], *shape[1:]))
            return self.cut(twice, 0, 0, shape[0])
        if kind == 8 and self.opset >= 8:
            return made("Expand", self.weight(a.ravel()[:1]), self.ints(*shape))
        if kind == 9 and a.ndim and self.opset >= 13:
            return self.reduce(
                "ReduceSum", Value(self.weight(a[None]), dtype, (1, *shape)), (0,), False
            )
        return made("Identity", w)


Step = Callable[[Value, int], Value]
"""One step of a chain, given the lane's value and the lane's number."""

Drawer = Callable[[Build, Value, int], Step]
"""Draws a step for lanes that look like a value, given their number."""


class Params:
    """Weights of the lanes: own, shared, equal in value, or odd in one lane."""

    def __init__(self, b: Build, n: int) -> None:
        self.b = b
        self.mode = b.pick(["own"] * 7 + ["shared", "equal", "pairs"])
        self.form = b.pick(["init"] * 7 + ["node", "computed", "computed"])
        self.odd = b.stray(n)
        self._names: dict[tuple[object, ...], str] = {}
        self._arrays: dict[tuple[object, ...], Array] = {}

    def draw(self, role: str, lane: int, shape: Sequence[int], scale: float = 1.0) -> str:
        """The weight of a lane, with numbers of some size."""
        return self.get(role, lane, self.b.numbers(shape, scale))

    def get(self, role: str, lane: int, array: Array) -> str:
        """The weight of a lane; `array` is what it holds unless the lane shares another's."""
        key = (role, lane // 2 if self.mode == "pairs" else 0, array.shape, str(array.dtype))
        if lane == self.odd:
            return self.b.param(array, self.b.pick(["overridable", "fed", "computed", "node"]))
        if self.mode == "shared":
            weights = (t.name for t in self.b.weights)  # it may have been taken back
            if self._names.get(key) not in {*self.b.values, *weights}:
                self._names[key] = self.b.param(array, self.form)
            return self._names[key]
        if self.mode in ("equal", "pairs"):
            array = self._arrays.setdefault(key, array)
        return self.b.param(array, self.form)

    def product(self, x: Value, role: str, lane: int, width: int) -> Value:
        """The lane times a weight, which keeps the size of the numbers."""
        k = x.size(-1)
        w = self.draw(role, lane, (k, width), max(k, 1) ** -0.5)
        return self.b.op("MatMul", [x, w], x.dtype, x.sized(-1, width))
