"""What `explain` prints: a code, all codes, or what becomes of a node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from onnx_sched.report.codes import CODES, FAMILIES, Code
from onnx_sched.report.harmless import harmless

if TYPE_CHECKING:  # a code is explained without waiting for onnx
    from onnx_sched.explain import Explanation
    from onnx_sched.near import Near

NAME = 70
"""Cells of a name that are shown."""

WORDS = 400
"""Cells of a sentence."""

NAMES = 6
"""Names that a line lists before it says how many more there are."""

STEPS = 8
"""Steps of a region that are listed."""

NOTE = (
    "This is what is legal (--choose always). Whether it is faster, too, `onnx-sched plan` measures; where "
    "it is not, nodes are left alone with code S303."
)


def all_codes() -> RenderableType:
    """Every code with its title, by family."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for digit, members in groupby(CODES.values(), key=lambda code: code.code[1]):
        table.add_row(Text(f"S{digit}xx", style="bold"), Text(FAMILIES[digit], style="bold"))
        for code in members:
            table.add_row(Text(f"{code.code} ", style="yellow"), code.title)
    return Group(table, Text(), Text("onnx-sched explain S103 tells more about one.", style="dim"))


def one_code(code: Code) -> RenderableType:
    """All about a code."""
    table = _table()
    table.add_row(_label("means"), Text(code.meaning))
    if code.example:
        table.add_row(_label("for example"), Text(code.example, style="cyan"))
    notes = [f"{name} {list(shape)}" for name, shape in code.weights]
    if notes:
        table.add_row("", Text("constants: " + ", ".join(notes), style="dim"))
    if code.flags:
        table.add_row("", Text(f"with {code.flags}", style="dim"))
    table.add_row(_label("what to do"), Text(code.advice))
    head = Text.assemble((code.code, "bold yellow"), "  ", (code.title, "bold"))
    return Group(head, Text(code.family, style="dim"), Text(), table)


def node(found: Explanation, verbose: bool = False) -> RenderableType:
    """What becomes of a node.

    Args:
        found: The explanation.
        verbose: Whether to list every name.
    """
    wires = _numbers(found.wires)
    where = f", layer {found.layer}, {wires}" if found.layer >= 0 and found.wires else ""
    head = Text.assemble(
        (harmless(found.node, NAME) or "?", "bold"),
        (f"   {harmless(found.op_type, NAME)}{where}", "dim"),
    )
    parts: list[RenderableType] = [head]
    if found.inside:
        parts.append(Text(f"in the body {harmless(found.inside, NAME)}", style="dim"))
    parts.append(_verdict(found))
    details = _details(found, verbose)
    if details.row_count:
        parts += [Text(), details]
    if found.outcome in ("batched", "summed", "layout"):
        parts += [Text(), Text(NOTE, style="dim")]
    return Group(*parts)


def _verdict(found: Explanation) -> Text:
    if found.outcome in ("batched", "summed"):
        return Text.assemble(
            (f"can be {found.outcome}: ", "green"), harmless(found.sentence, WORDS)
        )
    if found.code:
        title = CODES[found.code].title if found.code in CODES else ""
        return Text.assemble(("left alone: ", "yellow"), (found.code, "bold yellow"), f" {title}")
    before = "left alone: " if found.near or found.reason else ""
    return Text.assemble((before, "yellow"), harmless(found.sentence, WORDS))


def _details(found: Explanation, verbose: bool) -> Table:
    table = _table()
    if found.namesakes:
        table.add_row(_label("namesakes"), _namesakes(found.namesakes, verbose))
    most = len(found.members) if verbose else NAMES
    if found.members:
        others = [m for n, m in enumerate(found.members) if n != found.lane]
        table.add_row(_label("with"), _names(others, most))
    if found.becomes:
        table.add_row(_label("becomes"), _names(found.becomes, most))
    elif found.outcome == "batched":
        table.add_row(_label("becomes"), Text("no node of its own: the way lanes lie does it"))
    if len(found.region) > 1:
        table.add_row(_label("region"), Text(_region(found.region, verbose)))
    if found.reason:
        table.add_row(_label("why"), Text(harmless(found.reason, WORDS)))
    for n, near in enumerate(found.near):
        table.add_row(_label("nearest" if n == 0 else ""), _near(near))
    if found.code in CODES:
        table.add_row(_label("what to do"), Text(CODES[found.code].advice))
    return table


def _namesakes(made: Sequence[str], verbose: bool) -> Text:
    """Which of several nodes of one name it is, and how to ask about the others."""
    this = harmless(made[0], NAME)
    others = _names(made[1:], len(made) if verbose else NAMES)
    words = f"{len(made)} nodes bear this name; this is the one that makes {this}. Others make "
    return Text.assemble(words, others, f": --node {harmless(made[1], NAME)}")


def _near(near: Near) -> RenderableType:
    lines: list[RenderableType] = [Text(harmless(near.node, NAME) or "?", style="cyan")]
    for d in near.differences:
        here, there = harmless(d.here, NAME), harmless(d.there, NAME)
        text = f"{harmless(d.what, NAME)}: here {here}; there {there}"
        lines.append(Padding(Text(text), (0, 0, 0, 2)))
    return Group(*lines)


def _region(steps: Sequence[str], verbose: bool) -> str:
    """The steps of a region; equal ones in a row are counted."""
    counted = [(text, len(list(run))) for text, run in groupby(steps)]
    words = [
        harmless(text, NAME) + (f", {count} times" if count > 1 else "") for text, count in counted
    ]
    shown = words if verbose else words[:STEPS]
    more = f" -> and {len(words) - len(shown)} more" if len(words) > len(shown) else ""
    return f"{len(steps)} groups: " + " -> ".join(shown) + more


def _names(names: Iterable[str], most: int) -> Text:
    listed = [harmless(n, NAME) or "?" for n in names]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return Text(", ".join(listed[:most]) + more)


def _numbers(wires: Sequence[int]) -> str:
    if not wires:
        return "no wire"
    if len(wires) == 1:
        return f"wire {wires[0]}"
    if list(wires) == list(range(wires[0], wires[-1] + 1)):
        return f"wires {wires[0]} to {wires[-1]}"
    more = f" and {len(wires) - NAMES} more" if len(wires) > NAMES else ""
    return "wires " + ", ".join(map(str, wires[:NAMES])) + more


def _table() -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _label(text: str) -> Text:
    return Text(text, style="dim")
