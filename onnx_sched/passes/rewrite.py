"""Carry out a plan: a new node list, made without touching the old one.

What stays keeps its node proto and its place as far as the order of dependencies allows; every group
becomes its batched nodes where its first member stood; Concats and sums over lanes become changes of
layout; what nobody reads any more is left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnx import NodeProto

from onnx_sched.circuit import MAPS, WEIGHTED, Circuit, Unit, node_label
from onnx_sched.constants import Const
from onnx_sched.dims import Shape
from onnx_sched.passes.axes import wrap
from onnx_sched.passes.boundaries import Store
from onnx_sched.passes.compose import behind, compose
from onnx_sched.passes.emit import Emitter
from onnx_sched.passes.fold import fold_centres, fold_norms, key
from onnx_sched.passes.fusion_guards import guards
from onnx_sched.passes.homes import Homes, Piece, View
from onnx_sched.passes.lane_sums import LaneSums
from onnx_sched.passes.quantized_losses import Manners, worse
from onnx_sched.passes.quantized_moves import Moves
from onnx_sched.passes.rule import Batch
from onnx_sched.passes.rules import read_by, rule_for
from onnx_sched.passes.wishes import wishes
from onnx_sched.passes.worklist import Item, Worklist
from onnx_sched.plan import Group, Plan, Refused
from onnx_sched.stacking import packed
from onnx_sched.views import openings

MEMBERS = "onnx_sched.members"
"""Key of the note on a batched node: the names of the nodes that it replaced, as a JSON list."""


class GroupRefused(Exception):  # noqa: N818 - a signal to the planner
    """A group of the plan (by its place) cannot be made; the planner leaves it out and says why."""

    def __init__(self, group: int, refused: Refused) -> None:
        super().__init__(refused.reason)
        self.group = group
        self.refused = refused


@dataclass(frozen=True, slots=True)
class Made:
    """A node of the new graph and what it comes from.

    Attributes:
        proto: The node.
        group: The place in the plan of the group that it runs or serves; None for a node of the
            original.
        main: Whether it computes the group's members (and is not a boundary).
    """

    proto: NodeProto
    group: int | None
    main: bool


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The new graph's nodes, in order, and its new weights."""

    nodes: tuple[Made, ...]
    fresh: dict[str, Const]


def rewrite(circuit: Circuit, plan: Plan, taken: set[str], known: dict[object, str]) -> Rewritten:
    """Make the nodes that a plan asks for.

    Args:
        circuit: The original.
        plan: What to do.
        taken: All names in use in the model.
        known: Names of the model's constants by key.

    Raises:
        GroupRefused: If a group cannot be made as planned.
    """
    return _Rewrite(circuit, plan, set(taken), dict(known)).run()


