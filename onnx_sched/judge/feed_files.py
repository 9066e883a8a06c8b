"""Inputs that the user gives: a file of numpy, or the test data folders that ONNX models come with."""

from __future__ import annotations

import difflib
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from onnx import ModelProto, OptionalProto, SequenceProto, TensorProto, numpy_helper

from onnx_sched.errors import UsageError
from onnx_sched.judge.inputs import InputSpec, input_specs, numpy_type, overridable_names

_BROKEN = (ValueError, OSError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What reading a zip of arrays may raise: cut off, changed, encrypted, or a size that nobody has."""

_NPZ_HINT = "write it with numpy.savez(path, **{input name: array})"


def load_feeds(path: Path | str, model: ModelProto) -> list[dict[str, Any]]:
    """Read the inputs of `--inputs`.

    Args:
        path: A `.npz` whose keys are the names of the inputs (one feed); or a folder with
            `input_0.pb`, `input_1.pb`, ... in the order of the inputs (one feed); or a folder that
            holds several `test_data_set_*` (one feed each, in numerical order).
        model: The model that is to be fed.

    Returns:
        One dict per feed: input name -> array, or list of arrays for a sequence.

    Raises:
        UsageError: A file is missing or broken, or does not fit the inputs of the model.
    """
    path = Path(path)
    if path.is_dir():
        sets = sorted(path.glob("test_data_set_*"), key=lambda p: _number(p.name))
        folders = [folder for folder in sets if folder.is_dir()] or [path]
        feeds = [(str(folder), _read_folder(folder, model)) for folder in folders]
    elif path.is_file():
        feeds = [(str(path), _read_npz(path))]
    else:
        hint = "name a .npz file, or a folder with test_data_set_* in it"
        what = "neither a file nor a folder" if path.exists() else "no such file or folder"
        raise UsageError(f"--inputs {path}: {what}", hint)
    specs = input_specs(model)
    return [_checked(where, feed, specs, overridable_names(model)) for where, feed in feeds]


def fit_feeds(sets: Sequence[Mapping[str, Any]], model: ModelProto) -> list[dict[str, Any]]:
    """Inputs that a program gives, held to what is asked of files.

    Numbers and lists, which have no type of their own, become arrays of the input's type.

    Raises:
        UsageError: A name, a type or a shape does not fit the inputs of the model.
    """
    specs, optional = input_specs(model), overridable_names(model)
    tensors = {spec.name: spec for spec in specs if spec.kind == "tensor"}
    found = []
    for place, fed in enumerate(sets):
        where = f"set {place}"
        typed = {
            name: _typed(where, tensors[name], value) if name in tensors else value
            for name, value in fed.items()
        }
        found.append(_checked(where, typed, specs, optional))
    return found


def _typed(where: str, spec: InputSpec, value: Any) -> np.ndarray[Any, Any]:
    """A value as an array; text as the Python strings that ONNX Runtime takes."""
    wanted = numpy_type(spec)
    try:
        array = np.asarray(value)
        if array.dtype.kind in "US":
            return array.astype(str).astype(object)
        if hasattr(value, "dtype") or wanted.kind == "O":
            return array
        # numpy would cut off fractions, and take None for nan.
        fractions = array.size > 0 and array.dtype.kind == "f" and wanted.kind in "iub"
        if array.dtype.kind != "O" and not fractions:
            with np.errstate(over="raise"):
                return np.array(value, dtype=wanted)
        reason = f"not all in it is {wanted.name}"
    except (TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
    raise UsageError(f"--inputs {where}: {spec.name} is no array: {reason}")


def _number(name: str) -> tuple[int, str]:
    digits = re.search(r"(\d+)(?:\.pb)?$", name)
    return (int(digits[1]) if digits else 0), name


def _read_npz(path: Path) -> dict[str, Any]:
    try:
        if not zipfile.is_zipfile(path):
            raise UsageError(f"--inputs {path}: {_no_archive(path)}", _NPZ_HINT)
        with np.load(path) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except _BROKEN as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if "allow_pickle" in reason:
            reason = "it holds Python objects, which are not loaded: they could do anything"
        raise UsageError(f"--inputs {path}: {reason}", _NPZ_HINT) from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # numpy gives whatever else lies in a zip as bytes
            raise UsageError(f"--inputs {path}: {name} in it is no array", _NPZ_HINT)
    # Text has a fixed width in such files, ONNX Runtime takes Python strings.
    return {
        n: a.astype(str).astype(object) if a.dtype.kind in "US" else a for n, a in arrays.items()
    }


def _no_archive(path: Path) -> str:
    """What a file is that is no .npz."""
    with path.open("rb") as file:
        head = file.read(6)
    if not head:
        return "empty (0 bytes)"
    return "one array without a name" if head == b"\x93NUMPY" else "not a .npz file, or cut off"


def _read_folder(folder: Path, model: ModelProto) -> dict[str, Any]:
    files = sorted(folder.glob("input_*.pb"), key=lambda p: _number(p.name))
    if not files:
        raise UsageError(
            f"--inputs {folder}: no input_*.pb in it", "give a test_data_set_* folder or a .npz"
        )
    specs = input_specs(model)
    names = [*(spec.name for spec in specs), *overridable_names(model)]
    if len(files) > len(names):
        raise UsageError(f"--inputs {folder}: {len(files)} files for {len(names)} inputs")
    kinds = {spec.name: spec.kind for spec in specs}
    feed = {}
    for place, file in zip(names, files, strict=False):
        name, value = _read_proto(file, kinds.get(place, "tensor"))
        # Files of other tools may carry other names: then the order counts, as for ONNX itself.
        feed[name if name in names else place] = value
    return feed


def _read_proto(file: Path, kind: str) -> tuple[str, Any]:
    """The name and the value in a file of one input."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"--inputs {file}: {error.strerror}") from None
    try:
        if kind == "sequence":
            sequence = SequenceProto.FromString(data)
            return sequence.name, numpy_helper.to_list(sequence)
        if kind == "optional":
            optional = OptionalProto.FromString(data)
            return optional.name, numpy_helper.to_optional(optional)
        tensor = TensorProto.FromString(data)
        array = numpy_helper.to_array(tensor)
    except (DecodeError, ValueError, TypeError) as error:
        raise UsageError(f"--inputs {file}: not a value of ONNX ({error})") from None
    text = tensor.data_type == TensorProto.STRING
    return tensor.name, array.astype(object) if text else array


def _checked(
    where: str, feed: Mapping[str, Any], specs: tuple[InputSpec, ...], optional: tuple[str, ...]
) -> dict[str, Any]:
    """The feed, if names, types and shapes fit the model."""
    known = [*(spec.name for spec in specs), *optional]
    for name in feed:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"the model has {', '.join(known)}"
            raise UsageError(f"--inputs {where}: the model has no input {name}", hint)
    missing = [spec.name for spec in specs if spec.name not in feed and spec.kind != "optional"]
    if missing:
        raise UsageError(f"--inputs {where}: {', '.join(missing)} missing")
    tensors = {spec.name: spec for spec in specs if spec.kind == "tensor"}
    return {
        name: _check_array(where, tensors[name], np.asarray(value)) if name in tensors else value
        for name, value in feed.items()
    }


def _check_array(where: str, spec: InputSpec, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    wanted_type = numpy_type(spec)
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted_type.itemsize:
        array = array.view(wanted_type)  # numpy forgets the types of ml_dtypes in its files
    given = "string" if array.dtype == object else array.dtype.name
    if given != spec.dtype:
        hint = f"save it as {spec.dtype}"
        raise UsageError(f"--inputs {where}: {spec.name} is {given}, not {spec.dtype}", hint)
    if spec.shape is None:
        return array
    fits = len(array.shape) == len(spec.shape) and all(
        size == dim or not isinstance(dim, int)
        for size, dim in zip(array.shape, spec.shape, strict=True)
    )
    if not fits:
        given = "x".join(map(str, array.shape)) or "a scalar"
        wanted = "x".join("?" if dim is None else str(dim) for dim in spec.shape) or "a scalar"
        raise UsageError(f"--inputs {where}: {spec.name} is {given}, not {wanted}")
    return array
