"""How long models take, against each other: interleaved, in random order, with an interval.

The judge does not know the judged: nothing here knows what was rewritten.  A single time says little
on a busy machine; a ratio of neighbouring runs holds while the machine's speed drifts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnx_sched.judge.provider import full_name
from onnx_sched.judge.runtime import open_session

Runner = Callable[[], object]
Floats = NDArray[np.float64]

SAMPLE_US = 400.0
"""A sample is as many runs as take about this long: the clock and the loop then cost nothing."""

RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Speedup:
    """How much faster one model is than another.

    Attributes:
        before_us, after_us: Median time of a run, in microseconds.
        ratio: Median of before / after over the pairs; above 1 is faster.
        low, high: 95% bootstrap interval of that median.
        pairs: Number of pairs.
    """

    before_us: float
    after_us: float
    ratio: float
    low: float
    high: float
    pairs: int


def runner(
    model: bytes | Path,
    feeds: Mapping[str, Any],
    provider: str,
    threads: int | None,
    optimize: bool = True,
) -> Runner:
    """A function that runs a model once on fixed inputs, outputs written to the same place each time.

    Args:
        model: Serialized, or a path.
        feeds: Inputs by name.
        provider: Execution provider.
        threads: Threads within a node; None leaves it to the runtime.
        optimize: Whether the runtime optimises the model, as it would when deployed.

    Raises:
        RuntimeRefused: If the model does not load or run.
    """
    session = open_session(model, provider, optimize=optimize, threads=threads)
    names = [o.name for o in session.get_outputs()]
    plain: Runner = lambda: session.run(names, feeds)  # noqa: E731
    tensors = all(isinstance(v, np.ndarray) and v.dtype.kind in "fiub" for v in feeds.values())
    if not tensors or any(not o.type.startswith("tensor(") for o in session.get_outputs()):
        return plain
    if any("string" in o.type for o in session.get_outputs()):
        return plain
    import onnxruntime as ort

    device = "cuda" if full_name(provider).startswith("CUDA") else "cpu"
    binding = session.io_binding()
    held = []
    for name, array in feeds.items():
        value = ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), device, 0)
        held.append(value)
        binding.bind_ortvalue_input(name, value)
    for name in names:
        binding.bind_output(name, device)
    session.run_with_iobinding(binding)
    for name, value in zip(names, binding.get_outputs(), strict=True):
        held.append(value)
        binding.bind_ortvalue_output(name, value)

    def bound() -> object:
        session.run_with_iobinding(binding)
        if device == "cuda":
            binding.synchronize_outputs()
        return held

    return bound


class Race:
    """Runs several models in turn, in random order, and keeps every sample."""

    def __init__(self, runners: Sequence[Runner], seed: int = 0) -> None:
        self._runners = list(runners)
        self._rng = np.random.default_rng(seed)
        self._samples: list[list[float]] = [[] for _ in runners]
        slowest = max(_warm(r) for r in self._runners)
        self._inner = max(1, round(SAMPLE_US / slowest))

    def run(self, rounds: int) -> None:
        """Take one more sample of every runner, `rounds` times."""
        for _ in range(rounds):
            for k in self._rng.permutation(len(self._runners)):
                once = self._runners[k]
                begin = time.perf_counter_ns()
                for _ in range(self._inner):
                    once()
                taken = (time.perf_counter_ns() - begin) / 1e3 / self._inner
                self._samples[k].append(taken)

    def speedup(self, before: int, after: int) -> Speedup:
        """How much faster one runner is than another."""
        return paired(np.array(self._samples[before]), np.array(self._samples[after]))


def _warm(once: Runner) -> float:
    """Run until caches and arenas have settled; returns about how long one run takes, in us."""
    begin = time.perf_counter()
    count = 0
    while count < 5 or (time.perf_counter() - begin < 0.02 and count < 200):
        once()
        count += 1
    begin = time.perf_counter()
    for _ in range(3):
        once()
    return max(0.1, (time.perf_counter() - begin) / 3 * 1e6)


def paired(before: Floats, after: Floats, seed: int = 0) -> Speedup:
    """The ratio of paired samples with a percentile bootstrap interval over the pairs.

    >>> paired(np.full(20, 3.0), np.full(20, 2.0))
    Speedup(before_us=3.0, after_us=2.0, ratio=1.5, low=1.5, high=1.5, pairs=20)
    """
    logs = np.log(before) - np.log(after)
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(logs), (RESAMPLES, len(logs)))
    medians = np.median(logs[picks], axis=1)
    low, high = np.exp(np.percentile(medians, (2.5, 97.5)))
    return Speedup(
        round(float(np.median(before)), 3),
        round(float(np.median(after)), 3),
        round(float(np.exp(np.median(logs))), 4),
        round(float(low), 4),
        round(float(high), 4),
        len(logs),
    )
