"""The drawing of a circuit in letters, for a terminal or a text file."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from rich.cells import cell_len

from onnx_sched.report.drawing import Band, Box, Frame, Layout, Metrics, Picture, Placed
from onnx_sched.report.harmless import harmless, label
from onnx_sched.report.layout import MAX_LAYERS, MAX_WIRES, lay_out
from onnx_sched.report.signs import ASCII, UNICODE, Signs

LABEL = 24
"""Cells of a label; what is longer is cut."""


def to_text(
    picture: Picture,
    *,
    width: int = 100,
    ascii_only: bool = False,
    fold: bool = True,
    max_wires: int = MAX_WIRES,
    max_layers: int = MAX_LAYERS,
) -> str:
    """Draw a circuit in letters; every line ends in a line end, none in blanks.

    Args:
        picture: What to draw.
        width: Cells per line; what does not fit goes on in a band below.
        ascii_only: Whether to do without box-drawing signs.
        fold: Whether repeats are drawn once.
        max_wires: Wires beyond are left out, and a line says so.
        max_layers: Layers beyond, likewise.
    """
    signs = ASCII if ascii_only else UNICODE
    metrics = Metrics(lambda box: _measure(box, ascii_only), cell_len, gutter=1, frame=1, margin=2)
    names = [f"w{n}" for n in range(min(picture.wires, max_wires))]
    margin = max(map(len, names), default=0)
    room = max(1, width - margin)
    layout = lay_out(picture, metrics, room, fold=fold, max_wires=max_wires, max_layers=max_layers)
    lines = [harmless(picture.title, width, ascii_only), ""] if picture.title else []
    for n, band in enumerate(layout.bands):
        if len(layout.bands) > 1:
            lines += [""] * (n > 0) + [
                f"-- {band.label} --" if ascii_only else f"── {band.label} ──"
            ]
        lines += _Canvas(layout, band, signs, margin).lines()
    lines += _notes(picture, layout, signs, width)
    return "".join(line.rstrip() + "\n" for line in lines)


def caption(box: Box, ascii_only: bool) -> str:
    """What stands in a box: its label, cut to size, and how many nodes a batched one stands for."""
    text = label(box.label, LABEL, ascii_only)
    return f"{text} x{box.lanes}" if box.kind == "batched" else text


def _measure(box: Box, ascii_only: bool) -> int:
    return cell_len(caption(box, ascii_only)) + (2 if len(box.wires) == 1 else 4)


def _notes(picture: Picture, layout: Layout, signs: Signs, width: int) -> list[str]:
    """What the drawing leaves out, and what its signs mean where they are more than plain boxes."""
    kinds = {box.kind for box in picture.boxes}
    told = []
    if "batched" in kinds:
        left, right = signs.outlines["batched"].single
        told.append(f"{left}Op xN{right} N nodes run as one")
    if "join" in kinds:
        left, right = signs.outlines["join"].touch
        told.append(f"{left} Op {right} one node on several wires, which wait for each other")
    if "view" in kinds:
        told.append("(Op) no work: undone right away")
    notes = [f"... {note}" if signs.ascii_only else f"… {note}" for note in layout.left_out]
    together = "   ".join(told)
    legend = told if cell_len(together) > width else [together] if told else []
    lines = [line for text in notes + legend for line in wrap(text, width)]
    return ["", *lines] if lines else []


class _Canvas:
    """One band on a grid of cells; a wide character fills its cell and empties the next."""

    def __init__(self, layout: Layout, band: Band, signs: Signs, margin: int) -> None:
        self._layout = layout
        self._band = band
        self._signs = signs
        self._margin = margin
        self._above = 2 if band.frames else 1
        gaps = _gaps(band.boxes, len(layout.rows))
        self._ys: list[int] = []
        y = self._above
        for gap in gaps[:-1]:
            self._ys.append(y + gap)
            y += gap + 1
        self._below = y + gaps[-1]
        height = self._below + bool(band.frames)
        self._cells = [[" "] * (margin + band.width) for _ in range(height)]

    def lines(self) -> list[str]:
        """Draw everything."""
        for row, wire in enumerate(self._layout.rows):
            self._write(self._ys[row], -self._margin, f"w{wire}")
        self._headings()
        self._wires()
        for frame in self._band.frames:
            self._frame(frame)
        for placed in self._band.boxes:
            if placed.several:
                self._several(placed)
            else:
                self._single(placed)
        return ["".join(cells) for cells in self._cells]

    def _write(self, y: int, x: int, text: str) -> None:
        cells = self._cells[y]
        at = x + self._margin
        for char in text:
            width = cell_len(char)
            cells[at : at + width] = [char] + [""] * (width - 1)
            at += width

    def _read(self, y: int, x: int) -> str:
        return self._cells[y][x + self._margin]

    def _headings(self) -> None:
        left, edge, right = self._signs.span
        for heading in self._band.headings:
            text = harmless(heading.text, heading.width, self._signs.ascii_only)
            if heading.wide and heading.width >= cell_len(text) + 6:
                text = left + _centred(f" {text} ", heading.width - 2, edge) + right
            start = heading.x + (heading.width - cell_len(text)) // 2
            self._write(self._above - 1, start, text)

    def _wires(self) -> None:
        signs = self._signs
        for segment in self._band.segments:
            line = signs.wire * (segment.stop - segment.start)
            line = signs.beyond * segment.comes + line[segment.comes :]
            line = line[: len(line) - segment.goes] + signs.beyond * segment.goes
            self._write(self._ys[segment.row], segment.start, line)

    def _frame(self, frame: Frame) -> None:
        signs = self._signs
        inner = frame.width - frame.opens - frame.closes
        text = next((t for t in (frame.text, f"x{frame.times}") if cell_len(t) + 2 <= inner), "")
        bottom = len(self._cells) - 1
        for y, (left, edge, right), words in (
            (0, signs.top, f" {text} " if text else ""),
            (bottom, signs.bottom, ""),
        ):
            line = left * frame.opens + _centred(words, inner, edge) + right * frame.closes
            self._write(y, frame.x, line)
        for x in [frame.x] * frame.opens + [frame.x + frame.width - 1] * frame.closes:
            for y in range(1, bottom):
                crossed = self._read(y, x) == signs.wire and not signs.ascii_only
                self._write(y, x, signs.cross if crossed else signs.side)

    def _single(self, placed: Placed) -> None:
        left, right = self._signs.outlines[placed.box.kind].single
        text = caption(placed.box, self._signs.ascii_only)
        line = left + _centred(text, placed.width - 2, " ") + right
        self._write(self._ys[placed.top], placed.x, line)

    def _several(self, placed: Placed) -> None:
        signs, outline = self._signs, self._signs.outlines[placed.box.kind]
        inner = placed.width - 2
        own = set(placed.rows)
        rows = {self._ys[row]: row for row in range(placed.top, placed.bottom + 1)}
        for y in range(self._ys[placed.top], self._ys[placed.bottom] + 1):
            (left, right), middle = outline.side, " " * inner
            if rows.get(y) in own:
                left, right = outline.touch
            elif y in rows and self._read(y, placed.x) == signs.wire:
                left, middle, right = signs.cross, signs.wire * inner, signs.cross
            elif y in rows:
                left, right = outline.miss
            self._write(y, placed.x, left + middle + right)
        for y, (left, lid, right), cut in (
            (self._ys[placed.top] - 1, outline.top, False),
            (self._ys[placed.bottom] + 1, outline.bottom, placed.cut),
        ):
            self._write(y, placed.x, left + (signs.beyond if cut else lid) * inner + right)
        middle_row = (placed.top + placed.bottom) / 2
        row = min(placed.rows, key=lambda r: (abs(r - middle_row), r))
        text = caption(placed.box, signs.ascii_only)
        self._write(self._ys[row], placed.x + 1 + (inner - cell_len(text)) // 2, text)


def _gaps(boxes: Sequence[Placed], rows: int) -> list[int]:
    """Lines above each row, and below the last: lids of boxes; two where one box follows another."""
    tops: list[set[int]] = [set() for _ in range(rows + 1)]
    bottoms: list[set[int]] = [set() for _ in range(rows + 1)]
    for placed in boxes:
        if placed.several:
            tops[placed.top].add(placed.x)
            bottoms[placed.bottom + 1].add(placed.x)
    return [
        2 if top & bottom else int(bool(top or bottom))
        for top, bottom in zip(tops, bottoms, strict=True)
    ]


def _centred(text: str, width: int, filler: str) -> str:
    """A text in the middle of a line of `filler`."""
    left = (width - cell_len(text)) // 2
    return filler * left + text + filler * (width - cell_len(text) - left)
