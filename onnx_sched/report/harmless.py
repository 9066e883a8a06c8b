"""Names out of a model file made safe to print: they are the words of a stranger.

A name may hold terminal escapes, line ends, invisible or right-to-left characters, pieces of a drawing,
or ten thousand letters.  What is left is one short line whose width in a terminal is known.
"""

from __future__ import annotations

import unicodedata

from rich.cells import cell_len

SUBSTITUTE = "?"
"""Stands for a character that must not be printed; nobody is led to believe that there was none."""

_READ = 4096
"""Characters of a name that are looked at: far more than are ever shown."""

_EMOJI = "\U0001f000"
"""From here on symbols join into others, flags from letters for one, and no two terminals agree on widths."""

_STRUCTURE = frozenset("[]()|#")
"""What the outlines of ASCII drawings are made of."""


def harmless(text: str, limit: int, ascii_only: bool = False) -> str:
    r"""One line of printable characters, at most `limit` cells wide.

    Control, format, unassigned, private and right-to-left characters and emoji become "?", white space
    becomes one blank, marks that take no cell of their own go.

    >>> harmless("a\x1b[31m\n b", 20), harmless("MatMul" * 9, 12), harmless("é", 9, ascii_only=True)
    ('a?[31m b', 'MatMulMatMu…', '?')

    Args:
        text: Anything.
        limit: Cells of a terminal, at least 1 (3 in ASCII, to have room for "...").
        ascii_only: Whether characters outside ASCII become "?", too.
    """
    safe = "".join(_printable(c, ascii_only) for c in unicodedata.normalize("NFC", text[:_READ]))
    safe = " ".join(safe.split())
    if len(text) <= _READ and cell_len(safe) <= limit:
        return safe
    return _cut(safe, limit, "..." if ascii_only else "…")


def label(text: str, limit: int, ascii_only: bool = False) -> str:
    """The same for text that stands inside an outline: nothing in it can pass for an outline.

    >>> label("Add]-[Mul", 20), label("─┤x├─", 20), label("", 20)
    ('Add?-?Mul', '??x??', '?')
    """
    safe = harmless(text, limit, ascii_only)
    drawn = "".join(SUBSTITUTE if c in _STRUCTURE or "─" <= c <= "▟" else c for c in safe)
    return drawn or SUBSTITUTE


def _printable(char: str, ascii_only: bool) -> str:
    if char.isspace():
        return " "
    if " " < char <= "~":
        return char
    category = unicodedata.category(char)
    if category in ("Mn", "Me") or not (cell_len(char) or category[0] in "CZ"):
        return ""
    if ascii_only or category[0] in "CZ" or unicodedata.bidirectional(char) in ("R", "AL"):
        return SUBSTITUTE
    if char >= _EMOJI and category in ("So", "Sk"):
        return SUBSTITUTE
    return char


def _cut(text: str, limit: int, mark: str) -> str:
    """The beginning of a text, and the mark that there was more."""
    room = limit - cell_len(mark)
    end = 0
    while end < len(text) and (width := cell_len(text[end])) <= room:
        room -= width
        end += 1
    return text[:end].rstrip() + mark
