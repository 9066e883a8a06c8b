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


def count(sides: Sequence[Side], feeds: Mapping[str, Any], setup: Setup) -> Counts:
    """Count for both models, on inputs of the sizes of their last inspection."""
    shapes = {n: v.shape for n, v in feeds.items() if hasattr(v, "shape")}
    estimates = [live_set(side.proto, shapes) for side in sides]
    estimate = _both(*((found.peak_bytes, found.source) for found in estimates))
    found = [_one(side, feeds, setup) for side in sides]
    return Counts(
        _both(*(one.dispatches for one in found)),
        (found[0].kernels, found[1].kernels),
        _both(*(one.peak for one in found)),
        estimate,
        _both(*(one.device for one in found)),
    )


@dataclass(frozen=True, slots=True)
class _One:
    """The numbers of one model, each with its source."""

    dispatches: tuple[int | None, str]
    kernels: KernelCount
    peak: tuple[int | None, str]
    device: tuple[int | None, str]


def _one(side: Side, feeds: Mapping[str, Any], setup: Setup) -> _One:
    if side.last is None:
        why = f"not available: {side.path.name} does not run"
        return _One((None, why), KernelCount(None, (), why), (None, why), (None, why))
    profile = side.last.profile
    once = bind(open_for(side.path, setup), feeds, setup.provider)
    return _One(
        (profile.dispatches, "ONNX Runtime profile, after its fusions"),
        count_kernels(once, setup.provider),
        (profile.peak_activation_bytes, profile.source),
        device_peak(side.path, feeds, setup, profile),
    )


def _both(before: tuple[int | None, str], after: tuple[int | None, str]) -> Counted:
    """A number of both models; the source that is named is that of the one that is less known."""
    return Counted(before[0], after[0], before[1] if before[0] is None else after[1])
