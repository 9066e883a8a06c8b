"""The first thing that a reader wants to know of a report, in one line and one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from onnx_sched.report.codes import short
from onnx_sched.report.data import LatencyRow, Report

Tone = Literal["good", "plain", "bad"]


@dataclass(frozen=True, slots=True)
class Headline:
    """The verdict on a run: a line, a sentence below it, and whether that is good news."""

    tone: Tone
    line: str
    below: str


def headline(report: Report) -> Headline:
    """The verdict of a report."""
    if report.status == "unchanged":
        return Headline("plain", "Left as it is", _why_unchanged(report))
    if not report.latency:
        return Headline("plain", sizes(report), f"{agreed(report)} Speed was not measured.")
    tone, words = speed(report.latency)
    return Headline(tone, words, f"{sizes(report)}. {agreed(report)}")


def sizes(report: Report, became: str = "became") -> str:
    """How many nodes there were and are."""
    return f"{report.nodes.before} nodes {became} {report.nodes.after}"


def speed(rows: Sequence[LatencyRow]) -> tuple[Tone, str]:
    """What the races say, never more than their intervals: (tone, words)."""
    slower = [r for r in rows if r.ci_high < 1]
    faster = [r for r in rows if r.ci_low > 1]
    if slower:
        worst = min(slower, key=lambda r: r.speedup)
        return "bad", f"Slower: {worst.speedup:.2f}x at {condition(worst)}"
    if not faster:
        return "plain", "No measurable difference"
    low, high = min(r.speedup for r in faster), max(r.speedup for r in faster)
    if len(faster) < len(rows):
        many = f"{len(faster)} of {len(rows)}"
        return "good", f"Up to {high:.2f}x faster, in {many} conditions; slower in none"
    same = f"{low:.2f}" == f"{high:.2f}"
    return "good", f"{high:.2f}x faster" if same else f"{low:.2f}x to {high:.2f}x faster"


def condition(row: LatencyRow) -> str:
    """Where a race was held."""
    dims = ", ".join(f"{n}={s}" for n, s in row.dims.items()) or "sizes as declared"
    return f"{dims}, {row.threads or 'all'} thread{'' if row.threads == 1 else 's'}"


def agreed(report: Report) -> str:
    """One sentence on the outputs."""
    errors = [o.max_abs for o in report.outputs if o.max_abs is not None]
    runs = f" in {report.checks} runs" if report.checks else ""
    if report.verdict == "bitwise":
        return f"Outputs are equal bit for bit{runs}."
    if report.verdict == "within_tolerance":
        worst = f" (largest difference {max(errors):.1e})" if errors else ""
        return f"Outputs agree within tolerance{runs}{worst}."
    if report.verdict == "mismatch":
        return "Outputs DISAGREE."
    return f"Outputs were not compared: {report.verdict_reason or 'no reason given'}."


def _why_unchanged(report: Report) -> str:
    if not report.refusals:
        return "No independent, alike nodes that are worth batching were found."
    counts = Counter[str]()
    for refusal in report.refusals:
        counts[refusal.code] += len(refusal.nodes)
    parts = [
        f"{count} node{'s' * (count != 1)} {code} ({short(code)})" if count else f"{code}"
        for code, count in counts.most_common(3)
    ]
    return f"Why: {'; '.join(parts)}."
