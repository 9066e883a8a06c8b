"""Open a session for a measurement: with a CUDA graph, without TF32, with its optimised graph kept.

`runtime.open_session` opens what is compared; here is what a stopwatch needs beyond that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx_sched.errors import ProviderError
from onnx_sched.judge.capture import captured_output
from onnx_sched.judge.ortlib import CPU, CUDA, first_line, ort_errors, preload_libraries
from onnx_sched.judge.probe import probe
from onnx_sched.judge.runtime import RuntimeRefused

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

WEIGHTS_FILE = "weights.bin"
"""Where the weights of a kept graph go, beside it: nobody reads them."""


@dataclass(frozen=True, slots=True)
class Setup:
    """How a model is run.

    Attributes:
        provider: Full name of the execution provider.
        threads: Threads within a node; 0 leaves it to ONNX Runtime.
        cuda_graph: Replay one captured CUDA graph instead of launching kernel by kernel.
        tf32: Whether products of float32 may use TF32 on CUDA; ONNX Runtime's default is yes.
    """

    provider: str
    threads: int = 1
    cuda_graph: bool = False
    tf32: bool = True


def open_for(
    model: Path,
    setup: Setup,
    *,
    profile_prefix: Path | None = None,
    graph_path: Path | None = None,
) -> InferenceSession:
    """Open a session with all optimizations of ONNX Runtime, as people deploy.

    Args:
        model: The file.
        setup: How to run it.
        profile_prefix: Where the profile goes; ONNX Runtime adds a date and `.json`.
        graph_path: Where to keep the graph after ONNX Runtime's own fusions; its weights go to a
            second file beside it.

    Raises:
        RuntimeRefused: The model does not load so; holds the first line of the reason.
        ProviderError: The session would run on another provider than the one asked for.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    if setup.threads:
        options.intra_op_num_threads = setup.threads
        options.inter_op_num_threads = 1
    if profile_prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile_prefix)
        # With patterns, later runs hold one planned block: no telling who holds how much of it.
        options.enable_mem_pattern = False
    if graph_path is not None:
        options.optimized_model_filepath = str(graph_path)
        prefix = "session.optimized_model_external_initializers"
        options.add_session_config_entry(f"{prefix}_file_name", WEIGHTS_FILE)
        options.add_session_config_entry(f"{prefix}_min_size_in_bytes", "1024")
    providers = provider_options(setup)
    preload_libraries(setup.provider)
    try:
        with captured_output():
            session = ort.InferenceSession(
                str(model), options, providers=providers, enable_fallback=0
            )
    except ort_errors() as error:
        raise RuntimeRefused(f"ONNX Runtime does not load the model: {first_line(error)}") from None
    if session.get_providers()[0] != setup.provider:
        status = probe(setup.provider)
        cause = status.reason or f"the model fell back to {session.get_providers()[0]}"
        raise ProviderError(f"{setup.provider} cannot run here: {cause}", status.hint)
    return session


def provider_options(setup: Setup) -> list[Any]:
    """The providers as ONNX Runtime takes them; the CPU last, for the arithmetic of shapes.

    >>> provider_options(Setup("CPUExecutionProvider"))
    ['CPUExecutionProvider']
    """
    if setup.provider == CPU:
        return [CPU]
    own: dict[str, str] = {}
    if setup.provider == CUDA and not setup.tf32:
        own["use_tf32"] = "0"
    if setup.provider == CUDA and setup.cuda_graph:
        own["enable_cuda_graph"] = "1"
    return [(setup.provider, own) if own else setup.provider, CPU]
