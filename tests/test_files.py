"""Models on disk are read without their weights; what is no model is refused in words."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnx_sched import files
from onnx_sched.analysis import analyse
from onnx_sched.errors import ModelError
from onnx_sched.files import Source
from onnx_sched.tensors import external_tensors
from tests.nets import FOLDER, committed, net, numbers
from tests.protodiff import differences
from tests.stored import BIG, beside, external, layered, set_entry

# -- reading what is no model -----------------------------------------------------------------------


def no_graph() -> bytes:
    return bytes(ModelProto(ir_version=8, producer_name="someone").SerializeToString())


def no_opset() -> bytes:
    model = committed("conv_towers")
    del model.opset_import[:]
    return bytes(model.SerializeToString())


BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "text": (b"This is no model.\n", "not an ONNX model"),
    "json": (b'{"graph": {}}', "not an ONNX model"),
    "html": (b"<!DOCTYPE html><html></html>", "not an ONNX model"),
    "zip": (b"PK\x03\x04" + bytes(40), "not an ONNX model"),
    "pickle": (b"\x80\x04\x95" + bytes(20), "not an ONNX model"),
    "git-lfs": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "not an ONNX model",
    ),
    "zeros": (bytes(100), "not an ONNX model"),
    "no graph": (no_graph(), "no graph"),
    "tensor": (numpy_helper.from_array(numbers(3), "t").SerializeToString(), "not an ONNX model"),
    "no opset": (no_opset(), "no operator set"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_model_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    """The error names the file and says what is wrong with it, and what to do."""
    data, reason = BAD[kind]
    path = tmp_path / "thing.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=reason) as caught:
        files.read(path)
    assert str(path) in str(caught.value)
    assert caught.value.hint


def test_a_path_that_is_no_file_is_refused(tmp_path: Path) -> None:
    """A missing file and a directory are told apart."""
    with pytest.raises(ModelError, match="no such file"):
        files.read(tmp_path / "missing.onnx")
    with pytest.raises(ModelError, match="is a directory"):
        files.read(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match="cannot be read"):
        files.read(tmp_path / "file" / "m.onnx")


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    """Too long for the system, or with a zero byte in it: an error in words, too."""
    for name in ("x" * 300, "x\0y"):
        with pytest.raises(ModelError, match="x") as caught:
            files.read(tmp_path / name)
        assert caught.value.hint


@pytest.mark.parametrize("name", ["mmoe", "exported_transformer_dynamo"])
def test_a_model_that_is_cut_off_is_refused(tmp_path: Path, name: str) -> None:
    """Wherever the file ends too early: inside a field, or between the fields that make a model."""
    data = (FOLDER / f"{name}.onnx").read_bytes()
    model = ModelProto.FromString(data)
    assert not model.functions
    assert not model.metadata_props
    path = tmp_path / "cut.onnx"
    for size in {*range(1, 60), *range(60, len(data), max(1, len(data) // 97)), len(data) - 1}:
        path.write_bytes(data[:size])
        with pytest.raises(ModelError, match=r"cut off|no graph|no operator set"):
            files.read(path)
    path.write_bytes(data)
    assert not differences(files.read(path).model, model)


@pytest.mark.parametrize("size", [0, 60, 68])
def test_a_weight_that_does_not_fit_its_shape_is_refused(tmp_path: Path, size: int) -> None:
    """Bytes in the model that are too few or too many: words, not a stack trace from numpy."""
    model = net("(float[N,4] x) => (float[] y) { y = MatMul(x, w) }", {"w": numbers(4, 4)})
    model.graph.initializer[0].raw_data = bytes(size)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="'w'"):
        analyse(files.read(path))


# -- reading external data --------------------------------------------------------------------------


def test_external_data_is_checked_but_not_read(tmp_path: Path) -> None:
    """Reading a model whose weights stand beside it gives the model, weights still outside."""
    path = beside(tmp_path, layered())
    source = files.read(path)
    assert not differences(source.model, external(path))
    assert len(external_tensors(source.model)) == 5


def test_a_model_in_memory_has_nowhere_to_look(tmp_path: Path) -> None:
    """Without a path, external data cannot be found; the error says so."""
    model = external(beside(tmp_path, layered()))
    with pytest.raises(ModelError, match="without a path"):
        files.check(Source(model, None))


Damage = Callable[[Path], Any]


def outside(path: Path) -> None:
    (path.parent.parent / "secret").write_bytes(bytes(1 << 20))
    set_entry(path, "location", "../secret")


def by_link(path: Path) -> None:
    (path.parent / "m.data").rename(path.parent / "blob")
    (path.parent / "m.data").symlink_to("blob")


def through_linked_folder(path: Path) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(path.parent / "m.data", elsewhere / "m.data")
    (path.parent / "sub").symlink_to(elsewhere)
    set_entry(path, "location", "sub/m.data")


def shorten(path: Path) -> None:
    data = path.parent / "m.data"
    os.truncate(data, data.stat().st_size - 1)


def folder(path: Path) -> None:
    (path.parent / "sub").mkdir()
    set_entry(path, "location", "sub")


def negative_size(path: Path) -> None:
    model = external(path)
    external_tensors(model)[0].dims[0] = -1
    path.write_bytes(model.SerializeToString())
    set_entry(path, "length", None)


DAMAGES: dict[str, tuple[Damage, str]] = {
    "missing": (lambda p: (p.parent / "m.data").unlink(), "missing"),
    "too short": (shorten, "cut off|needs bytes"),
    "empty": (lambda p: os.truncate(p.parent / "m.data", 0), "needs bytes"),
    "absolute": (lambda p: set_entry(p, "location", str(p.parent / "m.data")), "outside"),
    "parent": (outside, "outside"),
    "inner parent": (lambda p: set_entry(p, "location", "sub/../m.data"), "outside"),
    "windows parent": (lambda p: set_entry(p, "location", "..\\m.data"), "outside"),
    "no location": (lambda p: set_entry(p, "location", None), "outside"),
    "folder": (lambda p: set_entry(p, "location", "."), "external data '.'"),
    "inner folder": (folder, "is no file"),
    "long name": (lambda p: set_entry(p, "location", "x" * 300), "no name of a file|missing"),
    "zero byte": (lambda p: set_entry(p, "location", "m\0.data"), "no name of a file"),
    "link": (by_link, "link"),
    "linked folder": (through_linked_folder, "link"),
    "offset": (lambda p: set_entry(p, "offset", "99999999"), "needs bytes"),
    "negative offset": (lambda p: set_entry(p, "offset", "-1"), "needs bytes"),
    "odd offset": (lambda p: set_entry(p, "offset", "0x10"), "no number"),
    "wrong length": (lambda p: set_entry(p, "length", "5"), "needs bytes"),
    "negative length": (lambda p: set_entry(p, "length", "-1"), "needs bytes"),
    "odd length": (lambda p: set_entry(p, "length", "long"), "no number"),
    "negative size": (negative_size, "external data 'm.data' .* negative size"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_external_data_that_cannot_be_had_is_refused(tmp_path: Path, kind: str) -> None:
    """The error names the model, and what is wrong with which tensor; nothing outside is opened."""
    path = beside(tmp_path / "model", layered())
    damage, reason = DAMAGES[kind]
    damage(path)
    with pytest.raises(ModelError, match=reason) as caught:
        files.read(path)
    assert str(path) in str(caught.value)
    names = {t.name for t in external_tensors(external(path))}
    assert any(f"tensor {name!r}" in str(caught.value) for name in names)


def test_offset_and_length_may_be_left_out(tmp_path: Path) -> None:
    """Without them a tensor's bytes are the file, from its start, as many as its shape says."""
    model = net("(float[N,4] x) => (float[] y) { y = MatMul(x, w) }", {"w": numbers(4, 4)})
    path = beside(tmp_path, model)
    raw = (tmp_path / "m.data").read_bytes()[3:]
    (tmp_path / "m.data").write_bytes(raw)
    set_entry(path, "offset", None)
    set_entry(path, "length", None)
    source = files.read(path)
    const = files.constant(source, source.model.graph.initializer[0])
    assert const is not None
    np.testing.assert_array_equal(const.load(), numbers(4, 4))


