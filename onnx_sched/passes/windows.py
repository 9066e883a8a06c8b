"""Ops that widen a value at its rims or by repeating it: the same way in every lane.

    Pad(x_i, pads)      ==>  Pad(Stack(x), (0, pads))
    Tile(x_i, repeats)  ==>  Tile(Stack(x), (1, repeats))

In another layout an axis that grows is wherever it lies there; it must lie alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Const
from onnx_sched.passes.axes import home, known, place, wrap
from onnx_sched.passes.operands import has
from onnx_sched.passes.rule import Batch, Rule, Table


def numbers(unit: Unit, k: int) -> list[int] | None:
    """A constant operand as ints; None if the unit has none."""
    operand = unit.operands[k] if len(unit.operands) > k else None
    if not isinstance(operand, Const):
        return None
    return [int(v) for v in np.asarray(operand.load()).ravel()]


def check_pad(unit: Unit, circuit: Circuit) -> str | None:
    """Widths and value must be constant: a computed one could differ by lane."""
    if any(isinstance(o, str) for o in unit.operands[1:]):
        return "its widths or its value are computed"
    return known(unit, circuit)


def pads_of(unit: Unit, opset: int, rank: int) -> list[int]:
    """What is added before every axis, then what is added behind; below 0 it is cut off."""
    given: Sequence[int] | None = numbers(unit, 1)
    if opset < 11:
        attribute = unit.attribute("pads", ())
        assert isinstance(attribute, tuple)
        given = attribute
    assert given is not None
    axes = numbers(unit, 3) if opset >= 18 else None
    named = [wrap(a, rank) for a in axes] if axes is not None else list(range(rank))
    found = [0] * (2 * rank)
    for k, axis in enumerate(named):
        found[axis], found[axis + rank] = given[k], given[k + len(named)]
    return found


def pad(batch: Batch) -> None:
    """Pad, its widths in the order of the physical axes; lanes are not padded."""
    rank = len(batch.shape(0))
    given = pads_of(batch.unit, batch.emit.opset, rank)
    grown = [a for a in range(rank) if given[a] or given[a + rank]]
    name, layout = home(batch, grown)
    moved = [0] * (2 * len(layout))
    for axis in grown:
        where = place(layout, axis)
        assert where is not None
        moved[where], moved[where + len(layout)] = given[axis], given[axis + rank]
    if batch.emit.opset < 11:
        batch.put(layout, batch.make("Pad", [name], **batch.attributes(pads=moved))[0])
        return
    inputs = [name, batch.emit.ints(moved, f"{batch.hint}_pads")]
    if has(batch, 2):
        inputs.append(batch.emit.const(batch.consts(2)[0], f"{batch.hint}_value"))
    batch.put(layout, batch.make("Pad", inputs, **batch.attributes())[0])


def check_tile(unit: Unit, circuit: Circuit) -> str | None:
    """Repeats must be constant."""
    if not isinstance(unit.operands[1], Const):
        return "its repeats are computed"
    return known(unit, circuit)


def tile(batch: Batch) -> None:
    """Tile, its repeats in the order of the physical axes; lanes are not repeated."""
    repeats = numbers(batch.unit, 1)
    assert repeats is not None
    grown = [a for a, n in enumerate(repeats) if n != 1]
    name, layout = home(batch, grown)
    moved = [1] * len(layout)
    for axis in grown:
        where = place(layout, axis)
        assert where is not None
        moved[where] = repeats[axis]
    shape = batch.emit.ints(moved, f"{batch.hint}_repeats")
    batch.put(layout, batch.make("Tile", [name, shape])[0])


RULES: Table = {
    "Pad": Rule(pad, check_pad, static=(1, 2, 3)),
    "Tile": Rule(tile, check_tile, static=(1,)),
}
