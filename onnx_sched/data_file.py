"""Data files beside models: filled tensor by tensor, what stands in files copied as it is, holes as holes."""

from __future__ import annotations

import errno
import os
from io import FileIO
from typing import BinaryIO

import numpy as np
from onnx import TensorProto

from onnx_sched.constants import Const, Span
from onnx_sched.errors import ModelError

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
        copy_span(span, self._file)

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
            copy_span(const.span, self._file)
            return
        array = np.ascontiguousarray(const.load())
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        put(array.reshape(-1).view(np.uint8).data, self._file)  # without a second copy

    def add_raw(self, tensor: TensorProto) -> None:
        """Move a tensor's numbers out of the model."""
        raw = tensor.raw_data
        self._point(tensor, len(raw))
        put(memoryview(raw), self._file)


def put(data: memoryview, file: BinaryIO) -> None:
    """Write bytes; long runs of zeros become a hole, as they were one where they came from."""
    for begin in range(0, len(data), CHUNK):
        part = data[begin : begin + CHUNK]
        few = part[:: CHUNK // 64]  # most data shows at once that it is none
        if len(part) == CHUNK and not any(few) and not np.frombuffer(part, np.uint64).any():
            file.seek(CHUNK, os.SEEK_CUR)
        else:
            file.write(part)
    file.truncate()


def copy_span(span: Span, file: BinaryIO) -> None:
    """Copy bytes of a file to the end of another; holes become holes without being read."""
    end = span.offset + span.length
    with span.path.open("rb", buffering=0) as original:
        at = span.offset
        while at < end:
            data, hole = _extent(original, at, end)
            file.seek(data - at, os.SEEK_CUR)
            at = original.seek(data)
            while at < hole:
                chunk = original.read(min(hole - at, CHUNK))
                if not chunk:
                    raise ModelError(f"{span.path} ended while it was read")
                put(memoryview(chunk), file)
                at += len(chunk)
    file.truncate()


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
