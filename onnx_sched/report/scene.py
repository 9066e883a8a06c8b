"""A finished run with all that pictures and tables are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx_sched.analysis import Analysis
from onnx_sched.dims import Dim
from onnx_sched.plan import Plan
from onnx_sched.report.data import Report

ASSUMED = 32
"""What an open size is taken to be where the models were not run."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A finished run.

    Attributes:
        report: What there is to tell in words and numbers.
        plan: What was decided.
        before: The original.
        after: The rewritten model; None if there is none.
        shapes: Shapes of the inputs at which both were profiled; empty if they were not run.
    """

    report: Report
    plan: Plan
    before: Analysis
    after: Analysis | None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def sizes(self) -> dict[str, int]:
        """The open sizes by their symbol, as far as the inputs fix them."""
        found: dict[str, int] = {}
        for name, given in self.shapes.items():
            known: tuple[Dim, ...] = self.before.values.shape(name) or ()
            for dim, size in zip(known, given, strict=False):
                if isinstance(dim, str) and "*" not in dim:
                    found.setdefault(dim, size)
        return found
