"""What is said when the rewritten model gives other outputs: whose fault it is, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnx_sched.errors import MismatchError
from onnx_sched.judge.agree import Agreement
from onnx_sched.judge.verdicts import OutputAgreement
from onnx_sched.options import Options

SHOWN = 3
"""Outputs whose differences are told."""

REPORT = "Please report this model; --skip-op and --skip-node leave parts alone."


def disagrees(
    name: str, seen: Agreement, options: Options, by_default: Agreement | None
) -> MismatchError:
    """The error for a model whose outputs differ.

    Args:
        name: What the model is called.
        seen: What was found with the tolerances that hold.
        options: What was asked for.
        by_default: What is found with the default tolerances; None if these are the ones that hold.
    """
    what = f"{name}: the rewritten model disagrees with the original: {seen.reason or 'outputs differ'}"
    if by_default is None:
        return MismatchError(what, f"Nothing was written. {REPORT}")
    hint = f"Nothing was written. You asked for {flags(options)}{differences(seen.outputs)}."
    if by_default.verdict == "mismatch":
        return MismatchError(what, f"{hint} By the default tolerances it fails, too. {REPORT}")
    return MismatchError(
        what,
        f"{hint} It passes by the default tolerances: leave these flags away, or allow as much.",
    )


def flags(options: Options) -> str:
    """The tolerances that were asked for, as they are written on the command line."""
    given = [("--atol", value) for value in options.atol]
    given += [("--rtol", value) for value in options.rtol]
    return " ".join(f"{flag} {value}" for flag, value in given)


def differences(outputs: Sequence[OutputAgreement]) -> str:
    """By how much outputs that are outside the tolerance differ, where numbers can tell."""
    told = list(_told(outputs))
    if not told:
        return ""
    more = f" and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
    return f"; seen were {', '.join(told[:SHOWN])}{more}"


def _told(outputs: Sequence[OutputAgreement]) -> Iterator[str]:
    for part in outputs:
        if part.verdict == "mismatch" and part.max_abs is not None:
            relative = f" ({part.max_rel:.1e} relative)" if part.max_rel else ""
            yield f"{part.max_abs:.1e}{relative} in {part.name}"
