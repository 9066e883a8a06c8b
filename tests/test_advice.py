"""Mistakes on the command line: one line of error, one line of advice, and what was probably meant."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from onnx_sched.cli import advice, cli

MODELS = Path(__file__).parent.parent / "models"
MODEL = str(MODELS / "mmoe.onnx")


def run(*words: str | Path) -> Any:
    return CliRunner().invoke(cli, [*map(str, words)], prog_name="onnx-sched")


def advised(*words: str | Path) -> tuple[str, str]:
    """What is said of a mistake: error and hint, and nothing else."""
    result = run(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    error, hint = result.stderr.rstrip("\n").split("\n")
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    return error, hint


@pytest.mark.parametrize("name", cli.commands)
def test_misspelt_commands(name: str) -> None:
    """A command with a letter too few is recognised."""
    for k in range(len(name)):
        given = name[:k] + name[k + 1 :]
        error, hint = advised(given)
        assert error == f"error: {given}: there is no such command"
        assert hint.startswith(f"hint: Did you mean {name}? ")


@pytest.mark.parametrize("name", cli.commands)
def test_misspelt_options(name: str) -> None:
    """An option with a letter doubled is recognised."""
    flags = {
        flag
        for param in cli.commands[name].params
        if isinstance(param, click.Option)
        for flag in param.opts
        if flag.startswith("--")
    }
    assert flags
    for flag in flags:
        error, hint = advised(name, f"{flag}{flag[-1]}")
        assert f"`onnx-sched {name}` has no such option" in error
        assert f"Did you mean {flag}? " in hint


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["--colour"], "--colour", "`onnx-sched --help` lists all"),
        (["zzz"], "zzz: there is no such command", "`onnx-sched --help` lists all"),
        (["plan"], "MODEL is missing", "Example: onnx-sched plan "),
        (["optimize", MODEL], "--output is missing", "Example: onnx-sched optimize "),
        (["plan", MODEL, "more"], "unexpected extra argument", "`onnx-sched plan --help`"),
        (["plan", MODEL, "--choose", "measurd"], "--choose: 'measurd'", "Did you mean measured?"),
        (["plan", MODEL, "--choose", "qqq"], "--choose: 'qqq'", "`onnx-sched plan --help`"),
        (["plan", MODEL, "--threads", "x"], "--threads: 'x' is not a whole number", "--help"),
        (["plan", MODEL, "--time-limit", "x"], "--time-limit: 'x' is not a number", "--help"),
        (["draw", MODEL, "--width", "9"], "--width: 9 is too little: at least 40", "--help"),
        (["compare", "a", "b", "--budget", "0"], "0.0 is too little: it must be more than 0", ""),
        (["plan", MODEL, "--seed"], "'--seed' requires an argument", "--help"),
    ],
)
def test_other_mistakes(words: list[str], error: str, hint: str) -> None:
    """What is missing, too much, too little or of another kind is named, with what to do."""
    said = advised(*words)
    assert error in said[0]
    assert hint in said[1]


def test_nothing_at_all() -> None:
    """Without a command the help is shown, on stderr, and nothing has succeeded."""
    result = run()
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == run("--help").stdout


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("mmo.onnx", "Did you mean {folder}/mmoe.onnx?"),
        ("zzzzzz.onnx", "Models there: mmoe.onnx, other.onnx."),
        ("empty/mmoe.onnx", "Check the path."),
        ("nowhere/mmoe.onnx", "There is no folder {folder}/nowhere."),
    ],
)
def test_missing_files(tmp_path: Path, given: str, hint: str) -> None:
    """Of a file that is not there it is said which may be meant, or what else is there."""
    (tmp_path / "empty").mkdir()
    for name in ("mmoe.onnx", "other.onnx", "notes.txt"):
        (tmp_path / name).touch()
    for command in (["plan"], ["draw"], ["explain", "--node", "x"]):
        result = run(*command, tmp_path / given)
        assert result.exit_code == 1
        assert f"hint: {hint.format(folder=tmp_path)}\n" in result.stderr


@pytest.mark.parametrize(("begun", "found"), [("s10", "S101"), ("S9", "S900")])
def test_completion_of_codes(begun: str, found: str) -> None:
    """The shell completes codes for `explain`, and files for whatever is none."""
    param = next(p for p in cli.commands["explain"].params if p.name == "target")
    context = click.Context(cli.commands["explain"])
    assert found in {item.value for item in param.shell_complete(context, begun)}
    for other in ("", "models/", "x"):
        assert {item.type for item in param.shell_complete(context, other)} == {"file"}


def test_completion_script() -> None:
    """What README puts into a shell works: it gives a script, and words for a beginning."""
    for shell in ("bash", "zsh", "fish"):
        script = CliRunner().invoke(
            cli, [], prog_name="onnx-sched", env={"_ONNX_SCHED_COMPLETE": f"{shell}_source"}
        )
        assert "_ONNX_SCHED_COMPLETE" in script.output
    asked = {
        "_ONNX_SCHED_COMPLETE": "bash_complete",
        "COMP_WORDS": "onnx-sched plan --cho",
        "COMP_CWORD": "2",
    }
    found = CliRunner().invoke(cli, [], prog_name="onnx-sched", env=asked)
    assert found.output == "plain,--choose\n"


README = (MODELS.parent / "README.md").read_text("utf-8")


@pytest.mark.parametrize("line", re.findall(r"^onnx-sched .*$", README, re.MULTILINE))
def test_readme(line: str) -> None:
    """The commands of README are there, with the flags that README gives them."""
    _, name, *words = shlex.split(line, comments=True)
    flags = {flag for param in cli.commands[name].params for flag in param.opts}
    assert {word for word in words if word.startswith("-")} <= flags


def test_doctests() -> None:
    """The examples in the documentation of functions hold."""
    result = doctest.testmod(advice)
    assert result.attempted
    assert not result.failed
