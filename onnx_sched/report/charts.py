"""Two small charts as SVG without words in them: the words stand beside, and so fit every screen.

The pictures are stretched to the width that there is; strokes keep their width.  Colours are attributes
and classes: the attribute is for viewers without style sheets, the class lets the page turn it dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from onnx_sched.report.curve import Curve
from onnx_sched.report.data import LatencyRow

WIDE, BAR, CURVE = 1000, 44, 120
"""Units across; units down of the bars, and of a curve."""

POINTS = 400
"""Steps of a curve that are drawn; of more, the highest of each stretch."""

_GREY, _BLUE, _INK = "#a8b0b9", "#0072B2", "#1a1a1a"
_KEEP = 'vector-effect="non-scaling-stroke"'


def reach(rows: Sequence[LatencyRow]) -> float:
    """The longest bar or whisker of all rows, in runs of the original."""
    return max([1.0, *(1 / max(r.ci_low, 1e-3) for r in rows)])


def bars(row: LatencyRow, longest: float) -> str:
    """Two bars: the original's time, and the new time in proportion, with its 95% interval.

    Args:
        row: The measurement.
        longest: What fills the whole width, in runs of the original.
    """
    unit = WIDE / longest * 0.98
    after = unit / max(row.speedup, 1e-3)
    low, high = unit / max(row.ci_high, 1e-3), unit / max(row.ci_low, 1e-3)
    tall, mid = 16, BAR - 10
    return (
        f'<svg class="chart" viewBox="0 0 {WIDE} {BAR}" width="100%" height="{BAR}" '
        'preserveAspectRatio="none" role="img" aria-hidden="true">'
        f'<rect class="c-before" x="0" y="2" width="{unit:.1f}" height="{tall}" rx="2" '
        f'fill="{_GREY}"/>'
        f'<rect class="c-after" x="0" y="{mid - tall / 2:.0f}" width="{after:.1f}" '
        f'height="{tall}" rx="2" fill="{_BLUE}"/>'
        f'<path class="c-whisker" d="M{low:.1f} {mid}H{high:.1f}M{low:.1f} {mid - 5}v10'
        f'M{high:.1f} {mid - 5}v10" fill="none" stroke="{_INK}" stroke-width="1.5" {_KEEP}/>'
        "</svg>"
    )


def area(curve: Curve, most: int, side: str) -> str:
    """What is alive over the schedule, as a filled step curve.

    Args:
        curve: What is alive.
        most: What fills the whole height, in bytes.
        side: "before" or "after": says the colour.
    """
    heights = thinned(curve.live)
    step = WIDE / max(1, len(heights))
    ys = [CURVE - (CURVE - 4) * live / max(1, most) for live in heights]
    path = f"M0 {CURVE}"
    last = None
    for n, y in enumerate(ys):
        if y != last:
            path += f"L{n * step:.1f} {ys[n - 1] if n else CURVE:.1f}V{y:.1f}"
        last = y
    path += f"H{WIDE}V{CURVE}Z"
    at = (curve.at + 0.5) / max(1, len(curve.live)) * WIDE
    color = _GREY if side == "before" else _BLUE
    return (
        f'<svg class="chart" viewBox="0 0 {WIDE} {CURVE}" width="100%" height="{CURVE}" '
        'preserveAspectRatio="none" role="img" aria-hidden="true">'
        f'<path class="c-{side}" d="{path}" fill="{color}"/>'
        f'<path class="c-whisker" d="M{at:.1f} 0V{CURVE}" stroke="{_INK}" stroke-width="1" '
        f'stroke-dasharray="3 3" {_KEEP}/>'
        f'<path class="c-axis" d="M0 {CURVE}H{WIDE}" stroke="{_INK}" stroke-width="1" {_KEEP}/>'
        "</svg>"
    )


def thinned(live: Sequence[int], points: int = POINTS) -> tuple[int, ...]:
    """At most so many heights; each is the highest of its stretch, so that no peak is lost.

    >>> thinned([1, 5, 2, 3], 2)
    (5, 3)
    """
    if len(live) <= points:
        return tuple(live)
    edges = [round(n * len(live) / points) for n in range(points + 1)]
    return tuple(max(live[a:b]) for a, b in pairwise(edges))
