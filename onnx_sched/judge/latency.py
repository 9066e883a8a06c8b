"""Latency of two models under every condition: sizes, threads, with and without CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from onnx_sched.judge.comparison import Cold, LatencyRow, Steady
from onnx_sched.judge.conditions import condition_label
from onnx_sched.judge.feed_source import FeedSource
from onnx_sched.judge.opening import Setup
from onnx_sched.judge.ortlib import CUDA
from onnx_sched.judge.runtime import RuntimeRefused
from onnx_sched.judge.significance import effect, noise, verdict
from onnx_sched.judge.timing import Samples, Times, joined
from onnx_sched.judge.worker import Job, run_apart, run_here


@dataclass(frozen=True, slots=True)
class Plan:
    """What to time.

    Attributes:
        before, after: Files of the models.
        sources: Inputs, a condition each.
        threads: Threads within a node, a condition each.
        setup: How to run them otherwise.
        cuda_graph: Whether to time with CUDA graphs, too.
    """

    before: Path
    after: Path
    sources: Sequence[FeedSource]
    threads: Sequence[int]
    setup: Setup
    cuda_graph: bool

    def conditions(self) -> list[tuple[FeedSource, Setup]]:
        """All combinations, those without a CUDA graph first."""
        return [
            (source, replace(self.setup, threads=threads, cuda_graph=graph))
            for graph in ((False, True) if self.cuda_graph else (False,))
            for source in self.sources
            for threads in dict.fromkeys(self.threads)
        ]


def latency_rows(
    plan: Plan,
    *,
    pairs: int,
    budget: float,
    processes: int,
    seed: int,
    say: Callable[[str], None],
) -> tuple[tuple[LatencyRow, ...], list[str]]:
    """Time both models under every condition.

    Args:
        plan: What to time.
        pairs: Paired samples under each condition, over all processes.
        budget: Seconds for all conditions together.
        processes: Processes to measure in; 1 is this one.
        seed: Of the order of the samples.
        say: Is told what is being timed.

    Returns:
        A row for each condition that could be timed, and a note for each reason why others could not.

    Raises:
        ProviderError: A model would run elsewhere.
    """
    rows: list[LatencyRow] = []
    failed: dict[str, list[str]] = {}
    conditions = plan.conditions()
    share = budget / len(conditions) / processes
    each = -(-pairs // processes)
    for source, setup in conditions:
        label = condition_label(
            source.binding.dims, setup.threads, setup.cuda_graph, source.input_set
        )
        parts: list[tuple[Samples, ...]] = []
        try:
            for place in range(processes):
                say(f"timing {label}" + (f", process {place + 1}" if processes > 1 else ""))
                job = Job(plan.before, plan.after, source, setup, each, share, seed + place)
                parts.append(run_here(job) if processes == 1 else run_apart(job))
        except RuntimeRefused as error:
            failed.setdefault(str(error), []).append(label)
            continue
        row = latency_row(source.binding.dims, setup, parts, seed)
        rows.append(replace(row, input_set=source.input_set))
    notes = [f"not timed: {'; '.join(labels)}: {why}" for why, labels in failed.items()]
    return tuple(rows), notes


def latency_row(
    dims: tuple[tuple[str, int], ...],
    setup: Setup,
    parts: Sequence[Sequence[Samples]],
    seed: int = 0,
) -> LatencyRow:
    """What the samples of one condition say.

    Args:
        dims: Sizes.
        setup: How the models were run.
        parts: For each process, what it measured in each opening.
        seed: Of the bootstrap.
    """
    samples = list(parts[0]) if len(parts) == 1 else [joined(part) for part in parts]
    found, floor = effect(samples, seed), noise(samples, seed)
    return LatencyRow(
        dims=dims,
        threads=setup.threads,
        cuda_graph=setup.cuda_graph,
        tf32=setup.tf32 if setup.provider == CUDA else None,
        before=steady([one.single_before for one in samples]),
        after=steady([one.single_after for one in samples]),
        speedup=found,
        floor=floor,
        verdict=verdict(found, floor),
        cold_before=cold([(one.create_before, one.first_before) for one in samples]),
        cold_after=cold([(one.create_after, one.first_after) for one in samples]),
        processes=len(parts),
        openings=sum(len(part) for part in parts),
        settled=all(one.settled for one in samples),
    )


def steady(times: Sequence[Times]) -> Steady:
    """Percentiles over the single runs of all processes.

    >>> steady([(1.0, 2.0), (3.0,)])
    Steady(p50_us=2.0, p95_us=2.9, p99_us=2.98, runs=3)
    """
    runs = np.concatenate([np.array(row) for row in times])
    p50, p95, p99 = (round(float(value), 3) for value in np.percentile(runs, (50, 95, 99)))
    return Steady(p50, p95, p99, len(runs))


def cold(times: Sequence[tuple[Times, Times]]) -> Cold:
    """Medians over all processes."""
    create = np.concatenate([np.array(row) for row, _ in times])
    first = np.concatenate([np.array(row) for _, row in times])
    return Cold(round(float(np.median(create)), 4), round(float(np.median(first)), 4), len(create))
