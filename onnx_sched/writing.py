"""Models written to disk: whole or not at all, and never over the input."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Mapping
from io import FileIO
from pathlib import Path, PurePath
from typing import BinaryIO

import numpy as np
from onnx import ModelProto, TensorProto

from onnx_sched.constants import Const, Span
from onnx_sched.errors import ModelError, UsageError
from onnx_sched.files import Source, data_files, locate
from onnx_sched.reading import model_in
from onnx_sched.targets import replacing_all
from onnx_sched.tensors import every_tensor, external_tensors, fill, tensor_bytes

PROTOBUF_LIMIT = 2**31 - 2**26
"""A protobuf file holds less than 2 GiB; the last 64 MiB are kept free for everything but weights."""

INLINE = 1024
"""Tensors of fewer bytes stay in the model file when weights go beside it, as in onnx itself."""


def copy(source: Source, target: Path) -> tuple[Path, ...]:
    """Write the model unchanged: a byte copy, external data files included.

    In the input's own folder the copy shares the data files with it.

    Returns:
        The files that were written, the model first.

    Raises:
        ModelError: If something else stands where a data file must go.
        UsageError: If `target` is a data file of the input, or has the name of one.
    """
    assert source.path is not None
    places = {p: target.parent / p.relative_to(source.path.parent) for p in data_files(source)}
    _check_no_data(target, source)
    moves: dict[Path, Path] = {}
    for path, place in places.items():
        if place.resolve() == target.resolve():
            raise UsageError(
                f"-o {target} has the name of a data file of {source.name}", "Name another file."
            )
        if not place.exists():
            moves[path] = place
        elif not place.samefile(path) and not _same_bytes(place, path):
            raise ModelError(
                f"cannot write {target}: its data file {place} exists and holds something else",
                "Write to an empty folder.",
            )
    for place in moves.values():
        place.parent.mkdir(parents=True, exist_ok=True)
    with replacing_all([*moves.values(), target]) as made:
        for path, temporary in zip((*moves, source.path), made, strict=True):
            shutil.copyfile(path, temporary)
    return (target, *moves.values())


def _check_no_data(target: Path, source: Source) -> None:
    """Refuse to write a model over data of the input."""
    if any(_is_file(target, path) for path in data_files(source)):
        raise UsageError(
            f"-o {target} is a data file of the input {source.name}",
            "The input is never overwritten; name another file.",
        )


def _is_file(place: Path, path: Path) -> bool:
    """Whether a place is a file that exists, under whatever name."""
    return place.exists() and place.samefile(path)


def _same_bytes(a: Path, b: Path) -> bool:
    if a.stat().st_size != b.stat().st_size:
        return False
    with a.open("rb") as x, b.open("rb") as y:
        while chunk := x.read(1 << 20):
            if chunk != y.read(1 << 20):
                return False
    return True


def size_inline(model: ModelProto) -> int:
    """Bytes of the weights that stand in the proto itself, placeholders as if they were filled."""
    return sum(
        tensor_bytes(t) for t in every_tensor(model) if t.data_location != TensorProto.EXTERNAL
    )


def needs_data(model: ModelProto) -> bool:
    """Whether weights go beside a model: some stand there already, or one protobuf cannot hold them."""
    return bool(external_tensors(model)) or size_inline(model) >= PROTOBUF_LIMIT


ALIGN = 4096
"""Offsets in a data file are multiples of this, so that a runtime can map each tensor by itself."""

CHUNK = 1 << 24
"""Bytes that are copied at a time."""


class DataFile:
    """A data file beside a model, filled tensor by tensor."""

    def __init__(self, file: BinaryIO, location: str) -> None:
        self._file = file
        self._location = location

    def _point(self, tensor: TensorProto, length: int) -> None:
        """Make a tensor refer to the next `length` bytes of the file."""
        offset = -(-self._file.tell() // ALIGN) * ALIGN
        self._file.seek(offset)
        extra = [e for e in tensor.external_data if e.key not in ("location", "offset", "length")]
        tensor.ClearField("raw_data")
        tensor.ClearField("external_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", self._location), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        tensor.external_data.extend(extra)

    def add_span(self, tensor: TensorProto, span: Span) -> None:
        """Copy an external tensor's bytes."""
        self._point(tensor, span.length)
        self._copy(span)

    def add_const(self, tensor: TensorProto, const: Const) -> None:
        """Compute a new weight and write it; what stands in files is copied, part by part."""
        self._point(tensor, const.nbytes)
        self._put_const(const)

    def _put_const(self, const: Const) -> None:
        for part in const.parts:
            self._put_const(part)
        if const.parts:
            return
        if const.span is not None:
            self._copy(const.span)
            return
        array = np.ascontiguousarray(const.load())
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        self._put(array.reshape(-1).view(np.uint8).data)  # without a second copy

    def _copy(self, span: Span) -> None:
        """Copy bytes of a file; its holes become holes without being read."""
        end = span.offset + span.length
        with span.path.open("rb", buffering=0) as original:
            at = span.offset
            while at < end:
                data, hole = _extent(original, at, end)
                self._file.seek(data - at, os.SEEK_CUR)
                at = original.seek(data)
                while at < hole:
                    chunk = original.read(min(hole - at, CHUNK))
                    if not chunk:
                        raise ModelError(f"{span.path} ended while it was read")
                    self._put(memoryview(chunk))
                    at += len(chunk)
        self._file.truncate()

    def add_raw(self, tensor: TensorProto) -> None:
        """Move a tensor's numbers out of the model."""
        raw = tensor.raw_data
        self._point(tensor, len(raw))
        self._put(memoryview(raw))

    def _put(self, data: memoryview) -> None:
        """Write bytes; long runs of zeros become a hole, as they were one where they came from."""
        for begin in range(0, len(data), CHUNK):
            part = data[begin : begin + CHUNK]
            few = part[:: CHUNK // 64]  # most data shows at once that it is none
            if len(part) == CHUNK and not any(few) and not np.frombuffer(part, np.uint64).any():
                self._file.seek(CHUNK, os.SEEK_CUR)
            else:
                self._file.write(part)
        self._file.truncate()


def _extent(file: FileIO, at: int, end: int) -> tuple[int, int]:
    """Where the next data of a file begins and stops, no further than `end`.

    Systems that do not tell holes from data have data only.
    """
    if not hasattr(os, "SEEK_DATA"):
        return at, end
    try:
        data = os.lseek(file.fileno(), at, os.SEEK_DATA)
        hole = os.lseek(file.fileno(), data, os.SEEK_HOLE)
    except OSError as error:
        # No more data before the end of the file, if it has one this far; or it cannot say.
        nothing = error.errno == errno.ENXIO and os.fstat(file.fileno()).st_size >= end
        return (end, end) if nothing else (at, end)
    return min(data, end), min(hole, end)


def write(
    model: ModelProto,
    fresh: Mapping[str, Const],
    source: Source,
    target: Path,
    data: Path | None,
    location: str = "",
) -> None:
    """Write a rewritten model, its large weights into a data file if it needs one.

    Args:
        model: The model; initializers named in `fresh` are placeholders.
        fresh: New weights, computed only while they are written.
        source: Where external tensors of the original are read.
        target: The model file to write.
        data: The data file to write; None if all weights go into the model.
        location: What the model calls the data file; its name if not given.
    """
    out = ModelProto()
    out.CopyFrom(model)
    if data is None:
        fill_all(out, fresh)
    else:
        with data.open("wb") as file:
            _fill_beside(out, fresh, source, DataFile(file, location or data.name))
    target.write_bytes(out.SerializeToString(deterministic=True))


def fill_all(model: ModelProto, fresh: Mapping[str, Const]) -> None:
    """Put all new weights into the proto."""
    for tensor in model.graph.initializer:
        if tensor.name in fresh:
            fill(tensor, fresh[tensor.name])


def _fill_beside(
    model: ModelProto, fresh: Mapping[str, Const], source: Source, data: DataFile
) -> None:
    for tensor in every_tensor(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            data.add_span(tensor, locate(source, tensor))
    for tensor in model.graph.initializer:
        const = fresh.get(tensor.name)
        if const is None:
            if len(tensor.raw_data) >= INLINE:
                data.add_raw(tensor)
        elif const.nbytes >= INLINE:
            data.add_const(tensor, const)
        else:
            fill(tensor, const)


def save(
    model: ModelProto, fresh: Mapping[str, Const], source: Source, target: Path
) -> tuple[Path, ...]:
    """Write a rewritten model and its data file if it needs one: both, or neither.

    The data file is called after the model: `out.onnx.data`, or `out.onnx.2.data` and so on where a file
    of that name belongs to the input or to somebody else.  One that is there is replaced only together
    with an old `out.onnx` that refers to it.  Bytes do not depend on anything else in the folder: with the
    same names free, the same run writes the same files.

    Returns:
        The files that were written, the model first.

    Raises:
        ModelError: If it cannot be written.
        UsageError: If `target` is a data file of the input.
    """
    _check_no_data(target, source)
    beside = [_data_place(target, source)] if needs_data(model) else []
    with replacing_all([*beside, target]) as made:
        data = made[0] if beside else None
        write(model, fresh, source, made[-1], data, beside[0].name if beside else "")
    return (target, *beside)


def _data_place(target: Path, source: Source) -> Path:
    """Where the data file of a new model goes: beside it, and over no file but the old model's data."""
    taken = [*data_files(source), *([source.path] if source.path is not None else [])]
    names = itertools.chain([target.name], (f"{target.name}.{n}" for n in itertools.count(2)))
    places = (target.with_name(f"{name}.data") for name in names)
    owned = _referred(target)
    return next(
        place
        for place in places
        if not os.path.lexists(place)
        or (PurePath(place.name) in owned and not any(_is_file(place, path) for path in taken))
    )


def _referred(target: Path) -> frozenset[PurePath]:
    """The data files that a model refers to, seen from its folder; none where there is no model."""
    if not target.is_file():
        return frozenset()
    try:
        model = model_in(target)
    except ModelError:
        return frozenset()
    entries = (entry for tensor in external_tensors(model) for entry in tensor.external_data)
    found = [entry.value for entry in entries if entry.key == "location"]
    return frozenset(PurePath(name) for name in found if isinstance(name, str))
