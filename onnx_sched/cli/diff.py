"""`diff`."""

from __future__ import annotations

from pathlib import Path

import click

from onnx_sched.cli import talk

EPILOG = """\b
Example: onnx-sched diff model.onnx out.onnx

\b
Exit codes: 0 the models are the same, 1 they differ, 2 one of them cannot be read.
"""


@click.command(epilog=EPILOG)
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every name.")
@click.pass_context
def diff(ctx: click.Context, before: Path, after: Path, as_json: bool) -> None:
    """Say what differs between two models: interface, nodes, initializers, metadata, by name.

    Weights are compared by their numbers; the order of nodes in the file is no difference. With -v
    every name is listed.
    """
    from onnx_sched import files
    from onnx_sched.diff import diff as compared
    from onnx_sched.errors import ModelError, UsageError
    from onnx_sched.progress import Step
    from onnx_sched.report.diff_text import render

    progress = talk.progress()
    progress(Step("read"))
    try:
        sources = files.read(before), files.read(after)
        progress(Step("check"))
        found = compared(*sources)
    except ModelError as error:
        # As in diff(1): trouble must not look like a difference.
        raise UsageError(str(error), error.hint) from error
    talk.done()
    if as_json:
        import json

        click.echo(json.dumps(found.to_dict(), indent=2))
    else:
        talk.show(render(found, str(before), str(after), talk.verbose() > 0))
    ctx.exit(0 if found.same else 1)
