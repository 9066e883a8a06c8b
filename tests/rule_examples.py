"""One example or more for every batching rule: three lanes, with parameters of their own, in ONNX's text.

A body is written once for all lanes; `@` stands for the lane.  It reads `a@` (and `b@`), which a way in
makes by one linear map a lane, so that the lanes are worth a group and lie in the layout of that way:

    rows          split off a matrix, stacked in front        [3, N, 4]
    rows3         split off a stack of matrices, rows flat    [3, N*S, 4]
    wide, wide3   products of one value, side by side         [N, 3*4], [N, S, 3*4]
    conv_t        channels first, a spare row at the end      [1, 3*4, 1, N + 1]
    nonempty      the same where no batch is empty            [1, 3*4, 1, N]
    conv_t3       channels first, rows of two axes
    grouped_conv  rows first                                  [N, 3*4, 1, 1]
    channels      a grouped Conv on images                    [N, 3*4, 5, 3]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from onnx import ModelProto, shape_inference

from tests.nets import Array, ints, name_nodes, net, numbers

LANES = 3

Maker = Callable[[int], ArrayLike]
"""A constant of a lane."""


@dataclass(frozen=True, slots=True)
class Way:
    """How lanes come about.

    Attributes:
        inputs: The graph's inputs.
        cut: What makes the parts `p@`; empty where all lanes read `x`.
        lane: What makes a value from `p@` or `x` with a weight.
        weight: Shape of that weight.
        form: The form in which the products are to be run; empty for the one that the planner takes.
        nonempty: Whether no batch is promised to be empty.
    """

    inputs: str
    cut: str
    lane: str
    weight: tuple[int, ...]
    form: str = ""
    nonempty: bool = False


def _rows(form: str = "", nonempty: bool = False) -> Way:
    return Way("float[N,12] x", "1", "MatMul(p@, {w})", (4, 4), form, nonempty)


def _rows3(form: str = "") -> Way:
    return Way("float[N,S,12] x", "2", "MatMul(p@, {w})", (4, 4), form)


WAYS: Mapping[str, Way] = MappingProxyType(
    {
        "rows": _rows(),
        "rows3": _rows3(),
        "wide": Way("float[N,5] x", "", "MatMul(x, {w})", (5, 4)),
        "wide3": Way("float[N,S,5] x", "", "MatMul(x, {w})", (5, 4)),
        "conv_t": _rows("conv_t"),
        "nonempty": _rows("conv_t", nonempty=True),
        "conv_t3": _rows3("conv_t"),
        "grouped_conv": _rows("grouped_conv"),
        "channels": Way("float[N,6,5,3] x", "1", "Conv(p@, {w})", (4, 2, 1, 1)),
    }
)

FLAT = ("rows", "wide", "conv_t", "nonempty", "grouped_conv")
"""Ways to lanes of shape [N, 4]."""

DEEP = ("rows3", "wide3", "conv_t3")
"""Ways to lanes of shape [N, S, 4]."""

ROWS = FLAT + DEEP
"""Ways to lanes of shape [..., 4]."""

EVERY = (*ROWS, "channels")
"""Ways to lanes of any shape."""

IMAGES = ("channels",)

IR = MappingProxyType({7: 3, 9: 4, 11: 6, 12: 7, 13: 7, 18: 8, 20: 9, 21: 10, 23: 11, 24: 11})
"""Opsets at which examples run, and an IR version of their time."""


@dataclass(frozen=True, slots=True)
class Example:
    """One body for three lanes.

    Attributes:
        row: The row of the tables: the kind of a unit, with its domain if that is not the default one.
        body: The nodes of a lane, the last of them makes `y@`; the one in question makes `r@`, if
            there is one, else `y@`.
        weights: Constants: one a lane if `@` is in the name, else one for all.
        ways: Where the lanes come from.
        opsets: Versions of the default domain; all but the last are tried by the first way alone.
        out: Element type of the results.
        after: How many nodes of the op type in question are left where it was made; one, or none
            where the op only renames axes.
        op_type: The op type in question, if it is not the row's.
        inputs: Further graph inputs.
    """

    row: str
    body: str
    weights: Mapping[str, Maker] = field(default_factory=dict)
    ways: tuple[str, ...] = EVERY
    opsets: tuple[int, ...] = (21,)
    out: str = "float"
    after: int = 1
    op_type: str = ""
    inputs: str = ""

    @property
    def kind(self) -> str:
        """The op type in question."""
        return self.op_type or self.row.rpartition(".")[2]

    @property
    def result(self) -> str:
        """The value that the node in question makes, `@` for the lane."""
        return "r@" if "r@ =" in self.body or "r@," in self.body else "y@"

    def build(self, way: str, opset: int) -> ModelProto:
        """The model of this example."""
        how = WAYS[way]
        weights: dict[str, ArrayLike] = {"sizes": ints(*[_part(how)] * LANES)} if how.cut else {}
        lines: list[str] = []
        if how.cut:
            parts = ", ".join(f"p{k}" for k in range(LANES))
            sized = "x, sizes" if opset >= 13 else "x"
            lines.append(f"{parts} = Split<axis={how.cut}>({sized})")
            if opset < 13:
                del weights["sizes"]
        for value, weight in (("a", "w"), ("b", "v")):
            if f"{value}@" not in self.body:
                continue
            for k in range(LANES):
                made = how.lane.replace("@", str(k)).format(w=f"{weight}{k}")
                lines.append(f"{value}{k} = {made}")
                weights[f"{weight}{k}"] = numbers(*how.weight, seed=10 * k + ord(weight))
        for name, make in self.weights.items():
            if "@" in name:
                weights |= {name.replace("@", str(k)): make(k) for k in range(LANES)}
            else:
                weights[name] = make(0)
        lines += [self.body.replace("@", str(k)) for k in range(LANES)]
        inputs = ", ".join(filter(None, (how.inputs, self.inputs)))
        outputs = ", ".join(f"{self.out}[] y{k}" for k in range(LANES))
        text = f"({inputs}) => ({outputs}) {{ {' '.join(lines)} }}"
        domain = self.row.rpartition(".")[0]
        domains = {domain: 1} if domain else None
        model = name_nodes(net(text, weights, opset=opset, ir=IR[opset], domains=domains))
        return _declared(model)


def _declared(model: ModelProto) -> ModelProto:
    """Give the outputs their ranks: the checker asks for them."""
    inferred = shape_inference.infer_shapes(model)
    for value, known in zip(model.graph.output, inferred.graph.output, strict=True):
        rank = len(known.type.tensor_type.shape.dim)
        if not known.type.tensor_type.HasField("shape"):  # an op of another domain keeps its shape
            rank = next(
                len(v.type.tensor_type.shape.dim)
                for v in inferred.graph.value_info
                if v.name == value.name.replace("y", "a")
            )
        value.type.tensor_type.shape.SetInParent()
        for _ in range(rank):
            value.type.tensor_type.shape.dim.add()
    return model


def _part(way: Way) -> int:
    return 2 if way.cut == "1" and "6" in way.inputs else 4


def floats(*shape: int, shift: float = 0.0) -> Maker:
    """Numbers that differ by lane."""
    return lambda lane: numbers(*shape, seed=lane + 100) + np.float32(shift)


def positive(*shape: int) -> Maker:
    """Numbers from 0.5 on that differ by lane."""
    return lambda lane: np.abs(numbers(*shape, seed=lane + 200)) + np.float32(0.5)


def number(value: float) -> Maker:
    """One number for all lanes."""
    return lambda lane: np.array(value, np.float32)


def whole(*values: int) -> Maker:
    """The same int64 vector for all lanes: axes, sizes, bounds."""
    return lambda lane: ints(*values)


def entry(value: int) -> Maker:
    """The same int64 scalar for all lanes."""
    return lambda lane: np.array(value, np.int64)


def array(make: Callable[[int], Array]) -> Maker:
    """Any array by lane."""
    return make


# -- ops that work number by number ---------------------------------------------------------------

SMALL = "t@ = Tanh(a@) s@ = Mul(t@, half) ", {"half": number(0.5)}
"""Lanes between -0.5 and 0.5."""

LARGE = "e@ = Exp(a@) s@ = Add(e@, one) ", {"one": number(1.0)}
"""Lanes from 1 on."""

INTEGERS = "h@ = Mul(a@, ten) s@ = Cast<to=6>(h@) ", {"ten": number(10.0)}
"""Lanes of int32."""

PLAIN = (
    "Abs:7 Atan:7 Ceil:7 Celu<alpha=0.7>:12 Cos:7 Elu<alpha=1.3>:7 Erf:9 Exp:7 Floor:7 "
    "Gelu<approximate='tanh'>:20 HardSigmoid<alpha=0.3>:7 HardSwish:18 LeakyRelu<alpha=0.2>:7 Mish:18 Neg:7 "
    "Relu:7 Round:11 Selu:7 Shrink<lambd=0.3>:9 Sigmoid:7 Sign:9 Sin:7 Softplus:7 Softsign:7 Swish:24 "
    "Tanh:7 ThresholdedRelu<alpha=0.4>:11"
).split()
AFTER_SMALL = "Acos:7 Asin:7 Asinh:9 Atanh:9 Cosh:9 Sinh:9 Tan:7".split()
AFTER_LARGE = "Acosh:9 Log:7 Reciprocal:7 Sqrt:7".split()


def _unary(
    listed: Iterable[str], lift: tuple[str, Mapping[str, Maker]] | None, out: str = "float"
) -> list[Example]:
    found = []
    for item in listed:
        spelled, _, since = item.partition(":")
        kind = spelled.partition("<")[0]
        read = "s@" if lift else "a@"
        first, last = int(since), max(int(since), 21)
        text, weights = lift or ("", {})
        body = f"{text}y@ = {spelled.replace(chr(39), chr(34))}({read})"
        opsets = (first, last) if first < last else (last,)
        found.append(Example(kind, body, weights, EVERY, opsets, out))
    return found


NULL = {"zero": number(0.0)}
MASKS = "c@ = Greater(a@, zero) d@ = Greater(b@, zero) "

UNARY = [
    *_unary(PLAIN, None),
    *_unary(AFTER_SMALL, SMALL),
    *_unary(AFTER_LARGE, LARGE),
    *_unary(["Cast<to=11>:7"], None, "double"),
    *_unary(["Not:7"], ("s@ = Greater(a@, zero) ", NULL), "bool"),
    *_unary(["IsNaN:9"], ("s@ = Log(a@) ", {}), "bool"),
    *_unary(["IsInf:11"], ("u@ = Floor(a@) s@ = Reciprocal(u@) ", {}), "bool"),
    *_unary(["BitwiseNot:18"], INTEGERS, "int32"),
    Example("com.microsoft.Gelu", "y@ = com.microsoft.Gelu(a@)", ways=ROWS),
    Example("com.microsoft.QuickGelu", "y@ = com.microsoft.QuickGelu<alpha=1.1>(a@)", ways=ROWS),
]

PAIRS = "Add:7 Div:7 Max:13 Mean:13 Min:13 Mul:7 PRelu:7 Sub:7 Sum:13".split()
ORDERED = "Greater:9 GreaterOrEqual:12 Less:9 LessOrEqual:12".split()
LOGICAL = "And:7 Or:7 Xor:7".split()
BITWISE = "BitwiseAnd:18 BitwiseOr:18 BitwiseXor:18".split()


def _both(kind: str) -> str:
    return f"y@ = {kind}(a@, b@)"


def _pairs() -> list[Example]:
    """Two lanes; a lane and a constant on either side, of full and lower rank; a lane and one value."""
    found: list[Example] = []
    for item in PAIRS:
        kind, _, since = item.partition(":")
        opsets = (int(since), 21)
        found.append(Example(kind, _both(kind), {}, EVERY, opsets))
        row = {"c@": positive(4)}
        found.append(Example(kind, f"y@ = {kind}(a@, c@)", row, ROWS, opsets))
        found.append(Example(kind, f"y@ = {kind}(a@, c@)", {"c@": positive()}, EVERY, opsets))
        if kind != "PRelu":
            found.append(Example(kind, f"y@ = {kind}(c@, a@)", row, ROWS, opsets))
            found.append(Example(kind, f"y@ = {kind}(z, a@)", {}, FLAT, inputs="float[N,4] z"))
        found.append(Example(kind, f"y@ = {kind}(a@, z)", {}, EVERY, inputs="float[1] z"))
    return found


BINARY = [
    *_pairs(),
    Example("Add", "y@ = Add(a@, c@)", {"c@": floats(4, 1, 1)}, IMAGES, (7, 21)),
    Example("Add", "y@ = Add(a@, c@)", {"c@": floats(1, 4)}, ROWS, (7, 21)),
    Example("Add", "y@ = Add(a@, z)", {}, FLAT, inputs="float[4] z"),
    Example("Sub", "m@ = ReduceMax<axes=[1]>(a@) y@ = Sub(a@, m@)", {}, EVERY, (7, 13)),
    Example("Sub", "m@ = ReduceMax<axes=[1], keepdims=0>(a@) y@ = Sub(m@, a@)", {}, IMAGES, (13,)),
    Example("Mul", "y@ = Mul(a@, a@)", {}, EVERY, (7, 21)),
    *(
        Example(kind, _both(kind), {}, EVERY, (int(since), 21), "bool")
        for kind, _, since in (item.partition(":") for item in ORDERED)
    ),
    Example(
        "Equal", "f@ = Floor(a@) g@ = Floor(b@) y@ = Equal(f@, g@)", {}, EVERY, (11, 21), "bool"
    ),
    *(
        Example(kind, f"{MASKS}y@ = {kind}(c@, d@)", NULL, EVERY, (int(since), 21), "bool")
        for kind, _, since in (item.partition(":") for item in LOGICAL)
    ),
    *(
        Example(
            kind,
            f"{INTEGERS[0]}k@ = Mul(b@, ten) l@ = Cast<to=6>(k@) y@ = {kind}(s@, l@)",
            INTEGERS[1],
            EVERY,
            (int(since), 21),
            "int32",
        )
        for kind, _, since in (item.partition(":") for item in BITWISE)
    ),
    Example(
        "BitShift",
        'h@ = Abs(a@) k@ = Mul(h@, ten) s@ = Cast<to=12>(k@) y@ = BitShift<direction="LEFT">(s@, c@)',
        {"ten": number(10.0), "c@": array(lambda k: np.array([k, 1, 2, 3], np.uint32))},
        ROWS,
        (11, 21),
        "uint32",
    ),
    Example("Mod", "y@ = Mod<fmod=1>(a@, c@)", {"c@": positive(4)}, ROWS, (11, 21)),
    Example(
        "Mod",
        INTEGERS[0] + "y@ = Mod(s@, c@)",
        {**INTEGERS[1], "c@": array(lambda k: np.array(3 + k, np.int32))},
        EVERY,
        (11, 21),
        "int32",
    ),
    Example("Pow", LARGE[0] + "y@ = Pow(s@, c@)", {**LARGE[1], "c@": floats(4)}, ROWS, (7, 21)),
    Example("Pow", LARGE[0] + "y@ = Pow(s@, b@)", LARGE[1], EVERY, (7, 21)),
    Example("Sum", "y@ = Sum(a@, b@, c@)", {"c@": floats(4)}, ROWS, (9, 21)),
    Example("Mean", "y@ = Mean(a@, b@, c@)", {"c@": floats(4)}, ROWS, (9, 21)),
    Example("Max", "y@ = Max(a@, b@, c@)", {"c@": floats(4)}, ROWS, (13, 21)),
    Example("Min", "y@ = Min(a@, c@, b@)", {"c@": floats(4)}, ROWS, (13, 21)),
    Example("Where", "c@ = Greater(b@, zero) y@ = Where(c@, a@, b@)", NULL, EVERY, (9, 21)),
    Example(
        "Where",
        "y@ = Where(m@, a@, c@)",
        {"m@": array(lambda k: np.arange(4) % 3 == k), "c@": floats()},
        ROWS,
        (9, 21),
    ),
    Example("Clip", "y@ = Clip<min=-0.3, max=0.4>(a@)", {}, EVERY, (7,)),
    Example(
        "Clip",
        "y@ = Clip(a@, low, high)",
        {"low": number(-0.3), "high": number(0.4)},
        EVERY,
        (11, 21),
    ),
    Example("Clip", "y@ = Clip(a@, , high)", {"high": number(0.4)}, EVERY, (12, 21)),
]

# -- ops that work along axes -----------------------------------------------------------------------

SOFTMAX = [
    Example(kind, f"y@ = {kind}<axis={axis}>(a@)", {}, EVERY, (7, 11, 13, 21))
    for kind in ("Softmax", "LogSoftmax", "Hardmax")
    for axis in (-1, 1)
]
SOFTMAX += [
    Example("Softmax", "y@ = Softmax(a@)", {}, EVERY, (7, 13, 21)),
    Example("Softmax", "y@ = Softmax<axis=0>(a@)", {}, EVERY, (13, 21)),
    Example("LpNormalization", "y@ = LpNormalization<axis=-1, p=1>(a@)", {}, EVERY, (7, 21)),
    Example("LpNormalization", "y@ = LpNormalization<axis=1>(a@)", {}, EVERY, (7, 21)),
]

REDUCED = "Sum Mean Max Min Prod L1 L2 SumSquare LogSum LogSumExp".split()


def _reductions() -> list[Example]:
    found: list[Example] = []
    for name in REDUCED:
        kind, lift = f"Reduce{name}", LARGE if name == "LogSum" else ("", {})
        read = "s@" if lift[0] else "a@"
        old = (7, 11) if name == "Sum" else (7, 13)
        new = (13, 21) if name == "Sum" else (18, 21)
        for axes in ("-1", "1"):
            written = f"{lift[0]}y@ = {kind}<axes=[{axes}], keepdims=0>({read})"
            found.append(Example(kind, written, lift[1], EVERY, old))
            given = {**lift[1], "axes": whole(int(axes))}
            body = f"{lift[0]}y@ = {kind}({read}, axes)"
            found.append(Example(kind, body, given, EVERY, new))
    found += [
        Example("ReduceSum", "y@ = ReduceSum(a@)", {}, EVERY, (7, 21)),
        Example("ReduceMean", "y@ = ReduceMean<keepdims=0>(a@)", {}, EVERY, (7, 21)),
        Example(
            "ReduceMean",
            "y@ = ReduceMean<keepdims=0>(a@, axes)",
            {"axes": whole(-1, 2)},
            IMAGES,
            (18, 21),
        ),
    ]
    return found


ALONG = [
    *(
        Example(kind, f"y@ = {kind}<axis={axis}, keepdims={keep}>(a@)", {}, EVERY, (7, 21), "int64")
        for kind in ("ArgMax", "ArgMin")
        for axis, keep in ((-1, 0), (1, 1))
    ),
    Example(
        "Split", "q@, r@ = Split<axis=-1, split=[1, 3]>(a@) y@ = Mul(q@, r@)", {}, ROWS, (7, 11)
    ),
    Example(
        "Split",
        "q@, r@ = Split<axis=1>(a@, two) y@ = Sub(q@, r@)",
        {"two": whole(2, 2)},
        (*FLAT, *IMAGES),
        (13, 21),
    ),
    Example(
        "Slice", "r@ = Slice<starts=[1], ends=[3], axes=[-1]>(a@) y@ = Neg(r@)", {}, ROWS, (7, 9)
    ),
    Example(
        "Slice",
        "r@ = Slice(a@, start, end, axis) y@ = Neg(r@)",
        {"start": whole(-3), "end": whole(-1), "axis": whole(-1)},
        EVERY,
        (11, 13, 21),
    ),
    Example(
        "Slice",
        "r@ = Slice(a@, start, end, axis, step) y@ = Neg(r@)",
        {"start": whole(9), "end": whole(-9), "axis": whole(1), "step": whole(-1)},
        (*FLAT, *IMAGES),
        (11, 21),
    ),
    Example(
        "Slice",
        "r@ = Slice(a@, start, end) y@ = Neg(r@)",
        {"start": whole(0, 1), "end": whole(1 << 40, 3)},
        (*FLAT, *IMAGES),
        (11, 21),
    ),
    Example("Concat", "r@ = Concat<axis=1>(a@, b@) y@ = Neg(r@)", {}, EVERY, (7, 13, 21)),
    Example("Concat", "r@ = Concat<axis=-1>(b@, a@, b@) y@ = Neg(r@)", {}, EVERY, (11, 21)),
    Example("CumSum", "y@ = CumSum(a@, axis)", {"axis": entry(-1)}, EVERY, (11, 21)),
    Example("CumSum", "y@ = CumSum<reverse=1>(a@, axis)", {"axis": entry(1)}, EVERY, (11, 21)),
    Example("TopK", "y@, i@ = TopK<axis=-1, k=2>(a@)", {}, EVERY, (9,)),
    Example("TopK", "y@, i@ = TopK<axis=1>(a@, k)", {"k": whole(2)}, (*FLAT, *IMAGES), (11, 21)),
    Example("TopK", "v@, y@ = TopK(a@, k)", {"k": whole(3)}, EVERY, (11, 21), "int64"),
]

# -- ops that only move numbers ---------------------------------------------------------------------

MOVED = [
    Example("Unsqueeze", "r@ = Unsqueeze<axes=[1]>(a@) y@ = Neg(r@)", {}, EVERY, (7, 11), after=0),
    Example(
        "Unsqueeze",
        "r@ = Unsqueeze(a@, axis) y@ = Neg(r@)",
        {"axis": whole(-1)},
        EVERY,
        (13, 21),
        after=0,
    ),
    Example(
        "Unsqueeze",
        "r@ = Unsqueeze(a@, axis) y@ = Neg(r@)",
        {"axis": whole(0, 2)},
        EVERY,
        (13, 21),
        after=0,
    ),
    Example(
        "Squeeze",
        "m@ = ReduceMax<axes=[1]>(a@) r@ = Squeeze<axes=[1]>(m@) y@ = Neg(r@)",
        {},
        EVERY,
        (7, 11),
        after=0,
    ),
    Example(
        "Squeeze",
        "m@ = ReduceMax<axes=[-1]>(a@) r@ = Squeeze(m@, axis) y@ = Neg(r@)",
        {"axis": whole(-1)},
        EVERY,
        (13,),
        after=0,
    ),
    Example(
        "Squeeze",
        "m@ = ReduceMax(a@) r@ = Squeeze(m@) y@ = Neg(r@)",
        {},
        EVERY,
        (13, 21),
        after=0,
    ),
    Example("Transpose", "r@ = Transpose<perm=[1,0]>(a@) y@ = Neg(r@)", {}, FLAT, (7, 21), after=0),
    Example("Transpose", "r@ = Transpose(a@) y@ = Neg(r@)", {}, EVERY, (7, 21), after=0),
    Example(
        "Transpose", "r@ = Transpose<perm=[0,2,1]>(a@) y@ = Neg(r@)", {}, DEEP, (7, 21), after=0
    ),
    Example(
        "Transpose", "r@ = Transpose<perm=[0,2,3,1]>(a@) y@ = Neg(r@)", {}, IMAGES, (7, 21), after=0
    ),
    Example(
        "Reshape",
        "r@ = Reshape(a@, to) y@ = Neg(r@)",
        {"to": whole(-1, 2, 2)},
        FLAT,
        (7, 21),
        after=0,
    ),
    Example(
        "Reshape",
        "r@ = Reshape(a@, to) y@ = Neg(r@)",
        {"to": whole(0, 0, 2, 2)},
        DEEP,
        (7, 21),
        after=0,
    ),
    Example(
        "Reshape", "r@ = Reshape(a@, to) y@ = Neg(r@)", {"to": whole(-1, 4)}, DEEP, (7, 21), after=0
    ),
    Example("Reshape", "r@ = Reshape(a@, to) y@ = Neg(r@)", {"to": whole(0, -1)}, DEEP, (13, 21)),
    Example("Flatten", "r@ = Flatten<axis=1>(a@) y@ = Neg(r@)", {}, IMAGES, (9, 21), after=0),
    Example("Flatten", "r@ = Flatten<axis=2>(a@) y@ = Neg(r@)", {}, DEEP, (9, 21), after=0),
    Example(
        "Expand",
        "m@ = ReduceMax<axes=[1]>(a@) y@ = Expand(m@, to)",
        {"to": whole(1, 6)},
        FLAT,
        (9, 13),
    ),
    Example("Expand", "y@ = Expand(a@, to)", {"to": whole(2, 1, 4)}, FLAT, (9, 21)),
    Example(
        "Gather",
        "r@ = Gather<axis=-1>(a@, at) y@ = Neg(r@)",
        {"at": whole(2, 0)},
        EVERY,
        (7, 13, 21),
    ),
    Example(
        "Gather",
        "r@ = Gather<axis=1>(a@, at) y@ = Neg(r@)",
        {"at": entry(2)},
        (*FLAT, *IMAGES),
        (7, 21),
    ),
    Example(
        "Gather",
        "r@ = Gather<axis=1>(a@, at) y@ = Neg(r@)",
        {"at": array(lambda k: np.array([[0, 3], [1, 1]]))},
        (*FLAT, *IMAGES),
        (11, 21),
    ),
    Example(
        "GatherND",
        "h@ = Transpose(a@) r@ = GatherND(h@, at) y@ = Neg(r@)",
        {"at": array(lambda k: np.array([[2], [0]]))},
        (*FLAT, "rows3"),
        (12, 21),
        op_type="Gather",
    ),
]

# -- norms ------------------------------------------------------------------------------------------


def _norm(kind: str, opsets: tuple[int, ...], shifted: bool) -> list[Example]:
    own = {"g@": positive(4)} | ({"h@": floats(4)} if shifted else {})
    same = {"g": positive(4)} | ({"h": floats(4)} if shifted else {})
    after = {"g@": positive(5, 3)} | ({"h@": floats(5, 3)} if shifted else {})
    found = []
    for weights, ways, axis in ((own, ROWS, -1), (same, ROWS, -1), (after, IMAGES, 2)):
        names = ", ".join(weights)
        body = f"y@ = {kind}<axis={axis}, epsilon=0.01>(a@, {names})"
        found.append(Example(kind, body, weights, ways, opsets))
    return found


PARAMETERS = {"g@": positive(4), "h@": floats(4), "m@": floats(4), "u@": positive(4)}

NORMS = [
    *_norm("LayerNormalization", (18, 21), shifted=True),
    *_norm("LayerNormalization", (18, 21), shifted=False),
    *_norm("RMSNormalization", (23,), shifted=False),
    Example(
        "BatchNormalization",
        "n@ = Neg(a@) y@ = BatchNormalization<epsilon=0.01>(n@, g@, h@, m@, u@)",
        PARAMETERS,
        (*FLAT, *IMAGES),
        (7, 13, 21),
        after=0,
    ),
]

# -- products, convolutions, lookups ----------------------------------------------------------------

PRODUCTS = [
    Example(
        "Linear",
        "y@ = Identity(a@)",
        {},
        ("rows", "rows3", "wide", "wide3"),
        (7, 13, 21),
        op_type="MatMul",
    ),
    Example(
        "Linear", "y@ = MatMul(a@, u@)", {"u@": floats(4, 3)}, ROWS, (7, 13, 21), op_type="MatMul"
    ),
    Example(
        "Linear",
        "y@ = Gemm<alpha=0.5, beta=2.0, transB=1>(a@, u@, c@)",
        {"u@": floats(3, 4), "c@": floats(3)},
        FLAT,
        (7, 11, 21),
        op_type="MatMul",
    ),
    Example(
        "Linear",
        "y@ = Gemm(a@, u, c@)",
        {"u": floats(4, 3), "c@": floats(1)},
        FLAT,
        (9, 21),
        op_type="MatMul",
    ),
    Example(
        "MatMul", "t@ = Transpose<perm=[0,2,1]>(b@) y@ = MatMul(a@, t@)", {}, DEEP, (7, 13, 21)
    ),
    Example("MatMul", "y@ = MatMul(a@, z)", {}, ROWS, (7, 21), inputs="float[4,3] z"),
    Example("MatMul", "y@ = MatMul(z, a@)", {}, FLAT, (13, 21), inputs="float[2,3,N] z"),
    Example("MatMul", "y@ = MatMul(a@, u@)", {"u@": floats(2, 4, 3)}, FLAT, (13, 21)),
    Example("MatMul", "y@ = MatMul(a@, u)", {"u": floats(2, 4, 3)}, FLAT, (13, 21)),
    Example("MatMul", "y@ = MatMul(u@, a@)", {"u@": floats(3, 5)}, IMAGES, (13, 21)),
]

CONVOLUTIONS = [
    Example(
        "Conv",
        "y@ = Conv<pads=[1,1,1,1]>(a@, u@, c@)",
        {"u@": floats(2, 4, 3, 3), "c@": floats(2)},
        IMAGES,
        (7, 11, 21),
    ),
    Example(
        "Conv",
        'y@ = Conv<group=2, strides=[2,1], dilations=[1,2], auto_pad="SAME_UPPER">(a@, u@)',
        {"u@": floats(6, 2, 2, 2)},
        IMAGES,
        (11, 21),
    ),
    Example(
        "Conv",
        "y@ = Conv(q, u@)",
        {"u@": floats(2, 3, 1)},
        ("rows",),
        (7, 21),
        inputs="float[N,3,7] q",
    ),
    Example(
        "AveragePool",
        "y@ = AveragePool<kernel_shape=[2,2], pads=[0,1,1,0], count_include_pad=1>(a@)",
        {},
        IMAGES,
        (7, 11, 21),
    ),
    Example(
        "MaxPool", "y@ = MaxPool<kernel_shape=[3,2], strides=[2,1]>(a@)", {}, IMAGES, (7, 12, 21)
    ),
    Example("LpPool", "y@ = LpPool<kernel_shape=[2,2], p=1>(a@)", {}, IMAGES, (7, 11, 21)),
    Example("GlobalAveragePool", "y@ = GlobalAveragePool(a@)", {}, IMAGES, (7, 21)),
    Example("GlobalMaxPool", "y@ = GlobalMaxPool(a@)", {}, IMAGES, (7, 21)),
    Example("GlobalLpPool", "y@ = GlobalLpPool<p=1>(a@)", {}, IMAGES, (7, 21)),
]

INDEX = "h@ = Abs(a@) l@ = Clip(h@, , top) n@ = Cast<to=7>(l@) "

LOOKUPS = [
    Example(
        "Embedding",
        INDEX + "r@ = Gather(t@, n@) y@ = Neg(r@)",
        {"top": number(4.0), "t@": floats(5, 3)},
        EVERY,
        (12, 13, 21),
        op_type="GatherND",
    ),
    Example(
        "Embedding",
        INDEX.replace("7", "6") + "r@ = Gather(t@, n@) y@ = Neg(r@)",
        {"top": number(4.0), "t@": floats(5, 3)},
        ("rows", "rows3"),
        (12, 21),
        op_type="GatherND",
    ),
    Example(
        "Embedding",
        INDEX + "r@ = Gather(t, n@) y@ = Neg(r@)",
        {"top": number(4.0), "t": floats(5, 3)},
        EVERY,
        (12, 21),
        op_type="Gather",
    ),
    Example(
        "Embedding",
        "r@ = Gather(t@, q) y@ = Neg(r@)",
        {"t@": floats(5, 3)},
        ("rows",),
        (12, 21),
        op_type="Gather",
        inputs="int64[N,S] q",
    ),
]

EXAMPLES: tuple[Example, ...] = (
    *UNARY,
    *BINARY,
    *SOFTMAX,
    *_reductions(),
    *ALONG,
    *MOVED,
    *NORMS,
    *PRODUCTS,
    *CONVOLUTIONS,
    *LOOKUPS,
)
