"""What newcomers get wrong: every command says which file or flag, in one line, and writes nothing."""

from __future__ import annotations

import doctest
import os
import shlex
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import Result

import onnx_sched
from onnx_sched.cli import cli
from onnx_sched.errors import UsageError
from onnx_sched.judge.feeds import MOST, Binding, make_feeds
from onnx_sched.targets import replacing
from tests.nets import name_nodes, net, numbers
from tests.shell import FAST, lay_out, left_behind, model, refused, run, tree


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two small models in it, and an empty one for temporary files."""
    return lay_out(tmp_path, monkeypatch)


def told(line: str) -> Result:
    """Run a command line as it would be typed."""
    return run(*shlex.split(line))


# -- models ----------------------------------------------------------------------------------------

COMMANDS = (
    "optimize {} -o out.onnx",
    "plan {}",
    "draw {}",
    "explain {} --node a0",
    "diff {} lanes.onnx",
    "diff lanes.onnx {}",
    "merge lanes.onnx {} -o out.onnx",
    "compare {} lanes.onnx",
    "compare lanes.onnx {}",
)
"""Every command that reads a model."""

HALF = model().SerializeToString()[:200]
MODELS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "a directory": lambda path: path.mkdir(),
    "empty": lambda path: path.touch(),
    "text": lambda path: path.write_text("Hello\n" * 50),
    "cut off": lambda path: path.write_bytes(HALF),
    "zeros": lambda path: path.write_bytes(bytes(500)),
    "a zip": lambda path: path.write_bytes(b"PK\x03\x04" + bytes(300)),
    "in a file": lambda path: path.symlink_to(path.parent / "lanes.onnx" / "x"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", MODELS)
def test_every_command_names_the_model_that_it_cannot_read(
    place: Path, what: str, command: str
) -> None:
    """Exit 1 (2 for `diff`, where 1 says that models differ): the file is named, and nothing is written."""
    MODELS[what](place / "bad.onnx")
    before = tree(place)
    refused(told(command.format("bad.onnx")), 2 if command.startswith("diff") else 1, "bad.onnx")
    assert tree(place) == before
    assert left_behind(place) == []


def test_a_path_may_be_wrong_in_itself(place: Path) -> None:
    """A name of nothing, and one longer than any file's."""
    refused(told("plan ''"), 1, "is a directory")
    refused(told(f"plan {'n' * 300}"), 1, "nnn", "cannot be read")
    refused(told(f"optimize lanes.onnx -o {'n' * 300}"), 2, "nnn", "cannot write")


# -- inputs ----------------------------------------------------------------------------------------


def one_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, numbers(3, 8))


def of_objects(path: Path) -> None:
    np.savez(path, x=np.array([{}], dtype=object))


def with_a_note(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", "not an array")


def damaged(path: Path) -> None:
    """An archive with some bytes in the middle of a compressed array changed."""
    np.savez_compressed(path, x=np.zeros((300, 8), np.float32))
    data = bytearray(path.read_bytes())
    middle = data.index(b"x.npy") + 30
    data[middle : middle + 12] = b"\xff" * 12
    path.write_bytes(data)


def half(path: Path) -> None:
    np.savez(path, x=numbers(30, 8))
    path.write_bytes(path.read_bytes()[:400])


def folders(path: Path) -> None:
    (path / "test_data_set_0" / "input_0.pb").mkdir(parents=True)


INPUTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "no such file"),
    "empty": (lambda path: path.touch(), "empty (0 bytes)"),
    "text": (lambda path: path.write_text("x"), "not a .npz file, or cut off"),
    "cut off": (half, "not a .npz file, or cut off"),
    "damaged": (damaged, ""),
    "one array": (one_array, "one array without a name"),
    "objects": (of_objects, "Python objects, which are not loaded"),
    "a zip of something else": (with_a_note, "x in it is no array"),
    "no arrays": (np.savez, "x missing"),
    "another name": (lambda path: np.savez(path, q=numbers(3)), "the model has no input q"),
    "another type": (lambda path: np.savez(path, x=np.ones((3, 8))), "x is float64, not float32"),
    "another width": (lambda path: np.savez(path, x=numbers(3, 9)), "x is 3x9, not batchx8"),
    "words": (lambda path: np.savez(path, x=np.array(["a"])), "x is string, not float32"),
    "a folder without": (lambda path: path.mkdir(), "no input_*.pb in it"),
    "folders for files": (folders, "input_0.pb: Is a directory"),
}


@pytest.mark.parametrize("what", INPUTS)
def test_inputs_that_cannot_be_used_are_named(place: Path, what: str) -> None:
    """Exit 2, with the flag, the file, and what is wrong with it; nothing in it is ever executed."""
    make, words = INPUTS[what]
    make(place / "in.npz")
    before = tree(place)
    result = told("optimize lanes.onnx -o out.onnx --choose always --inputs in.npz")
    refused(result, 2, "--inputs in.npz", words)
    assert "allow_pickle" not in result.stderr
    assert tree(place) == before


