"""Random inputs: seeded, legal, of the right type and size."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, parser

from onnx_sched.errors import UsageError
from onnx_sched.judge.feeds import Binding, InputSpec, input_specs, make_feeds, plan_sizes
from onnx_sched.judge.index_limits import index_limits
from onnx_sched.judge.inputs import overridable_names
from onnx_sched.judge.runtime import open_session, run


def parse(text: str, ir: int = 8) -> ModelProto:
    return parser.parse_model(f'<ir_version: {ir}, opset_import: ["" : 17]> {text}')


def typed(dtype: int, name: str = "x", shape: tuple[int | str | None, ...] = (50, 4)) -> ModelProto:
    value = helper.make_tensor_value_info(name, dtype, shape)
    graph = helper.make_graph([helper.make_node("Identity", [name], ["y"])], "g", [value], [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def first_feed(model: ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    return make_feeds(model, plan_sizes(input_specs(model))[0], seed)


def test_input_specs_read_names_types_and_sizes() -> None:
    """Fixed, named and open axes; a scalar; an open rank."""
    model = parse(
        "g (float[2,N,?] x, int64 s, bool[] any, string[N] w) => (float y) { y = Abs(s) }"
    )
    model.graph.input[2].type.tensor_type.ClearField("shape")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert input_specs(model) == (
        InputSpec("x", "float32", (None, "N", None)),
        InputSpec("s", "int64", ()),
        InputSpec("any", "bool", None),
        InputSpec("w", "string", ("N",)),
    )


@pytest.mark.parametrize(("ir", "overridable"), [(3, ()), (8, ("w",))])
def test_weights_are_not_fed(ir: int, overridable: tuple[str, ...]) -> None:
    """Inputs that are initializers: mere weights below IR version 4, defaults from there on."""
    model = parse("g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }", ir)
    model.graph.initializer.append(helper.make_tensor("w", 1, [2], [1.0, 2.0]))
    assert [spec.name for spec in input_specs(model)] == ["x"]
    assert overridable_names(model) == overridable
    assert list(first_feed(model)) == ["x"]


@pytest.mark.parametrize(
    "name",
    "FLOAT DOUBLE FLOAT16 BFLOAT16 FLOAT8E4M3FN INT8 UINT8 INT16 UINT16 INT32 UINT32 INT64 UINT64 "
    "BOOL STRING COMPLEX64 COMPLEX128".split(),
)
def test_every_type_can_be_made(name: str) -> None:
    """Each element type gives an array of exactly that type, with more than one value in it."""
    elem = getattr(TensorProto, name)
    array = first_feed(typed(elem))["x"]
    assert array.shape == (50, 4)
    assert array.dtype == helper.tensor_dtype_to_np_dtype(elem)
    assert len(set(array.reshape(-1).tolist())) > 1
    assert array.dtype.kind != "c" or array.imag.any()


@pytest.mark.parametrize("name", ["FLOAT", "BFLOAT16", "INT64", "BOOL", "STRING", "COMPLEX64"])
def test_scalars_are_arrays(name: str) -> None:
    """A scalar input is an array without axes, never a Python number."""
    array = first_feed(typed(getattr(TensorProto, name), shape=()))["x"]
    assert isinstance(array, np.ndarray)
    assert array.shape == ()


def test_numbers_depend_on_seed_and_name_alone() -> None:
    """The order of the inputs does not matter; another seed or name gives other numbers."""
    one = parse("g (float[4] a, float[4] b) => (float[4] y) { y = Add(a, b) }")
    two = parse("g (float[4] b, float[4] a) => (float[4] y) { y = Add(a, b) }")
    first, second = first_feed(one), first_feed(two)
    np.testing.assert_array_equal(first["a"], second["a"])
    np.testing.assert_array_equal(first["a"], first_feed(one)["a"])
    assert (first["a"] != first["b"]).any()
    assert (first["a"] != first_feed(one, seed=1)["a"]).any()


def test_floats_are_normal() -> None:
    """Of both signs, of size one: neither zeros nor all positive."""
    array = first_feed(typed(TensorProto.FLOAT, shape=(200, 50)))["x"]
    assert abs(array.mean()) < 0.05
    assert abs(array.std() - 1) < 0.05


def test_masks_are_zero_or_one() -> None:
    """An integer mask holds both and nothing else; other integers are small and not negative."""
    assert set(first_feed(typed(TensorProto.INT64, "attention_mask"))["attention_mask"].flat) == {
        0,
        1,
    }
    plain = set(first_feed(typed(TensorProto.INT64))["x"].flat)
    assert plain == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "body",
    [
        "y = Gather(table, i)",
        "y = Gather<axis=-2>(table, i)",
        "a = Cast<to=7>(i) b = Identity(a) y = Gather(table, b)",
        "s = Constant<value_ints=[-1]>() a = Reshape(i, s) y = Gather(table, a)",
        "a = Transpose<perm=[1, 0]>(i) b = Flatten(a) y = Gather(table, b)",
        "z = Constant<value=int64[1] {0}>() a = Unsqueeze(i, z) y = Gather(table, a)",
        "a, b = Split<axis=0>(i) y = Gather(table, b)",
        "one = Constant<value=int64[1] {1}>() a = Concat<axis=0>(one, one) "
        "b = Gather(i, a) y = Gather(table, b)",
        "a = Concat<axis=1>(i, i) b = Identity(table) y = Gather(b, a)",
    ],
)
def test_indices_stay_inside_their_table(body: str) -> None:
    """Whatever way an integer takes to its table of 3 rows, it is 0, 1 or 2, and all of them occur."""
    model = parse(f"g (int64[20,6] i) => (float y) {{ {body} }}")
    model.graph.initializer.append(helper.make_tensor("table", 1, [3, 5], [0.0] * 15))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    assert index_limits(model) == {"i": 3}
    feeds = first_feed(model)
    assert set(feeds["i"].flat) == {0, 1, 2}
    run(open_session(model.SerializeToString(), "cpu"), feeds)


def limits(text: str, *shapes: tuple[str, list[int]]) -> dict[str, int]:
    model = parse(text)
    for name, shape in shapes:
        size = int(np.prod(shape))
        model.graph.initializer.append(helper.make_tensor(name, 1, shape, [0.0] * size))
    return index_limits(model)


def test_an_offset_in_front_of_the_table_counts() -> None:
    """Positions that are shifted by a constant 2 have two rows less."""
    two = "two = Constant<value=int64 {2}>()"
    text = f"g (int64[4] i) => (float y) {{ {two} a = Add(two, i) y = Gather(t, a) }}"
    assert limits(text, ("t", [10, 5])) == {"i": 8}


def test_the_smallest_of_several_tables_counts() -> None:
    """One input, two tables: it must be legal in both, also along another axis."""
    text = "g (int64[4] i) => (float y) { a = Gather(t, i) y = Gather<axis=1>(u, i) }"
    assert limits(text, ("t", [10, 5]), ("u", [10, 4])) == {"i": 4}
    assert limits(text, ("t", [3, 5]), ("u", [10, 4])) == {"i": 3}


def test_a_table_of_unknown_size_has_row_zero() -> None:
    """Where the number of rows is open, only index 0 is sure to be legal."""
    text = "g (int64[4] i, float[N,5] x) => (float y) { y = Gather(x, i) }"
    assert limits(text) == {"i": 1}
    assert limits(text.replace("y = Gather(x", "r = Relu(x) y = Gather(r")) == {"i": 1}


def test_data_is_not_an_index() -> None:
    """What is gathered from, or compared, has no limit."""
    text = "g (int64[4] i, int64[2] j) => (int64 y, bool z) { y = Gather(i, j) z = Equal(i, i) }"
    assert limits(text) == {"j": 4}
    shape = "g (int64[4] i, int64[2] s) => (float y) { a = Reshape(i, s) y = Gather(t, a) }"
    assert limits(shape, ("t", [9, 5])) == {"i": 9}


def test_floats_that_become_an_index_are_whole_and_in_range() -> None:
    """Tables of features often come as floats and are cast: they must be legal as well."""
    model = parse("g (float16[40] x) => (float y) { a = Cast<to=7>(x) y = Gather(t, a) }")
    model.graph.initializer.append(helper.make_tensor("t", 1, [3, 1], [0.0] * 3))
    array = first_feed(model)["x"]
    assert array.dtype == np.float16
    assert set(array.tolist()) == {0.0, 1.0, 2.0}


def test_indices_are_found_inside_bodies() -> None:
    """A table that is read inside an If limits the input outside."""
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 5])
    branch = helper.make_graph([helper.make_node("Gather", ["t", "i"], ["y"])], "b", [], [value])
    node = helper.make_node("If", ["c"], ["out"], then_branch=branch, else_branch=branch)
    inputs = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("i", TensorProto.INT64, [4]),
    ]
    table = helper.make_tensor("t", 1, [6, 5], [0.0] * 30)
    graph = helper.make_graph([node], "g", inputs, [], [table])
    assert index_limits(helper.make_model(graph)) == {"i": 6}


def test_what_cannot_be_made_asks_for_inputs() -> None:
    """A sequence, or an input without a shape, is an error that names the flag to use."""
    model = parse(
        "g (seq(float[2]) s) => (float[2] y) { i = Constant<value=int64 {0}>() y = SequenceAt(s, i) }"
    )
    with pytest.raises(UsageError, match="input s is a sequence") as caught:
        first_feed(model)
    assert "--inputs" in caught.value.hint
    assert input_specs(model) == (InputSpec("s", "float32", None, "sequence"),)
    open_rank = typed(TensorProto.FLOAT)
    open_rank.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UsageError, match="input x has no shape") as caught:
        make_feeds(open_rank, Binding((), ()), 0)
    assert "--shape x:" in caught.value.hint