class _Rewrite:
    def __init__(
        self, circuit: Circuit, plan: Plan, taken: set[str], known: dict[object, str]
    ) -> None:
        self._circuit = circuit
        self._graph = circuit.graph
        groups = compose(circuit, plan.groups)
        spare = behind(groups)
        groups = fold_centres(circuit, fold_norms(circuit, groups))
        folded = dict(zip(map(id, plan.groups), groups, strict=True))
        sums = tuple(
            r if r.linear is None else replace(r, linear=folded[id(r.linear)])
            for r in plan.reductions
        )
        self._plan = replace(plan, groups=groups, reductions=sums)
        self._given = plan.groups
        self._number = {id(g): n for n, g in enumerate(self._plan.groups)}
        self._emit = Emitter(circuit.graph.opset, taken, known, circuit.given)
        self._homes = Homes()
        self._group_of: dict[str, Group] = {}
        for group in self._plan.groups:
            for j, name in enumerate(group.units[0].outputs):
                for bundle in group.bundles(j) if name else ():
                    if len(bundle) > 1:  # a single value is made under its own name
                        self._homes.add_group(bundle)
                    self._group_of.update(dict.fromkeys(bundle, group))
        for group in self._plan.groups:
            if group.kind == WEIGHTED:
                # The products inside lie in one place, and no lane of them is made by itself.
                self._homes.add_group(tuple(u.parts[0].outputs[0] for u in group.units))
        for bundle, layout, source in openings(circuit):
            self._homes.add_view(View(bundle, layout, source))
        self._gone = {k for g in plan.groups for u in g.units for k in u.nodes}
        self._gone |= {k for r in plan.reductions for u in r.units for k in u.nodes}
        self._work = Worklist(circuit, self._plan, self._homes, self._gone, spare)

    def run(self) -> Rewritten:
        """Make what is needed, in order."""
        asked = {
            lanes
            for group in (item.group for item in self._work.items if item.group is not None)
            for k in read_by(group)
            if (lanes := group.lanes(k)) is not None
        }
        closings = [(i.node, i.closing) for i in self._work.items if i.node is not None]
        closed = [(k, pieces) for k, pieces in closings if pieces is not None]
        self._homes.wishes = wishes(self._circuit, self._plan.groups, closed)
        store = Store(self._circuit, self._emit, self._homes, self._work.wanted, asked)
        made: list[Made] = []
        for n in self._work.order():
            item = self._work.items[n]
            begin = len(self._emit.nodes)
            try:
                self._make(item, store)
            except Refused as refused:
                group = item.group or self._blame(item)
                if group is None:
                    raise
                raise GroupRefused(self._number[id(group)], refused) from None
            for proto in self._emit.nodes[begin:]:
                original = item.node is not None and item.closing is None
                if original and proto is self._emit.nodes[-1]:
                    made.append(Made(proto, None, False))
                else:
                    served = item.group or self._blame(item)
                    self._sign(item, served, proto)
                    place = self._number[id(served)] if served is not None else None
                    made.append(Made(proto, place, item.group is not None))
        return Rewritten(tuple(self._guarded(made)), self._emit.fresh)

    def _guarded(self, made: list[Made]) -> list[Made]:
        """The nodes with what keeps their Transposes out of products where that goes wrong."""
        shapes = [t.shape for t in self._circuit.values.types.values()]
        fixed = all(s is not None and all(isinstance(d, int) for d in s) for s in shapes)
        apart = guards(
            [m.proto for m in made],
            {id(m.proto) for m in made if m.group is not None},
            self._type,
            self._emit,
            may_be_empty=not (self._circuit.nonempty or fixed),
        )
        kept = [
            replace(m, proto=proto) for m in made for proto in apart.get(id(m.proto), (m.proto,))
        ]
        nodes, new = [m.proto for m in kept], {id(m.proto) for m in kept if m.group is not None}
        outputs = self._graph.output_set
        first = Moves(nodes, new, outputs, self._known_of, self._emit).first()
        made_as = {id(m.proto): m for m in kept}
        kept = [
            replace(made_as[like], proto=proto)
            for m in kept
            for proto, like in first.get(id(m.proto), ((m.proto, id(m.proto)),))
        ]
        self._check_products(kept)
        return kept

    def _check_products(self, made: list[Made]) -> None:
        """Refuse a group that makes a quantised product run worse than it did."""
        nodes, outputs = self._graph.nodes, self._graph.output_set
        if all(node.op_type != "DequantizeLinear" for node in nodes):
            return
        old = Manners(nodes, outputs, self._known_of)
        new = Manners([m.proto for m in made], outputs, self._known_of)
        groups = dict(enumerate(self._plan.groups))
        members = {n: [nodes[k] for u in g.units for k in u.nodes] for n, g in groups.items()}
        found = worse(old, new, [(m.proto, m.group) for m in made], members)
        if found is not None:
            raise GroupRefused(found[0], Refused("S305", found[1]))

    def _type(self, name: str) -> tuple[int | None, int]:
        """Number of axes, if known, and element type of a value of the original or of a new weight."""
        shape, elem_type = self._known_of(name)
        return (None if shape is None else len(shape)), elem_type

    def _known_of(self, name: str) -> tuple[Shape | None, int]:
        """Shape, if known, and element type of such a value."""
        if name in self._emit.fresh:
            return self._emit.fresh[name].shape, self._emit.fresh[name].elem_type
        known = self._circuit.values.types.get(name)
        return (known.shape, known.elem_type) if known is not None else (None, 0)

    def _sign(self, item: Item, served: Group | None, node: NodeProto) -> None:
        """Note on a new node what it stands for: an optimised model tells where it comes from."""
        replaced: list[int] = []
        if item.reduction is not None:
            replaced = [k for u in item.reduction.units for k in u.nodes]
        elif item.closing is not None and item.node is not None:
            replaced = [item.node]
        elif served is not None:
            replaced = [k for u in served.units for p in self._stands_for(u) for k in p.nodes]
        members = [node_label(self._graph, k) for k in replaced]
        node.metadata_props.add(key=MEMBERS, value=json.dumps(members, ensure_ascii=False))

    def _stands_for(self, unit: Unit) -> list[Unit]:
        """A unit, and of what was put together in it those that nothing makes any more."""
        if unit.kind not in MAPS:
            return [unit]
        return [p for p in unit.parts if self._work.made.isdisjoint(p.outputs)] + [unit]

    def _blame(self, item: Item) -> Group | None:
        """The group whose lanes an item brings out."""
        names: Sequence[str] = ()
        if item.reduction is not None:
            names = item.reduction.terms
        elif item.closing is not None:
            names = [p.lanes[0] for p in item.closing]
        elif item.node is not None:
            names = [self._circuit.values.first(n) for n in self._graph.reads[item.node]]
            names += self._graph.nodes[item.node].output
        return next((self._group_of[n] for n in names if n in self._group_of), None)

    # -- making -------------------------------------------------------------------------------------

    def _make(self, item: Item, store: Store) -> None:
        if item.group is not None:
            rule = rule_for(item.group.units[0])
            assert rule is not None
            batch = Batch(item.group, self._circuit, store, self._emit)
            if not batch.varies:
                raise Refused("S102", self._all_alike(item.group))
            rule.emit(batch)
        elif item.reduction is not None:
            LaneSums(self._circuit, self._emit, store, self._homes).make(item.reduction)
        elif item.node is not None and item.closing is not None:
            self._close(item.node, item.closing, store)
        elif item.node is not None:
            for name in self._graph.reads[item.node]:
                store.value(name)
            self._emit.nodes.append(self._graph.nodes[item.node])
            for name in self._graph.nodes[item.node].output:
                if name in self._homes.made:
                    raise AssertionError(f"{name!r} is made twice")
        for name in self._work.outputs(item):
            if name in self._graph.output_set:
                store.value(name)

    def _all_alike(self, group: Group) -> str:
        """Why nothing is left to batch in a group."""
        given = self._given[self._number[id(group)]]
        if any(
            len({key(u.operands[k]) for u in given.units}) > 1
            for k in range(1, len(given.units[0].operands))
        ):
            return "they read one value, and what differs between them goes into the products behind them"
        return "nothing differs between them: they compute one value"

    def _close(self, k: int, pieces: list[Piece], store: Store) -> None:
        """Concat of lanes: a change of layout, and a Concat of what comes from several places."""
        node, unit = self._graph.nodes[k], self._circuit.unit_of[k]
        rank = len(self._circuit.values.types[pieces[0].lanes[0]].shape or ())
        layout = packed(rank, wrap(unit.integer("axis", 1), rank))
        if len(pieces) == 1:
            store.get(pieces[0].lanes, layout, node.output[0])
            return
        names = [
            store.get(p.lanes, layout) if len(p.lanes) > 1 else store.value(p.lanes[0])
            for p in pieces
        ]
        copy = NodeProto()
        copy.CopyFrom(node)
        del copy.input[:]
        copy.input.extend(names)
        self._emit.nodes.append(copy)
