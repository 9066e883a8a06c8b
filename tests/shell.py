"""A small kit for tests of the command line: a place to stand, two models, and what was left behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner, Result

from onnx_sched.cli import cli
from tests.nets import name_nodes, net, numbers
from tests.rule_examples import with_ranks

LANES = (
    "(float[batch,8] x) => (float[] y) { p0, p1 = Split<axis=1>(x) a0 = MatMul(p0, w0) "
    "a1 = MatMul(p1, w1) b0 = Relu(a0) b1 = Relu(a1) y = Concat<axis=1>(b0, b1) }"
)
CHAIN = "(float[batch,4] x) => (float[batch,4] y) { a = MatMul(x, w0) y = MatMul(a, w1) }"
MIXED = LANES.replace("y = Concat", "j = Concat").replace(" }", " y = MatMul(j, w2) }")
WEIGHTS = {"w0": numbers(4, 4), "w1": numbers(4, 4, seed=1), "w2": numbers(8, 8, seed=2)}
FAST = ("--choose", "always", "--dim", "batch=1,3")


def model(text: str = LANES) -> onnx.ModelProto:
    """A small model."""
    read = {name: value for name, value in WEIGHTS.items() if f" {name})" in text}
    return with_ranks(name_nodes(net(text, read)))


def lay_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make and enter a folder with two small models in it; an empty one is for temporary files."""
    folder, spare = tmp_path / "place", tmp_path / "spare"
    folder.mkdir()
    spare.mkdir()
    onnx.save(model(), folder / "lanes.onnx")
    onnx.save(model(CHAIN), folder / "chain.onnx")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(tempfile, "tempdir", str(spare))
    monkeypatch.setenv("TMPDIR", str(spare))
    return folder


def run(*arguments: str) -> Result:
    """Run a command line in this process."""
    return CliRunner().invoke(cli, list(arguments))


def tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder with what is in them."""
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def left_behind(folder: Path) -> list[str]:
    """What lies where temporary files go."""
    return sorted(p.name for p in (folder.parent / "spare").rglob("*"))


def refused(result: Result, code: int, *words: str) -> None:
    """See that a run ended with a code, one line of error, maybe a hint, and nothing else."""
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[0].startswith("error: ") or lines[0].startswith("Usage: ")
    assert "Traceback" not in result.stderr
    if lines[0].startswith("error: "):
        assert len(lines) == 1 + (len(lines) > 1 and lines[1].startswith("hint: "))
    for word in words:
        assert word in result.stderr