@pytest.mark.skipif(not Path(os.devnull).is_char_device(), reason="no such device here")
def test_a_device_is_no_input(place: Path) -> None:
    """/dev/null is there, but neither a file nor a folder."""
    result = told(f"plan lanes.onnx --inputs {os.devnull}")
    refused(result, 2, f"--inputs {os.devnull}: neither a file nor a folder")


# -- flags -----------------------------------------------------------------------------------------

FLAGS = {
    "--dim bath=3": "did you mean batch?",
    "--dim batch=": "not a size",
    "--dim batch=1.5": "not a size",
    "--dim batch=99999999999999999999": "x8 is more than random inputs are made of",
    "--dim batch=1000000000000": "input x: 1000000000000x8 is more than",
    "--shape x:99999999999,8": "input x: 99999999999x8 is more than",
    "--shape x:": "not a shape",
    "--seed -1": "--seed",
    "--seed 1e3": "is not a whole number",
    "--atol nan": "--atol nan",
    "--threads 100000": "--threads",
    "--time-limit nan": "--time-limit",
    "--max-activation nan": "--max-activation",
    "--target cuda-a10": "Did you mean cuda-a100?",
    "--target gone.toml": "--target gone.toml: No such file",
    "--target lanes.toml": "--target lanes.toml is no device profile",
    "--target few.toml": "--target few.toml is no device profile: it has no dispatch_us",
    "--report r.pdf": "Let it end in .html",
    "--report gone/r.html": "there is no folder gone",
    "--report r.md --report ./r.md": "--report r.md would overwrite another file of this run",
    "--save-plan lanes.onnx": "--save-plan lanes.onnx would overwrite",
    "--save-plan ./out.onnx": "--save-plan out.onnx would overwrite",
    "--save-plan r.json --report r.json": "--save-plan r.json would overwrite",
    "--save-plan sub": "--save-plan sub is a directory",
    "--save-plan gone/p.json": "--save-plan gone/p.json: there is no folder gone",
    "--save-plan p.txt": "Let it end in .json",
    "--save-plan pipe": "--save-plan pipe: that is a pipe or a device",
    "--trace t.txt": "Let it end in .json",
    "--trace t.json --save-plan t.json": "--save-plan t.json would overwrite",
    "--skip-op matmul": "--skip-op matmul",
    "--skip-pass sum": "Did you mean 'sums'?",
    "--provider cudo": "did you mean cuda?",
    "--choose Always": "--choose",
    "--plan sub": "--plan sub: Is a directory",
    "--no-chek": "--no-check",
    "--out x": "--output",
    "-x": "-x",
    "more.onnx": "more.onnx",
}
"""Flags beside a model that is right, and what is said of them."""


