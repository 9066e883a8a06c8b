"""Models on disk: reading without pulling weights into memory, writing whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper, numpy_helper

from onnx_sched.constants import Array, Const, from_array
from onnx_sched.errors import ModelError, UsageError
from onnx_sched.graph import every_node

PROTOBUF_LIMIT = 2**31 - 2**20
"""A protobuf file holds less than 2 GiB; the last MiB is kept free for everything but weights."""

INLINE = 1024
"""Tensors of fewer bytes stay in the model file when weights go beside it, as in onnx itself."""


@dataclass(frozen=True, slots=True)
class Source:
    """A model as it was given.

    Attributes:
        model: The proto; external weights are references, not numbers.
        path: The file it came from; None for a model in memory.
    """

    model: ModelProto
    path: Path | None

    @property
    def name(self) -> str:
        """What messages call the model."""
        return str(self.path) if self.path else "the model"

    @property
    def folder(self) -> Path | None:
        """Where external data is looked for."""
        return self.path.parent if self.path else None


def read(path: Path) -> Source:
    """Read a model file; external data is checked, not loaded.

    Raises:
        ModelError: If the file or its external data is missing, broken, empty, or not a model.
    """
    if path.is_dir():
        raise ModelError(
            f"{path} is a directory, not a model file", "Name the .onnx file inside it."
        )
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file", "Check the path.") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
    if not data:
        raise ModelError(f"{path} is empty (0 bytes)", "The export or download did not finish.")
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        raise ModelError(
            f"{path} is not an ONNX model, or it is cut off ({len(data)} bytes)",
            "Export or copy it again; text and other formats are not read.",
        ) from None
    source = Source(model, path)
    check(source)
    return source


def check(source: Source) -> None:
    """Refuse what is no model, or whose external data cannot be had.

    Raises:
        ModelError: It says which part, and what to do.
    """
    model = source.model
    if not model.HasField("graph") or not model.ir_version:
        raise ModelError(
            f"{source.name} holds no graph: it is not an ONNX model", "Check the file."
        )
    if not model.opset_import:
        raise ModelError(f"{source.name} imports no operator set", "Export it again.")
    for tensor in external_tensors(model):
        if source.folder is None:
            raise ModelError(
                f"tensor {tensor.name!r} keeps its data in a file, but the model came without a path",
                "Give the path of the model instead of the model, or load it with its data.",
            )
        locate(source, tensor)


def every_tensor(model: ModelProto) -> Iterator[TensorProto]:
    """All tensors of a model: initializers and attributes, in subgraphs and functions, too."""
    graphs: list[GraphProto] = [model.graph]
    for node in every_node(model):
        for a in node.attribute:
            if a.type == AttributeProto.TENSOR:
                yield a.t
            elif a.type == AttributeProto.TENSORS:
                yield from a.tensors
            elif a.type == AttributeProto.GRAPH:
                graphs.append(a.g)
            elif a.type == AttributeProto.GRAPHS:
                graphs += a.graphs
    for graph in graphs:
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield sparse.values
            yield sparse.indices


def external_tensors(model: ModelProto) -> list[TensorProto]:
    """The tensors whose numbers live in other files."""
    return [t for t in every_tensor(model) if t.data_location == TensorProto.EXTERNAL]


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a file: where an external tensor's numbers are."""

    path: Path
    offset: int
    length: int


def locate(source: Source, tensor: TensorProto) -> Span:
    """Find an external tensor's bytes.

    Raises:
        ModelError: If the location leaves the model's folder, is missing, or is too short.
    """
    entries = {e.key: e.value for e in tensor.external_data}
    location = entries.get("location", "")
    what = f"{source.name}: external data {location!r} of tensor {tensor.name!r}"
    folder = source.folder or Path()
    parts = Path(location).parts
    if not location or Path(location).is_absolute() or ".." in parts or "\\" in location:
        raise ModelError(
            f"{what} lies outside the model's folder; it was not opened",
            "Move the data beside the model and save the model again.",
        )
    path = folder / location
    if path.is_symlink() or folder.resolve() not in path.resolve().parents:
        raise ModelError(
            f"{what} is a link; it was not followed",
            "Copy the model with its data (cp -L) and optimise the copy.",
        )
    try:
        size = path.stat().st_size
    except OSError:
        raise ModelError(
            f"{what} is missing", f"Put {location} beside {source.name}, or export the model again."
        ) from None
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or -1)
    except ValueError:
        raise ModelError(f"{what} has an offset or length that is no number") from None
    need = tensor_bytes(tensor)
    length = need if length < 0 else length
    if offset < 0 or length != need or offset + length > size:
        raise ModelError(
            f"{what} needs bytes {offset} to {offset + need}, but the file has {size} "
            f"and the model says {length}",
            "The data file is cut off or belongs to another model.",
        )
    return Span(path, offset, length)


