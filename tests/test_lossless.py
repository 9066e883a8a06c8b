"""Nothing is lost: what no group took is in the new model field by field, whatever it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.message import Message
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnx_sched import files
from onnx_sched.errors import ModelError
from tests import backend_cases
from tests.backend_cases import Case, grafted, pruned
from tests.carrying import beyond_the_plan, lost_beside_a_batch, optimized, same_outputs
from tests.feature_models import (
    ELEMENT_TYPES,
    body_of,
    element,
    field_paths,
    host,
    is_text,
    message_paths,
    set_field,
    with_body,
    with_field,
    with_future,
    with_odd_text,
)
from tests.nets import COMMITTED, committed, net, numbers
from tests.protodiff import differences

SAMPLE = 6
"""Every how manieth case is tried here; `scripts/check_lossless.py` tries them all."""


# -- the models of the onnx package -------------------------------------------------------------------


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return backend_cases.collect(backend_cases.SLOW)[::SAMPLE]


def unusual(model: ModelProto) -> bytes:
    """The model in bytes that no writer would make of it: its graph goes before the rest."""
    rest = ModelProto()
    rest.CopyFrom(model)
    rest.ClearField("graph")
    return bytes(ModelProto(graph=model.graph).SerializeToString() + rest.SerializeToString())


def test_a_model_with_nothing_to_do_is_a_byte_copy(cases: list[Case], tmp_path: Path) -> None:
    """The file that comes out is the file that went in; one operator alone is never a batch."""
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    copied = 0
    for case in cases:
        path.write_bytes(unusual(case.model))
        result = optimized(path)
        if result.changed:  # an operator in the many nodes that it stands for
            assert len(case.model.graph.node) > 1, case.name
            assert beyond_the_plan(case.model, result) == [], case.name
            continue
        result.save(out)
        assert out.read_bytes() == path.read_bytes(), case.name
        copied += 1
    assert copied > 200


def test_a_model_beside_a_batch_stays_field_by_field(cases: list[Case]) -> None:
    """Every operator variant of the standard: what does not belong to the group is carried over."""
    for case in cases:
        if backend_cases.in_reach(case.model) and not optimized(case.model).changed:
            assert lost_beside_a_batch(case.model) == [], case.name


def test_outputs_beside_a_batch_are_bitwise_equal(cases: list[Case]) -> None:
    """Where ONNX Runtime runs the model at all, it gives the same bits."""
    ran = Counter(same_outputs(case) for case in cases)
    assert not ran["different"]
    assert ran["same"] > 0.5 * len(cases)


@pytest.mark.parametrize("name", COMMITTED)
def test_only_what_the_plan_names_changes(name: str) -> None:
    """Interface, metadata and all nodes but the members stay; new nodes are groups and glue."""
    model = committed(name)
    assert beyond_the_plan(model, optimized(model)) == []


# -- one model per feature of the format --------------------------------------------------------------


@pytest.mark.parametrize("path", field_paths(), ids=".".join)
def test_every_field_is_carried(path: tuple[str, ...]) -> None:
    """A field set anywhere in the model: in its graph, functions, training, types and attributes."""
    model = with_field(path)
    assert differences(model, host()), "the field is not set"
    assert lost_beside_a_batch(model) == []
    assert not optimized(model).changed
    assert differences(optimized(model).proto, model) == []


@pytest.mark.parametrize("path", message_paths(), ids=lambda path: ".".join(path) or "model")
def test_fields_of_the_future_are_carried(path: tuple[str, ...]) -> None:
    """What the installed onnx does not know is neither read nor lost, wherever it stands."""
    assert lost_beside_a_batch(with_future(path)) == []


NAMES = frozenset(
    "domain dim_param input key name op_type output overload ref_attr_name tensor_name value".split()
)
"""Fields that are looked up somewhere."""

TEXT_PATHS = [p for p in field_paths() if is_text(p)]


@pytest.mark.parametrize("path", TEXT_PATHS, ids=".".join)
def test_text_that_is_no_utf8_is_carried_or_refused(path: tuple[str, ...]) -> None:
    """Notes of all kinds stay byte for byte; where it is a name, the model is refused in words."""
    model = with_odd_text(path)
    refused = ""
    try:
        assert lost_beside_a_batch(model) == []
    except ModelError as error:
        refused = str(error)
    assert not refused or ("UTF-8" in refused and path[-1] in NAMES)


BODY_PATHS = [p[1:] for p in field_paths() if p[0] == "graph" and len(p) > 1]


@pytest.mark.parametrize("path", BODY_PATHS, ids=".".join)
def test_every_field_of_a_body_is_carried(path: tuple[str, ...]) -> None:
    """The same inside a branch of an If in which nodes are batched."""
    lost = lost_in_a_body(lambda body: set_field(body, path))
    assert lost == []


def test_fields_of_the_future_in_a_body_are_carried() -> None:
    """A graph that is put together anew keeps what nobody knows."""
    assert lost_in_a_body(lambda body: body.MergeFromString(b"\xf2\x1f\x02ab")) == []


def lost_in_a_body(change: Callable[[Message], object]) -> list[str]:
    """What a branch loses besides two products that become one in it."""
    model = with_body()
    body = body_of(model)
    change(body)
    shell = ModelProto(graph=body, ir_version=model.ir_version, opset_import=model.opset_import)
    inner = grafted(shell).graph
    model.graph.input.extend(v for v in inner.input if v not in body.input)
    del inner.input[len(body.input) :], inner.output[len(body.output) :]
    # What a branch does not hand out must be read in it, or it is dead and stays.
    names = [f"{backend_cases.GRAFT}_y{k}" for k in range(2)]
    inner.node.add(op_type="Sum", input=names, output=[f"{backend_cases.GRAFT}_sum"])
    inner.output[0].name = f"{backend_cases.GRAFT}_sum"
    body.CopyFrom(inner)
    result = optimized(model)
    assert result.changed
    after = body_of(result.proto)
    return differences(pruned(ModelProto(graph=body)), pruned(ModelProto(graph=after)))


PLACES: dict[str, Callable[[ModelProto, TensorProto], object]] = {
    "initializer": lambda model, tensor: model.graph.initializer.append(tensor),
    "read": lambda model, tensor: (
        model.graph.initializer.append(tensor),
        model.graph.node.append(helper.make_node("Identity", [tensor.name], ["feature_out"])),
    ),
    "constant": lambda model, tensor: model.graph.node.append(
        helper.make_node("Constant", [], ["feature_out"], value=tensor)
    ),
    "attribute": lambda model, tensor: model.graph.node.append(
        helper.make_node("Op", [], ["feature_out"], domain="future", values=[tensor, tensor])
    ),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ELEMENT_TYPES)
def test_every_element_type_is_carried(name: str, place: str) -> None:
    """2-, 4-, 6- and 8-bit numbers, complex ones, strings that are no UTF-8: bit for bit."""
    model = host()
    PLACES[place](model, element(name))
    assert lost_beside_a_batch(model) == []
    assert differences(optimized(model).proto, model) == []


@pytest.mark.parametrize("name", [n for n in ELEMENT_TYPES if n != "STRING"])
def test_every_element_type_is_carried_from_a_file(name: str, tmp_path: Path) -> None:
    """The bytes of an external tensor, and further notes on them, arrive in the new data file."""
    tensor = element(name)
    raw = tensor.raw_data
    (tmp_path / "m.data").write_bytes(b"junk" + raw)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entries = {"location": "m.data", "offset": "4", "length": str(len(raw)), "checksum": "ab"}
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    model = host()
    model.graph.initializer.append(tensor)
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    path.write_bytes(grafted(model).SerializeToString())
    result = optimized(path)
    assert result.changed
    result.save(out)
    source = files.read(out)
    (found,) = (t for t in source.model.graph.initializer if t.name == tensor.name)
    span = files.locate(source, found)
    assert span.path.read_bytes()[span.offset : span.offset + span.length] == raw
    kept = {e.key: e.value for e in found.external_data}
    assert (kept["checksum"], sorted(kept)) == ("ab", sorted(entries))


def test_functions_with_overloads_are_carried() -> None:
    """Functions of one name that differ in their overload stay, and calls say which they mean."""
    model = net(
        """(float[2] host_x) => (float[2] y, float[2] z) { y = f.F(host_x) z = f.F(host_x) }
        <domain: "f", opset_import: ["" : 17]> F (a) => (b) { b = Relu(a) }""",
        domains={"f": 1},
    )
    model.functions.add().CopyFrom(model.functions[0])
    for k, kind in enumerate(("one", "two")):
        model.functions[k].overload = model.graph.node[k].overload = kind
    model.functions[1].node[0].op_type = "Neg"
    assert lost_beside_a_batch(model) == []


def test_quantization_notes_on_what_was_batched_stay() -> None:
    """Notes on tensors belong to the graph, not to the nodes that read them."""
    model = grafted(host())
    note = model.graph.quantization_annotation.add(tensor_name=f"{backend_cases.GRAFT}_y0")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    result = optimized(model)
    assert result.changed
    assert list(result.proto.graph.quantization_annotation) == [note]


def test_sparse_initializers_are_carried_and_read() -> None:
    """A sparse weight stays sparse beside a batch that reads dense ones."""
    model = net("(float[2,3] x) => (float[2,3] y) { y = MatMul(x, s) }")
    values = numpy_helper.from_array(numbers(2), "s")
    indices = numpy_helper.from_array(numbers(2).astype("int64") * 0 + [1, 5], "s_indices")
    sparse = helper.make_sparse_tensor(values, indices, [3, 3])
    model.graph.sparse_initializer.append(sparse)
    assert lost_beside_a_batch(model) == []
