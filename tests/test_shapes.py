"""What is inferred about types and shapes is what ONNX Runtime finds, at every size."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

from onnx_sched.dims import Dim, Shape, symbol
from onnx_sched.shapes import ValueType, from_proto, to_proto
from onnx_sched.sizes import expanded, reshaped
from onnx_sched.values import Values
from tests.nets import (
    Array,
    analysed,
    bindings,
    evaluate,
    every_value,
    feeds,
    ints,
    net,
    numbers,
    symbols,
    symbols_of,
)
from tests.zoo import DOMAINS, MODELS, ZOO, Sizes, model, sightings, studied


def known_shapes(values: Values, seen: Mapping[str, Array]) -> dict[str, Shape]:
    """Inferred shapes of the values that a run showed."""
    shapes = {name: values.shape(name) for name in seen}
    return {name: shape for name, shape in shapes.items() if shape is not None}


def equations(values: Values, sizes: Sizes, seen: Mapping[str, Array]) -> dict[Dim, int]:
    """Check all inferred sizes against one run; returns what every size turned out to be."""
    found: dict[Dim, int] = {symbol(name): size for name, size in sizes.items()}
    for name, shape in known_shapes(values, seen).items():
        assert len(shape) == seen[name].ndim, (name, shape, seen[name].shape)
        for dim, size in zip(shape, seen[name].shape, strict=True):
            expected = dim if isinstance(dim, int) else found.setdefault(dim, size)
            assert size == expected, (name, shape, seen[name].shape)
    for dim, size in found.items():
        parts = symbols_of(dim)
        if all(p in found for p in parts):
            assert evaluate(dim, {p: found[p] for p in parts}) == size, dim
    return found


@pytest.mark.parametrize("name", MODELS)
def test_inferred_sizes_are_those_of_every_run(name: str) -> None:
    """A number is that number, a symbol is one size throughout a run, a product is the product.

    So two values of equal symbolic shapes have equal shapes whenever the model runs.
    """
    values = studied(name).values
    for sizes, seen in sightings(name):
        equations(values, sizes, seen)


@pytest.mark.parametrize("name", MODELS)
def test_inferred_types_are_those_of_every_run(name: str) -> None:
    """The element type of every value that has one."""
    values = studied(name).values
    for _, seen in sightings(name):
        for value, array in seen.items():
            if value in values.types and array.dtype != object:
                kind = helper.tensor_dtype_to_np_dtype(values.types[value].elem_type)
                assert array.dtype == kind, value


OPEN = {
    "two names": "",
    "draws": "a b c d e f g gm h hm k l y",
    "bodies": "a b c d y",
    "functions": "a b y",
    "reshape by sizes": "",
    "size arithmetic": "",
    "images": "h",  # a pool that rounds up may or may not count a last window
    "by data": "i j k l m n",
    "names twice": "",
}


@pytest.mark.parametrize("name", ZOO)
def test_what_could_be_known_is_known(name: str) -> None:
    """The shape of every value is known (its rank, and a size or a symbol for each axis).

    Except for what draws numbers, bodies and functions.
    """
    values = studied(name).values
    _, seen = sightings(name)[0]
    known = known_shapes(values, seen)
    allowed = set(OPEN.get(name, "").split())
    assert {value for value in seen if value not in known} <= allowed


def shapes_of(name: str) -> dict[str, Shape]:
    return known_shapes(studied(name).values, sightings(name)[0][1])


EQUAL = {
    "elementwise": "x a b d e y",
    "linear": "e f",
    "reshape by numbers": "d y",
    "reshape by sizes": "x y",
    "cuts": "f h",
    "same cuts": "y w a",
    "images": "b c d",
    "even cuts": "a b c y",
    "norms": "x a b y c",
    "by data": "a e",
    "by inputs": "d ae",
    "names twice": "x a b c d e f g h i j k l m n o p q",
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_questions_have_equal_answers(name: str) -> None:
    """Equal ops on equal shapes have equal shapes, whatever they are: one symbol serves them all.

    This is all that batching asks about open sizes.
    """
    shapes = shapes_of(name)
    if name == "linear":  # one keeps the axis
        assert shapes["e"] == (*shapes["f"], 1)
        return
    first, *rest = EQUAL[name].split()
    assert shapes[first]
    for other in rest:
        assert shapes[other] == shapes[first], other


def test_sizes_reach_the_shapes_that_are_made_of_them() -> None:
    """ConstantOfShape, Expand and Reshape by computed sizes: the symbols are those of the input."""
    shapes = shapes_of("size arithmetic")
    assert shapes["z"] == ("N",)
    assert shapes["full"] == ("N", 6)
    shapes = shapes_of("expand and tile")
    assert shapes["e"] == ("M",)
    assert shapes["c"] == ("N", "M")
    assert shapes_of("reshape by sizes")["a"] == ("B", "S", 4, 3)


UNEQUAL = {
    "two names": "x z|y w|x a",
    "by data": "a b|y w|y f|c d",
    "by inputs": "y w|a b|h m|n p|q r|d g|aa ac|af w",
    "expand and tile": "a b",
    "images": "b q|a e",
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_sizes_that_follow_from_data_are_never_equal(name: str) -> None:
    """What other data, or another input, decides is another size, until structure says otherwise."""
    shapes = shapes_of(name)
    for pair in UNEQUAL[name].split("|"):
        one, other = pair.split()
        assert shapes[one] != shapes[other], pair


def test_a_size_without_a_name_is_one_of_its_own() -> None:
    """Axes that the model does not name differ from each other and from every named one."""
    values = analysed(net("(float[?,N] x, float[?,N] z) => (float[] y) { y = Relu(x) }")).values
    x, z = values.types["x"].shape, values.types["z"].shape
    assert x is not None
    assert z is not None
    assert x[1] == z[1] == "N"
    assert len({x[0], z[0], "N"}) == 3
    assert values.shape("y") == x


def test_a_size_that_goes_by_any_name_is_told_apart() -> None:
    """Names with a `*` or of digits alone are names, not products or numbers."""
    values = analysed(renamed_dims("2*n", "7")).values
    shape = values.shape("y")
    assert shape is not None
    assert shape == values.shape("x")
    assert not any(isinstance(d, int) for d in shape)
    assert len(set(shape)) == 2


def renamed_dims(*names: str) -> ModelProto:
    """A Relu of an input whose axes have the given names."""
    proto = net("(float[N,M] x) => (float[] y) { y = Relu(x) }")
    for dim, name in zip(proto.graph.input[0].type.tensor_type.shape.dim, names, strict=True):
        dim.dim_param = name
    return proto


def test_a_negative_size_is_an_open_one() -> None:
    """Some exporters write -1 for a size that they do not know."""
    proto = net("(float[N,4] x) => (float[] y) { y = Relu(x) }")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    shape = analysed(proto).values.shape("y")
    assert shape is not None
    assert isinstance(shape[0], str)


def test_what_nobody_declared_is_not_believed() -> None:
    """Notes on inner values (an exporter's sample sizes) do not freeze a size; outputs do not, either."""
    proto = net("(float[N,4] x) => (float[3,4] y) { a = Relu(x) y = Neg(a) }")
    proto.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [3, 4]))
    values = analysed(proto).values
    assert values.shape("a") == ("N", 4)
    assert values.shape("y") == ("N", 4)


