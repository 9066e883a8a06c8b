"""In which floating type outputs are computed, and that they may lie apart as far as that one allows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

import onnx_sched
from onnx_sched.judge.agree import Agreement, Tolerances, validate
from onnx_sched.judge.members import Join, members, validate_members
from onnx_sched.judge.precision import coarser, computed_in
from onnx_sched.judge.tolerances import root_mean_square

HEAD = '<ir_version: 9, opset_import: ["" : 19, "fun" : 1, "com.microsoft" : 1]> '
FROM_FINE_TO_COARSE: dict[int, str] = {
    TensorProto.DOUBLE: "float64",
    TensorProto.FLOAT: "float32",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.FLOAT8E4M3FN: "float8_e4m3fn",
    TensorProto.FLOAT8E5M2: "float8_e5m2",
}
TYPES = list(FROM_FINE_TO_COARSE)
FULL = {"y": "float32"}
HALF = {"y": "float16"}


def parse(
    text: str, y: str = "float[N] y", x: str = "float[N] x", functions: str = ""
) -> ModelProto:
    return parser.parse_model(f"{HEAD} g ({x}) => ({y}) {{ {text} }} {functions}")


def of(
    text: str, y: str = "float[N] y", x: str = "float[N] x", functions: str = ""
) -> dict[str, str]:
    return computed_in(parse(text, y, x, functions))


def chain(types: list[int]) -> ModelProto:
    """X cast to each type in turn, and computed with there."""
    nodes = []
    for place, kind in enumerate(types):
        read = f"n{place - 1}" if place else "x"
        nodes.append(helper.make_node("Cast", [read], [f"c{place}"], to=kind))
        nodes.append(helper.make_node("Exp", [f"c{place}"], [f"n{place}"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info(nodes[-1].output[0], types[-1], [2])],
    )
    return helper.make_model(graph)


@given(st.lists(st.sampled_from(TYPES), min_size=1, max_size=5))
def test_the_coarsest_on_the_way_counts(types: list[int]) -> None:
    """Whatever casts follow one another; as a constant the same chain rounds nothing."""
    model = chain(types)
    wanted = FROM_FINE_TO_COARSE[max(types, key=TYPES.index)]
    assert computed_in(model) == {model.graph.output[0].name: wanted}
    del model.graph.input[:]
    model.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "x"))
    assert computed_in(model) == {}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("h = Cast<to=10>(x) a = Exp(h) y = Cast<to=1>(a)", HALF),
        ("h = Cast<to=10>(x) y = Cast<to=1>(h)", HALF),
        ("h = Cast<to=10>(x) a = Exp(h) b = Cast<to=1>(a) y = Exp(b)", HALF),
        ("h = CastLike(x, w) a = Exp(h) y = CastLike(a, x)", HALF),
        ("h = Cast<to=10>(x) a = com.microsoft.BiasGelu(h, w) y = Cast<to=1>(a)", HALF),
        ("q = QuantizeLinear(x, s) d = DequantizeLinear(q, w) y = Cast<to=1>(d)", HALF),
        ("q = QuantizeLinear(x, s) y = DequantizeLinear(q, s)", FULL),
        ("f = Cast<to=1>(w) y = Mul(x, f)", FULL),
        ("a = Mul(w, w) f = Cast<to=1>(a) y = Mul(x, f)", FULL),
        ("i = Cast<to=7>(x) r = Gather(w, i) f = Cast<to=1>(r) y = Exp(f)", FULL),
        ("h = Cast<to=10>(x) n = Shape(h) y = ConstantOfShape(n)", {}),
        ("h = Cast<to=10>(x) z = Exp(h) y = Exp(x)", FULL),
        ("h = Cast<to=10>(x) a = Exp(h) c = Greater(a, w) y = Where(c, x, x)", HALF),
        ("y = Identity(x)", {}),
        ("d = Cast<to=11>(x) e = Exp(d) y = Cast<to=1>(e)", FULL),
    ],
)
def test_what_is_rounded_in_a_run_counts(text: str, wanted: dict[str, str]) -> None:
    """Values that are computed; neither weights that are kept in float16, nor moves, nor sizes."""
    model = parse(text)
    model.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float16), "w"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(0.1, np.float32), "s"))
    assert computed_in(model) == wanted


def test_an_input_of_float16_is_exact() -> None:
    """As long as it is only moved, compared and cast up; also a weight that can be fed."""
    half = "float16[N] x, float16[N] z"
    assert of("m = Identity(x) f = Cast<to=1>(m) y = Exp(f)", x=half) == FULL
    assert of("g = Greater(x, z) y = Cast<to=1>(g)", x=half) == FULL
    assert of("a = Add(x, z) y = Cast<to=1>(a)", x=half) == HALF
    model = parse("f = Cast<to=1>(x) y = Exp(f)", x=half)
    model.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float16), "x"))
    assert computed_in(model) == FULL


def test_outputs_are_told_apart() -> None:
    """Each has a type of its own, that of its own way."""
    text = "h = Cast<to=10>(x) a = Exp(h) y = Cast<to=1>(a) z = Exp(x)"
    assert of(text, "float[N] y, float[N] z") == {"y": "float16", "z": "float32"}


INSIDE = "h = Cast<to=10>(x) e = Exp(h) o = Cast<to=1>(e)"


@pytest.mark.parametrize(
    ("before", "body", "wanted"),
    [
        ("q = Neg(x)", INSIDE, HALF),
        ("q = Neg(x)", "o = Exp(x)", FULL),
        ("h = Cast<to=10>(x) e = Exp(h) q = Cast<to=1>(e)", "o = Exp(q)", HALF),
        ("h = Cast<to=10>(x) e = Exp(h) q = Cast<to=1>(e)", "o = Exp(x)", FULL),
        ("q = Neg(x)", f"{INSIDE.replace('o = ', 'p = ')} o = Exp(x)", HALF),
    ],
)
def test_bodies_are_looked_into(before: str, body: str, wanted: dict[str, str]) -> None:
    """A branch rounds inside, for whatever use, or reads from around it what was rounded there."""
    model = parse(before, x="float[N] x, bool c")
    branch = parser.parse_graph(f"b () => (float[N] o) {{ {body} }}")
    model.graph.node.append(
        helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    )
    assert computed_in(model) == wanted


def test_what_decides_between_branches_counts() -> None:
    """A condition that is computed in float16."""
    model = parse("h = Cast<to=10>(x) e = Exp(h) n = ReduceMax(e) c = Cast<to=9>(n)")
    branch = parser.parse_graph("b () => (float[N] o) { o = Exp(x) }")
    model.graph.node.append(
        helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    )
    assert computed_in(model) == HALF


def test_loops_hand_on_the_types_of_what_they_make() -> None:
    """The condition of a Loop is no output: what follows computes in the type of its own operand."""
    body = parser.parse_graph(
        "b (int64 i, bool c, float16[N] s) => (bool k, float16[N] t) { k = Identity(c) t = Identity(s) }"
    )
    model = parse("q = Identity(x)", x="float16[N] x, int64 m, bool c")
    model.graph.node.append(helper.make_node("Loop", ["m", "c", "q"], ["r"], body=body))
    model.graph.node.append(helper.make_node("Exp", ["r"], ["e"]))
    model.graph.node.append(helper.make_node("Cast", ["e"], ["y"], to=1))
    assert computed_in(model) == HALF
    del model.graph.node[-2]
    model.graph.node[-1].input[0] = "r"
    assert computed_in(model) == {}


FUNCTIONS = """
    <opset_import: ["" : 19, "fun" : 1], domain: "fun">
    Outer <kind> (a) => (b) { b = fun.Inner<kind: int = @kind>(a) }
    <opset_import: ["" : 19], domain: "fun">
    Inner <kind> (a) => (b) { h = Cast<to: int = @kind>(a) e = Exp(h) b = Cast<to=1>(e) }
