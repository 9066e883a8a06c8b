"""What `plan` prints: region by region what would be done, at what price, and what it should gain."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from onnx_sched.plan import Refusal
from onnx_sched.report import text
from onnx_sched.report.codes import short
from onnx_sched.report.data import GroupRow, RegionRow, Report
from onnx_sched.report.fitted import Names
from onnx_sched.report.harmless import harmless
from onnx_sched.report.headline import condition

BLOCKS = 12
"""Regions that are shown, alike ones counted once."""


def render(report: Report, verbose: bool = False) -> RenderableType:
    """The whole plan.

    Args:
        report: The run.
        verbose: Whether every region and every reason is shown.
    """
    parts: list[RenderableType] = text.top(report, "would become")
    if report.groups:
        parts += [Text(), text.numbers(report)]
    if report.latency:
        parts += [Text(), text.latencies(report.latency)]
    if report.groups or report.verdict == "unvalidated":
        parts += [Text(), text.agreement(report)]
    blocks = alike(report)
    most = len(blocks) if verbose else BLOCKS
    for block in blocks[:most]:
        parts += [Text(), _block(block)]
    if len(blocks) > most:
        parts += [Text(), Text(f"and {len(blocks) - most} more regions; -v shows all", style="dim")]
    if report.refusals:
        parts += [Text(), *left_alone(report, verbose)]
    parts += [Text(harmless(n, text.WORDS), style="yellow") for n in report.notes]
    return Group(*parts)


@dataclass(frozen=True, slots=True)
class Block:
    """Regions that look alike: all of them, and the groups of the first."""

    regions: tuple[RegionRow, ...]
    groups: tuple[GroupRow, ...]


def alike(report: Report) -> list[Block]:
    """The regions in their order; those that hold the same groups stand with the first of them."""
    groups: dict[int, list[GroupRow]] = {}
    for group in report.groups:
        groups.setdefault(group.region, []).append(group)
    found: dict[Hashable, list[RegionRow]] = {}
    for region in report.regions:
        looks = tuple((g.op_type, g.size, g.manner) for g in groups[region.number])
        key = (looks, bool(region.body), region.before, region.after, region.glue)
        found.setdefault(key, []).append(region)
    return [Block(tuple(rows), tuple(groups[rows[0].number])) for rows in found.values()]


def _block(block: Block) -> RenderableType:
    first = block.regions[0]
    each = " each" if len(block.regions) > 1 else ""
    head = Text.assemble(
        (numbers(block.regions), "bold green"),
        f"   up to {first.lanes} lanes, {_count(first.groups, 'group')}{each}: "
        f"{_count(first.before, 'node')} -> {first.after}",
    )
    if first.body:
        head.append(f"   in the body {harmless(first.body, 60)}", style="dim")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for times, group in text.folded(block.groups):
        table.add_row(Text(text.in_words(group, times)), Names(group.named))
    table.add_row(Text("glue", style="dim"), Text(glue(first)))
    for n, line in enumerate(gains(first)):
        table.add_row(Text("" if n else "expected gain", style="dim"), Text(line))
    return Group(head, Padding(table, (0, 0, 0, 2)))


def glue(region: RegionRow) -> str:
    """What only brings lanes together or takes them apart, and what it is estimated to cost.

    >>> glue(RegionRow(1, "", 2, 1, 2, 1, (), "cpu", ()))
    'none: lanes lie as they are needed'
    """
    if not region.glue:
        return "none: lanes lie as they are needed"
    words = ", ".join(f"{count} {harmless(op, 40)}" for op, count in region.glue)
    if not region.estimates:
        return words
    last = region.estimates[-1]
    at = f" at size {last.size}" if len(region.estimates) > 1 else ""
    return f"{words}: about {last.glue_us:.1f} of {last.after_us:.1f} us{at}"


def gains(region: RegionRow) -> list[str]:
    """What it should bring, a line for each source."""
    return [line for line in (estimated(region), *raced(region)) if line]


def estimated(region: RegionRow) -> str:
    """The gain that the profile expects."""
    ratios = [
        f"{row.before_us / row.after_us:.1f}x"
        + (f" at size {row.size}" if len(region.estimates) > 1 else "")
        for row in region.estimates
        if row.after_us
    ]
    return f"estimated {', '.join(ratios)} (profile {region.profile})" if ratios else ""


def raced(region: RegionRow) -> list[str]:
    """How the region fared by itself, a line for each condition."""
    return [
        f"raced alone {row.speedup:.2f}x [{row.ci_low:.2f}, {row.ci_high:.2f}] "
        f"at {harmless(condition(row), 60)}"
        for row in region.latency
    ]


def left_alone(report: Report, verbose: bool) -> list[RenderableType]:
    """What would stay as it is: by code, by reason, with a few nodes."""
    by_code: dict[str, list[Refusal]] = {}
    for refusal in report.refusals:
        by_code.setdefault(refusal.code, []).append(refusal)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=3)
    table.add_column(ratio=2)
    for code, refusals in by_code.items():
        title = f"{short(code)}" if short(code) else "left alone"
        table.add_row(Text(code, style="bold yellow"), Text(title, style="bold"), "")
        most = len(refusals) if verbose else text.REASONS
        for refusal in refusals[:most]:
            table.add_row("", text.reason(refusal), Names(refusal.nodes))
        if len(refusals) > most:
            more = f"and {len(refusals) - most} more reasons; -v shows all"
            table.add_row("", Text(more, style="dim"), "")
    return [Text("left alone", style="yellow"), Padding(table, (0, 0, 0, 2)), *text.ways_on(report)]


def numbers(regions: Sequence[RegionRow]) -> str:
    """Which regions, in words."""
    if len(regions) == 1:
        return f"region {regions[0].number}"
    numbers = [r.number for r in regions]
    if len(numbers) == 2:
        return f"regions {numbers[0]} and {numbers[1]}, alike"
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"regions {numbers[0]} to {numbers[-1]}, alike"
    more = f" and {len(numbers) - 6} more" if len(numbers) > 6 else ""
    return f"regions {', '.join(map(str, numbers[:6]))}{more}, alike"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
