"""Entries chosen by indices that differ by lane, or that are computed.

    Gather(x_i, n, axis=a)      ==>  Gather(Stack(x), n, axis=a + 1)                  one index for all
    Gather(x, I_i, axis=a)      ==>  Gather(x, Stack(I), axis=a)                      one value for all
    Gather(x_i, I_i, axis=a)    ==>  Gather(Concat(x, a), Stack(I_i + i*D), axis=a)   constant indices
    Gather(x_i, n_i, axis=a)    ==>  GatherND(Stack(x), Stack(n), batch_dims=1)       computed indices
    GatherND(x_i, I)            ==>  GatherND(x with lanes behind the axes that I names, I)
    GatherND(x_i, n_i, b)       ==>  GatherND(Stack(x), Stack(n), batch_dims=b + 1)
    GatherElements(x_i, n_i, a) ==>  GatherElements(Stack(x), Stack(n), axis=a + 1)
    OneHot(n_i, depth, values)  ==>  OneHot(Stack(n), depth, values)

No lane can read another's entries: constant indices are compared with the axis before they are moved, and
GatherND refuses what Gather refuses.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Const, from_array
from onnx_sched.passes.axes import home, known, place, signed, wrap
from onnx_sched.passes.operands import apart, apiece, choose, one, own_consts
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.plan import Refused
from onnx_sched.stacking import LANE, Axis, Layout, at, lead, packed, plain, renumber

MANY = "GatherMany"
"""Row for a Gather of several constant entries: they may differ by lane.

One entry (a number) may not: who reads one entry each of a value opens lanes, which takes no node at all.
"""


def row_of(unit: Unit) -> str:
    """The row of a Gather."""
    index = unit.operands[1]
    return MANY if isinstance(index, Const) and index.shape not in ((), (1,)) else unit.kind


def check_gather(unit: Unit, circuit: Circuit) -> str | None:
    """Shapes must be known."""
    if any(circuit.shape(o) is None for o in unit.operands):
        return "the shape of an operand is not known"
    if circuit.values.shape(unit.outputs[0]) is None:
        return "the shape of its result is not known"
    return None


def gather(batch: Batch) -> None:
    """Gather by where its data and its indices come from."""
    rank = len(batch.shape(0))
    axis = wrap(batch.unit.integer("axis"), rank)
    data, index = one(batch, 0), one(batch, 1)
    if index is not None:
        _one_index(batch, axis, index)
    elif data is not None:
        _one_value(batch, axis, data)
    elif batch.lanes(1) is None and isinstance(batch.shape(0)[axis], int):
        _moved_indices(batch, axis)
    else:
        _by_lane(batch, axis)


def _taken(batch: Batch, source: tuple[str, Layout], axis: int, index: tuple[str, Layout]) -> None:
    """Gather along a physical axis: the axes of the indices take its place."""
    (name, layout), (where, index_axes) = source, index
    position = place(layout, axis)
    assert position is not None
    shift = len(batch.shape(1)) - 1
    rank = len(batch.shape(0))
    after = renumber(layout, {a: a if a <= axis else a + shift for a in range(rank)})
    out = batch.make("Gather", [name, where], axis=position)
    batch.put((*after[:position], *index_axes, *after[position + 1 :]), out[0])


def _index_axes(batch: Batch, axis: int, layout: Layout) -> Layout:
    """The axes of the indices as axes of the result."""
    return renumber(layout, {k: axis + k for k in range(len(batch.shape(1)))})


def _one_index(batch: Batch, axis: int, where: str) -> None:
    """The same entries of every lane."""
    rank, constant = len(batch.shape(0)), isinstance(batch.unit.operands[1], Const)

    def suits(layout: Layout) -> bool:
        """Axes of open sizes that come in must find the others by themselves, or none finds out again."""
        return place(layout, axis) is not None if constant else apart(layout, rank)

    layout = choose(batch, [0], suits, lead(rank))
    name = apiece(batch, 0, layout)
    index_axes = _index_axes(batch, axis, plain(len(batch.shape(1))))
    _taken(batch, (name, layout), axis, (where, index_axes))


def _one_value(batch: Batch, axis: int, name: str) -> None:
    """Entries of one value, others for each lane."""
    rank, count = len(batch.shape(0)), len(batch.shape(1))
    layout = choose(batch, [1], lambda la: apart(la, count), lead(count))
    index = apiece(batch, 1, layout), _index_axes(batch, axis, layout)
    _taken(batch, (name, plain(rank)), axis, index)


def _moved_indices(batch: Batch, axis: int) -> None:
    """Constant indices into the lanes side by side: lane i begins at i times the size of the axis."""
    shape = batch.shape(0)
    rank, size = len(shape), shape[axis]
    assert isinstance(size, int)
    moved = []
    for lane, index in enumerate(own_consts(batch, 1)):
        array = np.asarray(index.load(), np.int64)
        if array.size and (array.min() < -size or array.max() >= size):
            raise Refused(
                "S102", f"{batch.circuit.label(batch.units[lane])} reads beyond the end of its axis"
            )
        moved.append(np.where(array < 0, array + size, array) + lane * size)
    where = batch.emit.const(from_array(np.stack(moved), TensorProto.INT64), f"{batch.hint}_index")
    layout = packed(rank, axis)
    name = apiece(batch, 0, layout)
    out = batch.make("Gather", [name, where], axis=axis)
    count = len(batch.shape(1))
    after = renumber(plain(rank), {a: a if a <= axis else a + count - 1 for a in range(rank)})
    taken: Layout = ((LANE,), *((axis + k,) for k in range(count)))
    batch.put((*after[:axis], *taken, *after[axis + 1 :]), out[0])


def _by_lane(batch: Batch, axis: int) -> None:
    """Entries by indices that are only known at run time, lane by lane."""
    _needs_batches(batch)
    rank, count = len(batch.shape(0)), len(batch.shape(1))
    rest: list[Axis] = [(a,) for a in range(rank) if a != axis]
    name = apiece(batch, 0, ((LANE,), (axis,), *rest))
    raised = _as_tuples(batch, apiece(batch, 1, lead(count)), count + 1)
    out = batch.make("GatherND", [name, raised], batch_dims=1)
    after = renumber(tuple(rest), {a: a if a < axis else a + count - 1 for a in range(rank)})
    batch.put(((LANE,), *((axis + k,) for k in range(count)), *after), out[0])


def _needs_batches(batch: Batch) -> None:
    if batch.emit.opset < 12:
        raise Refused("S302", "GatherND has no batches before opset 12")


def _as_tuples(batch: Batch, index: str, axis: int) -> str:
    """Indices of any type as the int64 tuples of one number that GatherND reads."""
    if batch.circuit.elem_type(batch.unit.operands[1]) != TensorProto.INT64:
        index = batch.make("Cast", [index], to=TensorProto.INT64)[0]
    return batch.emit.with_axes("Unsqueeze", index, [axis], f"{batch.hint}_index", 13)


def check_gather_nd(unit: Unit, circuit: Circuit) -> str | None:
    """How many axes the indices name must be known."""
    reason = check_gather(unit, circuit)
    where = circuit.shape(unit.operands[1])
    if reason is None and where is not None and not isinstance(where[-1], int):
        return "how many axes its indices name is known only at run time"
    return reason


def gather_nd(batch: Batch) -> None:
    """GatherND: lanes behind the axes that the indices name, or in front as one batch axis more."""
    depth, batches = batch.shape(1)[-1], batch.unit.integer("batch_dims")
    assert isinstance(depth, int)
    where, count = batch.unit.operands[1], len(batch.shape(1))
    rank, after = len(batch.shape(0)), len(batch.out_bulk().shape)
    if isinstance(where, Const) and depth == 1 and not batches and count > 1 and batch.lanes(0):
        entries(batch, where.reshape(where.shape[:-1]))
        return
    index, data = one(batch, 1), one(batch, 0)
    if index is not None:
        name = apiece(batch, 0, at(rank, batches + depth))
        out = batch.make("GatherND", [name, index], **batch.attributes())
        batch.put(at(after, count - 1), out[0])
    elif data is not None and not batches:
        out = batch.make("GatherND", [data, apiece(batch, 1, lead(count))], **batch.attributes())
        batch.put(lead(after), out[0])
    else:
        _needs_batches(batch)
        names = [apiece(batch, 0, lead(rank)), apiece(batch, 1, lead(count))]
        out = batch.make("GatherND", names, **batch.attributes(batch_dims=batches + 1))
        batch.put(lead(after), out[0])


def entries(batch: Batch, where: Const) -> None:
    """GatherND(x_i, I[..., 1])  ==>  Gather(Stack(x), I[...], axis=1): the indices' axes replace one."""
    name, layout = home(batch, [0])
    position = place(layout, 0)
    assert position is not None
    index = batch.emit.const(where, f"{batch.hint}_index")
    out = batch.make("Gather", [name, index], axis=position)
    shift = where.rank - 1
    after = renumber(layout, {a: a + shift if a else 0 for a in range(len(batch.shape(0)))})
    taken = tuple((k,) for k in range(where.rank))
    batch.put((*after[:position], *taken, *after[position + 1 :]), out[0])


