"""The drawing of a circuit as SVG, and as a small page around it.

Colours, widths and anchors are attributes, so that viewers without style sheets show the same picture;
the one style sheet only turns it dark where the reader asks for that.  Colours are Okabe and Ito's, and
never the only sign: kinds differ in outline and words, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rich.cells import cell_len

from onnx_sched.report.draw_text import caption
from onnx_sched.report.drawing import Band, Box, Frame, Kind, Layout, Metrics, Picture, Placed
from onnx_sched.report.harmless import harmless
from onnx_sched.report.layout import MAX_LAYERS, MAX_WIRES, lay_out

ROW = 28
"""Pixels from one wire to the next."""

HALF = 11
"""Pixels from a wire to the edge of its box."""

CELL = 7.3
"""Pixels of a letter at the font's size, rounded up: fonts differ a little."""

NAMES = 8
"""Node names that a box shows when pointed at, before it says how many more there are."""

NAME = 120
"""Cells of such a name."""

TITLE = 160
"""Cells of the title."""

_GREY, _INK, _BLUE, _ORANGE, _PURPLE = "#767676", "#1a1a1a", "#0072B2", "#E69F00", "#CC79A7"
_PAPER = "#ffffff"


@dataclass(frozen=True, slots=True)
class _Look:
    """How one kind of box is drawn."""

    fill: str
    stroke: str
    extra: str
    ink: str
    legend: str


_LOOKS: dict[Kind, _Look] = {
    "op": _Look(_PAPER, _BLUE, 'stroke-width="1.2"', _INK, ""),
    "join": _Look(
        "#fff3d6",
        _ORANGE,
        'stroke-width="2"',
        _INK,
        "one node on several wires, which wait for each other",
    ),
    "batched": _Look(_BLUE, _BLUE, 'stroke-width="1.2"', "#ffffff", "N nodes run as one"),
    "view": _Look(
        _PAPER,
        _GREY,
        'stroke-width="1" stroke-dasharray="3 2"',
        "#595959",
        "no work: undone right away",
    ),
}

_DARK = (
    "@media (prefers-color-scheme: dark) {"
    " .os-paper { fill: #16181c } .os-ink { fill: #e8e8e8 } .os-wire { stroke: #9a9a9a }"
    " .os-op rect { fill: #16181c; stroke: #56B4E9 } .os-op text { fill: #e8e8e8 }"
    " .os-join rect { fill: #33290f; stroke: #E69F00 } .os-join text { fill: #f3e3bd }"
    " .os-batched rect { fill: #56B4E9; stroke: #56B4E9 } .os-batched text { fill: #10131a }"
    " .os-view rect { fill: #16181c; stroke: #9a9a9a } .os-view text { fill: #b5b5b5 }"
    " }"
)


def to_svg(
    picture: Picture,
    *,
    width: int = 1200,
    fold: bool = True,
    max_wires: int = MAX_WIRES,
    max_layers: int = MAX_LAYERS,
) -> str:
    """Draw a circuit as one SVG element.

    Args:
        picture: What to draw.
        width: Pixels; what does not fit goes on in a band below.
        fold: Whether repeats are drawn once.
        max_wires: Wires beyond are left out, and a line says so.
        max_layers: Layers beyond, likewise.
    """
    metrics = Metrics(_measure, lambda text: _pixels(text) + 4, gutter=14, frame=8, margin=16)
    names = [f"w{n}" for n in range(min(picture.wires, max_wires))]
    left = max(map(_pixels, names), default=0) + 16
    layout = lay_out(
        picture, metrics, width - left, fold=fold, max_wires=max_wires, max_layers=max_layers
    )
    title = harmless(picture.title, TITLE)
    body: list[str] = []
    y = 12
    if title:
        y += 14
        body.append(_text(12, y, title, 'class="os-ink" font-weight="bold" font-size="13"', _INK))
        y += 14
    for n, band in enumerate(layout.bands):
        drawn, y = _band(layout, band, left, y + 14 * (n > 0), many=len(layout.bands) > 1)
        body += drawn
    drawn, y, wide = _legend(picture, layout, y)
    body += drawn
    across = max([left + b.width for b in layout.bands] + [_pixels(title) + 40, wide]) + 4
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{across}" height="{y}" '
            f'viewBox="0 0 {across} {y}" role="img" font-size="12" '
            'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace">',
            f"<title>{escape(title or 'circuit')}</title>",
            f"<style>{_DARK}</style>",
            f'<rect class="os-paper" width="{across}" height="{y}" fill="{_PAPER}"/>',
            *body,
            "</svg>\n",
        ]
    )


