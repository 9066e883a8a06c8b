"""The command group: turns errors into one clear line and an exit code."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Any

import click

from onnx_sched import __version__
from onnx_sched.cli.calibrate import calibrate
from onnx_sched.cli.compare import compare
from onnx_sched.cli.diff import diff
from onnx_sched.cli.doctor import doctor
from onnx_sched.cli.draw import draw
from onnx_sched.cli.explain import explain
from onnx_sched.cli.merge import merge
from onnx_sched.cli.optimize import optimize, plan
from onnx_sched.cli.talk import COMMAND, talkative, wished
from onnx_sched.errors import SchedError

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
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted: nothing was written", err=True)
            ctx.exit(130)
        except SchedError as error:
            click.echo(f"{click.style('error:', fg='red', bold=True)} {error}", err=True)
            if error.hint:
                click.echo(f"{click.style('hint:', fg='cyan')} {error.hint}", err=True)
            ctx.exit(error.exit_code)


@click.group(cls=Sched, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="onnx-sched")
def cli() -> None:
    """Make exported ONNX models run faster by running independent, alike nodes as one."""
    # Off before onnxruntime is imported: a tool that measures must not start a thread of its own.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


for command in (optimize, plan, merge, compare, draw, calibrate, doctor, explain, diff):
    cli.add_command(talkative(command))


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `onnx-sched`."""
    cli.main(args=list(arguments) if arguments is not None else None, prog_name="onnx-sched")
