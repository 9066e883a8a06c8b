"""Sums whose terms are lanes: Add chains, Sum, Mean, and sums over what a Concat puts side by side.

They become one node over the lane axis; which one, `Group.summed` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnx_sched.circuit import LINEAR, WEIGHTED, Circuit, Operand, Unit
from onnx_sched.constants import Const, total
from onnx_sched.dims import Shape
from onnx_sched.passes.axes import axes_of, reduction_since
from onnx_sched.plan import Group, Reduction, Weighed
from onnx_sched.weighing import MULTIPLIED, Factors, Place

SUMS = frozenset({"Add", "Sum", "Mean"})
"""Kinds whose operands are what is summed."""

OVER_LANES = SUMS | {WEIGHTED, "ReduceSum", "ReduceMean"}
"""The same, and kinds that may sum over the axis along which a Concat puts lanes."""

MAPS = frozenset({LINEAR, "Conv"})
"""Kinds whose sum is one of them, of inputs and weights side by side."""

VIEWS = frozenset({"Unsqueeze", "Reshape", "Squeeze"})
"""Kinds that only rename axes, where shapes say so."""

SUMMED = frozenset({1, 11, 6, 7, 10})
"""Element types whose sums are made by ReduceSum everywhere: float, double, int32, int64, float16."""


def reductions(circuit: Circuit, groups: Sequence[Group]) -> tuple[Reduction, ...]:
    """The sums and means of which at least two terms are lanes of one group.

    A chain of Adds is one sum where the values between them are read by no one else.
    """
    return _Sums(circuit, groups).found()


def addable(circuit: Circuit, groups: Sequence[Group]) -> frozenset[int]:
    """The groups, by place, whose lanes a matrix product could add up."""
    tried = [replace(g, summed=True) for g in groups]
    of = {v: n for n, g in enumerate(groups) for u in g.units for v in u.outputs}
    homes = (of.get(t) for r in reductions(circuit, tried) if r.product for t in r.terms)
    return frozenset(n for n in homes if n is not None)


def settled(circuit: Circuit, groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups, asked for a sum by a product only where something adds up their lanes so."""
    if not any(g.summed for g in groups):
        return tuple(groups)
    there = addable(circuit, groups)
    return tuple(
        replace(g, summed=False) if g.summed and n not in there else g for n, g in enumerate(groups)
    )


