"""Models written: every number arrives, both files or neither, and the input stays as it is."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnx_sched import data_file, files, targets, writing
from onnx_sched.constants import Array, Const, from_array
from onnx_sched.errors import ModelError, UsageError
from onnx_sched.files import Source
from onnx_sched.targets import alone, check_target
from onnx_sched.tensors import external_tensors, placeholder
from tests.nets import COMMITTED, FOLDER, every_value, feeds, net, numbers, run
from tests.protodiff import differences
from tests.stored import BIG, SMALL, beside, external, layered, listing, loaded, set_entry


class Stop(Exception):  # noqa: N818 - an interruption, not an error
    """What a test raises in the middle of a write."""


def failing(shape: tuple[int, ...], error: Exception) -> Const:
    def load() -> Array:
        raise error

    return Const(shape, TensorProto.FLOAT, np.dtype(np.float32), "failing", load)


def rewritten(path: Path | None, model: ModelProto, *shapes: tuple[int, ...]) -> dict[str, Const]:
    """Add placeholders for new weights to a model; their constants."""
    fresh = {
        f"new{k}": from_array(numbers(*shape, seed=k), TensorProto.FLOAT)
        for k, shape in enumerate(shapes)
    }
    for name, const in fresh.items():
        model.graph.initializer.append(placeholder(name, const))
    return fresh


@pytest.mark.parametrize("limit", [writing.PROTOBUF_LIMIT, 20_000])
@pytest.mark.parametrize("where", ["inline", "beside"])
def test_a_written_model_holds_every_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, limit: int
) -> None:
    """Old and new weights, large and small, wherever they stood: ONNX reads the same numbers.

    They go beside the model if they stood there, or would not fit into one protobuf.
    """
    monkeypatch.setattr(writing, "PROTOBUF_LIMIT", limit)
    source = Source(layered(), None)
    if where == "beside":
        source = files.read(beside(tmp_path / "in", layered()))
    model = ModelProto()
    model.CopyFrom(source.model)
    fresh = rewritten(source.path, model, BIG, SMALL, ())
    target = tmp_path / "out" / "out.onnx"
    target.parent.mkdir()
    saved = writing.save(model, fresh, source, target)

    data_expected = where == "beside" or limit == 20_000
    names = ["out.onnx", "out.onnx.data"] if data_expected else ["out.onnx"]
    assert sorted(listing(target.parent)) == names
    assert saved == tuple(target.with_name(name) for name in names)
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
        offsets = [files.locate(again, t).offset for t in external_tensors(again.model)]
        assert offsets
        assert all(offset % data_file.ALIGN == 0 for offset in offsets)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "bool", "float64"])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("limit", [writing.PROTOBUF_LIMIT, 0])
def test_new_weights_of_any_type_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, swapped: bool, limit: int
) -> None:
    """Bits and type are those of the constant, whatever the order of bytes in memory."""
    monkeypatch.setattr(writing, "PROTOBUF_LIMIT", limit)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    array = (numbers(40, 40) * 3).astype(kind)
    model = net("(float[2] x) => (float[] y) { y = Relu(x) }")
    if swapped and dtype == "bfloat16":
        pytest.skip("numpy has no bfloat16 of the other order")
    held = array.astype(kind.newbyteorder()) if swapped else array
    const = Const((40, 40), int(helper.np_dtype_to_tensor_dtype(kind)), kind, "w", lambda: held)
    model.graph.initializer.append(placeholder("w", const))
    writing.save(model, {"w": const}, Source(model, None), tmp_path / "out.onnx")
    (tensor,) = onnx.load(tmp_path / "out.onnx").graph.initializer
    assert numpy_helper.to_array(tensor).dtype == kind
    assert numpy_helper.to_array(tensor).tobytes() == array.tobytes()


def test_further_notes_on_external_data_stay(tmp_path: Path) -> None:
    """A checksum beside location, offset and length is carried along."""
    path = beside(tmp_path / "in", layered())
    set_entry(path, "checksum", "0123abcd")
    source = files.read(path)
    writing.save(source.model, {}, source, tmp_path / "out.onnx")
    first = external_tensors(external(tmp_path / "out.onnx"))[0]
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
        writing.save(source.model, {}, source, target)
    before = listing(tmp_path)
    model = ModelProto()
    model.CopyFrom(source.model)
    const = failing(BIG, Stop())
    model.graph.initializer.append(placeholder("w2", const))
    with pytest.raises(Stop):
        writing.save(model, {"w2": const}, source, target)
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
        writing.save(model, fresh, source, tmp_path / name / "out.onnx")
        found.append(listing(tmp_path / name))
    assert found[0] == found[1]
    assert model.SerializeToString(deterministic=True) == before
    assert listing(tmp_path / "in") == inside


@pytest.mark.parametrize("taken", [1, 2])
def test_the_data_of_the_input_is_never_overwritten(tmp_path: Path, taken: int) -> None:
    """Old model `old.onnx`, renamed, with its data in `new.onnx.data`; the new one is `new.onnx`.

    The new data gets another name, and the new model refers to that only; the input stays as it is.
    """
    path = beside(tmp_path, layered(), "new.onnx.data", "old.onnx")
    if taken == 2:  # some weights are in the file of the next name, too
        shutil.copy(tmp_path / "new.onnx.data", tmp_path / "new.onnx.2.data")
        set_entry(path, "location", "new.onnx.2.data")
    source = files.read(path)
    target = tmp_path / "new.onnx"
    before = listing(tmp_path)
    model = ModelProto()
    model.CopyFrom(source.model)
    fresh = rewritten(path, model, BIG)
    check_target(target, source.path)
    writing.save(model, fresh, source, target)
    after = listing(tmp_path)
    assert after.keys() - before.keys() == {"new.onnx", f"new.onnx.{taken + 1}.data"}
    assert {name: after[name] for name in before} == before
    assert files.data_files(files.read(target)) == [tmp_path / f"new.onnx.{taken + 1}.data"]
    expected = layered()
    expected.graph.initializer.append(numpy_helper.from_array(fresh["new0"].load(), "new0"))
    assert not differences(expected, loaded(target))


OLD = {
    "nothing": (False, False),
    "data of nobody": (True, False),
    "a model without data": (False, True),
    "data that the old model does not refer to": (True, True),
}
"""Whether a stranger's `new.onnx.data` is there, and whether a model `new.onnx` that does not refer to it."""