"""


def test_functions_are_looked_into() -> None:
    """Also where a function gets the type from who calls it, and calls another."""
    assert of("y = fun.Outer<kind=10>(x)", functions=FUNCTIONS) == HALF
    assert of("y = fun.Outer<kind=1>(x)", functions=FUNCTIONS) == FULL
    both = "y = fun.Outer<kind=16>(x) z = fun.Outer<kind=1>(x)"
    assert of(both, "float[N] y, float[N] z", functions=FUNCTIONS) == {
        "y": "bfloat16",
        "z": "float32",
    }


def test_what_is_no_model_ends_all_the_same() -> None:
    """Functions that call themselves twice, long rows of functions, values that nobody makes."""
    text = "F (a) => (b) { c = fun.F(a) b = fun.F(c) }"
    again = f'<opset_import: ["fun" : 1], domain: "fun"> {text}'
    assert of("y = fun.F(x)", functions=again) == FULL
    rows = "".join(
        f'<opset_import: ["" : 19, "fun" : 1], domain: "fun"> '
        f"F{k} (a) => (b) {{ c = fun.F{k + 1}(a) d = Exp(c) b = fun.F{k + 1}(d) }}"
        for k in range(300)
    )
    assert of("y = fun.F0(x)", functions=rows) == FULL
    assert of("y = Exp(nothing)") == of("y = DequantizeLinear(x)") == {}
    assert of("y = Cast<to=1>()") == FULL


@given(
    st.lists(
        st.dictionaries(st.sampled_from("yz"), st.sampled_from(list(FROM_FINE_TO_COARSE.values())))
    )
)
def test_the_coarsest_of_several_models(found: list[dict[str, str]]) -> None:
    """Each output has the coarsest type that any of them has for it."""
    order = list(FROM_FINE_TO_COARSE.values())
    wanted: dict[str, str] = {}
    for name in "yz":
        kinds = [each[name] for each in found if name in each]
        wanted.update({name: max(kinds, key=order.index)} if kinds else {})
    assert coarser(*found) == wanted


@given(
    st.sampled_from(list(FROM_FINE_TO_COARSE.values())),
    st.sampled_from([np.float16, np.float32, np.float64]),
)
def test_the_coarser_type_gives_the_tolerance(inside: str, own: type) -> None:
    """Of the type inside and the output's own; never for integers, and never against a wish."""
    array: np.ndarray = np.full(4, 3.0, own)
    order = list(FROM_FINE_TO_COARSE.values())
    coarse = max(inside, array.dtype.name, key=order.index)
    computed = Tolerances(computed_in=(("y", inside),))
    finest = np.ones(4, np.float64)
    alone = Tolerances(computed_in=(("z", coarse),)).limits("z", finest)
    scale = root_mean_square(array)
    assert computed.limits("y", array) == pytest.approx((alone[0], alone[1] * scale))
    assert computed.limits("other", array) == Tolerances().limits("y", array)
    assert computed.limits("y", np.ones(4, np.int32)) == (0.0, 0.0)
    wished = Tolerances(rtol=1e-9, atol=1e-9, computed_in=(("y", inside),))
    assert wished.limits("y", array) == (1e-9, 1e-9)


