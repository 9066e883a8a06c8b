"""`onnx-sched compare`: the exit code tells, stdout is the report alone, names are taken as they are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import helper, numpy_helper

from onnx_sched.cli import cli
from onnx_sched.judge.compare import CompareOptions, compare
from onnx_sched.judge.provider import check_provider
from scripts.check_compare import repeated
from tests.comparisons import QUICK, SCHEMA, closed, net, parse, write_models


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of `write_models`."""
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def no_gpu() -> None:
    """Skip where CUDA works."""
    if check_provider("cuda").usable:
        pytest.skip("there is a CUDA device")


def command(*words: str) -> Result:
    """Run `onnx-sched compare`."""
    return CliRunner().invoke(cli, ["compare", *words, *QUICK])


def pair(folder: Path, before: str, after: str) -> tuple[str, str]:
    return str(folder / f"{before}.onnx"), str(folder / f"{after}.onnx")


def slowed(folder: Path) -> Path:
    """The first model with 50 nodes more."""
    path = folder / "slow.onnx"
    onnx.save(repeated(net(), 50), str(path))
    return path


def test_equal_models_exit_with_0(folder: Path) -> None:
    """Agreement and gates that hold: 0, the JSON is all of stdout, and it fits the schema."""
    gates = ["--fail-on", "launches,memory,mismatch"]
    ran = command(*pair(folder, "a", "copy"), "--provider", "cpu", "--json", *gates)
    assert ran.exit_code == 0, ran.output
    data = json.loads(ran.stdout)
    jsonschema.Draft202012Validator(closed(SCHEMA)).validate(data)
    assert data["agreement"]["verdict"] == "bitwise"
    assert [row["failed"] for row in data["gates"]] == [False] * 3
    assert ran.stderr == ""


def test_what_cannot_be_read_exits_with_1(folder: Path) -> None:
    """A missing file, a folder, and a file of something else: named as by `optimize`, nothing on stdout."""
    junk = folder / "junk.onnx"
    junk.write_bytes(b"not a model at all")
    for path, why in (
        (folder / "nowhere.onnx", ": no such file"),
        (folder, " is a directory, not a model file"),
        (junk, " is not an ONNX model, or it is cut off (18 bytes)"),
    ):
        ran = command(str(folder / "a.onnx"), str(path))
        assert ran.exit_code == 1
        assert ran.stdout == ""
        said, hint = ran.stderr.splitlines()
        assert said == f"error: {path}{why}"
        assert hint.startswith("hint: ")


def test_disagreement_exits_with_3(folder: Path) -> None:
    """Other numbers: the report is printed in full, an error says what differs, exit 3."""
    ran = command(*pair(folder, "a", "c"))
    assert ran.exit_code == 3
    assert "MISMATCH" in ran.stdout
    assert "error: the outputs disagree: y: " in ran.stderr
    assert "different computations" in ran.stdout


@pytest.mark.parametrize(
    ("after", "gates", "message"),
    [
        ("c", "mismatch", "gate failed: mismatch: the outputs disagree: y: "),
        ("long", "launches", "node dispatches (kernel launches are not available)"),
        ("copy", "cpu-nodes", "gate failed: cpu-nodes: all nodes run on the CPU"),
    ],
)
@pytest.mark.usefixtures("no_gpu")
def test_a_failed_gate_exits_with_4(folder: Path, after: str, gates: str, message: str) -> None:
    """The line that names the gate goes to stderr, also with -q; stdout then stays empty."""
    ran = command(*pair(folder, "a", after), "--fail-on", gates, "-q")
    assert ran.exit_code == 4
    assert ran.stdout == ""
    assert message in ran.stderr


def test_disagreement_outweighs_a_failed_gate(folder: Path) -> None:
    """Without the gate `mismatch`, disagreement is 3 whatever else failed; both are said."""
    ran = command(*pair(folder, "c", "long"), "--fail-on", "launches", "-q")
    assert ran.exit_code == 3
    assert "gate failed: launches" in ran.stderr


