"""The doctor before real patients: broken modules, stub libraries and stale metadata on disk."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from onnx_sched.judge import doctor
from onnx_sched.judge.ortlib import CPU, CUDA
from tests import stub_driver


def seen(ran: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    """What the doctor said of each thing; whatever ONNX Runtime printed, stdout is JSON and no more."""
    assert ran.stderr == ""
    return {row["name"]: row for row in json.loads(ran.stdout)["checks"]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "emptied by uninstalling another"),
        ("raise OSError('libfoo.so: cannot open')", "cannot be imported: libfoo.so"),
    ],
)
def test_a_broken_module_on_disk_exits_with_1(tmp_path: Path, content: str, words: str) -> None:
    """A real folder `onnxruntime` that is empty, or breaks: JSON, exit 1, and no traceback."""
    (tmp_path / "onnxruntime").mkdir()
    (tmp_path / "onnxruntime" / "__init__.py").write_text(content)
    ran = stub_driver.run("doctor", "--json", modules=tmp_path)
    assert ran.returncode == 1
    assert ran.stderr == ""
    data = json.loads(ran.stdout)
    assert data["ok"] is False
    (found,) = (row for row in data["checks"] if row["name"] == "onnxruntime")
    assert words in found["value"]
    assert found["fix"]


@pytest.mark.parametrize(
    ("init", "version", "words"),
    [
        (100, 13000, {"driver": "supports CUDA 13.0", "device": "no CUDA device"}),
        (0, 12080, {"driver": "supports CUDA 12.8, but this", "device": "Stub GPU"}),
        (0, 13000, {"driver": "supports CUDA 13.0", "libraries": "missing: lib"}),
    ],
)
def test_a_stub_of_the_driver_is_taken_for_one(
    tmp_path: Path, init: int, version: int, words: dict[str, str]
) -> None:
    """A real library `libcuda.so.1` in the search path: what it says is what the doctor says."""
    stub = stub_driver.driver(tmp_path, init=init, version=version)
    ran = stub_driver.run("doctor", "--json", libraries=stub)
    assert ran.returncode == 0
    found = seen(ran)
    for name, part in words.items():
        assert part in found[name]["value"]
    assert found[CUDA]["value"].startswith("does not run: ")
    assert any(found[name]["fix"] for name in words)
    assert found[CUDA]["fix"] == ""  # said once, where the fault is


def test_libraries_of_another_cuda_on_disk(tmp_path: Path) -> None:
    """A real library of CUDA 12 in the search path, and a build for CUDA 13: named as the cause."""
    import onnxruntime

    built = doctor.built_for(onnxruntime)
    if built is None or built[0] == 12:
        pytest.skip("needs an onnxruntime that was built for another CUDA than 12")
    place = stub_driver.shared_object(tmp_path, "libcudart.so.12")
    found = seen(stub_driver.run("doctor", "--json", libraries=place))["libraries"]
    assert f"those of CUDA 12 are installed, but this build needs {built[0]}" in found["value"]
    assert found["fix"] == "pip install 'onnx-sched[cuda]'"


def test_two_packages_on_disk(tmp_path: Path) -> None:
    """The metadata of a second package beside the real one, as pip leaves it: both named, and the way out."""
    ours = dict(doctor.runtime_packages())
    twin = "onnxruntime" if "onnxruntime" not in ours else "onnxruntime-gpu"
    info = tmp_path / f"{twin.replace('-', '_')}-1.2.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {twin}\nVersion: 1.2.3\n")
    found = seen(stub_driver.run("doctor", "--json", modules=tmp_path))["onnxruntime"]
    assert found["state"] == "bad"
    assert "share one folder" in found["value"]
    for name, version in {**ours, twin: "1.2.3"}.items():
        assert f"{name} {version}" in found["value"]
    assert found["fix"] == (
        "pip uninstall -y onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu"
    )


def test_without_onnx_the_doctor_still_talks(tmp_path: Path) -> None:
    """The patient may lack anything: the missing package is named, exit 1."""
    (tmp_path / "onnx.py").write_text("raise ImportError('no onnx here')")
    ran = stub_driver.run("doctor", "--json", modules=tmp_path)
    assert ran.returncode == 1, ran.stderr
    values = {row["name"]: row["value"] for row in json.loads(ran.stdout)["checks"]}
    assert "no onnx here" in values[CPU]
