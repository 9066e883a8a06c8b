"""Models on disk: reading without pulling weights into memory."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnx_sched import sound
from onnx_sched.constants import SMALL, Array, Const, Span, from_array
from onnx_sched.errors import ModelError
from onnx_sched.reading import model_in
from onnx_sched.tensors import (
    ELEMENT_BITS,
    NUMPY_TYPES,
    every_tensor,
    external_tensors,
    misfit,
    tensor_bytes,
)

UNNAMED = "the model"
"""What a model is called that comes from no file."""


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
        return str(self.path) if self.path else UNNAMED

    @property
    def folder(self) -> Path | None:
        """Where external data is looked for."""
        return self.path.parent if self.path else None


def read(path: Path) -> Source:
    """Read a model file; external data is checked, not loaded.

    Raises:
        ModelError: If the file or its external data is missing, broken, empty, or not a model.
    """
    source = Source(model_in(path), path)
    check(source)
    return source


def check(source: Source) -> None:
    """Refuse what is no model, weights that do not fit, and external data that cannot be had.

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
    sound.check(model, source.name)
    for tensor in every_tensor(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            locate(source, tensor)
        elif fault := misfit(tensor):
            raise ModelError(
                f"{source.name}: tensor {tensor.name!r} does not fit: {fault}",
                "The model is damaged; export or copy it again.",
            )


def locate(source: Source, tensor: TensorProto) -> Span:
    """Find an external tensor's bytes.

    Raises:
        ModelError: If the model came without a path, or the location leaves the model's folder, is
            missing, is too short, or does not fit the tensor's shape.
    """
    if source.folder is None:
        raise ModelError(
            f"tensor {tensor.name!r} keeps its data in a file, but the model came without a path",
            "Give the path of the model instead of the model, or load it with its data.",
        )
    entries = {e.key: e.value for e in tensor.external_data}
    location = entries.get("location", "")
    what = f"{source.name}: external data {location!r} of tensor {tensor.name!r}"
    if not isinstance(location, str):
        raise ModelError(f"{what} is no text (UTF-8)", "The model is damaged; export it again.")
    if fault := misfit(tensor):
        raise ModelError(f"{what} does not fit: {fault}", "The model is damaged; export it again.")
    path = _inside(source.folder, location, what)
    size = _size(path, what, f"Put {location} beside {source.name}, or export the model again.")
    try:
        offset, given = int(entries.get("offset") or 0), entries.get("length")
        length = int(given) if given else None
    except ValueError:
        raise ModelError(
            f"{what} has an offset or length that is no number", "Export the model again."
        ) from None
    if tensor.data_type in ELEMENT_BITS:
        need = tensor_bytes(tensor)
    else:  # nobody here knows how long an element is
        need = size - offset if length is None else length
    length = need if length is None else length
    if offset < 0 or length < 0 or length != need or offset + length > size:
        raise ModelError(
            f"{what} needs bytes {offset} to {offset + need}, but the file has {size} "
            f"and the model says {length}",
            "The data file is cut off or belongs to another model.",
        )
    return Span(path, offset, length)


def _inside(folder: Path, location: str, what: str) -> Path:
    """The path of a data file, which must be in the model's folder, and no link."""
    parts = Path(location).parts
    if not parts or Path(location).is_absolute() or ".." in parts or "\\" in location:
        raise ModelError(
            f"{what} lies outside the model's folder; it was not opened",
            "Move the data beside the model and save the model again.",
        )
    path = folder / location
    try:
        linked = path.is_symlink() or folder.resolve() not in path.resolve().parents
    except (OSError, ValueError):  # too long, or a zero byte
        raise ModelError(f"{what} is no name of a file", "Export the model again.") from None
    if linked:
        raise ModelError(
            f"{what} is a link; it was not followed",
            "Copy the model with its data (cp -L) and optimise the copy.",
        )
    return path


def _size(path: Path, what: str, hint: str) -> int:
    """Bytes of a data file."""
    try:
        found = path.stat()
    except OSError:
        raise ModelError(f"{what} is missing", hint) from None
    if not stat.S_ISREG(found.st_mode):
        raise ModelError(f"{what} is no file", hint)
    if not os.access(path, os.R_OK):
        raise ModelError(f"{what} may not be read", "Check its permissions.")
    return found.st_size


def data_files(source: Source) -> list[Path]:
    """The files that hold external data of a model, each once."""
    found = (locate(source, t).path for t in external_tensors(source.model))
    return list(dict.fromkeys(found))


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

        # Tensors may share bytes that they read in their own ways.
        key = ("file", str(span.path), span.offset, kind, shape)
        return Const(shape, kind, dtype, key, mapped, span)
    if tensor_bytes(tensor) <= SMALL:
        return from_array(numpy_helper.to_array(tensor), kind)
    held = ("held", tensor.name if owner is None else owner)
    return Const(shape, kind, dtype, held, lambda: numpy_helper.to_array(tensor))


def read_span(span: Span) -> bytes:
    """The bytes themselves.

    Raises:
        ModelError: If they cannot be read any more.
    """
    try:
        with span.path.open("rb") as file:
            file.seek(span.offset)
            raw = file.read(span.length)
    except OSError as error:
        raise ModelError(f"{span.path} cannot be read: {error.strerror}") from None
    if len(raw) < span.length:
        raise ModelError(f"{span.path} became shorter while it was read")
    return raw


def load_external(source: Source, tensor: TensorProto) -> None:
    """Pull an external tensor's numbers into the proto."""
    raw = read_span(locate(source, tensor))
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    tensor.raw_data = raw
