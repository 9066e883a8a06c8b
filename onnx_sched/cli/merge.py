"""`merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from onnx_sched.cli.optimize import choices, finish, run, save


@click.command(
    epilog="Example: onnx-sched merge fold0.onnx fold1.onnx fold2.onnx -o ensemble.onnx --mean"
)
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="Where to write it."
)
@click.option("--mean", "join", flag_value="mean", help="Give the mean of each output.")
@click.option(
    "--stack", "join", flag_value="stack", help="Give each output stacked along a new first axis."
)
@click.option(
    "--outputs",
    "join",
    flag_value="outputs",
    default="outputs",
    help="Give all outputs (the default).",
)
@click.option("--separate-inputs", is_flag=True, help="Give every model inputs of its own.")
@choices
def merge(
    models: tuple[Path, ...],
    output: Path,
    join: Any,
    separate_inputs: bool,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Merge MODELS of one architecture into one, batch it, check it and write it to OUTPUT.

    Weights that are equal are stored once, and what is computed twice is computed once.
    """
    from onnx_sched.merge import merge as merged
    from onnx_sched.targets import check_target

    for model in models:
        check_target(output, model)
    result = run(merged(models, join, separate_inputs=separate_inputs), given)
    save(result, output)
    finish(result, output, as_json, quiet)
