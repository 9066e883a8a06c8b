"""Lanes: where they come from, what runs along them, and who else reads them."""

from __future__ import annotations

from functools import partial

import numpy as np
from onnx import GraphProto, helper

from tests.random_models.builder import Shape, Value, need
from tests.random_models.ops import Build, Step
from tests.random_models.steps import draw_step

SOURCES = (
    "shared shared shared split split split split slices slices gathers gathers stack stack "
    "inputs inputs join mixed uneven"
).split()


def new_shape(b: Build) -> Shape:
    """The shape of a lane."""
    k = b.pick([2, 3, 4, 6, 8, 8, 48])
    rank = b.pick([1, 2, 2, 2, 3, 3, 3, 4, 4])
    if rank == 1:
        return (k,)
    if rank == 2:
        return (b.batch, k)
    if rank == 3:
        return (b.batch, b.length if b.flip() else b.whole(1, 4), k)
    return (b.batch, b.whole(1, 4), b.pick([3, 4, 5]), b.pick([3, 4, 6]))


def open_lanes(b: Build, trunk: Value | None, n: int) -> list[Value]:
    """Lanes of one shape, from a value at hand or from new inputs."""
    shape = trunk.shape if trunk is not None else new_shape(b)
    kind = b.pick(SOURCES)
    if kind in ("shared", "mixed"):
        x = trunk if trunk is not None else b.fed(shape)
        return [b.fed(shape) if kind == "mixed" and b.flip() else x for _ in range(n)]
    if kind in ("inputs", "join"):
        lanes = [b.fed(shape) for _ in range(n)]
        return _joined_and_cut(b, lanes) if kind == "join" else lanes
    axes = [a for a, d in enumerate(shape) if isinstance(d, int)]
    need(bool(axes))
    axis = b.pick(axes) if b.flip(0.4) else axes[-1]
    if kind in ("gathers", "stack"):
        return _picked(b, trunk, shape, n, kind)
    if trunk is not None:
        need(trunk.size(axis) >= n)
        size = trunk.size(axis) // n
        source, extra = trunk, trunk.size(axis) - n * size
    else:
        size = int(shape[axis])
        extra = b.pick([0, 0, size, 1]) if kind != "split" else 0
        source = b.fed((*shape[:axis], n * size + extra, *shape[axis + 1 :]))
    if kind == "slices":
        starts = [i * size + (extra if b.flip(0.3) else 0) for i in range(n)]
        if b.flip(0.1) and n > 2:
            starts[1] = starts[0]
        return [b.cut(source, axis, starts[i], starts[i] + size) for i in b.order(n)]
    sizes = [size] * n
    if extra:
        sizes.insert(b.whole(0, n), extra)
    pieces = b.split(source, axis, sizes)
    return [p for p in pieces if p.shape[axis] == size][:n]


def _joined_and_cut(b: Build, lanes: list[Value]) -> list[Value]:
    """Lanes that pass through a Concat which joins nothing."""
    axes = [a for a, d in enumerate(lanes[0].shape) if isinstance(d, int) and d]
    need(bool(axes))
    axis = b.pick(axes)
    if b.flip():
        lanes = [_product(b, x) if x.rank >= 2 else x for x in lanes]
    whole, n = b.join(lanes, axis), len(lanes)
    size = lanes[0].size(axis)
    if b.flip(0.7):
        return b.even_split(whole, axis, n)
    return [b.cut(whole, axis, i * size, (i + 1) * size) for i in b.order(n)]


def _product(b: Build, x: Value) -> Value:
    """A plain product with a square weight of its own."""
    k = x.size(-1)
    need(k > 0 and (x.floating or b.opset >= 9))
    return b.same("MatMul", x, b.weight(b.numbers((k, k), k**-0.5)))


