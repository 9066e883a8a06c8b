"""What a comparison says about one output, and how several comparisons make one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

Verdict = Literal["bitwise", "within_tolerance", "unvalidated", "mismatch"]

_Number = TypeVar("_Number", int, float)

_FROM_BEST_TO_WORST: tuple[Verdict, ...] = (
    "bitwise",
    "within_tolerance",
    "unvalidated",
    "mismatch",
)


@dataclass(frozen=True, slots=True)
class OutputAgreement:
    """How one output agrees with the reference.

    Attributes:
        name: Name of the output.
        verdict: `bitwise`, `within_tolerance`, `mismatch`; or `unvalidated` if its values cannot be
            compared.
        bitwise: Whether all bits are equal.
        max_abs: Largest |got - ref| over the elements that are finite in both; None if not compared.
        max_rel: Largest |got - ref| / |ref| over those with |ref| > atol; None if not compared.
        max_ulp: Largest number of floating-point numbers in between; None if not compared.
        mismatched: Number of elements outside the tolerance.
        total: Number of elements compared.
        note: What else there is to say; empty if nothing.
        noise_abs: Largest difference of the original with itself, with and without the optimizations
            of ONNX Runtime; None if unknown.
    """

    name: str
    verdict: Verdict
    bitwise: bool
    max_abs: float | None
    max_rel: float | None
    max_ulp: int | None
    mismatched: int
    total: int
    note: str = ""
    noise_abs: float | None = None


def worst_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of them; `bitwise` if there are none."""
    return max(verdicts, key=_FROM_BEST_TO_WORST.index, default="bitwise")


def differs(name: str, note: str, total: int = 1) -> OutputAgreement:
    """A mismatch that has no numbers, such as another type."""
    return OutputAgreement(name, "mismatch", False, None, None, None, total, total, note)


def merge(parts: Sequence[OutputAgreement]) -> OutputAgreement:
    """The worst of several comparisons of one output; there must be one at least."""
    verdict = worst_verdict(part.verdict for part in parts)
    note = next((p.note for p in parts if p.verdict == verdict and p.note), "")
    return OutputAgreement(
        parts[0].name,
        verdict,
        all(part.bitwise for part in parts),
        _largest(part.max_abs for part in parts),
        _largest(part.max_rel for part in parts),
        _largest(part.max_ulp for part in parts),
        sum(part.mismatched for part in parts),
        sum(part.total for part in parts),
        note or next((part.note for part in parts if part.note), ""),
        _largest(part.noise_abs for part in parts),
    )


def _largest(values: Iterable[_Number | None]) -> _Number | None:
    return max((value for value in values if value is not None), default=None)


def same(name: str, total: int, note: str = "") -> OutputAgreement:
    """All bits are equal."""
    return OutputAgreement(name, "bitwise", True, 0.0, 0.0, 0, 0, total, note)
