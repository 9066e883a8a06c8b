"""How a run says what it is doing: a callback that is given one small value now and then.

    optimize(model, Options(progress=print))

A phase may come several times (a model that turns out too slow is checked and raced again); within one
stretch of a phase `done` never falls.  What the callback raises ends the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Phase = Literal["read", "analyse", "plan", "measure", "check", "race", "write"]


@dataclass(frozen=True, slots=True)
class Step:
    """Where a run is.

    Attributes:
        phase: What is being done.
        done: How many parts of the phase are finished.
        total: How many parts there are; 0 where that is not known.
        what: The part that comes next, in words; may be empty.
    """

    phase: Phase
    done: int = 0
    total: int = 0
    what: str = ""


class Progress(Protocol):
    """Is told each step when it begins; returns nothing, and should return soon."""

    def __call__(self, step: Step, /) -> None:
        """Take note of a step."""


def nobody(step: Step, /) -> None:
    """Progress that nobody wants to see."""
