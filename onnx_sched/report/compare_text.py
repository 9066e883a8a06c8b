"""A comparison for the terminal: one screen, 80 columns wide or more, no ratio without its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from onnx_sched.judge.comparison import Comparison, Counted, Placement
from onnx_sched.judge.gates import GateResult
from onnx_sched.judge.ortlib import CPU, CUDA
from onnx_sched.report.compare_parts import (
    SPEEDS,
    VERDICTS,
    agreement,
    latencies,
    outputs,
    paths,
    safe,
)

SHOWN_NODES = 5
FILE_CELLS = 60


def render(found: Comparison, gates: Iterable[GateResult] = ()) -> RenderableType:
    """The whole comparison."""
    parts: list[RenderableType] = [*head(found), summary(found), Text(), counts(found)]
    if found.latency:
        parts += [Text(), latencies(found)]
    if found.paths:
        parts += [Text(), paths(found.paths)]
    parts += [Text(), agreement(found)]
    if found.agreement.outputs:
        parts.append(outputs(found))
    for name, placed in (("before", found.placement_before), ("after", found.placement_after)):
        if placed is not None and found.provider.name != CPU:
            parts.append(placement(name, placed))
    parts += [Text(safe(note), style="yellow") for note in found.notes]
    parts += gate_lines(gates)
    return Group(*parts)


def head(found: Comparison) -> list[Text]:
    """What is compared, and where."""
    versions = found.environment["packages"]
    runtime = ", ".join(f"{n} {v}" for n, v in versions.items() if n.startswith("onnxruntime"))
    names = [safe(model.name, FILE_CELLS) for model in (found.before, found.after)]
    lines = [
        Text("  ->  ".join(names), style="bold"),
        Text(f"{found.provider.name}, {runtime}, {found.environment['processor']}", style="dim"),
    ]
    if found.provider.note:
        lines.append(Text(safe(found.provider.note), style="dim"))
    if found.provider.name == CUDA:
        tf32 = "on, ONNX Runtime's default" if found.settings["tf32_latency"] else "off"
        device = found.environment["device"] or "CUDA device"
        lines.append(Text(f"{device}; TF32: latency {tf32}; agreement off", style="dim"))
    return lines


def summary(found: Comparison) -> Text:
    """The answer in one line: do the outputs agree, and where is it faster or slower?"""
    words, style = VERDICTS[found.agreement.verdict]
    text = Text("outputs ").append(words, style=style)
    for verdict, (word, colour) in SPEEDS.items():
        labels = [safe(row.label) for row in found.latency if row.verdict == verdict]
        if not labels:
            continue
        words = "no significant difference in speed" if verdict == "not_significant" else word
        text.append("; ").append(words, colour)
        text.append(" at every condition" if len(labels) == len(found.latency) else _at(labels))
    return text if found.latency else text.append("; nothing was timed", style="yellow")


def _at(labels: Sequence[str]) -> str:
    return f" at {' and at '.join(labels)}"


def counts(found: Comparison) -> Table:
    """What is the same in every run, a row each, with its source."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    table.add_column("before", justify="right", no_wrap=True)
    table.add_column("after", justify="right", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    at = safe(", ".join(f"{name}={number}" for name, number in found.counted_at))
    table.add_column(Text(f"counted at {at}" if at else ""), overflow="fold")
    before, after = found.before, found.after
    _count(table, "nodes", Counted(before.nodes, after.nodes, "in the file, no constants"))
    _count(table, "depth in layers", Counted(before.depth, after.depth, "longest chain"))
    _count(table, "node dispatches", found.dispatches)
    kernels = (found.kernels_before, found.kernels_after)
    source = next((k.source for k in kernels if k.count is None), kernels[1].source)
    _count(table, "kernel launches", Counted(kernels[0].count, kernels[1].count, source))
    _count(table, "peak activations", found.peak_profile, size)
    _count(table, "static live set", found.peak_estimate, size)
    _count(table, "device memory peak", found.peak_device, size)
    return table


def _count(
    table: Table, name: str, number: Counted, words: Callable[[int], str] = "{:,}".format
) -> None:
    """A row: numbers where they are known, and who counted."""
    cells = ["-" if value is None else words(value) for value in (number.before, number.after)]
    change = ""
    if number.before and number.after is not None:
        percent = 100 * (number.after - number.before) / number.before
        change = f"{percent:+.0f}%" if number.after != number.before else "="
    source = safe(number.source.replace("ONNX Runtime", "ORT"))
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


def placement(name: str, placed: Placement) -> Text:
    """Which provider ran how many nodes, and which nodes are on the CPU."""
    parts = [f"{count} on {provider}" for provider, count in placed.nodes_per_provider.items()]
    copies = f"{placed.copies} cop{'y' if placed.copies == 1 else 'ies'} between devices"
    text = Text(f"{name}: {', '.join([*parts, copies])}", style="dim")
    if placed.cpu_nodes:
        shown = placed.cpu_nodes[:SHOWN_NODES]
        names = ", ".join(f"{safe(node, 60)} ({safe(op, 30)})" for node, op in shown)
        rest = len(placed.cpu_nodes) - len(shown)
        more = f" and {rest} more" if rest else ""
        text.append(f"; on the CPU: {names}{more}", style="yellow")
    return text


def gate_lines(results: Iterable[GateResult]) -> list[Text]:
    """How the gates fared: a line for each that failed, and one for all that held."""
    found = list(results)
    lines = [
        Text(f"gate failed: {result.gate}: {safe(result.message)}", style="bold red")
        for result in found
        if result.failed
    ]
    held = ", ".join(str(result.gate) for result in found if not result.failed)
    return [*lines, Text(f"gates held: {held}", style="green")] if held else lines


def to_text(found: Comparison, gates: Iterable[GateResult] = (), width: int = 80) -> str:
    """The comparison as plain text."""
    console = Console(width=width, no_color=True, force_terminal=False, highlight=False)
    with console.capture() as capture:
        console.print(render(found, gates))
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"
