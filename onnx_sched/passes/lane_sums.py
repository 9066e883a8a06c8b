"""Sums over lanes: one reduction over the lane axis, or one matrix product whose inner axis it is.

    x_1 + ... + x_G                        ==>  ReduceSum(Stack(x), lanes)   or  MatMul([1 ... 1], Stack(x))
    Mul(w_1, x_1) + ... + Mul(w_G, x_G)    ==>  MatMul(Stack(w), Stack(x))
    ReduceSum(Mul(w, Concat(x_i)), axis)   ==>  MatMul(w, Stack(x))
    ReduceMean(Concat(x_i), axis)          ==>  MatMul([1/G ... 1/G], Stack(x))
    x_1 @ W_1 + ... + x_G @ W_G            ==>  [x_1 ... x_G] @ [W_1; ...; W_G]

The product is the group's choice (`Group.summed`): ONNX Runtime adds up a leading axis on a CPU ten times
slower than it multiplies by a row of ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper

from onnx_sched.circuit import LINEAR, Circuit
from onnx_sched.constants import Const, concat, from_array, total
from onnx_sched.nodes import attributes
from onnx_sched.passes.boundaries import Store
from onnx_sched.passes.emit import Emitter
from onnx_sched.passes.homes import Bundle, Homes
from onnx_sched.passes.weighted_sums import MOVED, nearest, product, toll
from onnx_sched.plan import Group, Reduction, Weighed
from onnx_sched.relayout import Crop, Step, Transpose, effort, steps
from onnx_sched.stacking import Layout, aligned, at, lane_axis, lead, packed, plain, separate
from onnx_sched.weighing import Factors, Place, ways


@dataclass(frozen=True, slots=True)
class LaneSums:
    """Makes the sums of one rewriting."""

    circuit: Circuit
    emit: Emitter
    store: Store
    homes: Homes

    def make(self, reduction: Reduction) -> None:
        """The nodes of a sum, the last of them under its name."""
        hint = self.circuit.label(reduction.units[-1])
        if reduction.weighed is None:
            self._added(reduction, hint)
        elif self._product(reduction.weighed, reduction.mean, hint, reduction.output) is None:
            self._spelled(reduction, reduction.weighed, hint)

    def _product(
        self, weighed: Weighed, mean: bool, hint: str, out: str | None = None
    ) -> str | None:
        """The sum as a matrix product, as a plain tensor; None if that is not to be had, or is dear."""
        factors, bundles = weighed.factors, weighed.bundles
        alone, single = self.circuit.bulk(1, factors.result), plain(len(factors.result))

        def onward(whole: Layout) -> int:
            return toll(steps(alone, whole, single))

        best = nearest(self.store, bundles, ways(factors, weighed.place), onward)
        if best is None:
            return None
        cost, way = best
        if not bundles[0] and cost >= MOVED:
            return None  # nothing is gained by numbers that are all alike where lanes must be moved
        names = [
            self.store.get(bundle, layout)
            if bundle
            else self._alike(bundles[1], mean, way.left == 1)
            for bundle, layout in zip(bundles, way.layouts, strict=True)
        ]
        route = steps(alone, way.whole, single) or ()
        name = product(self.emit, names, way, f"{hint}_lanes", None if route else out)
        return self._walk(name, route, hint, out)

    def _alike(self, terms: Bundle, mean: bool, column: bool) -> str:
        """A row of ones, or of what a mean multiplies by; a column as the right factor."""
        elem_type, lanes = self.circuit.elem_type(terms[0]) or 0, len(terms)
        value = 1 / lanes if mean else 1
        array = np.full((lanes, 1) if column else (1, lanes), value)
        typed = array.astype(helper.tensor_dtype_to_np_dtype(elem_type))
        return self.emit.const(from_array(typed, elem_type), f"{terms[0]}_x{lanes}_ones")

    def _walk(self, name: str, route: tuple[Step, ...], hint: str, out: str | None) -> str:
        for k, step in enumerate(route):
            name = self.emit.step(name, step, hint, out if k == len(route) - 1 else None)
        return name

    def _spelled(self, reduction: Reduction, weighed: Weighed, hint: str) -> None:
        """A weighted sum as its nodes have it, where no product can be had."""
        factors, slots, names = weighed.factors, weighed.place.slots, []
        axis = 0 if factors.inner is None else factors.inner
        for k, bundle in enumerate(weighed.bundles):
            shape = factors.shapes[k]
            layout = aligned(lead(factors.rank), factors.rank, len(shape))
            if factors.inner is not None and k in slots:  # as the Concat would have left them
                layout = packed(len(shape), axis - factors.rank + len(shape))
            if bundle:
                held = k in slots
                names.append(
                    self.store.get(bundle, layout) if held else self.store.value(bundle[0])
                )
        last = self.circuit.graph.nodes[reduction.units[-1].nodes[-1]].op_type
        op_type = last if last.startswith("Reduce") else "ReduceSum"
        whole = self.emit.node("Mul", names, hint)[0] if len(names) == 2 else names[0]
        self.emit.reduce(op_type, whole, [axis], factors.keep, hint, reduction.output)

    def _added(self, reduction: Reduction, hint: str) -> None:
        """One reduction for each run of lanes, and what else was added."""
        ordered = tuple(sorted(reduction.beside, key=self.homes.lane_order))
        pieces = self.homes.pieces(ordered)
        maps = reduction.linear
        out = reduction.output if len(pieces) + (maps is not None) == 1 else None
        names = [] if maps is None else [self._one_map(maps, reduction.mean, hint, out)]
        names += [
            self._run(piece.lanes, reduction, hint, out)
            if len(piece.lanes) > 1
            else self.store.value(piece.lanes[0])
            for piece in pieces
        ]
        total = names[0]
        for n, name in enumerate(names[1:], 2):
            made = [reduction.output] if n == len(names) else 1
            total = self.emit.node("Add", [total, name], f"{hint}_add", made)[0]

    def _one_map(self, maps: Group, mean: bool, hint: str, out: str | None) -> str:
        """The sum of linear maps: one map of what they read, weights one below the other, biases added."""
        first = maps.units[0]
        shape = self.circuit.shape(first.operands[0])
        assert shape is not None
        channel = len(shape) - 1 if first.kind == LINEAR else 1
        weights, biases = (
            [o for u in maps.units if isinstance(o := u.operands[k], Const)] for k in (1, 2)
        )
        part = 1 / len(maps.units) if mean else 1.0
        lanes = maps.lanes(0)
        assert lanes is not None
        x = self.store.get(lanes, packed(len(shape), channel))
        weight = concat(weights, 0 if first.kind == LINEAR else 1).scale(part)
        names = [x, self.emit.const(weight, f"{hint}_weight")]
        if biases:
            names.append(self.emit.const(total(biases, part), f"{hint}_bias"))
        outputs = 1 if out is None else [out]
        if first.kind == "Conv":
            node = self.circuit.values.op(self.circuit.graph.nodes[first.nodes[-1]])
            written: dict[str, Any] = {**attributes(node)}
            return self.emit.node("Conv", names, hint, outputs, **written)[0]
        if len(names) == 3 and len(shape) == 2 and self.emit.opset >= 7:
            return self.emit.node("Gemm", names, hint, outputs)[0]
        made = self.emit.node("MatMul", names[:2], hint, 1 if len(names) == 3 else outputs)[0]
        return (
            self.emit.node("Add", [made, names[2]], f"{hint}_add", outputs)[0]
            if names[2:]
            else made
        )

    def _run(self, lanes: Bundle, reduction: Reduction, hint: str, out: str | None) -> str:
        """The sum of lanes that lie together; their mean if it is the whole."""
        mean = reduction.mean and out is not None
        bulk = self.store.bulk(lanes)
        if reduction.product:
            factors = Factors(((), bulk.shape), None)
            weighed = Weighed(((), lanes), factors, Place((1,), "inner"))
            name = self._product(weighed, mean, hint, out)
            if name is not None:
                return name
        layout, route = self._resting(lanes)
        source, axis = self.store.get(lanes, layout), lane_axis(layout)
        op_type, first = "ReduceMean" if mean else "ReduceSum", None if route else out
        name = self.emit.reduce(op_type, source, [axis], False, f"{hint}_lanes", first)
        return self._walk(name, route, hint, out)

    def _resting(self, lanes: Bundle) -> tuple[Layout, tuple[Step, ...]]:
        """The layout in which lanes are summed, and what turns the sum into a plain tensor.

        Nothing is moved before the sum if that can be helped: the sum is smaller than the lanes.
        """
        bulk = self.store.bulk(lanes)
        rank = len(bulk.shape)
        alone = self.circuit.bulk(1, bulk.shape)
        best: tuple[int, Layout, tuple[Step, ...]] | None = None
        for there in self.store.placed(lanes):
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
