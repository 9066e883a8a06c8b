"""Why this node: what would become of one node if all were batched that is legal, and if nothing, why.

Nothing is run for it: structure alone decides here.  What is legal may still be slower; that is for
`optimize` to measure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

from onnx_sched.analysis import Analysis
from onnx_sched.bodies import bodies
from onnx_sched.calls import opened
from onnx_sched.circuit import Circuit, Unit, node_label
from onnx_sched.errors import UsageError
from onnx_sched.find import regions
from onnx_sched.levelling import best_groups
from onnx_sched.naming import close_to, find, named
from onnx_sched.near import Near, nearest
from onnx_sched.options import BODIES, FUNCTIONS
from onnx_sched.passes.rewrite import GroupRefused, Rewritten, rewrite
from onnx_sched.passes.rules import rule_for
from onnx_sched.payoff import idle_regions
from onnx_sched.plan import Group, Plan, manner
from onnx_sched.planner import Draft, modelled_plan, of_region
from onnx_sched.refusals import called, is_batched, why
from onnx_sched.sums import reductions

Skip = Callable[[Unit], bool]
Outcome = Literal["batched", "summed", "layout", "opened", "kept", "constant", "renamed", "unused"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What becomes of one node, and why.

    Attributes:
        node, op_type: Which node.
        inside: The body of an If, Loop or Scan that it stands in; empty for the main graph.
        layer, wires: Its place in the annotation; layer -1 for constants.
        outcome: "batched"; "summed" as a term's Add of a sum over lanes; "layout" for a node that gives
            way to a change of layout; "opened" for a call of a function; "kept" as it is; "constant",
            "renamed" or "unused" for one that does no work of its own.
        sentence: The same in words.
        lane, form, members, becomes: Of a batched node: its lane from 0, how the group is run, one node
            of each lane, and the new nodes.
        region: The groups that follow each other along the same wires, in words.
        code, reason: Of a node that is kept: why; the code may be empty where nothing speaks against it.
        near: The most alike others, and what tells them apart.
        namesakes: Where several nodes bear the name that was asked for: what each of them makes, the
            explained one first.
    """

    node: str
    op_type: str
    inside: str
    layer: int
    wires: tuple[int, ...]
    outcome: Outcome
    sentence: str
    lane: int = 0
    form: str = ""
    members: tuple[str, ...] = ()
    becomes: tuple[str, ...] = ()
    region: tuple[str, ...] = ()
    code: str = ""
    reason: str = ""
    near: tuple[Near, ...] = ()
    namesakes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def explain(
    analysis: Analysis,
    name: str,
    skips: Callable[[Circuit], Skip],
    without: Collection[str] = (),
) -> Explanation:
    """Explain a node; of several that bear the name, the first one.

    Args:
        analysis: The model.
        name: The node's name, or one of its outputs.
        skips: Gives the test of whether a unit must stay as it is, for the main graph or a body.
        without: Names of passes that are left out.

    Raises:
        UsageError: If there is no such node; it says which are close.
    """
    seen = analysis if FUNCTIONS in without else opened(analysis, skips).analysis
    places = [("", seen), *((b.label, b.analysis) for b in bodies(seen))]
    for inside, place in places:
        k = find(place.graph, name)
        if k is not None:
            aside = inside and BODIES in without
            skip: Skip = (lambda _: True) if aside else skips(place.circuit)
            found = Explainer(place, skip, inside).explain(k)
            called = bool(named(place.graph, name))
            return replace(found, namesakes=_namesakes(places, name) if called else ())
    k = find(analysis.graph, name)
    if k is not None:  # in the file, but no longer there when its call was replaced
        words = "is a call of a function, and gives way to the function's nodes"
        return Explainer(analysis, skips(analysis.circuit)).made(k, "opened", words)
    labels = [node_label(a.graph, k) for _, a in places for k in range(len(a.graph.nodes))]
    raise UsageError(f"--node {name}: the model has no such node", close_to(name, labels))


def _namesakes(places: Sequence[tuple[str, Analysis]], name: str) -> tuple[str, ...]:
    """What the nodes of one name make, the first output of each; empty unless several bear it."""
    found = [
        next((o for o in place.graph.nodes[k].output if o), "?")
        for _, place in places
        for k in named(place.graph, name)
    ]
    return tuple(found) if len(found) > 1 else ()