def towers(shift: float = 0.0, order: tuple[int, ...] = (0, 1, 2, 3)) -> ModelProto:
    """Four towers in float16 between an input and an output of float32; all weights as constants."""
    rng = np.random.default_rng(1)
    weights, body = [], ["h = Cast<to=10>(x)"]
    for k in range(4):
        weights += [
            numpy_helper.from_array(
                (rng.standard_normal((16, 16)) / 4).astype(np.float16), f"v{k}"
            ),
            numpy_helper.from_array((rng.standard_normal((16, 4)) / 4).astype(np.float16), f"w{k}"),
        ]
        first, second = f"v{order[k]}", f"w{k}"
        body.append(f"a{k} = MatMul(h, {first}) s{k} = Sigmoid(a{k}) t{k} = MatMul(s{k}, {second})")
        body.append(f"u{k} = Cast<to=1>(t{k})")
    body.append("j = Concat<axis=1>(u0, u1, u2, u3) y = Add(j, shift)")
    model = parse(" ".join(body), "float[N,16] y", "float[N,16] x")
    weights.append(numpy_helper.from_array(np.array(shift, np.float32), "shift"))
    model.graph.initializer.extend(weights)
    return model


FEEDS = [{"x": np.random.default_rng(2).standard_normal((5, 16)).astype(np.float32)}]


