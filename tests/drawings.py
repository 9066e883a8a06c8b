"""Random pictures, and a reader that knows drawings only from looking at them.

The reader goes by cells: outlines, wire labels and headings.  It shares no code with what draws.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import strategies as st

from onnx_sched.report.drawing import Box, Kind, Picture

Seen = tuple[str, tuple[int, ...], int, str, int]
"""Label, wires, layer, how it looks ("single", "several", "batched", "view"), lanes."""


def seen(box: Box) -> Seen:
    """What a reader of the drawing must find of a box."""
    looks = box.kind if box.kind in ("batched", "view") else "plain"
    return box.label, box.wires, box.layer, looks, box.lanes


@st.composite
def pictures(draw: st.DrawFn, letters: str = "ABCxyz_0日本é") -> Picture:
    """Any picture: empty layers, idle wires, boxes over any sets of wires, all kinds."""
    wires = draw(st.integers(1, 9))
    layers = draw(st.integers(1, 6))
    boxes = []
    for layer in range(layers):
        order = draw(st.permutations(range(wires)))
        cuts = sorted(draw(st.sets(st.integers(0, wires), max_size=5)))
        for start, stop in pairwise(cuts):
            own = tuple(sorted(order[start:stop]))
            kind: Kind = draw(st.sampled_from(["op", "batched", "view"]))
            if kind == "op" and len(own) > 1:
                kind = "join"
            label = draw(st.text(letters, min_size=1, max_size=9))
            lanes = draw(st.integers(1, 120)) if kind == "batched" else 1
            boxes.append(Box(label, own, layer, kind, lanes))
    return Picture(wires, layers, tuple(boxes))


@dataclass
class _Open:
    """A box over several wires that the reader is inside of."""

    looks: str
    x0: int
    x1: int
    wires: list[int]
    texts: list[str]


_LIDS = re.compile(r"(?P<plain>┌─+┐|\+-+\+)|(?P<batched>▗▄+▖|##+)|(?P<view>┌┄+┐|\. +\.)")
_FLOORS = re.compile(r"└─+┘|\+-+\+|▝▀+▘|##+|└┄+┘|' +'")
_SINGLE = re.compile(r"\[(?P<plain>[^]]*)]|▐(?P<batched>[^▌]*)▌|\((?P<view>[^)]*)\)")
_ROW = re.compile(r"w(\d+)")
_HEADING = re.compile(r"[├<][─-]* L(\d+) [─-]*[┤>]|L(\d+)")
_TOUCH = frozenset("┤▐|#(")


def read(drawing: str) -> list[Seen]:
    """All boxes of a drawing without title and folds, band by band, as they look."""
    found: list[Seen] = []
    headings: list[tuple[int, int, int]] = []
    inside: list[_Open] = []
    for line in map(_cells, drawing.split("\n")):
        if not line.strip("\0 ") or line.startswith(("──", "--")):
            assert not inside, f"a box is left open at the end of a band: {inside}"
            headings = []
        elif line.startswith(" ") and not headings and _HEADING.search(line):
            headings = [(int(m[1] or m[2]), *m.span()) for m in _HEADING.finditer(line)]
        elif row := _ROW.match(line):
            found += _read_row(line, int(row[1]), inside, headings)
        elif headings:
            found += _read_between(line, inside, headings)
    return found


def _cells(line: str) -> str:
    """One character per cell: a wide one takes two."""
    return "".join(c + "\0" * (unicodedata.east_asian_width(c) in "WF") for c in line)


def _read_row(
    line: str, wire: int, inside: list[_Open], headings: list[tuple[int, int, int]]
) -> list[Seen]:
    rest = line
    for box in inside:
        part = line[box.x0 : box.x1]
        if part[0] in _TOUCH:
            box.wires.append(wire)
            box.texts.append(part[1:-1].strip())
        else:
            assert part[0] in "│┆▕:┼+", f"the side of a box is broken: {part!r}"
            assert set(part[1:-1]) <= set("─- "), f"a wire passes over words: {part!r}"
        rest = rest[: box.x0] + " " * (box.x1 - box.x0) + rest[box.x1 :]
    found = []
    for match in _SINGLE.finditer(rest):
        looks = match.lastgroup or ""
        found.append(_seen(match[looks], [wire], match.span(), looks, headings))
    return found


def _read_between(
    line: str, inside: list[_Open], headings: list[tuple[int, int, int]]
) -> list[Seen]:
    found = []
    for box in list(inside):
        if _FLOORS.fullmatch(line[box.x0 : box.x1]):
            inside.remove(box)
            texts = [t for t in box.texts if t]
            assert len(texts) == 1, f"a box has one label: {box.texts}"
            found.append(_seen(texts[0], box.wires, (box.x0, box.x1), box.looks, headings))
        line = line[: box.x0] + " " * (box.x1 - box.x0) + line[box.x1 :]
    for match in _LIDS.finditer(line):
        inside.append(_Open(match.lastgroup or "", *match.span(), [], []))
    return found


def _seen(
    text: str,
    wires: list[int],
    span: tuple[int, int],
    looks: str,
    headings: list[tuple[int, int, int]],
) -> Seen:
    """The layer is the one whose heading is nearest to the middle of the box."""
    middle = sum(span) / 2
    layer = min(
        headings,
        key=lambda h: max(h[1] - middle, middle - h[2], 0) * 1000 + abs((h[1] + h[2]) / 2 - middle),
    )[0]
    label = text.replace("\0", "").strip()
    lanes = re.fullmatch(r"(.*) x(\d+)", label)
    if lanes:
        return lanes[1], tuple(sorted(wires)), layer, "batched", int(lanes[2])
    return label, tuple(sorted(wires)), layer, looks, 1
