"""The peak of a device's memory, from whoever can tell."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from onnx_sched.judge.measure import bind
from onnx_sched.judge.opening import Setup, open_for
from onnx_sched.judge.ortlib import CPU, CUDA
from onnx_sched.judge.profiling import Profile

Peak = tuple[int | None, str]


def device_peak(model: Path, feeds: Mapping[str, Any], setup: Setup, profile: Profile) -> Peak:
    """The bytes of device memory that a model takes at its peak, and who counted.

    The arena of ONNX Runtime knows to the byte. Where its profile does not say, what the device has in use
    is read before a session opens and after its first runs: coarse, and others on the device count.

    Args:
        model: The file.
        feeds: Inputs by name.
        setup: How to run it.
        profile: ONNX Runtime's own profile of it.
    """
    if setup.provider != CUDA:
        where = "runs on the CPU" if setup.provider == CPU else f"unknown for {setup.provider}"
        return None, f"not available: {where}"
    arena = profile.arena_peak_bytes.get(CUDA)
    if arena:
        return arena, "ONNX Runtime's CUDA arena: weights, activations and scratch"
    for name, reader in (("NVML", _nvml), ("torch", _torch)):
        used = reader()
        if used is not None:
            start = used()
            once = bind(open_for(model, setup), feeds, setup.provider)
            for _ in range(3):
                once()
            return max(0, used() - start), f"{name}: growth of the device's memory in use"
    return None, "not available: no arena fields in the profile, and neither NVML nor torch"


def _nvml() -> Callable[[], int] | None:
    """Reads the used bytes of the first visible device by NVML; None if that is not possible."""
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
        if visible and not visible.isdigit():
            handle = nvml.nvmlDeviceGetHandleByUUID(visible)
        else:
            handle = nvml.nvmlDeviceGetHandleByIndex(int(visible or 0))
        nvml.nvmlDeviceGetMemoryInfo(handle)
    except (ImportError, OSError, AttributeError, RuntimeError):
        return None
    except nvml.NVMLError:
        return None
    return lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used)


def _torch() -> Callable[[], int] | None:
    try:
        torch: Any = importlib.import_module("torch")
        if not torch.cuda.is_available():
            return None
    except (ImportError, OSError, AttributeError, RuntimeError):
        return None

    def used() -> int:
        free, total = torch.cuda.mem_get_info()
        return int(total - free)

    return used
