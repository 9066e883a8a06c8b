"""What ONNX Runtime makes of a model: its own graph, its dispatches, its bytes, its time per node."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import GraphProto

from onnx_sched.judge.comparison import Placement
from onnx_sched.judge.critical_path import CriticalPath, critical_path
from onnx_sched.judge.opening import Setup, open_for
from onnx_sched.judge.ortlib import CPU
from onnx_sched.judge.profiling import Profile, profile_session
from onnx_sched.judge.runtime import RuntimeRefused

_ON_THE_HOST = "times of the host, which launches kernels and does not wait for them"
_WARM_RUNS = 10  # the profiler counts in whole microseconds
_MOST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Inspection:
    """One model under ONNX Runtime's profiler.

    Attributes:
        profile: Dispatches, bytes, times.
        path: Its critical path.
        placement: Which provider ran what.
    """

    profile: Profile
    path: CriticalPath
    placement: Placement


def inspect(model: Path, feeds: Mapping[str, Any], setup: Setup) -> Inspection:
    """Run a model under the profiler and keep the graph that ONNX Runtime made of it.

    Raises:
        RuntimeRefused: The model does not load or run.
        ProviderError: It would run elsewhere.
    """
    with tempfile.TemporaryDirectory(prefix="onnx-sched-") as folder:
        kept = Path(folder) / "graph.onnx"
        prefix = Path(folder) / "profile"
        try:
            session = open_for(model, setup, profile_prefix=prefix, graph_path=kept)
        except RuntimeRefused:
            # Some providers compile what cannot be written; a model that does not load fails again.
            session = open_for(model, setup, profile_prefix=prefix)
        profile = profile_session(session, feeds, warm_runs=_WARM_RUNS, most_seconds=_MOST_SECONDS)
        graph, source = _graph(kept, model)
    if setup.provider != CPU:
        source = f"{source}; {_ON_THE_HOST}"
    path = critical_path(graph, profile.node_times_us, source)
    return Inspection(profile, path, placement(profile, setup.provider))


def _graph(kept: Path, model: Path) -> tuple[GraphProto, str]:
    """The graph after ONNX Runtime's fusions, or else that of the file."""
    try:
        proto = onnx.load(str(kept), load_external_data=False)
    except (OSError, DecodeError):
        proto = onnx.load(str(model), load_external_data=False)
        return proto.graph, "graph of the file: ONNX Runtime did not give its own"
    return proto.graph, "graph after ONNX Runtime's fusions"


def placement(profile: Profile, provider: str) -> Placement:
    """Which provider ran the nodes, and which of them ran on the CPU though another was asked for."""
    times = profile.node_times_us
    strays = [(node.name, node.op_type) for node in times if node.provider == CPU != provider]
    copies = sum(node.calls for node in times if node.op_type.startswith("Memcpy"))
    return Placement(dict(profile.nodes_per_provider), tuple(strays), copies)