def test_a_type_that_is_still_to_come_keeps_its_bytes(tmp_path: Path) -> None:
    """Nobody here knows how many there must be: as many as the model says, or all."""
    model = net("(float[N,4] x) => (float[] y) { y = MatMul(x, w) }", {"w": numbers(4, 4)})
    path = beside(tmp_path, model)
    proto = external(path)
    proto.graph.initializer[0].data_type = 99
    path.write_bytes(proto.SerializeToString())
    source = files.read(path)
    (tensor,) = external_tensors(source.model)
    assert files.constant(source, tensor) is None
    files.load_external(source, tensor)
    assert tensor.raw_data == numbers(4, 4).tobytes()
    set_entry(path, "length", None)
    again = files.read(path)
    (tensor,) = external_tensors(again.model)
    assert files.read_span(files.locate(again, tensor)) == numbers(4, 4).tobytes()
    set_entry(path, "length", "-1")
    with pytest.raises(ModelError, match="needs bytes"):
        files.read(path)


def test_data_that_shrinks_after_the_check_is_refused(tmp_path: Path) -> None:
    """The file was long enough when it was looked at: what is read later is counted again."""
    source = files.read(beside(tmp_path, layered()))
    span = files.locate(source, external_tensors(source.model)[-1])
    os.truncate(span.path, span.offset + span.length - 1)
    with pytest.raises(ModelError, match=r"m\.data became shorter"):
        files.read_span(span)
    span.path.unlink()
    with pytest.raises(ModelError, match=r"m\.data cannot be read"):
        files.read_span(span)


def test_a_linked_model_finds_its_own_data(tmp_path: Path) -> None:
    """A link to the folder of the model is no link inside it."""
    beside(tmp_path / "real", layered())
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    assert external_tensors(files.read(tmp_path / "alias" / "m.onnx").model)


