"""Gates of `--fail-on`: what makes a comparison fail in CI.

Counts of nodes and bytes are the same in every run, so a gate on them is exact. A gate on latency fails only
where the whole interval says so: noise alone never trips it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from onnx_sched.errors import UsageError
from onnx_sched.judge.comparison import Comparison
from onnx_sched.judge.ortlib import CPU

SHOWN = 3
"""Nodes that a message names before it says how many more there are."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate: its name, and by how many percent a number may grow; written `name` or `name:5%`."""

    name: str
    percent: float

    def __str__(self) -> str:
        return f"{self.name}:{self.percent:g}%" if self.percent else self.name


@dataclass(frozen=True, slots=True)
class GateResult:
    """How one gate fared; `message` is empty where it held."""

    gate: Gate
    message: str

    @property
    def failed(self) -> bool:
        """Whether it did not hold."""
        return bool(self.message)


def parse_gates(items: Iterable[str]) -> tuple[Gate, ...]:
    """The values of `--fail-on`: `slower:5%,cpu-nodes` or one by one.

    Raises:
        UsageError: There is no such gate, or its limit is no percentage.
    """
    found: dict[str, Gate] = {}
    for word in (part.strip() for item in items for part in item.split(",")):
        name, colon, limit = word.partition(":")
        if name not in _CHECKS:
            close = difflib.get_close_matches(name, _CHECKS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_CHECKS)}"
            raise UsageError(f"--fail-on {word}: there is no such gate", hint)
        number = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*%\s*", limit)
        if colon and (number is None or name not in _WITH_LIMIT):
            hint = f"{', '.join(_WITH_LIMIT)} take a percentage, such as slower:5%"
            raise UsageError(f"--fail-on {word}: not a limit", hint)
        found[name] = Gate(name, float(number[1]) if number else 0.0)
    return tuple(found.values())


def check_gates(gates: Iterable[Gate], comparison: Comparison) -> tuple[GateResult, ...]:
    """Hold every gate against what was found."""
    return tuple(GateResult(gate, _CHECKS[gate.name](gate, comparison)) for gate in gates)


def _slower(gate: Gate, found: Comparison) -> str:
    if not found.latency:
        return "nothing was timed: " + ("; ".join(found.notes) or "no reason known")
    limit = 1 / (1 + gate.percent / 100)
    worst = [row for row in found.latency if row.verdict == "slower" and row.speedup.high < limit]
    return "; ".join(f"{row.label}: {row.speedup.words}" for row in worst)


def _launches(gate: Gate, found: Comparison) -> str:
    before, after = found.kernels_before.count, found.kernels_after.count
    what = "kernel launches"
    if before is None or after is None:
        before, after = found.dispatches.before, found.dispatches.after
        what = "node dispatches (kernel launches are not available)"
    return _grown(gate, before, after, what, found.dispatches.source)


def _memory(gate: Gate, found: Comparison) -> str:
    peaks = (
        ("bytes of activations at the peak", found.peak_profile),
        ("bytes of activations at the peak (estimate)", found.peak_estimate),
    )
    what, peak = next(((what, peak) for what, peak in peaks if peak.known), peaks[0])
    messages = [_grown(gate, peak.before, peak.after, what, peak.source)]
    if found.peak_device.known:
        device = found.peak_device
        what = "bytes of device memory at the peak"
        messages.append(_grown(gate, device.before, device.after, what, device.source))
    return "; ".join(filter(None, messages))


def _grown(gate: Gate, before: int | None, after: int | None, what: str, source: str) -> str:
    """A message if a number grew by more than the gate allows, or is not known."""
    if before is None or after is None:
        return f"{what} are not known: {source}"
    allowed = before * (1 + gate.percent / 100)
    return f"{before} -> {after} {what}" if after > allowed else ""


def _cpu_nodes(_gate: Gate, found: Comparison) -> str:
    if found.provider.name == CPU:
        note = found.provider.note or f"--provider {found.provider.requested}"
        return f"all nodes run on the CPU ({note})"
    if found.placement_after is None:
        return f"it is not known where the nodes run: {found.dispatches.source}"
    strays = found.placement_after.cpu_nodes
    if not strays:
        return ""
    names = ", ".join(f"{node} ({op})" for node, op in strays[:SHOWN])
    more = f" and {len(strays) - SHOWN} more" if len(strays) > SHOWN else ""
    return f"{len(strays)} on the CPU: {names}{more}"


def _mismatch(_gate: Gate, found: Comparison) -> str:
    agreement = found.agreement
    if agreement.verdict == "mismatch":
        return f"the outputs disagree: {agreement.reason or 'beyond tolerance'}"
    if agreement.verdict == "unvalidated":
        # A gate that holds because nothing was compared would be worth nothing.
        return f"no outputs could be compared: {agreement.reason or 'no reason known'}"
    return ""


_CHECKS: dict[str, Callable[[Gate, Comparison], str]] = {
    "cpu-nodes": _cpu_nodes,
    "slower": _slower,
    "launches": _launches,
    "memory": _memory,
    "mismatch": _mismatch,
}

_WITH_LIMIT = ("slower", "launches", "memory")

NAMES = tuple(_CHECKS)
"""All gates, in the order in which help lists them."""