def test_a_typo_exits_with_2(folder: Path) -> None:
    """Gates, sizes and providers that do not exist are usage errors with a suggestion."""
    a = pair(folder, "a", "copy")
    for words, hint in (
        (["--fail-on", "slowr"], "did you mean slower?"),
        (["--provider", "cudda"], "did you mean cuda?"),
        (["--atol", "z:1"], "the model has y"),
    ):
        ran = command(*a, *words)
        assert ran.exit_code == 2
        assert hint in ran.stderr
    assert CliRunner().invoke(cli, ["compare", *a, "--pairs", "many"]).exit_code == 2


@pytest.mark.usefixtures("no_gpu")
def test_an_unusable_provider_exits_with_5(folder: Path) -> None:
    """`--provider cuda` without a device: cause and fix, nothing on stdout, no run on the CPU."""
    ran = command(*pair(folder, "a", "copy"), "--provider", "cuda", "--json")
    assert ran.exit_code == 5
    assert ran.stdout == ""
    assert "CUDAExecutionProvider cannot run here" in ran.stderr
    assert "hint: " in ran.stderr


def test_a_model_that_does_not_run_is_no_number(folder: Path) -> None:
    """An op that nobody has: a mismatch with the reason, nothing timed, nothing counted, and no crash."""
    stranger = parse("g (float[batch,8] x) => (float[batch,12] y) { y = nobody.Knows(x) }")
    stranger.opset_import.append(helper.make_opsetid("nobody", 1))
    onnx.save(stranger, str(folder / "strange.onnx"))
    ran = command(*pair(folder, "a", "strange"), "--json")
    assert ran.exit_code == 3
    data = json.loads(ran.stdout)
    jsonschema.Draft202012Validator(closed(SCHEMA)).validate(data)
    assert data["latency"] == data["critical_path"] == []
    assert data["dispatches"]["before"] == 3
    assert data["dispatches"]["after"] is None
    assert data["dispatches"]["source"] == "not available: strange.onnx does not run"
    assert any("not timed" in note for note in data["notes"])


INPUTS = {
    "float[batch,8] z": "x (float32 [batch, 8]), no z, but {} takes no x, z (float32 [batch, 8])",
    "float[batch,9] x": "x (float32 [batch, 8]), but {} takes x (float32 [batch, 9])",
    "float[batch,8,1] x": "x (float32 [batch, 8]), but {} takes x (float32 [batch, 8, 1])",
    "double[batch,8] x": "x (float32 [batch, 8]), but {} takes x (float64 [batch, 8])",
    "float[batch,8] x, float[2] z": "no z, but {} takes z (float32 [2])",
    "seq(float[batch,8]) x": "x (float32 [batch, 8]), but {} takes x (sequence of float32)",
}
"""Inputs of another model, and what is said of them."""


@pytest.mark.parametrize("inputs", INPUTS)
def test_models_of_different_inputs_exit_with_2(folder: Path, inputs: str) -> None:
    """Nothing can be fed to both: which inputs differ is said once, and nothing is run."""
    other = folder / "interface.onnx"
    onnx.save(parse(f"g ({inputs}) => (float[] y) {{ y = Identity(x) }}"), str(other))
    for words in ([], ["--json"]):
        ran = command(str(folder / "a.onnx"), str(other), *words)
        assert (ran.exit_code, ran.stdout) == (2, "")
        said, hint = ran.stderr.splitlines()
        assert said.startswith(f"error: the inputs differ: {folder / 'a.onnx'} takes ")
        assert said.endswith(INPUTS[inputs].format(other))
        assert "same inputs" in hint


@pytest.mark.parametrize("inputs", ["float[n,8] x", "float[2,8] x", "float[n,m] x", "float[] x"])
def test_open_sizes_fit(folder: Path, inputs: str) -> None:
    """A size that one of the models leaves open is no difference."""
    model = net()
    model.graph.input[0].CopyFrom(
        parse(f"g ({inputs}) => (float[] y) {{ y = Relu(x) }}").graph.input[0]
    )
    onnx.save(model, str(folder / "open.onnx"))
    ran = command(*pair(folder, "a", "open"), "--provider", "cpu", "-q")
    assert (ran.exit_code, ran.output) == (0, "")


