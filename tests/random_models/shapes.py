"""Steps that move, merge and cut axes, and take lanes to pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import GraphProto, TensorProto, helper

from tests.random_models.builder import Dims, Value, elem, known, need
from tests.random_models.ops import Build, Step


def draw_transpose(b: Build, v: Value, n: int) -> Step:
    """Another order of axes."""
    perm = b.rng.permutation(v.rank).tolist()
    return lambda x, lane: b.turn(x, perm)


def draw_reshape(b: Build, v: Value, n: int) -> Step:
    """Reshape that cuts or merges axes, its target written in one of many ways."""
    kind = b.pick(["cut", "merge", "flat", "front", "same", "head", "squash"])
    way, parts, least = b.whole(0, 3), b.pick([2, 3, 4]), b.flip()

    def step(x: Value, lane: int) -> Value:
        shape = _target(x, kind, parts, least)
        places = [a for a, d in enumerate(shape) if isinstance(d, int)]
        copied = [x.shape[a : a + 1] == (d,) for a, d in enumerate(shape)]
        if way == 3 and all(c for a, c in enumerate(copied) if a not in places):
            return _reshape_like(b, x, shape)
        written = [
            0 if same and (way != 1 or isinstance(d, str)) else -1 if isinstance(d, str) else d
            for d, same in zip(shape, copied, strict=True)
        ]
        if way == 2 and -1 not in written and places:
            written[places[-1]] = -1
        need(written.count(-1) <= 1)
        attrs = b.some(0.2, allowzero=1) if b.opset >= 14 and 0 not in written else {}
        return b.reshape(x, written, shape, **attrs)

    return step


def _target(x: Value, kind: str, parts: int, least: bool) -> Dims:
    """The shape to give to a value."""
    if kind == "cut":
        need(x.size(-1) % parts == 0 and x.rank < 4 and x.size(-1) > 0)
        return [*x.shape[:-1], parts, x.size(-1) // parts]
    if kind == "front":
        need(x.rank < 4)
        return [1, *x.shape] if least else [*x.shape, 1]
    if kind == "same":
        return x.shape
    need(x.rank >= {"flat": 0, "head": 3}.get(kind, 2))
    if kind == "merge":
        return [*x.shape[:-2], x.count(-2)]
    if kind == "head":
        return [x.shape[0], x.count(1)]
    return [x.count()] if kind == "flat" else [x.count(0, -1), x.size(-1)]


def _reshape_like(b: Build, x: Value, shape: Dims) -> Value:
    """Reshape to a target whose open sizes are read from the value."""
    sizes = b.op("Shape", [x], "int64", (x.rank,))
    pieces: list[Value | str] = [
        b.unsqueeze(b.gather(sizes, 0, axis), 0) if isinstance(dim, str) else b.ints(dim)
        for axis, dim in enumerate(shape)
    ]
    where = b.op("Concat", pieces, "int64", (len(shape),), axis=0)
    return b.op("Reshape", [x, where], x.dtype, shape)


def draw_flatten(b: Build, v: Value, n: int) -> Step:
    """Flatten at some axis."""
    need(v.floating or b.opset >= 9)
    axis = b.pick([1] * 4 + list(range(v.rank + 1)))
    attrs: dict[str, Any] = {} if axis == 1 and b.flip() else {"axis": axis}

    def step(x: Value, lane: int) -> Value:
        front = x.shape[0] if axis == 1 else x.count(0, axis)
        back = x.shape[-1] if axis == x.rank - 1 else x.count(axis)
        return b.op("Flatten", [x], x.dtype, [front, back], **attrs)

    return step


def draw_unit_axes(b: Build, v: Value, n: int) -> Step:
    """An axis of size 1 comes or goes."""
    ones = [a for a, d in enumerate(v.shape) if d == 1]
    if ones and b.flip(0.6):
        gone = b.pick(ones)

        def less(x: Value, lane: int) -> Value:
            need(x.shape[gone] == 1)
            return b.squeeze(x, gone)

        return less
    need(v.rank < 4)
    added = b.whole(0, v.rank)
    return lambda x, lane: b.unsqueeze(x, added)


def draw_glu(b: Build, v: Value, n: int) -> Step:
    """Split inside a lane, and what is made of the pieces."""
    axis = b.whole(0, v.rank - 1) if b.flip(0.3) else v.rank - 1
    parts = b.pick([2, 2, 3])
    need(v.size(axis) >= parts)
    uneven, finish = b.flip(0.2), b.pick(["gate", "add", "first", "last", "swap"])

    def step(x: Value, lane: int) -> Value:
        size = x.size(axis)
        need(size >= parts)
        if uneven or size % parts:
            a, c = b.split(x, axis, [1, size - 1])
            return b.join([c, a], axis) if finish != "first" else c
        pieces = b.even_split(x, axis, parts)
        if finish == "swap":
            return b.join(pieces[::-1], axis)
        if finish in ("first", "last"):
            return pieces[0 if finish == "first" else -1]
        if finish == "gate" and x.floating:
            return b.same("Mul", pieces[0], b.same("Sigmoid", pieces[1]))
        return b.same("Add", pieces[0], pieces[1])

    return step


def draw_slice(b: Build, v: Value, n: int) -> Step:
    """A range of one axis, the same in every lane; rarely two axes at once."""
    axis = b.whole(0, v.rank - 1)
    size = v.size(axis)
    need(size >= 2)
    start = b.whole(0, size - 1)
    end, stride = b.whole(start + 1, size), b.pick([1, 1, 1, 2])
    odd, length = b.stray(n), end - start
    multi = b.flip(0.15) and b.opset >= 10 and v.rank >= 2 and known(v.shape[:1])

    def step(x: Value, lane: int) -> Value:
        need(x.size(axis) >= end)
        if multi and axis and x.size(0) >= 1:
            shape = (1, *x.sized(axis, length)[1:])
            bounds = [b.ints(start, 0), b.ints(end, 1), b.ints(axis, 0)]
            return b.op("Slice", [x, *bounds], x.dtype, shape)
        if lane == odd and length < x.size(axis):
            low = b.whole(0, x.size(axis) - length)
            return b.cut(x, axis, low, low + length)
        return b.cut(x, axis, start, end, stride if b.opset >= 10 else 1)

    return step


def draw_gather(b: Build, v: Value, n: int) -> Step:
    """Chosen entries of one axis; GatherND where it can say the same."""
    axis = b.whole(0, v.rank - 1)
    size = v.size(axis)
    need(size >= 1)
    low = -size if b.opset >= 11 and b.flip(0.2) else 0
    forms: list[tuple[int, ...]] = [(), (1,), (2,), (3,), (2, 2)]
    where = b.rng.integers(low, size, b.pick(forms))
    need(v.rank + where.ndim - 1 <= 4 and (v.rank > 1 or where.ndim > 0))
    deep = b.opset >= 11 and axis == 0 and b.flip(0.4) and where.ndim > 0 and low == 0

    def step(x: Value, lane: int) -> Value:
        need(x.size(axis) >= size)
        if not deep:
            return b.gather(x, axis, where)
        index = b.const(where[..., None].astype(np.int64))
        return b.op("GatherND", [x, index], x.dtype, x.with_axes(0, *where.shape))

    return step


def draw_grow(b: Build, v: Value, n: int) -> Step:
    """Pad, Tile, Expand."""
    op, axis = b.pick(["Pad", "Tile", "Expand", "Expand"]), b.whole(0, v.rank - 1)
    need(0 < v.size(axis) <= 6)
    need(op != "Expand" or b.opset >= 8)
    need(op != "Pad" or v.floating or b.opset >= 11)
    amount, more = b.pick([1, 2]), b.flip(0.3)

    def along(x: Value, number: int, rest: int) -> list[int]:
        return [number if a == axis else rest for a in range(x.rank)]

    def step(x: Value, lane: int) -> Value:
        if op == "Tile":
            shape = x.sized(axis, x.size(axis) * amount)
            return b.op("Tile", [x, b.ints(*along(x, amount, 1))], x.dtype, shape)
        if op == "Pad":
            pads = [*along(x, amount, 0), *along(x, 0, 0)]
            shape = x.sized(axis, x.size(axis) + amount)
            if b.opset < 11:
                return b.op("Pad", [x], x.dtype, shape, pads=pads)
            extra = [b.const(np.full((), 1, x.dtype))] if more else []
            return b.op("Pad", [x, b.ints(*pads), *extra], x.dtype, shape)
        wide = 3 if x.shape[axis] == 1 else x.size(axis)
        lead = [2] if more and x.rank < 4 else []
        target = b.ints(*lead, *along(x, wide, 1))
        return b.op("Expand", [x, target], x.dtype, (*lead, *x.sized(axis, wide)))

    return step


def draw_resize(b: Build, v: Value, n: int) -> Step:
    """Resize by factors, or to sizes that may have to be computed."""
    mode = b.pick(["nearest", "linear"])
    axis = b.whole(0 if mode == "nearest" else v.rank - 2, v.rank - 1)
    need(1 <= v.size(axis) <= 6)
    target = b.whole(1, 8)
    how = b.pick(["half_pixel", "align_corners", "asymmetric"])
    sized = b.flip() and b.opset >= 15

    def step(x: Value, lane: int) -> Value:
        shape = x.sized(axis, target)
        kept: dict[str, str] = {"mode": mode, "coordinate_transformation_mode": how}
        none: Value | str = b.const(np.zeros(0, np.float32)) if b.opset < 13 else ""
        if sized:
            before = b.op("Shape", [x], "int64", (axis,), end=axis)
            behind = b.op("Shape", [x], "int64", (x.rank - axis - 1,), start=axis + 1)
            parts: list[Value | str] = [before, b.ints(target), behind]
            sizes = b.op("Concat", parts, "int64", (x.rank,), axis=0)
            return b.op("Resize", [x, none, "", sizes], x.dtype, shape, **kept)
        factors = np.ones(x.rank, np.float32)
        factors[axis] = np.float32(target) / np.float32(x.size(axis))
        need(int(np.float32(x.size(axis)) * factors[axis]) == target)
        return b.op("Resize", [x, none, b.const(factors)], x.dtype, shape, **kept)

    return step


def draw_branch(b: Build, v: Value, n: int) -> Step:
    """An If that asks for a size that can be known, as older exporters write a squeeze."""
    axis = b.whole(0, v.rank)
    there = b.flip(0.8)
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [axis])

    def branch(op: str, *reads: str) -> GraphProto:
        name = b.fresh("branch")
        nodes = [helper.make_node(op, reads, [name])]
        if op == "Squeeze":
            nodes.insert(0, helper.make_node("Constant", [], [reads[1]], value=axes))
        made = helper.make_tensor_value_info(name, elem(v.dtype), None)
        return helper.make_graph(nodes, name, [], [made])

    def step(x: Value, lane: int) -> Value:
        shape = x.with_axes(axis, 1, *x.shape[axis : axis + 1])
        wide = b.op("Unsqueeze", [x, b.ints(axis)], x.dtype, shape)
        size = b.op(
            "Gather", [b.op("Shape", [wide], "int64", (len(shape),)), b.ints(axis)], "int64", (1,)
        )
        asked = b.op("Equal", [size, b.ints(1 if there else 2)], "bool", (1,))
        b.read.add(wide.name)
        squeezed, kept = (
            branch("Squeeze", wide.name, b.fresh("axes")),
            branch("Identity", wide.name),
        )
        first, second = (squeezed, kept) if there else (kept, squeezed)
        return b.op("If", [asked], x.dtype, x.shape, then_branch=first, else_branch=second)

    return step


def draw_concat(b: Build, v: Value, n: int) -> Step:
    """Concat inside a lane."""
    axis = b.whole(0, v.rank - 1)
    need(v.size(axis) <= 8)
    kind = b.pick(["twice", "unary", "const", "shared"])
    common = b.fed(v.shape) if kind == "shared" else None

    def step(x: Value, lane: int) -> Value:
        if kind == "twice":
            return b.join([x, x], axis)
        if kind == "const":
            shape = x.sizes()
            return b.join([x, Value(b.const(b.numbers(shape)), x.dtype, shape)], axis)
        if common is not None:
            need(x.shape == common.shape)
        return b.join([common or b.same("Neg", x), x], axis)

    return step
