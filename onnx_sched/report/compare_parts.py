"""The parts of a comparison that come once per condition or per output: latency, critical path, agreement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from onnx_sched.judge.agree import OutputAgreement
from onnx_sched.judge.comparison import Comparison, LatencyRow, PathRow
from onnx_sched.judge.ranking import Ranking
from onnx_sched.judge.significance import SpeedVerdict
from onnx_sched.judge.verdicts import Verdict
from onnx_sched.report.harmless import harmless

SHOWN_OUTPUTS = 8
NAME_CELLS = 40

VERDICTS: dict[Verdict, tuple[str, str]] = {
    "bitwise": ("bit for bit equal", "green"),
    "within_tolerance": ("within tolerance", "green"),
    "mismatch": ("MISMATCH", "bold red"),
    "unvalidated": ("not validated", "yellow"),
}
SPEEDS: dict[SpeedVerdict, tuple[str, str]] = {
    "faster": ("faster", "green"),
    "slower": ("SLOWER", "bold red"),
    "not_significant": ("not significant", "yellow"),
}

_TIMES = (9, 9, 9)
_PATH = (7, 15, 11, 7, 10)


def time_text(microseconds: float) -> str:
    """A time for people, three digits.

    >>> time_text(13.14), time_text(1234), time_text(2.5e6), time_text(999.7)
    ('13.1 us', '1.23 ms', '2.50 s', '1.00 ms')
    """
    for limit, divisor, unit in ((999.5, 1, "us"), (999.5e3, 1e3, "ms")):
        if microseconds < limit:
            return f"{_three(microseconds / divisor)} {unit}"
    return f"{_three(microseconds / 1e6)} s"


def _three(number: float) -> str:
    # Three digits whatever they are: a column of 8.8 and 8.85 would not line up.
    return f"{number:.{0 if number >= 99.95 else 1 if number >= 9.995 else 2}f}"


def ratio_text(row: LatencyRow) -> str:
    """A speed-up, never without its interval."""
    return row.speedup.words


def noise_text(row: LatencyRow) -> str:
    """The noise floor, under the speed-up that it belongs to."""
    return f"A/A   [{row.floor.low:.2f}, {row.floor.high:.2f}]"


def latencies(found: Comparison) -> RenderableType:
    """Single runs, the speed-up over pairs, and the noise floor; three lines a condition."""
    titles = ("latency", "p50", "p95", "p99")
    lines = [_line(titles, _TIMES, Text("paired speed-up [95% interval]"), style="dim")]
    for row in found.latency:
        words, style = SPEEDS[row.verdict]
        many = f", {row.processes} processes" if row.processes > 1 else ""
        lines.append(Text(safe(row.label + many) + ": ").append(words, style=style))
        ratio = Text(f"{ratio_text(row)}, {row.speedup.pairs} pairs", style=style)
        for name, times, text in (
            ("  before", row.before, ratio),
            ("  after", row.after, Text(noise_text(row), style="dim")),
        ):
            cells = [time_text(value) for value in (times.p50_us, times.p95_us, times.p99_us)]
            lines.append(_line((name, *cells), _TIMES, text))
    return Group(*lines, *_footnotes(found))


def _footnotes(found: Comparison) -> list[Text]:
    """Cold start at the first condition (opening a session knows no sizes), and how times were taken."""
    row, settings = found.latency[0], found.settings
    before, after = row.cold_before, row.cold_after
    cold = (
        f"cold start: session {_ms(before.create_ms)} -> {_ms(after.create_ms)}, "
        f"first run {_ms(before.first_run_ms)} -> {_ms(after.first_run_ms)} (median)"
    )
    how = (
        f"A/A: before against itself. Pairs: random order (seed {settings['seed']}), inputs and outputs "
        f"bound, all sessions opened {row.openings} times in turn."
    )
    return [Text(line, style="dim") for line in (cold, how)]


def _ms(milliseconds: float) -> str:
    return time_text(milliseconds * 1e3)


def paths(rows: Sequence[PathRow]) -> RenderableType:
    """Critical path beside the time of all nodes and the wall time."""
    titles = ("critical path", "layers", "slowest nodes", "all nodes", "share", "wall p50")
    lines = [_line(titles, _PATH, Text(), style="dim", first=13)]
    for row in rows:
        lines.append(Text(safe(row.label)))
        for name, path, wall in (
            ("  before", row.before, row.wall_before_us),
            ("  after", row.after, row.wall_after_us),
        ):
            part = f"{path.critical_us / path.nodes_us:.0%}" if path.nodes_us else "-"
            times = (time_text(path.critical_us), time_text(path.nodes_us), part)
            cells = (str(path.layers), *times, "-" if wall is None else time_text(wall))
            lines.append(_line((name, *cells), _PATH, Text(), first=13))
    source = dict.fromkeys(path.source for row in rows for path in (row.before, row.after))
    note = (
        f"Slowest nodes: the slowest of each layer, added up; {'; '.join(source)}. The profiler adds time to "
        "every node: compare these times with each other, not with the wall."
    )
    return Group(*lines, Text(note, style="dim"))


def _line(
    cells: Sequence[str], widths: Sequence[int], end: Text, style: str = "", first: int = 9
) -> Text:
    """One name to the left, numbers to the right: the same columns whatever stands between the lines."""
    text = Text(f"{cells[0]:<{first}}", style=style)
    for cell, width in zip(cells[1:], widths, strict=True):
        text.append(f"{cell:>{width}}")
    if end:
        text.append("  ").append_text(end)
    return text


def agreement(found: Comparison) -> Text:
    """One line: how the outputs compare."""
    said = found.agreement
    words, style = VERDICTS[said.verdict]
    text = Text("agreement  ").append(words, style=style)
    counts = (many(said.checks, "run"), many(len(said.outputs), "output"))
    text.append(f", {', '.join(counts)}", style="dim")
    if said.reason:
        text.append(f" ({safe(said.reason)})", style="dim")
    return text


def many(count: int, thing: str) -> str:
    """A number of things.

    >>> many(1, "run"), many(2, "output")
    ('1 run', '2 outputs')
    """
    return f"{count} {thing}{'' if count == 1 else 's'}"


def outputs(found: Comparison) -> Table:
    """A row for each output: differences, noise floor, and whether the same element wins."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("  output", overflow="fold")
    for title in ("max abs", "max rel", "max ULP", "noise", "argmax", "top 5"):
        table.add_column(title, justify="right", no_wrap=True)
    ranks = {row.name: row for row in found.rankings}
    shown = found.agreement.outputs[:SHOWN_OUTPUTS]
    for output in shown:
        table.add_row(*_output(output, ranks.get(output.name)))
    if len(found.agreement.outputs) > len(shown):
        table.add_row(Text(f"  and {len(found.agreement.outputs) - len(shown)} more", style="dim"))
    return table


