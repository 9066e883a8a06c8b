"""A model that grows node by node, and the choices that follow from its seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

Array = NDArray[Any]
Dim = int | str
Dims = Sequence[Dim]
Shape = tuple[Dim, ...]
T = TypeVar("T")

BATCH_NAMES = ("N", "batch", "2*n", "batch_size")
LENGTH_NAMES = ("S", "sequence", "time-1", "7")
INDEX = "index"
"""Inputs whose name begins so are fed with ones: they choose an axis or count entries."""

FLOATS = ("float32", "float64", "float16")


class Unfit(Exception):  # noqa: N818 - a signal between the drawers, never shown
    """What was drawn cannot be applied to this value."""


def need(condition: bool) -> None:
    """Give up what was drawn unless a condition holds."""
    if not condition:
        raise Unfit


def known(dims: Dims) -> bool:
    """Whether no size is open."""
    return all(isinstance(d, int) for d in dims)


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

    def sizes(self, low: int = 0, high: int | None = None) -> tuple[int, ...]:
        """Sizes of a range of axes, all of which must be known."""
        return tuple(self.size(a) for a in range(self.rank)[low:high])

    def count(self, low: int = 0, high: int | None = None) -> int:
        """Number of entries in a range of axes whose sizes must be known."""
        return math.prod(self.sizes(low, high))

    def sized(self, axis: int, dim: Dim) -> Shape:
        """The shape with another size of one axis."""
        shape = list(self.shape)
        shape[axis] = dim
        return tuple(shape)

    def with_axes(self, axis: int, *dims: Dim) -> Shape:
        """The shape with other axes, or none, in the place of one."""
        return (*self.shape[:axis], *dims, *self.shape[axis + 1 :])


Inputs = Sequence[Value | str]
Kind = tuple[str, Shape]
"""Type and shape of an output."""


class Draft:
    """A model that grows.

    Attributes:
        rng: Source of all choices.
        opset, ir: Version of the default domain, and of the file.
        dtype: Type of the activations.
        batch, length: Sizes of the axes that inputs share; names if they are open.
        style: How values are named.
        loud: Probability of a near miss in a step.
        listed: Names of the weights that may be overridden.
        read: Names that something reads.
        depth: How deep in chains inside steps the model is.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.opset, self.ir = self.whole(7, 23), self.whole(3, 10)
        self.dtype = self.pick(["float32"] * 17 + ["float64", "float16", "int32", "int64"])
        self.batch: Dim = self.pick(BATCH_NAMES) if self.flip(0.55) else self.whole(1, 4)
        self.length: Dim = self.pick(LENGTH_NAMES) if self.flip(0.3) else self.whole(1, 4)
        self.style = self.pick(["plain"] * 5 + ["ours", "ours", "path", "odd"])
        self.loud = self.pick([0.0, 0.05, 0.15])
        if self.flip():
            self.opset = self.pick([13, 17, 18, 20, 21, 23])
        if self.flip(0.01):
            self.batch = 0
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.listed: list[str] = []
        self.values: dict[str, Value] = {}
        self.read: set[str] = set()
        self.domains: set[str] = set()
        self.count = self.depth = 0

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

    def stray(self, n: int, p: float | None = None) -> int:
        """A lane that differs from the others, with probability p (a near miss); -1 if none does."""
        return self.whole(0, n - 1) if self.flip(self.loud if p is None else p) else -1

    def some(self, p: float, **attrs: Any) -> dict[str, Any]:
        """Attributes that are written out with probability p."""
        return attrs if self.flip(p) else {}

    def axis(self, axis: int, rank: int) -> int:
        """How an axis is written: from the end, too, where the opset knows that."""
        return axis - rank if self.opset >= 11 and self.flip(0.4) else axis

    def numbers(self, shape: Sequence[int], scale: float = 1.0) -> Array:
        """Random numbers of the activations' type: normal floats, small whole numbers."""
        if self.dtype in FLOATS:
            return np.asarray(self.rng.normal(0, scale, tuple(shape))).astype(self.dtype)
        return np.asarray(self.rng.integers(-3, 4, tuple(shape))).astype(self.dtype)

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
        return f"{hint} é:{n}" if self.style == "odd" else f"{hint.lower()}{n}"

    def node(self, op: str, inputs: Inputs, kinds: Sequence[Kind], /, **attrs: Any) -> list[Value]:
        """Add a node; inputs left out at the end are not written."""
        names = [i if isinstance(i, str) else i.name for i in inputs]
        while names and not names[-1]:
            names.pop()
        outs = [Value(self.fresh(op), *kind) for kind in kinds]
        label = "" if self.flip(0.3) else self.fresh("node")
        made = helper.make_node(op, names, [o.name for o in outs], name=label, **attrs)
        if made.domain:
            self.domains.add(made.domain)
        self.nodes.append(made)
        self.read.update(names)
        self.values.update({o.name: o for o in outs})
        return outs

    def op(self, op: str, inputs: Inputs, dtype: str, shape: Dims, /, **attrs: Any) -> Value:
        """Add a node with one output."""
        return self.node(op, inputs, [(dtype, tuple(shape))], **attrs)[0]

    def same(self, op: str, x: Value, *more: Value | str, **attrs: Any) -> Value:
        """Add a node whose output has the type of its first input."""
        return self.op(op, [x, *more], x.dtype, x.shape, **attrs)

    def weight(self, array: Array) -> str:
        """An initializer."""
        name = self.fresh("w")
        self.weights.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def constant(self, array: Array) -> str:
        """A Constant node; an initializer where the opset has no such node for whole numbers."""
        if self.opset < 9 and array.dtype.kind != "f":
            return self.weight(array)
        tensor = numpy_helper.from_array(array)
        return self.op("Constant", [], str(array.dtype), array.shape, value=tensor).name

    def const(self, array: Array) -> str:
        """A constant, most often an initializer."""
        return self.constant(array) if self.flip(0.2) else self.weight(array)

    def ints(self, *numbers: int) -> str:
        """A vector of int64."""
        return self.const(np.array(numbers, np.int64))

    def scalar(self, number: float) -> str:
        """A constant scalar, in one of its shapes."""
        return self.const(np.full(self.pick([(), (), (1,)]), number, self.dtype))

    def fed(self, shape: Shape, dtype: str = "", hint: str = "x") -> Value:
        """A new input."""
        name = self.fresh(hint) if hint != INDEX else f"{INDEX}{self.count}"
        self.count += 1
        value = self.values[name] = Value(name, dtype or self.dtype, shape)
        self.inputs.append(value)
        return value

    def attempt(self, make: Callable[[], T], keep: bool = True) -> T | None:
        """What a function adds to the model, or None if it gives up.

        Then, or if nothing is to be kept, the model is what it was; new names stay used up.
        """
        parts = ("nodes", "weights", "inputs", "outputs", "listed", "read", "values")
        held = {part: copy(getattr(self, part)) for part in parts}
        made: T | None = None
        with suppress(Unfit):
            made = make()
        if made is None or not keep:
            vars(self).update(held)
        return made
