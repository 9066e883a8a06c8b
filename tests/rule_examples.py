"""One example or more for every batching rule: three lanes, with parameters of their own, in ONNX's text.

A body is written once for all lanes; `@` stands for the lane.  It reads `a@` (and `b@`), which a way in
makes by one linear map a lane, so that the lanes are worth a group and lie in the layout of that way:

    rows          split off a matrix, stacked in front            [3, N, 4]
    rows3, open3  split off a stack of matrices, two open axes    [3, N, S, 4]
    fixed3        the same where the number of rows is known      [3, N*5, 4]
    wide          products of one value, side by side             [N, 3*4]
    wide3         the same on a stack of matrices                 [N, S, 3*4]
    fixed_wide3   the same, and the number of rows is known       [N, 5, 3*4]
    conv_t        channels first, a spare row at the end          [1, 3*4, 1, N + 1]
    nonempty      the same where no batch is empty                [1, 3*4, 1, N]
    conv_t3       the same with rows on two axes                  [1, 3*4, 1, N*5 + 1]
    grouped_conv  rows first                                      [N, 3*4, 1, 1]
    channels      a grouped Conv on images                        [N, 3*4, 5, 3]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import ArrayLike
from onnx import ModelProto, shape_inference

from onnx_sched.analysis import Analysis
from onnx_sched.assemble import assemble
from onnx_sched.circuit import LINEAR
from onnx_sched.judge.ortlib import ort_errors
from onnx_sched.levelling import best_groups
from onnx_sched.plan import Group, Refusal
from onnx_sched.planner import made
from onnx_sched.variants import forms
from onnx_sched.writing import fill_all
from tests.nets import Array, analysed, feeds, ints, name_nodes, net, numbers

LANES = 3

Maker = Callable[[int], ArrayLike]
"""A constant, given the lane."""


@dataclass(frozen=True, slots=True)
class Way:
    """How lanes come about.

    Attributes:
        input: The graph's input.
        axis: The axis along which the input is split into parts `p@`; None where all lanes read it.
        part: Size of a part along that axis.
        lane: What makes a value, with `{w}` for the weight.
        weight: Shape of that weight.
        form: The form in which the products are to run; empty for the one that the planner takes.
        nonempty: Whether no batch is promised to be empty.
        zero: Whether an empty batch is to be tried.
        since: The first opset in which the lanes can be batched.
    """

    input: str
    axis: int | None
    part: int
    lane: str
    weight: tuple[int, ...]
    form: str = ""
    nonempty: bool = False
    zero: bool = True
    since: int = 7


def _split(input_: str, axis: int, form: str = "", nonempty: bool = False) -> Way:
    since = 14 if "S" in input_ and not nonempty else 7
    return Way(
        f"{input_} x", axis, 4, "MatMul(p@, {w})", (4, 4), form, nonempty, not nonempty, since
    )


def _shared(input_: str) -> Way:
    return Way(f"{input_} x", None, 0, "MatMul(x, {w})", (5, 4))


WAYS: Mapping[str, Way] = MappingProxyType(
    {
        "rows": _split("float[N,12]", 1),
        "rows3": _split("float[N,S,12]", 2),
        "open3": _split("float[N,S,12]", 2, nonempty=True),
        "fixed3": _split("float[N,5,12]", 2),
        "wide": _shared("float[N,5]"),
        "wide3": _shared("float[N,S,5]"),
        "fixed_wide3": _shared("float[N,5,5]"),
        "conv_t": _split("float[N,12]", 1, "conv_t"),
        "nonempty": _split("float[N,12]", 1, "conv_t", nonempty=True),
        "conv_t3": _split("float[N,5,12]", 2, "conv_t"),
        "grouped_conv": _split("float[N,12]", 1, "grouped_conv"),
        "channels": Way("float[N,6,5,3] x", 1, 2, "Conv(p@, {w})", (4, 2, 1, 1)),
    }
)

FLAT = ("rows", "wide", "conv_t", "nonempty", "grouped_conv")
"""Ways to lanes of shape [N, 4]."""

DEEP = ("fixed3", "fixed_wide3", "conv_t3", "open3")
"""Ways to lanes of shape [N, 5, 4] or [N, S, 4]."""

OPEN = ("rows3", "wide3")
"""Ways to lanes of shape [N, S, 4], of which each size may be 0."""

ROWS = FLAT + DEEP
"""Ways to lanes of shape [..., 4]."""

IMAGES = ("channels",)
"""The way to lanes of shape [N, 4, 5, 3]."""

SECOND = FLAT + IMAGES
"""Ways to lanes whose second axis has size 4."""

EVERY = ROWS + IMAGES
"""Ways to lanes of any shape."""

IR: Mapping[int, int] = MappingProxyType(
    {7: 3, 9: 4, 11: 6, 12: 7, 13: 7, 16: 8, 18: 8, 20: 9, 21: 10, 23: 11, 24: 11}
)
"""Opsets at which examples run, and an IR version of their time."""


@dataclass(frozen=True, slots=True)
class Example:
    """One body for three lanes.

    Attributes:
        row: The row of the tables: the kind of a unit, with its domain if that is not the default one.
        body: The nodes of a lane, the last of them makes `y@`.
        weights: Constants: one a lane if `@` is in the name, else one for all.
        ways: Where the lanes come from.
        opsets: Versions of the default domain; the first way is tried at all, the others at the last.
        out: Element type of the results.
        after: How many nodes of the op type in question run all lanes; none where axes are only renamed.
        op_type: That op type, if it is not the row's.
        value: What the node in question makes; `r@` if the body makes that, else `y@`, if not given.
        inputs: Further graph inputs.
        joined: Whether a Concat joins the results; if not, or before opset 11, each is an output.
        scalar: Whether the results have no axis along which they could be joined.
    """

    row: str
    body: str
    weights: Mapping[str, Maker] = field(default_factory=dict)
    ways: tuple[str, ...] = EVERY
    opsets: tuple[int, ...] = (21,)
    out: str = "float"
    after: int = 1
    op_type: str = ""
    value: str = ""
    inputs: str = ""
    joined: bool = False
    scalar: bool = False

    @property
    def kind(self) -> str:
        """The op type in question."""
        return self.op_type or self.row.rpartition(".")[2]

    @property
    def result(self) -> str:
        """The value that the node in question makes, `@` for the lane."""
        inner = "r@ =" in self.body or "r@," in self.body
        return self.value or ("r@" if inner else "y@")

    @property
    def values(self) -> list[str]:
        """What the nodes in question make, by lane; the nodes have these names."""
        return [self.result.replace("@", str(k)) for k in range(LANES)]

    @property
    def cases(self) -> list[tuple[str, int]]:
        """Ways and opsets to try."""
        listed = [(self.ways[0], opset) for opset in self.opsets[:-1]]
        listed += [(way, self.opsets[-1]) for way in self.ways]
        return [(way, opset) for way, opset in listed if opset >= WAYS[way].since]

    def build(self, way: str, opset: int) -> ModelProto:
        """The model of this example."""
        how = WAYS[way]
        weights: dict[str, ArrayLike] = {}
        lines: list[str] = []
        if how.axis is not None:
            sized = "x, sizes" if opset >= 13 else "x"
            lines.append(f"p0, p1, p2 = Split<axis={how.axis}>({sized})")
            if opset >= 13:
                weights["sizes"] = ints(*[how.part] * LANES)
        for value, weight in (("a", "w"), ("b", "v")):
            for k in range(LANES) if f"{value}@" in self.body else ():
                made = how.lane.replace("@", str(k)).format(w=f"{weight}{k}")
                lines.append(f"{value}{k} = {made}")
                weights[f"{weight}{k}"] = numbers(*how.weight, seed=10 * k + ord(weight))
        for name, make in self.weights.items():
            lanes = range(LANES) if "@" in name else (0,)
            weights |= {name.replace("@", str(k)): make(k) for k in lanes}
        lines += [self.body.replace("@", str(k)) for k in range(LANES)]
        inputs = ", ".join(filter(None, (how.input, self.inputs)))
        outputs = [f"y{k}" for k in range(LANES)]
        if self.joined and opset >= 11:
            lines.append(f"y = Concat<axis=-1>({', '.join(outputs)})")
            outputs = ["y"]
        declared = ", ".join(f"{self.out}[] {name}" for name in outputs)
        domain = self.row.rpartition(".")[0]
        model = net(
            f"({inputs}) => ({declared}) {{ {' '.join(lines)} }}",
            weights,
            opset=opset,
            ir=IR[opset],
            domains={domain: 1} if domain else None,
        )
        return with_ranks(name_nodes(model))


def with_ranks(model: ModelProto) -> ModelProto:
    """The model with the shapes of its outputs as far as inference knows them: the checker asks for it.

    Where it does not know the rank (of ops of other domains), it is that of `a0`.
    """
    inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    known = {v.name: v.type.tensor_type for v in (*inferred.value_info, *inferred.output)}
    for value in model.graph.output:
        if value.type.tensor_type.HasField("shape"):
            continue
        found = known[value.name] if known[value.name].HasField("shape") else known["a0"]
        shape = value.type.tensor_type.shape
        shape.SetInParent()
        for dim in found.shape.dim:
            made = shape.dim.add()
            if dim.HasField("dim_value") and found is known[value.name]:
                made.dim_value = dim.dim_value
    return model


@dataclass(frozen=True, slots=True)
class Outcome:
    """A model with all its groups carried out, the groups, and what was left out of them."""

    model: ModelProto
    groups: tuple[Group, ...]
    refusals: tuple[Refusal, ...]


def carried_out(
    model: ModelProto,
    form: str = "",
    *,
    kinds: Sequence[str] | Mapping[str, str] = (LINEAR,),
    nonempty: bool = False,
    norm: str = "",
) -> Outcome:
    """Batch all that is legal, groups of some kinds in a form of our choice if they have that one.

    The kinds may bring a form each.
    `norm` is the form of LayerNormalization, if that is to be another one.
    """
    analysis = analysed(model)
    analysis = replace(analysis, circuit=replace(analysis.circuit, nonempty=nonempty))
    _, groups = best_groups(analysis.circuit, lambda unit: False)
    chosen_by_kind = kinds if isinstance(kinds, Mapping) else dict.fromkeys(kinds, form)
    wanted = dict(chosen_by_kind) | ({"LayerNormalization": norm} if norm else {})
    chosen = tuple(
        replace(g, form=wanted[g.kind]) if wanted.get(g.kind) in forms(g, analysis.circuit) else g
        for g in groups
    )
    refusals: list[Refusal] = []
    rewritten, left = made(analysis, chosen, refusals)
    if rewritten is None:
        return Outcome(model, (), tuple(refusals))
    new = assemble(model, analysis.circuit, rewritten)
    fill_all(new, rewritten.fresh)
    return Outcome(new, left, tuple(refusals))


def all_made(model: ModelProto, analysis: Analysis, groups: Sequence[Group]) -> ModelProto:
    """A model with all of some groups carried out, none left out; it is valid."""
    rewritten, left = made(analysis, tuple(groups), [])
    assert rewritten is not None
    assert len(left) == len(groups)
    new = assemble(model, analysis.circuit, rewritten)
    fill_all(new, rewritten.fresh)
    onnx.checker.check_model(new, full_check=True)
    return new


class Runs:
    """A model that runs node by node, as it stands."""

    def __init__(self, model: ModelProto | Path) -> None:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        data = str(model) if isinstance(model, Path) else model.SerializeToString()
        self._session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """All outputs by name."""
        names = [o.name for o in self._session.get_outputs()]
        return dict(zip(names, self._session.run(None, dict(inputs)), strict=True))


def compare(
    before: ModelProto,
    after: ModelProto,
    *sizes: Mapping[str, int],
    tolerance: float = 2e-5,
) -> int:
    """Run both at some sizes and check that all outputs agree; returns how many sizes could be compared.

    Left out are sizes that the original refuses, and those at which the runtime gives the original
    outputs of shapes that it declares otherwise: negative axes of a reduction of nothing do that.
    """
    old, new = Runs(before), Runs(after)
    compared = 0
    for binding in sizes:
        inputs = feeds(before, **binding)
        try:
            want = old(inputs)
        except ort_errors():
            continue
        if not all(_declares(before, name, array) for name, array in want.items()):
            continue
        got = new(inputs)
        assert list(got) == list(want)
        for name, array in want.items():
            assert got[name].dtype == array.dtype, (name, binding)
            assert got[name].shape == array.shape, (name, binding)
            close = tolerance if array.dtype.kind == "f" else 0
            np.testing.assert_allclose(got[name], array, rtol=close, atol=close, err_msg=name)
        compared += 1
    return compared


def _declares(model: ModelProto, name: str, array: Array) -> bool:
    """Whether an output may have the shape of an array."""
    value = next(v for v in model.graph.output if v.name == name)
    dims = value.type.tensor_type.shape.dim
    return len(dims) == array.ndim and all(
        d.dim_value == size for d, size in zip(dims, array.shape, strict=True) if d.dim_value
    )


def turn(start: int, ways: Sequence[str] = EVERY, count: int = 2) -> tuple[str, ...]:
    """The first way and a few more, others for every start: ops that share a rule share the work."""
    others = islice(cycle(ways[1:]), start * count, None)
    return (ways[0], *islice(others, count))


def floats(*shape: int) -> Maker:
    """Numbers that differ by lane."""
    return lambda lane: numbers(*shape, seed=lane + 100)


def positive(*shape: int) -> Maker:
    """Numbers from 0.5 on that differ by lane."""
    return lambda lane: np.abs(numbers(*shape, seed=lane + 200)) + np.float32(0.5)


def number(value: float) -> Maker:
    """One number for all lanes."""
    return lambda lane: np.array(value, np.float32)


def whole(*values: int) -> Maker:
    """The same int64 vector for all lanes: axes, sizes, bounds."""
    return lambda lane: ints(*values)


def reals(*values: float) -> Maker:
    """The same float vector for all lanes: factors."""
    return lambda lane: np.array(values, np.float32)


def entry(value: int) -> Maker:
    """The same int64 scalar for all lanes."""
    return lambda lane: np.array(value, np.int64)


def array(make: Callable[[int], Array]) -> Maker:
    """Any array by lane."""
    return make


# -- ops that work number by number ---------------------------------------------------------------

Lift = tuple[str, Mapping[str, Maker]]
"""Nodes that bring `a@` into a range, as `s@`, and their constants."""

PLAIN: Lift = ("", {})
SMALL: Lift = ("t@ = Tanh(a@) s@ = Mul(t@, half) ", {"half": number(0.5)})
LARGE: Lift = ("e@ = Exp(a@) s@ = Add(e@, one) ", {"one": number(1.0)})
INTEGERS: Lift = ("h@ = Mul(a@, ten) s@ = Cast<to=6>(h@) ", {"ten": number(10.0)})
BOTH_INTEGERS = INTEGERS[0] + "k@ = Mul(b@, ten) l@ = Cast<to=6>(k@) "
ZERO = {"zero": number(0.0)}

UNARY = (
    "Abs:7 Atan:7 Ceil:7 Celu<alpha=0.7>:12 Cos:7 Elu<alpha=1.3>:7 Erf:9 Exp:7 Floor:7 Gelu:20 "
    "HardSigmoid<alpha=0.3>:7 HardSwish:18 LeakyRelu<alpha=0.2>:7 Mish:18 Neg:7 Relu:7 Round:11 "
    "Selu:7 Shrink<lambd=0.3>:9 Sigmoid:7 Sign:9 Sin:7 Softplus:7 Softsign:7 Swish:24 Tanh:7 "
    "ThresholdedRelu<alpha=0.4>:11"
).split()
"""Ops of one operand, with the opset that brought them."""

UNARY_SMALL = "Acos:7 Asin:7 Asinh:9 Atanh:9 Cosh:9 Sinh:9 Tan:7".split()
UNARY_LARGE = "Acosh:9 Log:7 Reciprocal:7 Sqrt:7".split()


def _unary(listed: Iterable[str], lift: Lift, out: str = "float") -> list[Example]:
    found = []
    for place, (spelled, first) in enumerate(_since(listed)):
        read = "s@" if lift[0] else "a@"
        body = f"{lift[0]}y@ = {spelled}({read})"
        opsets = tuple(dict.fromkeys((first, max(first, 21))))
        kind = spelled.partition("<")[0]
        found.append(Example(kind, body, lift[1], turn(place, EVERY, 1), opsets, out))
    return found


def _since(listed: Iterable[str]) -> list[tuple[str, int]]:
    """Split `Name:opset` into both."""
    return [(name, int(first)) for name, _, first in (item.partition(":") for item in listed)]


ONE_OPERAND = [
    *_unary(UNARY, PLAIN),
    *_unary(UNARY_SMALL, SMALL),
    *_unary(UNARY_LARGE, LARGE),
    *_unary(["Cast<to=11>:7"], PLAIN, "double"),
    *_unary(["Not:7"], ("s@ = Greater(a@, zero) ", ZERO), "bool"),
    *_unary(["IsNaN:9"], ("s@ = Log(a@) ", {}), "bool"),
    *_unary(["IsInf:11"], ("u@ = Floor(a@) s@ = Reciprocal(u@) ", {}), "bool"),
    *_unary(["BitwiseNot:18"], INTEGERS, "int32"),
    Example("Relu", "y@ = Relu(a@)", {}, EVERY, (7, 11, 13, 18, 21)),
    Example("Gelu", 'y@ = Gelu<approximate="tanh">(a@)', {}, turn(1)),
    Example("com.microsoft.Gelu", "y@ = com.microsoft.Gelu(a@)", {}, ROWS[:3]),
    Example(
        "com.microsoft.QuickGelu", "y@ = com.microsoft.QuickGelu<alpha=1.1>(a@)", {}, ROWS[3:6]
    ),
    Example("Clip", "y@ = Clip<min=-0.3, max=0.4>(a@)", {}, ("rows", "channels"), (7, 9)),
    Example(
        "Clip",
        "y@ = Clip(a@, low, high)",
        {"low": number(-0.3), "high": number(0.4)},
        turn(0),
        (11, 21),
    ),
    Example("Clip", "y@ = Clip(a@, , high)", {"high": number(0.4)}, turn(3), (12, 21)),
]

PAIRS = "Add:7 Div:7 Max:13 Mean:13 Min:13 Mul:7 PRelu:7 Sub:7 Sum:13".split()
COMPARED = "Greater:9 GreaterOrEqual:16 Less:9 LessOrEqual:16".split()
LOGICAL = "And:7 Or:7 Xor:7".split()
BITWISE = "BitwiseAnd:18 BitwiseOr:18 BitwiseXor:18".split()


def _pairs() -> list[Example]:
    """Two lanes; a lane and a constant on either side, of full and lower rank; a lane and one value.

    Something stands before a constant: an Add right behind a product would be its bias.
    """
    found: list[Example] = []
    for place, (kind, first) in enumerate(_since(PAIRS)):
        opsets, before = (first, 21), "t@ = Exp(a@) "
        row = {"c@": positive(4)}
        two = EVERY if kind == "Sub" else turn(place)
        found.append(Example(kind, f"y@ = {kind}(a@, b@)", {}, two, opsets))
        behind = turn(place, ROWS)
        found.append(Example(kind, f"{before}y@ = {kind}(t@, c@)", row, behind, (21,)))
        if kind not in ("Add", "Sub", "Div"):
            continue
        one = {"c@": positive()}
        found.append(Example(kind, f"{before}y@ = {kind}(t@, c@)", one, turn(place), opsets))
        behind = turn(place + 1, ROWS, 3)
        found.append(Example(kind, f"{before}y@ = {kind}(c@, t@)", row, behind))
        for read in ("z, a@", "a@, z"):
            ways = turn(place, FLAT)
            found.append(Example(kind, f"y@ = {kind}({read})", {}, ways, inputs="float[N,4] z"))
        ways = turn(place + 2)
        found.append(Example(kind, f"y@ = {kind}(a@, z)", {}, ways, inputs="float[1] z"))
    return found


TWO_OPERANDS = [
    *_pairs(),
    Example("Add", "t@ = Relu(a@) y@ = Add(t@, c@)", {"c@": floats(4, 1, 1)}, IMAGES, (7, 21)),
    Example(
        "Add", "t@ = Relu(a@) y@ = Add(t@, c@)", {"c@": floats(1, 4)}, turn(2, ROWS, 3), (7, 21)
    ),
    Example("Add", "y@ = Add(a@, z)", {}, FLAT, (7, 21), inputs="float[4] z"),
    *(
        Example("Sub", f"m@ = ReduceMax<axes=[{axis}]>(a@) y@ = Sub(a@, m@)", {}, EVERY, (13,))
        for axis in (0, 1)
    ),
    Example("Sub", "m@ = ReduceMax<axes=[-1]>(a@) y@ = Sub(m@, a@)", {}, turn(1, EVERY, 4), (13,)),
    Example("Sub", "m@ = ReduceMax<axes=[0], keepdims=0>(a@) y@ = Sub(a@, m@)", {}, EVERY, (13,)),
    Example("Mul", "y@ = Mul(a@, a@)", {}, turn(1), (7, 21)),
    Example("Div", LARGE[0] + "y@ = Div(c, s@)", {**LARGE[1], "c": floats()}, turn(2), (7, 21)),
    *(
        Example(kind, f"y@ = {kind}(a@, b@)", {}, turn(place), (first, 21), "bool")
        for place, (kind, first) in enumerate(_since(COMPARED))
    ),
    Example(
        "Equal",
        "f@ = Floor(a@) g@ = Floor(b@) y@ = Equal(f@, g@)",
        {},
        turn(3),
        (11, 21),
        "bool",
    ),
    *(
        Example(
            kind,
            f"c@ = Greater(a@, zero) d@ = Greater(b@, zero) y@ = {kind}(c@, d@)",
            ZERO,
            turn(place + 1),
            (first, 21),
            "bool",
        )
        for place, (kind, first) in enumerate(_since(LOGICAL))
    ),
    *(
        Example(
            kind,
            f"{BOTH_INTEGERS}y@ = {kind}(s@, l@)",
            INTEGERS[1],
            turn(place),
            (first, 21),
            "int32",
        )
        for place, (kind, first) in enumerate(_since(BITWISE))
    ),
    Example(
        "BitShift",
        "h@ = Abs(a@) k@ = Mul(h@, ten) s@ = Cast<to=12>(k@) "
        'y@ = BitShift<direction="LEFT">(s@, c@)',
        {**INTEGERS[1], "c@": array(lambda k: np.array([k, 1, 2, 3], np.uint32))},
        turn(0, ROWS),
        (11, 21),
        "uint32",
    ),
    Example("Mod", "y@ = Mod<fmod=1>(a@, c@)", {"c@": positive(4)}, turn(1, ROWS), (11, 21)),
    Example(
        "Mod",
        INTEGERS[0] + "y@ = Mod(s@, c@)",
        {**INTEGERS[1], "c@": array(lambda k: np.array(3 + k, np.int32))},
        turn(2),
        (11, 21),
        "int32",
    ),
    Example(
        "Pow", LARGE[0] + "y@ = Pow(s@, c@)", {**LARGE[1], "c@": floats(4)}, turn(3, ROWS), (7, 21)
    ),
    Example("Pow", LARGE[0] + "y@ = Pow(s@, b@)", LARGE[1], turn(1), (7, 21)),
    *(
        Example(kind, f"y@ = {kind}(a@, c@, b@)", {"c@": floats(4)}, turn(place, ROWS), (13, 21))
        for place, kind in enumerate(("Sum", "Mean", "Max", "Min"))
    ),
    Example("Where", "c@ = Greater(b@, zero) y@ = Where(c@, a@, b@)", ZERO, EVERY, (9, 21)),
    Example(
        "Where",
        "y@ = Where(m@, a@, c@)",
        {"m@": array(lambda k: np.arange(4) % 3 == k), "c@": floats()},
        turn(1, ROWS, 3),
        (9, 21),
    ),
]

# -- ops that work along axes -----------------------------------------------------------------------

NORMALISED = [
    *(
        Example(kind, f"y@ = {kind}<axis={axis}>(a@)", {}, ways, (7, 11, 13, 21))
        for kind, axis, ways in (
            ("Softmax", -1, EVERY),
            ("LogSoftmax", 1, turn(0)),
            ("Hardmax", -1, turn(3)),
        )
    ),
    Example("Softmax", "y@ = Softmax(a@)", {}, turn(2), (7, 11, 13, 21)),
    Example("Softmax", "y@ = Softmax<axis=1>(a@)", {}, DEEP + IMAGES, (7, 12, 18)),
    Example("Softmax", "y@ = Softmax<axis=0>(a@)", {}, turn(1), (11, 21)),
    Example("LogSoftmax", "y@ = LogSoftmax<axis=-2>(a@)", {}, turn(2), (13, 21)),
    Example("LpNormalization", "y@ = LpNormalization<axis=-1, p=1>(a@)", {}, turn(1), (7, 21)),
    Example("LpNormalization", "y@ = LpNormalization<axis=1>(a@)", {}, turn(3), (7, 21)),
]

REDUCED = "Sum Mean Max Min Prod L1 L2 SumSquare LogSum LogSumExp".split()


def _reductions() -> list[Example]:
    """Axes as an attribute and as an operand, from the end and from the front, kept and not."""
    found: list[Example] = []
    for place, name in enumerate(REDUCED):
        kind = f"Reduce{name}"
        before, lift = LARGE if name == "LogSum" else PLAIN
        read = "s@" if before else "a@"
        since = 13 if name == "Sum" else 18
        axis, more = ((-1, ""), (1, ", keepdims=0"))[place % 2]
        body = f"{before}y@ = {kind}<axes=[{axis}]{more}>({read})"
        found.append(Example(kind, body, lift, turn(place)[:2], (11,)))
        for axis, spelled in ((1, kind), (-1, f"{kind}<keepdims=0>")):
            ways = EVERY if name == "Sum" else turn(place + axis)
            body = f"{before}y@ = {spelled}({read}, axes)"
            found.append(Example(kind, body, {**lift, "axes": whole(axis)}, ways, (since,)))
    return found


ALONG = [
    *_reductions(),
    Example("ReduceSum", "y@ = ReduceSum(a@)", {}, turn(0), (7, 13, 21)),
    Example("ReduceMean", "y@ = ReduceMean<keepdims=0>(a@)", {}, turn(1), (7, 21), scalar=True),
    Example(
        "ReduceMean",
        "y@ = ReduceMean<keepdims=0>(a@, axes)",
        {"axes": whole(-1, 2)},
        IMAGES,
        (18, 21),
    ),
    *(
        Example(kind, f"y@ = {kind}<axis={axis}, keepdims={keep}>(a@)", {}, ways, (7, 21), "int64")
        for kind, axis, keep, ways in (
            ("ArgMax", 1, 0, EVERY),
            ("ArgMax", 0, 1, turn(0)),
            ("ArgMin", 1, 1, turn(1)),
        )
    ),
    Example("ArgMin", "y@ = ArgMin<axis=-1, keepdims=0>(a@)", {}, turn(2), (11, 21), "int64"),
    Example(
        "Split",
        "q@, r@ = Split<axis=1, split=[1, 3]>(a@) y@ = Mul(q@, r@)",
        {},
        FLAT[:2],
        (7, 11),
        value="q@",
    ),
    Example(
        "Split",
        "q@, r@ = Split<axis=-1>(a@, two) y@ = Sub(q@, r@)",
        {"two": whole(2, 2)},
        ROWS,
        (13, 21),
        value="q@",
    ),
    Example(
        "Split",
        "q@, r@ = Split<axis=1>(a@, two) y@ = Mul(q@, r@)",
        {"two": whole(1, 3)},
        ("channels", "conv_t"),
        (13, 18),
        value="q@",
    ),
    Example(
        "Slice",
        "r@ = Slice<starts=[1], ends=[3], axes=[1]>(a@) y@ = Neg(r@)",
        {},
        SECOND,
        (7, 9),
    ),
    Example(
        "Slice",
        "r@ = Slice(a@, start, end, axis) y@ = Neg(r@)",
        {"start": whole(-3), "end": whole(-1), "axis": whole(-1)},
        ROWS,
        (11, 13, 21),
    ),
    Example(
        "Slice",
        "r@ = Slice(a@, start, end, axis, step) y@ = Neg(r@)",
        {"start": whole(9), "end": whole(-9), "axis": whole(1), "step": whole(-1)},
        SECOND[1::2],
        (11, 21),
    ),
    Example(
        "Slice",
        "r@ = Slice(a@, start, end) y@ = Neg(r@)",
        {"start": whole(0, 1), "end": whole(1 << 40, 3)},
        ("rows", "wide", "grouped_conv", "channels"),
        (11, 21),
    ),
    Example(
        "Concat",
        "r@ = Concat<axis=1>(a@, b@) y@ = Neg(r@)",
        {},
        (*FLAT, *DEEP[:3], *IMAGES),
        (7, 13, 21),
    ),
    Example("Concat", "r@ = Concat<axis=-1>(b@, a@, b@) y@ = Neg(r@)", {}, turn(2), (11, 21)),
    Example("CumSum", "y@ = CumSum(a@, axis)", {"axis": entry(-1)}, EVERY, (11, 21)),
    Example("CumSum", "y@ = CumSum<reverse=1>(a@, axis)", {"axis": entry(1)}, turn(2), (11, 21)),
    Example("TopK", "y@, i@ = TopK<axis=-1, k=2>(a@)", {}, ("rows", "wide"), (7, 9)),
    Example("TopK", "y@, i@ = TopK<axis=1>(a@, k)", {"k": whole(2)}, SECOND[1::2], (11, 21)),
    Example("TopK", "v@, y@ = TopK(a@, k)", {"k": whole(3)}, EVERY, (11, 21), "int64", value="v@"),
]

# -- ops that only move numbers ---------------------------------------------------------------------


def _moved(
    kind: str,
    read: str,
    ways: tuple[str, ...],
    opsets: tuple[int, ...],
    weights: Mapping[str, Maker] | None = None,
    after: int = 0,
    before: str = "",
) -> Example:
    """An op whose result is read by another: its own op type also serves the ways out."""
    body = f"{before}r@ = {kind}({read}) y@ = Neg(r@)"
    return Example(kind.partition("<")[0], body, weights or {}, ways, opsets, after=after)


MOVED = [
    _moved("Unsqueeze<axes=[1]>", "a@", turn(0), (7, 11)),
    _moved("Unsqueeze", "a@, axis", EVERY, (13, 21), {"axis": whole(-1)}),
    _moved("Unsqueeze", "a@, axis", FLAT[2:], (13, 21), {"axis": whole(0, 2)}),
    _moved("Squeeze<axes=[1]>", "m@", turn(1), (7, 11), before="m@ = ReduceMax<axes=[1]>(a@) "),
    _moved(
        "Squeeze",
        "m@, axis",
        EVERY,
        (13, 16),
        {"axis": whole(-1)},
        before="m@ = ReduceMax<axes=[-1]>(a@) ",
    ),
    _moved(
        "Squeeze",
        "m@",
        IMAGES,
        (18, 21),
        {"axes": whole(0, 2)},
        before="m@ = ReduceSum(a@, axes) ",
    ),
    _moved("Transpose<perm=[1,0]>", "a@", FLAT, (7, 21)),
    _moved("Transpose", "a@", EVERY, (7, 21)),
    _moved("Transpose<perm=[0,2,1]>", "a@", DEEP, (7, 21)),
    _moved("Transpose<perm=[0,2,3,1]>", "a@", IMAGES, (7, 21)),
    _moved("Reshape", "a@, to", FLAT, (7, 13, 21), {"to": whole(-1, 2, 2)}),
    _moved("Reshape", "a@, to", DEEP, (7, 21), {"to": whole(0, 0, 2, 2)}),
    _moved("Reshape", "a@, to", ("fixed3",), (7, 21), {"to": whole(-1, 4)}),
    _moved("Reshape", "a@, to", ("open3",), (7, 21), {"to": whole(-1, 4)}),
    _moved("Reshape", "a@, to", ("fixed_wide3",), (13, 21), {"to": whole(0, -1)}, after=2),
    _moved("Flatten<axis=1>", "a@", IMAGES, (9, 21)),
    _moved("Flatten<axis=2>", "a@", ("fixed3",), (9, 21)),
    Example(
        "Expand",
        "m@ = ReduceMax<axes=[1]>(a@) y@ = Expand(m@, to)",
        {"to": whole(1, 6)},
        FLAT,
        (9, 13),
    ),
    Example("Expand", "y@ = Expand(a@, to)", {"to": whole(2, 1, 4)}, FLAT, (9, 21)),
    _moved("Gather<axis=-1>", "a@, at", EVERY, (11, 13, 21), {"at": whole(2, 0)}, 1),
    _moved("Gather<axis=1>", "a@, at", SECOND[::2], (7, 21), {"at": entry(2)}, 1),
    _moved(
        "Gather<axis=1>",
        "a@, at",
        SECOND[1::2],
        (11, 21),
        {"at": array(lambda k: np.array([[0, 3], [1, 1]]))},
        1,
    ),
    Example(
        "GatherND",
        "h@ = Transpose(a@) r@ = GatherND(h@, at) y@ = Neg(r@)",
        {"at": array(lambda k: np.array([[2], [0]]))},
        (*FLAT, "fixed3"),
        (12, 21),
        op_type="Gather",
    ),
]

# -- norms ------------------------------------------------------------------------------------------


def _norm(kind: str, opsets: tuple[int, ...], shifted: bool) -> list[Example]:
    """Scales that differ by lane, scales that do not, and a norm over two axes."""
    found = []
    for names, shape, ways, axis in (
        (("g@", "h@"), (4,), ROWS, -1),
        (("g", "h"), (4,), turn(1, ROWS), -1),
        (("g@", "h@"), (5, 3), IMAGES, 2),
        (("g@", "h@"), (5, 4), ("fixed3", "fixed_wide3", "conv_t3"), 1),
    ):
        weights = {names[0]: positive(*shape)} | ({names[1]: floats(*shape)} if shifted else {})
        body = f"y@ = {kind}<axis={axis}, epsilon=0.01>(a@, {', '.join(weights)})"
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
        FLAT,
        (7, 13, 21),
        op_type="Mul",
    ),
    Example(
        "BatchNormalization",
        "n@ = Neg(a@) y@ = BatchNormalization<epsilon=0.01>(n@, g@, h@, m@, u@)",
        PARAMETERS,
        IMAGES,
        (7, 9, 13, 21),
    ),
]

# -- products, convolutions, lookups ----------------------------------------------------------------

TWICE = {"u@": floats(4, 3)}

PRODUCTS = [
    Example(
        "Linear",
        "y@ = MatMul(a@, u@)",
        TWICE,
        ("rows", "wide", *DEEP[:2], "open3"),
        (7, 13, 21),
        op_type="MatMul",
    ),
    Example(
        "Linear", "y@ = MatMul(a@, u@)", TWICE, (*FLAT[2:], "conv_t3"), (7, 11, 21), op_type="Conv"
    ),
    Example(
        "Linear",
        "y@ = Gemm<alpha=0.5, beta=2.0, transB=1>(a@, u@, c@)",
        {"u@": floats(3, 4), "c@": floats(3)},
        FLAT[:2],
        (7, 11, 21),
        op_type="MatMul",
    ),
    Example(
        "Linear",
        "y@ = Gemm(a@, u, c@)",
        {"u": floats(4, 3), "c@": floats(1)},
        FLAT[2:],
        (9, 21),
        op_type="Conv",
    ),
    Example(
        "MatMul", "t@ = Transpose<perm=[0,2,1]>(b@) y@ = MatMul(a@, t@)", {}, DEEP, (7, 13, 21)
    ),
    Example("MatMul", "y@ = MatMul(a@, z)", {}, turn(2, ROWS, 3), (7, 21), inputs="float[4,3] z"),
    Example("MatMul", "y@ = MatMul(z, a@)", {}, DEEP, (13, 21), inputs="float[2,5] z"),
    Example("MatMul", "y@ = MatMul(a@, u@)", {"u@": floats(2, 4, 3)}, FLAT, (13, 21)),
    Example("MatMul", "y@ = MatMul(a@, u)", {"u": floats(2, 4, 3)}, FLAT[::2], (13, 21)),
    Example("MatMul", "y@ = MatMul(a@, u@)", {"u@": floats(1, 4, 3)}, turn(1, ROWS, 3), (13, 21)),
    Example("MatMul", "y@ = MatMul(a@, u@)", {"u@": floats(1, 1, 4, 3)}, DEEP, (13, 21)),
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
        'y@ = Conv<group=2, strides=[2,1], auto_pad="SAME_UPPER">(a@, u@)',
        {"u@": floats(6, 2, 2, 2)},
        IMAGES,
        (11, 21),
    ),
    Example(
        "Conv",
        "y@ = Conv<dilations=[2]>(z, u@)",
        {"u@": floats(2, 3, 2)},
        ("rows",),
        (7, 21),
        inputs="float[N,3,7] z",
    ),
    Example(
        "Conv",
        "y@ = Conv<group=3, pads=[1,1]>(z, u@, c@)",
        {"u@": floats(3, 1, 3), "c@": floats(3)},
        ("rows",),
        (7, 21),
        inputs="float[N,3,7] z",
    ),
    Example(
        "Conv",
        "y@ = Conv<group=2, pads=[1,1]>(z, u@, c@)",
        {"u@": floats(6, 2, 3), "c@": floats(6)},
        ("rows",),
        (7, 21),
        inputs="float[N,4,7] z",
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


def _lookup(
    table: str, index: int, ways: tuple[str, ...], opsets: tuple[int, ...], op_type: str
) -> Example:
    """Rows of a table by numbers of a lane, of int32 (6) or int64 (7)."""
    body = f"h@ = Abs(a@) l@ = Clip(h@, , top) n@ = Cast<to={index}>(l@) r@ = Gather({table}, n@) "
    weights = {"top": number(4.0), table: floats(5, 3)}
    kept = Example("Embedding", f"{body}y@ = Neg(r@)", weights, ways, opsets)
    return replace(kept, op_type=op_type)


LOOKUPS = [
    _lookup("t@", 7, EVERY, (12, 13, 21), "GatherND"),
    _lookup("t@", 6, ("rows", "channels"), (12, 21), "GatherND"),
    _lookup("t", 7, turn(1), (12, 21), "Gather"),
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

MAY_BE_EMPTY = [
    Example("Relu", "y@ = Relu(a@)", {}, OPEN),
    Example("Sub", "m@ = ReduceMax<axes=[-1]>(a@) y@ = Sub(a@, m@)", {}, OPEN, (16,)),
    Example("Softmax", "y@ = Softmax<axis=-1>(a@)", {}, OPEN),
    Example("Transpose", "r@ = Transpose<perm=[1,0,2]>(a@) y@ = Neg(r@)", {}, OPEN, after=0),
    Example("LayerNormalization", "y@ = LayerNormalization(a@, g@)", {"g@": positive(4)}, OPEN),
    Example("Linear", "y@ = MatMul(a@, u@)", TWICE, OPEN, (16, 21), op_type="MatMul"),
    Example("MatMul", "t@ = Transpose<perm=[0,2,1]>(b@) y@ = MatMul(t@, a@)", {}, OPEN),
]
"""What lanes with two open axes are tried with."""

EXAMPLES: tuple[Example, ...] = tuple(
    replace(example, joined=not example.scalar)
    for example in (
        *ONE_OPERAND,
        *TWO_OPERANDS,
        *NORMALISED,
        *ALONG,
        *MOVED,
        *NORMS,
        *PRODUCTS,
        *CONVOLUTIONS,
        *LOOKUPS,
        *MAY_BE_EMPTY,
    )
)
