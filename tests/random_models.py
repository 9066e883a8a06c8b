"""Random valid models that look for what the batching rules get wrong, and the models that found something.

A model is a chain of blocks; a block opens lanes from a source, runs the same drawn steps on every lane
(rarely one lane differs), and closes them in a sink.  Everything follows from one seed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

Array = NDArray[Any]
Dim = int | str
Shape = tuple[Dim, ...]
T = TypeVar("T")

BATCH_NAMES = ("N", "batch", "2*n", "batch_size")
LENGTH_NAMES = ("S", "sequence", "time-1", "7")
INDEX = "index"
"""Inputs whose name begins so are fed with ones: they choose an axis or count entries."""

FLOATS = ("float32", "float64", "float16")
INTS = ("int32", "int64")


class Unfit(Exception):  # noqa: N818 - a signal between the drawers, never shown
    """What was drawn cannot be applied to this value."""


def need(condition: bool) -> None:
    """Give up what was drawn unless a condition holds."""
    if not condition:
        raise Unfit


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the model: name, numpy type, shape."""

    name: str
    dtype: str
    shape: Shape

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def floating(self) -> bool:
        """Whether it holds floats."""
        return self.dtype in FLOATS

    def size(self, axis: int) -> int:
        """Size of an axis that must be known."""
        need(-self.rank <= axis < self.rank)
        dim = self.shape[axis]
        if isinstance(dim, str):
            raise Unfit
        return dim

    def sized(self, axis: int, dim: Dim) -> Shape:
        """The shape with another size of one axis."""
        shape = list(self.shape)
        shape[axis] = dim
        return tuple(shape)


def elem(dtype: str) -> int:
    """ONNX's number of a numpy type."""
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def joint(*shapes: Shape) -> Shape:
    """Shape under broadcasting; unfit where sizes may clash."""
    rank = max(map(len, shapes))
    out: list[Dim] = [1] * rank
    for shape in shapes:
        for i, dim in enumerate(shape, rank - len(shape)):
            need(dim == 1 or out[i] in (1, dim))
            out[i] = dim if dim != 1 else out[i]
    return tuple(out)


Mark = tuple[tuple[int, ...], set[str], dict[str, Value]]
"""A state of a model: lengths of its lists, names read, values."""


