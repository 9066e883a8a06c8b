"""Do two models pick the same winner? For outputs that look like scores: floats, last axis 2 or longer.

Differences within tolerance may still turn the order of two scores that lie close; differences beyond it
may change nothing that anybody reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnx_sched.judge.runtime import RuntimeRefused, open_session, run

Array = np.ndarray[Any, Any]
Counts = tuple[int, int, int, int]

TOP = 5


@dataclass(frozen=True, slots=True)
class Ranking:
    """How often two models agree on the best of one output.

    Attributes:
        name: Name of the output.
        rows: Rows along the last axis that were compared.
        argmax: Share of the rows with the same best element; of equal elements, any is the best.
        top5: Share of the five best of the original that are among the five best of the other model;
            None if the last axis is not longer than five.
    """

    name: str
    rows: int
    argmax: float
    top5: float | None


def rankings(
    before: Path,
    after: Path,
    feeds: Sequence[Mapping[str, Any]],
    provider: str,
    skip: Collection[str] = (),
) -> tuple[Ranking, ...]:
    """Compare the order of scores, with the settings under which outputs are compared.

    Inputs that a model does not run are left out: whether the outputs agree is said elsewhere.

    Args:
        before: The original.
        after: The other model.
        feeds: Inputs.
        provider: Full name of the execution provider.
        skip: Outputs to leave out: random ones have no order.
    """
    counted: dict[str, list[Counts]] = {}
    try:
        sessions = [open_session(model, provider, exact=True) for model in (before, after)]
    except RuntimeRefused:
        return ()
    for fed in feeds:
        try:
            ref, got = (run(session, fed) for session in sessions)
        except RuntimeRefused:
            continue
        for name in ref:
            counts = None if name in skip else count_alike(ref[name], got.get(name))
            if counts is not None:
                counted.setdefault(name, []).append(counts)
    return tuple(_sum_up(name, rows) for name, rows in counted.items())


def count_alike(ref: Any, got: Any) -> Counts | None:
    """(rows, rows with the same best, members of the top five, those of them in both).

    None for what is no score: other types, one element a row, other shapes, or numbers that are not finite.

    >>> count_alike(np.array([[0.1, 0.9], [0.7, 0.3]]), np.array([[0.2, 0.8], [0.4, 0.6]]))
    (2, 1, 0, 0)
    """
    if not isinstance(ref, np.ndarray) or not isinstance(got, np.ndarray):
        return None
    if not _scores(ref) or ref.shape != got.shape:
        return None
    left = ref.reshape(-1, ref.shape[-1]).astype(np.float64)
    right = got.reshape(-1, got.shape[-1]).astype(np.float64)
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        return None
    picked = np.take_along_axis(left, right.argmax(axis=1)[:, None], axis=1)[:, 0]
    same = int(np.count_nonzero(picked == left.max(axis=1)))
    rows, width = left.shape
    if width <= TOP:
        return rows, same, 0, 0
    best = np.argpartition(-right, TOP - 1, axis=1)[:, :TOP]
    # By value, not by place: elements that tie with the fifth are as good as it.
    fifth = np.partition(left, width - TOP, axis=1)[:, width - TOP]
    shared = int(np.count_nonzero(np.take_along_axis(left, best, axis=1) >= fifth[:, None]))
    return rows, same, rows * TOP, shared


def _scores(array: Array) -> bool:
    floats = array.dtype.kind == "f" or array.dtype.name in ("bfloat16", "float16")
    return floats and array.ndim > 0 and array.shape[-1] > 1 and array.size > 0


def _sum_up(name: str, counts: Sequence[Counts]) -> Ranking:
    rows, same, members, shared = (sum(column) for column in zip(*counts, strict=True))
    return Ranking(name, rows, same / rows, shared / members if members else None)
