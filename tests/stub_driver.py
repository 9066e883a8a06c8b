"""A library that passes for the NVIDIA driver, where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onnx_sched.judge.ortlib import CUDA
from onnx_sched.judge.provider import check_provider

ROOT = Path(__file__).resolve().parents[1]

_DRIVER = """
#include <string.h>
int cuInit(unsigned flags) { return %d; }
int cuDriverGetVersion(int *v) { *v = %d; return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *s, int n, int d) { strncpy(s, "Stub GPU", n); return 0; }
"""


def driver(folder: Path, *, init: int, version: int) -> Path:
    """Build `libcuda.so.1`: what `cuInit` returns (100: no device), and the CUDA that it supports."""
    return shared_object(folder, "libcuda.so.1", _DRIVER % (init, version))


def shared_object(folder: Path, name: str, source: str = "int empty;") -> Path:
    """Build a shared library, or skip the test where that is not possible or would hide a real one."""
    import onnxruntime

    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("stub libraries need Linux and a C compiler")
    if check_provider("cuda").usable or CUDA not in onnxruntime.get_available_providers():
        pytest.skip("needs a CUDA build of onnxruntime on a machine without a device")
    folder.mkdir(exist_ok=True)
    code = folder / f"{name}.c"
    code.write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(folder / name), str(code)], check=True)
    return folder


def run(
    *words: str, modules: Path | None = None, libraries: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `onnx-sched` in a new process that finds the modules and libraries of these folders first."""
    places = [str(place) for place in (modules, ROOT) if place is not None]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    if libraries is not None:
        environment["LD_LIBRARY_PATH"] = str(libraries)
    return subprocess.run(
        [sys.executable, "-m", "onnx_sched", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
