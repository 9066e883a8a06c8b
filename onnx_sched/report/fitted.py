"""Names in one line: as many as fit, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

from onnx_sched.report.harmless import harmless

SHOWN = 3
"""Names that a line lists at most."""

NARROWEST = 24
"""Cells that a line of names needs."""


class Names:
    """A few of many names, on one line of whatever width there is.

    Args:
        nodes: The names, as they stand in the model.
    """

    def __init__(self, nodes: Sequence[str]) -> None:
        self._nodes = nodes

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """The room that it needs, and that it would like."""
        full = cell_len(fitted(self._nodes, 10_000))
        return Measurement(min(full, NARROWEST), full)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """One line."""
        yield Text(fitted(self._nodes, options.max_width), style="dim", no_wrap=True)


def fitted(nodes: Sequence[str], width: int) -> str:
    """Names with commas, at most `SHOWN`, and how many more; of the first the end is left if it must be cut.

    >>> fitted(["alpha", "beta", "gamma", "delta"], 40), fitted(["alpha", "beta", "gamma"], 16)
    ('alpha, beta, gamma and 1 more', 'alpha and 2 more')
    """
    for count in range(min(SHOWN, len(nodes)), 0, -1):
        more = f" and {len(nodes) - count} more" if len(nodes) > count else ""
        text = ", ".join(harmless(name, 200) or "?" for name in nodes[:count]) + more
        if cell_len(text) <= width:
            return text
    if not nodes:
        return ""
    more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
    return ending(nodes[0], max(1, width - len(more))) + more


def ending(name: str, limit: int) -> str:
    """A name of at most so many cells: what is cut off is the beginning, where names are alike.

    >>> ending("encoder/layer.0/attention/MatMul", 20), ending("", 9)
    ('….0/attention/MatMul', '?')
    """
    safe = harmless(name, 200) or "?"
    if cell_len(safe) <= limit:
        return safe
    begin, room = len(safe), limit - 1
    while begin and (width := cell_len(safe[begin - 1])) <= room:
        begin, room = begin - 1, room - width
    return "…" + safe[begin:].lstrip()
