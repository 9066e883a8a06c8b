"""Numbers on a command line: what is too large for a machine, or no number at all, is no option's value."""

from __future__ import annotations

import math
from typing import Any

import click

THREADS = click.IntRange(0, 4096)
"""Threads within a node; 0 is the runtime's choice."""

SEED = click.IntRange(0)


class Amount(click.FloatRange):
    """A number in a range; `nan`, which lies in none although it is below nothing, is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number of a text."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number
