"""Hold back what others print.

ONNX Runtime writes to stdout and stderr from Python and from C++: when a provider fails,
when it falls back, when it loads the CUDA libraries. One such line in front of a JSON report breaks
every script that reads it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

_STDOUT, _STDERR = 1, 2


@dataclass(slots=True)
class Captured:
    """What was written meanwhile; `text` is filled when the block ends."""

    text: str = ""


@contextlib.contextmanager
def captured_output() -> Iterator[Captured]:
    """Hold back everything that Python and C++ code writes to stdout and stderr in the block.

    Works on the file descriptors, thus for the whole process: other threads are held back, too.

    Yields:
        An object whose `text` holds the output once the block has ended, also by an exception.
    """
    held = Captured()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as sink:
        _flush()
        try:
            with (
                _descriptor_to(_STDOUT, sink.fileno()),
                _descriptor_to(_STDERR, sink.fileno()),
                contextlib.redirect_stdout(sink),
                contextlib.redirect_stderr(sink),
            ):
                try:
                    yield held
                finally:
                    _flush()
        finally:
            sink.seek(0)
            held.text = sink.read()


@contextlib.contextmanager
def _descriptor_to(number: int, target: int) -> Iterator[None]:
    """Point the file descriptor `number` at `target` for a while; does nothing if it is closed."""
    try:
        kept = os.dup(number)
    except OSError:
        yield
        return
    try:
        os.dup2(target, number)
        yield
    finally:
        os.dup2(kept, number)
        os.close(kept)


def _flush() -> None:
    """Empty the buffers of Python and of C, so that no line ends up on the wrong side."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if stream is not None and not stream.closed:
            stream.flush()
    if sys.platform != "win32":
        ctypes.CDLL(None).fflush(None)