@pytest.mark.parametrize("what", OLD)
def test_data_of_strangers_is_never_overwritten(tmp_path: Path, what: str) -> None:
    """What lies there under the name of the new data, and is no data of the old model, stays.

    The next free name is taken; the second run replaces the first one's pair, byte for byte the same.
    """
    stranger, model_there = OLD[what]
    source = files.read(beside(tmp_path / "in", layered()))
    out = tmp_path / "out"
    out.mkdir()
    target = out / "new.onnx"
    if stranger:
        (out / "new.onnx.data").write_bytes(b"precious")
    if model_there:
        target.write_bytes((FOLDER / f"{COMMITTED[0]}.onnx").read_bytes())
    data = "new.onnx.2.data" if stranger else "new.onnx.data"
    saved = writing.save(source.model, {}, source, target)
    assert saved == (target, out / data)
    first = listing(out)
    assert first.keys() == {"new.onnx", data} | ({"new.onnx.data"} if stranger else set())
    assert not stranger or first["new.onnx.data"] == b"precious"
    assert files.data_files(files.read(target)) == [out / data]
    assert not differences(layered(), loaded(target))
    writing.save(source.model, {}, source, target)
    assert listing(out) == first


def test_an_old_pair_gives_way_to_a_new_one(tmp_path: Path) -> None:
    """`new.onnx` and its data, of another model: both are replaced, and no second data file is left."""
    source = files.read(beside(tmp_path / "in", layered()))
    target = beside(tmp_path / "out", layered(), "new.onnx.data", "new.onnx")
    before = listing(tmp_path / "out")
    saved = writing.save(source.model, {}, source, target)
    assert saved == (target, tmp_path / "out" / "new.onnx.data")
    after = listing(tmp_path / "out")
    assert after.keys() == before.keys()
    assert all(after[name] != before[name] for name in before)
    assert not differences(layered(), loaded(target))


