"""Models on disk: what is no model is refused in words; what is written appears whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnx_sched import files
from onnx_sched.analysis import analyse
from onnx_sched.constants import Array, Const, from_array
from onnx_sched.errors import ModelError, SchedError, UsageError
from onnx_sched.files import Source
from tests.nets import COMMITTED, FOLDER, committed, every_value, feeds, net, numbers, run
from tests.protodiff import differences

BIG = (64, 64)  # 16 KiB of float32: beside the model when anything is
SMALL = (4, 4)


def layered() -> ModelProto:
    """Two weights in the main graph, one in a Constant, one in a body, one in a function."""
    model = net(
        """(float[N,64] x, bool c) => (float[N,2] y)
        {
            p = MatMul(x, w)
            q = Add(p, k)
            r = If (c) <
                then_branch = t () => (float[] s) { s = Mul(q, inner) },
                else_branch = e () => (float[] s2) { s2 = f.Shift(q) }
            >
            y = MatMul(r, v)
        }
        <domain: "f", opset_import: ["" : 17]> Shift (a) => (b) { g = Constant() b = Add(a, g) }""",
        {"w": numbers(*BIG), "v": numbers(64, 2)},
        domains={"f": 1},
    )
    constant = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(numbers(64)))
    model.graph.node.insert(0, constant)
    body = next(n for n in model.graph.node if n.op_type == "If").attribute[0].g
    body.initializer.append(numpy_helper.from_array(numbers(*BIG, seed=1)[:1], "inner"))
    attribute = model.functions[0].node[0].attribute.add()
    attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(numbers(64, seed=2))))
    return model


def beside(folder: Path, model: ModelProto, location: str = "m.data", name: str = "m.onnx") -> Path:
    """Save a model with all tensors of raw bytes in one file beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / location).parent.mkdir(parents=True, exist_ok=True)
    written = ModelProto()
    written.CopyFrom(model)
    with (folder / location).open("wb") as file:
        for tensor in files.every_tensor(written):
            if tensor.raw_data:
                file.write(b"\xff" * 3)  # offsets need not be aligned
                values = {"location": location, "offset": file.tell(), "length": 0}
                values["length"] = file.write(tensor.raw_data)
                tensor.ClearField("raw_data")
                tensor.data_location = TensorProto.EXTERNAL
                for key, value in values.items():
                    tensor.external_data.add(key=key, value=str(value))
    path = folder / name
    path.write_bytes(written.SerializeToString())
    return path


def external(path: Path) -> ModelProto:
    """A model file as it stands, external data left out."""
    return onnx.load(path, load_external_data=False)


def loaded(path: Path) -> ModelProto:
    """A model file with its external data."""
    model = onnx.load(path)
    for tensor in files.every_tensor(model):
        tensor.ClearField("data_location")  # onnx writes down the default
    return model


def set_entry(path: Path, key: str, value: str | None) -> None:
    """Change an entry of the first external tensor of a model file."""
    model = external(path)
    tensor = files.external_tensors(model)[0]
    kept = [(e.key, e.value) for e in tensor.external_data if e.key != key]
    tensor.ClearField("external_data")
    for k, v in [*kept, *([(key, value)] if value is not None else [])]:
        tensor.external_data.add(key=k, value=v)
    path.write_bytes(model.SerializeToString())


