"""The peers: other ways to run a model on the CPU, each as it would be deployed for one fixed size.

A peer takes the benchmark's model and gives what runs it once.  All of them hold their inputs already and
leave their outputs where they are: what is timed is the model, not the copies around it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from onnx_sched.judge.measure import Runner, runner
from onnx_sched.judge.runtime import open_session, run
from scripts.contest import AGAIN, ORIGINAL
from scripts.table_forms import Size

Array = NDArray[np.float32]

OURS = "ours + ORT"


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """What all peers run; known by itself, so that what is made of it is kept.

    Attributes:
        original: The model.
        ours: What `optimize` made of it.
        size: How the model was built.
        x: Its input.
        threads: Threads within a node.
    """

    original: Path
    ours: Path
    size: Size
    x: Array
    threads: int


@dataclass(frozen=True, slots=True)
class Opened:
    """A peer that is ready.

    Attributes:
        once: Runs it.
        output: Gives its output.
    """

    once: Runner
    output: Callable[[], Array]


@dataclass(frozen=True, slots=True)
class Peer:
    """One way to run the model.

    Attributes:
        needs: Modules that must be installed.
        open: Makes it ready.
    """

    needs: tuple[str, ...]
    open: Callable[[Setting], Opened]

    @property
    def missing(self) -> tuple[str, ...]:
        """Those of its modules that are not installed."""
        return tuple(name for name in self.needs if importlib.util.find_spec(name) is None)


def version(module: str) -> str:
    """Of an installed module."""
    return str(getattr(importlib.import_module(module), "__version__", "unknown"))


def ort(model: Path | bytes, setting: Setting) -> Opened:
    """ONNX Runtime with its own optimisations."""
    feeds = {"x": setting.x}
    session = open_session(model, "cpu", threads=setting.threads)
    return Opened(
        runner(model, feeds, "cpu", setting.threads),
        lambda: np.asarray(run(session, feeds)["y"]),
    )


def onnxslim_ort(setting: Setting) -> Opened:
    """`onnxslim.slim`, then ONNX Runtime."""
    return ort(_slimmed(setting.original), setting)


@cache
def _slimmed(path: Path) -> bytes:
    slim = importlib.import_module("onnxslim").slim
    with contextlib.redirect_stdout(io.StringIO()):
        model: onnx.ModelProto = slim(onnx.load(path))
    return bytes(model.SerializeToString())


def onnxscript_ort(setting: Setting) -> Opened:
    """`onnxscript.optimizer.optimize`, then ONNX Runtime."""
    return ort(_scripted(setting.original), setting)


@cache
def _scripted(path: Path) -> bytes:
    optimizer = importlib.import_module("onnxscript.optimizer")
    model: onnx.ModelProto = optimizer.optimize(onnx.load(path))
    return bytes(model.SerializeToString())


def openvino(model: Path, setting: Setting) -> Opened:
    """OpenVINO, for latency, in the precision of the model."""
    ov = importlib.import_module("openvino")
    wishes = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": setting.threads,
        "NUM_STREAMS": 1,
    }
    request = ov.compile_model(str(model), "CPU", wishes).create_infer_request()
    request.set_input_tensor(ov.Tensor(setting.x, shared_memory=True))

    def once() -> object:
        request.start_async()
        request.wait()
        return None

    def output() -> Array:
        once()
        return np.array(request.get_output_tensor(0).data)

    return Opened(once, output)


def torch_compiled(setting: Setting) -> Opened:
    """`torch.compile` with frozen weights, alike layers fused into batched ones, stacked throughout."""
    torch: Any = importlib.import_module("torch")
    x = torch.from_numpy(setting.x)
    compiled = _compiled(setting)

    def once() -> Any:
        with torch.no_grad():
            return compiled(x)

    return Opened(once, lambda: np.asarray(once().numpy()))


FUSIONS: Mapping[str, Mapping[str, object]] = {
    name: {}
    for name in (
        "normalization_pass",
        "batch_linear",
        "batch_layernorm",
        "batch_relu",
        "unbind_stack_pass",
    )
}
"""Inductor's passes that make batched operators of alike ones, and keep the lanes stacked between them."""


@cache
def _compiled(setting: Setting) -> Any:
    """Compiled once: that takes much longer than all races."""
    import torch

    config: Any = importlib.import_module("torch._inductor.config")
    torch.set_num_threads(setting.threads)
    compiled = torch.compile(_module(setting.original, setting.size), dynamic=False)
    with config.patch(freezing=True, pre_grad_fusion_options=dict(FUSIONS)), torch.no_grad():
        compiled(torch.from_numpy(setting.x))
    return compiled


def _module(path: Path, size: Size) -> Any:
    """The benchmark's model as a module with the same weights."""
    import torch
    from torch import nn

    weights = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}

    class Branches(nn.Module):  # type: ignore[misc, unused-ignore]
        """One MLP with norms on every slice of the features."""

        def __init__(self) -> None:
            super().__init__()
            self.linears = nn.ModuleList()
            self.norms = nn.ModuleList()
            for layer in range(size.layers):
                for group in range(size.groups):
                    name = f"layers.{layer}.groups.{group}"
                    linear, norm = nn.Linear(size.width, size.width), nn.LayerNorm(size.width)
                    for own, key, turned in (
                        (linear.weight, f"{name}.weight", True),
                        (linear.bias, f"{name}.bias", False),
                        (norm.weight, f"{name}.norm.weight", False),
                        (norm.bias, f"{name}.norm.bias", False),
                    ):
                        array = weights[key].T if turned else weights[key]
                        own.data = torch.from_numpy(np.array(array))
                    self.linears.append(linear)
                    self.norms.append(norm)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Map `[batch, features]` to the same shape."""
            lanes = list(torch.split(x, size.width, dim=1))
            for layer in range(size.layers):
                for group in range(size.groups):
                    place = layer * size.groups + group
                    lane = self.norms[place](self.linears[place](lanes[group]))
                    lanes[group] = nn.functional.relu(lane)
            joined: torch.Tensor = torch.cat(lanes, dim=1)
            return joined

    return Branches().eval()


PEERS: Mapping[str, Peer] = {
    ORIGINAL: Peer((), lambda s: ort(s.original, s)),
    AGAIN: Peer((), lambda s: ort(s.original, s)),
    OURS: Peer((), lambda s: ort(s.ours, s)),
    "onnxslim + ORT": Peer(("onnxslim",), onnxslim_ort),
    "onnxscript + ORT": Peer(("onnxscript",), onnxscript_ort),
    "OpenVINO": Peer(("openvino",), lambda s: openvino(s.original, s)),
    "ours + OpenVINO": Peer(("openvino",), lambda s: openvino(s.ours, s)),
    "torch.compile": Peer(("torch",), torch_compiled),
}
"""All of them; the original runs on ONNX Runtime."""
