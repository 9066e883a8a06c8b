"""How many CUDA kernels one run really launches.

ONNX Runtime counts nodes, not kernels: a node may launch none, or many, and the release wheels hold no
tracer. So kernels are counted as activities of the device, by torch.profiler or by CUPTI, whichever is
installed, in runs that are not timed. Where neither is, there is no number; a count of nodes is none.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx_sched.judge.capture import captured_output
from onnx_sched.judge.measure import Runner
from onnx_sched.judge.ortlib import CPU, CUDA, first_line

RUNS = 4
_BUFFER_BYTES = 8 << 20
_FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
_GET_ONE = "pip install 'onnx-sched[cupti]' counts them"


@dataclass(frozen=True, slots=True)
class KernelCount:
    """Kernels that one run launches.

    Attributes:
        count: None if nobody counted.
        by_name: (name, kernels in one run), the most frequent first.
        source: Who counted, or why nobody did.
    """

    count: int | None
    by_name: tuple[tuple[str, int], ...]
    source: str


def count_kernels(once: Runner, provider: str) -> KernelCount:
    """Count the kernels of one run.

    Args:
        once: Runs a warmed-up model and waits for the device.
        provider: Full name of the execution provider.
    """
    if provider != CUDA:
        return _none("runs on the CPU" if provider == CPU else f"no CUDA kernels on {provider}")
    why = []
    for source, count in (("torch.profiler", _by_torch), ("CUPTI", _by_cupti)):
        try:
            total = count(once)
        except (ImportError, OSError, RuntimeError, AttributeError, ValueError) as error:
            why.append(f"{source}: {first_line(error)}")
            continue
        if total:
            return _per_run(total, source)
        # A run on the device without one kernel means that the tracer saw nothing.
        why.append(f"{source} saw no kernel")
    if importlib.util.find_spec("cupti") is None:
        why.append(_GET_ONE)
    return _none("; ".join(why))


def _none(why: str) -> KernelCount:
    return KernelCount(None, (), f"not available: {why}")


def _per_run(total: Mapping[str, int], source: str) -> KernelCount:
    """One run's share of what several did."""
    each = {name: round(count / RUNS) for name, count in total.items()}
    rows = sorted(each.items(), key=lambda row: (-row[1], row[0]))
    uneven = any(count % RUNS for count in total.values())
    label = f"{source}, kernel activities" + (f", mean of {RUNS} runs" if uneven else "")
    return KernelCount(round(sum(total.values()) / RUNS), tuple(rows), label)


def _by_torch(once: Runner) -> Counter[str]:
    """Kernel names and how often they ran in `RUNS` runs, from torch's profiler."""
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        raise ImportError("this build of torch sees no CUDA device")
    profiler = torch.profiler
    with captured_output(), tempfile.TemporaryDirectory(prefix="onnx-sched-") as folder:
        activities = [profiler.ProfilerActivity.CUDA]
        with profiler.profile(activities=activities) as tracer:
            for _ in range(RUNS):
                once()
        trace = Path(folder) / "trace.json"
        tracer.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"), strict=False)["traceEvents"]
    return Counter(str(event.get("name", "")) for event in events if event.get("cat") == "kernel")


def _by_cupti(once: Runner) -> Counter[str]:
    """Likewise, from CUPTI itself; kernels inside a CUDA graph are seen one by one, too."""
    if importlib.util.find_spec("cupti") is None:
        raise ImportError("cupti-python is not installed")
    cupti: Any = importlib.import_module("cupti.cupti")
    kind = cupti.ActivityKind.CONCURRENT_KERNEL
    found: Counter[str] = Counter()

    def completed(activities: list[Any]) -> None:
        found.update(str(one.name) for one in activities if one.kind == kind)

    try:
        cupti.activity_register_callbacks(lambda: (_BUFFER_BYTES, 0), completed)
        cupti.activity_enable(kind)
        try:
            for _ in range(RUNS):
                once()
            cupti.activity_flush_all(_FORCED)
        finally:
            cupti.activity_disable(kind)
    except cupti.cuptiError as error:
        raise RuntimeError(str(error)) from error
    return found
