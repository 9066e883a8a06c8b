"""Where lanes come together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

from tests.random_models.builder import Unfit, Value, need
from tests.random_models.ops import Build


def close_lanes(b: Build, lanes: list[Value]) -> Value:
    """Bring lanes together; those that do not fit become outputs. Returns what goes on."""
    first = b.pick(lanes)
    alike = [x for x in lanes if x.shape == first.shape]
    b.outputs += [x for x in lanes if x.shape != first.shape]
    if len(alike) < 2:
        return alike[0]
    if b.flip(0.15):
        alike = [alike[i] for i in b.rng.permutation(len(alike))]
    if b.flip(0.1):
        alike.append(b.pick(alike))
    if b.flip(0.1) and len(alike) > 2:
        b.outputs.append(alike.pop())
    sink = b.pick(SINKS)
    try:
        return sink(b, alike)
    except Unfit:
        b.outputs += alike[1:]
        return alike[0]


def sink_concat(b: Build, lanes: list[Value]) -> Value:
    """Side by side, with a stranger at the end or in between at times."""
    x = lanes[0]
    need(x.rank >= 1)
    axis = b.whole(0, x.rank - 1) if b.flip(0.5) else x.rank - 1
    if isinstance(x.shape[axis], str):
        b.outputs.append(b.join(lanes, axis))
        return x
    return b.join(_with_a_stranger(b, lanes, 0.1), axis)


def _with_a_stranger(b: Build, lanes: list[Value], p: float) -> list[Value]:
    """Lanes with an input among them at times."""
    lanes = list(lanes)
    if b.flip(p):
        lanes.insert(b.whole(0, len(lanes)), b.fed(lanes[0].shape))
    return lanes


def sink_stack(b: Build, lanes: list[Value]) -> Value:
    """On an axis of their own."""
    need(lanes[0].rank < 4)
    axis = b.whole(0, lanes[0].rank)
    return b.join([b.unsqueeze(y, axis) for y in lanes], axis)


def sink_chain(b: Build, lanes: list[Value]) -> Value:
    """Added up one by one, the total first or second, with a stranger among them at times."""
    lanes = _with_a_stranger(b, lanes, 0.2)
    total = lanes[0]
    for before, y in pairwise(lanes):
        total = b.same("Add", *([y, total] if b.flip(0.3) else [total, y]))
        if b.flip(0.04):
            b.outputs.append(total)
        if b.flip(0.05):
            total = b.same("Add", total, before)
    return total


def sink_tree(b: Build, lanes: list[Value]) -> Value:
    """Added up in pairs."""
    level = list(lanes)
    while len(level) > 1:
        pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
        level = [b.same("Add", *p) if len(p) == 2 else p[0] for p in pairs]
    return level[0]


def sink_many(b: Build, lanes: list[Value], op: str) -> Value:
    """One op of all lanes."""
    need(lanes[0].dtype in ("float32", "float16"))
    return b.same(op, *lanes)


def sink_weighted(b: Build, lanes: list[Value]) -> Value:
    """A sum weighted by constants, or by a gate as in a mixture of experts."""
    x = lanes[0]
    need(x.floating and x.rank >= 2)
    n, last = len(lanes), x.rank - 1
    if b.flip(0.4):
        parts = [b.same("Mul", y, b.weight(b.numbers(()))) for y in lanes]
    else:
        logits = b.fed((*x.shape[:-1], n))
        gate = b.same("Softmax", logits, axis=b.axis(last, x.rank))
        if b.flip():
            columns = b.split(gate, last, [1] * n)
        else:
            columns = [
                b.unsqueeze(b.gather(gate, last, i), last)
                if b.flip(0.3)
                else b.cut(gate, last, i, i + 1)
                for i in range(n)
            ]
        parts = [b.same("Mul", y, c) for y, c in zip(lanes, columns, strict=True)]
    if b.flip() or x.dtype == "float64":
        return sink_chain(b, parts)
    return sink_many(b, parts, "Sum")


def sink_gate(b: Build, lanes: list[Value]) -> Value:
    """Stacked behind a gate and multiplied by it."""
    x = lanes[0]
    need(x.rank == 2 and x.floating)
    whole = b.join([b.unsqueeze(y, 1) for y in lanes], 1)
    gate = b.fed((x.shape[0], 1, len(lanes)))
    y = b.op("MatMul", [gate, whole], x.dtype, (x.shape[0], 1, x.shape[1]))
    return b.squeeze(y, 1)


def sink_mixture(b: Build, lanes: list[Value]) -> Value:
    """Stacked, or side by side along an axis of size 1, and summed over that, behind a gate mostly."""
    x = lanes[0]
    need(x.floating and x.rank < 4)
    ones = [a for a, d in enumerate(x.shape) if d == 1]
    axis = b.pick(ones) if ones and b.flip() else b.whole(0, x.rank)
    if axis not in ones or b.flip():
        lanes = [b.unsqueeze(y, axis) for y in lanes]
    whole = b.join(lanes, axis)
    if b.flip(0.25):
        need(x.dtype != "float64")
        return b.reduce(b.pick(["ReduceMean", "ReduceSum", "ReduceMax"]), whole, [axis], b.flip())
    keeps = [b.flip(0.6) or a == axis for a in range(whole.rank)]
    shape = tuple(d if k else 1 for d, k in zip(whole.shape, keeps, strict=True))
    gate = b.fed(shape, whole.dtype)
    if b.flip(0.3):
        gate = b.same("Softmax", gate, axis=b.axis(whole.rank - 1, whole.rank))
    operands = [gate, whole] if b.flip() else [whole, gate]
    y = b.op("Mul", operands, whole.dtype, whole.shape)
    return b.reduce("ReduceSum", y, [axis], b.flip(0.3))


def sink_outputs(b: Build, lanes: list[Value]) -> Value:
    """Every lane is an output; one of them goes on."""
    b.outputs += lanes
    return b.pick(lanes)


SINKS: list[Callable[[Build, list[Value]], Value]] = [
    *([sink_concat] * 4 + [sink_stack] * 2 + [sink_chain, sink_tree]),
    *(partial(sink_many, op=op) for op in ("Sum", "Mean", "Max")),
    *([sink_weighted] * 2 + [sink_outputs] * 2 + [sink_gate] + [sink_mixture] * 3),
]
"""Sinks, as often as they are drawn."""
