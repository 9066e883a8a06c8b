"""Remarks beside the numbers of a report: what is counted, and why one that grew was accepted."""

from __future__ import annotations

from onnx_sched.objections import GROWTH
from onnx_sched.report.data import Report

FUSED = "after ORT's own fusions"


def dispatched(report: Report) -> str:
    """What is counted as a dispatch; there can be more than nodes in the file, and then it says why.

    The runtime adds changes of layout (ReorderInput, ReorderOutput) around convolutions that it runs in
    blocks, and copies or casts where a node's device or type asks for them; a body counts each time it
    runs.
    """
    counts = (
        (report.dispatches.before, report.nodes.before),
        (report.dispatches.after, report.nodes.after),
    )
    more = any(ran is not None and there is not None and ran > there for ran, there in counts)
    return f"{FUSED}; with layout nodes it adds, and loop rounds" if more else FUSED


def peaked(report: Report) -> str:
    """Who counted the bytes, and the allowance if there are more of them."""
    before, after = report.peak.before, report.peak.after
    if before is None or after is None or not before < after <= before + GROWTH:
        return report.peak_source
    return f"{GROWTH >> 20} MiB more are always allowed; {report.peak_source}"


def in_full(remark: str) -> str:
    """A remark for a page, where there is room for the runtime's whole name.

    >>> in_full("after ORT's own fusions")
    "after ONNX Runtime's own fusions"
    """
    return remark.replace("ORT", "ONNX Runtime")