def listing(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


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
    """Too long for the system: an error in words, too."""
    with pytest.raises(ModelError):
        files.read(tmp_path / ("x" * 300))


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
    assert len(files.external_tensors(source.model)) == 5


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


def negative_size(path: Path) -> None:
    model = external(path)
    files.external_tensors(model)[0].dims[0] = -1
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
    "link": (by_link, "link"),
    "linked folder": (through_linked_folder, "link"),
    "offset": (lambda p: set_entry(p, "offset", "99999999"), "needs bytes"),
    "negative offset": (lambda p: set_entry(p, "offset", "-1"), "needs bytes"),
    "odd offset": (lambda p: set_entry(p, "offset", "0x10"), "no number"),
    "wrong length": (lambda p: set_entry(p, "length", "5"), "needs bytes"),
    "odd length": (lambda p: set_entry(p, "length", "long"), "no number"),
    "negative size": (negative_size, "external data"),
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
    names = {t.name for t in files.external_tensors(external(path))}
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


def test_a_linked_model_finds_its_own_data(tmp_path: Path) -> None:
    """A link to the folder of the model is no link inside it."""
    beside(tmp_path / "real", layered())
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    assert files.external_tensors(files.read(tmp_path / "alias" / "m.onnx").model)


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


SIZES = {
    "FLOAT": 20,
    "INT64": 40,
    "BFLOAT16": 10,
    "FLOAT8E5M2": 5,
    "INT4": 3,
    "UINT4": 3,
    "BOOL": 5,
}


@pytest.mark.parametrize("kind", SIZES)
def test_the_bytes_of_a_tensor_are_those_of_its_raw_data(kind: str) -> None:
    """Five elements; types of 4 bits share bytes."""
    tensor = helper.make_tensor("t", TensorProto.DataType.Value(kind), [5], [1] * 5)
    array = numpy_helper.to_array(tensor)
    raw = numpy_helper.from_array(array, "t")
    assert files.tensor_bytes(tensor) == len(raw.raw_data) == SIZES[kind]


def test_every_tensor_is_met() -> None:
    """Initializers and attributes, in the main graph, in bodies and functions; sparse ones, too."""
    model = layered()
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(numpy_helper.from_array(numbers(1), "values"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([0]), "indices"))
    several = [numpy_helper.from_array(numbers(2), f"listed{k}") for k in range(2)]
    model.graph.node[-1].attribute.append(helper.make_attribute("several", several))
    found = list(files.every_tensor(model))
    names = {"w", "v", "", "inner", "values", "indices", "listed0", "listed1"}
    assert {t.name for t in found} == names
    assert len(found) == 9
    assert files.size_inline(model) == sum(len(t.raw_data) for t in found)


# -- writing ----------------------------------------------------------------------------------------


class Stop(Exception):  # noqa: N818 - an interruption, not an error
    """What a test raises in the middle of a write."""


def failing(shape: tuple[int, ...], error: Exception) -> Const:
    def load() -> Array:
        raise error

    return Const(shape, TensorProto.FLOAT, np.dtype(np.float32), "failing", load)


@pytest.mark.parametrize("error", [Stop(), OSError(28, "No space left on device")])
def test_a_broken_write_leaves_the_old_file(tmp_path: Path, error: Exception) -> None:
    """Whatever goes wrong inside, the target is as it was, and no temporary file stays."""
    target = tmp_path / "out.onnx"
    target.write_bytes(b"old")

    def interrupted() -> None:
        with files.replacing(target) as temporary:
            temporary.write_bytes(b"half")
            raise error

    with pytest.raises((Stop, ModelError)) as caught:
        interrupted()
    assert listing(tmp_path) == {"out.onnx": b"old"}
    if isinstance(error, OSError):
        assert "No space left" in str(caught.value)
        assert str(target) in str(caught.value)


def test_a_write_takes_effect_at_its_end(tmp_path: Path) -> None:
    """Until the block ends there is the old file; then the new one, readable as others are."""
    target = tmp_path / "out.onnx"
    target.write_bytes(b"old")
    mask = os.umask(0o027)
    try:
        with files.replacing(target) as temporary:
            temporary.write_bytes(b"new")
            assert target.read_bytes() == b"old"
            assert temporary.parent == tmp_path
    finally:
        os.umask(mask)
    assert listing(tmp_path) == {"out.onnx": b"new"}
    assert target.stat().st_mode & 0o777 == 0o640


def test_writing_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    """A missing folder is named; so is a target that turns out to be a folder."""
    with (
        pytest.raises(ModelError, match="cannot write"),
        files.replacing(tmp_path / "missing" / "out.onnx"),
    ):
        pass
    (tmp_path / "folder").mkdir()
    with (
        pytest.raises(ModelError, match="cannot write"),
        files.replacing(tmp_path / "folder"),
    ):
        pass
    assert listing(tmp_path) == {}


def rewritten(path: Path | None, model: ModelProto, *shapes: tuple[int, ...]) -> dict[str, Const]:
    """Add placeholders for new weights to a model; their constants."""
    fresh = {
        f"new{k}": from_array(numbers(*shape, seed=k), TensorProto.FLOAT)
        for k, shape in enumerate(shapes)
    }
    for name, const in fresh.items():
        model.graph.initializer.append(files.placeholder(name, const))
    return fresh


@pytest.mark.parametrize("limit", [files.PROTOBUF_LIMIT, 20_000])
@pytest.mark.parametrize("where", ["inline", "beside"])
def test_a_written_model_holds_every_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, limit: int
) -> None:
    """Old and new weights, large and small, wherever they stood: ONNX reads the same numbers.

    They go beside the model if they stood there, or would not fit into one protobuf.
    """
    monkeypatch.setattr(files, "PROTOBUF_LIMIT", limit)
    source = Source(layered(), None)
    if where == "beside":
        source = files.read(beside(tmp_path / "in", layered()))
    model = ModelProto()
    model.CopyFrom(source.model)
    fresh = rewritten(source.path, model, BIG, SMALL, ())
    target = tmp_path / "out" / "out.onnx"
    target.parent.mkdir()
    files.save(model, fresh, source, target)

    data_expected = where == "beside" or limit == 20_000
    names = ["out.onnx", "out.onnx.data"] if data_expected else ["out.onnx"]
    assert sorted(listing(target.parent)) == names
    assert target.stat().st_size < (10_000 if data_expected else 100_000)
    onnx.checker.check_model(str(target))
    expected = layered()
    expected.graph.initializer.extend(
        numpy_helper.from_array(c.load(), name) for name, c in fresh.items()
    )
    assert not differences(expected, loaded(target))
    inputs = feeds(layered(), N=3)
    for answer in (True, False):
        inputs["c"] = np.array(answer)
        np.testing.assert_array_equal(run(target, inputs)["y"], run(layered(), inputs)["y"])
    again = files.read(target)
    if data_expected:
        offsets = [files.locate(again, t).offset for t in files.external_tensors(again.model)]
        assert offsets
        assert all(offset % files.ALIGN == 0 for offset in offsets)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "bool", "float64"])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("limit", [files.PROTOBUF_LIMIT, 0])
