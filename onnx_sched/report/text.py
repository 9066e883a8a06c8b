"""The report for a terminal: what changed, what was batched, what was left alone and why."""

from __future__ import annotations

from collections import Counter

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from onnx_sched.plan import Refusal
from onnx_sched.report.data import Change, GroupRow, LatencyRow, Report
from onnx_sched.report.fitted import Names
from onnx_sched.report.harmless import harmless

WORDS = 400
"""Cells of a sentence or a file's name; what is longer was not written to be read."""


def render(report: Report) -> RenderableType:
    """The whole report."""
    parts: list[RenderableType] = [Text(head(report), style="bold")]
    if report.provider_note or report.provider:
        parts.append(
            Text(f"provider {report.provider} {note(report.provider_note)}".rstrip(), style="dim")
        )
    parts += [Text(), numbers(report)]
    if report.latency:
        parts += [Text(), latencies(report.latency)]
    parts += [Text(), agreement(report)]
    if report.groups:
        parts += [Text(), batched(report.groups)]
    if report.refusals:
        parts += [Text(), left_alone(report.refusals)]
    parts += [Text(harmless(n, WORDS), style="yellow") for n in report.notes]
    return Group(*parts)


def head(report: Report) -> str:
    """One line about the input."""
    return (
        f"{harmless(report.model, WORDS)}   opset {report.opset}, IR {report.ir_version}, "
        f"{report.nodes.before} nodes, {report.lanes} wires"
    )


def note(text: str) -> str:
    """A remark in parentheses, or nothing."""
    return f"({text})" if text else ""


def numbers(report: Report) -> Table:
    """Before and after, a row each."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    for title in ("before", "after", ""):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("")
    rows = (
        ("nodes", report.nodes, "", ""),
        ("parallel layers", report.depth, "", ""),
        ("node dispatches per run", report.dispatches, "", "after ORT's own fusions"),
        ("peak activations", report.peak, "bytes", report.peak_source),
    )
    for name, change, unit, source in rows:
        if change.before is None or change.after is None:
            continue
        table.add_row(name, *_pair(change, unit), _source(source))
    return table


def _source(text: str) -> Text:
    """Where a number comes from: on one line, the last to be given room."""
    return Text(text, style="dim", no_wrap=True, overflow="ellipsis")


def _pair(change: Change, unit: str) -> tuple[str, str, str]:
    before, after = change.before or 0, change.after or 0
    percent = f"{100 * (after - before) / before:+.0f}%" if before else ""
    if unit == "bytes":
        return size(before), size(after), percent
    return str(before), str(after), percent


def size(count: int) -> str:
    """Bytes for people.

    >>> size(16384), size(900)
    ('16.0 KiB', '900 B')
    """
    number = float(count)
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


def latencies(rows: tuple[LatencyRow, ...]) -> Table:
    """Measured latency, a row for each condition; never a ratio without its interval."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("latency", no_wrap=True)
    for title in ("before", "after"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("speed-up [95% interval]")
    for row in rows:
        style, word = speed_words(row)
        dims = ", ".join(f"{n}={s}" for n, s in row.dims.items()) or "as declared"
        threads = f"{row.threads or 'all'} thread{'' if row.threads == 1 else 's'}"
        table.add_row(
            f"{dims}, {threads}",
            f"{row.before_us:.1f} us",
            f"{row.after_us:.1f} us",
            Text(f"{row.speedup:.2f}x [{row.ci_low:.2f}, {row.ci_high:.2f}] {word}", style=style),
        )
    return table


def speed_words(row: LatencyRow) -> tuple[str, str]:
    """Style and word for a speed-up: significant only if the interval leaves 1 out."""
    if row.ci_low > 1:
        return "green", "faster"
    if row.ci_high < 1:
        return "red", "SLOWER"
    return "yellow", "not significant"


VERDICTS = {
    "bitwise": ("bit for bit equal", "green"),
    "within_tolerance": ("within tolerance", "green"),
    "mismatch": ("MISMATCH", "bold red"),
    "unvalidated": ("not validated", "yellow"),
}


def agreement(report: Report) -> Text:
    """One line: how the outputs compare."""
    words, style = VERDICTS[report.verdict]
    text = Text("agreement  ").append(words, style=style)
    errors = [o.max_abs for o in report.outputs if o.max_abs is not None]
    if errors and report.verdict != "bitwise":
        text.append(f", max abs {max(errors):.1e}")
    if report.checks:
        text.append(f", {len(report.outputs)} output(s), {report.checks} runs compared")
    if report.verdict_reason:
        text.append(f" ({report.verdict_reason})", style="dim")
    return text


def batched(groups: tuple[GroupRow, ...]) -> Table:
    """What became one node; like rows are folded."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("")
    counts = Counter((g.op_type, g.size, g.form) for g in groups)
    first = {(g.op_type, g.size, g.form): g for g in reversed(groups)}
    for n, ((op_type, lanes, form), count) in enumerate(counts.items()):
        row = first[op_type, lanes, form]
        times = f"{count} x" if count > 1 else ""
        table.add_row(
            Text("batched" if n == 0 else "", style="green"),
            times,
            Text(f"{lanes} {harmless(op_type, 40)} -> 1 ({form})"),
            Names(row.members),
        )
    return table


def left_alone(refusals: tuple[Refusal, ...]) -> Group:
    """What was not batched, with code and reason."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("", overflow="fold", ratio=3)
    table.add_column("", ratio=2)
    for n, refusal in enumerate(refusals):
        count = f"{len(refusal.nodes)} node{'s' if len(refusal.nodes) != 1 else ''}, "
        table.add_row(
            Text("left alone" if n == 0 else "", style="yellow"),
            refusal.code,
            Text((count if refusal.nodes else "") + harmless(refusal.reason, WORDS)),
            Names(refusal.nodes),
        )
    hint = f"`onnx-sched explain {refusals[0].code}` says what a code means and what to change"
    return Group(table, Text(hint, style="dim"))


def to_text(report: Report, width: int = 120) -> str:
    """The report as plain text."""
    console = Console(width=width, no_color=True, force_terminal=False, highlight=False)
    with console.capture() as capture:
        console.print(render(report))
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"
