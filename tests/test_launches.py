"""Kernels are counted as kernels, by whoever can; a count of anything else is none."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from onnx_sched.judge.launches import RUNS, count_kernels
from onnx_sched.judge.ortlib import CPU, CUDA


class Device:
    """A device that runs two kernels a run, and whoever listens hears of them."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self) -> None:
        self.runs += 1

    @property
    def kernels(self) -> list[str]:
        return ["gemm", "relu", "gemm"] * self.runs


@pytest.fixture
def device() -> Device:
    return Device()


def fake_torch(device: Device, *, usable: bool = True, deaf: bool = False) -> ModuleType:
    """torch, as far as its profiler goes: it writes a trace of what ran while it was on."""

    class Tracer:
        def __enter__(self) -> Tracer:
            assert usable, "a torch that sees no device is not asked"
            self.start = len(device.kernels)
            return self

        def __exit__(self, *_: object) -> None:
            self.seen = [] if deaf else device.kernels[self.start :]

        def export_chrome_trace(self, path: str) -> None:
            rows = [{"cat": "kernel", "name": name} for name in self.seen]
            others = [{"cat": "cuda_runtime", "name": "cudaLaunchKernel"}] * len(rows)
            copies = [{"cat": "gpu_memcpy", "name": "Memcpy HtoD"}, {"ph": "M"}]
            Path(path).write_text(json.dumps({"traceEvents": [*rows, *others, *copies]}))

    torch: Any = ModuleType("torch")
    torch.cuda = SimpleNamespace(is_available=lambda: usable)
    torch.profiler = SimpleNamespace(
        ProfilerActivity=SimpleNamespace(CUDA="cuda"), profile=lambda activities: Tracer()
    )
    return torch  # type: ignore[no-any-return]


def fake_cupti(device: Device, *, error: str = "") -> ModuleType:
    """cupti-python: buffers of activities, of which only some are kernels."""

    class CuptiError(Exception):
        """As in the package: an error of its own, straight from Exception."""

    module: Any = ModuleType("cupti.cupti")
    module.cuptiError = CuptiError
    module.ActivityKind = SimpleNamespace(CONCURRENT_KERNEL=10)
    state: dict[str, Any] = {}

    def register(requested: Callable[[], tuple[int, int]], completed: Callable[..., None]) -> None:
        assert requested()[0] > 0
        state["completed"] = completed

    def enable(kind: int) -> None:
        if error:
            raise CuptiError(error)
        state["start"] = len(device.kernels)

    def flush(_flag: int) -> None:
        seen = device.kernels[state["start"] :]
        half = len(seen) // 2
        for part in (seen[:half], seen[half:]):
            rows = [SimpleNamespace(kind=10, name=name) for name in part]
            state["completed"]([*rows, SimpleNamespace(kind=1, name="memcpy")])

    module.activity_register_callbacks = register
    module.activity_enable = enable
    module.activity_disable = lambda kind: state.update(off=kind)
    module.activity_flush_all = flush
    return module  # type: ignore[no-any-return]


def install(monkeypatch: pytest.MonkeyPatch, name: str, module: ModuleType | None) -> None:
    """Put a module where `import` finds it, or nothing where it finds nothing."""
    monkeypatch.setitem(sys.modules, name, module)


def test_on_the_cpu_there_is_no_number(device: Device) -> None:
    """No kernels, no proxy for them, and nothing is run."""
    found = count_kernels(device, CPU)
    assert (found.count, found.by_name) == (None, ())
    assert found.source == "not available: runs on the CPU"
    assert device.runs == 0


def test_without_a_tracer_there_is_no_number(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both tracers are named, with the command that brings one."""
    install(monkeypatch, "torch", None)
    install(monkeypatch, "cupti", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    found = count_kernels(device, CUDA)
    assert found.count is None
    for word in ("not available", "torch", "cupti-python is not installed", "onnx-sched[cupti]"):
        assert word in found.source


def test_torch_counts_kernels_only(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies and calls of the launch API are not kernels; one run's share is given, by name."""
    install(monkeypatch, "torch", fake_torch(device))
    found = count_kernels(device, CUDA)
    assert (found.count, found.by_name) == (3, (("gemm", 2), ("relu", 1)))
    assert found.source == "torch.profiler, kernel activities"
    assert device.runs == RUNS


@pytest.mark.parametrize("torch", ["absent", "without CUDA", "deaf"])
def test_cupti_counts_where_torch_cannot(
    device: Device, monkeypatch: pytest.MonkeyPatch, torch: str
) -> None:
    """No torch, a torch for the CPU and a torch that hears nothing all leave it to CUPTI."""
    made = fake_torch(device, usable=torch == "deaf", deaf=True)
    install(monkeypatch, "torch", None if torch == "absent" else made)
    install(monkeypatch, "cupti.cupti", fake_cupti(device))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: object())
    found = count_kernels(device, CUDA)
    assert (found.count, found.by_name) == (3, (("gemm", 2), ("relu", 1)))
    assert found.source == "CUPTI, kernel activities"


def test_an_error_of_cupti_is_a_reason(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """What CUPTI complains of stands where the number would."""
    install(monkeypatch, "torch", None)
    install(monkeypatch, "cupti.cupti", fake_cupti(device, error="MULTIPLE_SUBSCRIBERS"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: object())
    found = count_kernels(device, CUDA)
    assert found.count is None
    assert "MULTIPLE_SUBSCRIBERS" in found.source
    assert "pip install" not in found.source  # it is installed, and does not help


def test_uneven_runs_are_said_to_be_a_mean(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where runs differ, the number is a mean and says so."""
    monkeypatch.setattr(Device, "kernels", property(lambda self: _uneven(self.runs)))
    install(monkeypatch, "torch", fake_torch(device))
    found = count_kernels(device, CUDA)
    assert found.count == 2
    assert f"mean of {RUNS} runs" in found.source


def _uneven(runs: int) -> list[str]:
    """Two kernels a run, and one more in the first."""
    return ["gemm"] * (2 * runs + (1 if runs else 0))
