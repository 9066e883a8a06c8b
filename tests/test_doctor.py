"""The doctor names every way in which an installation is known to break, and the command that mends it."""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import sys
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from onnx_sched.cli import cli
from onnx_sched.cli.doctor import render
from onnx_sched.judge import cuda_driver, doctor
from onnx_sched.judge.cuda_driver import Driver
from onnx_sched.judge.doctor import Check, examine, healthy
from onnx_sched.judge.ortlib import CPU, CUDA
from onnx_sched.judge.probe import ProviderStatus


def named(checks: Iterable[Check], name: str) -> Check:
    """The one check of that name."""
    (found,) = (check for check in checks if check.name == name)
    return found


def install(monkeypatch: pytest.MonkeyPatch, *packages: tuple[str, str]) -> None:
    """Pretend that of all packages that write the folder `onnxruntime` these are installed."""
    made = [SimpleNamespace(metadata={"Name": name}, version=v) for name, v in packages]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: iter(made))


def module(**changes: Any) -> SimpleNamespace:
    """An onnxruntime for CUDA 13, as far as the doctor looks."""
    parts: dict[str, Any] = {
        "__name__": "onnxruntime",
        "__version__": "1.31.1",
        "InferenceSession": object,
        "get_available_providers": lambda: [CUDA, CPU],
    }
    return SimpleNamespace(**{**parts, **changes})


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine on which all is well: GPU build, driver, device, libraries."""
    install(monkeypatch, ("onnxruntime-gpu", "1.31.1"))
    monkeypatch.setattr(doctor, "import_ort", module)
    monkeypatch.setattr(doctor, "built_for", lambda _module: (13, 0))
    monkeypatch.setattr(doctor, "written_by", lambda _module: "onnxruntime-gpu 1.31.1")
    monkeypatch.setattr(doctor, "driver", lambda: Driver(True, (13, 1), ("Some GPU",), ""))
    monkeypatch.setattr(doctor, "preload_libraries", lambda _name: "")
    monkeypatch.setattr(doctor, "_loads", lambda _name: True)
    monkeypatch.setattr(sys, "platform", "linux")
    tell(monkeypatch)
    return monkeypatch


def tell(monkeypatch: pytest.MonkeyPatch, **broken: ProviderStatus) -> None:
    """Pretend that probing gives this; `cpu` and `cuda` name the providers."""

    def probe(full: str) -> ProviderStatus:
        short = full.removesuffix("ExecutionProvider").lower()
        return broken.get(short, ProviderStatus(full, True, "ok", "", ""))

    monkeypatch.setattr("onnx_sched.judge.probe.probe", probe)


@pytest.mark.usefixtures("machine")
def test_a_sound_machine_has_nothing_to_mend() -> None:
    """Where all is well, no check is bad, none has a fix but optional extras, and the device is named."""
    checks = examine()
    assert healthy(checks)
    assert [check for check in checks if check.state == "bad"] == []
    assert [check.name for check in checks if check.fix] in ([], ["kernel counts"])
    assert named(checks, "device").value == "Some GPU"
    assert named(checks, "build").value == "for CUDA 13.0"
    assert named(checks, "driver").value == "supports CUDA 13.1"
    assert named(checks, "onnxruntime").value == "onnxruntime-gpu 1.31.1"


def test_a_package_that_is_needed_and_missing(machine: pytest.MonkeyPatch) -> None:
    """Its line says so and how to get it."""
    version = importlib.metadata.version

    def without(name: str) -> str:
        if name == "rich":
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    machine.setattr(importlib.metadata, "version", without)
    found = named(examine(), "rich")
    assert (found.state, found.fix) == ("bad", "pip install rich")


def test_no_onnxruntime_at_all(machine: pytest.MonkeyPatch) -> None:
    """Nothing can run; the package to install is named."""

    def missing() -> None:
        raise ImportError("No module named 'onnxruntime'")

    machine.setattr(doctor, "import_ort", missing)
    install(machine)
    checks = examine()
    assert not healthy(checks)
    assert named(checks, "onnxruntime").fix.startswith("pip install onnxruntime-gpu")


def test_two_packages_in_one_folder(machine: pytest.MonkeyPatch) -> None:
    """Both are named, whose files lie there, and how to keep one: the one for GPUs."""
    install(machine, ("onnxruntime", "1.30.0"), ("onnxruntime-gpu", "1.31.1"), ("numpy", "2"))
    found = named(examine(), "onnxruntime")
    assert found.state == "bad"
    assert "onnxruntime 1.30.0, onnxruntime-gpu 1.31.1 share one folder" in found.value
    assert "the files are those of onnxruntime-gpu 1.31.1" in found.value
    wanted = "pip uninstall -y onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu"
    assert found.fix == wanted


def test_packages_beside_it_are_no_second_runtime(machine: pytest.MonkeyPatch) -> None:
    """Tools whose names begin alike write other folders."""
    install(
        machine, ("onnxruntime-gpu", "1.31.1"), ("onnxruntime-extensions", "0.14"), ("ort", "1")
    )
    assert named(examine(), "onnxruntime").state == "ok"


def test_files_of_another_version(machine: pytest.MonkeyPatch) -> None:
    """Metadata of one version over the files of another: half of an uninstalled twin."""
    install(machine, ("onnxruntime-gpu", "1.30.0"))
    found = named(examine(), "onnxruntime")
    assert found.state == "bad"
    assert "but the files are those of 1.31.1" in found.value
    assert found.fix == "pip install --force-reinstall --no-deps onnxruntime-gpu"


def test_an_emptied_folder(machine: pytest.MonkeyPatch) -> None:
    """The metadata says installed, the folder is empty: nothing can run, reinstalling mends it."""
    machine.setattr(doctor, "import_ort", SimpleNamespace)
    checks = examine()
    assert not healthy(checks)
    found = named(checks, "onnxruntime")
    assert "emptied" in found.value
    assert found.fix == "pip install --force-reinstall --no-deps onnxruntime-gpu"


def test_a_build_without_cuda(machine: pytest.MonkeyPatch) -> None:
    """The CPU build runs and is healthy; how to change to the other is said."""
    install(machine, ("onnxruntime", "1.31.1"))
    machine.setattr(doctor, "import_ort", lambda: module(get_available_providers=lambda: [CPU]))
    checks = examine()
    assert healthy(checks)
    found = named(checks, "build")
    assert (found.state, found.value) == ("note", "onnxruntime was built without CUDA")
    assert found.fix == "pip uninstall -y onnxruntime && pip install 'onnx-sched[cuda]'"


def test_no_driver(machine: pytest.MonkeyPatch) -> None:
    """Said once with its fix, and again without at the provider."""
    machine.setattr(doctor, "driver", lambda: Driver(False, None, (), "no NVIDIA driver"))
    tell(machine, cuda=ProviderStatus(CUDA, False, "no-driver", "no NVIDIA driver", "get one"))
    checks = examine()
    assert healthy(checks)
    assert named(checks, CUDA).value == "does not run: no NVIDIA driver"
    assert named(checks, CUDA).fix == ""
    assert "NVIDIA driver" in named(checks, "driver").fix
    assert not [check for check in checks if check.name == "device"]


@pytest.mark.parametrize(
    ("hidden", "value", "fix"),
    [
        (None, "no CUDA device", "nvidia-smi, which says what the driver sees"),
        ("", "no CUDA device; CUDA_VISIBLE_DEVICES is ''", "unset CUDA_VISIBLE_DEVICES"),
        ("7", "no CUDA device; CUDA_VISIBLE_DEVICES is '7'", "unset CUDA_VISIBLE_DEVICES"),
    ],
)
def test_a_driver_without_a_device(
    machine: pytest.MonkeyPatch, hidden: str | None, value: str, fix: str
) -> None:
    """The driver is fine, the device is not there: where to look is said, or what hides it."""
    machine.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        machine.setenv("CUDA_VISIBLE_DEVICES", hidden)
    machine.setattr(doctor, "driver", lambda: Driver(True, (13, 0), (), "no CUDA device"))
    checks = examine()
    assert named(checks, "driver").state == "ok"
    assert named(checks, "device") == Check("cuda", "device", "bad", value, fix)


@pytest.mark.parametrize(("cuda", "older"), [((12, 8), True), ((11, 4), False)])
def test_a_driver_that_is_too_old(
    machine: pytest.MonkeyPatch, cuda: tuple[int, int], older: bool
) -> None:
    """Its CUDA and that of the build are both named; for CUDA 12 there is an older build, too."""
    machine.setattr(doctor, "driver", lambda: Driver(True, cuda, ("Some GPU",), ""))
    found = named(examine(), "driver")
    assert found.state == "bad"
    assert found.value == (f"supports CUDA {cuda[0]}.{cuda[1]}, but this onnxruntime needs CUDA 13")
    assert ("onnxruntime-gpu[cuda,cudnn]<1.27" in found.fix) == older


def test_no_libraries(machine: pytest.MonkeyPatch) -> None:
    """Every library that does not load is named, and the extra that brings them."""
    machine.setattr(doctor, "_loads", lambda name: name == "libcudart.so.13")
    tell(machine, cuda=ProviderStatus(CUDA, False, "load-failed", "CUDA libraries missing", "x"))
    found = named(examine(), "libraries")
    assert found.state == "note"
    assert found.value == (
        "missing: libcublasLt.so.13, libcublas.so.13, libcufft.so.12, libcurand.so.10, libcudnn.so.9"
    )
    assert found.fix == "pip install 'onnx-sched[cuda]'"


def test_libraries_of_another_cuda(machine: pytest.MonkeyPatch) -> None:
    """CUDA 12 is there, CUDA 13 is wanted: the usual reason, and said as such."""
    install(machine, ("onnxruntime-gpu", "1.31.1"), ("nvidia-cublas-cu12", "12.8"))
    machine.setattr(doctor, "_loads", lambda _name: False)
    tell(machine, cuda=ProviderStatus(CUDA, False, "load-failed", "CUDA libraries missing", "x"))
    found = named(examine(), "libraries")
    assert found.value.endswith("those of CUDA 12 are installed, but this build needs 13")


def test_a_provider_that_runs_is_believed(machine: pytest.MonkeyPatch) -> None:
    """Libraries that are not found by name are no fault where CUDA runs."""
    machine.setattr(doctor, "_loads", lambda _name: False)
    assert named(examine(), "libraries").state == "ok"


def test_a_cpu_provider_that_fails_is_the_end(machine: pytest.MonkeyPatch) -> None:
    """Without the CPU provider nothing is healthy, GPU or not."""
    tell(machine, cpu=ProviderStatus(CPU, False, "load-failed", "no luck", "reinstall"))
    checks = examine()
    assert not healthy(checks)
    assert (named(checks, CPU).state, named(checks, CPU).fix) == ("bad", "reinstall")


def test_who_counts_kernels(machine: pytest.MonkeyPatch) -> None:
    """On a usable GPU without a tracer, the extra that brings one is named; with one it is not."""
    have: dict[str, str] = {}
    machine.setattr(doctor, "installed", lambda name: have.get(name))
    checks = examine()
    assert named(checks, "kernel counts").fix == "pip install 'onnx-sched[cupti]'"
    assert named(checks, "torch").state == "note"
    have["cupti-python"] = "13.4"
    checks = examine()
    assert "kernel counts" not in [check.name for check in checks]
    assert named(checks, "cupti-python").value.startswith("13.4")


@pytest.mark.parametrize(
    ("init", "count", "wanted"),
    [
        (None, 0, Driver(False, None, (), "no NVIDIA driver")),
        (100, 0, Driver(True, (12, 8), (), "no CUDA device")),
        (3, 0, Driver(True, (12, 8), (), "CUDA error 3 at start")),
        (0, 0, Driver(True, (12, 8), (), "no CUDA device")),
        (0, 2, Driver(True, (12, 8), ("GPU 0", "GPU 1"), "")),
    ],
)
def test_the_driver_is_asked(
    monkeypatch: pytest.MonkeyPatch, init: int | None, count: int, wanted: Driver
) -> None:
    """No library, no device, an error and devices by name are told apart."""

    class Library:
        def cuInit(self, _flags: int) -> int:  # noqa: N802
            return init or 0

        def cuDriverGetVersion(self, number: Any) -> int:  # noqa: N802
            number._obj.value = 12080
            return 0

        def cuDeviceGetCount(self, number: Any) -> int:  # noqa: N802
            number._obj.value = count
            return 0

        def cuDeviceGet(self, device: Any, place: int) -> int:  # noqa: N802
            device._obj.value = place
            return 0

        def cuDeviceGetName(self, text: Any, _size: int, device: Any) -> int:  # noqa: N802
            text.value = f"GPU {device.value}".encode()
            return 0

    def load(_name: str) -> Library:
        if init is None:
            raise OSError("cannot open shared object file")
        return Library()

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert cuda_driver.driver() == wanted


def test_the_command_exits_with_0_here() -> None:
    """Where the tests run, the CPU provider works; JSON and text say the same."""
    ran = CliRunner().invoke(cli, ["doctor", "--json"])
    data = json.loads(ran.stdout)
    assert (ran.exit_code, data["ok"], data["schema_version"]) == (0, True, "1")
    names = [row["name"] for row in data["checks"]]
    assert len(names) == len(set(names))
    shown = CliRunner().invoke(cli, ["doctor"]).stdout
    assert "models can run here: " in shown
    for name in names:
        assert name in shown


@pytest.mark.parametrize("width", [80, 120])
def test_the_screen_fits(width: int) -> None:
    """No line is wider than the screen; marks tell states without colour; names are no markup."""
    checks = (
        Check("runtime", CUDA, "bad", "[red]does not run[/red] " + "because " * 20, "do this"),
        Check("extras", "torch", "note", "not installed"),
        Check("packages", "numpy", "ok", "2"),
    )
    console = Console(width=width, no_color=True, highlight=False)
    with console.capture() as captured:
        console.print(render(checks, well=False))
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= width
    assert [line[:2] for line in lines if line[:2].strip()] == ["!!", "--", "ok", "mo"]
    assert lines[-1] == "models cannot run here"
    assert "[red]does not run[/red]" in captured.get()
    assert "fix: do this" in captured.get()
    assert "models cannot run here" in captured.get()


def test_the_doctor_takes_one_screen(machine: pytest.MonkeyPatch) -> None:
    """Nothing works on the GPU, and all that is to say still fits into 24 lines of 80 columns."""
    machine.setattr(doctor, "driver", lambda: Driver(True, (13, 0), (), "no CUDA device"))
    machine.setattr(doctor, "_loads", lambda _name: False)
    broken = ProviderStatus(CUDA, False, "no-device", "no CUDA device", "look")
    tell(machine, cuda=broken)
    ran = CliRunner().invoke(cli, ["doctor"], env={"COLUMNS": "80"})
    lines = ran.stdout.splitlines()
    assert len(lines) <= 24
    assert lines[-2:] == [
        "models can run here: CPUExecutionProvider",
        "CUDAExecutionProvider does not run: no CUDA device",
    ]
    assert not [line for line in lines if line != line.rstrip()]
    assert sum("fix: " in line for line in lines) == 2  # the device and the libraries


def test_what_is_broken_among_the_packages_has_its_own_line(machine: pytest.MonkeyPatch) -> None:
    """All that is well shares a line; what is missing has one, with what mends it below."""
    checks = (
        Check("packages", "numpy", "ok", "2"),
        Check("packages", "onnx", "bad", "not installed", "pip install onnx"),
        Check("packages", "click", "ok", "8"),
    )
    console = Console(width=80, no_color=True, highlight=False)
    with console.capture() as captured:
        console.print(render(checks, well=False))
    lines = [line.split() for line in captured.get().splitlines()]
    assert lines[:3] == [
        "ok packages numpy 2, click 8".split(),
        "!! onnx not installed".split(),
        "fix: pip install onnx".split(),
    ]
