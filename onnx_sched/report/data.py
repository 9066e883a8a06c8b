"""The report of one run as plain data; its JSON keys are what scripts rely on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from onnx_sched.plan import Refusal

SCHEMA_VERSION = "1"


@dataclass(frozen=True, slots=True)
class Change:
    """A number before and after; None where it was not taken."""

    before: int | None
    after: int | None

    def to_dict(self) -> dict[str, int | None]:
        """As JSON."""
        return {"before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One batched group: what it was, how it runs, its node in the new model, and the body it is in."""

    op_type: str
    size: int
    level: int
    form: str
    node: str
    members: tuple[str, ...]
    body: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "op_type": self.op_type,
            "size": self.size,
            "level": self.level,
            "form": self.form,
            "node": self.node,
            "members": list(self.members),
            "body": self.body,
        }


@dataclass(frozen=True, slots=True)
class AgreementRow:
    """How one output agrees with the original."""

    name: str
    max_abs: float | None
    max_rel: float | None
    max_ulp: int | None
    bitwise: bool

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "name": self.name,
            "max_abs": self.max_abs,
            "max_rel": self.max_rel,
            "max_ulp": self.max_ulp,
            "bitwise": self.bitwise,
        }


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """Measured latency at one set of sizes, in microseconds; `threads` 0 is the runtime's choice."""

    dims: dict[str, int]
    threads: int
    before_us: float
    after_us: float
    speedup: float
    ci_low: float
    ci_high: float
    pairs: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "dims": dict(self.dims),
            "threads": self.threads,
            "before_us": self.before_us,
            "after_us": self.after_us,
            "speedup": self.speedup,
            "ci_low": self.ci_low,
            "ci_high": self.ci_high,
            "pairs": self.pairs,
        }


Verdict = Literal["bitwise", "within_tolerance", "mismatch", "unvalidated"]


@dataclass(frozen=True, slots=True)
class Report:
    """All that one run of `optimize` or `plan` has to tell.

    Attributes:
        status: "optimized", or "unchanged" where there was nothing to do.
        provider: Execution provider that ran the checks; "" where nothing was run.
        provider_note: What `auto` took and why.
        model: What the input is called.
        opset, ir_version: Of the input.
        nodes, depth, dispatches: Before and after.
        lanes: Wires of the original.
        groups: What was batched.
        refusals: What was not, and why.
        verdict, verdict_reason, outputs, checks: Agreement.
        latency: Measured latencies.
        peak: Peak activation bytes; `peak_source` says who counted.
        seconds: Time that the run took.
        notes: Further things a reader should know.
    """

    status: Literal["optimized", "unchanged"]
    provider: str
    provider_note: str
    model: str
    opset: int
    ir_version: int
    nodes: Change
    depth: Change
    lanes: int
    dispatches: Change
    groups: tuple[GroupRow, ...]
    refusals: tuple[Refusal, ...]
    verdict: Verdict
    verdict_reason: str
    outputs: tuple[AgreementRow, ...]
    checks: int
    peak: Change
    peak_source: str
    seconds: float
    latency: tuple[LatencyRow, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)

    def to_dict(self) -> dict[str, Any]:
        """As JSON, with the documented keys."""
        return {
            "schema_version": SCHEMA_VERSION,
            "status": self.status,
            "provider": self.provider,
            "provider_note": self.provider_note,
            "model": self.model,
            "opset": self.opset,
            "ir_version": self.ir_version,
            "nodes": self.nodes.to_dict(),
            "depth": self.depth.to_dict(),
            "lanes": self.lanes,
            "dispatches": self.dispatches.to_dict(),
            "groups": [g.to_dict() for g in self.groups],
            "refusals": [
                {"code": r.code, "reason": r.reason, "nodes": list(r.nodes)} for r in self.refusals
            ],
            "agreement": {
                "verdict": self.verdict,
                "reason": self.verdict_reason,
                "checks": self.checks,
                "outputs": [o.to_dict() for o in self.outputs],
            },
            "latency": [row.to_dict() for row in self.latency],
            "peak_activation_bytes": {**self.peak.to_dict(), "source": self.peak_source},
            "seconds": self.seconds,
            "notes": list(self.notes),
        }
