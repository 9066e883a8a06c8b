"""What `diff` prints: each part of the models, with what was removed, added and changed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from onnx_sched.diff import Aspect, Changed, Difference, Item, Section
from onnx_sched.report.harmless import harmless

NAME = 60
"""Cells of a name that are shown."""

NAMES = 3
"""Names that a line lists before it says how many more there are."""

LINES = 8
"""Kinds, and changed items, that a part lists before it says how many more there are."""


def render(found: Difference, before: str, after: str, verbose: bool = False) -> RenderableType:
    """A difference for a terminal.

    Args:
        found: What differs.
        before: What the one model is called.
        after: What the other is called.
        verbose: Whether to list every item.
    """
    word, style = ("same", "green") if found.same else ("different", "yellow")
    names = f"{harmless(before, NAME)} -> {harmless(after, NAME)}: "
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for section in found.sections:
        if section.before or section.after:
            _section(table, section, verbose)
    return Group(Text.assemble(names, (word, f"bold {style}")), Text(), table)


def _section(table: Table, section: Section, verbose: bool) -> None:
    sizes = str(section.after)
    if section.before != section.after:
        sizes = f"{section.before} -> {section.after}"
    if section.same:
        table.add_row(section.title, Text("same", style="green"), "", Text(sizes, style="dim"))
        return
    counts = [
        f"{len(items)} {word}"
        for items, word in (
            (section.removed, "removed"),
            (section.added, "added"),
            (section.changed, "changed"),
        )
        if items
    ]
    differs = Text("differs", style="yellow")
    table.add_row(section.title, differs, "", Text(f"{sizes}: {', '.join(counts)}"))
    _items(table, section.removed, "-", "red", verbose)
    _items(table, section.added, "+", "green", verbose)
    shown = section.changed if verbose else section.changed[:LINES]
    for item in shown:
        table.add_row("", "", Text("~", style="yellow"), _changed(item, verbose))
    _more(table, len(section.changed) - len(shown))


def _items(table: Table, items: Sequence[Item], sign: str, style: str, verbose: bool) -> None:
    """Items of one kind in one line, the most frequent kinds first."""
    kinds: dict[str, list[Item]] = {}
    for item in items:
        kinds.setdefault(item.what, []).append(item)
    ordered = sorted(kinds.items(), key=lambda kv: (-len(kv[1]), kv[0]))
    shown = ordered if verbose else ordered[:LINES]
    for what, members in shown:
        most = len(members) if verbose else NAMES
        text = Text(f"{len(members)} {harmless(what, NAME)}")
        text.append("  " + ", ".join(_named(m) for m in members[:most]), style="dim")
        if len(members) > most:
            text.append(f" and {len(members) - most} more", style="dim")
        table.add_row("", "", Text(sign, style=style), text)
    _more(table, sum(len(members) for _, members in ordered[len(shown) :]))


def _named(item: Item) -> str:
    name = harmless(item.name, NAME) or "?"
    return f"{name} (for {len(item.members)} nodes)" if item.members else name


def _changed(item: Changed, verbose: bool) -> Text:
    name = harmless(item.name, NAME) or "?"
    text = Text(name if name == item.what else f"{name}  {harmless(item.what, NAME)}")
    shown = item.aspects if verbose else item.aspects[:LINES]
    for aspect in shown:
        text.append(f"\n  {_aspect(aspect)}", style="dim")
    if len(item.aspects) > len(shown):
        text.append(f"\n  and {len(item.aspects) - len(shown)} more", style="dim")
    return text


def _aspect(aspect: Aspect) -> str:
    what = harmless(aspect.what, NAME)
    before, after = harmless(aspect.before, 2 * NAME), harmless(aspect.after, 2 * NAME)
    if aspect.what == "numbers":
        return f"{what}: {after}"
    return f"{what}: {before or 'nothing'} -> {after or 'nothing'}"


def _more(table: Table, count: int) -> None:
    if count > 0:
        table.add_row("", "", "", Text(f"and {count} more; -v lists all", style="dim"))
