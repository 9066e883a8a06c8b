"""The report as Markdown, for comments on pull requests: the flavour that GitHub and GitLab share.

Names come from a stranger's file: they stand in code spans, in which nothing is a link, a mention, a tag
or the end of a table's cell.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from onnx_sched.plan import Refusal
from onnx_sched.report import plan_text
from onnx_sched.report.codes import CODES
from onnx_sched.report.data import Change, LatencyRow, Report
from onnx_sched.report.harmless import harmless
from onnx_sched.report.headline import condition, headline
from onnx_sched.report.machine import machine
from onnx_sched.report.remarks import dispatched, peaked
from onnx_sched.report.text import VERDICTS, folded, percent, size, speed_words

ROWS, NAMES, NAME = 40, 3, 80
"""Rows of a table, names in a row, cells of a name that are shown; the rest is counted."""

SIGNS = {"good": ":zap:", "plain": ":grey_exclamation:", "bad": ":small_red_triangle_down:"}


def to_markdown(report: Report, command: str = "") -> str:
    """The report as Markdown.

    Args:
        report: What there is to tell.
        command: How it was asked for.
    """
    head = headline(report)
    parts = [
        f"### {SIGNS[head.tone]} {words(head.line)}\n\n{words(head.below)}",
        f"{code(report.model)}: opset {report.opset}, IR {report.ir_version}, "
        f"{report.nodes.before} nodes, {report.lanes} wires",
        _numbers(report),
        _latency(report.latency),
        *(f"> {words(note)}" for note in report.notes),
        _batched(report),
        _regions(report),
        _left_alone(report.refusals),
        _agreement(report),
        _environment(report, command),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def code(text: str, limit: int = NAME) -> str:
    r"""A text as a code span that may stand in a table.

    >>> code("a|b"), code("x`y")
    ('`a\\|b`', '`` x`y ``')
    """
    safe = harmless(text, limit) or "?"
    ticks = max((len(run) for run in re.findall("`+", safe)), default=0)
    fence = "`" * (ticks + 1)
    pad = " " if ticks else ""
    bar = "\N{BROKEN BAR}" if "\\" in safe else "\\|"  # nobody agrees on what an escaped escape is
    return f"{fence}{pad}{safe}{pad}{fence}".replace("|", bar)


def words(text: str, limit: int = 400) -> str:
    r"""A sentence in which nothing is markup, a mention or a link.

    >>> words("<b> [a](b) @me")
    '&lt;b> \\[a\\](b) @&#8203;me'
    """
    safe = harmless(text, limit)
    safe = re.sub(r"([\\\\`*_\[\]#|~!])", r"\\\1", safe)
    safe = safe.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"@(?=\w)", "@&#8203;", safe).replace("://", ":&#8203;//")


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table; nothing for no rows."""
    if not rows:
        return ""
    rule = ["---:" if n in right else "---" for n in range(len(head))]
    lines = [head, rule, *rows[:ROWS]]
    more = f"\n\nand {len(rows) - ROWS} more rows" if len(rows) > ROWS else ""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + more


def _numbers(report: Report) -> str:
    rows = [
        ("nodes", report.nodes, False, ""),
        ("parallel layers", report.depth, False, ""),
        ("node launches per run", report.dispatches, False, dispatched(report)),
        ("peak activations", report.peak, True, peaked(report)),
    ]
    return table(
        ("", "before", "after", "", ""),
        [_pair(*row) for row in rows if row[1].before is not None and row[1].after is not None],
        (1, 2, 3),
    )


def _pair(title: str, change: Change, is_bytes: bool, remark: str) -> tuple[str, ...]:
    before, after = change.before or 0, change.after or 0
    show = size if is_bytes else str
    return title, show(before), show(after), percent(before, after), words(remark)


def _latency(rows: Sequence[LatencyRow]) -> str:
    return table(
        ("latency", "before", "after", "paired speed-up", "95% interval", ""),
        [
            (
                code(condition(row)),
                f"{row.before_us:.1f} us",
                f"{row.after_us:.1f} us",
                f"**{row.speedup:.2f}x**",
                f"{row.ci_low:.2f} to {row.ci_high:.2f}",
                speed_words(row)[1],
            )
            for row in rows
        ],
        (1, 2, 3, 4),
    )


def _batched(report: Report) -> str:
    rows = [
        (
            str(count),
            f"{g.size} {code(g.op_type)}{'' if g.taken_in else ' -> 1'}",
            g.manner,
            _named(g.named),
        )
        for count, g in folded(report.groups)
    ]
    shown = table(("groups", "each", "form", "nodes of the first"), rows, (0,))
    return _folded(f"Batched: {len(report.groups)} groups", shown) if shown else ""


def _regions(report: Report) -> str:
    rows = [
        (
            plan_text.numbers(block.regions).removeprefix("region "),
            f"{block.regions[0].before} -> {block.regions[0].after}",
            words(plan_text.glue(block.regions[0])),
            "; ".join(map(words, plan_text.gains(block.regions[0]))),
        )
        for block in plan_text.alike(report)
    ]
    shown = table(("region", "nodes", "glue", "expected gain"), rows, (1,))
    return _folded(f"By region: {len(report.regions)}", shown) if shown else ""


def _left_alone(refusals: Sequence[Refusal]) -> str:
    rows = [
        (
            f"`{r.code}`",
            CODES[r.code].title if r.code in CODES else "",
            str(len(r.nodes)),
            words(r.reason),
            _named(r.nodes),
        )
        for r in refusals
    ]
    shown = table(("code", "", "nodes", "why", "such as"), rows, (2,))
    known = dict.fromkeys(r.code for r in refusals if r.code in CODES)
    advice = "\n".join(f"- `{c}`: {words(CODES[c].advice)}" for c in known)
    return _folded("Left alone, and why", f"{shown}\n\n{advice}") if shown else ""


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return ", ".join(code(n) for n in names[:NAMES]) + more


def _agreement(report: Report) -> str:
    def number(value: float | int | None) -> str:
        return "" if value is None else f"{value:.1e}" if isinstance(value, float) else str(value)

    rows = [
        (
            code(o.name),
            "yes" if o.bitwise else "no",
            number(o.max_abs),
            number(o.max_rel),
            number(o.max_ulp),
        )
        for o in report.outputs
    ]
    head = ("output", "bit for bit", "largest difference", "relative", "ULP")
    shown = table(head, rows, (2, 3, 4))
    return _folded(f"Agreement: {VERDICTS[report.verdict][0]}", shown) if shown else ""


def _environment(report: Report, command: str) -> str:
    rows = [
        f"- {name}: {code(value, 300)}"
        for name, value in machine(report.provider, report.provider_note)
    ]
    if command:
        rows.append(f"- command: {code(command, 2000)}")
    return _folded("Environment", "\n".join(rows))


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"
