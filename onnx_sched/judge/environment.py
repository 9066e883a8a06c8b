"""Versions and machine: what a reader needs to judge a number, and nothing that changes by itself."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from onnx_sched.judge.cuda_driver import driver
from onnx_sched.judge.ortlib import CUDA

PACKAGES = ("onnx-sched", "numpy", "onnx", "onnxruntime", "onnxruntime-gpu")


def environment(provider: str) -> dict[str, Any]:
    """Versions, processor and device."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "processor": processor(),
        "cores": os.cpu_count(),
        "packages": {name: version for name in PACKAGES if (version := installed(name))},
        "device": None,
        "driver_cuda": None,
    }
    if provider == CUDA:
        seen = driver()
        found["device"] = seen.devices[0] if seen.devices else None
        found["driver_cuda"] = ".".join(map(str, seen.cuda)) if seen.cuda else None
    return found


def installed(package: str) -> str | None:
    """The version of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def processor() -> str:
    """The name of the processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
