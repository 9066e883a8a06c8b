"""ONNX Runtime's own profile of a run, as it wrote it, for a trace: what lies between nodes is seen here.

The last run is shown, on the runtime's own clock from its beginning.  A call stands on the track of its
depth: the run itself, then its nodes, then nodes in the body of one of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnx_sched.judge.profiling import Row

KEYS = ("op_name", "provider", "node_index", "activation_size", "parameter_size", "output_size")
"""What is kept of what the runtime notes on a node."""

RUN = "model_run"


def own_profile(rows: Sequence[Row], pid: int, title: str) -> list[dict[str, Any]]:
    """The events of one process.

    Args:
        rows: The rows of the runtime's file.
        pid: Number of the process.
        title: What it is called.
    """
    kept = last_run(rows)
    if not kept:
        return []
    begin = float(kept[0]["ts"])
    found: list[dict[str, Any]] = []
    open_until: list[float] = []
    depths: dict[int, str] = {}
    for row in kept:
        ts, dur = float(row["ts"]) - begin, float(row["dur"])
        while open_until and open_until[-1] <= ts:
            open_until.pop()
        depth = len(open_until)
        open_until.append(ts + dur)
        depths.setdefault(depth, ("run", "nodes", "nodes of a body")[min(depth, 2)])
        found.append(
            {
                "ph": "X",
                "name": str(row["name"]),
                "cat": "profile",
                "pid": pid,
                "tid": depth,
                "ts": ts,
                "dur": dur,
                "args": {key: str(row["args"][key]) for key in KEYS if key in row.get("args", {})},
            }
        )
    return [*_names(pid, title, depths), *found]


def last_run(rows: Sequence[Row]) -> list[Row]:
    """The last run and its nodes, in the order in which they begin, the longer first."""
    runs = [r for r in rows if r.get("cat") == "Session" and r.get("name") == RUN]
    if not runs:
        return []
    last = max(runs, key=lambda row: float(row["ts"]))
    begin, end = float(last["ts"]), float(last["ts"]) + float(last["dur"])
    inside = [
        row
        for row in rows
        if row.get("cat") == "Node"
        and begin <= float(row["ts"])
        and float(row["ts"]) + float(row["dur"]) <= end
    ]
    return [last, *sorted(inside, key=lambda row: (float(row["ts"]), -float(row["dur"])))]


def _names(pid: int, title: str, depths: Mapping[int, str]) -> list[dict[str, Any]]:
    """Names and order of the process and its tracks."""

    def note(name: str, tid: int, /, **args: Any) -> dict[str, Any]:
        return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}

    found = [note("process_name", 0, name=title), note("process_sort_index", 0, sort_index=pid)]
    for depth, words in sorted(depths.items()):
        found.append(note("thread_name", depth, name=words))
        found.append(note("thread_sort_index", depth, sort_index=depth))
    return found
