"""The report as one page: a file of its own, without scripts, that asks nobody for anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from onnx_sched.plan import Refusal
from onnx_sched.report import charts, circuit_view, plan_text
from onnx_sched.report.codes import CODES
from onnx_sched.report.curve import curve
from onnx_sched.report.data import Change, GroupRow, LatencyRow, Report
from onnx_sched.report.draw_svg import to_svg
from onnx_sched.report.drawing import Picture
from onnx_sched.report.harmless import harmless
from onnx_sched.report.headline import condition, headline
from onnx_sched.report.layer_table import layer_rows
from onnx_sched.report.layout import MAX_LAYERS, MAX_WIRES
from onnx_sched.report.machine import machine
from onnx_sched.report.remarks import dispatched, in_full, peaked
from onnx_sched.report.scene import ASSUMED, Scene
from onnx_sched.report.text import VERDICTS, folded, percent, size, speed_words

WIDTH = 1010
"""Pixels of a circuit: the width of the page's column."""

CIRCUIT = 90_000
"""Bytes of a circuit; a larger one is drawn up to fewer layers, and says so."""

FEWEST = 12
"""Layers, and wires, that are drawn in any case."""

ROWS, NAMES, NAME = 60, 8, 60
"""Rows of a table, names in a row, cells of a name that are shown; the rest is counted."""

