"""The first thing that a reader wants to know of a report, in one line and one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from onnx_sched.report import merge_words
from onnx_sched.report.codes import short
from onnx_sched.report.data import LatencyRow, Report
from onnx_sched.report.merge_data import MergeReport

Tone = Literal["good", "plain", "bad"]

UNTIMED = "Speed was not measured."


@dataclass(frozen=True, slots=True)
class Headline:
    """The verdict on a run: a line, a sentence below it, and whether that is good news."""

    tone: Tone
    line: str
    below: str


def headline(report: Report) -> Headline:
    """The verdict of a report."""
    if isinstance(report, MergeReport):
        return _merged(report)
    if report.status == "unchanged":
        return Headline("plain", "Left as it is", why_unchanged(report))
    if not report.latency:
        gain = estimated(report) if report.target else ""
        what = f"What is batched is estimated {gain} on {report.target}." if gain else UNTIMED
        return Headline("plain", sizes(report), f"{agreed(report)} {what}")
    tone, words = speed(report.latency)
    return Headline(tone, words, f"{sizes(report)}. {agreed(report)}")


def _merged(report: MergeReport) -> Headline:
    """The verdict on a merge: what it bought against running the models one after another."""
    merge = report.merge
    why = "" if merge.batched else f" {why_unchanged(report)}"
    below = f"{merge_words.sentence(report)}.{why} {_held(report)}"
    if not report.latency:
        line = f"{len(merge.inputs)} models became one"
        return Headline("plain", line, f"{below} Speed was not measured.")
    tone, words = speed(report.latency)
    line = f"{words} than {merge_words.several(merge)}"
    if not words.endswith("x faster"):
        line = f"{words}; against {merge_words.several(merge)}"
    return Headline(tone, line, f"{below} In the tables, {merge_words.sides(merge)}.")


def _held(report: MergeReport) -> str:
    """One sentence on the outputs: each was held against those of the models, run by themselves."""
    if report.verdict == "unvalidated":
        return agreed(report)
    return f"{agreed(report).removesuffix('.')}: merged, against each model run by itself."


def sizes(report: Report, became: str = "became") -> str:
    """How many nodes there were and are."""
    return f"{report.nodes.before} nodes {became} {report.nodes.after}"


def estimated(report: Report) -> str:
    """The gain of all regions together that the profile expects, by size taken for open ones."""
    before: dict[int, float] = {}
    after: dict[int, float] = {}
    for row in (row for region in report.regions for row in region.estimates):
        before[row.size] = before.get(row.size, 0.0) + row.before_us
        after[row.size] = after.get(row.size, 0.0) + row.after_us
    return ", ".join(f"{before[n] / after[n]:.1f}x at size {n}" for n in before if after[n])


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


def why_unchanged(report: Report) -> str:
    """Why nothing was batched, by the reasons that hold for most nodes."""
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