class _Sums:
    def __init__(self, circuit: Circuit, groups: Sequence[Group]) -> None:
        self._circuit = circuit
        self._groups = groups
        self._aliased = frozenset(circuit.values.canon.values())
        self._taken = {u.number for g in groups for u in g.units}
        self._taken |= {u.number for u in circuit.units if u.kind in OVER_LANES and self._stays(u)}
        self._home = {
            v: (n, j)
            for n, g in enumerate(groups)
            for j in range(len(g.units[0].outputs))
            for b in g.bundles(j)
            for v in b
        }

    def found(self) -> tuple[Reduction, ...]:
        """All sums, from the first to the last."""
        found: list[Reduction] = []
        for unit in reversed(self._circuit.units):
            if unit.number in self._taken or unit.domain or unit.kind not in OVER_LANES:
                continue
            made = self._added(unit) if unit.kind in SUMS else self._joined(unit)
            if made is not None:
                self._taken.update(u.number for u in made.units)
                found.append(made)
        return tuple(found[::-1])

    def _stays(self, unit: Unit) -> bool:
        """Whether somebody asked for a unit not to become part of a sum over lanes."""
        circuit = self._circuit
        nodes = (circuit.graph.nodes[k] for k in unit.nodes)
        return any(circuit.unsummed(n) for node in nodes for n in circuit.values.spellings(node))

    def _product(self, terms: Sequence[str], factors: Factors) -> bool:
        """Whether terms may be added up by a matrix product: asked for, and large enough."""
        homes = {self._home[t][0] for t in terms if t in self._home}
        asked = all(self._groups[n].summed for n in homes)
        precise = self._circuit.elem_type(terms[0]) in MULTIPLIED
        return asked and precise and factors.pays(len(terms))

    def _added(self, unit: Unit) -> Reduction | None:
        """A chain of Adds, or one Sum or Mean."""
        circuit = self._circuit
        members, terms = self._chain(unit)
        shape = circuit.values.shape(unit.outputs[0])
        names = [t for t in terms if isinstance(t, str) and circuit.values.shape(t) == shape]
        if circuit.elem_type(unit.outputs[0]) not in SUMMED or shape is None:
            return None
        homes = Counter(self._home[n] for n in names if n in self._home)
        most, mean = max(homes.values(), default=0), unit.kind == "Mean"
        if len(names) < len(terms) or most < (len(names) if mean else 2) or most < 2:
            return None
        product = self._product(names, Factors(((), shape), None))
        plain = Reduction(tuple(members), mean, tuple(names), None, product)
        return self._with_maps(plain, shape) or self._with_products(plain)

    def _joined(self, unit: Unit) -> Reduction | None:
        """A sum over the axis on which a Concat puts lanes of one group, weighted or not."""
        circuit = self._circuit
        for slot, name in enumerate(unit.operands if unit.kind == WEIGHTED else unit.operands[:1]):
            join, shape = circuit.maker.get(str(name)), circuit.shape(name)
            if join is None or join.kind != "Concat" or join.domain or shape is None:
                continue
            terms = tuple(o for o in join.operands if isinstance(o, str))
            alike = len({circuit.shape(t) for t in terms}) == 1 < len(set(terms))
            homes = {self._home.get(t) for t in terms}
            if not alike or len(set(terms)) < len(join.operands) or len(homes) > 1 or None in homes:
                continue
            side = join.integer("axis", 1) % len(shape)
            weighed = (
                self._weighed(unit, slot, terms)
                if unit.kind == WEIGHTED
                else self._unweighed(unit, terms)
            )
            if weighed is None or weighed.side != side:
                continue
            goes = join.number not in self._taken and self._unseen(join.outputs[0])
            units, mean = ((join, unit) if goes else (unit,)), unit.kind == "ReduceMean"
            found = Reduction(units, mean, terms, weighed, True)
            if goes and unit.kind != WEIGHTED:
                whole = self._with_maps(replace(found, weighed=None), weighed.factors.result)
                if whole is not None:
                    return whole
            if self._product(terms, weighed.factors):
                return found
        return None

    def _weighed(self, unit: Unit, slot: int, terms: tuple[str, ...]) -> Weighed:
        """A weighted sum, of terms side by side as one of its operands."""
        shapes = [self._circuit.shape(o) or () for o in unit.operands]
        shapes[slot] = self._circuit.shape(terms[0]) or ()
        bundles = [(str(o),) for o in unit.operands]
        factors = Factors(
            (shapes[0], shapes[1]), unit.integer("axis"), bool(unit.integer("keepdims"))
        )
        inside = tuple(o for k in unit.nodes[:-1] for o in self._circuit.graph.nodes[k].output)
        pair = (terms, bundles[1]) if slot == 0 else (bundles[0], terms)
        return Weighed(pair, factors, Place((slot,), "inner"), inside)

    def _unweighed(self, unit: Unit, terms: tuple[str, ...]) -> Weighed | None:
        """A sum or mean over one axis, of terms of size 1 along it."""
        circuit, shape = self._circuit, self._circuit.shape(terms[0]) or ()
        axes = axes_of(unit, circuit.graph.opset, reduction_since(unit.kind), len(shape))
        if axes is None or len(axes) != 1 or not axes[0] < len(shape) or shape[axes[0]] != 1:
            return None
        factors = Factors(((), shape), axes[0], bool(unit.integer("keepdims", 1)))
        return Weighed(((), terms), factors, Place((1,), "inner"))

    def _with_maps(self, sum_: Reduction, shape: Shape) -> Reduction | None:
        """The sum with the linear maps taken in whose results it alone reads; views between do not count.

        Each reads an input of its own: weights that are added up before they meet one input lose what small
        ones add to large ones, and what infinities of both signs come to.
        """
        units: list[Unit] = []
        terms = sum_.terms
        while (group := self._of_all(terms)) is not None and group.kind in VIEWS:
            if not self._alone(group):
                return None
            units += group.units
            terms = tuple(str(u.operands[0]) for u in group.units)
        names = [t for t in terms if t in self._home]
        group = self._of_all(names)
        if group is None or group.kind not in MAPS or not group.summed or not self._alone(group):
            return None
        first = group.units[0]
        reads = {u.operands[0] for u in group.units}
        constant = all(
            isinstance(o, Const) or o is None for u in group.units for o in u.operands[1:]
        )
        same = all(self._circuit.shape(t) == shape for t in terms)
        if not constant or not same or len(reads) < group.size:
            return None
        biases = [b for u in group.units if isinstance(b := u.operands[2], Const)]
        if biases and not np.isfinite(total(biases).load()).all():
            return None  # what each is added to may bring it back from there
        if first.integer("group", 1) != 1 or (sum_.mean and len(names) < len(terms)):
            return None
        return replace(
            sum_, units=(*group.units, *units[::-1], *sum_.units), terms=terms, linear=group
        )

    def _of_all(self, terms: Sequence[str]) -> Group | None:
        """The group whose results are these values, each once."""
        places = {self._home.get(t, (-1, 0)) for t in terms}
        if len(places) != 1 or (-1, 0) in places:
            return None
        group = self._groups[places.pop()[0]]
        return group if sorted(u.outputs[0] for u in group.units) == sorted(terms) else None

    def _alone(self, group: Group) -> bool:
        """Whether each result of a group has one reader, and no other name."""
        return all(len(u.outputs) == 1 and self._unseen(u.outputs[0]) for u in group.units)

    def _with_products(self, sum_: Reduction) -> Reduction:
        """The sum with the products taken in that it alone reads, if all of a group are its terms."""
        circuit = self._circuit
        group = self._of_all(sum_.terms)
        if group is None or not group.summed or group.kind != "Mul" or sum_.mean:
            return sum_
        first, second = (
            tuple(o for u in group.units if isinstance(o := u.operands[k], str)) for k in (0, 1)
        )
        if not self._alone(group) or len(set(first)) < group.size or len(set(second)) < group.size:
            return sum_
        shapes = circuit.shape(first[0]), circuit.shape(second[0])
        if shapes[0] is None or shapes[1] is None:
            return sum_
        factors = Factors((shapes[0], shapes[1]), None)
        if not factors.fits or not self._product(sum_.terms, factors):
            return sum_
        weighed = Weighed((first, second), factors, Place((0, 1), "inner"))
        return replace(sum_, units=(*group.units, *sum_.units), weighed=weighed)

    def _chain(self, last: Unit) -> tuple[list[Unit], list[Operand]]:
        """The Adds that lead to one sum, in order, and all its terms."""
        circuit = self._circuit
        shape = circuit.values.shape(last.outputs[0])
        members, terms, k = [last], list(last.operands), 0
        while last.kind == "Add" and k < len(terms):
            maker = self._inner(terms[k])
            if (
                maker is not None
                and maker.number not in self._taken
                and circuit.values.shape(maker.outputs[0]) == shape
            ):
                members.append(maker)
                terms[k : k + 1] = list(maker.operands)
            else:
                k += 1
        return sorted(members, key=lambda m: m.number), terms

    def _inner(self, term: Operand) -> Unit | None:
        """The Add that makes a term which nobody else reads, by this or any other name."""
        maker = self._circuit.maker.get(term) if isinstance(term, str) else None
        if maker is None or maker.kind != "Add" or maker.domain or maker.outputs[0] != term:
            return None
        return maker if self._unseen(maker.outputs[0]) else None

    def _unseen(self, value: str) -> bool:
        """Whether a value has one reader, and no other name under which it could have more."""
        graph = self._circuit.graph
        seen = value in graph.output_set or value in self._aliased
        return not seen and len(graph.readers.get(value, ())) == 1
