"""The command line: exit codes, one clear line for each mistake, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest

import onnx_sched
from onnx_sched import pipeline, writing
from onnx_sched.cli import cli
from onnx_sched.errors import ModelError
from onnx_sched.judge.agree import Agreement
from tests.nets import FOLDER, numbers
from tests.rule_examples import compare
from tests.shell import CHAIN, FAST, LANES, MIXED, lay_out, left_behind, model, refused, run, tree

ROOT = FOLDER.parent
SCHEMA = json.loads(resources.files("onnx_sched.report").joinpath("schema.json").read_text("utf-8"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two small models in it, and an empty one for temporary files."""
    return lay_out(tmp_path, monkeypatch)


# -- what goes well ------------------------------------------------------------------------------------


def test_a_model_is_rewritten_checked_and_written(place: Path) -> None:
    """Exit 0: the report on stdout, `wrote OUT` on stderr, a model that gives the same."""
    result = run("optimize", "lanes.onnx", "-o", "out.onnx", *FAST)
    assert result.exit_code == 0, result.output
    assert "2 MatMul -> 1" in result.stdout
    assert result.stderr.startswith("wrote out.onnx (")
    written = onnx.load(place / "out.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert [n.op_type for n in written.graph.node].count("MatMul") == 1
    assert compare(model(), written, {"batch": 3}, {"batch": 0}) == 2
    assert left_behind(place) == []
    assert sorted(tree(place)) == ["chain.onnx", "lanes.onnx", "out.onnx"]


def test_where_nothing_is_to_do_the_output_is_a_copy(place: Path) -> None:
    """Exit 0 and the same bytes, also over a file that is there already."""
    (place / "out.onnx").write_bytes(b"old")
    result = run("optimize", "chain.onnx", "-o", "out.onnx", *FAST)
    assert result.exit_code == 0, result.output
    assert (place / "out.onnx").read_bytes() == (place / "chain.onnx").read_bytes()


def external(folder: Path, text: str) -> Path:
    """A model whose weights lie in a file beside it."""
    path = folder / "model.onnx"
    options: dict[str, Any] = {"save_as_external_data": True, "size_threshold": 0}
    onnx.save_model(model(text), path, location="weights.bin", **options)
    assert (folder / "weights.bin").stat().st_size
    return path


@pytest.mark.parametrize("text", [CHAIN, LANES, MIXED], ids=["unchanged", "changed", "mixed"])
def test_weights_in_a_file_go_along(place: Path, text: str) -> None:
    """Weights beside a model stay beside it, in another folder, too; where all are new they go inside.

    Every file that is written is named, and no other.
    """
    for name in ("source", "target"):
        (place / name).mkdir()
    source = external(place / "source", text)
    before = tree(place / "source")
    result = run("optimize", str(source), "-o", "target/out.onnx", *FAST)
    assert result.exit_code == 0, result.output
    found = tree(place / "target")
    said = [re.sub(r" \(.*", "", line) for line in result.stderr.splitlines()]
    assert said[0] == "wrote target/out.onnx"
    assert sorted(said) == [f"wrote target/{name}" for name in sorted(found)]
    if text == CHAIN:
        assert found == {"out.onnx": before["model.onnx"], "weights.bin": before["weights.bin"]}
    else:
        data = ["out.onnx.data"] if text == MIXED else []
        assert sorted(found) == ["out.onnx", *data]
    assert tree(place / "source") == before
    assert compare(model(text), onnx.load(place / "target" / "out.onnx"), {"batch": 3}) == 1


def test_a_plan_writes_nothing(place: Path) -> None:
    """`plan` tells the same as `optimize` and leaves no file."""
    before = tree(place)
    planned = run("plan", "lanes.onnx", *FAST)
    assert planned.exit_code == 0, planned.output
    assert planned.stderr == ""
    assert tree(place) == before
    assert left_behind(place) == []
    done = run("optimize", "lanes.onnx", "-o", "out.onnx", *FAST)
    said = [
        [" ".join(row.split()).removeprefix("batched ") for row in text.split("\n") if keep in row]
        for text in (planned.stdout, done.stdout)
        for keep in ("agreement  ", " -> 1 (")
    ]
    assert all(said)
    assert said[:2] == said[2:]


@pytest.mark.parametrize("name", ["lanes.onnx", "chain.onnx"])
@pytest.mark.parametrize("command", [["optimize", "-o", "out.onnx"], ["plan"]])
def test_json_is_all_there_is(place: Path, command: Sequence[str], name: str) -> None:
    """With --json stdout is one JSON document that follows the schema, and stderr is empty."""
    result = run(*command, name, "--json", *FAST)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    assert report["status"] == ("optimized" if name == "lanes.onnx" else "unchanged")
    assert result.stderr == ""


@pytest.mark.parametrize("command", [["optimize", "-o", "out.onnx"], ["plan"]])
def test_quiet_is_silent(place: Path, command: Sequence[str]) -> None:
    """With -q nothing is printed at all."""
    result = run(*command, "lanes.onnx", "-q", *FAST)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_a_saved_plan_is_carried_out_byte_for_byte(place: Path) -> None:
    """--save-plan, then --plan: the same file, and nothing was measured."""
    first = run("optimize", "lanes.onnx", "-o", "a.onnx", "--save-plan", "plan.json", *FAST)
    second = run("optimize", "lanes.onnx", "-o", "b.onnx", "--plan", "plan.json", "--json")
    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    assert (place / "a.onnx").read_bytes() == (place / "b.onnx").read_bytes()
    assert json.loads(second.stdout)["latency"] == []


def test_flags_reach_the_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every flag arrives under its name."""
    seen: list[Any] = []

    def optimize(source: Path, options: Any) -> None:
        seen.append((source, options))
        raise ModelError("stop")

    monkeypatch.setattr(pipeline, "optimize", optimize)
    flags = (
        "--choose model --provider cpu --dim batch=1,2 --dim batch=3 --shape x:4,8 --seed 7 --atol 1e-3 "
        "--rtol y:1e-2 --no-check --nonempty --skip-op Relu --skip-node a* --threads 3 --time-limit 5 "
        "--max-activation 2 --inputs in.npz --plan p.json"
    ).split()
    refused(run("optimize", "lanes.onnx", "-o", "out.onnx", *flags), 1, "stop")
    source, options = seen[0]
    assert source == Path("lanes.onnx")
    assert (options.choose, options.provider, options.seed) == ("model", "cpu", 7)
    assert options.dims == {"batch": (1, 2, 3)}
    assert options.shapes == {"x": (4, 8)}
    assert (options.atol, options.rtol) == (("1e-3",), ("y:1e-2",))
    assert (options.check, options.nonempty) == (False, True)
    assert (options.skip_ops, options.skip_nodes) == (("Relu",), ("a*",))
    assert (options.threads, options.time_limit, options.max_activation) == ((3,), 5.0, 2.0)
    assert (options.inputs, options.plan) == (Path("in.npz"), Path("p.json"))


def test_inputs_of_the_user_are_used(place: Path) -> None:
    """--inputs: one feed is checked, without and with the runtime's optimisations."""
    np.savez(place / "in.npz", x=numbers(5, 8))
    result = run("plan", "lanes.onnx", "--choose", "always", "--inputs", "in.npz", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["agreement"]["checks"] == 2


# -- mistakes ------------------------------------------------------------------------------------------


def write_text(path: Path) -> None:
    path.write_text("ir_version: 8\ngraph { }\n")


def write_nothing(path: Path) -> None:
    path.write_bytes(b"")


def write_half(path: Path) -> None:
    data = model().SerializeToString()
    path.write_bytes(data[: len(data) - 40])


def write_other(path: Path) -> None:
    """A protobuf, but of something else."""
    path.write_bytes(onnx.numpy_helper.from_array(numbers(3)).SerializeToString())


def write_cycle(path: Path) -> None:
    proto = model(CHAIN)
    proto.graph.node[0].input[0] = "y"
    onnx.save(proto, path)


def no_data(path: Path) -> None:
    external(path.parent, LANES)
    (path.parent / "weights.bin").unlink()
    (path.parent / "model.onnx").rename(path)


def short_data(path: Path) -> None:
    external(path.parent, LANES)
    (path.parent / "weights.bin").write_bytes(b"1234")
    (path.parent / "model.onnx").rename(path)


def data_elsewhere(path: Path) -> None:
    external(path.parent, LANES)
    proto = onnx.load(path.parent / "model.onnx", load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../weights.bin"
    onnx.save(proto, path)
    (path.parent / "model.onnx").unlink()


def write_never(path: Path) -> None:
    pass


def make_folder(path: Path) -> None:
    path.mkdir()


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (write_never, "no such file"),
    "directory": (make_folder, "is a directory"),
    "text": (write_text, "not an ONNX model"),
    "empty": (write_nothing, "empty (0 bytes)"),
    "cut off": (write_half, "cut off"),
    "something else": (write_other, "ONNX"),
    "a cycle": (write_cycle, "cycle"),
    "no external data": (no_data, "weights.bin"),
    "too little external data": (short_data, "weights.bin"),
    "external data elsewhere": (data_elsewhere, "outside the model's folder"),
}


@pytest.mark.parametrize("command", ["optimize", "plan"])
@pytest.mark.parametrize("what", BROKEN)
def test_a_model_that_cannot_be_read_is_named(place: Path, what: str, command: str) -> None:
    """Exit 1: the file, what is wrong with it, and nothing is written."""
    make, word = BROKEN[what]
    make(place / "bad.onnx")
    before = tree(place)
    out = ("-o", "out.onnx") if command == "optimize" else ()
    named = "" if what == "a cycle" else "bad.onnx"
    refused(run(command, "bad.onnx", *out, *FAST), 1, named, word)
    assert tree(place) == before
    assert left_behind(place) == []


def test_an_output_that_is_the_input_is_refused(place: Path) -> None:
    """Exit 2, by whatever name: its own, a longer one, a link."""
    before = tree(place)
    names = ["lanes.onnx", str(place / "lanes.onnx"), f"../{place.name}/lanes.onnx"]
    for link in ("symbolic.onnx", "hard.onnx"):
        try:
            if link == "hard.onnx":
                os.link(place / "lanes.onnx", place / link)
            else:
                (place / link).symlink_to(place / "lanes.onnx")
        except OSError:  # not everywhere
            continue
        names.append(link)
    for name in names:
        refused(run("optimize", "lanes.onnx", "-o", name, *FAST), 2, name, "the input itself")
    for name in names[3:]:
        (place / name).unlink()
    assert tree(place) == before


OUTPUTS = {
    "a directory": ("sub", 2, "is a directory"),
    "in no folder": ("gone/out.onnx", 2, "there is no folder"),
    "below a file": ("chain.onnx/out.onnx", 2, "cannot write"),
}


@pytest.mark.parametrize("what", OUTPUTS)
def test_an_output_that_cannot_be_written_is_refused_at_once(
    place: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory, no folder, a file in the way: said before the model is even read."""
    (place / "sub").mkdir()
    before = tree(place)
    monkeypatch.setattr(pipeline, "optimize", None)
    name, code, word = OUTPUTS[what]
    refused(run("optimize", "lanes.onnx", "-o", name, *FAST), code, name, word)
    assert tree(place) == before


def test_a_folder_that_is_read_only_is_refused_at_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No permission to write: exit 2, named."""
    monkeypatch.setattr(os, "access", lambda path, mode, **_: mode != os.W_OK)
    refused(run("optimize", "lanes.onnx", "-o", "out.onnx", *FAST), 2, "out.onnx", "permission")


def test_a_disk_that_fills_up_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error while writing: exit 1, the old output untouched, no temporary file."""
    (place / "out.onnx").write_bytes(b"old")
    before = tree(place)

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "write", full)
    refused(
        run("optimize", "lanes.onnx", "-o", "out.onnx", "--choose", "always", "--no-check"),
        1,
        "out.onnx",
        "No space left",
    )
    assert tree(place) == before
    assert left_behind(place) == []


FLAGS = {
    "unknown op": (["--skip-op", "MatMull"], "--skip-op MatMull", "Did you mean 'MatMul'?"),
    "op of another model": (["--skip-op", "LSTM"], "--skip-op LSTM", "no op type"),
    "unknown node": (["--skip-node", "a00"], "--skip-node a00", "Did you mean 'a0'?"),
    "pattern that fits nothing": (
        ["--skip-node", "zz*"],
        "--skip-node zz*",
        "It has 6, such as 'p0'",
    ),
    "pattern that nearly fits": (["--skip-node", "A1*"], "--skip-node A1*", "'a1'"),
    "plan over a model": (
        ["--save-plan", "chain.onnx"],
        "--save-plan chain.onnx: the name ends in .onnx",
        "Let it end in .json.",
    ),
    "plan without a suffix": (["--save-plan", "plan"], "--save-plan plan", "Let it end in .json."),
    "no size": (["--dim", "batch"], "--dim batch", "batch=1,32"),
    "size that is no number": (["--dim", "batch=x"], "--dim batch=x", "batch=1,32"),
    "size below zero": (["--dim", "batch=-1"], "--dim batch=-1", "batch=1,32"),
    "unknown size": (["--dim", "bath=3"], "--dim bath", "did you mean batch?"),
    "no shape": (["--shape", "x"], "--shape x", "x:1,3,224,224"),
    "unknown input": (["--shape", "q:1,2"], "--shape q", "the model has x"),
    "shape that does not fit": (["--shape", "x:3,9"], "--shape x", "does not fit"),
    "shape against size": (
        ["--shape", "x:3,8", "--dim", "batch=4"],
        "--shape x",
        "contradict each other",
    ),
    "tolerance that is no number": (["--atol", "tiny"], "--atol tiny", ""),
    "tolerance below zero": (["--rtol", "-1"], "--rtol -1", ""),
    "tolerance of no output": (["--atol", "z:1e-3"], "--atol z", "y"),
    "no inputs": (["--inputs", "gone.npz"], "--inputs gone.npz", "no such file"),
    "inputs that are none": (["--inputs", "chain.onnx"], "--inputs chain.onnx", ""),
    "inputs of another model": (["--inputs", "other.npz"], "other.npz", "x"),
    "no plan": (["--plan", "gone.json"], "--plan gone.json", "save-plan"),
    "plan that is none": (["--plan", "chain.onnx"], "--plan chain.onnx", "is not JSON"),
    "unknown provider": (["--provider", "cudo"], "--provider cudo", "did you mean cuda?"),
    "unknown way to choose": (["--choose", "best"], "--choose", "'measured'"),
    "threads below zero": (["--threads", "-1"], "--threads", "-1"),
    "time below zero": (["--time-limit", "-1"], "--time-limit", "-1"),
    "less memory": (["--max-activation", "0.5"], "--max-activation", "0.5"),
    "seed that is no number": (["--seed", "x"], "--seed", "x"),
    "unknown flag": (["--skip-ops", "MatMul"], "--skip-ops", "--skip-op"),
}


@pytest.mark.parametrize("command", ["optimize", "plan"])
@pytest.mark.parametrize("what", FLAGS)
def test_a_flag_that_makes_no_sense_is_named(place: Path, what: str, command: str) -> None:
    """Exit 2: the flag and what was given, what would do, and nothing is written."""
    np.savez(place / "other.npz", q=numbers(3, 8))
    before = tree(place)
    flags, *words = FLAGS[what]
    out = ("-o", "out.onnx") if command == "optimize" else ()
    choice = () if "--choose" in flags else ("--choose", "always")
    refused(run(command, "lanes.onnx", *out, *choice, *flags), 2, *words)
    assert tree(place) == before
    assert left_behind(place) == []


def test_a_plan_that_cannot_be_saved_is_named(place: Path) -> None:
    """--save-plan into no folder: one line that names the flag or the file, and no model either."""
    before = tree(place)
    result = run("optimize", "lanes.onnx", "-o", "out.onnx", "--save-plan", "gone/p.json", *FAST)
    assert result.exit_code == 2
    assert "gone/p.json" in result.stderr
    assert "Traceback" not in result.stderr
    assert isinstance(result.exception, SystemExit)
    assert tree(place) == before


# -- outputs that disagree, providers, interruptions ---------------------------------------------------


def test_outputs_that_disagree_write_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 3: the model is named, with the reason and what to do."""
    wrong = Agreement("mismatch", (), 6, "y: 3 of 8 elements differ")
    monkeypatch.setattr("onnx_sched.trial.agree.validate", lambda *args, **kwargs: wrong)
    before = tree(place)
    result = run("optimize", "lanes.onnx", "-o", "out.onnx", "--save-plan", "plan.json", *FAST)
    refused(result, 3, "lanes.onnx", "y: 3 of 8 elements differ", "Nothing was written")
    assert tree(place) == before
    assert left_behind(place) == []


def test_a_provider_that_cannot_run_is_refused(place: Path) -> None:
    """Exit 5: it never falls back to another one."""
    if onnx_sched.check_provider("cuda").usable:
        pytest.skip("CUDA is usable here")
    before = tree(place)
    result = run("optimize", "lanes.onnx", "-o", "out.onnx", "--provider", "cuda", *FAST)
    refused(result, 5, "CUDAExecutionProvider", "cannot run here")
    assert tree(place) == before


WHERE = {
    "reading": "onnx_sched.files.read",
    "analysing": "onnx_sched.pipeline.analyse",
    "checking": "onnx_sched.trial.agree.validate",
    "profiling": "onnx_sched.trial.profiling.profile",
    "writing": "onnx_sched.writing.save",
    "the last step": "onnx_sched.writing.fill_all",
}


@pytest.mark.parametrize("what", WHERE)
def test_an_interruption_leaves_nothing(
    place: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 130 wherever Ctrl-C comes: one line, no output, no temporary file."""

    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(WHERE[what], interrupt)
    before = tree(place)
    result = run("optimize", "lanes.onnx", "-o", "out.onnx", *FAST)
    assert result.exit_code == 130
    assert result.stdout == ""
    assert result.stderr == "interrupted: nothing was written\n"
    assert tree(place) == before
    assert left_behind(place) == []


# -- by itself -----------------------------------------------------------------------------------------

HEAVY = (
    "onnx",
    "numpy",
    "rich",
    "onnxruntime",
    "onnx_graphsurgeon",
    "jinja2",
    "onnx_sched.pipeline",
)


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["--help"], [], ["optimize", "--help"], ["plan", "-h"], ["optimise"]],
    ids=" ".join,
)
def test_help_waits_for_nothing(arguments: list[str]) -> None:
    """--help, --version and a command that is none import click and little else."""
    code = (
        "import sys\nfrom onnx_sched.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=True,
    )
    assert done.stderr.splitlines()[-1] == "[]"


def test_the_module_runs_as_a_program(place: Path) -> None:
    """`python -m onnx_sched` is the command: exit codes reach the shell, stdout is JSON alone."""
    command = [sys.executable, "-m", "onnx_sched"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    settings: dict[str, Any] = {"capture_output": True, "text": True, "env": environment}
    done = subprocess.run(
        [*command, "plan", "lanes.onnx", "--json", *FAST], **settings, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(done.stdout))
    failed = subprocess.run([*command, "plan", "gone.onnx"], **settings, timeout=120)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("error: gone.onnx")


def test_the_version_is_told() -> None:
    """--version prints name and version."""
    result = run("--version")
    assert (result.exit_code, result.stdout) == (
        0,
        f"onnx-sched, version {onnx_sched.__version__}\n",
    )


@pytest.mark.parametrize("command", ["optimize", "plan"])
def test_every_flag_explains_itself(command: str) -> None:
    """The help of a command has a text for each of its flags, and the group lists the exit codes."""
    for parameter in cli.commands[command].params:
        if parameter.param_type_name == "option":
            assert getattr(parameter, "help", None), parameter.name
    assert "3 outputs disagree" in run("--help").stdout


def test_telemetry_is_off_in_commands_and_not_in_the_library(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command sets ORT_DISABLE_TELEMETRY unless the user did."""
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    onnx_sched.optimize(model(CHAIN), choose="always", check=False)
    assert "ORT_DISABLE_TELEMETRY" not in os.environ
    run("plan", "chain.onnx", "--no-check")
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    run("plan", "chain.onnx", "--no-check")
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "0"