@dataclass
class Build:
    """A model that grows.

    Attributes:
        rng: Source of all choices.
        opset: Version of the default domain.
        ir: IR version.
        dtype: Main type of the activations.
        batch, length: Sizes of the axes that inputs share; names if they are open.
        style: How values are named.
        loud: Probability of a near miss in a step.
    """

    rng: np.random.Generator
    opset: int
    ir: int
    dtype: str
    batch: Dim
    length: Dim
    style: str
    loud: float
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    domains: set[str] = field(default_factory=set)
    count: int = 0
    depth: int = 0

    # -- choices --------------------------------------------------------------------------------

    def flip(self, p: float = 0.5) -> bool:
        """True with probability p."""
        return bool(self.rng.random() < p)

    def whole(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def pick(self, items: Sequence[T]) -> T:
        """One of some items."""
        return items[int(self.rng.integers(len(items)))]

    def order(self, n: int) -> list[int]:
        """A permutation, most often the plain one."""
        return self.rng.permutation(n).tolist() if self.flip(0.3) else list(range(n))

    def axis(self, axis: int, rank: int) -> int:
        """How an axis is written: from the end, too, where the opset knows that."""
        return axis - rank if self.opset >= 11 and self.flip(0.4) else axis

    def numbers(self, shape: Sequence[int], scale: float = 1.0, dtype: str = "") -> Array:
        """Random numbers: normal floats, small whole numbers."""
        dtype = dtype or self.dtype
        if dtype in FLOATS:
            return np.asarray(self.rng.normal(0, scale, tuple(shape))).astype(dtype)
        return np.asarray(self.rng.integers(-3, 4, tuple(shape))).astype(dtype)

    # -- parts ----------------------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        """A new name in the model's style."""
        self.count += 1
        n = self.count
        if self.style == "ours":
            ends = ("x2_out", "x4_concat", "x3_tap", "x2_weight", "x3_const1", "x2_add_out", "axes")
            return f"v{n // 3}_{ends[n % 7]}_{n}" if n % 3 else f"v{n}_x{n % 5}"
        if self.style == "path":
            return f"/layers.{n}/{hint}/{hint}_output_0"
        if self.style == "odd":
            return f"{hint} é:{n}"
        return f"{hint.lower()}{n}"

    def node(
        self,
        op: str,
        inputs: Sequence[Value | str],
        types: Sequence[tuple[str, Shape] | None],
        /,
        **attrs: Any,
    ) -> list[Value]:
        """Add a node; an output of type None is left out."""
        names = [i if isinstance(i, str) else i.name for i in inputs]
        while names and not names[-1]:
            names.pop()
        outs = [Value(self.fresh(op) if t else "", *(t or ("", ()))) for t in types]
        label = "" if self.flip(0.3) else self.fresh("node")
        made = helper.make_node(op, names, [o.name for o in outs], name=label, **attrs)
        if made.domain:
            self.domains.add(made.domain)
        self.nodes.append(made)
        self.read.update(names)
        self.values.update({o.name: o for o in outs if o.name})
        return outs

    def op(
        self,
        op: str,
        inputs: Sequence[Value | str],
        dtype: str,
        shape: Sequence[Dim],
        /,
        **attrs: Any,
    ) -> Value:
        """Add a node with one output."""
        return self.node(op, inputs, [(dtype, tuple(shape))], **attrs)[0]

    def same(self, op: str, x: Value, *more: Value | str, **attrs: Any) -> Value:
        """Add a node whose output has the type of its first input."""
        return self.op(op, [x, *more], x.dtype, x.shape, **attrs)

    def weight(self, array: Array) -> str:
        """An initializer."""
        name = self.fresh("w")
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        if array.ndim == 0:  # ascontiguousarray makes it a vector
            self.weights[-1] = numpy_helper.from_array(array, name)
        return name

    def const(self, array: Array) -> str:
        """A constant: initializer, or Constant node."""
        if self.flip(0.2) and (self.opset >= 9 or array.dtype.kind == "f"):
            tensor = numpy_helper.from_array(array)
            return self.op("Constant", [], str(array.dtype), array.shape, value=tensor).name
        return self.weight(array)

    def ints(self, *numbers: int) -> str:
        """A vector of int64."""
        return self.const(np.array(numbers, np.int64))

    def fed(self, dtype: str, shape: Shape, hint: str = "x") -> Value:
        """A new input."""
        value = Value(self.fresh(hint) if hint != INDEX else f"{INDEX}{self.count}", dtype, shape)
        self.count += 1
        self.inputs.append(value)
        self.values[value.name] = value
        return value

    @property
    def known(self) -> set[str]:
        """Names of all weights and values."""
        return {t.name for t in self.weights} | set(self.values)

    def mark(self) -> Mark:
        """Where the model stands, to go back to."""
        return tuple(len(items) for items in self._lists()), set(self.read), dict(self.values)

    def back(self, mark: Mark) -> None:
        """Forget what was added since."""
        for items, length in zip(self._lists(), mark[0], strict=True):
            del items[length:]
        self.read, self.values = set(mark[1]), dict(mark[2])

    def _lists(self) -> list[list[Any]]:
        return [self.nodes, self.weights, self.inputs, self.outputs, self.listed]

    def param(self, array: Array, form: str) -> str:
        """A weight in one of the forms that models have."""
        if form == "overridable" and self.ir >= 4:
            name = self.weight(array)
            self.listed.append(name)
            return name
        if form == "fed":
            return self.fed(str(array.dtype), array.shape, "weight").name
        if form == "computed":
            return computed(self, array).name
        if form == "node" and (self.opset >= 9 or array.dtype.kind == "f"):
            tensor = numpy_helper.from_array(array)
            return self.op("Constant", [], str(array.dtype), array.shape, value=tensor).name
        return self.weight(array)


def computed(b: Build, a: Array) -> Value:
    """A constant that follows from others; it has the shape of `a`, not always its numbers."""
    dtype, shape = str(a.dtype), a.shape
    w = Value(b.weight(a), dtype, shape)
    kind = b.whole(0, 9)
    floating = dtype in FLOATS
    if kind == 0:
        perm = b.rng.permutation(a.ndim).tolist()
        turned = Value(b.weight(a.transpose(np.argsort(perm))), dtype, ())
        return b.op("Transpose", [turned], dtype, shape, perm=perm) if a.ndim else w
    if kind == 1:
        flat = b.weight(a.reshape(-1))
        return b.op("Reshape", [flat, b.ints(*shape)], dtype, shape) if a.ndim else w
    if kind == 2:
        return b.op("Mul", [w, b.const(b.numbers((), 1, dtype))], dtype, shape)
    if kind == 3 and floating:
        wide = "float64" if dtype == "float32" else "float32"
        source = b.weight(a.astype(wide))
        return b.op("Cast", [source], dtype, shape, to=elem(dtype))
    if kind == 4 and a.ndim and a.shape[0] > 1:
        parts = [b.weight(a[:1]), b.weight(a[1:])]
        return b.op("Concat", parts, dtype, shape, axis=0)
    if kind == 5 and floating:
        return b.op(b.pick(["Neg", "Abs", "Tanh", "Sigmoid", "Exp"]), [w], dtype, shape)
    if kind == 6 and floating:
        other = b.const((np.abs(b.numbers(shape[-1:], 0.3, dtype)) + 1).astype(dtype))
        return b.op(b.pick(["Div", "Sub", "Add"]), [w, other], dtype, shape)
    if kind == 7 and a.ndim:
        more = b.weight(np.concatenate([a, a]))
        return cut(b, Value(more, dtype, (2 * shape[0], *shape[1:])), 0, 0, shape[0])
    if kind == 8 and b.opset >= 8:
        return b.op("Expand", [b.weight(a.ravel()[:1]), b.ints(*shape)], dtype, shape)
    if kind == 9 and a.ndim and b.opset >= 13:
        return reduce(b, "ReduceSum", Value(b.weight(a[None]), dtype, (1, *shape)), (0,), False)
    return b.op("Identity", [w], dtype, shape)


# -- ops in the forms that each opset has ----------------------------------------------------------


def cut(b: Build, x: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
    """Slice one axis; bounds from the end, open ends and missing axes where nothing changes."""
    size = x.shape[axis]
    assert isinstance(size, int)
    low = start - size if b.flip(0.2) and start else start
    high = 2**31 - 1 if end == size and b.flip(0.3) else end - size if b.flip(0.1) else end
    high = end if high == 0 else high
    shape = x.sized(axis, len(range(start, end, step)))
    if b.opset < 10:
        attrs: dict[str, Any] = {} if axis == 0 and b.flip(0.3) else {"axes": [axis]}
        return b.op("Slice", [x], x.dtype, shape, starts=[low], ends=[high], **attrs)
    bounds = [b.ints(low), b.ints(high)]
    if axis or step != 1 or b.flip(0.7):
        bounds.append(b.ints(b.axis(axis, x.rank)))
        if step != 1 or b.flip(0.2):
            bounds.append(b.ints(step))
    return b.op("Slice", [x, *bounds], x.dtype, shape)


def split(b: Build, x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    """Split an axis into pieces."""
    types = [(x.dtype, x.sized(axis, s)) for s in sizes]
    attrs: dict[str, Any] = {"axis": b.axis(axis, x.rank)}
    even = len(set(sizes)) == 1
    if axis == 0 and b.flip(0.3):
        attrs = {}
    if b.opset < 13:
        if not even or b.flip(0.6):
            attrs["split"] = list(sizes)
        return b.node("Split", [x], types, **attrs)
    if even and b.flip(0.4):
        if b.opset >= 18:
            attrs["num_outputs"] = len(sizes)
        return b.node("Split", [x], types, **attrs)
    return b.node("Split", [x, b.ints(*sizes)], types, **attrs)


def with_axes(
    b: Build, op: str, x: Value, axes: Sequence[int], since: int, shape: Sequence[Dim], **attrs: Any
) -> Value:
    """An op whose axes are an attribute first and an input later."""
    written = [b.axis(a, len(shape) if op == "Unsqueeze" else x.rank) for a in axes]
    if b.opset >= since:
        return b.op(op, [x, b.ints(*written)], x.dtype, shape, **attrs)
    return b.op(op, [x], x.dtype, shape, axes=written, **attrs)


def unsqueeze(b: Build, x: Value, axis: int) -> Value:
    """Put in an axis of size 1."""
    return with_axes(b, "Unsqueeze", x, [axis], 13, (*x.shape[:axis], 1, *x.shape[axis:]))


def squeeze(b: Build, x: Value, axis: int) -> Value:
    """Take out an axis of size 1."""
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    if b.flip(0.15) and x.shape.count(1) == 1 and all(isinstance(d, int) for d in x.shape):
        return b.op("Squeeze", [x], x.dtype, shape)
    return with_axes(b, "Squeeze", x, [axis], 13, shape)


def reduce(b: Build, op: str, x: Value, axes: Sequence[int], keep: bool) -> Value:
    """A reduction; all axes are sometimes left unsaid."""
    left = [1 if a in axes else d for a, d in enumerate(x.shape)]
    shape = left if keep else [d for a, d in enumerate(x.shape) if a not in axes]
    attrs: dict[str, Any] = {} if keep and b.flip(0.4) else {"keepdims": int(keep)}
    since = 13 if op == "ReduceSum" else 18
    if len(axes) == x.rank and b.flip():
        return b.op(op, [x], x.dtype, shape, **attrs)
    if b.opset >= since and b.flip(0.2):
        attrs["noop_with_empty_axes"] = 1
    return with_axes(b, op, x, axes, since, shape, **attrs)


def turn(b: Build, x: Value, perm: Sequence[int]) -> Value:
    """Transpose."""
    attrs = {"perm": list(perm)}
    if list(perm) == list(range(x.rank))[::-1] and b.flip(0.5):
        attrs = {}
    return b.op("Transpose", [x], x.dtype, [x.shape[p] for p in perm], **attrs)


def gather(b: Build, x: Value, axis: int, index: int | Sequence[int] | Array) -> Value:
    """Gather constant entries of an axis."""
    where = np.array(index, np.int32 if b.flip(0.1) else np.int64)
    shape = (*x.shape[:axis], *where.shape, *x.shape[axis + 1 :])
    attrs = {} if axis == 0 and b.flip() else {"axis": b.axis(axis, x.rank)}
    return b.op("Gather", [x, b.const(where)], x.dtype, shape, **attrs)


def join(b: Build, parts: Sequence[Value], axis: int) -> Value:
    """Concat."""
    sizes = [p.shape[axis] for p in parts]
    total: Dim = sum(s for s in sizes if isinstance(s, int))
    if any(isinstance(s, str) for s in sizes):
        total = f"{len(sizes)} of {sizes[0]} and more"
    x = parts[0]
    return b.op("Concat", parts, x.dtype, x.sized(axis, total), axis=b.axis(axis, x.rank))


def scalar(b: Build, dtype: str, number: float) -> str:
    """A constant scalar, in one of its shapes."""
    shape = b.pick([(), (), (1,)])
    return b.const(np.full(shape, number, dtype))


def clip(b: Build, x: Value, low: float | None, high: float | None) -> Value:
    """Clip; bounds are attributes before opset 11."""
    if b.opset < 11:
        given = {"min": low, "max": high}
        return b.same("Clip", x, **{k: v for k, v in given.items() if v is not None})
    bounds = ["" if v is None else scalar(b, x.dtype, v) for v in (low, high)]
    return b.same("Clip", x, *bounds)


def cast(b: Build, x: Value, dtype: str) -> Value:
    """Cast."""
    return b.op("Cast", [x], dtype, x.shape, to=elem(dtype))


def linear(b: Build, x: Value, width: int, bias: bool = False) -> Value:
    """A plain product with a weight of its own."""
    k = x.size(-1)
    need(x.rank >= 2 and k > 0 and (x.floating or b.opset >= 9))
    w = b.weight(b.numbers((k, width), k**-0.5, x.dtype))
    y = b.op("MatMul", [x, w], x.dtype, x.sized(-1, width))
    return b.same("Add", y, b.weight(b.numbers((width,), 0.3, x.dtype))) if bias else y


# -- steps: what every lane does ---------------------------------------------------------------------

Step = Callable[[Build, Value, int], Value]
"""One step of a chain, given the builder, the lane's value and the lane's number."""

Drawer = Callable[[Build, Value, int], Step]
"""Draws a step for lanes that look like a value, given their number."""


@dataclass
class Params:
    """Weights of the lanes: own, shared, equal in value, or odd in one lane."""

    b: Build
    n: int
    mode: str = ""
    form: str = ""
    odd: int = -1
    _names: dict[tuple[object, ...], str] = field(default_factory=dict)
    _arrays: dict[tuple[object, ...], Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        b = self.b
        self.mode = b.pick(["own"] * 7 + ["shared", "equal", "pairs"])
        self.form = b.pick(["init"] * 7 + ["node", "computed", "computed"])
        if b.flip(b.loud):
            self.odd = b.whole(0, self.n - 1)

    def get(self, role: str, lane: int, array: Array) -> str:
        """The weight of a lane; `array` is what it holds unless the lane shares another's."""
        key = (role, lane // 2 if self.mode == "pairs" else 0, array.shape, str(array.dtype))
        if lane == self.odd:
            return self.b.param(array, self.b.pick(["overridable", "fed", "computed", "node"]))
        if self.mode == "shared":
            if self._names.get(key, "") not in self.b.known:  # it may have been taken back
                self._names[key] = self.b.param(array, self.form)
            return self._names[key]
        if self.mode in ("equal", "pairs"):
            array = self._arrays.setdefault(key, array)
        return self.b.param(array, self.form)


def draw_linear(b: Build, v: Value, n: int) -> Step:
    """MatMul or Gemm with its bias, in many spellings."""
    need(v.rank >= 2 and v.floating)
    v.size(-1)
    width = b.pick([1, 2, 3, 4, 6, 8, 8, 32])
    forms = ["matmul"] * 2 + ["add"] * 3 + ["gemm"] * (4 if v.rank == 2 else 0)
    form = b.pick([*forms, "batched", "left", "transa"])
    params, spelling = Params(b, n), b.rng.random(8)
    shapes: list[Callable[[Shape, int], Shape]] = [
        lambda s, width: (width,),
        lambda s, width: (width,),
        lambda s, width: (1, width),
        lambda s, width: (),
        lambda s, width: (1,),
        lambda s, width: (s[-2], 1) if isinstance(s[-2], int) else (1, 1),
        lambda s, width: (s[-2], width) if isinstance(s[-2], int) else (width,),
        lambda s, width: (1,) * len(s[:-1]) + (width,),
    ]
    shaped = b.pick(shapes)
    alpha, beta = (b.pick([1.0, 1.0, 0.5, -2.0]), b.pick([1.0, 1.0, 0.25, 0.0]))
    missing = b.whole(0, n - 1) if b.flip(0.15) else -1
    mixed, usual = b.flip(0.15), width
    wider = b.whole(0, n - 1) if b.flip(b.loud) else -1

    def step(b: Build, x: Value, lane: int) -> Value:
        k, width = x.size(-1), usual + (lane == wider)
        need(k > 0 and x.rank >= 2)
        weight = b.numbers((k, width), k**-0.5, x.dtype)
        bias = b.numbers(tuple(map(int, shaped(x.shape, width))), 0.5, x.dtype)
        used = b.pick(["add", "gemm", "matmul"]) if mixed and x.rank == 2 else form
        if used == "gemm":
            need(x.rank == 2)
            attrs: dict[str, Any] = {}
            if spelling[0] < 0.3:
                attrs["transB"], weight = 1, weight.T
            if spelling[1] < 0.5:
                attrs |= {"alpha": alpha, "beta": beta}
            inputs: list[Value | str] = [x, params.get("w", lane, weight)]
            if lane != missing and (spelling[2] < 0.8 or b.opset < 11):
                need(bias.ndim <= 2)
                inputs.append(params.get("b", lane, bias))
            elif b.opset < 11:
                inputs.append(b.const(b.numbers((width,), 0.0, x.dtype)))
            return b.op("Gemm", inputs, x.dtype, (x.shape[0], width), **attrs)
        if used == "transa":
            need(x.rank == 2 and isinstance(x.shape[0], int))
            rows = x.size(0)
            need(rows > 0)
            w = params.get("a", lane, b.numbers((rows, width), rows**-0.5, x.dtype))
            zero = b.const(b.numbers((width,), 0.2, x.dtype))
            return b.op("Gemm", [x, w, zero], x.dtype, (k, width), transA=1)
        if used == "left":
            rows = x.size(-2)
            need(rows > 0)
            w = params.get("l", lane, b.numbers((width, rows), rows**-0.5, x.dtype))
            return b.op("MatMul", [w, x], x.dtype, x.sized(-2, width))
        if used == "batched":
            need(x.rank >= 3)
            lead = x.shape[-3] if spelling[3] < 0.5 else 1
            need(isinstance(lead, int))
            weight = b.numbers((int(lead), k, width), k**-0.5, x.dtype)
        y = b.op("MatMul", [x, params.get("w", lane, weight)], x.dtype, x.sized(-1, width))
        if used == "matmul" or lane == missing:
            return y
        name = params.get("b", lane, bias)
        shape = joint(y.shape, bias.shape)
        pair: list[Value | str] = [name, y] if spelling[4] < 0.3 else [y, name]
        y = b.op("Add", pair, x.dtype, shape)
        if spelling[5] < 0.1:
            y = b.same("Add", y, params.get("b2", lane, b.numbers((width,), 0.5, x.dtype)))
        return y

    return step


def draw_int_product(b: Build, v: Value, n: int) -> Step:
    """MatMul of whole numbers."""
    need(v.rank >= 2 and v.dtype in INTS and b.opset >= 9)
    width, params = b.pick([2, 3, 4]), Params(b, n)

    def step(b: Build, x: Value, lane: int) -> Value:
        w = params.get("w", lane, b.numbers((x.size(-1), width), 1, x.dtype))
        return b.op("MatMul", [x, w], x.dtype, x.sized(-1, width))

    return step


def draw_vector(b: Build, v: Value, n: int) -> Step:
    """A product with a vector: the rank falls; or of a vector."""
    need(v.floating and v.rank >= 1)
    params, width = Params(b, n), b.pick([2, 4])

    def step(b: Build, x: Value, lane: int) -> Value:
        k = x.size(-1)
        need(k > 0 and x.rank >= 1)
        if x.rank == 1:
            w = params.get("w", lane, b.numbers((k, width), k**-0.5, x.dtype))
            return b.op("MatMul", [x, w], x.dtype, (width,))
        w = params.get("v", lane, b.numbers((k,), k**-0.5, x.dtype))
        return b.op("MatMul", [x, w], x.dtype, x.shape[:-1])

    return step


def draw_attention(b: Build, v: Value, n: int) -> Step:
    """Products of two activations: scores, or scores and what they weigh."""
    need(v.rank in (2, 3) and v.floating)
    v.size(-1)
    width, whole, soft = b.pick([2, 4]), b.flip(0.6), b.flip(0.8)
    params, scale = Params(b, n), b.flip()

    def step(b: Build, x: Value, lane: int) -> Value:
        k = x.size(-1)
        need(k > 0 and x.rank == v.rank)
        q, key, val = (
            b.op(
                "MatMul",
                [x, params.get(r, lane, b.numbers((k, width), k**-0.5, x.dtype))],
                x.dtype,
                x.sized(-1, width),
            )
            for r in "qkv"
        )
        perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        scores = b.op("MatMul", [q, turn(b, key, perm)], x.dtype, (*x.shape[:-1], x.shape[-2]))
        if scale:
            scores = b.same("Mul", scores, scalar(b, x.dtype, 0.5))
        if soft:
            scores = b.same("Softmax", scores, axis=b.axis(x.rank - 1, x.rank))
        if not whole:
            need(isinstance(x.shape[-2], int))
            return scores
        return b.op("MatMul", [scores, val], x.dtype, x.sized(-1, width))

    return step


def _window(
    b: Build, rank: int, sizes: Sequence[Dim], stride: bool
) -> tuple[dict[str, Any], list[int]]:
    """Attributes of a window over the spatial axes, and its kernel; open sizes keep their size."""
    spatial = rank - 2
    open_size = any(isinstance(d, str) for d in sizes)
    kernel = [b.pick([1, 2, 3]) if isinstance(d, str) or d >= 3 else 1 for d in sizes]
    attrs: dict[str, Any] = {}
    if open_size:
        return {"auto_pad": b.pick(["SAME_UPPER", "SAME_LOWER"])}, kernel
    style = b.pick(["", "", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if style == "pads":
        attrs["pads"] = [b.whole(0, (kernel[i % spatial] - 1)) for i in range(2 * spatial)]
    elif style:
        attrs["auto_pad"] = style
    if stride and b.flip(0.4):
        attrs["strides"] = [b.pick([1, 2]) for _ in range(spatial)]
    return attrs, kernel


def _spatial(sizes: Sequence[Dim], kernel: Sequence[int], attrs: dict[str, Any]) -> list[Dim]:
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
            out.append((-(-full // s) if attrs.get("ceil_mode") else full // s) + 1)
    return out


def draw_conv(b: Build, v: Value, n: int) -> Step:
    """Convolution over one or two axes."""
    need(v.rank in (3, 4) and v.dtype in ("float32", "float16"))
    channels, spelling = v.size(1), b.rng.random(4)
    attrs, kernel = _window(b, v.rank, v.shape[2:], True)
    group = b.pick([g for g in (1, 1, 2, channels) if g and channels % g == 0])
    out = group * b.pick([1, 2, 3])
    if "auto_pad" not in attrs and b.flip(0.2):
        attrs["dilations"] = [2 if k > 1 else 1 for k in kernel]
    if group > 1 or spelling[0] < 0.3:
        attrs["group"] = group
    if spelling[1] < 0.7:
        attrs["kernel_shape"] = kernel
    params = Params(b, n)
    missing, usual = b.whole(0, n - 1) if b.flip(0.15) else -1, out
    wider = b.whole(0, n - 1) if b.flip(b.loud) else -1

    def step(b: Build, x: Value, lane: int) -> Value:
        c, out = x.size(1), usual + group * (lane == wider)
        need(x.rank == v.rank and c % group == 0 and c > 0 and 0 not in x.shape)
        shape = (out, c // group, *kernel)
        fan = int(np.prod(shape[1:]))
        inputs: list[Value | str] = [x, params.get("w", lane, b.numbers(shape, fan**-0.5, x.dtype))]
        if spelling[2] < 0.7 and lane != missing:
            inputs.append(params.get("b", lane, b.numbers((out,), 0.3, x.dtype)))
        sizes = _spatial(x.shape[2:], kernel, attrs)
        return b.op("Conv", inputs, x.dtype, (x.shape[0], out, *sizes), **attrs)

    return step


def draw_pool(b: Build, v: Value, n: int) -> Step:
    """Pooling over one or two axes."""
    need(v.rank in (3, 4) and v.dtype in ("float32", "float16"))
    op = b.pick(["MaxPool", "MaxPool", "AveragePool", "LpPool", "Global"])
    if op == "Global":
        op = b.pick(["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
        need(op != "GlobalLpPool" or b.opset < 22)

        def whole(b: Build, x: Value, lane: int) -> Value:
            need(x.rank in (3, 4) and 0 not in x.shape)
            return b.op(op, [x], x.dtype, (*x.shape[:2], *[1] * (x.rank - 2)))

        return whole
    attrs, kernel = _window(b, v.rank, v.shape[2:], op != "LpPool")
    attrs["kernel_shape"] = kernel
    if op != "LpPool" and b.opset >= 10 and b.flip(0.2) and "auto_pad" not in attrs:
        attrs["ceil_mode"] = 1
    if op == "AveragePool" and b.flip(0.4):
        attrs["count_include_pad"] = 1
    if op == "LpPool":
        attrs.pop("auto_pad", None)
        need(all(isinstance(d, int) for d in v.shape[2:]) and b.opset < 22)
        attrs["p"] = b.pick([1, 2])
    read = op == "MaxPool" and b.opset >= 8 and b.flip(0.08)

    def step(b: Build, x: Value, lane: int) -> Value:
        need(x.rank == v.rank and 0 not in x.shape)
        shape = (*x.shape[:2], *_spatial(x.shape[2:], kernel, attrs))
        if read and lane == 0:
            values, where = b.node(op, [x], [(x.dtype, shape), ("int64", shape)], **attrs)
            b.outputs.append(where)
            return values
        return b.op(op, [x], x.dtype, shape, **attrs)

    return step


def draw_batch_norm(b: Build, v: Value, n: int) -> Step:
    """BatchNormalization at inference; one epsilon for all lanes."""
    need(v.rank >= 2 and v.floating)
    v.size(1)
    params, epsilon = Params(b, n), b.pick([1e-5, 1e-3, 0.1])
    attrs: dict[str, Any] = {} if b.flip(0.4) else {"epsilon": epsilon}
    if b.opset < 9 and b.flip(0.3):
        attrs["spatial"] = 1
    if b.opset >= 14 and b.flip(0.3):
        attrs["training_mode"] = 0

    def step(b: Build, x: Value, lane: int) -> Value:
        c = (x.size(1),)
        names = [params.get(r, lane, b.numbers(c, 0.5, x.dtype)) for r in ("scale", "b", "mean")]
        spread = (np.abs(b.numbers(c, 0.5, x.dtype)) + 0.5).astype(x.dtype)
        names.append(b.weight(spread))
        return b.same("BatchNormalization", x, *names, **attrs)

    return step


def draw_layer_norm(b: Build, v: Value, n: int) -> Step:
    """LayerNormalization (or RMSNormalization) with parameters of its own in each lane."""
    need(v.rank >= 1 and v.floating and b.opset >= 17 and v.dtype != "float16")
    op = "RMSNormalization" if b.opset >= 23 and b.flip(0.3) else "LayerNormalization"
    axis = b.pick([v.rank - 1] * 3 + list(range(v.rank)))
    need(all(isinstance(d, int) for d in v.shape[axis:]))
    params, form = Params(b, n), b.pick(["both"] * 4 + ["scale", "some", "one"])
    attrs: dict[str, Any] = {"axis": b.axis(axis, v.rank)}
    if axis == v.rank - 1 and b.flip(0.4):
        attrs = {}
    if b.flip(0.3):
        attrs["epsilon"] = 1e-3
    missing = b.whole(0, n - 1)

    def step(b: Build, x: Value, lane: int) -> Value:
        need(x.rank == v.rank)
        tail = tuple(x.size(a) for a in range(axis, x.rank))
        need(0 not in tail)
        if form == "one":
            tail = tail[-1:]
        names = [params.get("s", lane, b.numbers(tail, 1, x.dtype))]
        bias = op[0] == "L" and form != "scale" and not (form == "some" and lane == missing)
        if bias:
            names.append(params.get("b", lane, b.numbers(tail, 0.5, x.dtype)))
        return b.same(op, x, *names, **attrs)

    return step


def draw_spelled_norm(b: Build, v: Value, n: int) -> Step:
    """LayerNormalization spelled out in plain ops."""
    need(v.rank >= 2 and v.floating)
    need(v.size(-1) > 1)
    params, power = Params(b, n), b.flip()
    odd = b.whole(0, n - 1) if b.flip(b.loud) else -1

    def step(b: Build, x: Value, lane: int) -> Value:
        k, last = x.size(-1), [x.rank - 1]
        need(k > 1)
        centred = b.same("Sub", x, reduce(b, "ReduceMean", x, last, True))
        two = scalar(b, x.dtype, 2.0)
        square = b.same("Pow", centred, two) if power else b.same("Mul", centred, centred)
        variance = reduce(b, "ReduceMean", square, last, True)
        low = b.same("Add", variance, scalar(b, x.dtype, 0.1 if lane == odd else 1e-2))
        y = b.same("Div", centred, b.same("Sqrt", low))
        y = b.same("Mul", y, params.get("s", lane, b.numbers((k,), 1, x.dtype)))
        return b.same("Add", y, params.get("b", lane, b.numbers((k,), 0.5, x.dtype)))

    return step


def draw_instance_norm(b: Build, v: Value, n: int) -> Step:
    """InstanceNormalization: no rule knows it."""
    need(v.rank in (3, 4) and v.dtype == "float32")
    need(all(isinstance(d, int) and d > 1 for d in v.shape[2:]))
    v.size(1)
    params = Params(b, n)

    def step(b: Build, x: Value, lane: int) -> Value:
        need(x.rank >= 3 and all(isinstance(d, int) and d > 1 for d in x.shape[2:]))
        c = (x.size(1),)
        names = [params.get(r, lane, b.numbers(c, 1, x.dtype)) for r in "sb"]
        return b.same("InstanceNormalization", x, *names)

    return step


def draw_softmax(b: Build, v: Value, n: int) -> Step:
    """Softmax and its kin along any axis."""
    need(v.rank >= 1 and v.floating)
    ops = ["Softmax", "Softmax", "LogSoftmax"]
    op = b.pick([*ops, "Hardmax", "LpNormalization"] if v.dtype == "float32" else ops)
    axis = b.axis(b.whole(0, v.rank - 1), v.rank)
    attrs: dict[str, Any] = {"axis": axis}
    if b.flip(0.25) and (v.rank >= 2 or b.opset >= 13):
        attrs = {}
    if op == "LpNormalization":
        attrs["p"] = b.pick([1, 2])

    def step(b: Build, x: Value, lane: int) -> Value:
        need(x.rank == v.rank and 0 not in x.shape)
        if op == "LpNormalization":  # 0 / 0 is nobody's wish
            x = b.same("Add", b.same("Abs", x), scalar(b, x.dtype, 0.1))
        return b.same(op, x, **attrs)

    return step


UNARY: tuple[tuple[str, int, str, str], ...] = (
    ("Abs", 7, "fdhil", ""),
    ("Acos", 7, "fh", "unit"),
    ("Acosh", 9, "fh", "ge1"),
    ("Asin", 7, "fh", "unit"),
    ("Asinh", 9, "fh", ""),
    ("Atan", 7, "fh", ""),
    ("Atanh", 9, "fh", "unit"),
    ("BitwiseNot", 18, "il", ""),
    ("Ceil", 7, "fdh", ""),
    ("Celu", 12, "f", ""),
    ("Cos", 7, "fdh", ""),
    ("Cosh", 9, "fh", "small"),
    ("Elu", 7, "fh", ""),
    ("Erf", 9, "fh", ""),
    ("Exp", 7, "fdh", "small"),
    ("Floor", 7, "fdh", ""),
    ("Gelu", 20, "fh", ""),
    ("HardSigmoid", 7, "fh", ""),
    ("HardSwish", 14, "fh", ""),
    ("LeakyRelu", 7, "fh", ""),
    ("Log", 7, "fdh", "pos"),
    ("Mish", 18, "fh", ""),
    ("Neg", 7, "fdhil", ""),
    ("Reciprocal", 7, "fdh", "pos"),
    ("Relu", 7, "fdh", ""),
    ("Relu", 7, "fdh", ""),
    ("Relu", 7, "fdh", ""),
    ("Round", 11, "fdh", ""),
    ("Selu", 7, "fh", ""),
    ("Shrink", 9, "fdh", ""),
    ("Sigmoid", 7, "fdh", ""),
    ("Sign", 9, "fdhil", ""),
    ("Sin", 7, "fdh", ""),
    ("Sinh", 9, "fh", "small"),
    ("Softplus", 7, "fh", ""),
    ("Softsign", 7, "fh", ""),
    ("Sqrt", 7, "fdh", "pos"),
    ("Tan", 7, "fh", "unit"),
    ("Tanh", 7, "fdh", ""),
    ("Tanh", 7, "fdh", ""),
    ("ThresholdedRelu", 10, "fh", ""),
)
"""Op, first opset, types by letter, and what must be done to its input before."""

LETTER = {"float32": "f", "float64": "d", "float16": "h", "int32": "i", "int64": "l"}
TUNED = {
    "Celu": ("alpha",),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Selu": ("alpha", "gamma"),
    "Shrink": ("lambd", "bias"),
    "ThresholdedRelu": ("alpha",),
}


def guarded(b: Build, x: Value, guard: str) -> Value:
    """Bring numbers to where an op is defined and tame."""
    if guard == "unit":
        return b.same("Mul", b.same("Tanh", x), scalar(b, x.dtype, 0.9))
    if guard == "small":
        return b.same("Tanh", x)
    if guard in ("pos", "ge1"):
        return b.same("Add", b.same("Abs", x), scalar(b, x.dtype, 0.2 if guard == "pos" else 1.1))
    return x


def draw_unary(b: Build, v: Value, n: int) -> Step:
    """An op of one operand, with its attributes."""
    fitting = [u for u in UNARY if u[1] <= b.opset and LETTER[v.dtype] in u[2]]
    op, _, _, guard = b.pick(fitting)
    if guard == "pos" and op == "Sqrt" and b.flip(0.05):
        guard = ""  # NaN on purpose
    attrs: dict[str, Any] = {}
    for name in TUNED.get(op, ()):
        if b.flip(0.6):
            attrs[name] = b.pick([0.1, 0.3, 0.5])
    if op == "Gelu" and b.flip():
        attrs["approximate"] = b.pick(["none", "tanh"])
    if v.dtype == "float32" and b.flip(0.04):
        op, guard = b.pick(["Gelu", "QuickGelu"]), ""
        attrs = {"alpha": b.pick([1.0, 1.702])} if op == "QuickGelu" and b.flip() else {}
        attrs["domain"] = "com.microsoft"

    def step(b: Build, x: Value, lane: int) -> Value:
        return b.same(op, guarded(b, x, guard), **attrs)

    return step


def arithmetic(b: Build, v: Value) -> str:
    """An op of two operands of one type."""
    if v.floating:
        ops = ["Add", "Add", "Sub", "Mul", "Mul", "Div", "Pow"]
        if v.dtype != "float64":
            ops.append("PRelu")
        if b.opset >= 8 and v.dtype != "float64":
            ops += ["Max", "Min", "Mean", "Sum"]
        return b.pick(ops)
    more = ["Mod"] if b.opset >= 10 else []
    more += ["Max", "Min"] if b.opset >= 12 else []
    more += ["BitwiseAnd", "BitwiseXor"] if b.opset >= 18 else []
    return b.pick(["Add", "Sub", "Mul", "Div", *more])


def two(b: Build, op: str, x: Value, other: Value, first: bool, shape: Shape) -> Value:
    """Apply an op of two operands so that its result stays tame."""
    if op == "Div":
        if first:
            other, x, first = x, other, False
        if x.floating:
            other = b.same("Add", b.same("Abs", other), scalar(b, x.dtype, 0.5))
        else:
            other = b.same("Add", b.same("Mul", other, other), scalar(b, x.dtype, 1))
    if op == "Mod":
        other, first = b.same("Add", b.same("Mul", other, other), scalar(b, x.dtype, 1)), False
    if op == "Pow":
        x = b.same("Add", b.same("Abs", x), scalar(b, x.dtype, 0.5))
        other, first = b.same("Tanh", other), False
    if op == "PRelu":
        need(joint(x.shape, other.shape) == x.shape)
        first = False
    return b.op(op, [other, x] if first else [x, other], x.dtype, shape)


def draw_binary(b: Build, v: Value, n: int) -> Step:
    """An op of a lane and a constant of any form that broadcasts, on either side."""
    op, params, first = arithmetic(b, v), Params(b, n), b.flip(0.3)
    same_form, forms = b.flip(0.8), b.rng.random((n, 8))
    raised = b.flip(0.06)
    number = b.pick([0.5, 1.5, 2.0])

    def step(b: Build, x: Value, lane: int) -> Value:
        row = forms[0 if same_form else lane]
        rank = x.rank if row[0] < 0.3 else int(row[1] * (x.rank + 1))
        tail = x.shape[x.rank - rank :]
        shape = tuple(
            d if isinstance(d, int) and row[2 + i % 4] < 0.6 else 1 for i, d in enumerate(tail)
        )
        if raised and x.rank < 4:
            shape = (1,) * (x.rank + 1 - len(shape)) + shape
        if op in ("Div", "Pow", "Mod"):  # tame by themselves
            name = b.const(np.full(shape if row[7] < 0.5 else (), 2 if not x.floating else number))
            name = b.const(np.full(shape, number if x.floating else 2, x.dtype))
            base = x
            if op == "Pow":
                base = b.same("Add", b.same("Abs", x), scalar(b, x.dtype, 0.5))
            out = joint(x.shape, shape)
            return b.op(op, [base, name], x.dtype, out)
        if op == "PRelu":
            need(len(shape) <= x.rank)
        name = params.get("c", lane, b.numbers(shape, 0.8, x.dtype))
        pair: list[Value | str] = [name, x] if first and op != "PRelu" else [x, name]
        return b.op(op, pair, x.dtype, joint(x.shape, shape))

    return step


def draw_shared(b: Build, v: Value, n: int) -> Step:
    """An op of a lane and an activation that all lanes share, or that each lane has by itself."""
    op, first, own = arithmetic(b, v), b.flip(0.3), b.flip(0.4)
    rank = v.rank if b.flip(0.6) else b.whole(0, v.rank)
    keep = [b.flip(0.7) for _ in range(4)]
    shape = tuple(d if keep[i % 4] else 1 for i, d in enumerate(v.shape[v.rank - rank :]))
    known = [
        o
        for o in b.values.values()
        if o.dtype == v.dtype and (o.shape == shape or o.shape == v.shape)
    ]
    known = [o for o in known if o.name in {i.name for i in b.inputs}] or known[:1]
    common = b.pick(known) if known and b.flip(0.5) else b.fed(v.dtype, shape)

    def step(b: Build, x: Value, lane: int) -> Value:
        other = b.fed(v.dtype, shape) if own else common
        return two(b, op, x, other, first, joint(x.shape, other.shape))

    return step


def draw_where(b: Build, v: Value, n: int) -> Step:
    """Choose between the lane and something else."""
    need(b.opset >= 9 and v.rank >= 1)
    params, source = Params(b, n), b.pick(["greater", "const", "fed", "equal"])
    need(source != "equal" or b.opset >= 11 or not v.floating)
    swap, mask_shape = b.flip(), v.shape if b.flip() else v.shape[-1:]
    mask = b.fed("bool", mask_shape) if source == "fed" else None
    negate, row = b.flip(0.3), b.flip(0.3)

    def step(b: Build, x: Value, lane: int) -> Value:
        if mask is not None:
            where = mask
        elif source == "const":
            need(isinstance(x.shape[-1], int))
            bits = b.rng.random(x.size(-1)) < 0.5
            where = Value(b.const(bits), "bool", x.shape[-1:])
        else:
            op = {"greater": b.pick(["Greater", "Less"]), "equal": "Equal"}[source]
            where = b.op(op, [x, scalar(b, x.dtype, 0)], "bool", x.shape)
        if negate:
            where = b.same("Not", where)
        other = params.get("o", lane, b.numbers((x.size(-1),) if row else (), 1, x.dtype))
        shape = joint(where.shape, x.shape)
        pair = [other, x.name] if swap else [x.name, other]
        return b.op("Where", [where, *pair], x.dtype, shape)

    return step


def draw_clip(b: Build, v: Value, n: int) -> Step:
    """Clip with both bounds, one, or none."""
    need(v.floating and (v.dtype != "float64" or b.opset >= 12))
    bounds = [b.pick([-1.0, -0.3, None]), b.pick([0.4, 1.2, None])]
    odd = b.whole(0, n - 1) if b.flip(0.2) else -1
    form = b.pick(["const"] * 5 + ["fed"])

    def step(b: Build, x: Value, lane: int) -> Value:
        low, high = bounds
        if form == "fed" and b.opset >= 11:
            limit = b.fed(x.dtype, (), "limit")
            return b.same("Clip", x, "", b.same("Abs", limit))
        return clip(b, x, low, 0.7 if lane == odd else high)

    return step


def draw_cast(b: Build, v: Value, n: int) -> Step:
    """To another type and back."""
    others = [d for d in ("float16", "float64", "float32") if d != v.dtype]
    other = b.pick(others if v.floating else ["float32", "int32", "int64"])
    inner = b.flip()

    def step(b: Build, x: Value, lane: int) -> Value:
        y = cast(b, x, other)
        if inner and y.floating:
            y = b.same("Tanh" if other == "float64" else b.pick(["Tanh", "Sigmoid"]), y)
        return cast(b, y, x.dtype)

    return step


REDUCTIONS = "Sum Mean Max Min Prod L1 L2 SumSquare LogSumExp LogSum".split()


def draw_reduce(b: Build, v: Value, n: int) -> Step:
    """A reduction over some axes."""
    need(v.rank >= 1)
    op = b.pick(["Sum", "Mean", "Max", "Min"] if not v.floating else REDUCTIONS)
    count = b.whole(1, v.rank) if b.flip(0.4) else 1
    axes = sorted(b.rng.permutation(v.rank)[:count].tolist())
    keep = b.flip() or count == v.rank
    back = b.flip(0.5)

    def step(b: Build, x: Value, lane: int) -> Value:
        need(x.rank == v.rank and all(isinstance(x.shape[a], str) or x.shape[a] for a in axes))
        source = guarded(b, x, "pos") if op == "LogSum" else x
        y = reduce(b, f"Reduce{op}", source, axes, keep)
        return (
            b.op("Add" if op != "Prod" else "Sub", [x, y], x.dtype, x.shape)
            if (back and keep)
            else y
        )

    return step


def draw_arg(b: Build, v: Value, n: int) -> Step:
    """Where the largest or smallest number stands."""
    need(v.rank >= 2)
    op, axis, keep = b.pick(["ArgMax", "ArgMin"]), b.whole(0, v.rank - 1), b.flip()
    attrs: dict[str, Any] = {"axis": b.axis(axis, v.rank)}
    if not keep:
        attrs["keepdims"] = 0
    if b.opset >= 12 and b.flip(0.3):
        attrs["select_last_index"] = b.whole(0, 1)

    def step(b: Build, x: Value, lane: int) -> Value:
        need(x.rank == v.rank and 0 not in x.shape)
        shape = x.sized(axis, 1) if keep else (*x.shape[:axis], *x.shape[axis + 1 :])
        where = b.op(op, [x], "int64", shape, **attrs)
        return cast(b, where, x.dtype)

    return step


def draw_top(b: Build, v: Value, n: int) -> Step:
    """TopK, its values alone or both results."""
    need(v.rank >= 1 and v.dtype in ("float32", "float64") and b.opset >= 10)
    axis = b.whole(0, v.rank - 1)
    k = b.whole(1, max(1, min(3, v.size(axis))))
    attrs: dict[str, Any] = (
        {} if axis == v.rank - 1 and b.flip() else {"axis": b.axis(axis, v.rank)}
    )
    if b.opset >= 11 and b.flip(0.3):
        attrs["largest"] = 0
    both, given = b.flip(0.3), b.flip(0.1) and k == 1
    count = b.fed("int64", (1,), INDEX).name if given else ""

    def step(b: Build, x: Value, lane: int) -> Value:
        need(x.rank == v.rank and x.size(axis) >= k)
        shape = x.sized(axis, k)
        inputs: list[Value | str] = [x, count or b.ints(k)]
        values, where = b.node("TopK", inputs, [(x.dtype, shape), ("int64", shape)], **attrs)
        return b.same("Add", values, cast(b, where, x.dtype)) if both else values

    return step


def draw_cumsum(b: Build, v: Value, n: int) -> Step:
    """CumSum along an axis that is an operand."""
    need(v.rank >= 2 and b.opset >= 14 and v.dtype != "float16")
    axis, given = b.whole(0, v.rank - 1), b.flip(0.15)
    where = b.fed("int64", (), INDEX).name if given else ""
    attrs = {k: 1 for k in ("exclusive", "reverse") if b.flip(0.3)}
    dtype, vector = b.pick(["int32", "int64"]), b.flip(0.3)

    def step(b: Build, x: Value, lane: int) -> Value:
        written = np.array(b.axis(axis, x.rank), dtype)
        written = written.reshape(1) if vector else written
        return b.same("CumSum", x, where or b.const(written), **attrs)

    return step


def draw_transpose(b: Build, v: Value, n: int) -> Step:
    """Another order of axes."""
    need(v.rank >= 2)
    perm = b.rng.permutation(v.rank).tolist()

    def step(b: Build, x: Value, lane: int) -> Value:
        need(x.rank == v.rank)
        return turn(b, x, perm)

    return step


def draw_reshape(b: Build, v: Value, n: int) -> Step:
    """Reshape that cuts or merges axes, its target written in one of many ways."""
    need(v.rank >= 1)
    kind = b.pick(["cut", "merge", "flat", "front", "same", "head", "squash"])
    way, parts, least = b.whole(0, 3), b.pick([2, 3, 4]), b.flip()

    def target(x: Value) -> list[Dim]:
        if kind == "cut":
            need(x.size(-1) % parts == 0 and x.rank < 4 and x.size(-1) > 0)
            return [*x.shape[:-1], parts, x.size(-1) // parts]
        if kind == "merge":
            need(x.rank >= 2)
            return [*x.shape[:-2], x.size(-1) * x.size(-2)]
        if kind == "flat":
            return [int(np.prod([x.size(a) for a in range(x.rank)]))]
        if kind == "front":
            need(x.rank < 4)
            return [1, *x.shape] if least else [*x.shape, 1]
        if kind == "head":
            need(x.rank >= 3)
            return [x.shape[0], int(np.prod([x.size(a) for a in range(1, x.rank)]))]
        if kind == "squash":
            need(x.rank >= 2)
            return [int(np.prod([x.size(a) for a in range(x.rank - 1)])), x.size(-1)]
        return list(x.shape)

    def step(b: Build, x: Value, lane: int) -> Value:
        shape = target(x)
        need(0 not in x.shape)
        written: list[int] = []
        for axis, dim in enumerate(shape):
            copies = axis < x.rank and x.shape[axis] == dim
            if copies and (way != 1 or isinstance(dim, str)):
                written.append(0)
            else:
                written.append(-1 if isinstance(dim, str) else dim)
        if way == 2 and -1 not in written and any(isinstance(d, int) for d in shape):
            places = [a for a, d in enumerate(shape) if isinstance(d, int)]
            written[places[-1]] = -1
        if way == 3 and all(
            isinstance(d, int) or x.shape[a : a + 1] == (d,) for a, d in enumerate(shape)
        ):
            sizes = b.op("Shape", [x], "int64", (x.rank,))
            pieces: list[Value | str] = []
            for axis, dim in enumerate(shape):
                if isinstance(dim, str):
                    one = gather(b, sizes, 0, axis)
                    pieces.append(unsqueeze(b, one, 0))
                else:
                    pieces.append(b.ints(dim))
            where = b.op("Concat", pieces, "int64", (len(shape),), axis=0)
            return b.op("Reshape", [x, where], x.dtype, shape)
        need(written.count(-1) <= 1)
        attrs: dict[str, Any] = {}
        if b.opset >= 14 and 0 not in written and b.flip(0.2):
            attrs["allowzero"] = 1
        return b.op("Reshape", [x, b.ints(*written)], x.dtype, shape, **attrs)

    return step


def draw_fold(b: Build, v: Value, n: int) -> Step:
    """Merge the leading axes, multiply, and take them apart again."""
    need(v.rank == 3 and v.floating)
    v.size(-1)
    width, params, simple = b.pick([2, 4]), Params(b, n), b.flip(0.3)

    def step(b: Build, x: Value, lane: int) -> Value:
        k = x.size(-1)
        need(x.rank == 3 and k > 0)
        flat = b.op("Reshape", [x, b.ints(-1, k)], x.dtype, (f"{x.shape[:2]} flat", k))
        w = params.get("w", lane, b.numbers((k, width), k**-0.5, x.dtype))
        y = b.op("MatMul", [flat, w], x.dtype, (flat.shape[0], width))
        shape = (*x.shape[:2], width)
        if simple and isinstance(x.shape[1], int):
            return b.op("Reshape", [y, b.ints(-1, x.shape[1], width)], x.dtype, shape)
        sizes = b.op("Shape", [x], "int64", (3,))
        lead = cut(b, sizes, 0, 0, 2)
        where = b.op("Concat", [lead, b.ints(width)], "int64", (3,), axis=0)
        return b.op("Reshape", [y, where], x.dtype, shape)

    return step


def draw_flatten(b: Build, v: Value, n: int) -> Step:
    """Flatten at some axis."""
    need(v.rank >= 2 and (v.floating or b.opset >= 9))
    axis = b.pick([1] * 4 + list(range(v.rank + 1)))
    attrs = {} if axis == 1 and b.flip() else {"axis": axis}

    def step(b: Build, x: Value, lane: int) -> Value:
        need(x.rank == v.rank)
        front, back = x.shape[:axis], x.shape[axis:]
        sizes: list[Dim] = []
        for part in (front, back):
            if len(part) == 1:
                sizes.append(part[0])
            else:
                need(all(isinstance(d, int) for d in part))
                sizes.append(int(np.prod([d for d in part if isinstance(d, int)], dtype=int)))
        return b.op("Flatten", [x], x.dtype, sizes, **attrs)

    return step


def draw_unit_axes(b: Build, v: Value, n: int) -> Step:
    """An axis of size 1 comes or goes."""
    ones = [a for a, d in enumerate(v.shape) if d == 1]
    if ones and b.flip(0.6):
        gone = b.pick(ones)

        def less(b: Build, x: Value, lane: int) -> Value:
            need(x.rank == v.rank and x.shape[gone] == 1)
            return squeeze(b, x, gone)

        return less
    need(v.rank < 4)
    added = b.whole(0, v.rank)

    def more(b: Build, x: Value, lane: int) -> Value:
        need(x.rank == v.rank)
        return unsqueeze(b, x, added)

    return more


def draw_glu(b: Build, v: Value, n: int) -> Step:
    """Split inside a lane, and what is made of the pieces."""
    need(v.rank >= 1)
    axis = b.whole(0, v.rank - 1) if b.flip(0.3) else v.rank - 1
    parts = b.pick([2, 2, 3])
    need(v.size(axis) >= parts)
    uneven, finish = b.flip(0.2), b.pick(["gate", "add", "first", "last", "swap"])

    def step(b: Build, x: Value, lane: int) -> Value:
        size = x.size(axis)
        need(x.rank == v.rank and size >= parts)
        if uneven or size % parts:
            sizes = [1, size - 1]
            a, c = split(b, x, axis, sizes)
            return join(b, [c, a], axis) if finish != "first" else c
        pieces = split(b, x, axis, [size // parts] * parts)
        if finish == "swap":
            return join(b, pieces[::-1], axis)
        if finish in ("first", "last"):
            return pieces[0 if finish == "first" else -1]
        if finish == "gate" and x.floating:
            return b.same("Mul", pieces[0], b.same("Sigmoid", pieces[1]))
        return b.same("Add", pieces[0], pieces[1])

    return step


def draw_slice(b: Build, v: Value, n: int) -> Step:
    """A range of one axis, the same in every lane; rarely two axes at once."""
    need(v.rank >= 1)
    axis = b.whole(0, v.rank - 1)
    size = v.size(axis)
    need(size >= 2)
    start = b.whole(0, size - 1)
    end, step_ = b.whole(start + 1, size), b.pick([1, 1, 1, 2])
    odd = b.whole(0, n - 1) if b.flip(b.loud) else -1
    multi = b.flip(0.15) and b.opset >= 10 and v.rank >= 2 and isinstance(v.shape[0], int)

    def step(b: Build, x: Value, lane: int) -> Value:
        need(x.rank == v.rank and x.size(axis) >= end)
        if multi and axis and x.size(0) >= 1:
            shape = list(x.sized(axis, end - start))
            shape[0] = 1
            bounds = [b.ints(start, 0), b.ints(end, 1), b.ints(axis, 0)]
            return b.op("Slice", [x, *bounds], x.dtype, shape)
        length = end - start
        if lane == odd and length < x.size(axis):
            low = b.whole(0, x.size(axis) - length)
            return cut(b, x, axis, low, low + length)
        stride = step_ if b.opset >= 10 else 1
        return cut(b, x, axis, start, end, stride)

    return step


def draw_gather(b: Build, v: Value, n: int) -> Step:
    """Chosen entries of one axis; GatherND where it can say the same."""
    need(v.rank >= 1)
    axis = b.whole(0, v.rank - 1)
    size = v.size(axis)
    need(size >= 1)
    low = -size if b.opset >= 11 and b.flip(0.2) else 0
    forms: list[tuple[int, ...]] = [(), (1,), (2,), (3,), (2, 2)]
    where = b.rng.integers(low, size, b.pick(forms))
    need(v.rank + where.ndim - 1 <= 4 and (v.rank > 1 or where.ndim > 0))
    deep = b.opset >= 11 and axis == 0 and b.flip(0.4) and where.ndim > 0 and low == 0

    def step(b: Build, x: Value, lane: int) -> Value:
        need(x.rank == v.rank and x.size(axis) >= size)
        if deep:
            shape = (*where.shape, *x.shape[1:])
            index = b.const(where[..., None].astype(np.int64))
            return b.op("GatherND", [x, index], x.dtype, shape)
        return gather(b, x, axis, where)

    return step


def draw_grow(b: Build, v: Value, n: int) -> Step:
    """Pad, Tile, Expand."""
    need(v.rank >= 1)
    op = b.pick(["Pad", "Tile", "Expand", "Expand"])
    axis = b.whole(0, v.rank - 1)
    size = v.size(axis)
    need(0 < size <= 6)
    need(op != "Expand" or b.opset >= 8)
    need(op != "Pad" or v.floating or b.opset >= 11)
    amount, more = b.pick([1, 2]), b.flip(0.3)

    def step(b: Build, x: Value, lane: int) -> Value:
        need(x.rank == v.rank)
        if op == "Tile":
            times = [amount if a == axis else 1 for a in range(x.rank)]
            shape = x.sized(axis, x.size(axis) * amount)
            return b.op("Tile", [x, b.ints(*times)], x.dtype, shape)
        if op == "Pad":
            pads = [0] * (2 * x.rank)
            pads[axis] = amount
            shape = x.sized(axis, x.size(axis) + amount)
            if b.opset < 11:
                return b.op("Pad", [x], x.dtype, shape, pads=pads)
            extra = [b.const(np.full((), 1, x.dtype))] if more else []
            return b.op("Pad", [x, b.ints(*pads), *extra], x.dtype, shape)
        wide = 3 if x.shape[axis] == 1 else x.size(axis)
        target = [1] * x.rank
        target[axis] = wide
        shape = x.sized(axis, wide)
        if more and x.rank < 4:
            target, shape = [2, *target], (2, *shape)
        return b.op("Expand", [x, b.ints(*target)], x.dtype, shape)

    return step


def draw_concat(b: Build, v: Value, n: int) -> Step:
    """Concat inside a lane."""
    need(v.rank >= 1)
    axis = b.whole(0, v.rank - 1)
    need(v.size(axis) <= 8)
    kind = b.pick(["twice", "unary", "const", "shared"])
    common = b.fed(v.dtype, v.shape) if kind == "shared" else None

    def step(b: Build, x: Value, lane: int) -> Value:
        if kind == "twice":
            return join(b, [x, x], axis)
        if kind == "const":
            shape = tuple(x.size(a) for a in range(x.rank))
            c = Value(b.const(b.numbers(shape, 1, x.dtype)), x.dtype, shape)
            return join(b, [x, c], axis)
        if common is not None:
            need(x.shape == common.shape)
            return join(b, [common, x], axis)
        return join(b, [b.same("Neg", x), x], axis)

    return step


def draw_residual(b: Build, v: Value, n: int) -> Step:
    """A residual x + f(x), f of one or two steps."""
    need(b.depth < 2)
    b.depth += 1
    try:
        inner = draw_chain(b, v, n, b.whole(1, 2))
    finally:
        b.depth -= 1
    op = b.pick(["Add", "Add", "Mul", "Sub"])

    def step(b: Build, x: Value, lane: int) -> Value:
        y = x
        for one in inner:
            y = one(b, y, lane)
        need(y.shape == x.shape and y.dtype == x.dtype)
        return b.op(op, [y, x], x.dtype, x.shape)

    return step


def draw_nested(b: Build, v: Value, n: int) -> Step:
    """Lanes inside a lane: cut it, run a chain on every piece, put them together."""
    need(b.depth < 1 and v.rank >= 1)
    parts = b.pick([2, 2, 3])
    axis = v.rank - 1
    need(v.size(axis) % parts == 0 and v.size(axis) >= parts)
    piece = Value("", v.dtype, v.sized(axis, v.size(axis) // parts))
    b.depth += 1
    try:
        inner = draw_chain(b, piece, n * parts, b.whole(1, 3))
    finally:
        b.depth -= 1
    finish = b.pick(["concat", "concat", "add", "mean"])

    def step(b: Build, x: Value, lane: int) -> Value:
        size = x.size(axis)
        need(x.rank == v.rank and size % parts == 0 and size >= parts)
        pieces = split(b, x, axis, [size // parts] * parts)
        done = []
        for p, y in enumerate(pieces):
            for one in inner:
                y = one(b, y, lane * parts + p)
            done.append(y)
        need(len({(y.shape, y.dtype) for y in done}) == 1 and done[0].rank >= 1)
        if finish == "concat" and isinstance(done[0].shape[-1], int):
            return join(b, done, done[0].rank - 1)
        if finish == "mean" and b.opset >= 8 and x.dtype in ("float32", "float16"):
            return b.same("Mean", *done)
        total = done[0]
        for y in done[1:]:
            total = b.same("Add", total, y)
        return total

    return step


def draw_dropout(b: Build, v: Value, n: int) -> Step:
    """Dropout at inference; rarely in training, with a seed."""
    need(v.floating)
    training = b.opset >= 12 and b.flip(0.08)
    said = b.flip(0.3)

    def step(b: Build, x: Value, lane: int) -> Value:
        if b.opset < 12:
            return b.same("Dropout", x, **({"ratio": 0.3} if said else {}))
        ratio = b.const(np.array(0.4, np.float32)) if said or training else ""
        if training:
            mode = b.const(np.array(True))
            return b.same("Dropout", x, ratio, mode, seed=b.whole(1, 99))
        mode = b.const(np.array(False)) if said and b.flip() else ""
        return b.same("Dropout", x, ratio, mode)

    return step


def draw_identity(b: Build, v: Value, n: int) -> Step:
    """Another name for the same value, or the same value computed twice."""
    kind = b.pick(["Identity", "Cast", "Transpose", "twin"])

    def step(b: Build, x: Value, lane: int) -> Value:
        if kind == "Cast":
            return cast(b, x, x.dtype)
        if kind == "Transpose" and x.rank:
            return b.op("Transpose", [x], x.dtype, x.shape, perm=list(range(x.rank)))
        if kind == "twin":
            maker = next((m for m in b.nodes[::-1] if list(m.output) == [x.name]), None)
            need(maker is not None and maker.op_type not in ("Constant", "Dropout", "If"))
            assert maker is not None
            copy = NodeProto()
            copy.CopyFrom(maker)
            other = Value(b.fresh(maker.op_type), x.dtype, x.shape)
            copy.name, copy.output[0] = "", other.name
            b.nodes.append(copy)
            b.values[other.name] = other
            b.read.update((*copy.input, x.name, other.name))
            return b.same("Sub" if b.flip(0.2) else "Add", x, other)
        return b.same("Identity", x)

    return step


def draw_variadic(b: Build, v: Value, n: int) -> Step:
    """Max, Min, Sum, Mean of three operands."""
    need(v.dtype == "float32" and b.opset >= 8)
    op, params = b.pick(["Max", "Min", "Sum", "Mean"]), Params(b, n)

    def step(b: Build, x: Value, lane: int) -> Value:
        c = params.get("c", lane, b.numbers(() if x.rank == 0 else (1,), 0.7, x.dtype))
        return b.same(op, x, c, b.same("Tanh", x))

    return step


STEPS: tuple[tuple[int, Drawer], ...] = (
    (24, draw_linear),
    (12, draw_int_product),
    (1, draw_vector),
    (4, draw_attention),
    (14, draw_conv),
    (6, draw_pool),
    (5, draw_batch_norm),
    (6, draw_layer_norm),
    (3, draw_spelled_norm),
    (1, draw_instance_norm),
    (5, draw_softmax),
    (16, draw_unary),
    (9, draw_binary),
    (6, draw_shared),
    (3, draw_where),
    (4, draw_clip),
    (3, draw_cast),
    (6, draw_reduce),
    (2, draw_arg),
    (2, draw_top),
    (2, draw_cumsum),
    (5, draw_transpose),
    (6, draw_reshape),
    (3, draw_fold),
    (3, draw_flatten),
    (4, draw_unit_axes),
    (4, draw_glu),
    (4, draw_slice),
    (4, draw_gather),
    (3, draw_grow),
    (3, draw_concat),
    (5, draw_residual),
    (4, draw_nested),
    (2, draw_dropout),
    (3, draw_identity),
    (2, draw_variadic),
)
"""How often each step is drawn, and by what."""

HEAVY: tuple[Drawer, ...] = (draw_linear, draw_linear, draw_conv, draw_attention, draw_int_product)


def draw_step(b: Build, v: Value, n: int, heavy: bool = False) -> Step | None:
    """A step that fits a value; None if none of many tries does."""
    chances = np.array([w for w, _ in STEPS], float)
    for _ in range(20):
        if heavy:
            drawer = b.pick(HEAVY)
        else:
            drawer = STEPS[int(b.rng.choice(len(STEPS), p=chances / chances.sum()))][1]
        try:
            return drawer(b, v, n)
        except Unfit:
            continue
    return None


def draw_chain(b: Build, v: Value, n: int, length: int) -> list[Step]:
    """Steps for something inside a lane; they are tried out on a copy to follow the shape."""
    steps: list[Step] = []
    for k in range(length):
        step = draw_step(b, v, n, heavy=k == 0 and b.flip())
        if step is None:
            break
        try:
            v = _rehearse(b, step, v)
        except Unfit:
            break
        steps.append(step)
    need(bool(steps))
    return steps


def _rehearse(b: Build, step: Step, v: Value) -> Value:
    """The type that a step gives, without leaving a trace in the model but dead names."""
    mark = b.mark()
    try:
        return step(b, v, 0)
    finally:
        b.back(mark)


# -- sources -------------------------------------------------------------------------------------------


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
    kinds = ["shared"] * 3 + ["split"] * 4 + ["slices"] * 2 + ["gathers"] * 2 + ["stack"] * 2
    kinds += ["inputs"] * 2 + ["join", "mixed", "uneven"]
    kind = b.pick(kinds)
    dtype = trunk.dtype if trunk is not None else b.dtype
    if kind in ("shared", "mixed"):
        x = trunk if trunk is not None else b.fed(dtype, shape)
        return [b.fed(dtype, shape) if kind == "mixed" and b.flip() else x for _ in range(n)]
    if kind == "inputs":
        return [b.fed(dtype, shape) for _ in range(n)]
    if kind == "join":
        lanes = [b.fed(dtype, shape) for _ in range(n)]
        axes = [a for a, d in enumerate(shape) if isinstance(d, int) and d]
        need(bool(axes))
        axis = b.pick(axes)
        if b.flip():
            lanes = [linear(b, x, x.size(-1)) if x.rank >= 2 else x for x in lanes]
        whole = join(b, lanes, axis)
        size = lanes[0].size(axis)
        if b.flip(0.7):
            return split(b, whole, axis, [size] * n)
        return [cut(b, whole, axis, i * size, (i + 1) * size) for i in b.order(n)]
    axes = [a for a, d in enumerate(shape) if isinstance(d, int)]
    need(bool(axes))
    axis = b.pick(axes) if b.flip(0.4) else axes[-1]
    if kind in ("gathers", "stack"):
        extra = b.whole(0, 2) if kind == "gathers" else 0
        place = b.whole(0, len(shape)) if b.flip(0.7) else 0
        need(len(shape) < 4)
        if trunk is not None:
            need(trunk.rank >= 2 and trunk.size(-1) % n == 0)
            extra, place = 0, trunk.rank - 1
            target = [*[0] * (trunk.rank - 1), n, trunk.size(-1) // n]
            whole_shape: Shape = (*shape[:-1], n, trunk.size(-1) // n)
            source = b.op("Reshape", [trunk, b.ints(*target)], dtype, whole_shape)
            if b.flip():
                perm = [place, *(a for a in range(source.rank) if a != place)]
                source, place = turn(b, source, perm), 0
        else:
            source = b.fed(dtype, (*shape[:place], n + extra, *shape[place:]))
        if kind == "stack" and b.flip():
            return [squeeze(b, p, place) for p in split(b, source, place, [1] * n)]
        picks = b.rng.permutation(n + extra)[:n].tolist() if b.flip(0.4) else list(range(n))
        if b.flip(0.15):
            return [squeeze(b, gather(b, source, place, [i]), place) for i in picks]
        return [gather(b, source, place, i) for i in picks]
    if trunk is not None:
        need(trunk.size(axis) >= n)
        size = trunk.size(axis) // n
        source, extra = trunk, trunk.size(axis) - n * size
    else:
        size = int(shape[axis])
        extra = b.pick([0, 0, size, 1]) if kind != "split" else 0
        source = b.fed(
            dtype, tuple(n * size + extra if a == axis else d for a, d in enumerate(shape))
        )
    if kind == "slices":
        starts = [i * size + (extra if b.flip(0.3) else 0) for i in range(n)]
        if b.flip(0.1) and n > 2:
            starts[1] = starts[0]
        order = b.order(n)
        return [cut(b, source, axis, starts[i], starts[i] + size) for i in order]
    sizes = [size] * n
    if extra:
        sizes.insert(b.whole(0, n), extra)
    pieces = split(b, source, axis, sizes)
    return [p for p, s in zip(pieces, sizes, strict=True) if s == size][:n]


# -- chains --------------------------------------------------------------------------------------------


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
        odd = b.whole(0, n - 1) if b.flip(b.loud) else -1
        other = draw_step(b, sample, n) if odd >= 0 and b.flip(0.6) else None
        for lane in range(n):
            chosen: Sequence[Step] = [step]
            if lane == odd:
                chosen = [] if other is None else [other] if b.flip() else [step, other]
            for one in chosen:
                lanes[lane] = _try(b, one, lanes[lane], lane)
        if b.flip(0.12):
            lanes = neighbours(b, lanes, before)
        if b.flip(0.1):
            tap(b, b.pick(lanes if b.flip(0.8) else before))
    return lanes


def _try(b: Build, step: Step, x: Value, lane: int) -> Value:
    """A step on a lane; a lane that it does not fit stays as it is."""
    mark = b.mark()
    try:
        return step(b, x, lane)
    except Unfit:
        b.back(mark)
        return x


def neighbours(b: Build, lanes: list[Value], before: list[Value]) -> list[Value]:
    """Lanes that read one another, or what another lane was one step before."""
    out = list(lanes)
    kind, source = b.pick(["ring", "one", "pairs", "across"]), lanes
    if kind == "across":
        source = before
    for i in range(len(lanes)):
        j = (i + 1) % len(lanes)
        if kind == "one" and i != 1:
            continue
        if kind == "pairs" and i % 2:
            continue
        if lanes[i].shape == source[j].shape and lanes[i].dtype == source[j].dtype:
            out[i] = b.same("Add", lanes[i], source[j])
    return out


def tap(b: Build, x: Value) -> None:
    """Read a lane somewhere else as well."""
    kind = b.pick(["output", "output", "read", "if", "reduce"])
    if kind == "output":
        b.outputs.append(x)
    elif kind == "read":
        b.outputs.append(b.same("Neg", x))
    elif kind == "reduce" and x.rank:
        b.outputs.append(reduce(b, "ReduceMax", x, [x.rank - 1], False))
    else:
        b.outputs.append(branch(b, x, b.flip(0.2)))


def branch(b: Build, x: Value, nested: bool) -> Value:
    """An If whose bodies read a lane."""
    b.read.add(x.name)
    given = b.fed("bool", (), "cond") if b.flip(0.7) else None
    cond = given.name if given is not None else b.const(np.array(b.flip()))
    bodies = []
    for op in ("Neg", "Abs"):
        name = b.fresh("inner")
        nodes = [helper.make_node(op, [x.name], [name])]
        if nested and op == "Neg":
            deep = b.fresh("deep")
            graphs = [
                helper.make_graph(
                    [helper.make_node(o, [x.name], [f"{deep}{o}"])],
                    o,
                    [],
                    [helper.make_empty_tensor_value_info(f"{deep}{o}")],
                )
                for o in ("Abs", "Neg")
            ]
            made = helper.make_node(
                "If", [cond], [name], then_branch=graphs[0], else_branch=graphs[1]
            )
            nodes = [made]
        bodies.append(helper.make_graph(nodes, op, [], [helper.make_empty_tensor_value_info(name)]))
    return b.op("If", [cond], x.dtype, x.shape, then_branch=bodies[0], else_branch=bodies[1])


# -- sinks ---------------------------------------------------------------------------------------------


def close_lanes(b: Build, lanes: list[Value]) -> Value:
    """Bring lanes together; those that do not fit become outputs. Returns what goes on."""
    first = b.pick(lanes)
    alike = [x for x in lanes if (x.shape, x.dtype) == (first.shape, first.dtype)]
    for x in lanes:
        if (x.shape, x.dtype) != (first.shape, first.dtype):
            b.outputs.append(x)
    if len(alike) < 2:
        return alike[0]
    if b.flip(0.15):
        alike = [alike[i] for i in b.rng.permutation(len(alike))]
    if b.flip(0.1):
        alike.append(b.pick(alike))
    if b.flip(0.1) and len(alike) > 2:
        b.outputs.append(alike.pop())
    kind = b.pick(["concat"] * 4 + ["stack"] * 2 + ["chain", "tree", "sum", "mean", "max"] + SINKS)
    try:
        return SINK[kind](b, alike)
    except Unfit:
        b.outputs += alike[1:]
        return alike[0]


SINKS = ["weighted", "weighted", "outputs", "outputs", "gate"]


def sink_concat(b: Build, lanes: list[Value]) -> Value:
    """Side by side, with a stranger at the end or in between at times."""
    x = lanes[0]
    need(x.rank >= 1)
    axis = b.whole(0, x.rank - 1) if b.flip(0.5) else x.rank - 1
    if isinstance(x.shape[axis], str):
        b.outputs.append(join(b, lanes, axis))
        return x
    if b.flip(0.1):
        lanes = [*lanes]
        lanes.insert(b.whole(0, len(lanes)), b.fed(x.dtype, x.shape))
    return join(b, lanes, axis)


def sink_stack(b: Build, lanes: list[Value]) -> Value:
    """On an axis of their own."""
    x = lanes[0]
    need(x.rank < 4)
    axis = b.whole(0, x.rank)
    return join(b, [unsqueeze(b, y, axis) for y in lanes], axis)


def sink_chain(b: Build, lanes: list[Value]) -> Value:
    """Added up one by one, the total first or second, with a stranger among them at times."""
    lanes = list(lanes)
    if b.flip(0.2):
        lanes.insert(b.whole(0, len(lanes)), b.fed(lanes[0].dtype, lanes[0].shape))
    total = lanes[0]
    for k, y in enumerate(lanes[1:]):
        total = b.same("Add", *([y, total] if b.flip(0.3) else [total, y]))
        if b.flip(0.04):
            b.outputs.append(total)
        if b.flip(0.05):
            total = b.same("Add", total, lanes[k])
    return total


def sink_tree(b: Build, lanes: list[Value]) -> Value:
    """Added up in pairs."""
    level = list(lanes)
    while len(level) > 1:
        pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
        level = [b.same("Add", *p) if len(p) == 2 else p[0] for p in pairs]
    return level[0]


def sink_many(op: str) -> Callable[[Build, list[Value]], Value]:
    """One op of all lanes."""

    def sink(b: Build, lanes: list[Value]) -> Value:
        need(lanes[0].dtype in ("float32", "float16"))
        return b.same(op, lanes[0], *lanes[1:])

    return sink


def sink_weighted(b: Build, lanes: list[Value]) -> Value:
    """A sum weighted by constants, or by a gate as in a mixture of experts."""
    x = lanes[0]
    need(x.floating and x.rank >= 2)
    n = len(lanes)
    if b.flip(0.4):
        parts = [b.same("Mul", y, b.weight(b.numbers((), 1, x.dtype))) for y in lanes]
    else:
        logits = b.fed(x.dtype, (*x.shape[:-1], n))
        gate = b.same("Softmax", logits, axis=b.axis(x.rank - 1, x.rank))
        if b.flip():
            columns = split(b, gate, x.rank - 1, [1] * n)
        else:
            columns = [
                unsqueeze(b, gather(b, gate, x.rank - 1, i), x.rank - 1)
                if b.flip(0.3)
                else cut(b, gate, x.rank - 1, i, i + 1)
                for i in range(n)
            ]
        parts = [b.same("Mul", y, c) for y, c in zip(lanes, columns, strict=True)]
    return sink_chain(b, parts) if b.flip() or x.dtype == "float64" else sink_many("Sum")(b, parts)


def sink_gate(b: Build, lanes: list[Value]) -> Value:
    """Stacked behind a gate and multiplied by it."""
    x = lanes[0]
    need(x.rank == 2 and x.floating)
    whole = join(b, [unsqueeze(b, y, 1) for y in lanes], 1)
    gate = b.fed(x.dtype, (x.shape[0], 1, len(lanes)))
    y = b.op("MatMul", [gate, whole], x.dtype, (x.shape[0], 1, x.shape[1]))
    return squeeze(b, y, 1)


def sink_outputs(b: Build, lanes: list[Value]) -> Value:
    """Every lane is an output; one of them goes on."""
    b.outputs += lanes
    return b.pick(lanes)


SINK: dict[str, Callable[[Build, list[Value]], Value]] = {
    "concat": sink_concat,
    "stack": sink_stack,
    "chain": sink_chain,
    "tree": sink_tree,
    "sum": sink_many("Sum"),
    "mean": sink_many("Mean"),
    "max": sink_many("Max"),
    "weighted": sink_weighted,
    "gate": sink_gate,
    "outputs": sink_outputs,
}


# -- models --------------------------------------------------------------------------------------------


def random_model(seed: int) -> ModelProto:
    """A valid model that follows from a seed."""
    rng = np.random.default_rng(seed)
    b = Build(
        rng,
        opset=int(rng.integers(7, 24)),
        ir=int(rng.integers(3, 11)),
        dtype=str(rng.choice(["float32"] * 17 + ["float64", "float16", "int32", "int64"])),
        batch=str(rng.choice(BATCH_NAMES)) if rng.random() < 0.55 else int(rng.integers(1, 5)),
        length=str(rng.choice(LENGTH_NAMES)) if rng.random() < 0.3 else int(rng.integers(1, 5)),
        style=str(rng.choice(["plain"] * 5 + ["ours", "ours", "path", "odd"])),
        loud=float(rng.choice([0.0, 0.05, 0.15])),
    )
    if b.flip(0.5):
        b.opset = b.pick([13, 17, 18, 20, 21, 23])
    if b.flip(0.01):
        b.batch = 0
    trunk: Value | None = None
    small = b.flip(0.4)
    for _ in range(1 if small else b.pick([1, 2, 2, 3])):
        lanes = None
        while lanes is None:
            mark = b.mark()
            try:
                lanes = open_lanes(b, trunk, b.whole(2, 3 if small else 6))
            except Unfit:
                b.back(mark)
                if b.flip(0.3) and trunk is not None:
                    b.outputs.append(trunk)
                    trunk = None
        lanes = run_chain(b, lanes, b.whole(1, 3 if small else 6))
        trunk = close_lanes(b, lanes)
        if b.flip(0.15) and b.opset < 22:
            noise(b, trunk)
    assert trunk is not None
    return finish(b, trunk)


def noise(b: Build, x: Value) -> None:
    """Random numbers beside the lanes, from a seed."""
    name = b.pick(["RandomNormal", "RandomUniform"])
    dtype = x.dtype if x.dtype in ("float32", "float64") else "float32"
    shape = tuple(d if isinstance(d, int) else 1 for d in x.shape) or (1,)
    made = b.op(
        name, [], dtype, shape, shape=list(shape), dtype=elem(dtype), seed=float(b.whole(1, 9))
    )
    b.outputs.append(made if b.flip() else b.same("Abs", made))


def finish(b: Build, last: Value) -> ModelProto:
    """Put the model together."""
    outputs = list(dict.fromkeys([*b.outputs, last]))
    unread = [
        v for v in b.values.values() if v.name not in b.read and v not in outputs and v.rank < 5
    ]
    outputs += [v for v in unread if v.dtype and not _given(b, v) and b.flip(0.5)]
    outputs = [v for v in outputs if not _given(b, v) or (b.flip(0.3) and b.ir >= 4)]
    if not outputs:
        outputs = [b.same("Neg", last)]
    if b.flip(0.2):
        outputs = [outputs[i] for i in b.rng.permutation(len(outputs))]
    nodes = list(b.nodes)
    if b.flip(0.15):
        nodes = shuffled(b, nodes)
    infos = [_info(b, v) for v in b.inputs]
    listed = b.listed if b.ir >= 4 else [t.name for t in b.weights]
    kinds = {t.name: t for t in b.weights}
    infos += [
        helper.make_tensor_value_info(n, kinds[n].data_type, list(kinds[n].dims)) for n in listed
    ]
    graph = helper.make_graph(
        nodes, "random", infos, [_info(b, v, b.pick([1, 2])) for v in outputs], b.weights
    )
    if b.flip(0.2):
        inner = [v for v in b.values.values() if v not in outputs and not _given(b, v)]
        graph.value_info.extend(_info(b, v) for v in inner if b.flip() and v.rank)
    opsets = [helper.make_opsetid("" if b.flip(0.9) else "ai.onnx", b.opset)]
    opsets += [helper.make_opsetid(d, 1) for d in sorted(b.domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=b.ir)


def _given(b: Build, v: Value) -> bool:
    """Whether a value is an input."""
    return any(v.name == i.name for i in b.inputs)


def _info(b: Build, v: Value, detail: int = 2) -> ValueInfoProto:
    """A declaration: 1 leaves open sizes without names, 2 says all it can."""
    named = (*BATCH_NAMES, *LENGTH_NAMES)
    dims: list[Dim | None] = [
        d if isinstance(d, int) or (d in named and detail == 2) else None for d in v.shape
    ]
    return helper.make_tensor_value_info(v.name, elem(v.dtype), dims)


def shuffled(b: Build, nodes: list[NodeProto]) -> list[NodeProto]:
    """Another topological order; rarely none at all."""
    if b.flip(0.1):
        return [nodes[i] for i in b.rng.permutation(len(nodes))]
    made = {o for n in nodes for o in n.output if o}
    needs = [{i for i in (*n.input, *captured(n)) if i in made} for n in nodes]
    there: set[str] = set()
    left, out = list(range(len(nodes))), []
    while left:
        ready = [k for k in left if needs[k] <= there]
        k = b.pick(ready)
        left.remove(k)
        out.append(nodes[k])
        there.update(nodes[k].output)
    return out


def captured(node: NodeProto) -> list[str]:
    """Every name that a node's bodies read, their own included."""
    found: list[str] = []
    todo = [a.g for a in node.attribute if a.HasField("g")]
    while todo:
        for inner in todo.pop().node:
            found += inner.input
            todo += [a.g for a in inner.attribute if a.HasField("g")]
    return found


# -- feeds ---------------------------------------------------------------------------------------------


def make_feeds(
    model: ModelProto, batch: int, length: int, seed: int, *, wild: bool = False
) -> dict[str, Array]:
    """Inputs of a size: normal floats, small whole numbers, coins; `wild` puts a NaN and an Inf among them.

    Overridable initializers are fed in every second call (odd seeds).
    """
    rng = np.random.default_rng([seed, 5])
    weights = {t.name: t for t in model.graph.initializer}
    feeds: dict[str, Array] = {}
    for value in model.graph.input:
        if value.name in weights and (seed % 2 == 0 or model.ir_version < 4):
            continue
        tensor = value.type.tensor_type
        shape = []
        for axis, dim in enumerate(tensor.shape.dim):
            open_size = (
                length if dim.dim_param in LENGTH_NAMES or (axis and not dim.dim_param) else batch
            )
            shape.append(dim.dim_value if dim.HasField("dim_value") else open_size)
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if value.name in weights and dtype.kind != "f":
            continue
        if dtype.kind == "f":
            array = np.asarray(rng.standard_normal(shape)).astype(dtype)
            if wild and array.size:
                places = rng.integers(0, array.size, 2)
                array.reshape(-1)[places] = [np.nan, np.inf]
        elif dtype.kind == "b":
            array = np.asarray(rng.random(shape) < 0.5)
        elif value.name.startswith(INDEX):
            array = np.ones(shape, dtype)
        else:
            array = np.asarray(rng.integers(-3, 4, shape)).astype(dtype)
        feeds[value.name] = array
    return feeds


# -- models that found something -------------------------------------------------------------------------


def text(body: str, *, opset: int = 17, **weights: tuple[int, ...] | Array) -> ModelProto:
    """A model written in ONNX's text form; weights are given by shape (normal numbers) or by value."""
    head = f'<ir_version: 8, opset_import: ["" : {opset}]> kept '
    model = onnx.parser.parse_model(head + body)
    for name, given in weights.items():
        array = given
        if isinstance(array, tuple):
            rng = np.random.default_rng(zlib.crc32(name.encode()))
            array = np.asarray(rng.standard_normal(array)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def large_constants() -> ModelProto:
    """Weights of Constant nodes, which have no names of their own, above the size compared by value."""
    rng = np.random.default_rng(3)
    nodes = []
    for lane in "ab":
        tensor = numpy_helper.from_array(rng.standard_normal((32, 16)).astype(np.float32))
        nodes.append(helper.make_node("Constant", [], [f"w{lane}"], value=tensor))
        nodes.append(helper.make_node("MatMul", [f"x{lane}", f"w{lane}"], [f"y{lane}"]))
    nodes.append(helper.make_node("Add", ["ya", "yb"], ["y"]))
    inputs = [helper.make_tensor_value_info(f"x{lane}", 1, ["N", 32]) for lane in "ab"]
    outputs = [helper.make_tensor_value_info("y", 1, ["N", 16])]
    graph = helper.make_graph(nodes, "kept", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def spelled_norm(low_a: Array, low_b: Array) -> ModelProto:
    """Two lanes of LayerNormalization in plain ops, each with its epsilon."""
    lanes = "".join(
        f"""h{k} = MatMul(x{k}, w{k})  m{k} = ReduceMean<axes=[-1]>(h{k})  c{k} = Sub(h{k}, m{k})
        p{k} = Pow(c{k}, two)  v{k} = ReduceMean<axes=[-1]>(p{k})  e{k} = Add(v{k}, low{k})
        s{k} = Sqrt(e{k})  n{k} = Div(c{k}, s{k})  y{k} = Mul(n{k}, g)
        """
        for k in "ab"
    )
    body = f"(float[N,4] xa, float[N,4] xb) => (float[N,4] ya, float[N,4] yb) {{ {lanes} }}"
    two = np.array(2, np.float32)
    return text(body, wa=(4, 4), wb=(4, 4), two=two, g=(4,), lowa=low_a, lowb=low_b)


def half_shared_weight() -> ModelProto:
    """Lanes in half precision that share one weight: ONNX Runtime crashes on what they become."""
    w = np.linspace(-1, 1, 12).reshape(3, 4).astype(np.float16)
    split = np.array([3, 3])
    return text(
        """(float16[N,6] x) => (float16[N,4] y) {
        a, b = Split<axis=1>(x, split)  c = MatMul(a, w)  d = MatMul(b, w)  e = Tanh(c)  f = Tanh(d)
        y = Add(e, f) }""",
        w=w,
        split=split,
    )


F32 = np.float32

REGRESSIONS: dict[str, Callable[[], ModelProto]] = {
    "a bias in the first of two convolutions": lambda: text(
        """(float[N,2,2] x) => (float[N,2,2] y) {
        a = Conv<group=2, kernel_shape=[1]>(x, w)  b = Conv<group=2, kernel_shape=[1]>(x, v, c)
        y = Add(b, a) }""",
        w=(2, 1, 1),
        v=(2, 1, 1),
        c=(2,),
    ),
    "the same product twice, a bias behind one of them": lambda: text(
        """(float[N,4] x) => (float[N,3] y) {
        a = MatMul(x, w)  b = MatMul(x, w)  c = MatMul(b, p)  d = Add(a, bias)  e = MatMul(d, q)
        f = MatMul(c, r)  g = MatMul(e, s)  y = Add(f, g) }""",
        w=(4, 8),
        bias=(8,),
        p=(8, 2),
        q=(8, 2),
        r=(2, 3),
        s=(2, 3),
    ),
    "the same sum of lanes twice, one of them added up further": lambda: text(
        """(float[N,4] xa, float[N,4] xb) => (float[N,4] y, float[N,4] z) {
        a = MatMul(xa, w)  b = MatMul(xb, v)  s = Add(a, b)  t = Add(a, b)  u = Add(s, xa)
        c = MatMul(t, w)  d = MatMul(u, v)  y = Add(c, d)  z = Neg(t) }""",
        w=(4, 4),
        v=(4, 4),
    ),
    "lanes in which nothing differs: products": lambda: text(
        """(float[3,4] x) => (float[3,4] y) {
        a = MatMul(w, x)  b = MatMul(v, x)  c = Relu(a)  d = Tanh(b)  y = Add(c, d) }""",
        w=np.eye(3, dtype=F32) * 2,
        v=np.eye(3, dtype=F32) * 2,
    ),
    "lanes in which nothing differs: bounds": lambda: text(
        """(float[3,3] x, float[3,3] z) => (float[3,4] y) {
        a = MatMul(x, z)  b = Clip(a, low)  c = Clip(a, lower)  f = Gather<axis=1>(b, turn)
        g = Gather<axis=1>(c, turn)  d = MatMul(f, w)  e = MatMul(g, v)  y = Sub(d, e) }""",
        turn=np.array([2, 0, 1]),
        low=np.array(-1, F32),
        lower=np.array(-1, F32),
        w=(3, 4),
        v=(3, 4),
    ),
    "lanes in which nothing differs: a default written out": lambda: text(
        """(float[N,3] x) => (float[N,4] y) {
        b = LeakyRelu(x)  c = LeakyRelu<alpha=0.01>(x)  f = Gather<axis=1>(b, turn)
        g = Gather<axis=1>(c, turn)  d = MatMul(f, w)  e = MatMul(g, v)  y = Sub(d, e) }""",
        turn=np.array([2, 0, 1]),
        w=(3, 4),
        v=(3, 4),
    ),
    "the axis of CumSum is an input": lambda: text(
        """(float[N,4] x, float[N,4] z, int64 index) => (float[N,3] y) {
        a = CumSum(x, index)  b = CumSum(z, index)  c = MatMul(a, w)  d = MatMul(b, v)
        y = Sub(c, d) }""",
        w=(4, 3),
        v=(4, 3),
    ),
    "the count of TopK is an input": lambda: text(
        """(float[N,4] x, int64[1] index) => (float[N,k] y) {
        a = MatMul(x, w)  b = MatMul(x, v)  c, ci = TopK(a, index)  d, di = TopK(b, index)
        y = Sub(c, d) }""",
        w=(4, 3),
        v=(4, 3),
    ),
    "a lane brought out once and once again": lambda: text(
        """(float[N,3] xa, float[N,3] xb, float[N,3] xc, float[N,2] z) => (float[N,2] c, float[N,8] y) {
        a = MatMul(xa, w)  b = MatMul(xb, v)  c = MatMul(xc, u)  y = Concat<axis=1>(a, z, b, c) }""",
        w=(3, 2),
        v=(3, 2),
        u=(3, 2),
    ),
    "a Concat of lanes and one piece of a Split": lambda: text(
        """(float[N,3,8] x) => (float[N,3,8] y) {
        a, b, c = Split<axis=1>(x)  d = MatMul(w, b)  e = MatMul(v, c)
        y = Concat<axis=1>(a, d, e) }""",
        w=np.array([[2]], F32),
        v=np.array([[3]], F32),
    ),
    "a sum of lanes and one piece of a Split": lambda: text(
        """(float[N,12] x) => (float[N,4] y) {
        a, b, c = Split<axis=1>(x)  d = MatMul(b, w)  e = MatMul(c, v)  s = Add(d, e)
        y = Add(s, a) }""",
        w=(4, 4),
        v=(4, 4),
    ),
    "LayerNormalization over more than the last axis, lanes in between": lambda: text(
        """(float[N,2,2] x) => (float[N,2,2] y) {
        a, b = Split<axis=2>(x)  c = LayerNormalization<axis=-2>(a, g)
        d = LayerNormalization<axis=-2>(b, h)  e = MatMul(c, w)  f = MatMul(d, v)
        y = Add(e, f) }""",
        g=(2, 1),
        h=(2, 1),
        w=(1, 2),
        v=(1, 2),
    ),
    "LayerNormalization over all axes": lambda: text(
        """(float[3,1,8,4] x) => (float[3,1,8,1] y, float[3,1,8,1] z) {
        a = MatMul(x, w)  b = MatMul(x, v)  y = LayerNormalization<axis=0>(a, g)
        z = LayerNormalization<axis=0>(b, h) }""",
        w=(4, 1),
        v=(4, 1),
        g=(3, 1, 8, 1),
        h=(3, 1, 8, 1),
    ),
    "rows on one axis meet an operand that broadcasts over some of them": lambda: text(
        """(float[4,3,4] x, float[4,3,4] z, float[1,3,5] p, float[1,3,5] q) => (float[4,3,5] y) {
        a = MatMul(x, w)  b = MatMul(z, v)  c = Add(a, p)  d = Add(b, q)  y = Sub(c, d) }""",
        w=(4, 5),
        v=(4, 5),
    ),
    "rows with a spare one meet an operand that all rows share": lambda: text(
        """(float[N,4] x, float[N,4] z, float[1,5] p, float[1,5] q) => (float[N,5] y) {
        a = MatMul(x, w)  b = MatMul(z, v)  c = Mul(a, p)  d = Mul(b, q)  y = Sub(c, d) }""",
        w=(4, 5),
        v=(4, 5),
    ),
    "double precision": lambda: text(
        """(double[N,4] x, double[N,4] z) => (double[N,5] y) {
        a = MatMul(x, w)  b = MatMul(z, v)  y = Sub(a, b) }""",
        w=np.linspace(-1, 1, 20).reshape(4, 5),
        v=np.linspace(-2, 1, 20).reshape(4, 5),
    ),
    "bounds of Clip of shape [1]": lambda: text(
        """(float[N,3,2] x) => (float[N,3,8] y) {
        a = MatMul(x, w)  b = MatMul(x, v)  c = Clip(a, low)  d = Clip(b, low)  y = Add(c, d) }""",
        w=(2, 8),
        v=(2, 8),
        low=np.array([-1], F32),
    ),
    "PRelu of one value with a slope of each lane": lambda: text(
        """(float[N,3,2] x, float[N,1,2] p, float[N,1,2] q) => (float[N,4,2] y) {
        a = PRelu(x, p)  b = PRelu(x, q)  c = Conv<kernel_shape=[1]>(a, w)
        d = Conv<kernel_shape=[1]>(b, v)  y = Sub(c, d) }""",
        w=(4, 3, 1),
        v=(4, 3, 1),
    ),
    "large weights of Constant nodes": large_constants,
    "half precision and a weight that all lanes share": half_shared_weight,
    "equal epsilons of different shapes": lambda: spelled_norm(
        np.array(0.01, F32), np.array([0.01], F32)
    ),
    "different epsilons": lambda: spelled_norm(np.array(0.01, F32), np.array(0.1, F32)),
    "an empty batch of two axes": lambda: text(
        """(float[N,8] x) => (float[N,8] y) {
        a, b = Split<axis=1>(x)  c = MatMul(a, w)  d = MatMul(b, v)  e = Relu(c)  f = Relu(d)
        y = Concat<axis=1>(e, f) }""",
        w=(4, 4),
        v=(4, 4),
    ),
    "an empty batch of lanes that are outputs": lambda: text(
        """(float[N,3,8] x, float[N,3,8] z, float[N,3,8] q) =>
        (float[N,3,8] a, float[N,3,8] b, float[N,3,8] c) {
        a = MatMul(x, w)  b = MatMul(z, v)  c = MatMul(q, u) }""",
        opset=21,
        w=(8, 8),
        v=(8, 8),
        u=(8, 8),
    ),
    "an empty batch and an open length": lambda: text(
        """(float[N,1,S,8] x, float[N,S,8] p, float[N,S,8] q) => (float[N,3,S,8] y) {
        a = Unsqueeze(p, one)  b = Unsqueeze(q, one)  c = MatMul(a, w)  d = MatMul(b, v)
        y = Concat<axis=1>(x, c, d) }""",
        one=np.array([1]),
        w=(8, 8),
        v=(8, 8),
    ),
    "a batch that is always empty": lambda: text(
        """(float[0,4,8] p, float[0,4,8] q) => (float[0,4,2] y) {
        c = MatMul(p, w)  d = MatMul(q, v)  y = Add(c, d) }""",
        w=(8, 2),
        v=(8, 2),
    ),
    "parts of what is always empty": lambda: text(
        """(float[0,4] x, float[4,0] p, float[0,0] q) => (float[0,0] y) {
        a = MatMul(x, w)  b = MatMul(a, p)  c = Softmax<axis=1>(b)  d = MatMul(x, v)
        e = Transpose<perm=[1,0]>(d)  f = MatMul(x, e)  g = Softmax<axis=1>(f)  h = Pow(c, q)
        i = Pow(g, q)  y = Concat<axis=1>(q, q, h, i) }""",
        w=(4, 4),
        v=(4, 4),
    ),
    "a window that begins in the padding": lambda: text(
        """(float[N,2,2] x, float[N,2,4] z) => (float[N,4] y) {
        p = AveragePool<ceil_mode=1, kernel_shape=[1], strides=[2]>(x)  c = Concat<axis=-1>(x, p)
        a = Gather<axis=2>(z, one)  b = Gather<axis=2>(c, one)  d = MatMul(a, w)
        e = MatMul(b, v)  y = Add(d, e) }""",
        one=np.array(1),
        w=(2, 4),
        v=(2, 4),
    ),
}
"""Small models on which the optimizer failed once, by what was wrong."""