def gather_elements(batch: Batch) -> None:
    """GatherElements: data and indices in one layout, every axis by itself."""
    rank = len(batch.shape(0))
    written = batch.unit.integer("axis")
    layout = choose(batch, [0, 1], lambda la: apart(la, rank), lead(rank))
    axis = place(layout, wrap(written, rank))
    assert axis is not None
    names = [apiece(batch, k, layout) for k in (0, 1)]
    changed = batch.attributes(axis=signed(axis, written, layout))
    batch.put(layout, batch.make("GatherElements", names, **changed)[0])


def check_one_hot(unit: Unit, circuit: Circuit) -> str | None:
    """The depth and the two values must be constant."""
    if not all(isinstance(o, Const) for o in unit.operands[1:]):
        return "its depth or its values are computed"
    return known(unit, circuit)


def one_hot(batch: Batch) -> None:
    """OneHot: the new axis goes where the result has it, or behind everything."""
    rank = len(batch.shape(0))
    axis = wrap(batch.unit.integer("axis", -1), rank + 1)
    name, layout = home(batch, ())
    after = renumber(layout, {a: a if a < axis else a + 1 for a in range(rank)})
    position = place(after, axis + 1)
    position = len(after) if position is None else position
    depth, values = batch.consts(1)[0], batch.consts(2)[0]
    names = [
        name,
        batch.emit.const(depth, f"{batch.hint}_depth"),
        batch.emit.const(values, f"{batch.hint}_values"),
    ]
    out = batch.make("OneHot", names, **batch.attributes(axis=position))
    batch.put((*after[:position], (axis,), *after[position:]), out[0])


RULES: Table = {
    "Gather": Rule(gather, check_gather, static=(1,)),
    MANY: Rule(gather, check_gather),
    "GatherND": Rule(gather_nd, check_gather_nd, static=(1,)),
    "GatherElements": Rule(gather_elements, check_gather),
    "OneHot": Rule(one_hot, check_one_hot, static=(1, 2)),
}
