"""`merge`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnx_sched.cli.choices import choices
from onnx_sched.cli.optimize import check_files, finish, options, run, save

if TYPE_CHECKING:
    from onnx_sched.merge import Merged


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

    Weights that are equal are stored once, and what is computed twice is computed once. The outputs are
    compared with those of each model run by itself, and its speed with theirs, one after another.
    """
    from onnx_sched import merging
    from onnx_sched.errors import MismatchError, UsageError
    from onnx_sched.files import UNNAMED
    from onnx_sched.report.merge_words import names
    from onnx_sched.targets import check_target

    if len(models) < 2:
        raise UsageError("merging takes at least two models", "Name two or more .onnx files.")
    for model in models:
        check_target(output, model)
    check_files(given)
    merged = _merged(models, join, separate_inputs)
    try:
        batched = run(merged.model, given)
    except MismatchError as error:
        told = names([str(model) for model in models])
        what = str(error).removeprefix(f"{UNNAMED}: ")
        raise MismatchError(f"{told}, merged: {what}", error.hint) from error
    asked = merging.Asked(models, join, separate_inputs, output)
    result = merging.judged(merged, batched, asked, options(given))
    save(result, output)
    finish(result, output, as_json, quiet)


def _merged(models: tuple[Path, ...], join: Any, separate_inputs: bool) -> Merged:
    """One model of all; to ask for one of models that do not fit together is a matter of usage."""
    from onnx_sched import files
    from onnx_sched.errors import ModelError, UsageError
    from onnx_sched.merge import put_together

    try:
        return put_together(models, join, separate_inputs=separate_inputs)
    except ModelError as error:
        for model in models:
            files.read(model)  # one that cannot be read says so again: that is a failure
        raise UsageError(str(error), error.hint) from error
