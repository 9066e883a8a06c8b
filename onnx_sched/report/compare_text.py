"""A comparison for the terminal: one screen, 80 columns wide or more, no ratio without its interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from onnx_sched.judge.agree import OutputAgreement
from onnx_sched.judge.comparison import Comparison, Counted, LatencyRow, PathRow, Placement
from onnx_sched.judge.gates import GateResult
from onnx_sched.judge.latency import condition_label
from onnx_sched.judge.ortlib import CPU, CUDA
from onnx_sched.judge.ranking import Ranking
from onnx_sched.judge.verdicts import Verdict

SHOWN_OUTPUTS = 8
SHOWN_NODES = 5

VERDICTS: dict[Verdict, tuple[str, str]] = {
    "bitwise": ("bit for bit equal", "green"),
    "within_tolerance": ("within tolerance", "green"),
    "mismatch": ("MISMATCH", "bold red"),
    "unvalidated": ("not validated", "yellow"),
}
SPEEDS = {
    "faster": ("faster", "green"),
    "slower": ("SLOWER", "bold red"),
    "not_significant": ("not significant", "yellow"),
}


def render(found: Comparison, gates: Iterable[GateResult] = ()) -> RenderableType:
    """The whole comparison."""
    parts: list[RenderableType] = [*head(found), Text(), counts(found)]
    if found.latency:
        parts += [Text(), latencies(found.latency), colds(found.latency)]
    if found.paths:
        parts += [Text(), paths(found.paths), path_note(found.paths)]
    parts += [Text(), agreement(found)]
    if found.agreement.outputs:
        parts.append(outputs(found))
    for name, placed in (("before", found.placement_before), ("after", found.placement_after)):
        if placed is not None and found.provider.name != CPU:
            parts.append(placement(name, placed))
    parts += [Text(note, style="yellow") for note in found.notes]
    parts += [gate_line(result) for result in gates]
    return Group(*parts)


def head(found: Comparison) -> list[Text]:
    """What is compared, and where."""
    versions = found.environment["packages"]
    runtime = ", ".join(f"{n} {v}" for n, v in versions.items() if n.startswith("onnxruntime"))
    lines = [
        Text(f"{found.before.name}  ->  {found.after.name}", style="bold"),
        Text(f"{found.provider.name}, {runtime}, {found.environment['processor']}", style="dim"),
    ]
    if found.provider.note:
        lines.append(Text(found.provider.note, style="dim"))
    if found.provider.name == CUDA:
        tf32 = "on, ONNX Runtime's default" if found.settings["tf32_latency"] else "off"
        device = found.environment["device"] or "CUDA device"
        lines.append(Text(f"{device}; TF32: latency {tf32}; agreement off", style="dim"))
    return lines


def counts(found: Comparison) -> Table:
    """What is the same in every run, a row each, with its source."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    table.add_column("before", justify="right", no_wrap=True)
    table.add_column("after", justify="right", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    at = condition_sizes(found.counted_at)
    table.add_column(f"counted at {at}" if at else "", overflow="fold")
    before, after = found.before, found.after
    _count(table, "nodes", Counted(before.nodes, after.nodes, "in the file, no constants"))
    _count(table, "depth in layers", Counted(before.depth, after.depth, "longest chain"))
    _count(table, "node dispatches", found.dispatches)
    kernels = (found.kernels_before, found.kernels_after)
    source = next((k.source for k in kernels if k.count is None), kernels[1].source)
    _count(table, "kernel launches", Counted(kernels[0].count, kernels[1].count, source))
    _count(table, "peak activations", found.peak_profile, size)
    _count(table, "", found.peak_estimate, size)
    _count(table, "peak device memory", found.peak_device, size)
    return table


def _count(table: Table, name: str, number: Counted, show: object = None) -> None:
    """A row: numbers where they are known, and who counted."""
    words = size if show is size else str
    cells = ["-" if value is None else words(value) for value in (number.before, number.after)]
    change = ""
    if number.before and number.after is not None:
        percent = 100 * (number.after - number.before) / number.before
        change = f"{percent:+.0f}%" if number.after != number.before else "="
    source = number.source.replace("ONNX Runtime", "ORT")
    table.add_row(name, *cells, change, Text(source, style="dim"))


def size(count: int) -> str:
    """Bytes for people.

    >>> size(16384), size(900)
    ('16.0 KiB', '900 B')
    """
    if count < 1024:
        return f"{count} B"
    number, unit = count / 1024, "KiB"
    for larger in ("MiB", "GiB"):
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{number:.1f} {unit}"


def condition_sizes(dims: Sequence[tuple[str, int]]) -> str:
    """`batch=32, seq=8`."""
    return ", ".join(f"{name}={number}" for name, number in dims)


def time_text(microseconds: float) -> str:
    """A time for people, three digits.

    >>> time_text(13.14), time_text(1234), time_text(2.5e6)
    ('13.1 us', '1.23 ms', '2.5 s')
    """
    for limit, divisor, unit in ((1e3, 1, "us"), (1e6, 1e3, "ms")):
        if microseconds < limit:
            return f"{_three(microseconds / divisor)} {unit}"
    return f"{_three(microseconds / 1e6)} s"


def _three(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def latencies(rows: Sequence[LatencyRow]) -> Table:
    """Single runs, the speed-up over pairs, and the noise floor; three lines a condition."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("latency", no_wrap=True)
    for title in ("p50", "p95", "p99"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("speed-up [95% interval]")
    for row in rows:
        words, style = SPEEDS[row.verdict]
        found, floor = row.speedup, row.floor
        label = condition_label(row.dims, row.threads, row.cuda_graph)
        many = f", {row.processes} processes" if row.processes > 1 else ""
        ratio = f"{found.ratio:.2f}x [{found.low:.2f}, {found.high:.2f}]"
        table.add_row(
            Text(label + many), "", "", "", Text(f"{ratio}, {found.pairs} pairs", style=style)
        )
        noise = f"A/A   [{floor.low:.2f}, {floor.high:.2f}]"
        for name, times, text in (
            ("  before", row.before, Text(noise, style="dim")),
            ("  after", row.after, Text(words, style=style)),
        ):
            cells = [time_text(value) for value in (times.p50_us, times.p95_us, times.p99_us)]
            table.add_row(name, *cells, text)
    return table


def colds(rows: Sequence[LatencyRow]) -> Text:
    """Cold start at the first condition: opening a session does not depend on sizes."""
    before, after = rows[0].cold_before, rows[0].cold_after
    return Text(
        f"cold start: session {_ms(before.create_ms)} -> {_ms(after.create_ms)}, "
        f"first run {_ms(before.first_run_ms)} -> {_ms(after.first_run_ms)} "
        "(median)",
        style="dim",
    )


def _ms(milliseconds: float) -> str:
    return time_text(milliseconds * 1e3)


def paths(rows: Sequence[PathRow]) -> Table:
    """Critical path beside the time of all nodes and the wall time."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("critical path", no_wrap=True)
    for title in ("layers", "slowest nodes", "all nodes", "wall p50"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(Text(condition_label(row.dims, row.threads, False)))
        for name, path, wall in (
            ("  before", row.before, row.wall_before_us),
            ("  after", row.after, row.wall_after_us),
        ):
            times = [time_text(path.critical_us), time_text(path.nodes_us)]
            cells = [str(path.layers), *times, "-" if wall is None else time_text(wall)]
            table.add_row(name, *cells)
    return table


def path_note(rows: Sequence[PathRow]) -> Text:
    """What the times of the nodes are."""
    source = dict.fromkeys(path.source for row in rows for path in (row.before, row.after))
    return Text(
        f"{'; '.join(source)}.\nThe profiler itself adds time to every node: compare these times "
        "with each other, not with the wall.",
        style="dim",
    )


def agreement(found: Comparison) -> Text:
    """One line: how the outputs compare."""
    said = found.agreement
    words, style = VERDICTS[said.verdict]
    text = Text("agreement  ").append(words, style=style)
    text.append(f", {said.checks} runs, {len(said.outputs)} output(s)", style="dim")
    if said.reason:
        text.append(f" ({said.reason})", style="dim")
    return text


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
        numbers = [
            "-" if value is None else f"{value:.1e}" for value in (output.max_abs, output.max_rel)
        ]
        numbers.append("-" if output.max_ulp is None else str(output.max_ulp))
    noise = "-" if output.noise_abs is None else f"{output.noise_abs:.1e}"
    argmax = "-" if rank is None else share(rank.argmax)
    top5 = "-" if rank is None or rank.top5 is None else share(rank.top5)
    cells = [Text(f"  {output.name}"), *(Text(number, style=style) for number in numbers)]
    return [*cells, Text(noise, style="dim"), Text(argmax), Text(top5)]


def share(part: float) -> str:
    """A share in percent, never rounded up to all of it.

    >>> share(1.0), share(0.99999), share(0.5)
    ('100%', '99.9%', '50.0%')
    """
    return "100%" if part == 1 else f"{min(99.9, 100 * part):.1f}%"


def placement(name: str, placed: Placement) -> Text:
    """Which provider ran how many nodes, and which nodes are on the CPU."""
    parts = [f"{count} on {provider}" for provider, count in placed.nodes_per_provider.items()]
    text = Text(f"{name}: {', '.join(parts)}, {placed.copies} copies between devices", style="dim")
    if placed.cpu_nodes:
        shown = placed.cpu_nodes[:SHOWN_NODES]
        names = ", ".join(f"{node} ({op})" for node, op in shown)
        rest = len(placed.cpu_nodes) - len(shown)
        more = f" and {rest} more" if rest else ""
        text.append(f"; on the CPU: {names}{more}", style="yellow")
    return text


def gate_line(result: GateResult) -> Text:
    """How one gate fared."""
    if result.failed:
        return Text(f"gate failed: {result.gate}: {result.message}", style="bold red")
    return Text(f"gate held: {result.gate}", style="green")


def to_text(found: Comparison, gates: Iterable[GateResult] = (), width: int = 80) -> str:
    """The comparison as plain text."""
    console = Console(width=width, no_color=True, force_terminal=False, highlight=False)
    with console.capture() as capture:
        console.print(render(found, gates))
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"
