"""Where everything in a drawing goes; it knows nothing of models and nothing of ink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from onnx_sched.report.drawing import (
    Band,
    Box,
    Frame,
    Heading,
    Layout,
    Metrics,
    Picture,
    Placed,
    Segment,
)
from onnx_sched.report.folding import Fold, folds, row_order, slots

MAX_WIRES = 64
"""Wires that one drawing shows."""

MAX_LAYERS = 200
"""Layers that one drawing shows, after folding."""


@dataclass(frozen=True, slots=True)
class _Column:
    """One or several of them make up a layer: boxes in the way of each other stand side by side."""

    layer: int
    boxes: tuple[tuple[Box, tuple[int, ...]], ...]  # each with the rows that it touches
    width: int


@dataclass(frozen=True, slots=True)
class _Framed:
    """A fold in terms of columns."""

    fold: Fold
    start: int
    stop: int
    text: str


@dataclass(frozen=True, slots=True)
class _Grid:
    """All columns in one long row, before they are cut into bands."""

    picture: Picture
    columns: tuple[_Column, ...]
    frames: tuple[_Framed, ...]
    metrics: Metrics

    def xs(self, start: int, stop: int) -> tuple[dict[int, int], int]:
        """Where the columns of a band stand, and its width."""
        opening, closing = {f.start for f in self.frames}, {f.stop for f in self.frames}
        edge = self.metrics.frame + self.metrics.gutter
        xs: dict[int, int] = {}
        x = self.metrics.margin
        for n in range(start, stop):
            x += edge if n in opening else 0
            xs[n] = x
            x += self.columns[n].width + self.metrics.gutter
            x += edge if n + 1 in closing else 0
        return xs, max(0, x - self.metrics.gutter) + self.metrics.margin

    def width(self, start: int, stop: int) -> int:
        """Width of a band."""
        return self.xs(start, stop)[1]

    def layer_end(self, at: int) -> int:
        """The column after the last one of a column's layer."""
        stop = at + 1
        while stop < len(self.columns) and self.columns[stop].layer == self.columns[at].layer:
            stop += 1
        return stop


def lay_out(
    picture: Picture,
    metrics: Metrics,
    width: int,
    *,
    fold: bool = True,
    max_wires: int = MAX_WIRES,
    max_layers: int = MAX_LAYERS,
) -> Layout:
    """Give everything its place.

    Args:
        picture: What to draw.
        metrics: Sizes.
        width: What a band may take; a single column that is wider stands alone.
        fold: Whether equal blocks of layers that follow each other are drawn once.
        max_wires: Wires beyond are left out.
        max_layers: Layers beyond are left out, counted after folding; a block stays whole.
    """
    layers: list[list[Box]] = [[] for _ in range(picture.layers)]
    for box in sorted(picture.boxes, key=lambda b: b.wires):
        layers[box.layer].append(box)
    found = folds(_looks(picture, layers)) if fold else ()
    kept, folded, end = _kept(layers, found, max_layers)

    shown = range(min(picture.wires, max_wires))
    visible = [tuple(w for w in box.wires if w in shown) for row in kept.values() for box in row]
    rows = row_order(shown, [s for s in visible if s])
    columns = _columns(picture, kept, rows, metrics)
    columns, frames = _framed(picture, folded, columns, metrics)
    grid = _Grid(picture, tuple(columns), tuple(frames), metrics)

    later = {w for row in layers[end:] for box in row for w in box.wires}
    extents = _extents(grid, rows, later)
    bands = tuple(_place(grid, extents, *ends) for ends in _bands(grid, width))
    return Layout(rows, bands, _left_out(picture, len(shown), end))


def _looks(picture: Picture, layers: Sequence[Sequence[Box]]) -> list[int]:
    """A number for what each layer looks like; names do not show."""
    numbers: dict[object, int] = {}
    looks = []
    for layer, row in enumerate(layers):
        look = tuple((b.wires, b.label, b.kind, b.lanes) for b in row)
        key = (bool(picture.heading(layer)), look)
        looks.append(numbers.setdefault(key, len(numbers)))
    return looks