def test_an_input_with_a_default_may_be_fed(folder: Path) -> None:
    """What one model must be given, and the other may be given, fits both."""
    model = net()
    default = numpy_helper.from_array(np.zeros((1, 8), np.float32), "x")
    model.graph.initializer.append(default)
    onnx.save(model, str(folder / "default.onnx"))
    ran = command(*pair(folder, "a", "default"), "--provider", "cpu", "-q")
    assert (ran.exit_code, ran.output) == (0, "")


def test_the_slower_copy_of_the_check_by_hand_is_slower_and_nothing_else(folder: Path) -> None:
    """`scripts/check_compare.py` adds nodes that ONNX Runtime keeps and that change no bit."""
    options = CompareOptions("cpu", pairs=10, budget=0.01, dims={"batch": (2,)})
    found = compare(folder / "a.onnx", slowed(folder), options)
    assert found.agreement.verdict == "bitwise"
    assert (found.dispatches.after or 0) - (found.dispatches.before or 0) == 50


def test_fifty_nodes_more_are_slower_and_fail_the_gate(folder: Path) -> None:
    """SLOWER, with an interval clear of 1 and of the noise; `--fail-on slower:5%` exits 4 and says where."""
    words = [str(folder / "a.onnx"), str(slowed(folder)), "--provider", "cpu", "--dim", "batch=2"]
    words += ["--pairs", "60", "--budget", "2"]
    ran = CliRunner().invoke(cli, ["compare", *words, "--fail-on", "slower:5%,mismatch"])
    assert ran.exit_code == 4
    assert "batch=2, 1 thread: SLOWER" in ran.stdout
    assert "gates held: mismatch" in ran.stdout
    said = re.fullmatch(
        r"gate failed: slower:5%: batch=2, 1 thread: ([\d.]+)x \[([\d.]+), ([\d.]+)\]\n", ran.stderr
    )
    assert said is not None
    ratio, low, high = map(float, said.groups())
    assert low <= ratio <= high < 0.95


def test_launches_spread_the_samples_over_processes(folder: Path) -> None:
    """`--launches 2`: two processes, each with openings of its own, and the interval is over both."""
    words = [*pair(folder, "a", "copy"), "--provider", "cpu", "--json", *QUICK, "--launches", "2"]
    words += ["--pairs", "40"]
    ran = CliRunner().invoke(cli, ["compare", *words])
    assert ran.exit_code == 0, ran.output
    data = json.loads(ran.stdout)
    jsonschema.Draft202012Validator(closed(SCHEMA)).validate(data)
    (row,) = data["latency"]
    assert data["settings"]["processes"] == row["processes"] == 2
    assert row["openings"] >= 2
    assert row["pairs"] >= 20
    assert row["cold_start"]["before"]["repeats"] == row["openings"]


def test_a_gate_that_held_is_said(folder: Path) -> None:
    """A person sees which gates were held against the model; -q sees nothing."""
    ran = command(*pair(folder, "a", "copy"), "--fail-on", "launches,mismatch")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout.endswith("gates held: launches, mismatch\n")
    assert command(*pair(folder, "a", "copy"), "--fail-on", "launches", "-q").stdout == ""


def test_what_goes_to_stderr_is_harmless_too(folder: Path) -> None:
    """The name of an output is the word of a stranger, also in the line that says what disagrees."""
    for name, scale in (("evil", 1.0), ("evil_too", 1.5)):
        model = net(scale=scale)
        model.graph.output[0].name = model.graph.node[-1].output[0] = "y\x1b[2J"
        onnx.save(model, str(folder / f"{name}.onnx"))
    ran = command(*pair(folder, "evil", "evil_too"), "--color", "always")
    assert ran.exit_code == 3
    assert "y?[2J" in ran.stderr
    assert "\x1b[2J" not in ran.output