def judged(after: ModelProto, before: ModelProto | None = None) -> Agreement:
    first = (before or towers()).SerializeToString()
    return validate(first, after.SerializeToString(), FEEDS, "cpu")


def test_two_thousandths_is_nothing_in_float16_and_much_in_float32() -> None:
    """The same difference passes where the original rounds to float16, and only there."""
    assert judged(towers(2e-3)).verdict == "within_tolerance"
    found = judged(towers(1e-1))
    assert (found.verdict, found.reason.split("outside ")[1][:5]) == ("mismatch", "0.004")
    assert judged(towers(order=(1, 0, 2, 3))).verdict == "mismatch"
    assert judged(shifted(2e-3), shifted(0.0)).verdict == "mismatch"


def shifted(shift: float, inside: str = "float", names: str = "y") -> ModelProto:
    """Exp(x) + shift, in float16 or not, once for each name."""
    half = "h = Cast<to=10>(x) e = Exp(h) f = Cast<to=1>(e)"
    body = [half if inside == "float16" else "f = Exp(x)"]
    body += [f"{name} = Add(f, shift)" for name in names.split()]
    ends = ", ".join(f"float[N,16] {name}" for name in names.split())
    model = parse(" ".join(body), ends, "float[N,16] x")
    array = numpy_helper.from_array(np.array(shift, np.float32), "shift")
    model.graph.initializer.append(array)
    return model


@pytest.mark.parametrize("before", ["float", "float16"])
@pytest.mark.parametrize("after", ["float", "float16"])
def test_the_rewritten_model_does_not_choose_its_tolerance(before: str, after: str) -> None:
    """Only the original is asked: one that rounds where the original does not gains nothing by it."""
    wanted = "within_tolerance" if before == "float16" else "mismatch"
    assert judged(shifted(2e-3, after), shifted(0.0, before)).verdict == wanted


def test_towers_in_float16_are_batched() -> None:
    """Inside float16, outside float32: what is batched agrees, and the report says how closely."""
    found = onnx_sched.optimize(towers(), choose="always")
    assert found.report.status == "optimized"
    assert found.report.verdict in ("bitwise", "within_tolerance")


@pytest.mark.parametrize("join", ["mean", "outputs"])
@pytest.mark.parametrize(
    "inside", [("float", "float"), ("float", "float16"), ("float16", "float16")]
)
def test_merged_models_are_as_coarse_as_their_members(
    tmp_path: Path, join: Join, inside: tuple[str, str]
) -> None:
    """The one is held against its members: each output as the one that gave it, a mean as all of them."""
    paths = [tmp_path / f"{k}.onnx" for k in range(2)]
    for path, kind in zip(paths, inside, strict=True):
        onnx.save(shifted(0.0, kind), path)
    onnx.save(shifted(2e-3, names="y" if join == "mean" else "y_0 y_1"), tmp_path / "one.onnx")
    found = validate_members(members(paths, join), tmp_path / "one.onnx", FEEDS, "cpu")
    passed = [part.verdict == "within_tolerance" for part in found.outputs]
    coarse = [kind == "float16" for kind in inside]
    assert passed == ([any(coarse)] if join == "mean" else coarse)