@pytest.mark.parametrize("domain", ["not.known", "com.microsoft"])
def test_an_op_that_nobody_knows_ends_the_trail(domain: str) -> None:
    """Unknown ops give unknown values, not errors."""
    proto = net(
        f"(float[N,4] x) => (float[] y) {{ a = {domain}.Mystery(x) y = Relu(a) }}",
        domains={domain: 1},
    )
    values = analysed(proto).values
    assert values.shape("a") is None
    assert values.shape("y") is None


BROKEN = {
    "arity": "(float[N,4] x) => (float[] y) { y = Add(x) }",
    "too few outputs": "(float[N,4] x) => (float[] y) { y = TopK(x, k) }",
    "clash": "(float[N,4] x, float[N,5] z) => (float[] y) { y = Add(x, z) }",
    "attribute": "(float[N,4] x) => (float[] y) { y = Relu<axes=[1]>(x) }",
    "rank": "(float[N,4] x) => (float[] y) { y = Conv(x, x) }",
    "axis": "(float[N,4] x) => (float[] y) { y = Softmax<axis=9>(x) }",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_node_that_is_wrong_is_left_to_onnx_runtime(kind: str) -> None:
    """A node that breaks its op's rules gives unknown values here, and no error of onnx's own."""
    values = analysed(net(BROKEN[kind], {"k": ints(1)})).values
    assert "y" not in values.types or values.types["y"].elem_type


def test_attention_keeps_its_open_sizes() -> None:
    """ONNX's own inference takes an open size for 0 here; no run has such a shape."""
    proto = net(
        "(float[B,S,D] q, float[B,S,D] k, float[B,S,D] v) => (float[] y) "
        "{ y = Attention<q_num_heads=2,kv_num_heads=2>(q, k, v) }",
        opset=23,
        ir=10,
    )
    values = analysed(proto).values
    for sizes in bindings(symbols(proto), (2, 3, 8)):
        equations(values, sizes, every_value(proto, feeds(proto, **sizes)))


def test_one_question_with_other_slots_left_out() -> None:
    """Leaving out an output of one node does not hide the same output of the next."""
    proto = net(
        "(float[N,4] x, float[N,4] z) => (float[] y) "
        "{ a, , s = LayerNormalization(x, w) b, m, t = LayerNormalization(z, w) y = Add(a, b) }",
        {"w": numbers(4)},
    )
    values = analysed(proto).values
    assert values.shape("m") == values.shape("t") == ("N", 1)


@pytest.mark.parametrize("name", ZOO)
def test_the_same_model_gets_the_same_symbols(name: str) -> None:
    """Analysing twice gives the same shapes, symbol by symbol."""
    assert analysed(model(name)).values.types == studied(name).values.types


# -- the parts by themselves ------------------------------------------------------------------------

sizes = st.sampled_from([1, 2, 3, 4, 6])
dims: st.SearchStrategy[Dim] = st.sampled_from([0, 1, 2, 3, "B", "S", "2*B", "B*S"])
filled = st.fixed_dictionaries({"B": st.integers(1, 3), "S": st.integers(1, 3)})


@given(
    st.lists(dims, max_size=4).map(tuple),
    st.lists(st.one_of(dims, st.sampled_from([0, -1])), max_size=4),
    st.booleans(),
    filled,
)
def test_reshaped_is_what_reshape_gives(
    shape: Shape, target: list[Dim], zero_copies: bool, binding: dict[str, int]
) -> None:
    """Where the shape after a Reshape is known, and the Reshape is legal, numpy finds that shape."""
    result = reshaped(shape, target, zero_copies)
    bound = [evaluate(d, binding) for d in shape]
    asked = [evaluate(d, binding) if d != -1 else -1 for d in target]
    if zero_copies and any(t == 0 and k >= len(bound) for k, t in enumerate(asked)):
        assert result is None
        return
    plain = [bound[k] if t == 0 and zero_copies else t for k, t in enumerate(asked)]
    try:
        expected = np.zeros(bound).reshape(plain).shape
    except ValueError:
        return
    if result is not None:
        assert tuple(evaluate(d, binding) for d in result) == expected


@given(sizes, sizes, st.lists(sizes, min_size=1, max_size=3), filled)
def test_a_reshape_that_splits_or_joins_axes_keeps_their_sizes(
    a: int, b: int, rest: list[int], binding: dict[str, int]
) -> None:
    """(B, S, a*b) to (0, 0, a, -1), (-1, a*b), (0, a, -1) and back: no size is lost."""
    whole: Shape = ("B", "S", a * b, *rest)
    copies: list[Dim] = [0] * len(rest)
    assert reshaped(whole, [0, 0, -1, *rest], True) == whole
    assert reshaped(whole, [0, 0, a, -1, *rest], True) == ("B", "S", a, b, *rest)
    assert reshaped(("B", "S", a, b, *rest), [0, 0, -1, *rest], True) == whole
    assert reshaped((a, "B", "S"), [0, 0, 0], True) == (a, "B", "S")
    joined = reshaped(("B", "S", *rest), [-1, *rest], True)
    assert joined is not None
    assert joined[1:] == tuple(rest)
    assert evaluate(joined[0], binding) == binding["B"] * binding["S"]
    if rest:
        assert reshaped(("B", *rest), [0, *copies], True) == ("B", *rest)


@given(st.lists(dims, max_size=3).map(tuple), st.lists(dims, max_size=3), filled)
def test_expanded_is_what_expand_gives(
    shape: Shape, target: list[Dim], binding: dict[str, int]
) -> None:
    """Where the shape after an Expand is known, broadcasting finds it; numbers alone are known."""
    result = expanded(shape, target)
    bound = [tuple(evaluate(d, binding) for d in given) for given in (shape, target)]
    try:
        expected = np.broadcast_shapes(*bound)
    except ValueError:
        return
    if result is not None:
        assert tuple(evaluate(d, binding) for d in result) == expected
    else:
        assert any(isinstance(d, str) for d in itertools.chain(shape, target))


@given(st.integers(1, 20), st.one_of(st.none(), st.lists(dims, max_size=4).map(tuple)))
def test_a_type_survives_its_proto(elem_type: int, shape: Shape | None) -> None:
    """Writing a type for ONNX's inference and reading it again gives it back."""
    value = ValueType(elem_type, shape)

    def unnamed(axis: int) -> str:
        raise AssertionError(axis)

    assert from_proto(to_proto(value), unnamed) == value
    assert value.rank == (None if shape is None else len(shape))


def test_only_dense_tensors_have_a_type() -> None:
    """Sequences, maps, optionals and sparse tensors are not followed."""
    tensor = helper.make_tensor_type_proto(1, [2])
    others = [
        helper.make_sequence_type_proto(tensor),
        helper.make_optional_type_proto(tensor),
        helper.make_map_type_proto(7, tensor),
        helper.make_sparse_tensor_type_proto(1, [2]),
        onnx.TypeProto(),
    ]
    assert [from_proto(t, str) for t in others] == [None] * 5


def test_the_zoo_imports_what_it_uses() -> None:
    """Every domain that a model of the zoo names has a version."""
    for name in ZOO:
        assert {node.domain for node in model(name).graph.node} <= {"", *DOMAINS}
