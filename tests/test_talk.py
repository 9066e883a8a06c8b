"""How commands speak: help, colours, progress, advice."""

from __future__ import annotations

import doctest
import io
import re
import time
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import onnx_sched
from onnx_sched.cli import cli, talk, ticker
from onnx_sched.cli.ticker import Ticker, line
from onnx_sched.progress import Phase, Step

MODELS = Path(__file__).parent.parent / "models"
COMMANDS = sorted(cli.commands.items())
PHASES: tuple[Phase, ...] = ("read", "analyse", "plan", "measure", "check", "race", "write")


def run(*arguments: str | Path, **environment: str | None) -> Any:
    env: dict[str, str | None] = {"NO_COLOR": None, "FORCE_COLOR": None, "TERM": "xterm"}
    return CliRunner().invoke(cli, [*map(str, arguments)], env={**env, **environment}, color=True)


# -- help -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_help(name: str, command: click.Command) -> None:
    """Every command says what it does and gives an example; every flag says what it is for."""
    assert command.help
    shown = run(name, "--help").output
    assert re.search(rf"Examples?:\s+onnx-sched {name}", shown)
    for param in command.params:
        if isinstance(param, click.Option):
            text = param.help or ""
            assert len(text.split()) >= 3, param.name
            assert text.endswith((".", ")")), param.name


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_every_command_has_them(name: str, command: click.Command) -> None:
    """-q, -v and --color are there in every command, once."""
    flags = [flag for param in command.params for flag in param.opts]
    for flag in ("-q", "-v", "--color"):
        assert flags.count(flag) == 1
    assert len(flags) == len(set(flags))


def test_command_is_remembered() -> None:
    """A command line is kept as it can be typed again."""
    seen = []

    @click.command()
    @click.argument("word")
    def echo(word: str) -> None:
        seen.append(talk.command())

    group = type(cli)(commands={"echo": echo})
    CliRunner().invoke(group, ["echo", "a b;c"])
    assert seen == ["onnx-sched echo 'a b;c'"]


# -- colours --------------------------------------------------------------------------------------

ESCAPE = "\x1b["


@pytest.mark.parametrize(
    ("flags", "environment", "colored"),
    [
        ((), {}, False),  # nobody reads it on a terminal
        (("--color", "always"), {}, True),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
        (("--color", "never"), {"FORCE_COLOR": "1"}, False),
        ((), {"FORCE_COLOR": "1"}, True),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ((), {"FORCE_COLOR": "0"}, False),
    ],
)
def test_colours_of_results(
    flags: tuple[str, ...], environment: dict[str, str], colored: bool
) -> None:
    """A flag wins over NO_COLOR, NO_COLOR over FORCE_COLOR, and without either a terminal decides."""
    for command in (
        ("explain", "S103"),
        ("diff", MODELS / "mmoe.onnx", MODELS / "mmoe_norm.onnx"),
        ("plan", MODELS / "near_dynamic_dims.onnx", "--no-check"),
    ):
        result = run(*command, *flags, **environment)
        assert (ESCAPE in result.stdout) == colored


@pytest.mark.parametrize(
    ("environment", "colored"), [({"FORCE_COLOR": "1"}, True), ({"NO_COLOR": "1"}, False)]
)
def test_colours_of_errors(environment: dict[str, str], colored: bool) -> None:
    """Errors obey the same."""
    result = run("explain", "S999", **environment)
    assert (ESCAPE in result.stderr) == colored
    assert "error:" in result.stderr


def test_wished() -> None:
    """The rule itself, and what a dumb terminal wants."""
    assert talk.wished("auto", {"TERM": "dumb"}) is False
    assert talk.wished("auto", {"NO_COLOR": ""}) is None
    assert doctest.testmod(talk).failed == 0
    assert doctest.testmod(ticker).failed == 0


def test_no_line_ends_in_blanks() -> None:
    """What no terminal reads can be pasted: no line ends in blanks."""
    for command in (
        ("explain",),
        ("explain", "S101"),
        ("plan", MODELS / "mmoe.onnx", "--no-check"),
    ):
        lines = run(*command).stdout.split("\n")
        assert lines == [text.rstrip() for text in lines]


# -- how much is said -----------------------------------------------------------------------------


def test_quiet(tmp_path: Path) -> None:
    """-q: nothing but errors."""
    model = MODELS / "near_dynamic_dims.onnx"
    for command in (
        ("plan", model, "--no-check"),
        ("optimize", model, "--no-check", "-o", tmp_path / "o.onnx"),
        ("explain", model, "--node", "lanes.0.0/MatMul"),
        ("draw", model),
    ):
        assert run(*command, "-q").output == ""
    assert "error:" in run("explain", "S999", "-q").stderr


def test_verbose() -> None:
    """-v: on stderr the time of each phase, in order, and of all; -vv: steps, too."""
    result = run("plan", MODELS / "mmoe.onnx", "--provider", "cpu", "--choose", "always", "-v")
    said = [text.split(":")[0] for text in result.stderr.strip().split("\n")]
    assert said[:-1] == ["read", "analyse", "plan", "check"]
    assert re.fullmatch(r"plan took \d+\.\d\d s", said[-1])
    assert "took" not in result.stdout


def test_silent_where_nobody_looks() -> None:
    """Without a terminal, and without being asked, nothing is said about progress."""
    assert run("plan", MODELS / "mmoe.onnx", "--no-check").stderr == ""


# -- progress -------------------------------------------------------------------------------------