_PACKED = {
    TensorProto.INT4: 2,
    TensorProto.UINT4: 2,
    getattr(TensorProto, "FLOAT4E2M1", -1): 2,
    getattr(TensorProto, "INT2", -2): 4,
    getattr(TensorProto, "UINT2", -3): 4,
}


def tensor_bytes(tensor: TensorProto) -> int:
    """Bytes that a tensor's raw data takes."""
    elements = 1
    for d in tensor.dims:
        elements *= d
    if tensor.data_type in _PACKED:
        return -(-elements // _PACKED[tensor.data_type])
    try:
        return elements * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    except KeyError:
        return 0


NUMPY_TYPES: dict[int, np.dtype[Any]] = {
    TensorProto.FLOAT: np.dtype(np.float32),
    TensorProto.DOUBLE: np.dtype(np.float64),
    TensorProto.FLOAT16: np.dtype(np.float16),
    TensorProto.INT8: np.dtype(np.int8),
    TensorProto.INT16: np.dtype(np.int16),
    TensorProto.INT32: np.dtype(np.int32),
    TensorProto.INT64: np.dtype(np.int64),
    TensorProto.UINT8: np.dtype(np.uint8),
    TensorProto.UINT16: np.dtype(np.uint16),
    TensorProto.UINT32: np.dtype(np.uint32),
    TensorProto.UINT64: np.dtype(np.uint64),
    TensorProto.BOOL: np.dtype(np.bool_),
}
"""Element types that a pass may read and stack.  bfloat16 travels as its bits (see `constant`)."""


def constant(source: Source, tensor: TensorProto, owner: str | None = None) -> Const | None:
    """A tensor as a `Const`; None for element types that passes leave alone.

    Args:
        source: The model that it is in.
        tensor: The tensor.
        owner: A name that no other tensor of the model has; its own if not given.
    """
    shape, kind = tuple(tensor.dims), tensor.data_type
    dtype = NUMPY_TYPES.get(kind)
    if kind == TensorProto.BFLOAT16:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind))
        if dtype.itemsize != 2:  # onnx without ml_dtypes hands bfloat16 out as float32
            return None
    if dtype is None:
        return None
    known = dtype
    if tensor.data_location == TensorProto.EXTERNAL:
        span = locate(source, tensor)

        def mapped() -> Array:
            if not span.length:
                return np.zeros(shape, known)
            return np.memmap(span.path, known.newbyteorder("<"), "r", span.offset, shape)

        key = ("file", str(span.path), span.offset, span.length)
        return Const(shape, kind, dtype, key, mapped)
    if tensor_bytes(tensor) <= INLINE:
        return from_array(numpy_helper.to_array(tensor), kind)
    held = ("held", tensor.name if owner is None else owner)
    return Const(shape, kind, dtype, held, lambda: numpy_helper.to_array(tensor))


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A temporary file beside `target` that takes its place if all goes well, and else vanishes.

    Raises:
        ModelError: If the folder cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    except OSError as error:
        raise ModelError(
            f"cannot write {target}: {error.strerror}", "Choose another place with -o."
        ) from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    except OSError as error:
        raise ModelError(f"cannot write {target}: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_target(target: Path, source: Path | None) -> None:
    """Refuse an output that cannot be written, before any work is done.

    Raises:
        UsageError: If it is the input, or a directory.
        ModelError: If its folder is missing or read-only.
    """
    if target.is_dir():
        raise UsageError(f"-o {target} is a directory", f"Name a file: -o {target / 'out.onnx'}")
    if source is not None and target.exists() and source.exists() and target.samefile(source):
        raise UsageError(
            f"-o {target} is the input itself", "The input is never overwritten; name another file."
        )
    folder = target.parent
    if not folder.is_dir():
        raise ModelError(f"cannot write {target}: there is no folder {folder}", "Make it first.")
    if not os.access(folder, os.W_OK):
        raise ModelError(f"cannot write {target}: no permission to write in {folder}")


def copy(source: Source, target: Path) -> None:
    """Write the model unchanged: a byte copy, external data files included.

    Raises:
        ModelError: If something else stands where a data file must go.
    """
    assert source.path is not None
    spans = [locate(source, t).path for t in external_tensors(source.model)]
    for path in dict.fromkeys(spans):
        place = target.parent / path.relative_to(source.path.parent)
        if place.exists() and place.samefile(path):
            continue
        if place.exists() and not _same_bytes(place, path):
            raise ModelError(
                f"cannot write {target}: its data file {place} exists and holds something else",
                "Write to an empty folder.",
            )
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as temporary:
            shutil.copyfile(path, temporary)
    with replacing(target) as temporary:
        shutil.copyfile(source.path, temporary)


def _same_bytes(a: Path, b: Path) -> bool:
    if a.stat().st_size != b.stat().st_size:
        return False
    with a.open("rb") as x, b.open("rb") as y:
        while chunk := x.read(1 << 20):
            if chunk != y.read(1 << 20):
                return False
    return True


def size_inline(model: ModelProto) -> int:
    """Bytes of the weights that stand in the proto itself."""
    return sum(
        tensor_bytes(t) for t in every_tensor(model) if t.data_location != TensorProto.EXTERNAL
    )


def fill(tensor: TensorProto, const: Const) -> None:
    """Put a constant's numbers into a tensor."""
    array = np.ascontiguousarray(const.load()).reshape(const.shape)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    tensor.raw_data = array.tobytes()


def placeholder(name: str, const: Const) -> TensorProto:
    """A tensor with a constant's name, type and shape, its numbers still to come."""
    tensor = TensorProto(name=name, data_type=const.elem_type)
    tensor.dims.extend(const.shape)
    return tensor


ALIGN = 4096
"""Offsets in a data file are multiples of this, so that a runtime can map each tensor by itself."""


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
        left = span.length
        with span.path.open("rb") as original:
            original.seek(span.offset)
            while left:
                chunk = original.read(min(left, 1 << 24))
                if not chunk:
                    raise ModelError(f"{span.path} ended while it was read")
                self._file.write(chunk)
                left -= len(chunk)

    def add_const(self, tensor: TensorProto, const: Const) -> None:
        """Compute a new weight and write it."""
        self._point(tensor, const.nbytes)
        array = np.ascontiguousarray(const.load())
        self._file.write(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())

    def add_raw(self, tensor: TensorProto) -> None:
        """Move a tensor's numbers out of the model."""
        raw = tensor.raw_data
        self._point(tensor, len(raw))
        self._file.write(raw)


def write(
    model: ModelProto,
    fresh: Mapping[str, Const],
    source: Source,
    target: Path,
    location: str,
    data_at: Path | None = None,
) -> Path | None:
    """Write a rewritten model, its large weights into a data file if they need one.

    Args:
        model: The model; initializers named in `fresh` are placeholders.
        fresh: New weights, computed only while they are written.
        source: Where external tensors of the original are read.
        target: The model file to write.
        location: Name of the data file, as the model refers to it, if one is needed.
        data_at: Where to write that file now; beside `target` if not given.

    Returns:
        The data file, if one was written.
    """
    out = ModelProto()
    out.CopyFrom(model)
    inline = size_inline(out) + sum(c.nbytes for c in fresh.values())
    data_path = None
    if external_tensors(out) or inline >= PROTOBUF_LIMIT:
        data_path = data_at or target.parent / location
        with data_path.open("wb") as file:
            _fill_beside(out, fresh, source, DataFile(file, location))
    else:
        fill_all(out, fresh)
    target.write_bytes(out.SerializeToString(deterministic=True))
    return data_path


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


def save(model: ModelProto, fresh: Mapping[str, Const], source: Source, target: Path) -> None:
    """Write a rewritten model; it appears whole or not at all, its data file first.

    Raises:
        ModelError: If it cannot be written.
    """
    beside = target.with_name(target.name + ".data")
    with replacing(target) as temporary:
        data = write(
            model, fresh, source, temporary, beside.name, data_at=temporary.with_suffix(".data")
        )
        if data is not None:
            data.replace(beside)


def load_external(source: Source, tensor: TensorProto) -> None:
    """Pull an external tensor's numbers into the proto."""
    span = locate(source, tensor)
    with span.path.open("rb") as file:
        file.seek(span.offset)
        raw = file.read(span.length)
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    tensor.raw_data = raw