def page(svg: str, title: str) -> str:
    """A page around a drawing: one file without scripts, dark where the reader asks for it."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(harmless(title, TITLE) or 'circuit')}</title>\n"
        "<style>\n:root { color-scheme: light dark }\n"
        "body { margin: 1rem; background: #ffffff; overflow-x: auto }\n"
        "@media (prefers-color-scheme: dark) { body { background: #16181c } }\n"
        f"</style>\n</head>\n<body>\n{svg}</body>\n</html>\n"
    )


def _pixels(text: str) -> int:
    return round(cell_len(text) * CELL)


def _measure(box: Box) -> int:
    return _pixels(caption(box, False)) + (14 if len(box.wires) == 1 else 20)


def _band(layout: Layout, band: Band, left: int, y: int, *, many: bool) -> tuple[list[str], int]:
    """One band from `y` down, and where it ends."""
    parts: list[str] = []
    if many:
        y += 16
        parts.append(_text(12, y, band.label, 'class="os-ink" font-style="italic"', _INK))
        y += 4
    top = y + 6
    heads = top + (28 if band.frames else 12)
    rows = heads + 26
    ys = [rows + n * ROW for n in range(len(layout.rows))]
    bottom = rows + (len(layout.rows) - 1) * ROW + HALF + 4
    for row, wire in enumerate(layout.rows):
        parts.append(_text(12, ys[row] + 4, f"w{wire}", 'class="os-ink"', _INK))
    for heading in band.headings:
        x, middle = left + heading.x, left + heading.x + heading.width / 2
        words = harmless(heading.text, 40)
        parts.append(
            _text(middle, heads, words, 'class="os-ink" text-anchor="middle" font-size="11"', _GREY)
        )
        if heading.wide:
            parts.append(_line(x, heads + 5, x + heading.width, heads + 5))
    for seg in band.segments:
        begin, end = seg.start + 16 * seg.comes, seg.stop - 16 * seg.goes
        parts.append(_line(left + begin, ys[seg.row], left + end, ys[seg.row]))
        for x in [seg.start] * seg.comes + [end] * seg.goes:
            parts.append(_line(left + x, ys[seg.row], left + x + 16, ys[seg.row], "3 3"))
    parts += [_frame(frame, left, top, bottom + 5) for frame in band.frames]
    parts += [_box(placed, left, ys) for placed in band.boxes]
    for placed in band.boxes:
        parts += _passing(placed, band, left, ys)
    return parts, bottom + (12 if band.frames else 6)


def _passing(placed: Placed, band: Band, left: int, ys: Sequence[int]) -> list[str]:
    """The wires that run on over a box that is not theirs."""
    x, own = placed.x, set(placed.rows)
    return [
        _line(left + x, ys[seg.row], left + x + placed.width, ys[seg.row])
        for seg in band.segments
        if placed.top < seg.row < placed.bottom and seg.row not in own and seg.start <= x < seg.stop
    ]


def _box(placed: Placed, left: int, ys: Sequence[int]) -> str:
    box, look = placed.box, _LOOKS[placed.box.kind]
    x, y = left + placed.x, ys[placed.top] - HALF
    height = ys[placed.bottom] - ys[placed.top] + 2 * HALF
    names = [harmless(name, NAME) for name in box.names[:NAMES] if name]
    more = [f"and {len(box.names) - NAMES} more"] if len(box.names) > NAMES else []
    words = caption(box, False)
    hover = "\n".join([words, *names, *more])
    wires = " ".join(map(str, box.wires))
    bold = ' font-weight="bold"' if box.kind == "batched" else ""
    tail = _tail(x, y + height, placed.width, look) if placed.cut else ""
    middle = (placed.top + placed.bottom) / 2
    row = min(placed.rows, key=lambda r: (abs(r - middle), r))
    crossed = len(placed.rows) < placed.bottom - placed.top + 1
    at = ys[row] if crossed else (ys[placed.top] + ys[placed.bottom]) / 2
    return (
        f'<g class="os-{box.kind}" data-layer="{box.layer}" data-wires="{wires}">'
        f"<title>{escape(hover)}</title>"
        f'<rect x="{x}" y="{y}" width="{placed.width}" height="{height}" rx="3" '
        f'fill="{look.fill}" stroke="{look.stroke}" {look.extra}/>'
        + _text(x + placed.width / 2, at + 4, words, f'text-anchor="middle"{bold}', look.ink)
        + f"{tail}</g>"
    )


def _tail(x: int, y: int, width: int, look: _Look) -> str:
    """The sign that a box goes on below, on wires that are not drawn."""
    return (
        f'<path d="M{x} {y}v7M{x + width} {y}v7" stroke="{look.stroke}" '
        'stroke-width="1.5" stroke-dasharray="2 2"/>'
    )


def _frame(frame: Frame, left: int, top: int, bottom: int) -> str:
    """A dashed frame, open where a band ends inside it."""
    x0, x1 = left + frame.x + 4, left + frame.x + frame.width - 4
    path = f"M{x0} {bottom}V{top}H{x1}V{bottom}" if frame.closes else f"M{x0} {bottom}V{top}H{x1}"
    if not frame.opens:
        path = f"M{x0} {top}H{x1}" + (f"V{bottom}" if frame.closes else f"M{x1} {bottom}")
    path += f"H{x0}" if frame.closes else f"M{x0} {bottom}H{x1}"
    text = next((t for t in (frame.text, f"x{frame.times}") if _pixels(t) + 8 <= frame.width), "")
    return (
        f'<path class="os-frame" d="{path}" fill="none" stroke="{_PURPLE}" stroke-width="1.5" '
        'stroke-dasharray="6 3"/>'
        + _text(
            (x0 + x1) / 2,
            top + 13,
            text,
            'class="os-ink" text-anchor="middle" font-weight="bold"',
            _INK,
        )
    )


def _legend(picture: Picture, layout: Layout, y: int) -> tuple[list[str], int, int]:
    """What is left out, and what the kinds of boxes mean; where that ends, below and on the right."""
    parts: list[str] = []
    wide = 0
    for note in layout.left_out:
        y += 18
        parts.append(_text(12, y, note, 'class="os-ink"', _INK))
        wide = max(wide, 24 + _pixels(note))
    kinds = {box.kind for box in picture.boxes}
    x = 12
    y += 14
    for kind in (k for k in _LOOKS if k in kinds and _LOOKS[k].legend):
        look = _LOOKS[kind]
        sample = "Op xN" if kind == "batched" else "Op"
        width = _pixels(sample) + 12
        parts.append(
            f'<g class="os-{kind}"><rect x="{x}" y="{y}" width="{width}" height="18" rx="3" '
            f'fill="{look.fill}" stroke="{look.stroke}" {look.extra}/>'
            + _text(x + width / 2, y + 13, sample, 'text-anchor="middle" font-size="11"', look.ink)
            + "</g>"
        )
        x += width + 8
        parts.append(_text(x, y + 13, look.legend, 'class="os-ink" font-size="11"', _INK))
        x += _pixels(look.legend) + 20
    return parts, y + (30 if x > 12 else 0), max(wide, x)


def _text(x: float, y: float, text: str, attributes: str, fill: str) -> str:
    return f'<text x="{round(x)}" y="{round(y)}" {attributes} fill="{fill}">{escape(text)}</text>'


def _line(x0: int, y0: int, x1: int, y1: int, dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line class="os-wire" x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" '
        f'stroke="{_GREY}" stroke-width="1.5"{dashed}/>'
    )