def _kept(
    layers: Sequence[Sequence[Box]], found: Sequence[Fold], limit: int
) -> tuple[dict[int, list[Box]], list[Fold], int]:
    """The layers that are drawn, with all names of what they stand for, and where the rest begins."""
    starts = {f.start: f for f in found}
    kept: dict[int, list[Box]] = {}
    folded: list[Fold] = []
    at = 0
    while at < len(layers):
        fold = starts.get(at, Fold(at, 1, 1))
        if kept and len(kept) + fold.period > limit:
            break
        for layer in range(fold.start, fold.start + fold.period):
            copies = [layers[layer + n * fold.period] for n in range(fold.times)]
            kept[layer] = [
                replace(box, names=tuple(chain.from_iterable(row[k].names for row in copies)))
                for k, box in enumerate(layers[layer])
            ]
        if fold.times > 1:
            folded.append(fold)
        at = fold.stop
    return kept, folded, at


def _columns(
    picture: Picture, kept: Mapping[int, Sequence[Box]], rows: Sequence[int], metrics: Metrics
) -> list[_Column]:
    """The columns of each layer, wide enough for their boxes and heading."""
    place = {wire: row for row, wire in enumerate(rows)}
    columns: list[_Column] = []
    for layer, boxes in kept.items():
        touched = [(b, tuple(sorted(place[w] for w in b.wires if w in place))) for b in boxes]
        touched = [(b, own) for b, own in touched if own]
        slot = slots([(own[0], own[-1]) for _, own in touched])
        count = max(slot, default=0) + 1
        heading = metrics.text(picture.heading(layer)) if count == 1 else 0
        for n in range(count):
            mine = tuple(item for item, s in zip(touched, slot, strict=True) if s == n)
            width = max([heading, *(metrics.box(b) for b, _ in mine)])
            columns.append(_Column(layer, mine, width))
    return columns


def _framed(
    picture: Picture, folded: Sequence[Fold], columns: Sequence[_Column], metrics: Metrics
) -> tuple[list[_Column], list[_Framed]]:
    """Frames around repeats, and the columns, wider where "x12" would have no room above them."""
    wider = list(columns)
    frames = []
    for fold in folded:
        inside = range(fold.start, fold.start + fold.period)
        own = [n for n, c in enumerate(columns) if c.layer in inside]
        names = [h for n in range(fold.start, fold.stop) if (h := picture.heading(n))]
        text = f"x{fold.times}" + (f": {names[0]} to {names[-1]}" if len(names) > 1 else "")
        taken = sum(columns[n].width for n in own) + metrics.gutter * (len(own) - 1)
        missing = max(0, metrics.text(f"x{fold.times}") - taken)
        for k, n in enumerate(own):
            share = missing * (k + 1) // len(own) - missing * k // len(own)
            wider[n] = replace(columns[n], width=columns[n].width + share)
        frames.append(_Framed(fold, own[0], own[-1] + 1, text))
    return wider, frames


