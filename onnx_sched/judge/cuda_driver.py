"""The NVIDIA driver, asked directly: which CUDA it supports, and which devices it sees."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


@dataclass(frozen=True, slots=True)
class Driver:
    """What the driver says.

    Attributes:
        found: Whether there is a driver library.
        cuda: Newest (major, minor) of CUDA that it supports; None if unknown.
        devices: Names of the devices that it sees.
        failure: Why it does not start; empty if it does.
    """

    found: bool
    cuda: tuple[int, int] | None
    devices: tuple[str, ...]
    failure: str


def driver() -> Driver:
    """Ask the driver; never raises."""
    try:
        library: Any = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return Driver(False, None, (), "no NVIDIA driver")
    number = ctypes.c_int(0)
    known = int(library.cuDriverGetVersion(ctypes.byref(number))) == 0 and number.value > 0
    cuda = (number.value // 1000, number.value % 1000 // 10) if known else None
    failure = int(library.cuInit(0))
    if failure:
        what = "no CUDA device" if failure == _NO_DEVICE else f"CUDA error {failure} at start"
        return Driver(True, cuda, (), what)
    count = ctypes.c_int(0)
    library.cuDeviceGetCount(ctypes.byref(count))
    names = tuple(_name(library, place) for place in range(count.value))
    return Driver(True, cuda, names, "" if names else "no CUDA device")


def _name(library: Any, place: int) -> str:
    device = ctypes.c_int(0)
    text = ctypes.create_string_buffer(128)
    library.cuDeviceGet(ctypes.byref(device), place)
    library.cuDeviceGetName(text, len(text), device)
    return text.value.decode(errors="replace") or f"device {place}"
