"""The report of a merge for a terminal: what went in, what came out, and what that bought."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from onnx_sched.report import merge_words, text
from onnx_sched.report.data import Report
from onnx_sched.report.harmless import harmless
from onnx_sched.report.headline import headline, speed, why_unchanged
from onnx_sched.report.merge_data import MergeReport

OUTPUTS = 8
"""Outputs whose origin is told, unless all are asked for."""


def shown(report: Report, verbose: bool = False) -> RenderableType:
    """The report of any run that makes a model: that of a merge as here, others as ever.

    Args:
        report: The run.
        verbose: Whether every reason and every output is shown.
    """
    if isinstance(report, MergeReport):
        return render(report, verbose)
    return text.render(report, verbose)


def to_text(report: Report, width: int = 120) -> str:
    """Likewise as plain text."""
    return text.plain(shown(report), width)


def render(report: MergeReport, verbose: bool = False) -> RenderableType:
    """The report of a merge."""
    parts: list[RenderableType] = [*_top(report), Text(), _sides(report), text.numbers(report)]
    if report.latency:
        parts += [Text(), text.latencies(report.latency)]
    parts += [Text(), text.agreement(report), *_origins(report, verbose)]
    if report.groups:
        parts += [Text(), text.batched(report.groups), *_batching(report)]
    if report.refusals:
        hint = f"`onnx-sched explain {report.refusals[0].code}` says what a code means"
        parts += [Text(), text.left_alone(report.refusals, verbose), Text(hint, style="dim")]
    parts += [Text(harmless(n, text.WORDS), style="yellow") for n in report.notes]
    return Group(*parts)


def _top(report: MergeReport) -> list[RenderableType]:
    """The files, who ran them, what became of them, and what that bought."""
    merge = report.merge
    files = f"{report.model} -> {merge.output}   opset {report.opset}, IR {report.ir_version}"
    parts: list[RenderableType] = [Text(harmless(files, text.WORDS), style="bold")]
    if report.target:
        parts.append(Text(harmless(text.aim(report), text.WORDS)))
    if report.provider_note or report.provider:
        words = f"provider {report.provider} {text.note(report.provider_note)}"
        parts.append(Text(harmless(words.rstrip(), text.WORDS), style="dim"))
    why = "" if merge.batched else f" {why_unchanged(report)}"
    found = headline(report)
    line = f"{found.line}." if report.latency else "Speed was not measured."
    return [
        *parts,
        Text(f"{merge_words.sentence(report)}.{why}"),
        Text(line, text.TONES[found.tone]),
    ]


def _sides(report: MergeReport) -> Text:
    """What the tables compare."""
    return Text(harmless(merge_words.sides(report.merge), text.WORDS), style="dim")


def _origins(report: MergeReport, verbose: bool) -> list[RenderableType]:
    """What each output was held against, a line each."""
    if not report.checks:
        return []
    rows = report.merge.outputs
    most = len(rows) if verbose else OUTPUTS
    lines = [
        f"  {row.name} is {row.of}, run by itself: {text.VERDICTS[row.verdict][0]}"
        for row in rows[:most]
    ]
    if len(rows) > most:
        lines.append(f"  and {len(rows) - most} more outputs; -v shows all")
    return [Text(harmless(line, text.WORDS), style="dim") for line in lines]


def _batching(report: MergeReport) -> list[RenderableType]:
    """What batching bought by itself; nothing where it was not raced."""
    rows = report.merge.batching
    if not rows:
        return []
    words = f"batching alone: {speed(rows)[1]} (the merged model with it, against the same without)"
    return [Text(words, style="dim")]
