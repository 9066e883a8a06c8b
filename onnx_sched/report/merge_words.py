"""What a merge came to, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_sched.report.merge_data import Merge, MergeReport

FEW = 4
"""Files, or numbers, that are named one by one; more of them are counted."""


def names(files: Sequence[str]) -> str:
    """The files that were merged.

    >>> names(["a.onnx", "b.onnx"]), names(list("abcdef"))
    ('a.onnx + b.onnx', 'a + b + c + 3 more')
    """
    if len(files) <= FEW:
        return " + ".join(files)
    return " + ".join([*files[: FEW - 1], f"{len(files) - FEW + 1} more"])


def several(merge: Merge) -> str:
    """What the merged model is raced against."""
    return f"the {len(merge.inputs)} models, one after another"


def sentence(report: MergeReport) -> str:
    """How many nodes there were, what was shared, and what batching made of the rest."""
    merge = report.merge
    counts = [row.nodes for row in merge.inputs]
    shared = _shared(merge)
    after = f"after sharing equal weights and computations ({shared})"
    parts = [
        f"Merged {len(counts)} models: {total(counts)} nodes -> {merge.nodes}",
        f" {after}" if shared else "; they have no weights or computations in common",
        f", then batched to {report.nodes.after}" if merge.batched else "; nothing was batched",
    ]
    return "".join(parts)


def total(counts: Sequence[int]) -> str:
    """Numbers of nodes as a sum.

    >>> total([54, 54]), total([9] * 20), total([1, 2, 3, 4, 5])
    ('54 + 54', '20 x 9', '15')
    """
    if len(counts) <= FEW:
        return " + ".join(map(str, counts))
    return f"{len(counts)} x {counts[0]}" if len(set(counts)) == 1 else str(sum(counts))


def _shared(merge: Merge) -> str:
    """What is kept once; empty if nothing is."""
    parts = []
    if merge.weights_once:
        parts.append(
            f"{_many(merge.weights_once, 'weight')} stored once, {merge.bytes_saved:,} bytes less"
        )
    if merge.nodes_once:
        parts.append(f"{_many(merge.nodes_once, 'node')} run once")
    return "; ".join(parts)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def sides(merge: Merge) -> str:
    """What before and after mean in the tables."""
    unjoined = f"; the {merge.join} itself is not in their time" if merge.join != "outputs" else ""
    return (
        f"before: the {len(merge.inputs)} models, a session each, run one after another{unjoined}; "
        f"after: {merge.output or 'the merged model'}"
    )
