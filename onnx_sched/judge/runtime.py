"""Sessions of ONNX Runtime: open one without surprises, and run it.

A session here never prints, never falls back to another provider in silence, and fails with one
sentence. Value types that numpy lacks (bfloat16, 8-bit floats) go in and come out as `ml_dtypes`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnx_sched.errors import ProviderError, SchedError
from onnx_sched.judge.capture import captured_output
from onnx_sched.judge.ortlib import CPU, CUDA, first_line, ort_errors, preload_libraries
from onnx_sched.judge.probe import probe
from onnx_sched.judge.provider import full_name

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, SessionOptions

# What ONNX Runtime hands out as OrtValue or as bare bytes -> (name in ml_dtypes, ONNX type number).
_FOREIGN_TYPES = {
    "tensor(bfloat16)": ("bfloat16", 16),
    "tensor(float8e4m3fn)": ("float8_e4m3fn", 17),
    "tensor(float8e4m3fnuz)": ("float8_e4m3fnuz", 18),
    "tensor(float8e5m2)": ("float8_e5m2", 19),
    "tensor(float8e5m2fnuz)": ("float8_e5m2fnuz", 20),
}


class RuntimeRefused(SchedError):  # noqa: N818  (the word for what happens)
    """ONNX Runtime does not load the model, or does not run it on these inputs."""


def open_session(
    model: bytes | Path | str,
    provider: str,
    *,
    optimize: bool = True,
    threads: int | None = 1,
    exact: bool = False,
    profile_prefix: Path | None = None,
    folder: Path | None = None,
) -> InferenceSession:
    """Open a session on one provider.

    Args:
        model: The serialized model, or the path of its file (needed for external data).
        provider: `cpu`, `cuda` or a full name.
        optimize: All optimizations of ONNX Runtime, as people deploy; or none of them.
        threads: Number of threads within a node; None leaves it to ONNX Runtime.
        exact: For comparing outputs: no TF32, no int8 activations behind float models,
            deterministic kernels. Leave it off for timing.
        folder: Where external data of a serialized model is.
        profile_prefix: Where the profile goes; ONNX Runtime adds a date and `.json`.

    Raises:
        RuntimeRefused: The model does not load; holds the first line of the reason.
        ProviderError: The session would run on another provider than the one asked for.
    """
    import onnxruntime as ort

    name = full_name(provider)
    options = _session_options(optimize, threads, exact)
    if folder is not None:
        key = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(key, str(folder))
    if profile_prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile_prefix)
    providers: list[Any] = [(name, {"use_tf32": "0"}) if exact and name == CUDA else name]
    if name != CPU:
        providers.append(CPU)  # shape arithmetic runs there
    preload_libraries(name)
    try:
        with captured_output():
            session = ort.InferenceSession(
                model,
                options,
                providers=providers,
                enable_fallback=0,
            )
    except ort_errors() as error:
        raise RuntimeRefused(f"ONNX Runtime does not load the model: {first_line(error)}") from None
    if session.get_providers()[0] != name:
        status = probe(name)
        cause = status.reason or f"the model fell back to {session.get_providers()[0]}"
        raise ProviderError(f"{name} cannot run here: {cause}", status.hint)
    return session


def _session_options(optimize: bool, threads: int | None, exact: bool) -> SessionOptions:
    import onnxruntime as ort

    level = ort.GraphOptimizationLevel
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    if threads is not None:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    if threads != 1:
        # Its threads spin on after a run, on cores that the next session in a race needs: without this,
        # a model raced against itself is off by a fifth either way.
        options.add_session_config_entry("session.force_spinning_stop", "1")
    if exact:
        options.use_deterministic_compute = True
        # By default, DequantizeLinear in front of MatMul makes it round activations to int8.
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
    return options


def run(session: InferenceSession, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Run the session once.

    Args:
        session: From `open_session`.
        feeds: Input name -> array (or list of arrays for a sequence).

    Returns:
        Output name -> array; a list for a sequence, a dict for a map, None for an empty optional.

    Raises:
        RuntimeRefused: The model does not run on these inputs.
    """
    outputs = session.get_outputs()
    types = [value.type for value in (*session.get_inputs(), *outputs)]
    foreign = any(name in _FOREIGN_TYPES for name in types)
    try:
        if foreign and all(name.startswith("tensor(") for name in types):
            values = _run_foreign(session, feeds)
        else:
            values = session.run(None, dict(feeds))
    except ort_errors() as error:
        raise RuntimeRefused(f"ONNX Runtime does not run the model: {first_line(error)}") from None
    return {output.name: value for output, value in zip(outputs, values, strict=True)}


def _run_foreign(session: InferenceSession, feeds: Mapping[str, Any]) -> list[Any]:
    """Run with values that `InferenceSession.run` cannot carry."""
    import onnxruntime as ort

    make = ort.OrtValue
    types = {value.name: value.type for value in session.get_inputs()}
    given = {}
    for name, array in feeds.items():
        foreign = _FOREIGN_TYPES.get(types.get(name, ""))
        if foreign is None or array.dtype.name != foreign[0]:
            given[name] = make.ortvalue_from_numpy(array)
        else:
            bits = np.asarray(array, order="C").view(f"u{array.dtype.itemsize}")
            given[name] = make.ortvalue_from_numpy_with_onnx_type(bits, foreign[1])
    return [_to_array(value) for value in session.run_with_ort_values(None, given)]


def _to_array(value: Any) -> np.ndarray[Any, Any]:
    """A tensor on the CPU as an array, whatever its type."""
    foreign = _FOREIGN_TYPES.get(value.data_type())
    if foreign is None:
        return np.asarray(value.numpy())
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, foreign[0]))
    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    # numpy has no such type, so there is no other way to the numbers than their address.
    data = ctypes.string_at(value.data_ptr(), count) if count else b""
    return np.frombuffer(data, dtype).reshape(shape)