def test_loading_external_data_makes_a_model_of_one_piece(tmp_path: Path) -> None:
    """Tensor by tensor, the proto becomes the one that had all its numbers inside."""
    source = files.read(beside(tmp_path, layered()))
    for tensor in external_tensors(source.model):
        files.load_external(source, tensor)
    assert not differences(source.model, layered())


# -- constants --------------------------------------------------------------------------------------

TYPES = {
    "FLOAT": np.float32,
    "DOUBLE": np.float64,
    "FLOAT16": np.float16,
    "BFLOAT16": ml_dtypes.bfloat16,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "BOOL": np.bool_,
}


@pytest.mark.parametrize("shape", [(), (3,), (40, 40), (0, 2)])
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("where", ["raw", "typed", "beside"])
def test_constants_load_as_onnx_reads_them(
    tmp_path: Path, name: str, shape: tuple[int, ...], where: str
) -> None:
    """Every type, as raw bytes, in its typed field, and in a file: shape, type and bits are right."""
    kind = TensorProto.DataType.Value(name)
    if helper.tensor_dtype_to_np_dtype(kind) != TYPES[name]:
        pytest.skip("this onnx hands bfloat16 out as float32: passes leave it alone")
    array = (numbers(*shape) * 50).astype(TYPES[name])
    tensor = numpy_helper.from_array(array, "w")
    if where == "typed":
        tensor = helper.make_tensor("w", kind, shape, array.ravel().tolist())
    model = net("(float[2] x) => (float[] y) { y = Relu(x) }")
    model.graph.initializer.append(tensor)
    source = Source(model, None)
    if where == "beside":
        source = files.read(beside(tmp_path, model))
    const = files.constant(source, source.model.graph.initializer[0])
    assert const is not None
    loaded = const.load()
    assert (const.shape, const.elem_type, const.dtype) == (shape, kind, array.dtype)
    assert (loaded.shape, loaded.dtype) == (shape, array.dtype)
    assert loaded.tobytes() == array.tobytes()


def test_an_empty_weight_in_a_file_is_empty(tmp_path: Path) -> None:
    """No bytes at the end of the file, or in a file of none: nothing to map."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[0, 2])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "m.data"), ("offset", "0"), ("length", "0")):
        tensor.external_data.add(key=key, value=value)
    (tmp_path / "m.data").touch()
    const = files.constant(Source(ModelProto(), tmp_path / "m.onnx"), tensor)
    assert const is not None
    assert const.load().shape == (0, 2)
    assert const.load().dtype == np.float32


def test_a_large_weight_in_a_file_is_mapped_not_read(tmp_path: Path) -> None:
    """Loading gives a view of the file's pages: a change in the file shows."""
    model = net("(float[N,64] x) => (float[] y) { y = MatMul(x, w) }", {"w": numbers(*BIG)})
    source = files.read(beside(tmp_path, model))
    const = files.constant(source, source.model.graph.initializer[0])
    assert const is not None
    loaded = const.load()
    assert isinstance(loaded, np.memmap)
    assert not loaded.flags.writeable
    with (tmp_path / "m.data").open("r+b") as file:
        file.seek(3)
        file.write(np.float32(7).tobytes())
    assert loaded[0, 0] == 7


def test_tensors_of_one_name_are_told_apart() -> None:
    """Equal keys promise equal numbers, also for weights in Constant nodes, which bear any name."""
    model = net("(float[N,64] x) => (float[] y) { p = Constant() q = Constant() y = Add(p, q) }")
    for seed, node in enumerate(model.graph.node[:2]):
        tensor = numpy_helper.from_array(numbers(*BIG, seed=seed), "value")
        node.attribute.append(helper.make_attribute("value", tensor))
    constants = analyse(Source(model, None)).values.constants
    assert (constants["p"].load() != constants["q"].load()).any()
    assert constants["p"].key != constants["q"].key


def test_one_span_read_in_two_shapes_is_two_constants(tmp_path: Path) -> None:
    """Tensors may share bytes of a file; a key that is equal promises an equal shape and type, too."""
    model = net(
        "(float[N,64] x) => (float[] y) { y = MatMul(x, w) }",
        {"w": numbers(*BIG), "v": numbers(32, 128), "i": np.zeros(BIG, np.int32)},
    )
    model = external(beside(tmp_path, model))
    first = model.graph.initializer[0]
    for tensor in model.graph.initializer[1:]:
        tensor.ClearField("external_data")
        tensor.external_data.extend(first.external_data)
    source = Source(model, tmp_path / "m.onnx")
    found = [c for t in model.graph.initializer if (c := files.constant(source, t)) is not None]
    assert len({(c.shape, c.dtype) for c in found}) == 3
    assert len({c.key for c in found}) == 3


@pytest.mark.parametrize("kind", ["STRING", "COMPLEX64", "FLOAT8E4M3FN", "INT4"])
def test_types_that_passes_leave_alone_are_no_constants(kind: str) -> None:
    """Strings, complex numbers and packed or 8-bit floats give None, not an error."""
    tensor = TensorProto(name="t", data_type=TensorProto.DataType.Value(kind), dims=[2])
    assert files.constant(Source(ModelProto(), None), tensor) is None