def _extents(grid: _Grid, rows: Sequence[int], later: set[int]) -> dict[int, tuple[int, int]]:
    """For each row in use its first and last column; beyond the end if it is in use later."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for n, column in enumerate(grid.columns):
        for row in chain.from_iterable(own for _, own in column.boxes):
            first.setdefault(row, n)
            last[row] = n
    for row, wire in enumerate(rows):
        if wire in later and row in first:
            last[row] = len(grid.columns)
    return {row: (first[row], last[row]) for row in sorted(first)}


def _bands(grid: _Grid, width: int) -> list[tuple[int, int]]:
    """Cut the columns into bands: neither a frame nor a layer is cut if it fits into one."""
    framed = {f.start: f for f in grid.frames}
    bands: list[tuple[int, int]] = []
    start = at = 0
    while at < len(grid.columns):
        ends = (framed[at].stop if at in framed else at + 1, grid.layer_end(at))
        whole = [end for end in ends if end > at + 1 and grid.width(at, end) <= width]
        stop = max([at + 1, *whole])
        if start < at and grid.width(start, stop) > width:
            bands.append((start, at))
            start = at
        at = stop
    return [*bands, (start, at)]


def _place(grid: _Grid, extents: Mapping[int, tuple[int, int]], start: int, stop: int) -> Band:
    """One band: columns `start` to `stop - 1`."""
    xs, width = grid.xs(start, stop)
    gutter = grid.metrics.gutter
    boxes = []
    edges: dict[tuple[int, int], tuple[int, int]] = {}
    for n, column in enumerate(grid.columns[start:stop], start):
        for box, rows in column.boxes:
            wide = column.width if len(box.wires) > 1 else grid.metrics.box(box)
            x = xs[n] + (column.width - wide) // 2
            boxes.append(Placed(box, rows, x, wide, len(rows) < len(box.wires)))
            edges.update(dict.fromkeys([(n, row) for row in rows], (x, x + wide)))
    segments = []
    for row, (first, last) in extents.items():
        if first < stop and last >= start:
            comes, goes = first < start, last >= stop
            begin = 0 if comes else edges[first, row][0] - gutter
            end = width if goes else edges[last, row][1] + gutter
            segments.append(Segment(row, begin, end, comes, goes))
    frames = [_frame(grid, f, xs, width) for f in grid.frames if f.start < stop and start < f.stop]
    label = _label(grid, start, stop)
    return Band(label, width, tuple(boxes), tuple(segments), _headings(grid, xs), tuple(frames))


def _headings(grid: _Grid, xs: Mapping[int, int]) -> tuple[Heading, ...]:
    own: dict[int, list[int]] = {}
    for n in xs:
        own.setdefault(grid.columns[n].layer, []).append(n)
    return tuple(
        Heading(text, xs[ns[0]], xs[ns[-1]] + grid.columns[ns[-1]].width - xs[ns[0]], len(ns) > 1)
        for layer, ns in own.items()
        if (text := grid.picture.heading(layer))
    )


def _frame(grid: _Grid, framed: _Framed, xs: Mapping[int, int], width: int) -> Frame:
    edge = grid.metrics.frame + grid.metrics.gutter
    opens, closes = framed.start in xs, framed.stop - 1 in xs
    x = xs[framed.start] - edge if opens else 0
    last = framed.stop - 1
    end = xs[last] + grid.columns[last].width + edge if closes else width
    return Frame(framed.text, framed.fold.times, x, end - x, opens, closes)


def _label(grid: _Grid, start: int, stop: int) -> str:
    """The first and the last heading of a band; a frame that ends in it counts with all repeats."""
    layers = [c.layer for c in grid.columns[start:stop]]
    layers += [f.fold.stop - 1 for f in grid.frames if f.stop == stop]
    names = [name for layer in layers if (name := grid.picture.heading(layer))]
    return " to ".join(dict.fromkeys([names[0], names[-1]])) if names else ""


def _left_out(picture: Picture, wires: int, end: int) -> tuple[str, ...]:
    notes = []
    if wires < picture.wires:
        count, hidden = picture.wires - wires, sum(b.wires[0] >= wires for b in picture.boxes)
        which = f"w{wires} to w{picture.wires - 1}" if count > 1 else f"w{wires}"
        alone = f", and {hidden} box{'es' * (hidden > 1)} on them alone" if hidden else ""
        notes.append(f"not drawn: {count} more wires ({which}){alone}")
    if end < picture.layers:
        names = [h for n in range(end, picture.layers) if (h := picture.heading(n))]
        which = f" ({names[0]} to {names[-1]})" if len(names) > 1 else ""
        notes.append(f"not drawn: {picture.layers - end} more layers{which}")
    return tuple(notes)