def _output(output: OutputAgreement, rank: Ranking | None) -> list[Text]:
    style = VERDICTS[output.verdict][1]
    if output.bitwise:
        numbers = ["0", "0", "0"]
    else:
        numbers = [_small(output.max_abs), _small(output.max_rel)]
        numbers.append("-" if output.max_ulp is None else str(output.max_ulp))
    argmax = "-" if rank is None else share(rank.argmax)
    top5 = "-" if rank is None or rank.top5 is None else share(rank.top5)
    name = harmless(output.name, NAME_CELLS)
    cells = [Text(f"  {name}"), *(Text(number, style=style) for number in numbers)]
    return [*cells, Text(_small(output.noise_abs), style="dim"), Text(argmax), Text(top5)]


def _small(value: float | None) -> str:
    """A difference, or `-` where there is none to tell; exactly none is `0`."""
    if value is None:
        return "-"
    return f"{value:.1e}" if value else "0"


def share(part: float) -> str:
    """A share in percent, never rounded up to all of it.

    >>> share(1.0), share(0.99999), share(0.5)
    ('100%', '99.9%', '50.0%')
    """
    return "100%" if part == 1 else f"{min(99.9, 100 * part):.1f}%"


def safe(text: Any, limit: int = 600) -> str:
    """Words that may hold names out of a model file, fit for a terminal."""
    return harmless(str(text), limit)
