"""Concat inside a lane: of values of the lane, of constants, and of values that all lanes share.

Concat(x_i, y_i, axis=a)  ==>  Concat(Stack(x), Stack(y), axis=a + 1)
Concat(c, x_i, axis=a)    ==>  Concat(Expand(c, lanes), Stack(x), axis=a + 1)
"""

from __future__ import annotations

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Const
from onnx_sched.passes.axes import place, signed, wrap
from onnx_sched.passes.operands import apiece, choose
from onnx_sched.passes.rule import Batch, Rule, Table, lane_alone
from onnx_sched.stacking import Layout, lead, spare_axis


def check(unit: Unit, circuit: Circuit) -> str | None:
    """Shapes must be known; sizes are left to what asks for them."""
    if unit.outputs[0] in circuit.values.ints:
        return "it puts sizes together"
    if any(circuit.shape(o) is None for o in unit.operands):
        return "the shape of a member is not known"
    if circuit.values.shape(unit.outputs[0]) is None:
        return "the shape of its result is not known"
    return None


def concat(batch: Batch) -> None:
    """Concat where its axis lies alone; what is no lane is copied for each."""
    rank = len(batch.shape(0))
    written = batch.unit.integer("axis", 1)
    axis = wrap(written, rank)
    slots = range(batch.slots)
    shared = any(batch.single(k) is not None for k in slots)
    constant = any(isinstance(o, Const) for o in batch.unit.operands)

    def suits(layout: Layout) -> bool:
        if place(layout, axis) is None or ((shared or constant) and spare_axis(layout) is not None):
            return False
        return not shared or lane_alone(layout, rank) is not None

    layout = choose(batch, slots, suits, lead(rank))
    position = place(layout, axis)
    assert position is not None
    names = [apiece(batch, k, layout) for k in slots]
    out = batch.make("Concat", names, **batch.attributes(axis=signed(position, written, layout)))
    batch.put(layout, out[0])


RULES: Table = {"Concat": Rule(concat, check)}
