"""Strict detection of execution providers: what does not run is never taken for usable."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from onnx_sched.errors import ProviderError, UsageError
from onnx_sched.judge import probe
from onnx_sched.judge.provider import check_provider, full_name, select_provider

CUDA = "CUDAExecutionProvider"


@pytest.fixture
def no_gpu() -> None:
    """Skip where CUDA works."""
    if check_provider("cuda").usable:
        pytest.skip("there is a CUDA device")


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_cuda_is_refused_with_a_reason_and_in_silence(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Where no CUDA device works, the status names the cause, and nothing is printed."""
    status = check_provider("cuda")
    assert not status.usable
    assert status.code in {"no-cuda-build", "no-driver", "no-device", "load-failed", "fell-back"}
    assert status.reason
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("no_gpu")
def test_a_named_provider_is_never_replaced(capfd: pytest.CaptureFixture[str]) -> None:
    """`cuda` without a device is an error with exit code 5 that holds cause and fix."""
    status = check_provider(CUDA)
    with pytest.raises(ProviderError, match=f"{CUDA} cannot run here: ") as caught:
        select_provider("cuda")
    assert caught.value.exit_code == 5
    assert status.reason in str(caught.value)
    assert caught.value.hint == status.hint
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("no_gpu")
def test_auto_takes_the_cpu_and_says_why() -> None:
    """`auto` without a device runs on the CPU and repeats the cause."""
    selected = select_provider("auto")
    assert selected.name == "CPUExecutionProvider"
    assert selected.requested == "auto"
    assert check_provider("cuda").reason in selected.note


def test_auto_takes_cuda_where_it_is_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` with a device runs on it, and says so."""
    works = probe.ProviderStatus(CUDA, True, "ok", "", "")
    monkeypatch.setattr("onnx_sched.judge.provider.probe", lambda _name: works)
    assert select_provider("auto").name == CUDA
    assert "auto" in select_provider("auto").note
    assert select_provider("cuda").note == ""


def test_the_cpu_is_usable() -> None:
    """`cpu` really runs a model."""
    status = check_provider("cpu")
    assert (status.name, status.usable, status.code) == ("CPUExecutionProvider", True, "ok")
    assert select_provider("CPU").name == "CPUExecutionProvider"


@pytest.mark.parametrize("name", ["cuda", "CUDA", "CUDAExecutionProvider", "cudaexecutionprovider"])
def test_short_and_full_names_are_one(name: str) -> None:
    """Case and the suffix do not matter."""
    assert full_name(name) == CUDA


def test_a_typo_gets_a_suggestion() -> None:
    """A provider that does not exist is a usage error with the nearest name."""
    with pytest.raises(UsageError, match="--provider cuta") as caught:
        select_provider("cuta")
    assert caught.value.hint == "did you mean cuda?"
    assert check_provider("cuta").code == "unknown"


def _package(monkeypatch: pytest.MonkeyPatch, module: object) -> None:
    monkeypatch.setattr(probe, "import_ort", lambda: module)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without onnxruntime nothing can run, and `auto` does not pretend otherwise."""

    def fail() -> None:
        raise ImportError("No module named onnxruntime")

    monkeypatch.setattr(probe, "import_ort", fail)
    assert check_provider("cpu").code == "no-ort"
    with pytest.raises(ProviderError, match="No module named onnxruntime"):
        select_provider("auto")


def test_an_emptied_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The empty folder that uninstalling one of two packages leaves is not a missing package."""
    _package(monkeypatch, SimpleNamespace())
    status = check_provider("cuda")
    assert status.code == "broken-ort"
    assert "--force-reinstall" in status.hint


@pytest.mark.parametrize(
    ("installed", "reason"), [(True, "the CPU one won"), (False, "without CUDA")]
)
def test_a_build_without_cuda_is_named(
    monkeypatch: pytest.MonkeyPatch, installed: bool, reason: str
) -> None:
    """A CPU build is told from two packages that overwrote each other."""
    shell = SimpleNamespace(InferenceSession=1, get_available_providers=lambda: ["CPU"])
    _package(monkeypatch, shell)
    monkeypatch.setattr(probe, "_installed", lambda _package: installed)
    status = check_provider("cuda")
    assert status.code == "no-cuda-build"
    assert reason in status.reason


@pytest.mark.parametrize(
    ("result", "code", "reason"),
    [
        (None, "no-driver", "driver"),
        (100, "no-device", "no CUDA device"),
        (3, "no-device", "error 3"),
    ],
)
def test_driver_and_device_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, result: int | None, code: str, reason: str
) -> None:
    """No driver, a driver without a device, and a driver that fails are three messages."""

    def load(_library: str) -> SimpleNamespace:
        if result is None:
            raise OSError("cannot open shared object file")
        return SimpleNamespace(cuInit=lambda _flags: result)

    _package(
        monkeypatch, SimpleNamespace(InferenceSession=1, get_available_providers=lambda: [CUDA])
    )
    monkeypatch.setattr(ctypes, "CDLL", load)
    status = probe._check_package(CUDA) or probe._check_driver(CUDA)
    assert status is not None
    assert (status.code, status.usable) == (code, False)
    assert reason in status.reason


@pytest.mark.usefixtures("no_gpu")
def test_a_provider_that_cannot_load_is_not_usable(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Behind the driver check waits the real session: it fails, and its complaints stay inside."""
    monkeypatch.setattr(probe, "_check_driver", lambda _name: None)
    status = check_provider("cuda")
    assert status.code in {"no-cuda-build", "load-failed", "fell-back"}
    assert not status.usable
    assert capfd.readouterr() == ("", "")


def test_a_silent_fallback_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that runs, but elsewhere, does not count."""
    import onnxruntime as ort

    def elsewhere(*_args: Any, **_options: Any) -> SimpleNamespace:
        return SimpleNamespace(run=lambda *_: [], get_providers=lambda: ["CPUExecutionProvider"])

    monkeypatch.setattr(ort, "InferenceSession", elsewhere)
    status = probe._run_probe(CUDA)
    assert (status.code, status.usable) == ("fell-back", False)


def test_missing_libraries_are_listed() -> None:
    """The libraries that could not be loaded are named once, with the way to get them."""
    said = (
        "Failed to load libcublas.so.13: libcublas.so.13: cannot open shared object file\n"
        "with error: libcublasLt.so.13: cannot open shared object file: No such file"
    )
    reason, hint = probe._explain_failure("anything", said)
    assert reason == "CUDA libraries missing (libcublas.so.13, libcublasLt.so.13)"
    assert "onnx-sched[cuda]" in hint
    assert probe._explain_failure("CUDA failure 100: no device ; GPU=1", "") == (
        "CUDA failure 100: no device",
        "",
    )