@pytest.mark.parametrize("old", [b"", b"no model at all", "a folder"])
def test_what_is_no_model_owns_no_data(tmp_path: Path, old: bytes | str) -> None:
    """Junk in the place of the model gives nobody the right to replace what lies beside it."""
    source = files.read(beside(tmp_path / "in", layered()))
    target = tmp_path / "new.onnx"
    place = tmp_path / "new.onnx.data"
    if isinstance(old, str):
        place.mkdir()
        (place / "precious").write_bytes(b"precious")
    else:
        target.write_bytes(old)
        place.symlink_to(tmp_path / "a disk that is not mounted")
    assert writing.save(source.model, {}, source, target) == (target, tmp_path / "new.onnx.2.data")
    assert place.is_symlink() or (place / "precious").read_bytes() == b"precious"


def test_a_model_that_is_called_like_data_is_not_overwritten(tmp_path: Path) -> None:
    """The input itself is `new.onnx.data`: the data of `new.onnx` goes elsewhere."""
    path = beside(tmp_path, layered(), name="new.onnx.data")
    before = listing(tmp_path)
    source = files.read(path)
    writing.save(source.model, {}, source, tmp_path / "new.onnx")
    after = listing(tmp_path)
    assert after.keys() - before.keys() == {"new.onnx", "new.onnx.2.data"}
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("location", ["m.data", "deep/m.data"])
def test_the_output_is_not_the_data_of_the_input(
    tmp_path: Path, changed: bool, location: str
) -> None:
    """`-o m.data`, where `m.onnx` keeps its weights there, would lose them: refused, by any name."""
    source = files.read(beside(tmp_path, layered(), location))
    (tmp_path / "alias").symlink_to(tmp_path)
    before = listing(tmp_path)

    def write(target: Path) -> None:
        if changed:
            writing.save(source.model, {}, source, target)
        else:
            writing.copy(source, target)

    for target in (tmp_path / location, tmp_path / "alias" / location):
        with pytest.raises(UsageError, match=r"is a data file of the input .*m\.onnx"):
            write(target)
    assert listing(tmp_path) == before


def test_a_copy_cannot_have_the_name_of_its_data(tmp_path: Path) -> None:
    """Its data would be called `w.bin` beside it, and so would the copy."""
    source = files.read(beside(tmp_path / "in", layered(), "w.bin"))
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match=r"has the name of a data file"):
        writing.copy(source, tmp_path / "out" / "w.bin")
    assert listing(tmp_path / "out") == {}


def test_a_copy_is_whole_or_nothing(tmp_path: Path) -> None:
    """Two data files, and something else in the place of the second: the first is not copied either."""
    path = beside(tmp_path / "in", layered(), "a.data")
    shutil.copy(tmp_path / "in" / "a.data", tmp_path / "in" / "b.data")
    set_entry(path, "location", "b.data")
    source = files.read(path)
    assert len(files.data_files(source)) == 2
    for precious in ("a.data", "b.data"):
        out = tmp_path / f"beside {precious}"
        out.mkdir()
        (out / precious).write_bytes(b"precious")
        with pytest.raises(ModelError, match="holds something else"):
            writing.copy(source, out / "copy.onnx")
        assert listing(out) == {precious: b"precious"}


