"""`onnx-sched draw`: the circuit of a model, on the terminal or in a file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from onnx_sched import files, pipeline
from onnx_sched.analysis import analyse
from onnx_sched.errors import UsageError
from onnx_sched.options import Choose, Options
from onnx_sched.report.circuit_view import after as after_view
from onnx_sched.report.circuit_view import before
from onnx_sched.report.draw_svg import page, to_svg
from onnx_sched.report.draw_text import to_text
from onnx_sched.report.drawing import Picture
from onnx_sched.targets import check_target, replacing

TEXT_WIDTH = 120
"""Cells of a line in a text file."""

SVG_WIDTH = 1200
"""Pixels of a picture."""

NARROWEST = 40
"""A line has room for a label of full length and its outline."""


def draw(
    model: Path,
    *,
    output: Path | None,
    ascii_only: bool,
    width: int | None,
    after: bool,
    choose: Choose = "always",
) -> str:
    """Draw a model's circuit: wires as rows, parallel layers as columns, ops as boxes.

    Args:
        model: The file.
        output: Where to write the drawing, too; its suffix (.txt, .svg, .html) says in which form.
        ascii_only: Whether text does without box-drawing signs.
        width: Cells of a line of text, or pixels of a picture; by default the terminal's, or 120 cells
            in a file, or 1200 pixels.
        after: Whether to draw what `optimize` would make of the model instead.
        choose: How that chooses: "always" is whatever is legal, and the others are as in `optimize`.

    Returns:
        The drawing, as text where there is no output to say otherwise.

    Raises:
        ModelError: If the model cannot be read, or the output not be written.
        UsageError: If the width is below 40, the suffix unknown, or the output is the input.
    """
    if width is not None and width < NARROWEST:
        raise UsageError(
            f"--width {width}: a drawing needs at least {NARROWEST}", f"Give --width {NARROWEST}."
        )
    render = _renderer(output, ascii_only, width)
    if output is not None:
        check_target(output, model)
    drawing = render(_view(model, choose if after else None))
    if output is not None:
        with replacing(output) as temporary:
            temporary.write_text(drawing, encoding="utf-8", newline="\n")
    return drawing


def _renderer(output: Path | None, ascii_only: bool, width: int | None) -> Callable[[Picture], str]:
    if output is None:
        cells = width or max(NARROWEST, shutil.get_terminal_size((100, 24)).columns)
        return lambda picture: to_text(picture, width=cells, ascii_only=ascii_only)
    match output.suffix.lower():
        case ".txt":
            return lambda picture: to_text(
                picture, width=width or TEXT_WIDTH, ascii_only=ascii_only
            )
        case ".svg":
            return lambda picture: to_svg(picture, width=width or SVG_WIDTH)
        case ".html" | ".htm":
            return lambda picture: page(to_svg(picture, width=width or SVG_WIDTH), picture.title)
        case suffix:
            raise UsageError(
                f"-o {output}: a drawing has no form {suffix or 'without a suffix'}",
                "Name a .txt, .svg or .html file.",
            )


def _view(model: Path, choose: Choose | None) -> Picture:
    """The picture of a model, or of what the options make of it."""
    original = analyse(files.read(model))
    if choose is None:
        return before(original)
    scene = pipeline.optimize(model, Options(choose=choose, check=False)).scene()
    if scene.after is not None:
        return after_view(scene.after, original)
    picture = before(original)
    return replace(picture, title=f"{picture.title} (left as it is)")