class Explainer:
    """Explains the nodes of one graph; what it finds out it keeps for the next node.

    Args:
        analysis: The graph.
        skip: Which units must stay as they are.
        inside: The body of which it is the graph; empty for the main graph.
    """

    def __init__(self, analysis: Analysis, skip: Skip, inside: str = "") -> None:
        self._analysis = analysis
        self._graph = analysis.graph
        self._circuit = analysis.circuit
        self._skip = skip
        self._inside = inside

    @cached_property
    def draft(self) -> Draft:
        """All that is legal."""
        return modelled_plan(self._analysis, self._skip, None)

    @cached_property
    def _found(self) -> tuple[tuple[int, ...], tuple[Group, ...]]:
        """The level function, and the groups before any turned out to be impossible."""
        return best_groups(self._circuit, self._skip)

    @cached_property
    def _given_up(self) -> list[tuple[Group, str, str]]:
        return given_up(self._analysis, self._found[1])

    def explain(self, k: int) -> Explanation:
        """What becomes of a node."""
        passive = self._passive(k)
        if passive is not None:
            return passive
        draft = self.draft
        for place, group in enumerate(draft.plan.groups):
            for lane, unit in enumerate(group.units):
                if k in unit.nodes:
                    return self._batched(k, place, lane)
        for reduction in draft.plan.reductions:
            if any(k in u.nodes for u in reduction.units):
                what = "mean" if reduction.mean else "sum"
                words = f"becomes part of one {what} over {len(reduction.terms)} lanes"
                return self.made(k, "summed", words)
        new = [m.proto for m in draft.rewritten.nodes] if draft.rewritten else None
        node = self._graph.nodes[k]
        if new is None or any(n is node for n in new):
            return self._kept(k)
        same = [n for n in new if n.op_type == node.op_type and n.output[:] == node.output[:]]
        if same:
            few, many = len(same[0].input), len(node.input)
            words = f"stays, but reads lanes that lie together: {few} values, where it read {many}"
            return self.made(k, "kept", words)
        words = "gives way to a change of layout: lanes that are stacked need no such node"
        return self.made(k, "layout", words)

    def made(self, k: int, outcome: Outcome, sentence: str, **more: Any) -> Explanation:
        """An explanation of a node."""
        node = self._graph.nodes[k]
        notes = self._analysis.annotation
        return Explanation(
            node_label(self._graph, k),
            node.op_type,
            self._inside,
            notes.layers[k],
            notes.wires[k],
            outcome,
            sentence,
            **more,
        )

    def _passive(self, k: int) -> Explanation | None:
        """The explanation of a node that does no work of its own; None for others."""
        values = self._analysis.values
        made = [o for o in self._graph.nodes[k].output if o]
        if not self._graph.live[k]:
            return self.made(k, "unused", "makes nothing that an output of the model needs")
        if made and all(o in values.constants for o in made):
            return self.made(k, "constant", "makes a constant, which is known before anything runs")
        if made and all(o in values.canon for o in made) and made[0] not in values.undone:
            first = values.first(made[0])
            words = f"makes what is there already, under another name: {first!r}"
            return self.made(k, "renamed", words)
        return None

    def _batched(self, k: int, place: int, lane: int) -> Explanation:
        group, rewritten = self.draft.plan.groups[place], self.draft.rewritten
        assert rewritten is not None
        new = [m.proto.name for m in rewritten.nodes if m.group == place and m.main]
        how = manner(group.kind, group.form, group.summed)
        return self.made(
            k,
            "batched",
            f"lane {lane + 1} of {group.size} that run as one ({how})",
            lane=lane,
            form=group.form,
            members=self._circuit.labels(group.units),
            becomes=tuple(new),
            region=self._steps(of_region(self.draft.plan.groups, group.region)),
        )

    def _steps(self, groups: Sequence[Group]) -> tuple[str, ...]:
        """Groups in words, in their order."""
        nodes = [self._graph.nodes[g.units[0].nodes[0]] for g in groups]
        first = [self._circuit.values.op(node).op_type for node in nodes]
        return tuple(
            f"{g.size} {op} ({manner(g.kind, g.form, g.summed)})"
            for g, op in zip(groups, first, strict=True)
        )

    def _kept(self, k: int) -> Explanation:
        """A node that stays: the reason, and who it nearly ran with."""
        unit = self._circuit.unit_of.get(k)
        if unit is None:
            return self.made(k, "kept", "stays as it is: it is not part of any computation")
        if unit.kind in ("Shape", "Size"):
            words = "stays as it is: it computes a size, which costs next to nothing"
            return self.made(k, "kept", words)
        code, reason = self._reason(k, unit)
        near = () if code.startswith("S4") else nearest(self._circuit, self._found[0], unit)
        return self.made(k, "kept", "stays as it is", code=code, reason=reason, near=near)

    def _reason(self, k: int, unit: Unit) -> tuple[str, str]:
        """Code and reason of a unit that is in no group."""
        levels = self._found[0]
        label = node_label(self._graph, k)
        names = {label, self._circuit.label(unit)}
        for refusal in self.draft.plan.refusals:
            if names & {*refusal.nodes}:
                return refusal.code, refusal.reason
        if is_batched(self._circuit, unit):
            return "S402", "it is a batched node already"
        if self._skip(unit):
            return "S401", "you asked not to touch it"
        for group, code, reason in self._given_up:
            if unit in group.units:
                return code, reason
        rule = rule_for(unit)
        kind = unit.kind if unit.kind != "Linear" else self._graph.nodes[k].op_type
        peers = [u for u in self._circuit.units if u is not unit and u.kind == unit.kind]
        beside = [u for u in peers if levels[u.number] == levels[unit.number]]
        if rule is None or rule.check(unit, self._circuit) is not None:
            return why(self._circuit, unit, [])
        if not peers:
            return "", f"it is the only {kind}"
        if not beside:
            return "S101", f"no other {kind} can run at the same time"
        code, reason = why(self._circuit, unit, beside)
        if code == "S301" and not rule.heavy:
            reason = "it carries on no lanes: a light op is batched only where its neighbours are"
        return code, reason


def given_up(analysis: Analysis, groups: tuple[Group, ...]) -> list[tuple[Group, str, str]]:
    """Groups that were found but cannot be made, or would save nothing: with code and reason."""
    circuit = analysis.circuit
    found: list[tuple[Group, str, str]] = []
    rewritten: Rewritten | None = None
    while groups and rewritten is None:
        try:
            plan = Plan(groups, reductions(circuit, groups))
            rewritten = rewrite(circuit, plan, analysis.names, analysis.known)
        except GroupRefused as error:
            gone = groups[error.group]
            found.append(
                (gone, error.refused.code, f"{called(circuit, gone.units)}: {error.refused.reason}")
            )
            groups = regions([g for g in groups if g is not gone])
    if rewritten is not None:
        idle = idle_regions(analysis, groups, rewritten)
        words = "light ops alone: bringing their lanes together takes as many nodes as it saves"
        found += [(g, "S303", words) for g in groups if g.region in idle]
    return found
