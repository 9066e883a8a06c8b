"""The report for a terminal: what changed, what was batched, what was left alone and why."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from onnx_sched.files import UNNAMED
from onnx_sched.plan import Refusal
from onnx_sched.report.data import Change, GroupRow, LatencyRow, Report
from onnx_sched.report.fitted import Names
from onnx_sched.report.harmless import harmless
from onnx_sched.report.headline import estimated, headline, sizes
from onnx_sched.report.remarks import dispatched, peaked

WORDS = 400
"""Cells of a sentence or a file's name; what is longer was not written to be read."""

DIMS = 60
"""Cells of the sizes of a race."""

REASONS = 8
"""Reasons that are told for leaving nodes alone, unless all are asked for."""

TONES = {"good": "bold green", "plain": "bold yellow", "bad": "bold red"}


def render(report: Report, verbose: bool = False) -> RenderableType:
    """The whole report.

    Args:
        report: The run.
        verbose: Whether every reason is shown.
    """
    parts: list[RenderableType] = top(report)
    if report.status == "optimized":
        parts += [Text(), numbers(report)]
    if report.latency:
        parts += [Text(), latencies(report.latency)]
    parts += [Text(), agreement(report)]
    if report.groups:
        parts += [Text(), batched(report.groups)]
    if report.refusals:
        parts += [Text(), left_alone(report.refusals, verbose), *ways_on(report)]
    parts += [Text(harmless(n, WORDS), style="yellow") for n in report.notes]
    return Group(*parts)


def top(report: Report, became: str = "became") -> list[RenderableType]:
    """What it is about, who ran it, and the verdict."""
    parts: list[RenderableType] = [Text(head(report), style="bold")]
    if report.target:
        parts.append(Text(harmless(aim(report), WORDS)))
    if report.provider_note or report.provider:
        label = "checked on" if report.target else "provider"
        words = f"{label} {report.provider} {note(report.provider_note)}"
        parts.append(Text(harmless(words.rstrip(), WORDS), style="dim"))
    return [*parts, verdict(report, became)]


def aim(report: Report) -> str:
    """One line about the device that is not at hand: its profile decides, and estimates the gain."""
    gain = estimated(report)
    told = f"; what is batched is estimated {gain}" if gain else ""
    return f"target {report.target}: by its profile, nothing is raced{told}"


def head(report: Report) -> str:
    """One line about the input."""
    return (
        f"{harmless(report.model, WORDS)}   opset {report.opset}, IR {report.ir_version}, "
        f"{report.nodes.before} nodes, {report.lanes} wires, {report.depth.before} layers"
    )


def verdict(report: Report, became: str = "became") -> Text:
    """The answer in one line: what it bought, or why nothing was done."""
    found = headline(report)
    if report.status == "unchanged":
        return Text.assemble((f"{found.line}.", TONES[found.tone]), f" {found.below}")
    if report.latency:
        return Text.assemble((found.line, TONES[found.tone]), f"; {sizes(report, became)}")
    return Text.assemble((sizes(report, became), TONES[found.tone]), "; speed was not measured")


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
        ("node dispatches per run", report.dispatches, "", dispatched(report)),
        ("peak activations", report.peak, "bytes", peaked(report)),
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
    if unit == "bytes":
        return size(before), size(after), percent(before, after)
    return str(before), str(after), percent(before, after)


def percent(before: int, after: int) -> str:
    """How much a number grew; never a change that reads as none.

    >>> percent(200, 100), percent(1000, 999), percent(7, 7), percent(0, 3)
    ('-50%', '-0.1%', 'same', '')
    """
    if before == after:
        return "same"
    share = 100 * (after - before) / before if before else 0.0
    return "" if not before else f"{share:+.0f}%" if abs(share) >= 0.5 else f"{share:+.1f}%"


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
    table.add_column("paired speed-up [95% interval]")
    for row in rows:
        style, word = speed_words(row)
        dims = ", ".join(f"{n}={s}" for n, s in row.dims.items()) or "as declared"
        threads = f"{row.threads or 'all'} thread{'' if row.threads == 1 else 's'}"
        table.add_row(
            Text(f"{harmless(dims, DIMS)}, {threads}"),
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
        text.append(f" {note(harmless(report.verdict_reason, WORDS))}", style="dim")
    return text


def batched(groups: tuple[GroupRow, ...]) -> Table:
    """What became one node; like rows are folded."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for no_wrap in (True, True, False):
        table.add_column("", no_wrap=no_wrap)
    for n, (count, group) in enumerate(folded(groups)):
        label = Text("batched" if n == 0 else "", style="green")
        table.add_row(label, Text(in_words(group, count)), Names(group.named))
    return table


def folded(groups: Sequence[GroupRow]) -> list[tuple[int, GroupRow]]:
    """Groups that look alike once, with their number."""
    counts = Counter((g.op_type, g.size, g.manner) for g in groups)
    first = {(g.op_type, g.size, g.manner): g for g in reversed(groups)}
    return [(count, first[key]) for key, count in counts.items()]


def in_words(group: GroupRow, times: int) -> str:
    """What became of a group, and of how many others like it.

    >>> in_words(GroupRow("MatMul", 4, 0, "wide", "", ()), 12)
    '12 x 4 MatMul -> 1 (wide)'
    >>> in_words(GroupRow("LayerNormalization", 4, 0, "conv_t", "", ()), 1)
    "4 LayerNormalization -> 1 (in conv_t's layout)"
    >>> in_words(GroupRow("Resize", 4, 0, "stacked", "", (), taken_in=True), 1)
    '4 Resize -> part of a linear map'
    """
    many = f"{times} x " if times > 1 else ""
    became = group.manner if group.taken_in else f"1 ({group.manner})"
    return f"{many}{group.size} {harmless(group.op_type, 40)} -> {became}"


def left_alone(refusals: tuple[Refusal, ...], verbose: bool = False) -> Table:
    """What was not batched, with code and reason."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("", overflow="fold", ratio=3)
    table.add_column("", ratio=2)
    most = len(refusals) if verbose else REASONS
    for n, refusal in enumerate(refusals[:most]):
        label = Text("left alone" if n == 0 else "", style="yellow")
        table.add_row(label, refusal.code, reason(refusal), Names(refusal.nodes))
    if len(refusals) > most:
        more = f"and {len(refusals) - most} more reasons; -v shows all"
        table.add_row("", "", Text(more, style="dim"), "")
    return table


def reason(refusal: Refusal) -> Text:
    """How many nodes, and why."""
    count = f"{len(refusal.nodes)} node{'s' if len(refusal.nodes) != 1 else ''}, "
    return Text((count if refusal.nodes else "") + harmless(refusal.reason, WORDS))


def ways_on(report: Report) -> list[RenderableType]:
    """Where to read more about what was left alone."""
    if not report.refusals:
        return []
    first = report.refusals[0]
    hints = [f"`onnx-sched explain {first.code}` says what a code means and what to change"]
    if first.nodes and report.model != UNNAMED:
        words = shlex.join(["onnx-sched", "explain", report.model, "--node", first.nodes[0]])
        safe = harmless(words, WORDS)
        if safe == words:  # else it could not be typed
            hints.append(f"`{words}` asks about one node")
    return [Text(hint, style="dim") for hint in hints]


def to_text(report: Report, width: int = 120) -> str:
    """The report as plain text."""
    return plain(render(report), width)


def plain(shown: RenderableType, width: int) -> str:
    """What would be on a screen, as text in which no line ends in blanks."""
    console = Console(width=width, no_color=True, force_terminal=False, highlight=False)
    with console.capture() as capture:
        console.print(shown)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"
