"""What a comparison of two models found, as plain data; its JSON is described by a shipped schema."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from onnx_sched.judge.agree import Agreement
from onnx_sched.judge.conditions import condition_label
from onnx_sched.judge.critical_path import CriticalPath
from onnx_sched.judge.launches import KernelCount
from onnx_sched.judge.measure import Speedup
from onnx_sched.judge.provider import SelectedProvider
from onnx_sched.judge.ranking import Ranking
from onnx_sched.judge.significance import SpeedVerdict

SCHEMA_VERSION = "1"

Dims = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One of the two models, as its file says; `depth` is in layers, constants not counted."""

    name: str
    nodes: int
    depth: int
    opset: int
    ir_version: int


@dataclass(frozen=True, slots=True)
class Counted:
    """A number of both models, who counted, and of what; None where nobody could."""

    before: int | None
    after: int | None
    source: str

    @property
    def known(self) -> bool:
        """Whether both numbers are there."""
        return self.before is not None and self.after is not None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Steady:
    """Percentiles of single warm runs in microseconds, and how many runs they are made of."""

    p50_us: float
    p95_us: float
    p99_us: float
    runs: int


@dataclass(frozen=True, slots=True)
class Cold:
    """Medians of opening a session and of its first run, in milliseconds."""

    create_ms: float
    first_run_ms: float
    repeats: int


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """Latency under one condition.

    Attributes:
        dims: Sizes; empty where inputs were given or nothing is open.
        threads: Threads within a node; 0 is the runtime's choice.
        cuda_graph: Whether both replayed a CUDA graph.
        tf32: Whether TF32 was allowed; None where the provider knows none.
        before, after: Steady state.
        speedup, floor: The other model against the original, and the original against itself (A/A).
        verdict: Whether the speed-up is more than noise.
        cold_before, cold_after: Cold start.
        processes: In how many processes it was measured.
        openings: How often all sessions were opened anew for it.
        settled: Whether the warm-up ended because times stood still.
        input_set: Which of the inputs that the user gave; None where they are made up.
    """

    dims: Dims
    threads: int
    cuda_graph: bool
    tf32: bool | None
    before: Steady
    after: Steady
    speedup: Speedup
    floor: Speedup
    verdict: SpeedVerdict
    cold_before: Cold
    cold_after: Cold
    processes: int
    openings: int
    settled: bool
    input_set: int | None = None

    @property
    def label(self) -> str:
        """The condition in words."""
        return condition_label(self.dims, self.threads, self.cuda_graph, self.input_set)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "dims": dict(self.dims),
            "threads": self.threads,
            "cuda_graph": self.cuda_graph,
            "tf32": self.tf32,
            "before": asdict(self.before),
            "after": asdict(self.after),
            "speedup": self.speedup.ratio,
            "ci_low": self.speedup.low,
            "ci_high": self.speedup.high,
            "pairs": self.speedup.pairs,
            "noise_floor": {
                "ratio": self.floor.ratio,
                "ci_low": self.floor.low,
                "ci_high": self.floor.high,
            },
            "verdict": self.verdict,
            "cold_start": {"before": asdict(self.cold_before), "after": asdict(self.cold_after)},
            "processes": self.processes,
            "openings": self.openings,
            "settled": self.settled,
            "input_set": self.input_set,
        }