@pytest.mark.parametrize("name", COMMITTED)
def test_a_copy_is_a_copy(tmp_path: Path, name: str) -> None:
    """Byte for byte."""
    writing.copy(files.read(FOLDER / f"{name}.onnx"), tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == (FOLDER / f"{name}.onnx").read_bytes()


@pytest.mark.parametrize("location", ["m.data", "deep/er/m.data"])
def test_a_copy_takes_its_data_along(tmp_path: Path, location: str) -> None:
    """Model and data are byte copies; the copy runs without the original."""
    path = beside(tmp_path / "in", layered(), location)
    before = listing(tmp_path / "in")
    (tmp_path / "out").mkdir()
    target = tmp_path / "out" / "copy.onnx"
    assert writing.copy(files.read(path), target) == (target, tmp_path / "out" / location)
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
    assert writing.copy(files.read(path), tmp_path / "copy.onnx") == (tmp_path / "copy.onnx",)
    assert listing(tmp_path) == before | {"copy.onnx": before["m.onnx"]}
    assert (tmp_path / "m.data").stat().st_ino == place


def test_a_copy_never_overwrites_data_of_another_model(tmp_path: Path) -> None:
    """A file that stands where the data must go is left alone unless it holds the same bytes."""
    source = files.read(beside(tmp_path / "in", layered()))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "m.data").write_bytes(b"precious")
    with pytest.raises(ModelError, match=r"holds something else"):
        writing.copy(source, tmp_path / "out" / "copy.onnx")
    assert listing(tmp_path / "out") == {"m.data": b"precious"}
    shutil.copy(tmp_path / "in" / "m.data", tmp_path / "out" / "m.data")
    writing.copy(source, tmp_path / "out" / "copy.onnx")
    assert sorted(listing(tmp_path / "out")) == ["copy.onnx", "m.data"]


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
        writing.save(source.model, {}, source, target)
        assert not differences(loaded(target), model)
        inputs = feeds(model, N=2)
        np.testing.assert_array_equal(run(target, inputs)["y"], every_value(model, inputs)["y"])


def test_weights_that_stood_beside_the_model_stay_beside_it(tmp_path: Path) -> None:
    """Also where all of them became new ones; but no file is made for what is small."""
    source = files.read(beside(tmp_path / "in", layered()))
    for shape, names in ((BIG, {"out.onnx", "out.onnx.data"}), ((2, 2), {"out.onnx"})):
        fresh = rewritten(None, model := ModelProto(graph=onnx.GraphProto(name="g")), shape)
        folder = tmp_path / str(shape)
        folder.mkdir()
        writing.save(model, fresh, source, folder / "out.onnx")
        assert set(listing(folder)) == names
        (found,) = loaded(folder / "out.onnx").graph.initializer
        np.testing.assert_array_equal(numpy_helper.to_array(found), fresh["new0"].load())


@pytest.mark.skipif(sys.platform == "win32", reason="no such locks there")
@pytest.mark.parametrize("what", ["a result", "a copy"])
def test_one_run_at_a_time_writes_into_a_folder(tmp_path: Path, what: str) -> None:
    """Two runs with one target could leave the model of one beside the data of the other."""
    source = files.read(beside(tmp_path / "in", layered()))
    out = tmp_path / "out"
    out.mkdir()
    if what == "a copy":
        thread = threading.Thread(target=writing.copy, args=(source, out / "m.onnx"))
    else:
        thread = threading.Thread(
            target=writing.save, args=(source.model, {}, source, out / "m.onnx")
        )
    with alone(out):
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        assert listing(out) == {}
    thread.join(60)
    assert len(listing(out)) == 2


def test_a_folder_that_gives_no_lock_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One may write into some folders without reading them; others stand on systems without locks."""
    source = files.read(beside(tmp_path / "in", layered()))
    (tmp_path / "out").mkdir()

    def forbidden(path: Path, flags: int) -> int:
        raise PermissionError(path)

    with monkeypatch.context() as patch:
        patch.setattr(targets, "os", SimpleNamespace(**vars(os) | {"open": forbidden}))
        writing.save(source.model, {}, source, tmp_path / "out" / "m.onnx")
    assert len(listing(tmp_path / "out")) == 2


def test_a_copy_keeps_holes(tmp_path: Path) -> None:
    """A data file full of holes takes no more room than it did."""
    path = beside(tmp_path / "in", layered())
    with (tmp_path / "in" / "m.data").open("ab") as file:
        file.truncate(1 << 27)
    (tmp_path / "out").mkdir()
    writing.copy(files.read(path), tmp_path / "out" / "m.onnx")
    found = (tmp_path / "out" / "m.data").stat()
    assert (found.st_size, found.st_blocks * 512 < 1 << 24) == (1 << 27, True)
