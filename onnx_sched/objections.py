"""What can speak against a finished plan: a lost fusion, memory, speed; and which regions have to go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx_sched.choose import Condition
from onnx_sched.circuit import LINEAR
from onnx_sched.judge.measure import Speedup
from onnx_sched.judge.profiling import Profile
from onnx_sched.plan import Group, Plan
from onnx_sched.planner import Site, least, sites
from onnx_sched.trial import slower, undecided

ATTENTION = frozenset(
    "Attention DecoderAttention GroupQueryAttention MultiHeadAttention PackedAttention "
    "PackedMultiHeadAttention QAttention QOrderedAttention".split()
)
"""Nodes in which ONNX Runtime runs a whole attention block."""

GROWTH = 1 << 24
"""Bytes by which the peak of activations may grow in any case: less is nobody's trouble."""

Profiles = tuple[Profile, Profile]
"""Of the original and of the new model."""


@dataclass(frozen=True, slots=True)
class Objection:
    """Why some regions have to go: a code, a sentence, and which."""

    sites: Sequence[Site]
    code: str
    reason: str


def unmeasured(why: str, plan: Plan) -> Objection:
    """All regions, where no output could be compared: a race that computes nothing says nothing."""
    return Objection(tuple(sites(plan)), "S901", f"nothing could be measured: {why}")


def unfused(profiles: Profiles, plan: Plan) -> Objection | None:
    """Regions that keep the runtime from fusing attention.

    It recognises attention by three separate products for query, key and value.
    """
    before, after = map(attention, profiles)
    wide = [site for site, groups in sites(plan).items() if any(map(_is_wide, groups))]
    if after >= before or not wide:
        return None
    reason = f"ONNX Runtime runs {before} fused attention node(s) without it, {after} with it"
    return Objection(wide, "S305", reason)


def attention(profile: Profile) -> int:
    """How many fused attention nodes ran."""
    return sum(n.calls for n in profile.node_times_us if n.op_type in ATTENTION)


def _is_wide(group: Group) -> bool:
    return group.form == "wide" and group.kind == LINEAR


def too_large(profiles: Profiles, plan: Plan, factor: float) -> Objection | None:
    """The least region, if the peak of activations grows by more than the factor."""
    before, after = (p.peak_activation_bytes for p in profiles)
    if before is None or after is None:
        return None
    if after <= max(before * factor, before + GROWTH):
        return None
    reason = (
        f"the peak of activations would grow from {before} to {after} bytes, "
        f"more than {factor:g} times (--max-activation)"
    )
    return Objection([least(plan)], "S304", reason)


def too_slow(raced: Sequence[tuple[Condition, Speedup]], plan: Plan) -> Objection | None:
    """The least region, if the whole model's race was lost somewhere, or won nowhere for sure."""
    lost = slower(raced)
    found = lost or undecided(raced)
    if found is None:
        return None
    condition, speedup = found
    reason = f"the whole model measured {speedup.words} at {condition.label}"
    if lost is None:
        reason = f"{reason}: no clear gain"
    return Objection([least(plan)], "S303", reason)
