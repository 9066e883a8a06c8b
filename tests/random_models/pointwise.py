"""Steps that work on every number by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto

from tests.random_models.builder import Shape, Value, joint, need
from tests.random_models.ops import Build, Params, Step

LETTER = {"float32": "f", "float64": "d", "float16": "h", "int32": "i", "int64": "l"}
"""Types as the tables write them."""

UNARY = sorted(
    (op, since, types, guard, tuned)
    for ops, since, types, guard, tuned in (
        ("Abs Neg", 7, "fdhil", "", ""),
        ("Sign", 9, "fdhil", "", ""),
        ("BitwiseNot", 18, "il", "", ""),
        ("Ceil Cos Floor Relu Relu Relu Sigmoid Sin Tanh Tanh", 7, "fdh", "", ""),
        ("Exp", 7, "fdh", "small", ""),
        ("Log Reciprocal Sqrt", 7, "fdh", "pos", ""),
        ("Shrink", 9, "fdh", "", "lambd bias"),
        ("Round", 11, "fdh", "", ""),
        ("Atan Softplus Softsign", 7, "fh", "", ""),
        ("Elu LeakyRelu", 7, "fh", "", "alpha"),
        ("HardSigmoid", 7, "fh", "", "alpha beta"),
        ("Selu", 7, "fh", "", "alpha gamma"),
        ("Acos Asin Tan", 7, "fh", "unit", ""),
        ("Asinh Erf", 9, "fh", "", ""),
        ("Cosh Sinh", 9, "fh", "small", ""),
        ("Atanh", 9, "fh", "unit", ""),
        ("Acosh", 9, "fh", "ge1", ""),
        ("ThresholdedRelu", 10, "fh", "", "alpha"),
        ("HardSwish", 14, "fh", "", ""),
        ("Mish", 18, "fh", "", ""),
        ("Gelu", 20, "fh", "", ""),
        ("Celu", 12, "f", "", "alpha"),
    )
    for op in ops.split()
)
"""Op, first opset, types by letter, what must be done to its input before, attributes to be drawn."""


def draw_unary(b: Build, v: Value, n: int) -> Step:
    """An op of one operand, with its attributes."""
    fitting = [u for u in UNARY if u[1] <= b.opset and LETTER[v.dtype] in u[2]]
    op, _, _, guard, tuned = b.pick(fitting)
    if op == "Sqrt" and b.flip(0.05):
        guard = ""  # NaN on purpose
    attrs: dict[str, Any] = {k: b.pick([0.1, 0.3, 0.5]) for k in tuned.split() if b.flip(0.6)}
    if op == "Gelu" and b.flip():
        attrs["approximate"] = b.pick(["none", "tanh"])
    if v.dtype == "float32" and b.flip(0.04):
        op, guard = b.pick(["Gelu", "QuickGelu"]), ""
        attrs = {"alpha": b.pick([1.0, 1.702])} if op == "QuickGelu" and b.flip() else {}
        attrs["domain"] = "com.microsoft"
    return lambda x, lane: b.same(op, b.guarded(x, guard), **attrs)


def arithmetic(b: Build, v: Value) -> str:
    """An op of two operands of one type."""
    if v.floating:
        ops = ["Add", "Add", "Sub", "Mul", "Mul", "Div", "Pow"]
        if v.dtype != "float64":
            ops += ["PRelu", "Max", "Min", "Mean", "Sum"] if b.opset >= 8 else ["PRelu"]
        return b.pick(ops)
    ops = ["Add", "Sub", "Mul", "Div"]
    ops += ["Mod"] if b.opset >= 10 else []
    ops += ["Max", "Min"] if b.opset >= 12 else []
    ops += ["BitwiseAnd", "BitwiseXor"] if b.opset >= 18 else []
    return b.pick(ops)


def draw_binary(b: Build, v: Value, n: int) -> Step:
    """An op of a lane and a constant of any form that broadcasts, on either side."""
    op, params, first = arithmetic(b, v), Params(b, n), b.flip(0.3)
    same_form, forms = b.flip(0.8), b.rng.random((n, 8))
    raised, number = b.flip(0.06), b.pick([0.5, 1.5, 2.0])

    def step(x: Value, lane: int) -> Value:
        row = forms[0 if same_form else lane]
        rank = x.rank if row[0] < 0.3 else int(row[1] * (x.rank + 1))
        tail = enumerate(x.shape[x.rank - rank :])
        shape = tuple(d if isinstance(d, int) and row[2 + i % 4] < 0.6 else 1 for i, d in tail)
        if raised and x.rank < 4:
            shape = (1,) * (x.rank + 1 - len(shape)) + shape
        out = joint(x.shape, shape)
        if op in ("Div", "Pow", "Mod"):  # tame by themselves
            fill = number if x.floating else 2
            b.const(np.full(shape if row[7] < 0.5 else (), fill))  # nothing reads it
            name = b.const(np.full(shape, fill, x.dtype))
            return b.op(op, [b.above(x, 0.5) if op == "Pow" else x, name], x.dtype, out)
        need(op != "PRelu" or len(shape) <= x.rank)
        pair: list[Value | str] = [x, params.draw("c", lane, shape, 0.8)]
        return b.op(op, pair[::-1] if first and op != "PRelu" else pair, x.dtype, out)

    return step


def draw_shared(b: Build, v: Value, n: int) -> Step:
    """An op of a lane and an activation that all lanes share, or that each lane has by itself."""
    op, first, own = arithmetic(b, v), b.flip(0.3), b.flip(0.4)
    rank = v.rank if b.flip(0.6) else b.whole(0, v.rank)
    keep = [b.flip(0.7) for _ in range(4)]
    shape = tuple(d if keep[i % 4] else 1 for i, d in enumerate(v.shape[v.rank - rank :]))
    there = [o for o in b.values.values() if o.dtype == v.dtype and o.shape in (shape, v.shape)]
    there = [o for o in there if o in b.inputs] or there[:1]
    common = b.pick(there) if there and b.flip(0.5) else b.fed(shape)

    def step(x: Value, lane: int) -> Value:
        other = b.fed(shape) if own else common
        return _two(b, op, x, other, first, joint(x.shape, other.shape))

    return step


def _two(b: Build, op: str, x: Value, other: Value, first: bool, shape: Shape) -> Value:
    """Apply an op of two operands so that its result stays tame."""
    if op == "Div":
        x, other = (other, x) if first else (x, other)
        other = b.above(other, 0.5) if x.floating else _positive(b, other)
    elif op == "Mod":
        other = _positive(b, other)
    elif op == "Pow":
        x, other = b.above(x, 0.5), b.same("Tanh", other)
    elif op == "PRelu":
        need(joint(x.shape, other.shape) == x.shape)
    elif first:
        x, other = other, x
    return b.op(op, [x, other], x.dtype, shape)


def _positive(b: Build, x: Value) -> Value:
    """Whole numbers of at least 1."""
    return b.same("Add", b.same("Mul", x, x), b.scalar(1))


def draw_where(b: Build, v: Value, n: int) -> Step:
    """Choose between the lane and something else."""
    params, source = Params(b, n), b.pick(["greater", "const", "fed", "equal"])
    need(source != "equal" or b.opset >= 11 or not v.floating)
    swap, mask_shape = b.flip(), v.shape if b.flip() else v.shape[-1:]
    mask = b.fed(mask_shape, "bool") if source == "fed" else None
    negate, row = b.flip(0.3), b.flip(0.3)

    def step(x: Value, lane: int) -> Value:
        if mask is not None:
            where = mask
        elif source == "const":
            bits = b.rng.random(x.size(-1)) < 0.5
            where = Value(b.const(bits), "bool", x.shape[-1:])
        else:
            op = b.pick(["Greater", "Less"])  # drawn for Equal, too
            op = "Equal" if source == "equal" else op
            where = b.op(op, [x, b.scalar(0)], "bool", x.shape)
        if negate:
            where = b.same("Not", where)
        pair = [x.name, params.draw("o", lane, (x.size(-1),) if row else ())]
        shape = joint(where.shape, x.shape)
        return b.op("Where", [where, *(pair[::-1] if swap else pair)], x.dtype, shape)

    return step


def draw_clip(b: Build, v: Value, n: int) -> Step:
    """Clip with both bounds, one, or none; bounds are attributes before opset 11."""
    need(v.dtype != "float64" or b.opset >= 12)
    low, high = b.pick([-1.0, -0.3, None]), b.pick([0.4, 1.2, None])
    odd, form = b.stray(n, 0.2), b.pick(["const"] * 5 + ["fed"])

    def step(x: Value, lane: int) -> Value:
        bounds = {"min": low, "max": 0.7 if lane == odd else high}
        if b.opset < 11:
            return b.same("Clip", x, **{k: y for k, y in bounds.items() if y is not None})
        if form == "fed":
            return b.same("Clip", x, "", b.same("Abs", b.fed((), hint="limit")))
        return b.same("Clip", x, *("" if y is None else b.scalar(y) for y in bounds.values()))

    return step


def draw_cast(b: Build, v: Value, n: int) -> Step:
    """To another type and back."""
    others = [d for d in ("float16", "float64", "float32") if d != v.dtype]
    other = b.pick(others if v.floating else ["float32", "int32", "int64"])
    inner = b.flip()

    def step(x: Value, lane: int) -> Value:
        y = b.cast(x, other)
        if inner and y.floating:
            y = b.same("Tanh" if other == "float64" else b.pick(["Tanh", "Sigmoid"]), y)
        return b.cast(y, x.dtype)

    return step


def draw_dropout(b: Build, v: Value, n: int) -> Step:
    """Dropout at inference; rarely in training, with a seed."""
    training, said = b.opset >= 12 and b.flip(0.08), b.flip(0.3)

    def step(x: Value, lane: int) -> Value:
        if b.opset < 12:
            return b.same("Dropout", x, **({"ratio": 0.3} if said else {}))
        ratio = b.const(np.array(0.4, np.float32)) if said or training else ""
        if training:
            return b.same("Dropout", x, ratio, b.const(np.array(True)), seed=b.whole(1, 99))
        mode = b.const(np.array(False)) if said and b.flip() else ""
        return b.same("Dropout", x, ratio, mode)

    return step


def draw_identity(b: Build, v: Value, n: int) -> Step:
    """Another name for the same value, or the same value computed twice."""
    kind = b.pick(["Identity", "Cast", "Transpose", "twin"])

    def step(x: Value, lane: int) -> Value:
        if kind == "Cast":
            return b.cast(x, x.dtype)
        if kind == "Transpose" and x.rank:
            return b.same("Transpose", x, perm=list(range(x.rank)))
        return _twin(b, x) if kind == "twin" else b.same("Identity", x)

    return step


def _twin(b: Build, x: Value) -> Value:
    """A sum of a value and of what a copy of its node gives."""
    maker = next((m for m in b.nodes[::-1] if list(m.output) == [x.name]), NodeProto())
    need(maker.op_type not in ("", "Constant", "Dropout", "If"))
    copy = NodeProto()
    copy.CopyFrom(maker)
    copy.name, copy.output[0] = "", b.fresh(maker.op_type)
    b.nodes.append(copy)
    other = b.values[copy.output[0]] = Value(copy.output[0], x.dtype, x.shape)
    b.read.update((*copy.input, x.name, other.name))
    return b.same("Sub" if b.flip(0.2) else "Add", x, other)


def draw_variadic(b: Build, v: Value, n: int) -> Step:
    """Max, Min, Sum, Mean of three operands."""
    op, params = b.pick(["Max", "Min", "Sum", "Mean"]), Params(b, n)

    def step(x: Value, lane: int) -> Value:
        c = params.draw("c", lane, (1,) if x.rank else (), 0.7)
        return b.same(op, x, c, b.same("Tanh", x))

    return step
