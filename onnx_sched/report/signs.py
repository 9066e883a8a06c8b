"""The signs that a drawing in letters is made of, in Unicode and in ASCII."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx_sched.report.drawing import Kind


@dataclass(frozen=True, slots=True)
class Outline:
    """The signs of one kind of box: `single` on one wire; the rest on several.

    Attributes:
        single: Left and right of the label.
        touch: The sides in the row of a wire of the box, left and right.
        miss: The sides in the row of another wire that is not in use there.
        side: The sides between rows.
        top: Left corner, lid, right corner.
        bottom: Likewise.
    """

    single: tuple[str, str]
    touch: tuple[str, str]
    miss: tuple[str, str]
    side: tuple[str, str]
    top: tuple[str, str, str]
    bottom: tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Signs:
    """The signs of a whole drawing.

    Attributes:
        wire: A wire.
        beyond: A wire, or a lid, of which more follows elsewhere.
        cross: Where a wire passes a side that is not its own.
        top, side, bottom: Of the frame around repeats: corner, edge, corner; side; likewise.
        span: Left, edge and right of a heading over several columns.
        outlines: By kind of box.
    """

    ascii_only: bool
    wire: str
    beyond: str
    cross: str
    top: tuple[str, str, str]
    side: str
    bottom: tuple[str, str, str]
    span: tuple[str, str, str]
    outlines: Mapping[Kind, Outline]


_BRACKETS = ("[", "]")
_TEES, _BARS, _DOTS, _HALVES = ("┤", "├"), ("│", "│"), ("┆", "┆"), ("▐", "▌")
_JOIN = Outline(_BRACKETS, _TEES, _BARS, _BARS, ("┌", "─", "┐"), ("└", "─", "┘"))
UNICODE = Signs(
    ascii_only=False,
    wire="─",
    beyond="┄",
    cross="┼",
    top=("┌", "╌", "┐"),
    side="╎",
    bottom=("└", "╌", "┘"),
    span=("├", "─", "┤"),
    outlines={
        "op": _JOIN,
        "join": _JOIN,
        "batched": Outline(_HALVES, _HALVES, ("▕", "▏"), _HALVES, ("▗", "▄", "▖"), ("▝", "▀", "▘")),
        "view": Outline(("(", ")"), _TEES, _DOTS, _DOTS, ("┌", "┄", "┐"), ("└", "┄", "┘")),
    },
)
"""Box-drawing signs."""

_BAR, _HASH, _ROUND, _COLON = ("|", "|"), ("#", "#"), ("(", ")"), (":", ":")
_CORNERS, _HASHES = ("+", "-", "+"), ("#", "#", "#")
_PLAIN_JOIN = Outline(_BRACKETS, _BAR, _COLON, _BAR, _CORNERS, _CORNERS)
ASCII = Signs(
    ascii_only=True,
    wire="-",
    beyond="~",
    cross="+",
    top=(".", ".", "."),
    side=":",
    bottom=(":", ".", ":"),
    span=("<", "-", ">"),
    outlines={
        "op": _PLAIN_JOIN,
        "join": _PLAIN_JOIN,
        "batched": Outline(_BRACKETS, _HASH, _COLON, _HASH, _HASHES, _HASHES),
        "view": Outline(_ROUND, _ROUND, _COLON, _ROUND, (".", " ", "."), ("'", " ", "'")),
    },
)
"""Signs that every terminal and every encoding has."""
