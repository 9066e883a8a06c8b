"""Entries written into a value, lane by lane.

    ScatterElements(x_i, n_i, u_i, axis=a)  ==>  ScatterElements(Stack(x), Stack(n), Stack(u), axis=a + 1)
    ScatterND(x_i, I, u_i)                  ==>  ScatterND(x and u with lanes behind the axes that I names)
    ScatterND(x_i, n_i, u_i)                ==>  ScatterND(Stack(x), Stack([i, n_i]), Stack(u))

An index beyond the end of an axis stays an error: no lane can write into another.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from onnx_sched.constants import Array, from_array, stack
from onnx_sched.passes.axes import place, signed, wrap
from onnx_sched.passes.operands import apart, apiece, choose, one, own_consts
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.passes.selects import check_gather, check_gather_nd
from onnx_sched.stacking import at, lead


def scatter_elements(batch: Batch) -> None:
    """ScatterElements (Scatter before opset 11): all operands in one layout, every axis by itself."""
    rank = len(batch.shape(0))
    written = batch.unit.integer("axis")
    layout = choose(batch, [0, 1, 2], lambda la: apart(la, rank), lead(rank))
    axis = place(layout, wrap(written, rank))
    assert axis is not None
    names = [apiece(batch, k, layout) for k in range(3)]
    changed = batch.attributes(axis=signed(axis, written, layout))
    batch.put(layout, batch.make(batch.unit.kind, names, **changed)[0])


def scatter_nd(batch: Batch) -> None:
    """ScatterND: lanes behind the axes that the indices name, or the lane's number as one index more."""
    depth = batch.shape(1)[-1]
    assert isinstance(depth, int)
    rank, count, updates = (len(batch.shape(k)) for k in range(3))
    index = one(batch, 1)
    if index is not None:
        names = [apiece(batch, 0, at(rank, depth)), index, apiece(batch, 2, at(updates, count - 1))]
        batch.put(at(rank, depth), batch.make("ScatterND", names, **batch.attributes())[0])
        return
    index = _numbered(batch, count, depth)
    names = [apiece(batch, 0, lead(rank)), index, apiece(batch, 2, lead(updates))]
    batch.put(lead(rank), batch.make("ScatterND", names, **batch.attributes())[0])


def _numbered(batch: Batch, count: int, depth: int) -> str:
    """The indices of all lanes, the lane's number in front of each."""
    if batch.lanes(1) is None:
        whole = stack(own_consts(batch, 1))

        def number(array: Array) -> Array:
            lane = np.arange(batch.size, dtype=array.dtype).reshape(-1, *(1,) * count)
            lanes = np.broadcast_to(lane, (*array.shape[:-1], 1))
            return np.concatenate([lanes, array], axis=-1)

        made = whole.map("numbered", (*whole.shape[:-1], depth + 1), number)
        return batch.emit.const(made, f"{batch.hint}_index")
    pads = batch.emit.ints([*[0] * count, 1, *[0] * (count + 1)], f"{batch.hint}_pads")
    index = batch.make("Pad", [apiece(batch, 1, lead(count)), pads])[0]
    lane = np.zeros((batch.size, *(1,) * (count - 1), depth + 1), np.int64)
    lane[..., 0] = np.arange(batch.size).reshape(-1, *(1,) * (count - 1))
    numbers = batch.emit.const(from_array(lane, TensorProto.INT64), f"{batch.hint}_lanes")
    return batch.make("Add", [index, numbers])[0]


RULES: Table = {
    **dict.fromkeys(("ScatterElements", "Scatter"), Rule(scatter_elements, check_gather)),
    "ScatterND": Rule(scatter_nd, check_gather_nd),
}
