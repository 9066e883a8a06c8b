"""How long models take, against each other: interleaved, in random order, with an interval.

The judge does not know the judged: nothing here knows what was rewritten.  A single time says little
on a busy machine; a ratio of neighbouring runs holds while the machine's speed drifts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from onnx_sched.judge.ortlib import first_line, ort_errors
from onnx_sched.judge.provider import full_name
from onnx_sched.judge.runtime import RuntimeRefused, open_session

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

Runner = Callable[[], object]
Floats = NDArray[np.float64]

FEW = 8
"""A sample of fewer runs than this is a matter of what the first of them finds in the caches."""

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

    @property
    def words(self) -> str:
        """The ratio, never without its interval.

        >>> Speedup(2.0, 1.0, 2.0, 1.9, 2.1, 80).words
        '2.00x [1.90, 2.10]'
        """
        return f"{self.ratio:.2f}x [{self.low:.2f}, {self.high:.2f}]"


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
    try:
        return bind(session, feeds, provider)
    except ort_errors() as error:
        raise RuntimeRefused(f"ONNX Runtime does not run the model: {first_line(error)}") from None


def bind(session: InferenceSession, feeds: Mapping[str, Any], provider: str) -> Runner:
    """A function that runs an open session once on fixed inputs, outputs to the same place each time.

    Inputs and outputs that are tensors stay on the device: no copy is timed.  The addresses never change,
    which a captured CUDA graph relies on.  The model is run once here, to know the sizes of its outputs.

    Args:
        session: An open session.
        feeds: Inputs by name.
        provider: The execution provider that the session runs on.
    """
    names = [o.name for o in session.get_outputs()]
    values = [_input_value(array, provider) for array in feeds.values()]
    kinds = [o.type for o in session.get_outputs()]
    if any(v is None for v in values) or any(
        not kind.startswith("tensor(") or "string" in kind for kind in kinds
    ):

        def plain() -> object:
            return session.run(names, feeds)

        plain()
        return plain
    device = _device(provider)
    binding = session.io_binding()
    held = list(values)
    for name, value in zip(feeds, values, strict=True):
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


def _device(provider: str) -> str:
    return "cuda" if full_name(provider).startswith("CUDA") else "cpu"


def _input_value(array: Any, provider: str) -> Any:
    """An input where the session reads it; None for what cannot be bound (text, sequences)."""
    import onnxruntime as ort

    if not isinstance(array, np.ndarray):
        return None
    array = np.asarray(array, order="C")  # np.ascontiguousarray makes a row of a scalar
    if array.dtype.isbuiltin == 1:
        if array.dtype.kind not in "fiub":
            return None
        return ort.OrtValue.ortvalue_from_numpy(array, _device(provider), 0)
    # A type of ml_dtypes.  Bound from the host: ONNX Runtime copies it to the device when it is bound.
    bits = array.view(f"u{array.dtype.itemsize}")
    number = int(helper.np_dtype_to_tensor_dtype(array.dtype))
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, number)


class Race:
    """Runs several models in turn, in random order, and keeps every sample.

    Attributes:
        inner: How many runs make a sample.
    """

    def __init__(self, runners: Sequence[Runner], seed: int = 0, *, warm: bool = False) -> None:
        """Get ready.

        Args:
            runners: Who takes part.
            seed: Of the order.
            warm: Whether each runs once unmeasured before a sample of few runs, so that its weights are in
                the caches as they are where it runs alone, and not as a rival left them.
        """
        self._runners = list(runners)
        self._warm = warm
        self._rng = np.random.default_rng(seed)
        self._samples: list[list[float]] = [[] for _ in runners]
        slowest = max(_warm(r) for r in self._runners)
        self._inner = max(1, round(SAMPLE_US / slowest))

    def run(self, rounds: int) -> None:
        """Take one more sample of every runner, `rounds` times."""
        for _ in range(rounds):
            for k in self._rng.permutation(len(self._runners)):
                once = self._runners[k]
                if self._warm and self._inner < FEW:
                    once()
                begin = time.perf_counter_ns()
                for _ in range(self._inner):
                    once()
                taken = (time.perf_counter_ns() - begin) / 1e3 / self._inner
                self._samples[k].append(taken)

    def samples(self, place: int) -> Floats:
        """All samples of one runner, in microseconds a run."""
        return np.array(self._samples[place])

    @property
    def inner(self) -> int:
        """How many runs make a sample."""
        return self._inner

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