_ENVIRONMENT = Environment(
    loader=PackageLoader("onnx_sched.report", "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def to_html(scene: Scene, command: str = "") -> str:
    """The report as a page.

    Args:
        scene: The run.
        command: How it was asked for.
    """
    report = scene.report
    layers = layer_rows(scene)
    return _ENVIRONMENT.get_template("report.html.j2").render(
        report=report,
        changed=scene.after is not None,
        model=harmless(report.model, 120),
        head=headline(report),
        tiles=_tiles(scene),
        latency=_latency(report.latency),
        circuits=_circuits(scene),
        verdict=VERDICTS[report.verdict][0],
        outputs=[_output(o) for o in report.outputs[:ROWS]],
        more_outputs=max(0, len(report.outputs) - ROWS),
        batched=_batched(report.groups)[:ROWS],
        more_batched=max(0, len(_batched(report.groups)) - ROWS),
        regions=_regions(report)[:ROWS],
        more_regions=max(0, len(_regions(report)) - ROWS),
        profile=next((r.profile for r in report.regions), ""),
        refusals=_refusals(report.refusals),
        layers=layers[: 2 * ROWS],
        repeats=any(row.times > 1 for row in layers),
        more_layers=max(0, len(layers) - 2 * ROWS),
        memory=_memory(scene),
        machine=machine(report.provider, report.provider_note),
        command=harmless(command, 4000),
    )


@dataclass(frozen=True, slots=True)
class _Names:
    """The first of many names, and how many more there are."""

    shown: tuple[str, ...]
    more: int


def _names(names: Sequence[str]) -> _Names:
    shown = tuple(harmless(n, NAME) or "?" for n in names[:NAMES])
    return _Names(shown, max(0, len(names) - NAMES))


def _tiles(scene: Scene) -> list[dict[str, str]]:
    """The numbers that are compared first."""
    report = scene.report
    rows = (
        ("Nodes", report.nodes, False, "in the file"),
        ("Launches", report.dispatches, False, f"per run, {in_full(dispatched(report))}"),
        ("Depth", report.depth, False, "parallel layers"),
        ("Peak memory", report.peak, True, f"activations; {in_full(peaked(report))}"),
    )
    return [_tile(*row) for row in rows if row[1].before is not None and row[1].after is not None]


def _tile(title: str, change: Change, is_bytes: bool, below: str) -> dict[str, str]:
    before, after = change.before or 0, change.after or 0
    show = size if is_bytes else str
    tone = "good" if after < before else "warn" if after > before else "plain"
    return {
        "title": title,
        "before": show(before) if before != after else "",
        "after": show(after),
        "percent": percent(before, after).replace("-", "\N{MINUS SIGN}"),
        "tone": tone,
        "below": below,
    }


def _latency(rows: Sequence[LatencyRow]) -> list[dict[str, Any]]:
    longest = charts.reach(rows)
    tones = {"green": "good", "red": "bad", "yellow": "plain"}
    return [
        {
            "condition": harmless(condition(row), 80),
            "ratio": f"{row.speedup:.2f}x",
            "interval": f"{row.ci_low:.2f} to {row.ci_high:.2f}",
            "tone": tones[speed_words(row)[0]],
            "word": speed_words(row)[1].lower(),
            "before": _time(row.before_us),
            "after": _time(row.after_us),
            "pairs": row.pairs,
            "bars": Markup(charts.bars(row, longest)),
        }
        for row in rows
    ]


def _time(microseconds: float) -> str:
    """A time for people.

    >>> _time(12.34), _time(2500.0)
    ('12.3 \N{MICRO SIGN}s', '2.50 ms')
    """
    if microseconds < 1000:
        return f"{microseconds:.1f} \N{MICRO SIGN}s"
    return f"{microseconds / 1000:.2f} ms"


def _circuits(scene: Scene) -> list[dict[str, Any]]:
    title = "Before" if scene.after is not None else "As it is"
    pictures = [(title, circuit_view.before(scene.before))]
    if scene.after is not None:
        pictures.append(("After", circuit_view.after(scene.after, scene.before)))
    return [{"title": title, "svg": Markup(small(p))} for title, p in pictures]


def small(picture: Picture, most: int = CIRCUIT) -> str:
    """A drawing of at most so many bytes: layers at the end, then wires, are left out, and it says so.

    Repeats, which stay whole when layers are left out, are folded as long as that is small enough.
    """
    layers, wires, fold = min(MAX_LAYERS, picture.layers), min(MAX_WIRES, picture.wires), True
    while True:
        svg = to_svg(
            picture, width=WIDTH, fold=fold, max_layers=max(1, layers), max_wires=max(1, wires)
        )
        share = 0.9 * most / max(1, len(svg.encode()))
        if share >= 0.9:
            return svg
        if layers > FEWEST:
            layers = max(FEWEST, int(layers * share))
        elif fold:
            fold = False
        elif wires > FEWEST:
            wires = max(FEWEST, int(wires * share))
        else:
            return svg


def _output(row: Any) -> dict[str, str]:
    def number(value: float | None) -> str:
        return "\N{EN DASH}" if value is None else f"{value:.1e}" if value else "0"

    return {
        "name": harmless(row.name, NAME),
        "bitwise": "yes" if row.bitwise else "no",
        "abs": number(row.max_abs),
        "rel": number(row.max_rel),
        "ulp": "\N{EN DASH}" if row.max_ulp is None else str(row.max_ulp),
    }


def _batched(groups: Sequence[GroupRow]) -> list[dict[str, Any]]:
    """What became one node; like groups in one row."""
    return [
        {
            "times": count,
            "size": group.size,
            "op_type": harmless(group.op_type, NAME),
            "form": group.manner,
            "names": _names(group.named),
        }
        for count, group in folded(groups)
    ]


def _regions(report: Report) -> list[dict[str, Any]]:
    """What each region becomes; alike ones in one row."""
    return [
        {
            "label": plan_text.numbers(block.regions).removeprefix("region "),
            "lanes": block.regions[0].lanes,
            "groups": block.regions[0].groups,
            "before": block.regions[0].before,
            "after": block.regions[0].after,
            "glue": plan_text.glue(block.regions[0]),
            "gain": plan_text.gains(block.regions[0]),
        }
        for block in plan_text.alike(report)
    ]


def _refusals(refusals: Sequence[Refusal]) -> list[dict[str, Any]]:
    """What was left alone: a block for each code, with its reasons."""
    by_code: dict[str, list[Refusal]] = {}
    for refusal in refusals:
        by_code.setdefault(refusal.code, []).append(refusal)
    found = []
    for code, given in by_code.items():
        known = CODES.get(code)
        found.append(
            {
                "code": code,
                "title": known.title if known else "",
                "advice": known.advice if known else "",
                "count": sum(len(r.nodes) for r in given),
                "reasons": [
                    {"words": harmless(r.reason, 300), "names": _names(r.nodes)}
                    for r in given[:ROWS]
                ],
                "more": max(0, len(given) - ROWS),
            }
        )
    return found


def _measured(peak: Change) -> str:
    if peak.before is None or peak.after is None:
        return ""
    return f"{size(peak.before)} before and {size(peak.after)} after"


def _memory(scene: Scene) -> dict[str, Any]:
    """The curves before and after, on one scale."""
    sizes = scene.sizes()
    sides = [("before", scene.before)] + ([("after", scene.after)] if scene.after else [])
    curves = [(side, curve(analysis, sizes, ASSUMED)) for side, analysis in sides]
    most = max((c.peak for _, c in curves), default=0)
    shown = ", ".join(f"{name}={value}" for name, value in sizes.items())
    return {
        "sizes": harmless(shown, 120) or f"open sizes taken as {ASSUMED}",
        "measured": _measured(scene.report.peak),
        "curves": [
            {
                "side": side,
                "peak": size(c.peak),
                "nodes": len(c.live),
                "at": c.at + 1,
                "name": harmless(c.names[c.at], NAME) if c.names else "",
                "unknown": c.unknown,
                "svg": Markup(charts.area(c, most, side)),
            }
            for side, c in curves
        ],
    }
