"""Data files: bytes of files are copied as they are, holes as holes, parts one after another."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from onnx_sched.constants import Const, Span, concat, from_array, stack
from onnx_sched.data_file import CHUNK, DataFile
from onnx_sched.errors import ModelError
from tests.nets import numbers

BLOCK = 4096


def holey(path: Path, seed: int) -> bytes:
    """A file of data and holes of random lengths; its contents."""
    rng = np.random.default_rng(seed)
    with path.open("wb") as file:
        for filled in rng.permutation([True, False] * 4):
            length = int(rng.integers(1, 40 * BLOCK))
            if filled:
                file.write(rng.integers(0, 256, length, np.uint8).tobytes())
            else:
                file.seek(length, os.SEEK_CUR)
        file.truncate()
    return path.read_bytes()


@pytest.mark.parametrize("seed", range(12))
def test_any_part_of_a_file_is_copied_as_it_is(tmp_path: Path, seed: int) -> None:
    """Wherever it begins and ends among data and holes, and so is what comes after it."""
    whole = holey(tmp_path / "in", seed)
    rng = np.random.default_rng([seed, 1])
    tensors, wanted = [], []
    with (tmp_path / "out").open("wb") as file:
        data = DataFile(file, "out")
        for _ in range(5):
            begin, end = sorted(int(n) for n in rng.integers(0, len(whole) + 1, 2))
            tensors.append(TensorProto(name="t"))
            data.add_span(tensors[-1], Span(tmp_path / "in", begin, end - begin))
            wanted.append(whole[begin:end])
    written = (tmp_path / "out").read_bytes()
    for tensor, want in zip(tensors, wanted, strict=True):
        entries = {e.key: e.value for e in tensor.external_data}
        at, length = int(entries["offset"]), int(entries["length"])
        assert written[at : at + length] == want


def test_holes_take_no_room(tmp_path: Path) -> None:
    """A hole becomes a hole, whatever its size."""
    with (tmp_path / "in").open("wb") as file:
        file.write(b"begin")
        file.truncate(8 * CHUNK)
    with (tmp_path / "out").open("wb") as file:
        DataFile(file, "out").add_span(TensorProto(), Span(tmp_path / "in", 0, 8 * CHUNK))
    found = (tmp_path / "out").stat()
    assert found.st_size == 8 * CHUNK
    assert found.st_blocks * 512 <= CHUNK


def test_a_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    """In data and in a hole, the end is noticed."""
    (tmp_path / "in").write_bytes(b"x" * 100)
    with (tmp_path / "out").open("wb") as file:
        data = DataFile(file, "out")
        for offset in (0, 100, 2 * BLOCK):
            with pytest.raises(ModelError, match="ended while it was read"):
                data.add_span(TensorProto(), Span(tmp_path / "in", offset, 101))


def _spanned(path: Path, seed: int) -> Const:
    """A constant that stands in a file."""
    array = numbers(3, 5, seed=seed)
    path.write_bytes(b"before" + array.tobytes())
    const = from_array(array, TensorProto.FLOAT)
    span = Span(path, 6, array.nbytes)
    return Const(const.shape, 1, const.dtype, const.key, const.load, span)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("way", ["stacked", "side by side", "nested", "changed"])
def test_what_is_made_of_parts_is_written_as_it_is_loaded(
    tmp_path: Path, way: str, axis: int
) -> None:
    """Parts in files, parts at hand, and changed ones give the bytes of the whole."""
    parts = [_spanned(tmp_path / f"w{k}", k) for k in range(3)]
    parts.append(from_array(numbers(3, 5, seed=9), TensorProto.FLOAT))
    const = concat(parts, axis) if way == "side by side" else stack(parts, axis)
    if way == "nested":
        const = concat([const, const], axis).reshape((2, 12, 5))
    if way == "changed":
        const = stack([p.transpose((1, 0)) for p in parts], axis).reshape((20, 3))
    with (tmp_path / "out").open("wb") as file:
        DataFile(file, "out").add_const(TensorProto(), const)
    written = np.frombuffer((tmp_path / "out").read_bytes(), np.float32)
    np.testing.assert_array_equal(written.reshape(const.shape), const.load())
