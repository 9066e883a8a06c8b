"""The few things about ONNX Runtime that everyone here needs: import it, name its errors.

It is imported inside functions, never at the top: `onnx-sched --help` has no use for it.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

from onnx_sched.judge.capture import captured_output

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
NVIDIA = (CUDA, "TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider")


def import_ort() -> Any:
    """The module `onnxruntime`; a package that breaks while it is imported counts as missing."""
    try:
        with captured_output():
            return importlib.import_module("onnxruntime")
    except (OSError, RuntimeError, AttributeError) as error:
        raise ImportError(first_line(error)) from error


def preload_libraries(name: str) -> str:
    """Load the CUDA libraries that came as Python packages; returns what ONNX Runtime printed.

    Without this, libraries installed by pip are not found. Does nothing for other providers.
    """
    import onnxruntime as ort

    if name not in NVIDIA or not hasattr(ort, "preload_dlls"):
        return ""
    with captured_output() as said:
        ort.preload_dlls()
    return said.text


def ort_errors() -> tuple[type[Exception], ...]:
    """Everything that ONNX Runtime raises when it refuses a model, a feed or a provider."""
    state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    own = [kind for _, kind in sorted(vars(state).items()) if _is_error(kind)]
    return (*own, RuntimeError, ValueError)


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Exception)


def first_line(error: Exception) -> str:
    """The first line of an error of ONNX Runtime, without its prefix, colours, source and file places.

    Where a model lies is known to whoever asked, or is a temporary file that nobody will find.
    """
    text = re.sub(r"\x1b\[[\d;]*m", "", str(error)).strip()
    line = text.splitlines()[0].strip() if text else type(error).__name__
    line = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", line)
    line = re.sub(r"^Load model from .*? failed: ?", "", line)
    return re.sub(r"/onnxruntime_src/\S+:\d+ [^()]*\([^()]*\)( const)? ", "", line)
