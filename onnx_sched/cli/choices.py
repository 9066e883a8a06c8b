"""The options that `optimize`, `plan` and `merge` share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from onnx_sched.cli.numbers import SEED, THREADS, Amount

F = TypeVar("F", bound=Callable[..., Any])


def choices(command: F) -> F:
    """Give a command the options."""
    options = (
        click.option(
            "--choose",
            type=click.Choice(["measured", "model", "always"]),
            default="measured",
            show_default=True,
            help="Keep what a race here says is faster, what the cost model says pays, or all.",
        ),
        click.option(
            "--provider",
            default="auto",
            show_default=True,
            metavar="NAME",
            help="auto, cpu, cuda, or an execution provider's name; a named one never falls back.",
        ),
        click.option(
            "--dim",
            "dims",
            multiple=True,
            metavar="NAME=N[,N]",
            help="Sizes to check, e.g. batch=1,32; the model stays dynamic.",
        ),
        click.option(
            "--shape",
            "shapes",
            multiple=True,
            metavar="INPUT:D,D,...",
            help="A whole input shape to check, e.g. x:1,3,224,224.",
        ),
        click.option(
            "--inputs",
            type=click.Path(path_type=Path),
            help="Inputs to check with: a .npz file, or a folder with test_data_set_* in it.",
        ),
        click.option(
            "--seed", type=SEED, default=0, show_default=True, help="Seed of the random inputs."
        ),
        click.option(
            "--atol",
            multiple=True,
            metavar="[OUT:]V",
            help="Absolute tolerance, of all or of one output.",
        ),
        click.option(
            "--rtol",
            multiple=True,
            metavar="[OUT:]V",
            help="Relative tolerance, of all or of one output.",
        ),
        click.option("--no-check", is_flag=True, help="Do not run the models and compare."),
        click.option("--nonempty", is_flag=True, help="Promise that no batch is empty."),
        click.option(
            "--assume-finite",
            is_flag=True,
            help="Promise that no value is NaN or infinite: block-diagonal weights are then cut.",
        ),
        click.option(
            "--skip-op",
            "skip_ops",
            multiple=True,
            metavar="TYPE",
            help="Leave an op type alone, e.g. Softmax. Repeatable.",
        ),
        click.option(
            "--skip-node",
            "skip_nodes",
            multiple=True,
            metavar="GLOB",
            help="Leave nodes alone, by name, e.g. 'decoder/*'. Repeatable.",
        ),
        click.option(
            "--skip-pass",
            "skip_passes",
            multiple=True,
            metavar="NAME",
            help="Leave a part of the work out: sums (they add in another order), bodies (of If, Loop, "
            "Scan), functions (calls stay), or the rules of a module in passes/. Repeatable.",
        ),
        click.option(
            "--threads",
            multiple=True,
            type=THREADS,
            default=(1, 0),
            show_default=True,
            help="Threads at which it must not be slower; 0: the runtime's choice. Repeatable.",
        ),
        click.option(
            "--time-limit",
            type=Amount(0),
            default=60.0,
            show_default=True,
            metavar="SECONDS",
            help="Measure no longer than this.",
        ),
        click.option(
            "--target",
            metavar="PROFILE",
            help="Decide by a device profile (cuda-a100, ..., or a .toml of `calibrate`); no race.",
        ),
        click.option(
            "--max-activation",
            type=Amount(1),
            default=1.25,
            show_default=True,
            metavar="FACTOR",
            help="Largest growth of the activations' peak (16 MiB are always allowed).",
        ),
        click.option(
            "--exact",
            is_flag=True,
            help="Also search for the levels with the fewest launches, for half of --time-limit; "
            "needs OR-tools (pip install 'onnx-sched[exact]').",
        ),
        click.option(
            "--plan",
            type=click.Path(path_type=Path),
            help="Carry out a saved plan; nothing is measured.",
        ),
        click.option(
            "--save-plan",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Write the plan to a .json file.",
        ),
        click.option(
            "--report",
            "reports",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Write the report, too: .html, .md, .json or .txt, by suffix. Repeatable.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print the report as JSON."),
        click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors."),
    )
    for option in reversed(options):
        command = option(command)
    return command
