"""The speed-ups of `scripts.bench_corpus` as a picture, .png or .svg; needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from onnx_sched.judge.measure import Speedup


class Raced(Protocol):
    """What is drawn of a model under one condition."""

    @property
    def model(self) -> str:
        """Its name."""

    @property
    def batch(self) -> int | None:
        """Batch size; None for fixed sizes."""

    @property
    def threads(self) -> int:
        """Number of threads."""

    @property
    def changed(self) -> bool:
        """Whether it was rewritten."""

    @property
    def speedup(self) -> Speedup:
        """Over the original."""


def plot(rows: Sequence[Raced], path: Path) -> None:
    """A dot with its interval for every model that changed, a colour for every condition."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    changed = [r for r in rows if r.changed]
    models = list(dict.fromkeys(r.model for r in changed))
    conditions = list(dict.fromkeys((r.batch, r.threads) for r in changed))
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.45 * len(models)))
    for n, condition in enumerate(conditions):
        here = [r for r in changed if (r.batch, r.threads) == condition]
        shift = 0.8 * ((n + 0.5) / len(conditions) - 0.5)
        middle = np.array([r.speedup.ratio for r in here])
        low = middle - [r.speedup.low for r in here]
        high = [r.speedup.high for r in here] - middle
        axes.errorbar(
            middle,
            [models.index(r.model) + shift for r in here],
            xerr=np.maximum([low, high], 0),
            fmt="o",
            markersize=4,
            capsize=2,
            label=f"batch {condition[0] or 'fixed'}, {condition[1]} thread(s)",
        )
    axes.axvline(1.0, color="gray", linewidth=1)
    axes.set_yticks(range(len(models)), models)
    axes.invert_yaxis()
    axes.set_xlabel("speed-up over the original (median of pairs, 95% interval)")
    if conditions:
        axes.legend(fontsize="small")
    figure.tight_layout()
    # Without a date or random names, the same numbers give the same file.
    mpl.rcParams["svg.hashsalt"] = "onnx-sched"
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
