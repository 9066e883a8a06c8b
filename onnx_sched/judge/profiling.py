"""What ONNX Runtime itself says about one run: dispatches, peak memory, time per node.

The number of dispatches and the bytes are the same on every machine and in every run, so a gate can
rely on them. The profile is written to a temporary folder and removed.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx_sched.judge.runtime import open_session, run

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

Row = Mapping[str, Any]

_SUFFIX = "_kernel_time"
_MEASURED = "ONNX Runtime profile: arena, first run"


@dataclass(frozen=True, slots=True)
class NodeTime:
    """One node as ONNX Runtime runs it, after its own fusions.

    Attributes:
        name: Its name; ONNX Runtime makes one up for a node without.
        op_type: Operator, possibly a fused one.
        provider: Full name of the execution provider that ran it.
        microseconds: Median over the warm runs; the sum over all calls within a run.
        calls: How often one run calls it: more than once inside a loop.
    """

    name: str
    op_type: str
    provider: str
    microseconds: float
    calls: int


@dataclass(frozen=True, slots=True)
class Profile:
    """What one run takes.

    Attributes:
        dispatches: Number of node calls, those inside If, Loop and Scan included.
        peak_activation_bytes: The most bytes that intermediate values and outputs hold at once; not
            counted are weights, inputs and scratch memory inside a node. None if ONNX Runtime does
            not say.
        source: Where the bytes come from, or why there are none.
        nodes_per_provider: Full name -> number of node calls.
        node_times_us: In the order in which the nodes start.
        arena_peak_bytes: Full name of a provider -> the most bytes that its arena ever held in use,
            weights and scratch memory included; empty if ONNX Runtime does not say.
    """

    dispatches: int
    peak_activation_bytes: int | None
    source: str
    nodes_per_provider: dict[str, int]
    node_times_us: tuple[NodeTime, ...]
    arena_peak_bytes: dict[str, int] = field(default_factory=dict)


def profile(
    model: bytes | Path,
    feeds: Mapping[str, Any],
    provider: str,
    threads: int | None = 1,
    *,
    warm_runs: int = 3,
) -> Profile:
    """Run the model under the profiler of ONNX Runtime, optimized as it would be deployed.

    The first run gives the bytes: later ones may use memory that is planned as one block. Times come
    from the warm runs after it, or from the first if there are none.

    Raises:
        RuntimeRefused: The model does not load or run.
        ProviderError: The model would run elsewhere than on `provider`.
    """
    with tempfile.TemporaryDirectory(prefix="onnx-sched-") as folder:
        session = open_session(
            model,
            provider,
            threads=threads,
            profile_prefix=Path(folder) / "profile",
        )
        return profile_session(session, feeds, warm_runs=warm_runs)


def profile_session(
    session: InferenceSession,
    feeds: Mapping[str, Any],
    *,
    warm_runs: int = 3,
    most_seconds: float = math.inf,
) -> Profile:
    """As `profile`, with a session that was opened with a `profile_prefix` and has not run yet.

    No further warm run begins after `most_seconds`.

    Raises:
        RuntimeRefused: The model does not run.
    """
    import onnxruntime as ort

    until = time.monotonic() + most_seconds
    try:
        run(session, feeds)
        for _ in range(warm_runs):
            if time.monotonic() < until:
                run(session, feeds)
    finally:
        written = Path(session.end_profiling())
    text = written.read_text(encoding="utf-8", errors="replace")
    return read_profile(json.loads(text, strict=False), ort.__version__)


def read_profile(rows: Sequence[Row], version: str) -> Profile:
    """Read a profile that holds one or more runs of one model on the same inputs.

    Args:
        rows: The rows of the JSON file.
        version: Of the ONNX Runtime that wrote it; for the message when it gives no bytes.
    """
    runs = _split_runs(rows)
    first = runs[0] if runs else []
    peak = _peak_bytes(first)
    without = f"not available: ONNX Runtime {version} writes no memory fields (1.28 and later do)"
    return Profile(
        len(first),
        peak,
        without if peak is None else _MEASURED,
        dict(sorted(Counter(str(row["args"].get("provider", "")) for row in first).items())),
        _node_times(runs[1:] or runs),
        _arena_peaks(runs),
    )


def _split_runs(rows: Sequence[Row]) -> list[list[Row]]:
    """The node rows of each run, in the order in which the nodes start."""
    runs: list[list[Row]] = []
    nodes: list[Row] = []
    for row in rows:  # in the order in which things end
        if row.get("cat") == "Node" and str(row.get("name", "")).endswith(_SUFFIX):
            nodes.append(row)
        elif row.get("cat") == "Session" and row.get("name") == "model_run":
            # A node with a body starts before and ends after the nodes inside.
            runs.append(sorted(nodes, key=lambda node: (node["ts"], -node["dur"])))
            nodes = []
    return runs


def _peak_bytes(nodes: Sequence[Row]) -> int | None:
    """The most bytes in use while a node runs, above what was in use before the first one.

    Each provider has memory of its own: what counts is their sum at each moment.
    """
    if not nodes:
        return 0
    base: dict[str, int] = {}
    now: dict[str, int] = {}
    peak = 0
    for row in nodes:
        args = row["args"]
        used = _bytes(args, "mem_bytes_requested_in_use")
        grown = _bytes(args, "mem_requested_in_use_delta")
        if used is None or grown is None:
            return None
        arena = str(args.get("provider", ""))
        base.setdefault(arena, used - grown)
        now[arena] = used - base[arena]
        peak = max(peak, sum(now.values()))
    return peak


def _arena_peaks(runs: Sequence[Sequence[Row]]) -> dict[str, int]:
    """The running maximum of every arena, at its largest."""
    peaks: dict[str, int] = {}
    for row in itertools.chain.from_iterable(runs):
        peak = _bytes(row["args"], "mem_in_use_peak")
        if peak is not None:
            name = str(row["args"].get("provider", ""))
            peaks[name] = max(peak, peaks.get(name, 0))
    return dict(sorted(peaks.items()))


def _bytes(args: Mapping[str, Any], field: str) -> int | None:
    value = args.get(field)
    return None if value is None else int(value)


def _node_times(runs: Sequence[Sequence[Row]]) -> tuple[NodeTime, ...]:
    times: dict[tuple[str, str, str], list[float]] = {}
    calls: Counter[tuple[str, str, str]] = Counter()
    for nodes in runs:
        once: dict[tuple[str, str, str], float] = {}
        for row in nodes:
            args = row["args"]
            name = str(row["name"]).removesuffix(_SUFFIX)
            key = (name, str(args.get("op_name", "")), str(args.get("provider", "")))
            once[key] = once.get(key, 0.0) + float(row["dur"])
            calls[key] += 1
        for key, total in once.items():
            times.setdefault(key, []).append(total)
    return tuple(
        NodeTime(*key, statistics.median(totals), round(calls[key] / len(runs)))
        for key, totals in times.items()
    )
