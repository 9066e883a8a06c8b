"""Steps that multiply: matrices and windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tests.random_models.builder import Dim, Dims, Shape, Value, joint, known, need
from tests.random_models.ops import Build, Params, Step

BIAS_SHAPES: tuple[Callable[[Shape, int], Shape], ...] = (
    lambda s, width: (width,),
    lambda s, width: (width,),
    lambda s, width: (1, width),
    lambda s, width: (),
    lambda s, width: (1,),
    lambda s, width: (s[-2] if isinstance(s[-2], int) else 1, 1),
    lambda s, width: (s[-2], width) if isinstance(s[-2], int) else (width,),
    lambda s, width: (1,) * len(s[:-1]) + (width,),
)
"""Shapes that a bias may have, given the shape of what is multiplied and the new width."""


def draw_linear(b: Build, v: Value, n: int) -> Step:
    """MatMul or Gemm with its bias, in many spellings."""
    v.size(-1)
    usual = b.pick([1, 2, 3, 4, 6, 8, 8, 32])
    forms = ["matmul"] * 2 + ["add"] * 3 + ["gemm"] * (4 if v.rank == 2 else 0)
    form = b.pick([*forms, "batched", "left", "transa"])
    params, spelling = Params(b, n), b.rng.random(8)
    shaped = b.pick(BIAS_SHAPES)
    factors = {"alpha": b.pick([1.0, 1.0, 0.5, -2.0]), "beta": b.pick([1.0, 1.0, 0.25, 0.0])}
    missing, mixed, wider = b.stray(n, 0.15), b.flip(0.15), b.stray(n)

    def step(x: Value, lane: int) -> Value:
        k, width = x.size(-1), usual + (lane == wider)
        need(k > 0 and x.rank >= 2)
        weight = b.numbers((k, width), k**-0.5)
        bias = b.numbers(tuple(map(int, shaped(x.shape, width))), 0.5)
        used = b.pick(["add", "gemm", "matmul"]) if mixed and x.rank == 2 else form
        if used == "gemm":
            need(x.rank == 2)
            attrs: dict[str, Any] = {}
            if spelling[0] < 0.3:
                attrs["transB"], weight = 1, weight.T
            if spelling[1] < 0.5:
                attrs |= factors
            inputs: list[Value | str] = [x, params.get("w", lane, weight)]
            if lane != missing and (spelling[2] < 0.8 or b.opset < 11):
                need(bias.ndim <= 2)
                inputs.append(params.get("b", lane, bias))
            elif b.opset < 11:
                inputs.append(b.const(b.numbers((width,), 0.0)))
            return b.op("Gemm", inputs, x.dtype, (x.shape[0], width), **attrs)
        if used in ("left", "transa"):
            return _from_the_left(b, params, x, lane, width, used)
        if used == "batched":
            need(x.rank >= 3)
            lead = x.size(-3) if spelling[3] < 0.5 else 1
            weight = b.numbers((lead, k, width), k**-0.5)
        y = b.op("MatMul", [x, params.get("w", lane, weight)], x.dtype, x.sized(-1, width))
        if used == "matmul" or lane == missing:
            return y
        pair: list[Value | str] = [y, params.get("b", lane, bias)]
        shape = joint(y.shape, bias.shape)
        y = b.op("Add", pair[::-1] if spelling[4] < 0.3 else pair, x.dtype, shape)
        return b.same("Add", y, params.draw("b2", lane, (width,), 0.5)) if spelling[5] < 0.1 else y

    return step


def _from_the_left(b: Build, params: Params, x: Value, lane: int, width: int, form: str) -> Value:
    """A product in which the rows of the lane are summed up."""
    rows = x.size(-2)
    need(rows > 0)
    if form == "transa":
        need(x.rank == 2)
        w = params.draw("a", lane, (rows, width), rows**-0.5)
        bias = b.const(b.numbers((width,), 0.2))
        return b.op("Gemm", [x, w, bias], x.dtype, (x.shape[1], width), transA=1)
    w = params.draw("l", lane, (width, rows), rows**-0.5)
    return b.op("MatMul", [w, x], x.dtype, x.sized(-2, width))


def draw_int_product(b: Build, v: Value, n: int) -> Step:
    """MatMul of whole numbers."""
    width, params = b.pick([2, 3, 4]), Params(b, n)
    return lambda x, lane: params.product(x, "w", lane, width)


def draw_vector(b: Build, v: Value, n: int) -> Step:
    """A product with a vector: the rank falls; or of a vector."""
    params, width = Params(b, n), b.pick([2, 4])

    def step(x: Value, lane: int) -> Value:
        k = x.size(-1)
        need(k > 0)
        if x.rank == 1:
            return params.product(x, "w", lane, width)
        w = params.draw("v", lane, (k,), k**-0.5)
        return b.op("MatMul", [x, w], x.dtype, x.shape[:-1])

    return step


def draw_attention(b: Build, v: Value, n: int) -> Step:
    """Products of two activations: scores, or scores and what they weigh."""
    v.size(-1)
    width, whole, soft = b.pick([2, 4]), b.flip(0.6), b.flip(0.8)
    params, scale = Params(b, n), b.flip()

    def step(x: Value, lane: int) -> Value:
        need(x.size(-1) > 0)
        q, key, val = (params.product(x, role, lane, width) for role in "qkv")
        perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        scores = b.op("MatMul", [q, b.turn(key, perm)], x.dtype, (*x.shape[:-1], x.shape[-2]))
        if scale:
            scores = b.same("Mul", scores, b.scalar(0.5))
        if soft:
            scores = b.same("Softmax", scores, axis=b.axis(x.rank - 1, x.rank))
        if not whole:
            need(isinstance(x.shape[-2], int))
            return scores
        return b.op("MatMul", [scores, val], x.dtype, x.sized(-1, width))

    return step


def draw_fold(b: Build, v: Value, n: int) -> Step:
    """Merge the leading axes, multiply, and take them apart again."""
    v.size(-1)
    width, params, simple = b.pick([2, 4]), Params(b, n), b.flip(0.3)

    def step(x: Value, lane: int) -> Value:
        k = x.size(-1)
        need(k > 0)
        flat = b.reshape(x, [-1, k], (f"{x.shape[:2]} flat", k))
        y, shape = params.product(flat, "w", lane, width), (*x.shape[:2], width)
        if simple and isinstance(x.shape[1], int):
            return b.reshape(y, [-1, x.shape[1], width], shape)
        sizes = b.op("Shape", [x], "int64", (3,))
        lead = b.cut(sizes, 0, 0, 2)
        where = b.op("Concat", [lead, b.ints(width)], "int64", (3,), axis=0)
        return b.op("Reshape", [y, where], x.dtype, shape)

    return step


def _window(b: Build, sizes: Dims, stride: bool) -> tuple[dict[str, Any], list[int]]:
    """Attributes of a window over the spatial axes, and its kernel; open sizes keep their size."""
    kernel = [b.pick([1, 2, 3]) if isinstance(d, str) or d >= 3 else 1 for d in sizes]
    if not known(sizes):
        return {"auto_pad": b.pick(["SAME_UPPER", "SAME_LOWER"])}, kernel
    attrs: dict[str, Any] = {}
    style = b.pick(["", "", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if style == "pads":
        attrs["pads"] = [b.whole(0, k - 1) for k in kernel * 2]
    elif style:
        attrs["auto_pad"] = style
    if stride and b.flip(0.4):
        attrs["strides"] = [b.pick([1, 2]) for _ in sizes]
    return attrs, kernel


def _spatial(sizes: Dims, kernel: Sequence[int], attrs: dict[str, Any]) -> list[Dim]:
    """Sizes after a window has passed."""
    out: list[Dim] = []
    n = len(kernel)
    for i, (d, k) in enumerate(zip(sizes, kernel, strict=True)):
        s, p = attrs.get("strides", [1] * n)[i], attrs.get("pads", [0] * 2 * n)
        wide = (k - 1) * attrs.get("dilations", [1] * n)[i] + 1
        if isinstance(d, str):
            out.append(d)
        elif attrs.get("auto_pad", "NOTSET").startswith("SAME"):
            out.append(-(-d // s))
        else:
            full = d + p[i] + p[i + n] - wide
            need(full >= 0)
            last = -(-full // s) if attrs.get("ceil_mode") else full // s
            # ONNX Runtime counts no window that begins in the padding but expects one: what it then
            # makes of the original is a matter of luck.
            need(last * s < d + p[i])
            out.append(last + 1)
    return out


def draw_conv(b: Build, v: Value, n: int) -> Step:
    """Convolution over one or two axes."""
    channels, spelling = v.size(1), b.rng.random(4)
    attrs, kernel = _window(b, v.shape[2:], True)
    group = b.pick([g for g in (1, 1, 2, channels) if g and channels % g == 0])
    usual = group * b.pick([1, 2, 3])
    if "auto_pad" not in attrs and b.flip(0.2):
        attrs["dilations"] = [2 if k > 1 else 1 for k in kernel]
    if group > 1 or spelling[0] < 0.3:
        attrs["group"] = group
    if spelling[1] < 0.7:
        attrs["kernel_shape"] = kernel
    params, missing, wider = Params(b, n), b.stray(n, 0.15), b.stray(n)

    def step(x: Value, lane: int) -> Value:
        c, out = x.size(1), usual + group * (lane == wider)
        need(c % group == 0)
        shape = (out, c // group, *kernel)
        w = params.draw("w", lane, shape, math.prod(shape[1:]) ** -0.5)
        inputs: list[Value | str] = [x, w]
        if spelling[2] < 0.7 and lane != missing:
            inputs.append(params.draw("b", lane, (out,), 0.3))
        sizes = _spatial(x.shape[2:], kernel, attrs)
        return b.op("Conv", inputs, x.dtype, (x.shape[0], out, *sizes), **attrs)

    return step


def draw_pool(b: Build, v: Value, n: int) -> Step:
    """Pooling over one or two axes."""
    op = b.pick(["MaxPool", "MaxPool", "AveragePool", "LpPool", "Global"])
    if op == "Global":
        op = b.pick(["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
        need(op != "GlobalLpPool" or b.opset < 22)

        def whole(x: Value, lane: int) -> Value:
            need(x.rank in (3, 4))
            return b.op(op, [x], x.dtype, (*x.shape[:2], *[1] * (x.rank - 2)))

        return whole
    attrs, kernel = _window(b, v.shape[2:], op != "LpPool")
    attrs["kernel_shape"] = kernel
    if op != "LpPool" and b.opset >= 10 and b.flip(0.2) and "auto_pad" not in attrs:
        attrs["ceil_mode"] = 1
    if op == "AveragePool":
        attrs |= b.some(0.4, count_include_pad=1)
    if op == "LpPool":
        attrs.pop("auto_pad", None)
        need(known(v.shape[2:]) and b.opset < 22)
        attrs["p"] = b.pick([1, 2])
    read = op == "MaxPool" and b.opset >= 8 and b.flip(0.08)

    def step(x: Value, lane: int) -> Value:
        need(x.rank == v.rank)
        shape = (*x.shape[:2], *_spatial(x.shape[2:], kernel, attrs))
        if read and lane == 0:
            values, where = b.node(op, [x], [(x.dtype, shape), ("int64", shape)], **attrs)
            b.outputs.append(where)
            return values
        return b.op(op, [x], x.dtype, shape, **attrs)

    return step