def _picked(b: Build, trunk: Value | None, shape: Shape, n: int, kind: str) -> list[Value]:
    """Lanes that lie on an axis of their own, taken by Gather, or by Split and Squeeze."""
    extra = b.whole(0, 2) if kind == "gathers" else 0
    place = b.whole(0, len(shape)) if b.flip(0.7) else 0
    need(len(shape) < 4)
    if trunk is None:
        source = b.fed((*shape[:place], n + extra, *shape[place:]))
    else:
        need(trunk.rank >= 2 and trunk.size(-1) % n == 0)
        extra, place = 0, trunk.rank - 1
        tail = (n, trunk.size(-1) // n)
        source = b.reshape(trunk, [*[0] * place, *tail], (*shape[:-1], *tail))
        if b.flip():
            source = b.turn(source, [place, *(a for a in range(source.rank) if a != place)])
            place = 0
    if kind == "stack" and b.flip():
        return [b.squeeze(p, place) for p in b.split(source, place, [1] * n)]
    picks = b.rng.permutation(n + extra)[:n].tolist() if b.flip(0.4) else list(range(n))
    if b.flip(0.15):
        return [b.squeeze(b.gather(source, place, [i]), place) for i in picks]
    return [b.gather(source, place, i) for i in picks]


def run_chain(b: Build, lanes: list[Value], length: int) -> list[Value]:
    """The same drawn steps on every lane; rarely one lane, or the lanes among each other, differ."""
    n = len(lanes)
    must = b.whole(0, max(0, length - 1))
    for k in range(length):
        before = list(lanes)
        sample = lanes[b.whole(0, n - 1)] if b.flip(0.2) else lanes[0]
        step = draw_step(b, sample, n, heavy=k == must or b.flip(0.25))
        if step is None:
            continue
        odd = b.stray(n)
        other = draw_step(b, sample, n) if odd >= 0 and b.flip(0.6) else None
        for lane in range(n):
            chosen = [step]
            if lane == odd:
                chosen = _instead(b, step, other)
            for one in chosen:  # a lane that a step does not fit stays as it is
                lanes[lane] = b.attempt(partial(one, lanes[lane], lane)) or lanes[lane]
        if b.flip(0.12):
            lanes = neighbours(b, lanes, before)
        if b.flip(0.1):
            tap(b, b.pick(lanes if b.flip(0.8) else before))
    return lanes


def _instead(b: Build, step: Step, other: Step | None) -> list[Step]:
    """What an odd lane does: nothing, something else, or something more."""
    if other is None:
        return []
    return [other] if b.flip() else [step, other]


def neighbours(b: Build, lanes: list[Value], before: list[Value]) -> list[Value]:
    """Lanes that read one another, or what another lane was one step before."""
    out = list(lanes)
    kind = b.pick(["ring", "one", "pairs", "across"])
    source = before if kind == "across" else lanes
    for i, x in enumerate(lanes):
        y = source[(i + 1) % len(lanes)]
        left_out = (kind == "one" and i != 1) or (kind == "pairs" and i % 2)
        if not left_out and x.shape == y.shape:
            out[i] = b.same("Add", x, y)
    return out


def tap(b: Build, x: Value) -> None:
    """Read a lane somewhere else as well."""
    kind = b.pick(["output", "output", "read", "if", "reduce"])
    if kind == "read":
        x = b.same("Neg", x)
    elif kind == "reduce" and x.rank:
        x = b.reduce("ReduceMax", x, [x.rank - 1], False)
    elif kind != "output":
        x = branch(b, x, b.flip(0.2))
    b.outputs.append(x)


def branch(b: Build, x: Value, nested: bool) -> Value:
    """An If whose bodies read a lane."""
    b.read.add(x.name)
    cond = b.fed((), "bool", "cond").name if b.flip(0.7) else b.const(np.array(b.flip()))
    bodies = []
    for op in ("Neg", "Abs"):
        name = b.fresh("inner")
        body = _body(op, x.name, name)
        if nested and op == "Neg":
            deep = b.fresh("deep")
            abs_, neg = (_body(o, x.name, f"{deep}{o}") for o in ("Abs", "Neg"))
            made = helper.make_node("If", [cond], [name], then_branch=abs_, else_branch=neg)
            body.node[0].CopyFrom(made)
        bodies.append(body)
    return b.op("If", [cond], x.dtype, x.shape, then_branch=bodies[0], else_branch=bodies[1])


def _body(op: str, read: str, made: str) -> GraphProto:
    """A body of one node."""
    node = helper.make_node(op, [read], [made])
    return helper.make_graph([node], op, [], [helper.make_empty_tensor_value_info(made)])
