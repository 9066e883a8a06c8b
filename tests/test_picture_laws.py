"""The law of drawings: what is drawn is what is there, in letters and as SVG, whatever the names."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from onnx_sched.errors import SchedError
from onnx_sched.report import harmless
from onnx_sched.report.draw_svg import page, to_svg
from onnx_sched.report.draw_text import to_text
from onnx_sched.report.drawing import Box, Metrics, Picture
from onnx_sched.report.folding import folds, row_order, slots
from onnx_sched.report.layout import lay_out
from tests.drawings import pictures, read, seen

SVG = "{http://www.w3.org/2000/svg}"


# -- the law of drawings ---------------------------------------------------------------------------


@given(pictures(), st.integers(1, 120))
def test_reading_a_drawing_back(picture: Picture, width: int) -> None:
    """Every box stands there exactly once, with its label, on its wires, in its layer."""
    drawing = to_text(picture, width=width, fold=False)
    assert sorted(read(drawing)) == sorted(map(seen, picture.boxes))


@given(pictures("ABCxyz_0"), st.integers(1, 120))
def test_reading_an_ascii_drawing_back(picture: Picture, width: int) -> None:
    """The same in ASCII, and nothing else is used."""
    drawing = to_text(picture, width=width, fold=False, ascii_only=True)
    assert drawing.isascii()
    assert sorted(read(drawing)) == sorted(map(seen, picture.boxes))


@given(pictures(), st.integers(40, 120), st.booleans())
def test_lines(picture: Picture, width: int, fold: bool) -> None:
    """No line is wider than it may be or ends in a blank, and every wire has its row in every band."""
    lines = to_text(picture, width=width, fold=fold).split("\n")
    assert all(line == line.rstrip() for line in lines)
    assert max(map(cell_len, lines)) <= width
    rows = [line[:2] for line in lines if re.match(r"w\d", line)]
    assert len(rows) % picture.wires == 0
    for start in range(0, len(rows), picture.wires):
        assert sorted(rows[start : start + picture.wires]) == [
            f"w{n}" for n in range(picture.wires)
        ]


def repeat(picture: Picture, times: int) -> Picture:
    """The picture several times in a row; names tell the boxes apart."""
    copies = [
        replace(box, layer=box.layer + n * picture.layers, names=(f"{k}@{n}",))
        for n in range(times)
        for k, box in enumerate(picture.boxes)
    ]
    return Picture(picture.wires, picture.layers * times, tuple(copies))


@given(pictures(), st.integers(1, 3), st.randoms(use_true_random=False))
def test_the_order_of_boxes_does_not_matter(
    picture: Picture, times: int, rng: random.Random
) -> None:
    """A picture is a set of boxes."""
    repeated = repeat(picture, times)
    boxes = list(repeated.boxes)
    rng.shuffle(boxes)
    assert to_text(replace(repeated, boxes=tuple(boxes))) == to_text(repeated)


@given(pictures(), st.integers(2, 4), st.integers(20, 150))
def test_folded_repeats(picture: Picture, times: int, width: int) -> None:
    """A block that stands there k times takes at most one column more than once; no name is lost."""
    repeated = repeat(picture, times)
    metrics = Metrics(lambda box: 5, len, gutter=1, frame=1, margin=2)
    layout = lay_out(repeated, metrics, width)
    headings = [heading for band in layout.bands for heading in band.headings if heading]
    assert len({heading.text for heading in headings}) <= picture.layers + 1
    shown = [name for band in layout.bands for placed in band.boxes for name in placed.box.names]
    assert sorted(shown) == sorted(name for box in repeated.boxes for name in box.names)


def test_a_fold_is_framed() -> None:
    """Repeats stand in a frame that says how many there are and which."""
    boxes = [Box(label, (0,), 2 * n + k) for n in range(12) for k, label in enumerate(("A", "B"))]
    picture = Picture(1, 25, (*boxes, Box("Out", (0,), 24)))
    assert to_text(picture) == (
        "    ┌╌╌ x12 ╌╌┐\n    ╎ L0  L1  ╎  L24\nw0  ╎─[A]─[B]─┼─[Out]─\n    └╌╌╌╌╌╌╌╌╌┘\n"
    )


# -- the pieces of a layout ------------------------------------------------------------------------


@given(st.lists(st.integers(0, 3), max_size=40))
def test_folds(looks: list[int]) -> None:
    """Folds stand apart, each is a block that truly repeats, and each saves more than its frame."""
    found = folds(looks)
    assert all(a.stop <= b.start for a, b in pairwise(found))
    for fold in found:
        block = looks[fold.start : fold.start + fold.period]
        assert looks[fold.start : fold.stop] == block * fold.times
        assert len(block) * (fold.times - 1) > 1


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5, unique=True), st.integers(3, 30))
def test_folds_find_a_plain_repeat(block: list[int], times: int) -> None:
    """A block between others is found whole."""
    assert [(f.start, f.period, f.times) for f in folds([7, *block * times, 8])] == [
        (1, len(block), times)
    ]


@given(st.lists(st.sets(st.integers(0, 7), min_size=1).map(lambda s: tuple(sorted(s)))))
def test_row_order(supports: list[tuple[int, ...]]) -> None:
    """The rows are the wires, and never more wires are passed over than in the order of numbers."""

    def passed(order: tuple[int, ...]) -> int:
        spans = [[order.index(w) for w in s] for s in supports]
        return sum(max(rows) - min(rows) + 1 - len(rows) for rows in spans)

    found = row_order(range(8), supports)
    assert sorted(found) == list(range(8))
    assert passed(found) <= passed(tuple(range(8)))


def test_row_order_brings_nested_supports_together() -> None:
    """Where supports are nested or disjoint, no wire is passed over."""
    assert row_order(range(6), [(0, 5), (1, 3), (0, 2, 5)]) == (0, 5, 2, 1, 3, 4)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)).map(lambda t: (t[0], sum(t)))))
def test_slots(spans: list[tuple[int, int]]) -> None:
    """Boxes in one column do not overlap, and there are only as many columns as overlaps demand."""
    found = slots(spans)
    for k, (top, bottom) in enumerate(spans):
        for other in range(k):
            if found[other] == found[k]:
                assert spans[other][1] < top or bottom < spans[other][0]
    depth = max((sum(t <= row <= b for t, b in spans) for row in range(14)), default=0)
    assert len(set(found)) == depth


def test_pictures_refuse_nonsense() -> None:
    """Boxes of one layer never share a wire, and lie inside the picture."""
    with pytest.raises(SchedError, match="'B' of layer 0 share wire 1"):
        Picture(3, 1, (Box("A", (0, 1), 0), Box("B", (1, 2), 0)))
    with pytest.raises(SchedError, match="outside"):
        Picture(1, 1, (Box("A", (0,), 1),))
    with pytest.raises(SchedError, match="ascending"):
        Box("A", (1, 0), 0)
    with pytest.raises(SchedError, match="ascending"):
        Box("A", (), 0)
    with pytest.raises(SchedError, match="1 headings for 2 layers"):
        Picture(1, 2, (), headings=("L0",))


# -- what does not fit -----------------------------------------------------------------------------


def test_wires_beyond_the_cap() -> None:
    """Wires beyond 64 are left out, a line says how many, and a box over them stays open below."""
    boxes = (Box("Split", tuple(range(70)), 0, "join"), Box("Neg", (68,), 1), Box("Abs", (0,), 1))
    drawing = to_text(Picture(70, 2, boxes))
    assert sum(line.startswith("w") for line in drawing.split("\n")) == 64
    assert "… not drawn: 6 more wires (w64 to w69), and 1 box on them alone\n" in drawing
    assert "└┄┄┄┄┄┄┄┘" in drawing
    assert "Neg" not in drawing
    assert to_text(Picture(70, 2, boxes), ascii_only=True).isascii()
    assert "Neg" in to_text(Picture(70, 2, boxes), max_wires=70)


def test_layers_beyond_the_cap() -> None:
    """Layers beyond the cap are left out and named, and wires that go on say so."""
    boxes = tuple(Box(f"N{n}", (0,), n) for n in range(9))
    drawing = to_text(Picture(1, 9, boxes), max_layers=3)
    assert drawing == (
        "     L0   L1   L2\nw0 ─[N0]─[N1]─[N2]─┄\n\n… not drawn: 6 more layers (L3 to L8)\n"
    )


def test_bands_are_labelled() -> None:
    """What does not fit goes on below, and each part says which layers it shows."""
    boxes = tuple(Box(f"Op{n}", (n % 2,), n) for n in range(8))
    drawing = to_text(Picture(2, 8, boxes), width=40)
    assert re.findall(r"── (.*) ──", drawing) == ["L0 to L4", "L5 to L7"]
    first, second = drawing.split("\n\n")
    assert first.endswith("┄")
    assert all(line[2] == "┄" for line in second.split("\n") if line.startswith("w"))


# -- names are hostile -----------------------------------------------------------------------------

HOSTILE = st.text(max_size=60) | st.sampled_from(
    [
        "\x1b[2J\x1b]0;owned\x07",
        "a\r\nb\u2028c",
        "\u202eevil",
        "A" * 10_000,
        "",
        "\ud800",
        "\x00\x7f\x9b",
        "日本語" * 9,
        "─┤x├─[y]▐",
        "q\u0301\u0301\ufe0f",
        "\U0001f1e9\U0001f1ea\U0001f44b\U0001f3fd\u1160",
    ]
)


@given(HOSTILE, st.integers(3, 30), st.booleans())
def test_harmless(text: str, limit: int, ascii_only: bool) -> None:
    """What is left of any text is one printable line of at most that width, and stays as it is."""
    safe = harmless.harmless(text, limit, ascii_only)
    assert safe.isprintable()
    assert cell_len(safe) <= limit
    assert all(cell_len(char) > 0 for char in safe)
    assert cell_len(safe) == sum(map(cell_len, safe))
    assert not ascii_only or safe.isascii()
    assert harmless.harmless(safe, limit, ascii_only) == safe


@given(st.lists(HOSTILE, min_size=3, max_size=3), HOSTILE, st.booleans())
def test_hostile_names_in_text(labels: list[str], title: str, ascii_only: bool) -> None:
    """Whatever the names, a drawing has as many boxes and lines as with tame ones."""
    tame = Picture(2, 2, (Box("A", (0,), 0), Box("B", (1,), 0), Box("C", (0, 1), 1, "join")), "t")
    boxes = tuple(replace(b, label=text) for b, text in zip(tame.boxes, labels, strict=True))
    drawing = to_text(replace(tame, boxes=boxes, title=title or "t"), ascii_only=ascii_only)
    plain = to_text(tame, ascii_only=ascii_only)
    assert all(line.isprintable() for line in drawing.split("\n"))
    assert drawing.count("\n") == plain.count("\n")
    for sign in "[]|" if ascii_only else "[]┌┐└┘┤├":
        assert drawing.split("\n", 1)[1].count(sign) == plain.count(sign)


@given(HOSTILE, HOSTILE, HOSTILE)
def test_hostile_names_in_svg(label: str, name: str, title: str) -> None:
    """Whatever the names, a picture is well-formed XML without foreign elements, and stays small."""
    spoiled = "</title><script>alert(1)</script>" + name
    box = Box(label + "<b>&", (0,), 0, names=(name, spoiled) * 9)
    svg = to_svg(Picture(1, 1, (box,), title))
    tags = {element.tag for element in ElementTree.fromstring(svg).iter()}
    assert tags <= {SVG + t for t in ("svg", "title", "style", "rect", "g", "text", "line")}
    assert len(svg) < 6000
    assert "<script" not in page(svg, spoiled)


# -- SVG -------------------------------------------------------------------------------------------


@given(pictures(), st.integers(1, 1500))
def test_svg_boxes(picture: Picture, width: int) -> None:
    """Each box stands there once, over the rows of its wires and no others on its edges, apart from all."""
    root = ElementTree.fromstring(to_svg(picture, width=width, fold=False))
    boxes = root.findall(f"{SVG}g[@data-layer]")
    found = [(int(g.attrib["data-layer"]), g.attrib["data-wires"]) for g in boxes]
    assert sorted(found) == sorted((b.layer, " ".join(map(str, b.wires))) for b in picture.boxes)

    rows: dict[str, list[float]] = {}
    for text in root.findall(f"{SVG}text"):
        if re.fullmatch(r"w\d+", text.text or ""):
            rows.setdefault((text.text or "")[1:], []).append(float(text.attrib["y"]) - 4)
    areas = []
    for group in boxes:
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        x, y, w, h = (float(rect.attrib[k]) for k in ("x", "y", "width", "height"))
        areas.append((x, y, x + w, y + h))
        mine = [
            [r for r in rows[wire] if y < r < y + h] for wire in group.attrib["data-wires"].split()
        ]
        assert all(len(hits) == 1 for hits in mine)
        assert min(r for (r,) in mine) - y == y + h - max(r for (r,) in mine)
    for k, a in enumerate(areas):
        assert not any(
            a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for b in areas[:k]
        )


def test_svg_needs_no_style_sheet() -> None:
    """Colours and anchors are attributes; kinds differ in more than colour; hovers list the nodes."""
    boxes = (
        Box("MatMul", (0,), 0, "batched", 4, ("m", *(f"heads.{n}/MatMul" for n in range(20)))),
        Box("Split", (0, 1), 1, "join"),
        Box("Concat", (0, 1), 2, "view"),
    )
    root = ElementTree.fromstring(to_svg(Picture(2, 3, boxes)))
    for tag in ("rect", "text"):
        assert all("fill" in e.attrib for e in root.iter(SVG + tag))
    assert all("stroke" in e.attrib for e in root.iter(SVG + "line"))
    batched, join, view = root.findall(f"{SVG}g[@data-layer]")
    hover = (batched.findtext(f"{SVG}title") or "").split("\n")
    assert hover[:3] == ["MatMul x4", "m", "heads.0/MatMul"]
    assert hover[8:] == ["heads.6/MatMul", "and 13 more"]
    looks = []
    for group in (batched, join, view):
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        looks.append(
            (rect.attrib["stroke-width"], rect.get("stroke-dasharray"), rect.attrib["fill"])
        )
    assert len(set(looks)) == 3


def test_a_page_stands_alone() -> None:
    """A page has the picture, a dark mode, and fetches and runs nothing."""
    text = page(to_svg(Picture(1, 1, (Box("A", (0,), 0),), "t")), "t")
    assert len(re.findall(r"prefers-color-scheme: dark\) { (body|\.os-paper) {", text)) == 2
    assert "<svg" in text
    assert set(re.findall(r"https?://[^\"]*", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<script|<link|@import|url\(|src=|href=", text)