@pytest.mark.parametrize("flags", FLAGS)
def test_flags_that_make_no_sense_are_named(
    place: Path, flags: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 2: the flag, what was given, and no file of any kind."""
    (place / "sub").mkdir()
    os.mkfifo(place / "pipe")
    (place / "lanes.toml").write_bytes((place / "lanes.onnx").read_bytes())
    (place / "few.toml").write_text('name = "few"\n')
    before = tree(place)
    result = told(f"optimize lanes.onnx -o out.onnx --choose always {flags}")
    refused(result, 2, FLAGS[flags])
    assert tree(place) == before
    assert (place / "pipe").is_fifo()
    assert left_behind(place) == []


LINES = {
    "optimise lanes.onnx -o out.onnx": "optimize",
    "optimize": "MODEL",
    "optimize lanes.onnx": "--output",
    "optimize -o out.onnx": "MODEL",
    "optimize lanes.onnx -o": "-o",
    "optimize lanes.onnx -o -": "Name a file",
    "optimize lanes.onnx -o pipe": "-o pipe: that is a pipe or a device",
    "optimize lanes.onnx -o ''": "is a directory",
    "optimize gone.onnx -o gone/out.onnx": "there is no folder gone",
    "plan lanes.onnx -o out.onnx": "-o",
    "plan lanes.onnx --save-plan chain.onnx": "Let it end in .json",
    "merge lanes.onnx -o out.onnx": "at least two models",
    "merge gone.onnx -o out.onnx": "at least two models",
    "merge lanes.onnx lanes.onnx -o gone/out.onnx": "there is no folder gone",
    "merge lanes.onnx lanes.onnx -o out.onnx --save-plan chain.onnx": "Let it end in .json",
    "merge gone.onnx lanes.onnx -o out.onnx --report gone/r.md": "there is no folder gone",
    "merge lanes.onnx lanes.onnx -o lanes.onnx": "the input itself",
    "merge lanes.onnx lanes.onnx -o out.onnx --save-plan lanes.onnx": "would overwrite",
    "draw lanes.onnx -o circuit.pdf": ".svg",
    "draw lanes.onnx -o gone/circuit.svg": "there is no folder gone",
    "draw lanes.onnx --width 3": "--width",
    "draw lanes.onnx -o pipe.svg": "-o pipe.svg: that is a pipe or a device",
    "explain S999": "S999",
    "explain lanes": "explain lanes: neither a code nor a file",
    "explain lanes.onnx": "--node NAME",
    "explain lanes.onnx --node a9": "--node a9",
    "explain lanes.onnx --node a0 --skip-node zz*": "such as 'p0'",
    "compare lanes.onnx": "AFTER",
    "compare lanes.onnx lanes.onnx --fail-on slwer": "did you mean slower?",
    "compare lanes.onnx lanes.onnx --budget nan": "--budget",
    "calibrate -o profile.json": "profile.json",
    "calibrate -o gone/profile.toml": "there is no folder gone",
    "doctor now": "now",
    "--versoin": "--version",
}
"""Whole command lines, and what is said of them."""


@pytest.mark.parametrize("line", LINES)
def test_command_lines_that_make_no_sense_are_answered(place: Path, line: str) -> None:
    """Exit 2: what was meant, what is missing, or what there is instead."""
    os.mkfifo(place / "pipe")
    os.mkfifo(place / "pipe.svg")
    before = tree(place)
    refused(told(line), 2, LINES[line])
    assert tree(place) == before
    assert (place / "pipe").is_fifo()
    assert (place / "pipe.svg").is_fifo()


# -- errors are one line, whatever stands in them --------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a\x1b[31mred", "one\ntwo\r", "\x9b2J", "a\u202egnp.exe", "\x1b]0;owned\x07"]
)
def test_names_do_nothing_in_errors(place: Path, name: str) -> None:
    """Names of files and of nodes come out of an error without what moves a cursor or changes a colour."""
    refused(run("plan", name), 1, "no such file")
    said = run("plan", name).stderr
    assert all(c.isprintable() or c == "\n" for c in said)
    text = "(float[N,4] x) => (float[N,4] y) { t = Relu(x) y = Relu(t) }"
    broken = name_nodes(net(text))
    broken.graph.node[0].input[0] = "y"
    for node in broken.graph.node:
        node.name += name
    onnx.save(broken, place / "cycle.onnx")
    result = told("plan cycle.onnx")
    refused(result, 1, "cycle")
    assert all(c.isprintable() or c == "\n" for c in result.stderr)


def test_letters_of_other_scripts_stay(place: Path) -> None:
    """The name of a file that somebody must find is not made a row of question marks."""
    name = "модель-模型-نموذج.onnx"
    refused(told(f"plan {name}"), 1, name)


def test_doctests() -> None:
    """The examples in the documentation of functions hold."""
    found = doctest.testmod(__import__("onnx_sched.cli.main", fromlist=["main"]))
    assert found.attempted
    assert not found.failed


# -- what lies below the command line --------------------------------------------------------------


def test_nothing_takes_the_place_of_a_pipe(place: Path) -> None:
    """A file never replaces a pipe or a device, whoever asks for it."""
    os.mkfifo(place / "pipe")
    with pytest.raises(Exception, match="pipe or a device"), replacing(place / "pipe") as temporary:
        temporary.write_text("x")
    assert (place / "pipe").is_fifo()
    assert [p.name for p in place.iterdir() if p.name.startswith(".")] == []


def test_sizes_end_where_no_model_would_run() -> None:
    """From Python, too, sizes that nobody has memory for and seeds below zero are refused."""
    small = net("(float[N] x) => (float[N] y) { y = Relu(x) }")
    with pytest.raises(UsageError, match=f"input x: {MOST + 1} is more than"):
        make_feeds(small, Binding((("N", MOST + 1),), (("x", (MOST + 1,)),)), 0)
    with pytest.raises(UsageError, match="seed: -1 is no whole number of 0 or more"):
        onnx_sched.optimize(model(), choose="always", seed=-1)


def test_an_interruption_says_what_is_written_already(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C after the model is written: its name, not `nothing`."""

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("onnx_sched.report.saving.save", interrupt)
    result = run("optimize", "lanes.onnx", "-o", "out.onnx", "--report", "r.md", *FAST)
    assert result.exit_code == 130
    assert result.stderr == "interrupted: out.onnx was written\n"


def test_the_help_lists_commands_in_whole_sentences(place: Path) -> None:
    """The most wanted command comes first, and no line of the list breaks off."""
    lines = run("--help").stdout.split("Commands:\n")[1].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines] == list(cli.commands)
    assert lines[0].split()[0] == "optimize"
    assert all(line.endswith(".") and not line.endswith("...") for line in lines)
