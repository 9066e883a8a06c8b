"""The ways in which a region could be run, best guesses first.

Units that are alike within a region take one form together; a few rounds of coordinate descent over
these choices, each judged by the cost model on the nodes that would really be emitted, find the layouts
that fit each other.  "separate" is always one of the choices: a region is cut where batching stops paying.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnx import TensorProto

from onnx_sched.analysis import Analysis
from onnx_sched.circuit import LINEAR, WEIGHTED, Circuit
from onnx_sched.constants import Const
from onnx_sched.cost import Device
from onnx_sched.extract import excerpts, fingerprint
from onnx_sched.find import is_heavy
from onnx_sched.passes import compose
from onnx_sched.passes.fold import NORMS
from onnx_sched.passes.rewrite import GroupRefused, Rewritten, rewrite
from onnx_sched.payoff import Costs, region_costs, replaced
from onnx_sched.plan import Group, Plan
from onnx_sched.sums import addable, reductions, settled
from onnx_sched.weighing import FORM as WEIGHTED_SUM

SEPARATE = "separate"
UNIFORM: tuple[tuple[str, ...], ...] = (
    (),
    *(
        (WEIGHTED_SUM, *others)
        for others in (
            (),
            ("conv_t",),
            ("apart",),
            ("grouped_conv",),
            ("grouped_conv_1d",),
            ("instance_norm", "conv_t"),
            ("instance_norm", "grouped_conv_1d"),
            ("instance_norm", "apart", "conv_t"),
            ("stacked",),
            ("instance_norm",),
            ("instance_norm", "grouped_conv"),
            ("apart", "conv_t"),
        )
    ),
)
"""Where the search starts: every group takes the first of these forms that it can have, or its own."""

SWEEPS = 2
TRIALS = 40

SURE = 0.4
"""A variant whose estimated log ratio is above this is not even tried."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run a region.

    Attributes:
        chosen: Form by kind of group.
        groups: The region's groups, each with its form.
        rewritten: The whole graph with only this region rewritten.
        costs: Estimated times before and after.
        base: Nodes of the original that the plain variant replaces, by their place.
    """

    chosen: Mapping[Hashable, str]
    groups: tuple[Group, ...]
    rewritten: Rewritten
    costs: Costs
    base: frozenset[int]

    @property
    def score(self) -> float:
        """Mean over sizes of log(region's time after / before), estimated; below 0 is faster."""
        return sum(map(self.costs.log_ratio, self.costs.sizes)) / len(self.costs.sizes)


AS_CONVOLUTION = ("conv_t", "grouped_conv", "grouped_conv_1d")
"""The forms of linear maps that are convolutions."""

RACED_ONLY = frozenset({*AS_CONVOLUTION, "instance_norm", WEIGHTED_SUM})
"""What wins on some devices only: not taken by the profile of one where nobody measured it."""


def forms(group: Group, circuit: Circuit, convolves: bool = True) -> tuple[str, ...]:
    """The forms that a group can take, the plainest first; by convolutions only if asked."""
    found = _forms(group)
    if compose.composed(circuit, group):
        found += compose.FORMS
    if any(
        isinstance(o, Const) and o.elem_type == TensorProto.DOUBLE
        for u in group.units
        for o in u.operands
    ):
        convolves = False
    return found if convolves else tuple(f for f in found if f not in RACED_ONLY)


def _forms(group: Group) -> tuple[str, ...]:
    if group.segments:
        return (group.form, "parts", SEPARATE)
    if group.kind in NORMS:
        scale = group.units[0].operands[1]
        plain = isinstance(scale, Const) and scale.elem_type == TensorProto.FLOAT
        channels = plain and group.kind == "LayerNormalization"
        return ("stacked", "conv_t", "instance_norm") if channels else ("stacked", "conv_t")
    if group.kind == WEIGHTED:
        return ("stacked", WEIGHTED_SUM)
    if group.kind != LINEAR:
        return (group.form, SEPARATE) if is_heavy(group.units[0]) else (group.form,)
    if len({u.operands[0] for u in group.units}) == 1:
        return ("wide", "stacked", "apart", *AS_CONVOLUTION, SEPARATE)
    return ("stacked", *AS_CONVOLUTION, SEPARATE)


def kind_key(group: Group, circuit: Circuit) -> Hashable:
    """Groups with equal keys, alike and read by alike units, take one form together."""
    weight = group.units[0].operands[1] if len(group.units[0].operands) > 1 else None
    shape = weight.shape if isinstance(weight, Const) else None
    shared = len({u.operands[0] for u in group.units}) == 1
    readers = tuple(sorted(u.kind for u, _ in circuit.users.get(group.units[0].outputs[0], ())))
    found = bool(compose.composed(circuit, group))
    return (group.kind, group.size, group.form, shape, shared, group.segments, readers, found)


def _sum_key(group: Group, circuit: Circuit) -> Hashable:
    """The same for how the lanes of groups are added up."""
    return ("sum", kind_key(group, circuit))


def choices(
    groups: Sequence[Group], circuit: Circuit, convolves: bool = True
) -> dict[Hashable, tuple[str, ...]]:
    """By kind of groups, and by how their lanes are added up: the forms between which there is a choice."""
    sums = addable(circuit, groups) if convolves else frozenset()
    found: dict[Hashable, tuple[str, ...]] = {}
    for n, group in enumerate(groups):
        if n in sums:
            found[_sum_key(group, circuit)] = ("stacked", WEIGHTED_SUM)
        found[kind_key(group, circuit)] = forms(group, circuit, convolves)
    return {key: options for key, options in found.items() if len(options) > 1}


def formed(
    groups: Sequence[Group], chosen: Mapping[Hashable, str], circuit: Circuit
) -> tuple[Group, ...]:
    """The groups in the forms chosen for their kinds; separate ones are left out.

    What is part of a linear map that ends with another group stays with it: it is not made by itself.
    """
    found: list[Group] = []
    apart: list[Group] = []
    for group in groups:
        form = chosen.get(kind_key(group, circuit), group.form)
        added = chosen.get(_sum_key(group, circuit))
        if added is not None:
            group = replace(group, summed=added == WEIGHTED_SUM)
        if form == SEPARATE:
            apart.append(group)
            continue
        if form == "parts":
            found += _parts(group)
        else:
            found.append(replace(group, form=form))
    taken = compose.behind(compose.compose(circuit, found))
    kept = [g for g in apart if all(u.number in taken for u in g.units)]
    if not kept:
        return settled(circuit, found)
    place = {u.number: n for n, g in enumerate(groups) for u in g.units}
    whole = sorted((*found, *kept), key=lambda g: place[g.units[0].number])
    return settled(circuit, whole)


def _parts(group: Group) -> list[Group]:
    """The bundles of a wide group as groups of their own."""
    found, start = [], 0
    for length in group.segments:
        if length > 1:
            units = group.units[start : start + length]
            found.append(replace(group, units=units, segments=()))
        start += length
    return found


class Explorer:
    """Tries variants of one region and remembers them all."""

    def __init__(
        self,
        analysis: Analysis,
        region: Sequence[Group],
        device: Device,
        trials: int,
        convolves: bool = True,
    ) -> None:
        self._analysis = analysis
        self._region = tuple(region)
        self._device = device
        self._left = trials
        self._convolves = convolves
        self._base: frozenset[int] = frozenset()
        self._names = analysis.names
        self._seen: dict[tuple[tuple[int, str, bool], ...], Variant | None] = {}

    def plain(self) -> Variant | None:
        """The region in its first form."""
        return self._try({})

    def best(self, count: int) -> list[Variant]:
        """The most promising variants, and the plain ones in any case."""
        options = choices(self._region, self._analysis.circuit, self._convolves)
        plain: list[Variant] = []
        start: dict[Hashable, str] = {}
        for preferred in UNIFORM:
            chosen: dict[Hashable, str] = {
                k: next(f for f in preferred if f in c)
                for k, c in options.items()
                if not set(preferred).isdisjoint(c)
            }
            if preferred and not chosen:
                continue
            variant = self._try(chosen)
            if variant is not None and variant not in plain:
                plain.append(variant)
                if variant.score <= min(v.score for v in plain):
                    start = dict(chosen)
        best = dict(start)
        for _ in range(SWEEPS):
            for key, offered in options.items():
                scores = {}
                for form in offered:
                    variant = self._try({**best, key: form})
                    if variant is not None:
                        scores[form] = variant.score
                if scores:
                    best[key] = min(scores, key=lambda f: scores[f])
        ranked = sorted((v for v in self._seen.values() if v is not None), key=lambda v: v.score)
        found = ranked[:count]
        # What is best at one size only may be the one that is slower at none.
        for size in ranked[0].costs.sizes if ranked else ():
            by_size = sorted(ranked, key=lambda v: v.costs.log_ratio(size))
            found += [v for v in by_size[: max(1, count // 4)] if v not in found]
        # The cost model may be wrong about a whole form: the best uniform ones get their chance, too.
        for variant in sorted(plain, key=lambda v: v.score)[:4]:
            if variant not in found and variant.score < SURE:
                found.append(variant)
        return found

    def _try(self, chosen: Mapping[Hashable, str]) -> Variant | None:
        groups = formed(self._region, chosen, self._analysis.circuit)
        key = tuple((g.units[0].number, g.form, g.summed) for g in groups)
        if key not in self._seen:
            if self._left <= 0:
                return None
            self._left -= 1
            self._seen[key] = self._make(groups, chosen)
        return self._seen[key]

    def _make(self, groups: tuple[Group, ...], chosen: Mapping[Hashable, str]) -> Variant | None:
        if not groups:
            return None
        circuit = self._analysis.circuit
        try:
            plan = Plan(groups, reductions(circuit, groups))
            rewritten = rewrite(circuit, plan, self._names, self._analysis.known)
        except GroupRefused:
            return None
        if not self._base:  # the plain variant is tried first
            self._base = replaced(self._analysis, groups, rewritten)
        costs = region_costs(self._analysis, groups, rewritten, self._device, self._base)
        return Variant(dict(chosen), groups, rewritten, costs, self._base)


@dataclass
class Modeller:
    """Decides region by region by the cost model alone; regions that are alike are explored once.

    Attributes:
        analysis: The model.
        device: Profile that decides.
    """

    analysis: Analysis
    device: Device
    _known: dict[bytes, tuple[Mapping[Hashable, str] | None, str]] = field(default_factory=dict)

    def decide(self, region: Sequence[Group]) -> tuple[tuple[Group, ...], str]:
        """The region in its best form, or nothing and the reason."""
        trials = trials_for(self.analysis)
        convolves = self.device.convolves
        explorer = Explorer(self.analysis, region, self.device, trials, convolves)
        plain = explorer.plain()
        pair = excerpts(self.analysis, plain.rewritten) if plain is not None else None
        key = b"|".join(map(fingerprint, pair)) if pair is not None else b""
        if not key or key not in self._known:
            paying = [v for v in explorer.best(TRIALS) if v.costs.pays()]
            best = min(paying, key=lambda v: v.score, default=None)
            why = plain.costs.words() if plain is not None else "no form of it can be made"
            outcome = (best.chosen if best is not None else None, why)
            self._known[key] = outcome
        chosen, why = self._known[key]
        if chosen is None:
            return (), why
        return formed(region, chosen, self.analysis.circuit), ""


def trials_for(analysis: Analysis) -> int:
    """How many variants of a region are tried: fewer in large models, where each takes longer."""
    return max(8, min(TRIALS, 200_000 // max(1, len(analysis.graph.nodes))))
