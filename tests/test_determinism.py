"""The same model in, the same bytes out: whatever the hash seed, threads, language, folder or time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import onnx_sched
from tests.nets import COMMITTED, FOLDER, committed
from tests.stored import beside, layered

RUN = """
import sys
import onnx_sched
for name in sys.argv[2:]:
    result = onnx_sched.optimize(name, choose="always", check=False)
    result.save(f"{sys.argv[1]}/{name.rpartition('/')[2]}")
    result.save_plan(f"{sys.argv[1]}/{name.rpartition('/')[2]}.plan")
"""

ROOT = FOLDER.parent
MODELS = [str(FOLDER / f"{name}.onnx") for name in COMMITTED if not name.startswith("near_")]
SETTINGS: dict[str, Mapping[str, str]] = {
    "hash seed 1": {"PYTHONHASHSEED": "1"},
    "hash seed 4242": {"PYTHONHASHSEED": "4242"},
    "threads": {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "7"},
    "language": {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "PYTHONHASHSEED": "8"},
    "plain locale": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONHASHSEED": "9"},
    "other time zone": {"TZ": "Pacific/Kiritimati", "SOURCE_DATE_EPOCH": "1"},
}


def outputs(
    out: Path, models: list[str], setting: Mapping[str, str], cwd: Path
) -> dict[str, bytes]:
    """What a fresh process writes: models, data files and plans, by name."""
    out.mkdir()
    env = {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"}
    env |= {"PYTHONPATH": str(ROOT), **setting}
    command = [sys.executable, "-c", RUN, str(out), *models]
    subprocess.run(command, env=env, cwd=cwd, check=True, capture_output=True, timeout=300)
    return {p.name: p.read_bytes() for p in sorted(out.iterdir())}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one process writes with a hash seed of its own."""
    out = tmp_path_factory.mktemp("expected") / "out"
    return outputs(out, MODELS, {"PYTHONHASHSEED": "0"}, ROOT)


@pytest.mark.parametrize("kind", SETTINGS)
def test_surroundings_change_nothing(kind: str, expected: dict[str, bytes], tmp_path: Path) -> None:
    """Every model of the repository, in another process under another setting, from another folder."""
    assert outputs(tmp_path / "out", MODELS, SETTINGS[kind], tmp_path) == expected
    assert len(expected) == 2 * len(MODELS)


def test_the_path_changes_nothing(expected: dict[str, bytes], tmp_path: Path) -> None:
    """Relative or absolute, with blanks and other letters in it: only the model counts."""
    folder = tmp_path / "ein Ordner mit ü"
    folder.mkdir()
    for model in map(Path, MODELS):
        (folder / model.name).write_bytes(model.read_bytes())
    models = [f"{folder.name}/{Path(model).name}" for model in MODELS]
    assert outputs(tmp_path / "out", models, {}, tmp_path) == expected


def test_data_files_are_the_same_wherever_they_are_written(tmp_path: Path) -> None:
    """Weights beside the model: the same bytes, at the same places, from two folders."""
    found = []
    for place in ("one", "two/deeper"):
        path = beside(tmp_path / place, layered())
        found.append(outputs(tmp_path / place / "out", [str(path)], {}, tmp_path))
    assert found[0] == found[1]


def test_a_model_in_memory_and_one_in_a_file_give_the_same() -> None:
    """How the model came changes nothing, nor does a run before it."""
    for name in COMMITTED[:4]:
        results = [
            onnx_sched.optimize(model, choose="always", check=False).proto
            for model in (committed(name), FOLDER / f"{name}.onnx", committed(name))
        ]
        first, *others = (r.SerializeToString(deterministic=True) for r in results)
        assert all(other == first for other in others)


def test_the_checks_change_nothing() -> None:
    """Running the models, with any number of threads, decides nothing where all is wanted."""
    name = "mmoe"
    bare = onnx_sched.optimize(FOLDER / f"{name}.onnx", choose="always", check=False)
    for threads in ((1,), (2,), (0,)):
        run = onnx_sched.optimize(FOLDER / f"{name}.onnx", choose="always", threads=threads)
        assert run.proto.SerializeToString() == bare.proto.SerializeToString()
