"""What `--exact` came to, in a sentence."""

from __future__ import annotations

from onnx_sched.plan import Launches, Optimum
from onnx_sched.report.data import ExactRow

STOPPED = {
    "time": "stopped by --time-limit",
    "clock": "stopped by the clock at --time-limit: another run may get further",
    "size": "too large to prove",
}


def sentence(row: ExactRow) -> str:
    """What the search found, how far that is proved, and what became of it."""
    found = row.optimum
    where = f" in the body {row.body}" if row.body else ""
    return f"--exact{where}: {launches(found.cost)}, {_proof(found)}; {_fate(found)}"


def launches(count: Launches) -> str:
    """A number of launches.

    >>> launches(Launches(1, 20))
    '1 heavy and 20 light launches'
    """
    return f"{count.heavy} heavy and {count.light} light launches"


def _proof(found: Optimum) -> str:
    if found.proven:
        return "proven optimal"
    least = f"at least {launches(found.bound)}"
    return f"not proven optimal ({STOPPED[found.stopped]}; {least} must be left)"


def _fate(found: Optimum) -> str:
    if found.taken:
        return f"taken instead of {launches(found.before)}"
    if found.cost == found.before:
        return "the levels found without it are as good"
    return f"not taken: what can be made of them saves no more than {launches(found.before)} do"
