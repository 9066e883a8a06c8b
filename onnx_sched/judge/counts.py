"""The numbers of a comparison that are the same in every run: dispatches, kernels, bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import ModelProto

from onnx_sched.judge.comparison import Counted
from onnx_sched.judge.device_memory import device_peak
from onnx_sched.judge.inspection import Inspection, inspect
from onnx_sched.judge.launches import KernelCount, count_kernels
from onnx_sched.judge.measure import bind
from onnx_sched.judge.opening import Setup, open_for
from onnx_sched.judge.runtime import RuntimeRefused
from onnx_sched.judge.static_memory import live_set


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two models.

    Attributes:
        path, proto: The model.
        seen: What ONNX Runtime makes of it at each size that is timed; or why it does not run.
    """

    path: Path
    proto: ModelProto
    seen: list[Inspection | str]

    @property
    def last(self) -> Inspection | None:
        """At the sizes at which things are counted."""
        return self.seen[-1] if isinstance(self.seen[-1], Inspection) else None

    @property
    def why(self) -> str:
        """Why there is nothing to count."""
        return self.seen[-1] if isinstance(self.seen[-1], str) else ""


def try_inspect(path: Path, feeds: Mapping[str, Any], setup: Setup) -> Inspection | str:
    """Look at a model under the profiler; or why it does not run."""
    try:
        return inspect(path, feeds, setup)
    except RuntimeRefused as error:
        return str(error)


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted; each number names its source.

    Attributes:
        dispatches: Node dispatches of one run.
        kernels: CUDA kernels of one run of each model.
        peak_profile: Peak of the activations, from ONNX Runtime's profile.
        peak_estimate: The same, estimated from the files alone.
        peak_device: Peak of the device's memory.
    """

    dispatches: Counted
    kernels: tuple[KernelCount, KernelCount]
    peak_profile: Counted
    peak_estimate: Counted
    peak_device: Counted


def of(cls, sides: Sequence[Side], feeds: Mapping[str, Any], setup: Setup) -> _Counts:
    shapes = {n: v.shape for n, v in feeds.items() if hasattr(v, "shape")}
    estimates = [live_set(side.proto, shapes) for side in sides]
    estimate = Counted(estimates[0].peak_bytes, estimates[1].peak_bytes, estimates[1].source)
    if sides[0].last is None or sides[1].last is None:
        why = f"not available: {sides[0].why or sides[1].why}"
        none, nobody = Counted(None, None, why), KernelCount(None, (), why)
        return Counts(none, (nobody, nobody), none, estimate, none)
    profiles = (sides[0].last.profile, sides[1].last.profile)
    kernels = [
        count_kernels(bind(open_for(side.path, setup), feeds, setup.provider), setup.provider)
        for side in sides
    ]
    peaks = [
        device_peak(side.path, feeds, setup, profile)
        for side, profile in zip(sides, profiles, strict=True)
    ]
    return Counts(
        Counted(
            profiles[0].dispatches,
            profiles[1].dispatches,
            "ONNX Runtime profile, after its own fusions",
        ),
        (kernels[0], kernels[1]),
        Counted(
            profiles[0].peak_activation_bytes,
            profiles[1].peak_activation_bytes,
            profiles[1].source,
        ),
        estimate,
        Counted(peaks[0][0], peaks[1][0], peaks[1][1]),
    )
