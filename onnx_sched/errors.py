"""What can go wrong, in words for the person who ran the tool.

Every error that the tool raises on purpose is a `SchedError`: one sentence that names the file, node
or flag, an optional hint that says what to do, and the exit code of the command line.
"""

from __future__ import annotations


class SchedError(Exception):
    """Base of all errors raised on purpose.

    Attributes:
        hint: What the reader can do about it; empty if there is nothing to add.
        exit_code: The exit code of the command line (README lists them).
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ModelError(SchedError):
    """The model cannot be read, written or understood."""


class UsageError(SchedError):
    """A flag or an argument makes no sense for this model."""

    exit_code = 2


class MismatchError(SchedError):
    """The rewritten model gives other outputs than the original one; nothing was written."""

    exit_code = 3


class GateError(SchedError):
    """A gate of `--fail-on` failed."""

    exit_code = 4


class ProviderError(SchedError):
    """The execution provider that was asked for cannot run here."""

    exit_code = 5
