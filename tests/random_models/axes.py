"""Steps that work along an axis: norms, sums, ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.random_models.builder import INDEX, Value, known, need
from tests.random_models.ops import Build, Params, Step


def draw_batch_norm(b: Build, v: Value, n: int) -> Step:
    """BatchNormalization at inference; one epsilon for all lanes."""
    v.size(1)
    params, epsilon = Params(b, n), b.pick([1e-5, 1e-3, 0.1])
    attrs: dict[str, Any] = {} if b.flip(0.4) else {"epsilon": epsilon}
    if b.opset < 9:
        attrs |= b.some(0.3, spatial=1)
    if b.opset >= 14:
        attrs |= b.some(0.3, training_mode=0)

    def step(x: Value, lane: int) -> Value:
        c = (x.size(1),)
        names = [params.draw(role, lane, c, 0.5) for role in ("scale", "b", "mean")]
        spread = (np.abs(b.numbers(c, 0.5)) + 0.5).astype(x.dtype)
        return b.same("BatchNormalization", x, *names, b.weight(spread), **attrs)

    return step


def draw_layer_norm(b: Build, v: Value, n: int) -> Step:
    """LayerNormalization (or RMSNormalization) with parameters of its own in each lane."""
    op = "RMSNormalization" if b.opset >= 23 and b.flip(0.3) else "LayerNormalization"
    axis = b.pick([v.rank - 1] * 3 + list(range(v.rank)))
    need(known(v.shape[axis:]))
    params, form = Params(b, n), b.pick(["both"] * 4 + ["scale", "some", "one"])
    attrs: dict[str, Any] = {"axis": b.axis(axis, v.rank)}
    if axis == v.rank - 1 and b.flip(0.4):
        attrs = {}
    attrs |= b.some(0.3, epsilon=1e-3)
    missing = b.whole(0, n - 1)

    def step(x: Value, lane: int) -> Value:
        tail = x.sizes(axis)
        need(0 not in tail)
        tail = tail[-1:] if form == "one" else tail
        names = [params.draw("s", lane, tail)]
        if op[0] == "L" and form != "scale" and not (form == "some" and lane == missing):
            names.append(params.draw("b", lane, tail, 0.5))
        return b.same(op, x, *names, **attrs)

    return step


def draw_resampled(b: Build, v: Value, n: int) -> Step:
    """Features put in other places and mixed before a norm: one map of what comes before."""
    size = v.size(-1)
    need(size > 1)
    width = b.pick([size, size + 1, 2 * size])
    order = np.concatenate([np.arange(size), b.rng.integers(0, size, width - size)])
    first, second = b.rng.permutation(order), b.rng.integers(0, size, width)
    params, norm = Params(b, n), draw_layer_norm(b, Value("", v.dtype, v.sized(-1, width)), n)
    op, scaled = b.pick(["Sub", "Add"]), b.flip()

    def step(x: Value, lane: int) -> Value:
        need(x.size(-1) == size)
        one, other = (b.gather(x, x.rank - 1, where) for where in (first, second))
        y = b.same("Add", one, b.same("Mul", b.same(op, other, one), b.scalar(0.25)))
        y = b.same("Mul", y, params.draw("s", lane, (width,))) if scaled else y
        return norm(y, lane)

    return step


def draw_spelled_norm(b: Build, v: Value, n: int) -> Step:
    """LayerNormalization spelled out in plain ops."""
    need(v.size(-1) > 1)
    params, power, odd = Params(b, n), b.flip(), b.stray(n)

    def step(x: Value, lane: int) -> Value:
        k, last = x.size(-1), [x.rank - 1]
        need(k > 1)
        centred = b.same("Sub", x, b.reduce("ReduceMean", x, last, True))
        two = b.scalar(2.0)
        square = b.same("Pow", centred, two) if power else b.same("Mul", centred, centred)
        variance = b.reduce("ReduceMean", square, last, True)
        low = b.same("Add", variance, b.scalar(0.1 if lane == odd else 1e-2))
        y = b.same("Div", centred, b.same("Sqrt", low))
        y = b.same("Mul", y, params.draw("s", lane, (k,)))
        return b.same("Add", y, params.draw("b", lane, (k,), 0.5))

    return step


def draw_instance_norm(b: Build, v: Value, n: int) -> Step:
    """InstanceNormalization: no rule knows it."""
    need(min(v.sizes(2)) > 1)
    v.size(1)
    params = Params(b, n)

    def step(x: Value, lane: int) -> Value:
        need(x.rank >= 3 and min(x.sizes(2)) > 1)
        names = [params.draw(role, lane, (x.size(1),)) for role in "sb"]
        return b.same("InstanceNormalization", x, *names)

    return step


def draw_softmax(b: Build, v: Value, n: int) -> Step:
    """Softmax and its kin along any axis."""
    ops = ["Softmax", "Softmax", "LogSoftmax"]
    op = b.pick([*ops, "Hardmax", "LpNormalization"] if v.dtype == "float32" else ops)
    attrs: dict[str, Any] = {"axis": b.axis(b.whole(0, v.rank - 1), v.rank)}
    if b.flip(0.25) and (v.rank >= 2 or b.opset >= 13):
        attrs = {}
    if op == "LpNormalization":
        attrs["p"] = b.pick([1, 2])

    tame = op != "LpNormalization"  # which makes 0 / 0 of zeros
    return lambda x, _: b.same(op, x if tame else b.above(x, 0.1), **attrs)


REDUCTIONS = "Sum Mean Max Min Prod L1 L2 SumSquare LogSumExp LogSum".split()


def draw_reduce(b: Build, v: Value, n: int) -> Step:
    """A reduction over some axes."""
    op = b.pick(REDUCTIONS if v.floating else REDUCTIONS[:4])
    count = b.whole(1, v.rank) if b.flip(0.4) else 1
    axes = sorted(b.rng.permutation(v.rank)[:count].tolist())
    keep = b.flip() or count == v.rank
    back = b.flip(0.5)

    def step(x: Value, lane: int) -> Value:
        need(all(x.shape[a] != 0 for a in axes))
        y = b.reduce(f"Reduce{op}", b.guarded(x, "pos") if op == "LogSum" else x, axes, keep)
        return b.same("Sub" if op == "Prod" else "Add", x, y) if back and keep else y

    return step


def draw_weighted(b: Build, v: Value, n: int) -> Step:
    """What a lane multiplies by a gate and sums: a gate of its own, or one for all."""
    need(v.floating and v.rank >= 2)
    axis = b.whole(0, v.rank - 1)
    free = b.pick([a for a in range(v.rank) if a != axis])
    need(v.shape[axis] not in (0, 1))
    shape = tuple(1 if a == free else d for a, d in enumerate(v.shape))
    shared = b.fed(shape, v.dtype) if b.flip(0.4) else None
    keep, turned = b.flip(), b.flip()

    def step(x: Value, lane: int) -> Value:
        need(x.shape == v.shape)
        gate = shared or b.reduce("ReduceMax", x, [free], True)
        y = b.op("Mul", [x, gate] if turned else [gate, x], x.dtype, x.shape)
        return b.reduce("ReduceSum", y, [axis], keep)

    return step


def draw_arg(b: Build, v: Value, n: int) -> Step:
    """Where the largest or smallest number stands."""
    op, axis, keep = b.pick(["ArgMax", "ArgMin"]), b.whole(0, v.rank - 1), b.flip()
    attrs: dict[str, Any] = {"axis": b.axis(axis, v.rank)}
    if not keep:
        attrs["keepdims"] = 0
    if b.opset >= 12 and b.flip(0.3):
        attrs["select_last_index"] = b.whole(0, 1)

    def step(x: Value, lane: int) -> Value:
        shape = x.sized(axis, 1) if keep else x.with_axes(axis)
        return b.cast(b.op(op, [x], "int64", shape, **attrs), x.dtype)

    return step


def draw_top(b: Build, v: Value, n: int) -> Step:
    """TopK, its values alone or both results."""
    axis = b.whole(0, v.rank - 1)
    k = b.whole(1, max(1, min(3, v.size(axis))))
    said = axis != v.rank - 1 or not b.flip()
    attrs: dict[str, Any] = {"axis": b.axis(axis, v.rank)} if said else {}
    if b.opset >= 11:
        attrs |= b.some(0.3, largest=0)
    both, given = b.flip(0.3), b.flip(0.1) and k == 1
    count = b.fed((1,), "int64", INDEX).name if given else ""

    def step(x: Value, lane: int) -> Value:
        need(x.size(axis) >= k)
        shape = x.sized(axis, k)
        kinds = [(x.dtype, shape), ("int64", shape)]
        values, where = b.node("TopK", [x, count or b.ints(k)], kinds, **attrs)
        return b.same("Add", values, b.cast(where, x.dtype)) if both else values

    return step


def draw_cumsum(b: Build, v: Value, n: int) -> Step:
    """CumSum along an axis that is an operand."""
    axis, given = b.whole(0, v.rank - 1), b.flip(0.15)
    where = b.fed((), "int64", INDEX).name if given else ""
    attrs = {**b.some(0.3, exclusive=1), **b.some(0.3, reverse=1)}
    dtype, shape = b.pick(["int32", "int64"]), (1,) if b.flip(0.3) else ()

    def step(x: Value, lane: int) -> Value:
        written = np.full(shape, b.axis(axis, x.rank), dtype)
        return b.same("CumSum", x, where or b.const(written), **attrs)

    return step
