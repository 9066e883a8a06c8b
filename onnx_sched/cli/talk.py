"""What every command takes: how much it says, and whether in colour.

click strips colours where no terminal reads them, but knows nothing of NO_COLOR: that is done here.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TextIO

import click

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, RenderableType

    from onnx_sched.progress import Progress

When = Literal["auto", "always", "never"]

COMMAND, QUIET, VERBOSE, TOLD, WRITTEN = (
    f"onnx_sched.{key}" for key in ("command", "quiet", "verbose", "told", "written")
)
"""Keys under which the context keeps what was asked for, who is told of progress, and files written."""

WIDTH = 120
"""Columns of a table that no terminal reads."""


def talkative(command: click.Command) -> click.Command:
    """Give a command `-q`, `-v` and `--color`, as far as it has no such options itself."""
    own = {name for p in command.params for name in p.opts}
    for option in (
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=_quiet,
            help="Print nothing but errors.",
        ),
        click.Option(
            ["-v", "--verbose"],
            count=True,
            expose_value=False,
            callback=_verbose,
            help="Say on stderr how long it took, by phase; -vv names every step.",
        ),
        click.Option(
            ["--color"],
            type=click.Choice(["auto", "always", "never"]),
            default="auto",
            show_default=True,
            expose_value=False,
            callback=_color,
            help="Colours; auto asks the terminal, and obeys NO_COLOR and FORCE_COLOR.",
        ),
    ):
        if not own & {*option.opts}:
            command.params.append(option)
    return command


def _quiet(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[QUIET] = value
    if value:
        ctx.with_resource(contextlib.redirect_stdout(io.StringIO()))


def _verbose(ctx: click.Context, _: click.Parameter, value: int) -> None:
    ctx.meta[VERBOSE] = value
    if value:
        begin, name = time.perf_counter(), ctx.info_name

        def tell() -> None:
            click.echo(f"{name} took {time.perf_counter() - begin:.2f} s", err=True)

        ctx.call_on_close(tell)


def _color(ctx: click.Context, _: click.Parameter, value: When) -> None:
    ctx.color = ctx.find_root().color = wished(value, os.environ)


def wished(when: When, environment: Mapping[str, str]) -> bool | None:
    """Whether to use colours; None to ask whoever reads.

    A flag wins over NO_COLOR, which wins over FORCE_COLOR; set but empty counts as not set.

    >>> wished("auto", {"NO_COLOR": "1"}), wished("always", {"NO_COLOR": "1"}), wished("auto", {})
    (False, True, None)
    """
    if when != "auto":
        return when == "always"
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return False if environment.get("TERM") == "dumb" else None


def quiet() -> bool:
    """Whether the command was asked to print nothing."""
    ctx = click.get_current_context()
    return bool(ctx.meta.get(QUIET) or ctx.params.get("quiet"))


def verbose() -> int:
    """How often `-v` was given."""
    return int(click.get_current_context().meta.get(VERBOSE, 0))


def console(width: int | None = None) -> Console:
    """Where results go: stdout, in colours only if that is wished or a terminal shows them."""
    from rich.console import Console

    color = click.get_current_context().find_root().color
    shown = _is_terminal(sys.stdout) if color is None else color
    if width is None and not _is_terminal(sys.stdout):
        width = int(os.environ.get("COLUMNS") or WIDTH)
    system: Any = None
    if shown:
        system = "auto" if _is_terminal(sys.stdout) else "standard"
    return Console(
        color_system=system,
        force_terminal=True if shown else None,
        no_color=False,
        highlight=False,
        width=width,
    )


def show(result: RenderableType) -> None:
    """Print a result; where no terminal reads it, no line ends in blanks."""
    screen = console()
    if screen.is_terminal:
        screen.print(result)
        return
    with screen.capture() as captured:
        screen.print(result)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def command() -> str:
    """The command line, ready to be run again."""
    return str(click.get_current_context().meta.get(COMMAND, ""))


def wrote(path: Path) -> None:
    """Take note of a file that is written, for those who interrupt what follows."""
    click.get_current_context().meta.setdefault(WRITTEN, []).append(str(path))


def written() -> tuple[str, ...]:
    """The files that are written by now, in that order."""
    return tuple(click.get_current_context().meta.get(WRITTEN, ()))


def progress() -> Progress:
    """Who is told what a run is doing: a line on a terminal, or lines with `-v`, or nobody."""
    meta = click.get_current_context().meta
    if TOLD not in meta:
        meta[TOLD] = _teller()
    told: Progress = meta[TOLD]
    return told


def _teller() -> Progress:
    from onnx_sched.cli.ticker import Ticker
    from onnx_sched.progress import nobody

    live = _is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"
    if quiet() or not (live or verbose()):
        return nobody
    ticker = Ticker(sys.stderr, live=live, verbose=verbose())
    click.get_current_context().call_on_close(ticker.close)
    return ticker


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty()


def done() -> None:
    """Take the line of the progress away, before results are printed."""
    close = getattr(progress(), "close", None)
    if close is not None:
        close()
