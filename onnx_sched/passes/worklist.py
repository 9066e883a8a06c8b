"""What a plan makes, from the graph's outputs backwards, and in which order.

What nobody reads any more is left out; what stays keeps the file's order as far as dependencies allow.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from onnx_sched.circuit import Circuit
from onnx_sched.errors import ModelError
from onnx_sched.graph import topological
from onnx_sched.nodes import domain_of
from onnx_sched.passes.axes import wrap
from onnx_sched.passes.homes import Bundle, Homes, Piece
from onnx_sched.passes.rules import read_by
from onnx_sched.plan import Group, Plan, Reduction


@dataclass(slots=True)
class Item:
    """Something to emit: a kept node, a group, or a reduction.

    Attributes:
        place: Where it stands among the original's nodes.
        node: A node that stays, or a Concat that becomes a change of layout.
        group, reduction: What is made instead of their members.
        closing: The pieces of lanes that such a Concat puts together.
        needs: Items that must be made before.
    """

    place: int
    node: int | None = None
    group: Group | None = None
    reduction: Reduction | None = None
    closing: list[Piece] | None = None
    needs: set[int] = field(default_factory=set)


class Worklist:
    """The items of a rewriting.

    Attributes:
        items: In the file's order.
        wanted: Values of lanes that somebody reads by themselves.
        made: Values of the original that some item makes.
    """

    def __init__(
        self,
        circuit: Circuit,
        plan: Plan,
        homes: Homes,
        gone: Collection[int],
        spare: Collection[int],
    ) -> None:
        self._circuit = circuit
        self._graph = circuit.graph
        self._plan = plan
        self._homes = homes
        self._gone = gone
        self._spare = spare
        self._asked: set[str] = set()
        self.items: list[Item] = []
        self.wanted: set[str] = set()
        self.made: set[str] = set()
        self._item_of: dict[str, int] = {}
        self._collect()

    def _collect(self) -> None:
        """Find the items, from the graph's outputs backwards."""
        needed: set[str] = set(self._graph.outputs)
        first_of = {id(g): min(u.nodes[0] for u in g.units) for g in self._plan.groups}
        ends = {max(u.nodes[-1] for u in g.units): g for g in self._plan.groups}
        sums = {r.units[-1].nodes[-1]: r for r in self._plan.reductions}
        done: list[Item] = []
        for k in self._backwards(ends, sums):
            node = self._graph.nodes[k]
            if k in ends:
                group = ends[k]
                if self._idle(group, needed):
                    continue
                item = Item(first_of[id(group)], group=group)
                self._need_group(group, needed)
                done.append(item)
            elif k in sums:
                if sums[k].output in needed:
                    item = Item(k, reduction=sums[k])
                    for piece in self._summed(sums[k]):
                        if len(piece.lanes) == 1:
                            needed.update(piece.lanes)
                        self._need_piece(piece, needed)
                    done.append(item)
            elif k not in self._gone:
                dead = not self._graph.live[k]
                if dead or any(o in needed for o in node.output):
                    item = Item(k, node=k, closing=self._closing(k))
                    if item.closing is not None:
                        for piece in item.closing:
                            if len(piece.lanes) == 1:
                                needed.update(piece.lanes)
                            self._need_piece(piece, needed)
                    else:
                        needed.update(self._graph.reads[k])
                    done.append(item)
        self.items = done[::-1]
        self.wanted = {n for n in needed if n in self._homes.made}
        for n, item in enumerate(self.items):
            for name in self.outputs(item):
                self._item_of[name] = n
        self.made = set(self._item_of)

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
        readers: list[set[int]] = [set() for _ in range(count)]
        for k in range(count):
            names = list(self._graph.reads[k])
            names += [self._circuit.values.first(n) for n in names]
            makers = {self._graph.producer[n] for n in names if n in self._graph.producer}
            makers.update(self._graph.preds[k])
            for p in makers:
                if of[p] != of[k]:
                    readers[of[p]].add(of[k])
        # Counted from the end: the last node that nobody waits for comes first.
        last = count - 1
        turned = [[last - r for r in readers[last - k]] for k in range(count)]
        order = (last - k for k in _sorted(turned))
        return [k for k in order if of[k] == k]

    def outputs(self, item: Item) -> list[str]:
        """The values of the original that an item makes."""
        if item.group is not None:
            return [o for u in item.group.units for o in u.outputs if o]
        if item.reduction is not None:
            return [item.reduction.output]
        assert item.node is not None
        return [o for o in self._graph.nodes[item.node].output if o]

    def _idle(self, group: Group, needed: Collection[str]) -> bool:
        """Whether a group is made for others only that do without it."""
        made = {o for u in group.units for o in u.outputs}
        spare = all(u.number in self._spare for u in group.units)
        return spare and made.isdisjoint(needed) and made.isdisjoint(self._asked)

    def _need_group(self, group: Group, needed: set[str]) -> None:
        for k in read_by(group):
            operand, lanes = group.units[0].operands[k], group.lanes(k)
            if lanes is not None:
                for piece in self._homes.pieces(lanes):
                    self._need_piece(piece, needed)
            elif isinstance(operand, str):
                needed.add(operand)

    def _need_piece(self, piece: Piece, needed: set[str]) -> None:
        self._asked.update(piece.lanes)
        if piece.home is None:
            needed.update(piece.lanes)
        elif piece.home in self._homes.views:
            needed.add(self._homes.views[piece.home].source)

    def _summed(self, reduction: Reduction) -> list[Piece]:
        """What a sum reads."""
        bundles: Sequence[Bundle] = [reduction.terms]
        if reduction.weighed is not None:
            bundles = reduction.weighed.bundles
        if reduction.linear is not None:
            bundles = [reduction.linear.lanes(0) or (), reduction.beside]
        return [piece for bundle in bundles for piece in self._homes.pieces(bundle)]

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
        if not 0 <= axis < len(shape):  # a broken model: the runtime will say so
            return None
        open_sizes = [d for d in shape[axis:] if not isinstance(d, int)]
        return pieces if len(open_sizes) <= 1 else None

    def order(self) -> list[int]:
        """A topological order of the items that keeps the file's order where it can."""
        for item in self.items:
            item.needs = {self._item_of[n] for n in self._needs(item) if n in self._item_of}
            if item.node is not None:
                for p in self._graph.preds[item.node]:
                    for o in self._graph.nodes[p].output:
                        if o in self._item_of:
                            item.needs.add(self._item_of[o])
        for n, item in enumerate(self.items):
            item.needs.discard(n)
        by_place = sorted(range(len(self.items)), key=lambda n: (self.items[n].place, n))
        rank = {n: r for r, n in enumerate(by_place)}
        return [
            by_place[r] for r in _sorted([[rank[m] for m in self.items[n].needs] for n in by_place])
        ]

    def _needs(self, item: Item) -> list[str]:
        """Names of everything that must be there before an item is made."""
        names: list[str] = []
        pieces: list[Piece] = []
        if item.group is not None:
            for k in read_by(item.group):
                operand, lanes = item.group.units[0].operands[k], item.group.lanes(k)
                if lanes is not None:
                    pieces += self._homes.pieces(lanes)
                elif isinstance(operand, str):
                    names.append(operand)
        elif item.reduction is not None:
            found = self._summed(item.reduction)
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


def _sorted(preds: Sequence[Collection[int]]) -> list[int]:
    """The order of dependencies; a circle is a fault of the plan, not of the model."""
    try:
        return topological(preds)
    except ModelError:
        raise AssertionError("the plan's groups depend on each other in a circle") from None