@dataclass(frozen=True, slots=True)
class PathRow:
    """Critical paths at one set of sizes, beside the median wall time of a run where it was timed."""

    dims: Dims
    threads: int
    before: CriticalPath
    after: CriticalPath
    wall_before_us: float | None
    wall_after_us: float | None
    input_set: int | None = None

    @property
    def label(self) -> str:
        """The condition in words."""
        return condition_label(self.dims, self.threads, False, self.input_set)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "dims": dict(self.dims),
            "threads": self.threads,
            "before": {**asdict(self.before), "wall_us": self.wall_before_us},
            "after": {**asdict(self.after), "wall_us": self.wall_after_us},
            "input_set": self.input_set,
        }


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the nodes of one model ran.

    Attributes:
        nodes_per_provider: Full name -> node dispatches in one run.
        cpu_nodes: (node, op type) of what ran on the CPU though another provider was asked for.
        copies: Copies between devices that ONNX Runtime put in (Memcpy nodes).
    """

    nodes_per_provider: dict[str, int]
    cpu_nodes: tuple[tuple[str, str], ...]
    copies: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "nodes_per_provider": dict(self.nodes_per_provider),
            "cpu_nodes": [{"node": node, "op_type": op} for node, op in self.cpu_nodes],
            "copies": self.copies,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that was found about two models.

    Attributes:
        before, after: The models.
        provider: Who ran them.
        environment: Versions and machine.
        settings: What was asked for.
        agreement, rankings: How the outputs compare.
        dispatches: Node dispatches of one run, at `counted_at`, as the bytes and kernels below.
        kernels_before, kernels_after: CUDA kernels.
        peak_profile, peak_estimate, peak_device: Peak memory in bytes, from three sources.
        counted_at: Sizes.
        placement_before, placement_after: Which provider ran the nodes; None if not known.
        latency, paths: Timings.
        notes: What could not be done, and why.
        seconds: Time that all this took.
    """

    before: ModelFacts
    after: ModelFacts
    provider: SelectedProvider
    environment: dict[str, Any]
    settings: dict[str, Any]
    agreement: Agreement
    rankings: tuple[Ranking, ...]
    dispatches: Counted
    kernels_before: KernelCount
    kernels_after: KernelCount
    peak_profile: Counted
    peak_estimate: Counted
    peak_device: Counted
    counted_at: Dims
    placement_before: Placement | None
    placement_after: Placement | None
    latency: tuple[LatencyRow, ...]
    paths: tuple[PathRow, ...]
    notes: tuple[str, ...] = field(default_factory=tuple)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As JSON, with the keys of the shipped schema."""
        return {
            "schema_version": SCHEMA_VERSION,
            "before": asdict(self.before),
            "after": asdict(self.after),
            "provider": asdict(self.provider),
            "environment": dict(self.environment),
            "settings": dict(self.settings),
            "agreement": self._agreement(),
            "dispatches": self.dispatches.to_dict(),
            "kernel_launches": {
                "before": _kernels(self.kernels_before),
                "after": _kernels(self.kernels_after),
            },
            "peak_bytes": {
                "activations": self.peak_profile.to_dict(),
                "estimate": self.peak_estimate.to_dict(),
                "device": self.peak_device.to_dict(),
            },
            "counted_at": dict(self.counted_at),
            "placement": {
                "before": self.placement_before.to_dict() if self.placement_before else None,
                "after": self.placement_after.to_dict() if self.placement_after else None,
            },
            "latency": [row.to_dict() for row in self.latency],
            "critical_path": [row.to_dict() for row in self.paths],
            "notes": list(self.notes),
            "seconds": self.seconds,
        }

    def _agreement(self) -> dict[str, Any]:
        ranks = {row.name: row for row in self.rankings}
        outputs = []
        for output in self.agreement.outputs:
            rank = ranks.get(output.name)
            scores = {"rows": rank.rows, "argmax": rank.argmax, "top5": rank.top5} if rank else None
            numbers = {key: _finite(value) for key, value in asdict(output).items()}
            outputs.append({**numbers, "ranking": scores})
        return {
            "verdict": self.agreement.verdict,
            "reason": self.agreement.reason,
            "checks": self.agreement.checks,
            "outputs": outputs,
        }


def _finite(value: Any) -> Any:
    """JSON has no infinity; a difference that overflows has no number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _kernels(count: KernelCount) -> dict[str, Any]:
    return {
        "count": count.count,
        "by_name": [{"name": name, "count": number} for name, number in count.by_name],
        "source": count.source,
    }
