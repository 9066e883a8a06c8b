"""Progress on stderr: one line that is written over, shown only while something takes long.

Nothing runs beside a measurement but one timer per phase, which wakes once.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from threading import Lock, Timer
from typing import TextIO

from onnx_sched.progress import Step
from onnx_sched.report.harmless import harmless

PATIENCE = 0.3
"""Seconds that a phase may take before anything is said about it."""

WORDS = {
    "read": "reading the model",
    "analyse": "analysing",
    "plan": "planning",
    "measure": "measuring",
    "check": "comparing the outputs",
    "race": "racing the whole model",
    "write": "writing",
}


class Ticker:
    """Tells a person where a run is.

    Args:
        stream: Where to write.
        live: Whether the stream is a terminal, on which a line can be written over.
        verbose: 1 for a line with the time of every phase, 2 for a line on every step, too.
        clock: Seconds, for tests.
        patience: Seconds before a phase is shown.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        live: bool,
        verbose: int = 0,
        clock: Callable[[], float] = time.monotonic,
        patience: float = PATIENCE,
    ) -> None:
        self._stream = stream
        self._live = live
        self._verbose = verbose
        self._clock = clock
        self._patience = patience
        self._lock = Lock()
        self._step: Step | None = None
        self._begin = 0.0
        self._shown = False
        self._timer: Timer | None = None

    def __call__(self, step: Step, /) -> None:
        """Take note of a step."""
        with self._lock:
            if self._step is None or step.phase != self._step.phase:
                self._finish()
                self._begin = self._clock()
                self._wake_later()
            self._step = step
            if self._verbose > 1 and step.what:
                self._print(f"{step.phase}: {line(step, 0.0)}")
            self._show()

    def close(self) -> None:
        """The run is over: take the line away."""
        with self._lock:
            self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._step is not None and self._verbose:
            count = f" ({self._step.total} parts)" if self._step.total else ""
            self._print(f"{self._step.phase}{count}: {self._clock() - self._begin:.2f} s")
        self._clear()
        self._step = None

    def _wake_later(self) -> None:
        if self._live:
            self._timer = Timer(self._patience, self._wake)
            self._timer.daemon = True
            self._timer.start()

    def _wake(self) -> None:
        with self._lock:
            self._show()

    def _show(self) -> None:
        """Write the line, if the phase takes long enough by now."""
        elapsed = self._clock() - self._begin
        if not self._live or self._step is None or elapsed < self._patience:
            return
        width = max(20, shutil.get_terminal_size().columns - 1)
        self._stream.write("\r\x1b[K" + harmless(line(self._step, elapsed), width))
        self._stream.flush()
        self._shown = True

    def _clear(self) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False

    def _print(self, text: str) -> None:
        self._clear()
        self._stream.write(harmless(text, 200) + "\n")
        self._stream.flush()


def line(step: Step, elapsed: float) -> str:
    """A step in words; with the time that is left where steps can be counted.

    >>> line(Step("measure", 2, 8, "region of 4 x Linear"), 3.0)
    'measuring 3 of 8: region of 4 x Linear, about 9 s left'
    """
    words = WORDS[step.phase]
    if step.total:
        words += f" {min(step.done + 1, step.total)} of {step.total}"
    if step.what:
        words += f": {step.what}"
    if step.total and step.done and elapsed:
        left = elapsed / step.done * (step.total - step.done)
        words += f", about {left:.0f} s left"
    return words
