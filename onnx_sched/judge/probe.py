"""Does one execution provider run here, and if not, what is missing?

The list of providers that ONNX Runtime gives is what it was built with, not what works: the GPU
build names CUDA on a machine without a GPU, and then runs on the CPU in silence. So a provider
counts as usable only after it has run a model of one node with every fallback switched off.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import re
import sys
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper

from onnx_sched.judge.capture import captured_output
from onnx_sched.judge.ortlib import (
    CPU,
    CUDA,
    NVIDIA,
    first_line,
    import_ort,
    ort_errors,
    preload_libraries,
)

_NO_CUDA_DEVICE = 100  # CUDA_ERROR_NO_DEVICE of the driver API
_GET_LIBRARIES = "install the CUDA and cuDNN libraries: pip install 'onnx-sched[cuda]'"


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """Whether one execution provider can run here.

    Attributes:
        name: Full name, as ONNX Runtime spells it.
        usable: Whether a model really ran on it.
        code: `ok`, `unknown`, `no-ort`, `broken-ort`, `no-cuda-build`, `no-build`, `no-driver`,
            `no-device`, `load-failed` or `fell-back`.
        reason: One clause that says what is missing; empty if usable.
        hint: What to do about it; empty if there is nothing to do.
    """

    name: str
    usable: bool
    code: str
    reason: str
    hint: str


def probe(full: str) -> ProviderStatus:
    """Try the provider with the full name `full`; never raises, never prints."""
    broken = _check_package(full) or (_check_driver(full) if full in NVIDIA else None)
    return broken or _run_probe(full)


def _check_package(full: str) -> ProviderStatus | None:
    """What is wrong with the installed package, if anything."""
    try:
        ort = import_ort()
    except ImportError as error:
        reason = f"onnxruntime cannot be imported ({first_line(error)})"
        return ProviderStatus(full, False, "no-ort", reason, "pip install onnxruntime-gpu")
    if not hasattr(ort, "InferenceSession"):
        # Both packages write into one folder: removing either of them empties it for the other.
        reason = "the onnxruntime package is an empty shell: one of two packages was uninstalled"
        hint = "pip install --force-reinstall onnxruntime-gpu"
        return ProviderStatus(full, False, "broken-ort", reason, hint)
    if full in ort.get_available_providers():
        return None
    if full != CUDA:
        reason = f"the installed onnxruntime was built without {full}"
        return ProviderStatus(full, False, "no-build", reason, "install a build that has it")
    if all(_installed(package) for package in ("onnxruntime", "onnxruntime-gpu")):
        reason = "onnxruntime and onnxruntime-gpu are both installed, and the CPU one won"
        hint = "pip uninstall onnxruntime; pip install --force-reinstall onnxruntime-gpu"
    else:
        reason = "the installed onnxruntime was built without CUDA"
        hint = "pip uninstall onnxruntime; pip install onnxruntime-gpu"
    return ProviderStatus(full, False, "no-cuda-build", reason, hint)


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _check_driver(full: str) -> ProviderStatus | None:
    """What is wrong with the NVIDIA driver or device, if anything."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        hint = "install the NVIDIA driver (in a container: start it with access to the GPU)"
        return ProviderStatus(full, False, "no-driver", "no NVIDIA driver", hint)
    failure = int(driver.cuInit(0))
    if failure == 0:
        return None
    what = "no CUDA device" if failure == _NO_CUDA_DEVICE else f"CUDA error {failure} at start"
    hint = "look at nvidia-smi and at CUDA_VISIBLE_DEVICES"
    return ProviderStatus(full, False, "no-device", what, hint)


def _run_probe(full: str) -> ProviderStatus:
    """Run one node on the provider, with every way of falling back to the CPU closed."""
    import onnxruntime as ort

    preload = preload_libraries(full)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if full != CPU:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        with captured_output() as said:
            session = ort.InferenceSession(
                _one_node_model(), options, providers=[full], enable_fallback=0
            )
            session.run(None, {"x": np.ones(1, np.float32)})
    except ort_errors() as error:
        reason, hint = _explain_failure(str(error), preload + said.text)
        return ProviderStatus(full, False, "load-failed", reason, hint)
    ran_on = session.get_providers()
    if ran_on[0] != full:
        reason, hint = _explain_failure(f"the model ran on {ran_on[0]}", preload + said.text)
        return ProviderStatus(full, False, "fell-back", reason, hint)
    return ProviderStatus(full, True, "ok", "", "")


def _explain_failure(error: str, said: str) -> tuple[str, str]:
    """Reason and hint, from the error and from what ONNX Runtime printed."""
    pattern = r"Failed to load (\S+?): |(\S+?): cannot open shared object"
    missing = sorted({name for pair in re.findall(pattern, said) for name in pair if name})
    if missing:
        return f"CUDA libraries missing ({', '.join(missing)})", _GET_LIBRARIES
    cuda = re.search(r"CUDA failure \d+: [^;]+", error)
    return (cuda.group(0).strip() if cuda else first_line(RuntimeError(error))), ""


def _one_node_model() -> bytes:
    value = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")
    }
    node = helper.make_node("Add", ["x", "x"], ["y"])
    graph = helper.make_graph([node], "probe", [value["x"]], [value["y"]])
    opset = [helper.make_opsetid("", 13)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())