def test_steps_of_a_run() -> None:
    """A run tells its phases in order; within a phase, `done` rises to less than `total`."""
    steps: list[Step] = []
    onnx_sched.optimize(
        MODELS / "critic_ensemble.onnx",
        provider="cpu",
        dims={"batch": (1,)},
        threads=(1,),
        progress=steps.append,
    )
    order = [PHASES.index(step.phase) for step in steps]
    first = order.index(PHASES.index("check")) if PHASES.index("check") in order else len(order)
    assert order[:first] == sorted(order[:first])
    assert [PHASES[n] for n in dict.fromkeys(order)][:4] == ["read", "analyse", "plan", "measure"]
    measured = [(s.done, s.total) for s in steps if s.phase == "measure"]
    assert [done for done, _ in measured] == list(range(measured[0][1]))
    assert all(s.done < s.total for s in steps if s.total)
    assert all(s.what for s in steps if s.phase in ("measure", "race"))


def test_an_error_ends_the_run() -> None:
    """What a progress raises ends the run: that is how one stops it."""

    def stop(step: Step) -> None:
        if step.phase == "plan":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        onnx_sched.optimize(MODELS / "mmoe.onnx", check=False, progress=stop)


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_short_phases_are_not_shown() -> None:
    """A phase that is over within its patience leaves no trace on a terminal."""
    stream, clock = io.StringIO(), Clock()
    told = Ticker(stream, live=True, clock=clock)
    for phase in PHASES:
        told(Step(phase))
        clock.now += 0.25
    told.close()
    assert stream.getvalue() == ""


def test_long_phases_are_shown_and_taken_away() -> None:
    """A phase that takes longer is shown on one line, which is gone in the end."""
    stream, clock = io.StringIO(), Clock()
    told = Ticker(stream, live=True, clock=clock)
    for n in range(4):
        told(Step("measure", n, 4, "region of 4 x Conv"))
        clock.now += 2
    told.close()
    shown = stream.getvalue().split("\r\x1b[K")
    assert "\n" not in stream.getvalue()
    assert shown[1] == "measuring 2 of 4: region of 4 x Conv, about 6 s left"
    assert shown[-2] == "measuring 4 of 4: region of 4 x Conv, about 2 s left"
    assert shown[-1] == ""


def test_the_line_comes_by_itself() -> None:
    """A long phase without steps is shown, too."""
    stream = io.StringIO()
    told = Ticker(stream, live=True, patience=0.02)
    told(Step("analyse"))
    until = time.monotonic() + 5
    while not stream.getvalue() and time.monotonic() < until:
        time.sleep(0.005)
    told.close()
    assert stream.getvalue() == "\r\x1b[Kanalysing\r\x1b[K"


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.sampled_from(PHASES), st.integers(0, 5), st.integers(0, 5), st.text()),
        max_size=8,
    )
)
def test_any_steps(drawn: list[tuple[Phase, int, int, str]]) -> None:
    """Whatever comes, nothing but whole lines is left, and words of a model do no harm."""
    stream, clock = io.StringIO(), Clock()
    told = Ticker(stream, live=True, verbose=2, clock=clock)
    for step in drawn:
        told(Step(*step))
        clock.now += 1
    told.close()
    left = [text.split("\r\x1b[K")[-1] for text in stream.getvalue().split("\n")]
    assert left[-1] == ""
    assert all(c.isprintable() for text in left for c in text)


def test_words_of_steps() -> None:
    """Every phase has words; a step is counted from 1."""
    for phase in PHASES:
        assert line(Step(phase), 0.0)
    assert line(Step("race", 0, 4, "batch=1"), 9.0) == "racing the whole model 1 of 4: batch=1"


# -- advice ---------------------------------------------------------------------------------------

MMOE = str(MODELS / "mmoe.onnx")


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "no.onnx"),
        ("plan", str(MODELS)),
        ("plan", "empty.onnx"),
        ("plan", "text.onnx"),
        ("optimize", MMOE, "-o", MMOE),
        ("optimize", MMOE, "-o", "no/such/out.onnx"),
        ("plan", MMOE, "--dim", "batch"),
        ("plan", MMOE, "--dim", "bacth=1"),
        ("plan", MMOE, "--shape", "x"),
        ("plan", MMOE, "--shape", "y:1,16"),
        ("plan", MMOE, "--skip-op", "Gem"),
        ("plan", MMOE, "--skip-node", "nothing*"),
        ("plan", MMOE, "--provider", "gpu"),
        ("plan", MMOE, "--inputs", "no.npz"),
        ("plan", MMOE, "--rtol", "much"),
        ("plan", MMOE, "--plan", "no.json"),
        ("plan", MMOE, "--plan", "text.onnx"),
        ("plan", MMOE, "--report", "r.pdf"),
        ("optimize", MMOE, "-o", "o.onnx", "--trace", "t.html"),
        ("explain", "S999"),
        ("explain", MMOE),
        ("explain", MMOE, "--node", "nobody"),
        ("diff", MMOE, "no.onnx"),
        ("draw", MMOE, "-o", "x.pdf"),
    ],
    ids=lambda arguments: " ".join(Path(a).name for a in arguments),
)
def test_errors_read_like_advice(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes wrong is one line that names what is at fault, and one that says what to do."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "text.onnx").write_text("no model", "utf-8")
    result = run(*arguments, NO_COLOR="1")
    assert result.exit_code in (1, 2, 5)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    lines = result.stderr.strip().split("\n")
    assert [text.split(":")[0] for text in lines] == ["error", "hint"]
    assert result.stdout == ""
    words = [w for a in arguments[1:] for w in re.findall(r"[\w.*-]{2,}", Path(a).name)]
    assert any(word in lines[0] for word in words)
    assert len(lines[1]) > len("hint: ") + 8


def test_no_such_command() -> None:
    """A misspelt command or flag names the one that was meant."""
    assert "optimize" in run("optimise").stderr
    assert "--json" in run("plan", MMOE, "--jsno").stderr
