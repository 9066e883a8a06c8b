"""The report of one run as plain data; its JSON keys are what scripts rely on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from onnx_sched.plan import Optimum, Refusal, manner

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
    """One batched group: what it was, how it runs, its node in the new model, and where it is.

    Attributes:
        op_type, size, level, form: What it is and how it runs.
        node: The new node that computes it; empty where axes are only renamed.
        members: Every node that it replaces, lane by lane.
        body: The body of an If, Loop or Scan in which it is; empty for the main graph.
        region: The number of its region.
        firsts: One node of each lane, for people.
        summed: Whether the lanes of its results are added up by a matrix product.
        taken_in: Whether it is part of a linear map that ends with another group, whose node it then names.
    """

    op_type: str
    size: int
    level: int
    form: str
    node: str
    members: tuple[str, ...]
    body: str = ""
    region: int = 1
    firsts: tuple[str, ...] = ()
    summed: bool = False
    taken_in: bool = False

    @property
    def manner(self) -> str:
        """The form in words."""
        if self.taken_in:
            return "part of a linear map"
        return manner(self.op_type, self.form, self.summed)

    @property
    def named(self) -> tuple[str, ...]:
        """One node of each lane; all members where lanes cannot be told."""
        return self.firsts or self.members

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
            "region": self.region,
            "summed": self.summed,
            "taken_in": self.taken_in,
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


@dataclass(frozen=True, slots=True)
class EstimateRow:
    """What a device profile says of a region, in microseconds, open sizes taken as `size`."""

    size: int
    before_us: float
    after_us: float
    glue_us: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "size": self.size,
            "before_us": round(self.before_us, 3),
            "after_us": round(self.after_us, 3),
            "glue_us": round(self.glue_us, 3),
        }


@dataclass(frozen=True, slots=True)
class RegionRow:
    """One region: groups that follow each other along the same wires.

    Attributes:
        number: From 1.
        body: The body of an If, Loop or Scan in which it is; empty for the main graph.
        lanes: Of its widest group.
        groups: How many batched groups it has.
        before, after: Nodes that it replaces, and nodes that stand for them.
        glue: Those among the new ones that only bring lanes together or take them apart, by op type.
        profile: Who estimates.
        estimates: Times of these nodes by the profile.
        latency: How the region fared in a race of its own.
    """

    number: int
    body: str
    lanes: int
    groups: int
    before: int
    after: int
    glue: tuple[tuple[str, int], ...]
    profile: str
    estimates: tuple[EstimateRow, ...]
    latency: tuple[LatencyRow, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "region": self.number,
            "body": self.body,
            "lanes": self.lanes,
            "groups": self.groups,
            "nodes": {"before": self.before, "after": self.after},
            "glue": dict(self.glue),
            "estimate": {
                "profile": self.profile,
                "sizes": [row.to_dict() for row in self.estimates],
            },
            "latency": [row.to_dict() for row in self.latency],
        }


@dataclass(frozen=True, slots=True)
class ExactRow:
    """What an exact search for levels came to, in the main graph (`body` is empty) or in a body."""

    body: str
    optimum: Optimum

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        found = self.optimum
        return {
            "body": self.body,
            "before": found.before._asdict(),
            "cost": found.cost._asdict(),
            "bound": found.bound._asdict(),
            "proven": found.proven,
            "stopped": found.stopped,
            "taken": found.taken,
        }


Verdict = Literal["bitwise", "within_tolerance", "mismatch", "unvalidated"]


@dataclass(frozen=True, slots=True)
class Report:
    """All that one run of `optimize` or `plan` has to tell.

    Attributes:
        status: "optimized", or "unchanged" where there was nothing to do.
        provider: Execution provider that ran the checks, or was named; "" if `auto` had nothing to run.
        provider_note: What `auto` took and why, or that nothing was run.
        target: The device profile that was to decide; "" if none was named.
        model: What the input is called.
        opset, ir_version: Of the input.
        nodes, depth, dispatches: Before and after.
        lanes: Wires of the original.
        groups: What was batched.
        regions: The same by region, with what each is expected to gain.
        refusals: What was not, and why.
        verdict, verdict_reason, outputs, checks: Agreement.
        latency: Measured latencies.
        peak: Peak activation bytes; `peak_source` says who counted.
        seconds: Time that the run took.
        notes: Further things a reader should know.
        exact: What exact searches for levels came to; empty where none was asked for.
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
    regions: tuple[RegionRow, ...] = ()
    exact: tuple[ExactRow, ...] = ()
    target: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON, with the documented keys."""
        return {
            "schema_version": SCHEMA_VERSION,
            "status": self.status,
            "provider": self.provider,
            "provider_note": self.provider_note,
            "target": self.target,
            "model": self.model,
            "opset": self.opset,
            "ir_version": self.ir_version,
            "nodes": self.nodes.to_dict(),
            "depth": self.depth.to_dict(),
            "lanes": self.lanes,
            "dispatches": self.dispatches.to_dict(),
            "groups": [g.to_dict() for g in self.groups],
            "regions": [r.to_dict() for r in self.regions],
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
            "exact": [row.to_dict() for row in self.exact],
            "merge": None,  # several models are merged by `merge` only: `MergeReport`
        }
