"""Ctrl-C while models are raced, for real: a signal to the command line as it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from models.mlp import grouped_mlp

RUN = """
import signal, sys
import onnx_sched.choose, onnx_sched.races, onnx_sched.trial
from onnx_sched.cli.main import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start us deaf to it
if sys.argv[1] == "onnx_sched.trial":
    keep = lambda self, region: onnx_sched.choose.Decision(tuple(region), (), "")
    onnx_sched.choose.Chooser.decide = keep

class Endless(onnx_sched.races.Race):
    def run(self, rounds):
        print("racing", file=sys.stderr, flush=True)
        while True:
            super().run(rounds)

onnx_sched.races.Race = Endless
main(sys.argv[2:])
"""
"""Runs the command line; the races of a module begin, say so, and never end."""


@pytest.mark.skipif(os.name == "nt", reason="no such signal there")
@pytest.mark.parametrize("module", ["onnx_sched.choose", "onnx_sched.trial"])
def test_an_interrupted_race_leaves_nothing(tmp_path: Path, module: str) -> None:
    """Regions, or the whole model: exit 130, one line, no output, no report, no temporary file."""
    place, scratch = tmp_path / "place", tmp_path / "scratch"
    place.mkdir()
    scratch.mkdir()
    onnx.save(grouped_mlp(layers=2, groups=3, width=4), str(place / "model.onnx"))
    before = (place / "model.onnx").read_bytes()
    words = (
        "optimize model.onnx -o out.onnx --save-plan plan.json --report report.html --provider cpu"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, module, *words.split()],
        cwd=place,
        env={**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "racing\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert out == ""
    assert err == "interrupted: nothing was written\n"
    assert [(p.name, p.read_bytes()) for p in place.iterdir()] == [("model.onnx", before)]
    assert list(scratch.iterdir()) == []
