"""What keeps a model from being faster: weights to read, nodes to dispatch, or the runtime's kernels.

    measured time = bytes of weights / rate + dispatches * overhead + what is left: the kernels

The rate and the overhead are those of a device profile, the dispatches those that ONNX Runtime counts after
its own fusions.  Which kernels the rest goes to is taken from its profiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from onnx_sched.cost import Device
from onnx_sched.graph import every_node
from onnx_sched.judge.profiling import Profile, profile

LOOKUPS = frozenset({"EmbedLayerNormalization", "Gather", "GatherElements", "GatherND"})
"""Nodes that read only some rows of a weight."""

SHOWN = 3


@dataclass(frozen=True, slots=True)
class Bound:
    """Where the time of a run goes, in microseconds.

    Attributes:
        weights_us: Reading every weight once.
        dispatches_us: Starting every node.
        kernels_us: The rest.
        weight_bytes, dispatches: What was counted.
        kernels: The op types that took most of the profiled time, each with its share.
    """

    weights_us: float
    dispatches_us: float
    kernels_us: float
    weight_bytes: int
    dispatches: int
    kernels: tuple[tuple[str, float], ...]

    @property
    def name(self) -> str:
        """The largest part."""
        parts = {
            "weights read": self.weights_us,
            "dispatches": self.dispatches_us,
            "ORT kernels": self.kernels_us,
        }
        return max(parts, key=lambda part: parts[part])

    def words(self) -> str:
        """For people: the bound, all shares, and the kernels."""
        total = max(self.weights_us + self.dispatches_us + self.kernels_us, 1e-9)
        shares = (
            f"weights {self.weights_us / total:.0%}, dispatches {self.dispatches_us / total:.0%}"
        )
        kernels = ", ".join(f"{name} {share:.0%}" for name, share in self.kernels)
        return (
            f"bound by {self.name}: {shares}, kernels {self.kernels_us / total:.0%}"
            f" (profiled: {kernels})"
        )


def bound(
    path: Path,
    feeds: Mapping[str, Any],
    provider: str,
    threads: int | None,
    device: Device,
    measured_us: float,
) -> Bound:
    """Take the measured time of a model apart.

    Args:
        path: The model.
        feeds: Its inputs.
        provider: Execution provider.
        threads: Threads within a node; None leaves it to the runtime.
        device: Profile that gives the rate and the overhead.
        measured_us: Time of a run.
    """
    seen = profile(path, feeds, provider, threads, warm_runs=10)
    size = weight_bytes(onnx.load(str(path), load_external_data=False))
    weights = size / device.weights_gb_s / 1e3
    dispatches = seen.dispatches * device.dispatch_us
    return Bound(
        round(weights, 2),
        round(dispatches, 2),
        round(max(0.0, measured_us - weights - dispatches), 2),
        size,
        seen.dispatches,
        _shares(seen),
    )


def _shares(seen: Profile) -> tuple[tuple[str, float], ...]:
    """The op types that took the most time, the longest first."""
    times: dict[str, float] = {}
    for node in seen.node_times_us:
        times[node.op_type] = times.get(node.op_type, 0.0) + node.microseconds
    total = max(sum(times.values()), 1e-9)
    longest = sorted(times, key=lambda name: -times[name])[:SHOWN]
    return tuple((name, round(times[name] / total, 3)) for name in longest)


def weight_bytes(model: onnx.ModelProto) -> int:
    """Bytes of all weights that a run reads from end to end, each once."""
    sizes = {t.name: _bytes(t) for t in model.graph.initializer}
    read: set[str] = set()
    for node in every_node(model):
        read.update(node.input[1:] if node.op_type in LOOKUPS else node.input)
        if node.op_type == "Constant":
            sizes.update((node.output[0], _bytes(a.t)) for a in node.attribute if a.name == "value")
    return sum(size for name, size in sizes.items() if name in read)


def _bytes(tensor: TensorProto) -> int:
    count = 1
    for dim in tensor.dims:
        count *= dim
    return int(count * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
