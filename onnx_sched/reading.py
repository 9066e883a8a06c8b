"""The model in a file, as it stands there: what cannot be one says which file, and why."""

from __future__ import annotations

import difflib
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import ModelProto

from onnx_sched.errors import ModelError


def model_in(path: Path) -> ModelProto:
    """The model in a file; what it refers to in other files is not looked at.

    Raises:
        ModelError: If the file is missing, broken, empty, or not a model.
    """
    try:
        if path.is_dir():
            raise ModelError(
                f"{path} is a directory, not a model file", "Name the .onnx file inside it."
            )
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file", _beside(path)) from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}", "Check the path.") from None
    except ValueError:  # a zero byte
        raise ModelError(f"{str(path)!r} is no name of a file", "Check the path.") from None
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
    return model


def _beside(path: Path) -> str:
    """What may have been meant instead of a file that there is not."""
    try:
        models = sorted(p.name for p in path.parent.iterdir() if p.suffix == ".onnx")
    except OSError:
        return f"There is no folder {path.parent}."
    close = difflib.get_close_matches(path.name, models, n=1)
    if close:
        return f"Did you mean {path.parent / close[0]}?"
    return f"Models there: {', '.join(models[:3])}." if models else "Check the path."
