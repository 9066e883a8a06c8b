"""The table of steps, chains of them, and steps that hold chains."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np

from tests.random_models import axes, pointwise, products, shapes
from tests.random_models.builder import Unfit, Value, need
from tests.random_models.ops import Build, Drawer, Step

ANY = "".join(pointwise.LETTER.values())


@dataclass(frozen=True, slots=True)
class Row:
    """A kind of step, and what it can be drawn for."""

    weight: int  # how often it is drawn
    draw: Drawer
    types: str = ANY  # of the value, by letter
    low: int = 0  # least rank of the value
    high: int = 9
    since: int = 0  # first opset
    alike: bool = False  # every lane must have the rank of the value that it was drawn for
    full: bool = False  # no axis of a lane may be empty

    def drawn(self, b: Build, v: Value, n: int) -> Step:
        """A step of this kind for n lanes that look like a value."""
        letter = pointwise.LETTER[v.dtype]
        need(letter in self.types and self.low <= v.rank <= self.high and b.opset >= self.since)
        step = self.draw(b, v, n)

        def checked(x: Value, lane: int) -> Value:
            need(not self.alike or x.rank == v.rank)
            need(not self.full or 0 not in x.shape)
            return step(x, lane)

        return checked


def draw_step(b: Build, v: Value, n: int, heavy: bool = False) -> Step | None:
    """A step that fits a value; None if none of many tries does."""
    for _ in range(20):
        row = b.pick(HEAVY) if heavy else STEPS[int(b.rng.choice(len(STEPS), p=CHANCES))]
        with suppress(Unfit):
            return row.drawn(b, v, n)
    return None


def draw_chain(b: Build, v: Value, n: int, most: int) -> Step:
    """One or more steps for something inside a lane, tried out on the model to follow the shape."""
    steps: list[Step] = []
    b.depth += 1
    for k in range(b.whole(1, most)):
        step = draw_step(b, v, n, heavy=k == 0 and b.flip())
        made = b.attempt(partial(step, v, 0), keep=False) if step else None
        if step is None or made is None:
            break
        v = made
        steps.append(step)
    b.depth -= 1
    need(bool(steps))

    def run(x: Value, lane: int) -> Value:
        for step in steps:
            x = step(x, lane)
        return x

    return run


def draw_residual(b: Build, v: Value, n: int) -> Step:
    """A residual x + f(x), f of one or two steps."""
    need(b.depth < 2)
    inner = draw_chain(b, v, n, 2)
    op = b.pick(["Add", "Add", "Mul", "Sub"])

    def step(x: Value, lane: int) -> Value:
        y = inner(x, lane)
        need(y.shape == x.shape)
        return b.same(op, y, x)

    return step


def draw_nested(b: Build, v: Value, n: int) -> Step:
    """Lanes inside a lane: cut it, run a chain on every piece, put them together."""
    need(b.depth < 1)
    parts = b.pick([2, 2, 3])
    axis = v.rank - 1
    need(v.size(axis) % parts == 0 and v.size(axis) >= parts)
    piece = Value("", v.dtype, v.sized(axis, v.size(axis) // parts))
    inner = draw_chain(b, piece, n * parts, 3)
    finish = b.pick(["concat", "concat", "add", "mean"])

    def step(x: Value, lane: int) -> Value:
        need(x.size(axis) % parts == 0 and x.size(axis) >= parts)
        pieces = b.even_split(x, axis, parts)
        done = [inner(y, lane * parts + p) for p, y in enumerate(pieces)]
        need(len({y.shape for y in done}) == 1 and done[0].rank >= 1)
        if finish == "concat" and isinstance(done[0].shape[-1], int):
            return b.join(done, done[0].rank - 1)
        if finish == "mean" and b.opset >= 8 and x.dtype in ("float32", "float16"):
            return b.same("Mean", *done)
        total = done[0]
        for y in done[1:]:
            total = b.same("Add", total, y)
        return total

    return step


LINEAR = Row(24, products.draw_linear, "fdh", 2)
INT_PRODUCT = Row(12, products.draw_int_product, "il", 2, since=9)
ATTENTION = Row(4, products.draw_attention, "fdh", 2, 3, alike=True)
CONV = Row(14, products.draw_conv, "fh", 3, 4, alike=True, full=True)

STEPS = (
    LINEAR,
    INT_PRODUCT,
    Row(1, products.draw_vector, "fdh", 1),
    ATTENTION,
    CONV,
    Row(6, products.draw_pool, "fh", 3, 4, full=True),
    Row(5, axes.draw_batch_norm, "fdh", 2),
    Row(6, axes.draw_layer_norm, "fd", 1, since=17, alike=True),
    Row(3, axes.draw_resampled, "f", 2, since=17, alike=True),
    Row(3, axes.draw_spelled_norm, "fdh", 2),
    Row(1, axes.draw_instance_norm, "f", 3, 4),
    Row(5, axes.draw_softmax, "fdh", 1, alike=True, full=True),
    Row(16, pointwise.draw_unary),
    Row(9, pointwise.draw_binary),
    Row(6, pointwise.draw_shared),
    Row(3, pointwise.draw_where, ANY, 1, since=9),
    Row(4, pointwise.draw_clip, "fdh"),
    Row(3, pointwise.draw_cast),
    Row(6, axes.draw_reduce, ANY, 1, alike=True),
    Row(3, axes.draw_weighted, "fdh", 2, alike=True),
    Row(2, axes.draw_arg, ANY, 2, alike=True, full=True),
    Row(2, axes.draw_top, "fd", 1, since=10, alike=True),
    Row(2, axes.draw_cumsum, "fdil", 2, since=14),
    Row(5, shapes.draw_transpose, ANY, 2, alike=True),
    Row(6, shapes.draw_reshape, ANY, 1, full=True),
    Row(3, products.draw_fold, "fdh", 3, 3, alike=True),
    Row(3, shapes.draw_flatten, ANY, 2, alike=True),
    Row(4, shapes.draw_unit_axes, alike=True),
    Row(4, shapes.draw_glu, ANY, 1, alike=True),
    Row(4, shapes.draw_slice, ANY, 1, alike=True),
    Row(4, shapes.draw_gather, ANY, 1, alike=True),
    Row(3, shapes.draw_grow, ANY, 1, alike=True),
    Row(3, shapes.draw_resize, "f", 2, 3, since=11, alike=True, full=True),
    Row(3, shapes.draw_branch, ANY, 1, 3, since=13, alike=True),
    Row(3, shapes.draw_concat, ANY, 1),
    Row(5, draw_residual),
    Row(4, draw_nested, ANY, 1, alike=True),
    Row(2, pointwise.draw_dropout, "fdh"),
    Row(3, pointwise.draw_identity),
    Row(2, pointwise.draw_variadic, "f", since=8),
)
CHANCES = np.array([row.weight for row in STEPS]) / sum(row.weight for row in STEPS)

HEAVY = (LINEAR, LINEAR, CONV, ATTENTION, INT_PRODUCT)
"""What every chain has one of, if it fits."""
