"""The command group: turns errors into one clear line and an exit code."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Any

import click

from onnx_sched import __version__
from onnx_sched.cli.advice import advice, unknown
from onnx_sched.cli.calibrate import calibrate
from onnx_sched.cli.compare import compare
from onnx_sched.cli.diff import diff
from onnx_sched.cli.doctor import doctor
from onnx_sched.cli.draw import draw
from onnx_sched.cli.explain import explain
from onnx_sched.cli.merge import merge
from onnx_sched.cli.optimize import optimize, plan
from onnx_sched.cli.talk import COMMAND, WRITTEN, talkative, wished
from onnx_sched.errors import SchedError, UsageError

EPILOG = (
    "Example: onnx-sched optimize model.onnx -o out.onnx\n\n"
    "Exit codes: 0 done or nothing to do, 1 failure, 2 usage, 3 outputs disagree, "
    "4 a gate failed, 5 provider not usable."
)


class Sched(click.Group):
    """Runs commands; errors raised on purpose become a line, a hint and an exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remember the command as it was given: reports tell how they were made."""
        ctx.meta[COMMAND] = shlex.join(["onnx-sched", *args])
        ctx.color = wished("auto", os.environ)
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            complain(*advice(error))
            ctx.exit(error.exit_code)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; a name that is none gets the advice of all other errors."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            raise UsageError(*unknown(args[0], self.commands))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            done = ", ".join(ctx.meta.get(WRITTEN, ())) or "nothing"
            click.echo(f"interrupted: {inert(done)} was written", err=True)
            ctx.exit(130)
        except click.UsageError as error:
            complain(*advice(error))
            ctx.exit(error.exit_code)
        except SchedError as error:
            complain(str(error), error.hint)
            ctx.exit(error.exit_code)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, the one that most people want first."""
        return list(self.commands)


def complain(message: str, hint: str) -> None:
    """Say what went wrong, and what to do."""
    click.echo(f"{click.style('error:', fg='red', bold=True)} {inert(message)}", err=True)
    if hint:
        click.echo(f"{click.style('hint:', fg='cyan')} {inert(hint)}", err=True)


def inert(words: object) -> str:
    r"""One line in which nothing moves the cursor, whatever names out of a model or a file stand in it.

    Letters of every script stay as they are: it may be the name of a file that somebody must find.

    >>> inert("a\x1b[31m\nb"), inert("\u202e.onnx"), inert("модель.onnx")
    ('a?[31m b', '?.onnx', 'модель.onnx')
    """
    return "".join(c if c.isprintable() else "?" for c in " ".join(str(words).split()))


@click.group(cls=Sched, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="onnx-sched")
def cli() -> None:
    """Make exported ONNX models run faster by running independent, alike nodes as one."""
    # Off before onnxruntime is imported: a tool that measures must not start a thread of its own.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


COMMANDS = (
    (optimize, "Rewrite a model, check it, race it, and write it."),
    (plan, "Say what optimize would do, and why not more."),
    (explain, "Say what a code means, or why a node stays alone."),
    (draw, "Draw a model: wires as rows, layers as columns."),
    (compare, "Compare any two models: outputs, speed, memory."),
    (diff, "Say what differs between two models, by name."),
    (merge, "Put models of one architecture into one."),
    (calibrate, "Measure this machine, for --target elsewhere."),
    (doctor, "Say what is installed, and what really runs."),
)
"""The commands in the order of the help, each in a few words."""

for command, words in COMMANDS:
    command.short_help = words
    cli.add_command(talkative(command))


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `onnx-sched`."""
    cli.main(args=list(arguments) if arguments is not None else None, prog_name="onnx-sched")
