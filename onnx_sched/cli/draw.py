"""`draw`."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command(epilog="Example: onnx-sched draw model.onnx -o circuit.svg")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="A .txt, .svg or .html file to write."
)
@click.option("--ascii", "ascii_only", is_flag=True, help="Plain characters only.")
@click.option(
    "--width", type=click.IntRange(40), help="Columns to wrap at; the terminal's if not given."
)
@click.option(
    "--after", is_flag=True, help="Draw what `optimize --choose always` would make of it."
)
def draw(
    model: Path, output: Path | None, ascii_only: bool, width: int | None, after: bool
) -> None:
    """Draw MODEL: wires as rows, parallel layers as columns, nodes as boxes."""
    from onnx_sched.cli.drawing import draw as drawn

    plain = ascii_only or not _draws_lines()
    text = drawn(model, output=output, ascii_only=plain, width=width, after=after)
    if output is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"wrote {output}")


def _draws_lines() -> bool:
    """Whether the terminal's encoding has the characters of which boxes are made."""
    try:
        "┌▐…".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