def test_new_weights_of_any_type_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, swapped: bool, limit: int
) -> None:
    """Bits and type are those of the constant, whatever the order of bytes in memory."""
    monkeypatch.setattr(files, "PROTOBUF_LIMIT", limit)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    array = (numbers(40, 40) * 3).astype(kind)
    model = net("(float[2] x) => (float[] y) { y = Relu(x) }")
    if swapped and dtype == "bfloat16":
        pytest.skip("numpy has no bfloat16 of the other order")
    held = array.astype(kind.newbyteorder()) if swapped else array
    const = Const((40, 40), int(helper.np_dtype_to_tensor_dtype(kind)), kind, "w", lambda: held)
    model.graph.initializer.append(files.placeholder("w", const))
    files.save(model, {"w": const}, Source(model, None), tmp_path / "out.onnx")
    (tensor,) = onnx.load(tmp_path / "out.onnx").graph.initializer
    assert numpy_helper.to_array(tensor).dtype == kind
    assert numpy_helper.to_array(tensor).tobytes() == array.tobytes()


def test_further_notes_on_external_data_stay(tmp_path: Path) -> None:
    """A checksum beside location, offset and length is carried along."""
    path = beside(tmp_path / "in", layered())
    set_entry(path, "checksum", "0123abcd")
    source = files.read(path)
    files.save(source.model, {}, source, tmp_path / "out.onnx")
    first = files.external_tensors(external(tmp_path / "out.onnx"))[0]
    assert {e.key: e.value for e in first.external_data}["checksum"] == "0123abcd"


