"""The script for CUDA machines, tried where there is none: the same steps on the CPU."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import TensorProto

import onnx_sched.report.compare_text as text
from onnx_sched.judge.opening import Setup
from onnx_sched.judge.ortlib import CPU
from onnx_sched.judge.provider import check_provider
from tests.gpu import checks

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "gpu_check.sh"
SCHEMA = json.loads(
    (Path(text.__file__).parent / "compare_schema.json").read_text(encoding="utf-8")
)

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


@pytest.fixture
def no_gpu() -> None:
    """Skip where CUDA works."""
    if check_provider("cuda").usable:
        pytest.skip("there is a CUDA device")


def script(*words: str, out: Path) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    environment = {**os.environ, "OUT": str(out), "PYTHON": sys.executable, "COLUMNS": "80"}
    return subprocess.run(
        ["bash", str(SCRIPT), *words],
        env=environment,
        cwd=out,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@needs_bash
def test_the_dry_run_takes_every_step(tmp_path: Path) -> None:
    """Six models are optimised and compared on the CPU; everything the real run writes is written."""
    ran = script("--dry-run", out=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == ["compare.json", "doctor.json", "grouped_mlp_64.onnx", "tests.xml"]
    assert json.loads((tmp_path / "doctor.json").read_text())["ok"]
    rows = json.loads((tmp_path / "compare.json").read_text())["models"]
    assert [row["model"] for row in rows] == [
        "grouped_mlp",
        "grouped_mlp_64",
        "headlocal_transformer",
        "mmoe",
        "per_feature",
        "exported_transformer",
    ]
    for row in rows:
        found = row["comparison"]
        jsonschema.Draft202012Validator(SCHEMA).validate(found)
        assert found["agreement"]["verdict"] in ("bitwise", "within_tolerance")
        assert [line["dims"]["batch"] for line in found["latency"]] == [1, 32]
        assert row["changed"]
        assert found["dispatches"]["after"] < found["dispatches"]["before"]
    suite = next(ET.parse(tmp_path / "tests.xml").getroot().iter("testsuite"))
    assert int(suite.attrib["tests"]) > 50
    assert all(line.count("[") == line.count("]") for line in ran.stdout.splitlines())


@needs_bash
@pytest.mark.usefixtures("no_gpu")
def test_without_cuda_the_script_fails(tmp_path: Path) -> None:
    """Not green with all tests skipped, but exit 5 with the cause."""
    ran = script(out=tmp_path)
    assert ran.returncode == 5
    assert "CUDAExecutionProvider cannot run here" in ran.stderr
    assert not (tmp_path / "compare.json").exists()


@needs_bash
def test_a_typo_does_not_start_a_run(tmp_path: Path) -> None:
    """An unknown word is a usage error."""
    ran = script("--dryrun", out=tmp_path)
    assert ran.returncode == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_gpu")
def test_comparing_latency_on_cuda_never_runs_on_the_cpu() -> None:
    """`compare_latency --provider cuda` without a device: exit 5, before anything is optimised."""
    from scripts.compare_latency import main

    assert main([str(checks.committed("mmoe")), "--provider", "cuda"]) == 5


def test_one_bad_model_costs_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with a broken file: the others are compared, the error names it, and the code is not 0."""
    from scripts.compare_latency import main

    (tmp_path / "broken.onnx").write_bytes(b"no model")
    shutil.copy(checks.committed("near_tapped_lane"), tmp_path)
    out = tmp_path / "made" / "compare.json"
    quick = ["--choose", "model", "--pairs", "10", "--budget", "0.05", "--time-limit", "1"]
    assert main([str(tmp_path), "--provider", "cpu", *quick, "--json", str(out)]) == 1
    said = capsys.readouterr()
    assert "broken.onnx is not an ONNX model" in said.err
    assert "near_tapped_lane" in said.out
    data = json.loads(out.read_text())
    assert [row["model"] for row in data["models"]] == ["near_tapped_lane"]
    assert [row["model"] for row in data["failed"]] == ["broken"]


def test_a_folder_without_models_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing compared is no success."""
    from scripts.compare_latency import main

    assert main([str(tmp_path), "--provider", "cpu"]) == 2
    assert "holds no .onnx file" in capsys.readouterr().err


def test_the_plan_for_cuda_ends_within_ten_minutes() -> None:
    """Tests and races may take no longer than their limits, and these leave half a minute to the doctor."""
    limits = [int(word) for word in re.findall(r"=\(timeout (\d+)\)", SCRIPT.read_text())]
    assert len(limits) == 2
    assert sum(limits) <= 570
    for name in ("tests", "races"):
        assert f'"${{{name}[@]}}" "$python"' in SCRIPT.read_text()


def test_the_checks_of_the_gpu_hold_on_the_cpu(tmp_path: Path) -> None:
    """What tests/gpu asks of CUDA, asked of the CPU for one model: the checks themselves work."""
    before = checks.committed("grouped_mlp_norm")
    after = checks.optimised(before, tmp_path)
    assert checks.agreement(before, after, CPU).verdict in ("bitwise", "within_tolerance")
    was, now = checks.placed(before, CPU), checks.placed(after, CPU)
    assert (was.copies, now.copies, now.cpu_nodes) == (0, 0, ())
    assert now.nodes_per_provider[CPU] < was.nodes_per_provider[CPU]
    feeds = checks.inputs(before)[1]
    got = checks.replayed(after, Setup(CPU), feeds)
    for name, wanted in checks.plain(after, Setup(CPU), feeds).items():
        np.testing.assert_allclose(got[name], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "verdicts"),
    [
        (TensorProto.FLOAT16, ("bitwise", "within_tolerance")),
        (TensorProto.BFLOAT16, ("bitwise", "within_tolerance", "unvalidated")),
    ],
)
def test_a_narrowed_model_is_still_one(
    kind: int, verdicts: tuple[str, ...], tmp_path: Path
) -> None:
    """No float32 is left, the checker is content, and optimising it changes no output beyond tolerance."""
    small = checks.narrowed(onnx.load(str(checks.committed("mmoe"))), kind)
    onnx.checker.check_model(small, full_check=True)
    types = {tensor.data_type for tensor in small.graph.initializer}
    types |= {value.type.tensor_type.elem_type for value in small.graph.input}
    assert kind in types
    assert TensorProto.FLOAT not in types
    before = tmp_path / "before.onnx"
    onnx.save(small, str(before))
    found = checks.agreement(before, checks.optimised(before, tmp_path), CPU)
    assert found.verdict in verdicts, found.reason
