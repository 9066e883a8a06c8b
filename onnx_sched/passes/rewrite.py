"""Carry out a plan: a new node list, made without touching the old one.

What stays keeps its node proto and its place as far as the order of dependencies allows; every group
becomes its batched nodes where its first member stood; Concats and sums over lanes become changes of
layout; what nobody reads any more is left out.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from onnx import NodeProto

from onnx_sched.circuit import Circuit, node_label
from onnx_sched.constants import Const
from onnx_sched.nodes import domain_of
from onnx_sched.passes.axes import wrap
from onnx_sched.passes.boundaries import Bundle, Homes, Piece, Store, View
from onnx_sched.passes.emit import Emitter
from onnx_sched.passes.empty_batches import barriers, exposed
from onnx_sched.passes.fold import fold_centres, fold_norms
from onnx_sched.passes.rule import Batch
from onnx_sched.passes.rules import rule_for
from onnx_sched.plan import Group, Plan, Reduction, Refused
from onnx_sched.relayout import Crop, Step, Transpose, effort, steps
from onnx_sched.stacking import Layout, at, lane_axis, lead, packed, plain, separate
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


@dataclass(slots=True)
class _Item:
    """Something to emit: a kept node, a group, or a reduction."""

    place: int
    node: int | None = None
    group: Group | None = None
    reduction: Reduction | None = None
    closing: list[Piece] | None = None
    needs: set[int] = field(default_factory=set)


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
        groups = fold_centres(circuit, fold_norms(circuit, plan.groups))
        self._plan = replace(plan, groups=groups)
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
        for bundle, layout, source in openings(circuit):
            self._homes.add_view(View(bundle, layout, source))
        self._gone = {k for g in plan.groups for u in g.units for k in u.nodes}
        self._sums = {r.output: r for r in plan.reductions}
        self._gone |= {k for r in plan.reductions for u in r.units for k in u.nodes}
        self._wanted: set[str] = set()
        self._items: list[_Item] = []
        self._item_of: dict[str, int] = {}

    def run(self) -> Rewritten:
        """Decide what is needed, order it, and make it."""
        self._collect()
        asked = {
            lanes
            for group in self._plan.groups
            for k in range(len(group.units[0].operands))
            if (lanes := self._batch_lanes(group, k)) is not None
        }
        store = Store(self._circuit, self._emit, self._homes, self._wanted, asked)
        made: list[Made] = []
        for n in self._order():
            item = self._items[n]
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
        """The nodes with what an empty batch needs to stay legal."""
        shapes = [t.shape for t in self._circuit.values.types.values()]
        fixed = all(s is not None and all(isinstance(d, int) for d in s) for s in shapes)
        if self._circuit.nonempty or fixed:
            return made
        new = {id(m.proto) for m in made if m.group is not None}
        found = exposed([m.proto for m in made], lambda node: id(node) in new)
        split = barriers(found, self._emit)
        return [
            replace(m, proto=proto)
            for m in made
            for proto in (split.get(m.proto.output[0]) if id(m.proto) in new else None) or (m.proto,)
        ]

    def _sign(self, item: _Item, served: Group | None, node: NodeProto) -> None:
        """Note on a new node what it stands for: an optimised model tells where it comes from."""
        replaced: list[int] = []
        if item.reduction is not None:
            replaced = [k for u in item.reduction.units for k in u.nodes]
        elif item.closing is not None and item.node is not None:
            replaced = [item.node]
        elif served is not None:
            replaced = [k for u in served.units for k in u.nodes]
        members = [node_label(self._graph, k) for k in replaced]
        node.metadata_props.add(key=MEMBERS, value=json.dumps(members, ensure_ascii=False))

    def _blame(self, item: _Item) -> Group | None:
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

    # -- what is needed, from the outputs backwards ---------------------------------------------

    def _collect(self) -> None:
        needed: set[str] = set(self._graph.outputs)
        first_of = {id(g): min(u.nodes[0] for u in g.units) for g in self._plan.groups}
        ends = {max(u.nodes[-1] for u in g.units): g for g in self._plan.groups}
        sums = {r.units[-1].nodes[-1]: r for r in self._plan.reductions}
        done: list[_Item] = []
        for k in self._backwards(ends, sums):
            node = self._graph.nodes[k]
            if k in ends:
                group = ends[k]
                item = _Item(first_of[id(group)], group=group)
                self._need_group(group, needed)
                done.append(item)
            elif k in sums:
                if sums[k].output in needed:
                    item = _Item(k, reduction=sums[k])
                    for piece in self._homes.pieces(sums[k].terms):
                        if len(piece.lanes) == 1:
                            needed.update(piece.lanes)
                        self._need_piece(piece, needed)
                    done.append(item)
            elif k not in self._gone:
                dead = not self._graph.live[k]
                if dead or any(o in needed for o in node.output):
                    item = _Item(k, node=k, closing=self._closing(k))
                    if item.closing is not None:
                        for piece in item.closing:
                            if len(piece.lanes) == 1:
                                needed.update(piece.lanes)
                            self._need_piece(piece, needed)
                    else:
                        needed.update(self._graph.reads[k])
                    done.append(item)
        self._items = done[::-1]
        self._wanted = {n for n in needed if n in self._homes.made}
        for n, item in enumerate(self._items):
            for name in self._outputs(item):
                self._item_of[name] = n

    def _backwards(self, ends: dict[int, Group], sums: dict[int, Reduction]) -> list[int]:
        """Nodes such that every reader comes before what it reads, groups taken as one."""
        count = len(self._graph.nodes)
        of = list(range(count))
        for end, group in ends.items():
            for unit in group.units:
                for k in unit.nodes:
                    of[k] = end
        for end, reduction in sums.items():
            for unit in reduction.units:
                for k in unit.nodes:
                    of[k] = end
        succs: list[set[int]] = [set() for _ in range(count)]
        waits = [0] * count
        for k in range(count):
            names = list(self._graph.reads[k])
            names += [self._circuit.values.first(n) for n in names]
            makers = {self._graph.producer[n] for n in names if n in self._graph.producer}
            makers.update(self._graph.preds[k])
            for p in makers:
                a, b = of[p], of[k]
                if a != b and a not in succs[b]:
                    succs[b].add(a)
                    waits[a] += 1
        ready = [-k for k in range(count) if of[k] == k and not waits[k]]
        heapq.heapify(ready)
        order = []
        while ready:
            k = -heapq.heappop(ready)
            order.append(k)
            for p in sorted(succs[k]):
                waits[p] -= 1
                if not waits[p]:
                    heapq.heappush(ready, -p)
        if len(order) < len({*of}):
            raise AssertionError("the plan's groups depend on each other in a circle")
        return order

    def _outputs(self, item: _Item) -> list[str]:
        if item.group is not None:
            return [o for u in item.group.units for o in u.outputs if o]
        if item.reduction is not None:
            return [item.reduction.output]
        assert item.node is not None
        return [o for o in self._graph.nodes[item.node].output if o]

    def _batch_lanes(self, group: Group, k: int) -> Bundle | None:
        operands = [u.operands[k] for u in group.units]
        names = tuple(o for o in operands if isinstance(o, str))
        return names if len(names) == group.size and len(set(names)) > 1 else None

    def _need_group(self, group: Group, needed: set[str]) -> None:
        for k, operand in enumerate(group.units[0].operands):
            lanes = self._batch_lanes(group, k)
            if lanes is not None:
                for piece in self._homes.pieces(lanes):
                    self._need_piece(piece, needed)
            elif isinstance(operand, str):
                needed.add(operand)

    def _need_piece(self, piece: Piece, needed: set[str]) -> None:
        if piece.home is None:
            needed.update(piece.lanes)
        elif piece.home in self._homes.views and piece.lanes[0] not in self._homes.made:
            needed.add(self._homes.views[piece.home].source)

    def _closing(self, k: int) -> list[Piece] | None:
        """The pieces of a Concat that puts lanes of batched nodes together; None if it does not."""
        node = self._graph.nodes[k]
        unit = self._circuit.unit_of.get(k)
        if node.op_type != "Concat" or domain_of(node) or unit is None:
            return None
        names = tuple(o for o in unit.operands if isinstance(o, str))
        if len(names) != len(unit.operands):
            return None
        pieces = self._homes.pieces(names)
        if not any(len(p.lanes) > 1 and p.lanes[0] in self._homes.made for p in pieces):
            return None
        shape = self._circuit.shape(names[0])
        if shape is None:
            return None
        axis = wrap(unit.integer("axis", 1), len(shape))
        open_sizes = [d for d in shape[axis:] if not isinstance(d, int)]
        return pieces if len(open_sizes) <= 1 else None

    # -- order ------------------------------------------------------------------------------------

    def _order(self) -> list[int]:
        """A topological order of the items that keeps the file's order where it can."""
        for item in self._items:
            item.needs = {self._item_of[n] for n in self._needs(item) if n in self._item_of}
            if item.node is not None:
                for p in self._graph.preds[item.node]:
                    for o in self._graph.nodes[p].output:
                        if o in self._item_of:
                            item.needs.add(self._item_of[o])
        numbers = {id(item): n for n, item in enumerate(self._items)}
        succs: list[list[int]] = [[] for _ in self._items]
        waits = [0] * len(self._items)
        for n, item in enumerate(self._items):
            item.needs.discard(numbers[id(item)])
            waits[n] = len(item.needs)
            for m in item.needs:
                succs[m].append(n)
        ready = [(item.place, n) for n, item in enumerate(self._items) if not waits[n]]
        heapq.heapify(ready)
        order = []
        while ready:
            _, n = heapq.heappop(ready)
            order.append(n)
            for m in succs[n]:
                waits[m] -= 1
                if not waits[m]:
                    heapq.heappush(ready, (self._items[m].place, m))
        if len(order) < len(self._items):
            raise AssertionError("the plan's groups depend on each other in a circle")
        return order

    def _needs(self, item: _Item) -> list[str]:
        """Names of everything that must be there before an item is made."""
        names: list[str] = []
        pieces: list[Piece] = []
        if item.group is not None:
            for k, operand in enumerate(item.group.units[0].operands):
                lanes = self._batch_lanes(item.group, k)
                if lanes is not None:
                    pieces += self._homes.pieces(lanes)
                elif isinstance(operand, str):
                    names.append(operand)
        elif item.reduction is not None:
            found = self._homes.pieces(item.reduction.terms)
            pieces += found
            names += [p.lanes[0] for p in found if len(p.lanes) == 1]
        elif item.closing is not None:
            pieces += item.closing
            names += [p.lanes[0] for p in item.closing if len(p.lanes) == 1]
        elif item.node is not None:
            names += self._graph.reads[item.node]
        for piece in pieces:
            view = self._homes.views.get(piece.home) if piece.home is not None else None
            names += [view.source] if view is not None else list(piece.lanes)
        return names

    # -- making -------------------------------------------------------------------------------------

    def _make(self, item: _Item, store: Store) -> None:
        if item.group is not None:
            rule = rule_for(item.group.units[0])
            assert rule is not None
            batch = Batch(item.group, self._circuit, store, self._emit)
            if not batch.varies:
                raise Refused("S102", "nothing differs between them: they compute one value")
            rule.emit(batch)
        elif item.reduction is not None:
            self._reduce(item.reduction, store)
        elif item.node is not None and item.closing is not None:
            self._close(item.node, item.closing, store)
        elif item.node is not None:
            for name in self._graph.reads[item.node]:
                store.value(name)
            self._emit.nodes.append(self._graph.nodes[item.node])
            for name in self._graph.nodes[item.node].output:
                if name in self._homes.made:
                    raise AssertionError(f"{name!r} is made twice")
        for name in self._outputs(item):
            if name in self._graph.output_set:
                store.value(name)

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

    def _reduce(self, reduction: Reduction, store: Store) -> None:
        """Sum or mean over lanes: one reduction over the lane axis, and what else was added."""
        pieces = self._homes.pieces(tuple(sorted(reduction.terms, key=self._lane_order)))
        names: list[str] = []
        hint = self._circuit.label(reduction.units[-1])
        whole = len(pieces) == 1
        for piece in pieces:
            if len(piece.lanes) == 1:
                names.append(store.value(piece.lanes[0]))
                continue
            op_type = "ReduceMean" if whole and reduction.mean else "ReduceSum"
            layout, route = self._resting(piece.lanes, store)
            source, axis = store.get(piece.lanes, layout), lane_axis(layout)
            out = reduction.output if whole else None
            first = out if not route else None
            name = self._emit.reduce(op_type, source, [axis], False, f"{hint}_lanes", first)
            for k, step in enumerate(route):
                name = self._emit.step(name, step, hint, out if k == len(route) - 1 else None)
            names.append(name)
        if not whole:
            self._add_up(reduction, names, hint)

    def _resting(self, lanes: Bundle, store: Store) -> tuple[Layout, tuple[Step, ...]]:
        """The layout in which lanes are summed, and what turns the sum into a plain tensor.

        Nothing is moved before the sum if that can be helped: the sum is smaller than the lanes.
        """
        bulk = store.bulk(lanes)
        rank = len(bulk.shape)
        alone = self._circuit.bulk(1, bulk.shape)
        best: tuple[int, Layout, tuple[Step, ...]] | None = None
        for there in store.placed(lanes):
            for layout in (*(at(rank, p) for p in range(rank + 1)), separate(there, bulk)):
                axis = lane_axis(layout)
                rest = layout[:axis] + layout[axis + 1 :]
                before, after = steps(bulk, there, layout), steps(alone, rest, plain(rank))
                if before is None or after is None:
                    continue
                moved = bulk.lanes * sum(isinstance(s, Transpose | Crop) for s in before)
                cost = effort(before) + effort(after) + moved
                if best is None or cost < best[0]:
                    best = (cost, layout, after)
        return best[1:] if best is not None else (lead(rank), ())

    def _add_up(self, reduction: Reduction, names: list[str], hint: str) -> None:
        total = names[0]
        for n, name in enumerate(names[1:], 2):
            last = n == len(names)
            total = self._emit.node(
                "Add", [total, name], f"{hint}_add", [reduction.output] if last else 1
            )[0]

    def _lane_order(self, name: str) -> tuple[int, int]:
        """Terms of one group together, in lane order; the rest after them."""
        for n, bundle in enumerate(self._homes.groups):
            if name in bundle:
                return n, bundle.index(name)
        return len(self._homes.groups), 0