@pytest.mark.parametrize("where", ["inline", "beside"])
@pytest.mark.parametrize("existing", [False, True])
def test_a_save_that_fails_leaves_everything_as_it_was(
    tmp_path: Path, where: str, existing: bool
) -> None:
    """A weight that cannot be computed: old model and old data stay, nothing half-written does."""
    source = Source(layered(), None)
    if where == "beside":
        source = files.read(beside(tmp_path / "in", layered()))
    target = tmp_path / "out" / "out.onnx"
    target.parent.mkdir()
    if existing:
        files.save(source.model, {}, source, target)
    before = listing(tmp_path)
    model = ModelProto()
    model.CopyFrom(source.model)
    const = failing(BIG, Stop())
    model.graph.initializer.append(files.placeholder("w2", const))
    with pytest.raises(Stop):
        files.save(model, {"w2": const}, source, target)
    assert listing(tmp_path) == before


def test_saving_changes_neither_model_nor_source(tmp_path: Path) -> None:
    """The skeleton keeps its placeholders and references, so that it can be saved twice alike."""
    source = files.read(beside(tmp_path / "in", layered()))
    model = ModelProto()
    model.CopyFrom(source.model)
    fresh = rewritten(source.path, model, BIG)
    before = model.SerializeToString(deterministic=True)
    inside = listing(tmp_path / "in")
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        files.save(model, fresh, source, tmp_path / name / "out.onnx")
        found.append(listing(tmp_path / name))
    assert found[0] == found[1]
    assert model.SerializeToString(deterministic=True) == before
    assert listing(tmp_path / "in") == inside


def test_the_data_of_the_input_is_never_overwritten(tmp_path: Path) -> None:
    """Old model `old.onnx`, renamed, with its data in `new.onnx.data`; the new one is `new.onnx`.

    Either it is refused, or the data goes elsewhere; the input still holds its own numbers.
    """
    path = beside(tmp_path, layered(), "new.onnx.data", "old.onnx")
    source = files.read(path)
    target = tmp_path / "new.onnx"
    before = listing(tmp_path)
    try:
        files.check_target(target, source.path)
        files.save(source.model, rewritten(path, source.model, BIG), source, target)
    except SchedError:
        pass
    after = listing(tmp_path)
    assert {name: after[name] for name in before} == before


def test_the_output_is_not_the_data_of_the_input(tmp_path: Path) -> None:
    """`-o m.data`, where `m.onnx` keeps its weights there, would lose them."""
    source = files.read(beside(tmp_path, layered()))
    before = listing(tmp_path)
    try:
        files.check_target(tmp_path / "m.data", source.path)
        files.copy(source, tmp_path / "m.data")
    except SchedError:
        pass
    assert listing(tmp_path) == before


