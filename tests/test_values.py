"""What is known about values before anything runs holds in every run: numbers, sizes, equal values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnx_sched
from onnx_sched.dims import symbol
from onnx_sched.values import Values
from tests.nets import (
    Array,
    analysed,
    evaluate,
    every_value,
    feeds,
    ints,
    name_nodes,
    net,
    nodes_of,
    numbers,
    symbols_of,
)
from tests.rule_examples import compare, with_ranks
from tests.zoo import MODELS, RANDOM, ZOO, model, sightings, studied


def values_of(proto: ModelProto) -> Values:
    return analysed(proto).values


def same(one: Array, other: Array) -> bool:
    """Equal to the bit."""
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


# -- constants --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_constants_are_what_onnx_runtime_computes(name: str) -> None:
    """Type, shape and numbers of every value that is constant; whole numbers exactly, floats closely."""
    values = studied(name).values
    for _, seen in sightings(name):
        for value in values.constants.keys() & seen.keys():
            const, array = values.constants[value], seen[value]
            loaded = np.asarray(const.load())
            assert (loaded.dtype, loaded.shape) == (const.dtype, const.shape), value
            assert (loaded.dtype, loaded.shape) == (array.dtype, array.shape), value
            if array.dtype.kind == "f":
                np.testing.assert_allclose(loaded, array, rtol=1e-5, atol=1e-6, err_msg=value)
            else:
                np.testing.assert_array_equal(loaded, array, value)


@pytest.mark.parametrize("name", ZOO)
def test_what_differs_between_runs_is_not_constant(name: str) -> None:
    """A value that two runs show otherwise has been taken for no constant."""
    constants = studied(name).values.constants
    runs = [seen for _, seen in sightings(name)]
    for value, array in runs[0].items():
        if not all(same(array, other[value]) for other in runs[1:]):
            assert value not in constants, value


def test_everything_that_follows_from_weights_is_constant() -> None:
    """All values of the folding model, but the one that reads the input."""
    proto = model("folding")
    made = {o for node in proto.graph.node for o in node.output}
    assert made - values_of(proto).constants.keys() == {"y"}


CONSTANT_NODES: dict[str, tuple[dict[str, Any], Any]] = {
    "value": ({"value": numpy_helper.from_array(numbers(2, 3))}, numbers(2, 3)),
    "float": ({"value_float": 0.1}, np.float32(0.1)),
    "floats": ({"value_floats": [0.1, 2.0]}, np.array([0.1, 2.0], np.float32)),
    "int": ({"value_int": -3}, np.int64(-3)),
    "ints": ({"value_ints": [1, 2]}, ints(1, 2)),
}


@pytest.mark.parametrize("kind", CONSTANT_NODES)
def test_constant_nodes_in_all_their_spellings(kind: str) -> None:
    """A tensor, a number, several numbers: what the node makes is what ONNX Runtime makes of it."""
    given, expected = CONSTANT_NODES[kind]
    proto = net("(float[N] x) => (float[] y) { y = Relu(x) }")
    proto.graph.node.append(helper.make_node("Constant", [], ["k"], **given))
    const = values_of(proto).constants["k"]
    assert same(np.asarray(const.load()), np.asarray(expected))
    assert same(np.asarray(const.load()), every_value(proto, feeds(proto))["k"])


@pytest.mark.parametrize("kind", ["value_string", "value_strings", "sparse_value"])
def test_other_constant_nodes_are_left_alone(kind: str) -> None:
    """Strings and sparse tensors stay nodes."""
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("v", TensorProto.FLOAT, [1], [2.0]),
        helper.make_tensor("i", TensorProto.INT64, [1], [0]),
        [3],
    )
    given: dict[str, Any] = {"value_string": "a", "value_strings": ["a", "b"]}
    given["sparse_value"] = sparse
    proto = net("(float[N] x) => (float[] y) { y = Relu(x) }")
    proto.graph.node.append(helper.make_node("Constant", [], ["k"], **{kind: given[kind]}))
    assert "k" not in values_of(proto).constants


@pytest.mark.parametrize(("ir", "constant"), [(3, True), (4, False), (10, False)])
def test_what_the_caller_may_override_is_not_constant(ir: int, constant: bool) -> None:
    """An initializer that is also an input, and all that is computed from it."""
    proto = net(
        "(float[N,4] x) => (float[] y) { a = Transpose(w) y = MatMul(x, a) }",
        {"w": numbers(4, 4)},
        opset=8,
        ir=3,
    )
    proto.ir_version = ir
    assert ({"w", "a"} <= values_of(proto).constants.keys()) == constant
    assert values_of(proto).shape("a") == (4, 4)


def test_an_old_model_may_declare_its_weights_loosely() -> None:
    """Below IR version 4 the initializer says what its shape is, whatever the input of its name says."""
    proto = net(
        "(float[N,4] x) => (float[] y) { y = MatMul(x, w) }", {"w": numbers(4, 3)}, opset=8, ir=3
    )
    proto.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "K"
    values = values_of(proto)
    assert values.shape("w") == (4, 3)
    assert values.shape("y") == ("N", 3)


def test_no_constant_grows_out_of_hand() -> None:
    """A weight of any size is turned and reshaped; nothing else makes a large constant of a small one."""
    proto = net(
        """(float[N,4] x) => (float[] y)
        { a = Transpose(w) b = Reshape(a, flat) c = Expand(one, big) d = Add(w, w) y = Relu(x) }""",
        {"w": numbers(300, 200), "flat": ints(-1), "one": numbers(1), "big": ints(1000, 1000)},
    )
    constants = values_of(proto).constants
    assert {"a", "b"} <= constants.keys()
    assert not {"c", "d"} & constants.keys()
    np.testing.assert_array_equal(constants["b"].load(), numbers(300, 200).T.ravel())


OLD = {
    "a": (7, "a = ReduceSum<axes=[1],keepdims=0>(w) b = Slice<starts=[1],ends=[2],axes=[0]>(w)"),
    "b": (11, "a = ReduceMax<axes=[-1]>(w) b = Clip(w, low)"),
    "c": (11, "a = Range(one, four, one) b = Gather<axis=1>(w, index)"),
    "d": (12, "a = Pad(w, pads) b = Pow(w, two)"),
    "e": (13, "a = Softmax(w) b = Hardmax<axis=0>(w)"),
    "f": (9, "a = Cast<to=7>(w) b = Sum(w, w, w)"),
}


@pytest.mark.parametrize("kind", OLD)
def test_old_opsets_fold_what_has_not_changed_since(kind: str) -> None:
    """Ops that mean the same now, and those whose old versions the evaluator knows as well."""
    opset, text = OLD[kind]
    weights: dict[str, ArrayLike] = {
        "w": numbers(2, 3),
        "low": np.float32(0),
        "one": np.int64(1),
        "four": np.int64(4),
        "index": ints(0, 2),
        "pads": ints(0, 1, 1, 0),
        "two": np.float32(2),
    }
    proto = net(f"(float[N] x) => (float[] y) {{ {text} y = Neg(x) }}", weights, opset=opset, ir=6)
    constants, seen = values_of(proto).constants, every_value(proto, feeds(proto))
    for name in "ab":
        np.testing.assert_allclose(constants[name].load(), seen[name], rtol=1e-6)


@pytest.mark.parametrize("opset", [9, 11, 12, 13, 17])
@pytest.mark.parametrize("axis", ["", "<axis=1>", "<axis=-1>", "<axis=0>"])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_what_an_op_meant_in_its_opset_counts(op: str, axis: str, opset: int) -> None:
    """Softmax flattened its input up to opset 12: no number of the newer kind stands for the older one."""
    if opset == 9 and axis == "<axis=-1>":
        pytest.skip("negative axes came with opset 11")
    text = f"(float[N] x) => (float[] y) {{ a = {op}{axis}(w) y = Neg(x) }}"
    proto = net(text, {"w": numbers(2, 3, 4)}, opset=opset, ir=6)
    const = values_of(proto).constants.get("a")
    assert (const is not None) == (opset >= 13)
    if const is not None:
        seen = every_value(proto, feeds(proto))["a"]
        np.testing.assert_allclose(const.load(), seen, rtol=1e-5, atol=1e-6)


# -- sizes as values --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_sizes_as_values_are_those_of_every_run(name: str) -> None:
    """A vector of sizes, its symbols bound, is the vector that the run computes."""
    values = studied(name).values
    for sizes, seen in sightings(name):
        binding = {symbol(n): size for n, size in sizes.items()}
        for value in values.ints.keys() & seen.keys():
            dims = values.ints[value]
            if all(part in binding for d in dims for part in symbols_of(d)):
                found = [evaluate(d, binding) for d in dims]
                assert found == seen[value].ravel().tolist(), value
                assert seen[value].dtype.kind == "i"


def test_sizes_are_followed_through_shape_arithmetic() -> None:
    """Shape, Gather, Unsqueeze, Concat, Slice: the operand of a Reshape keeps its symbols."""
    found = studied("reshape by sizes").values.ints
    assert found["s"] == ("B", "S", 12)
    assert found["to"] == ("B", "S", 4, 3)
    assert found["back"] == ("B", "S", -1)
    assert found["tail"] == ("S", 12)
    assert found["last"] == (12,)


def test_sizes_that_turn_out_known_are_constant() -> None:
    """The known part of a shape folds, so that bounds computed from it are numbers."""
    values = studied("size arithmetic").values
    assert same(np.asarray(values.constants["k"].load()), np.asarray(6))
    assert same(np.asarray(values.constants["half"].load()), np.asarray(3))
    assert values.shape("a") == ("N", 3)
    assert same(np.asarray(values.constants["k32"].load()), np.asarray(6, np.int32))
    assert values.ints["back"] == (6,)
    assert "n" not in values.constants


SLICES = [(0, 2, 1), (1, 99, 1), (-2, 99, 1), (0, -1, 2), (99, -99, -1), (-1, 0, -2), (2, 2, 1)]


@pytest.mark.parametrize("bounds", SLICES)
def test_a_slice_of_sizes_is_that_of_the_runtime(bounds: tuple[int, int, int]) -> None:
    """Negative bounds, bounds beyond the end, steps of either sign."""
    start, end, step = bounds
    proto = net(
        "(float[N,M,3,5] x) => (float[] y) { s = Shape(x) t = Slice(s, a, b, c, d) y = Relu(x) }",
        {"a": ints(start), "b": ints(end), "c": ints(0), "d": ints(step)},
    )
    seen = every_value(proto, feeds(proto, N=7, M=11))
    found = values_of(proto).ints["t"]
    assert [evaluate(d, {"N": 7, "M": 11}) for d in found] == seen["t"].tolist()


# -- equal values -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted({*MODELS} - RANDOM))
def test_values_with_one_first_name_are_equal_in_every_run(name: str) -> None:
    """To the bit; and a first name is its own first name."""
    values = studied(name).values
    for value, first in values.canon.items():
        assert values.first(first) == first
        for _, seen in sightings(name):
            assert same(seen[value], seen[first]), (value, first)
    assert values.undone.items() <= values.canon.items()


def test_other_names_for_a_value_are_seen_through() -> None:
    """Identity, Cast to the same type, Transpose in order, Dropout at inference; equal ops on equals."""
    values = studied("names twice").values
    first = {n: values.first(n) for n in "abcdefghijklmnopq"}
    assert first["a"] == "x"
    assert {first[n] for n in "bcdef"} == {"b"}
    for alone in ("aa", "ab", "ac", "ae"):  # a Concat, Sum, Mean or Min of one
        assert values.first(alone) == "x"
    assert values.first("ad") == "b"
    assert first["k"] == first["i"]
    assert first["g"] == first["h"]  # both add b to itself
    assert len({first[n] for n in "gijlmnopq"}) == 9


NEVER = {
    "attribute": "a = LeakyRelu<alpha=0.1>(x) b = LeakyRelu<alpha=0.2>(x)",
    "default": "a = LeakyRelu(x) b = LeakyRelu<alpha=0.02>(x)",
    "slot": "a = Clip(x, h) b = Clip(x, , h)",
    "order": "a = Sub(x, h) b = Sub(h, x)",
    "axis": "a = Softmax<axis=0>(x) b = Softmax<axis=1>(x)",
    "operand": "a = Mul(x, h) b = Mul(x, two)",
    "kind": "a = Sin(x) b = Cos(x)",
    "type": "a = Cast<to=7>(x) b = Cast<to=6>(x)",
    "narrow": "a = Cast<to=10>(x) b = Cast<to=1>(a)",
    "domain": "a = f.Relu(x) b = Relu(x)",
    "known domain": "a = com.microsoft.Gelu(x) b = Gelu(x)",
    "function": "a = f.Relu(x) b = f.Relu(x)",
    "order of a Transpose": "a = Transpose(x) b = Transpose<perm=[1,0]>(x)",
    "random": "a = RandomNormalLike(x) b = RandomNormalLike(x)",
    "seeded": "a = RandomNormalLike<seed=1.0>(x) b = RandomNormalLike<seed=1.0>(x)",
    "training": "a, m = Dropout(x, h, yes) b, n = Dropout(x, h, yes)",
    "training as an input": "a = Dropout(x, h, p) b = Dropout(x, h, p)",
    "contrib training": "a, m = com.microsoft.BiasDropout(x, r, , h, yes) "
    "b, n = com.microsoft.BiasDropout(x, r, , h, yes)",
}
ONCE = {"order of a Transpose"}  # of these the two are equal, but not equal to x


@pytest.mark.parametrize("kind", NEVER)
def test_what_may_differ_has_two_names(kind: str) -> None:
    """Other attributes, operands, slots or types; random ops and functions, even with equal inputs."""
    proto = net(
        f"(float[N,4] x, bool p) => (float[] y) {{ {NEVER[kind]} y = Add(x, x) }}"
        '<domain: "f", opset_import: ["" : 17]> Relu (u) => (v) { v = Neg(u) }',
        {
            "h": np.float32(0.5),
            "two": np.float32(2),
            "yes": np.array(True),
            "r": numbers(4),
        },
        domains={"f": 1, "com.microsoft": 1},
    )
    values = values_of(proto)
    assert values.first("a") == "a"
    assert values.first("b") == "b" or kind in ONCE
    assert "x" not in {values.first("a"), values.first("b")}


def test_a_dropout_at_inference_is_its_input() -> None:
    """Without a training flag, or with one that says no; its mask is a value of its own."""
    proto = net(
        "(float[N,4] x) => (float[] y) { a = Dropout(x) b, m = Dropout(x, h) c = Dropout(x, h, no) "
        "y = Sum(a, b, c) }",
        {"h": np.float32(0.5), "no": np.array(False)},
    )
    values = values_of(proto)
    assert [values.first(n) for n in "abm"] == ["x", "x", "m"]
    seen = every_value(proto, feeds(proto))
    assert same(seen["c"], seen["x"])
    assert values.first("c") == "x"


def test_a_twin_with_fewer_outputs_is_no_twin() -> None:
    """Nodes that differ in the number of outputs may compute in another way; they stay apart."""
    proto = net(
        "(float[N,4] x) => (float[] y) { a, m = Dropout(z) b = Dropout(z) z = Relu(x) "
        "c, i = TopK(x, k) d, j = TopK(x, k) y = Add(c, d) "
        "e, n, s = LayerNormalization(x, w) g = LayerNormalization(x, w) }",
        {"k": ints(2), "w": numbers(4)},
    )
    values = values_of(proto)
    assert values.first("a") == values.first("b") == "z"
    assert (values.first("e"), values.first("g")) == ("e", "g")
    assert (values.first("d"), values.first("j")) == ("c", "i")


def test_a_split_that_undoes_a_concat_gives_the_lanes() -> None:
    """And so does a Slice or a Gather of one whole lane, through Reshape and Transpose."""
    values = studied("undone").values
    undone = {"a": "p", "b": "q", "d": "r", "e": "q", "h": "r"}
    assert values.undone == undone


# -- sizes that a Concat takes to be equal ------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "body", "same"),
    [
        ("float[A,4] x, float[B,4] z", "y = Concat<axis=1>(x, z)", True),
        ("float[A,4] x, float[B,4] z", "r = Relu(z) s = Tanh(x) y = Concat<axis=-1>(s, r)", True),
        (
            "float[A,2,4] x, float[B,2,4] z",
            "a = Reshape(x, f) b = Reshape(z, f) y = Concat<axis=1>(a, b)",
            True,
        ),
        ("float[A,4] x, float[B,4] z", "y = Concat<axis=0>(x, z)", False),
        ("float[A,4] x, float[B,4] z", "y = Add(x, z)", False),
        ("float[A,4] x, float[B,4] z", "c = Concat<axis=1>(x, z) y = Relu(x)", False),
    ],
)
def test_what_a_concat_puts_side_by_side_is_of_one_size(inputs: str, body: str, same: bool) -> None:
    """Sizes of two names are one, from the inputs on, where a node that runs needs them to be."""
    model = net(f"({inputs}) => (float[] y) {{ {body} }}", {"f": ints(-1, 4)})
    values = analysed(model).values
    first, second = values.shape("x"), values.shape("z")
    assert first is not None
    assert second is not None
    assert (first[0] == second[0]) == same


def test_three_names_become_one() -> None:
    """Each is equal to the next; what is not put beside them keeps its name."""
    text = (
        "(float[C,4] x, float[B,4] y, float[A,4] z, float[D,4] w) => (float[] u, float[] v, float[] t) "
        "{ u = Concat<axis=1>(x, y) v = Concat<axis=1>(y, z) t = Relu(w) }"
    )
    values = analysed(net(text)).values
    assert [(values.shape(n) or ("",))[0] for n in "xyzw"] == ["A", "A", "A", "D"]


def test_towers_of_inputs_with_sizes_of_their_own_run_together() -> None:
    """As TensorFlow's exporter writes them: `unk__1`, `unk__2`, ..."""
    weights = {f"w{k}": numbers(4, 5, seed=k) for k in range(3)}
    lines = [f"h{k} = MatMul(x{k}, w{k}) r{k} = Relu(h{k})" for k in range(3)]
    lines.append("y = Concat<axis=1>(r0, r1, r2)")
    inputs = ", ".join(f"float[unk__{k},4] x{k}" for k in range(3))
    model = with_ranks(
        name_nodes(net(f"({inputs}) => (float[] y) {{ {' '.join(lines)} }}", weights))
    )
    new = onnx_sched.optimize(model, choose="always").proto
    assert len(nodes_of(new, "MatMul")) == 1
    sizes = [{f"unk__{k}": n for k in range(3)} for n in (1, 3, 0)]
    assert compare(model, new, *sizes) == 3