@pytest.mark.parametrize("name", COMMITTED)
def test_a_copy_is_a_copy(tmp_path: Path, name: str) -> None:
    """Byte for byte."""
    files.copy(files.read(FOLDER / f"{name}.onnx"), tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == (FOLDER / f"{name}.onnx").read_bytes()


@pytest.mark.parametrize("location", ["m.data", "deep/er/m.data"])
def test_a_copy_takes_its_data_along(tmp_path: Path, location: str) -> None:
    """Model and data are byte copies; the copy runs without the original."""
    path = beside(tmp_path / "in", layered(), location)
    before = listing(tmp_path / "in")
    (tmp_path / "out").mkdir()
    files.copy(files.read(path), tmp_path / "out" / "copy.onnx")
    expected = {name.replace("m.onnx", "copy.onnx"): data for name, data in before.items()}
    assert listing(tmp_path / "out") == expected
    shutil.rmtree(tmp_path / "in")
    inputs = feeds(layered(), N=2)
    found = run(tmp_path / "out" / "copy.onnx", inputs)["y"]
    np.testing.assert_array_equal(found, run(layered(), inputs)["y"])


def test_a_copy_in_the_same_folder_shares_the_data(tmp_path: Path) -> None:
    """The data is there already; only the model is copied."""
    path = beside(tmp_path, layered())
    before, place = listing(tmp_path), (tmp_path / "m.data").stat().st_ino
    files.copy(files.read(path), tmp_path / "copy.onnx")
    assert listing(tmp_path) == before | {"copy.onnx": before["m.onnx"]}
    assert (tmp_path / "m.data").stat().st_ino == place


def test_a_copy_never_overwrites_data_of_another_model(tmp_path: Path) -> None:
    """A file that stands where the data must go is left alone unless it holds the same bytes."""
    source = files.read(beside(tmp_path / "in", layered()))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "m.data").write_bytes(b"precious")
    with pytest.raises(ModelError, match=r"holds something else"):
        files.copy(source, tmp_path / "out" / "copy.onnx")
    assert listing(tmp_path / "out") == {"m.data": b"precious"}
    shutil.copy(tmp_path / "in" / "m.data", tmp_path / "out" / "m.data")
    files.copy(source, tmp_path / "out" / "copy.onnx")
    assert sorted(listing(tmp_path / "out")) == ["copy.onnx", "m.data"]


# -- targets ----------------------------------------------------------------------------------------


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A folder that says it cannot be written."""
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o500)
    yield folder
    folder.chmod(0o700)


def test_a_target_that_cannot_be_is_refused_early(
    tmp_path: Path, locked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The input itself under any name, a folder, a missing folder, one without permission."""
    source = tmp_path / "in.onnx"
    source.write_bytes(b"model")
    (tmp_path / "link.onnx").symlink_to(source)
    os.link(source, tmp_path / "hard.onnx")
    (tmp_path / "sub").mkdir()
    for name in ("in.onnx", "link.onnx", "hard.onnx", "sub/../in.onnx"):
        with pytest.raises(UsageError, match="is the input itself"):
            files.check_target(tmp_path / name, source)
    with pytest.raises(UsageError, match="is a directory") as caught:
        files.check_target(tmp_path, source)
    assert str(tmp_path / "out.onnx") in caught.value.hint
    with pytest.raises(ModelError, match="no folder"):
        files.check_target(tmp_path / "missing" / "out.onnx", source)
    if os.access(locked, os.W_OK):  # a superuser may write anywhere
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ModelError, match="no permission"):
        files.check_target(locked / "out.onnx", source)
    monkeypatch.undo()
    files.check_target(tmp_path / "out.onnx", source)
    files.check_target(tmp_path / "in.onnx", None)
    assert source.read_bytes() == b"model"


def test_old_models_list_their_weights_as_inputs(tmp_path: Path) -> None:
    """IR version 3: read, saved and read again, the model is the same and computes the same."""
    model = net(
        "(float[N,64] x) => (float[N,64] y) { y = MatMul(x, w) }",
        {"w": numbers(*BIG)},
        opset=8,
        ir=3,
    )
    onnx.checker.check_model(model)
    for k, path in enumerate((tmp_path / "inline.onnx", beside(tmp_path / "in", model))):
        if not k:
            path.write_bytes(model.SerializeToString())
        source = files.read(path)
        target = tmp_path / f"out{k}.onnx"
        files.save(source.model, {}, source, target)
        assert not differences(loaded(target), model)
        inputs = feeds(model, N=2)
        np.testing.assert_array_equal(run(target, inputs)["y"], every_value(model, inputs)["y"])


def test_loading_external_data_makes_a_model_of_one_piece(tmp_path: Path) -> None:
    """Tensor by tensor, the proto becomes the one that had all its numbers inside."""
    source = files.read(beside(tmp_path, layered()))
    for tensor in files.external_tensors(source.model):
        files.load_external(source, tensor)
    assert not differences(source.model, layered())
