"""Ops that work along axes: reductions, softmax, arg-max, cuts along an axis.

    Softmax(x_i, axis=a)  ==>  Softmax(Stack(x), axis=a + 1)      a >= 0; a negative axis stays as it is

In another layout an axis is wherever it lies there; it must lie alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Const
from onnx_sched.passes.elementwise import full
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.plan import Refused
from onnx_sched.relayout import effort, steps
from onnx_sched.reorders import KEEPS
from onnx_sched.stacking import LANE, Layout, at, compact, lead, renumber, separate


def known(unit: Unit, circuit: Circuit) -> str | None:
    """Shapes of input and result must be known."""
    if not isinstance(unit.operands[0], str) or circuit.shape(unit.operands[0]) is None:
        return "the shape of its input is not known"
    if any(o and circuit.values.shape(o) is None for o in unit.outputs):
        return "the shape of its result is not known"
    return None


def known_const(unit: Unit, circuit: Circuit) -> str | None:
    """The same, and a constant second operand."""
    if len(unit.operands) > 1 and isinstance(unit.operands[1], str):
        return "its axis or count is computed"
    return known(unit, circuit)


def wrap(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    return axis + rank if axis < 0 else axis


def place(layout: Layout, axis: int) -> int | None:
    """Where an axis of the lanes lies alone in a layout."""
    return next((k for k, atoms in enumerate(layout) if atoms == (axis,)), None)


def home(batch: Batch, axes: Sequence[int]) -> tuple[str, Layout]:
    """The input in a layout in which each of `axes` lies alone; in front if there is none at hand."""
    lanes = batch.lanes(0)
    if lanes is None:
        raise Refused("S102", f"all lanes of {batch.circuit.label(batch.unit)} read one value")
    bulk = batch.bulk(batch.shape(0))
    rank = len(bulk.shape)
    best: tuple[int, Layout] | None = None
    for source in batch.store.placed(lanes):
        apart = separate(source, bulk)
        for layout in (
            compact(apart, bulk),
            source,
            apart,
            *(at(rank, p) for p in range(rank + 1)),
        ):
            if not full(layout, bulk) or any(place(layout, a) is None for a in axes):
                continue
            route = steps(bulk, source, layout)
            if route is not None and (best is None or effort(route) < best[0]):
                best = (effort(route), layout)
    layout = best[1] if best is not None else lead(rank)
    return batch.store.get(lanes, layout), layout


def signed(axis: int, written: int, layout: Layout) -> int:
    """A physical axis, counted from the end if the model counts so."""
    return axis - len(layout) if written < 0 else axis


def along(default: int) -> Rule:
    """A rule for ops with one `axis` that keep the shape."""

    def emit(batch: Batch) -> None:
        rank = len(batch.shape(0))
        written = batch.unit.integer("axis", default)
        name, layout = home(batch, [wrap(written, rank)])
        axis = place(layout, wrap(written, rank))
        assert axis is not None
        out = batch.make(
            batch.unit.kind, [name], **batch.attributes(axis=signed(axis, written, layout))
        )
        batch.put(layout, out[0])

    return Rule(emit, known)


def softmax(batch: Batch) -> None:
    """Softmax; up to opset 12 it flattens the axes from `axis` on, so that only the front will do."""
    if batch.emit.opset >= 13:
        along(-1).emit(batch)
        return
    lanes = batch.lanes(0)
    assert lanes is not None
    rank = len(batch.shape(0))
    axis = wrap(batch.unit.integer("axis", 1), rank)
    name = batch.store.get(lanes, lead(rank))
    out = batch.make(batch.unit.kind, [name], **batch.attributes(axis=axis + 1))
    batch.put(lead(rank), out[0])


def axes_of(unit: Unit, opset: int, since: int, rank: int) -> tuple[int, ...] | None:
    """The axes of a reduction, counted from the front; None if they are not constant."""
    if opset >= since:
        operand = unit.operands[1] if len(unit.operands) > 1 else None
        if isinstance(operand, str):
            return None
        axes = tuple(int(a) for a in np.asarray(operand.load()).ravel()) if operand else ()
        if not axes and unit.attribute("noop_with_empty_axes", 0):
            return None
    else:
        given = unit.attribute("axes", ())
        assert isinstance(given, tuple)
        axes = given
    return tuple(sorted(wrap(a, rank) for a in axes)) or tuple(range(rank))


def reduction_since(kind: str) -> int:
    """The opset in which a reduction's axes became an input."""
    return 13 if kind == "ReduceSum" else 18


def check_reduce(unit: Unit, circuit: Circuit) -> str | None:
    """Axes must be constant."""
    reason = known(unit, circuit)
    if reason:
        return reason
    shape = circuit.shape(unit.operands[0])
    assert shape is not None
    axes = axes_of(unit, circuit.graph.opset, reduction_since(unit.kind), len(shape))
    return "its axes are not constant" if axes is None else None


def reduce(batch: Batch) -> None:
    """ReduceX(x_i, axes)  ==>  ReduceX(Stack(x), axes + 1): "all axes" must be spelled out.

    A mean over the places of images that lie as convolutions leave them is a pool: a runtime takes it in
    the layout that its convolutions work in.
    """
    rank = len(batch.shape(0))
    axes = axes_of(batch.unit, batch.emit.opset, reduction_since(batch.unit.kind), rank)
    assert axes is not None
    keep = bool(batch.unit.integer("keepdims", 1))
    name, layout = home(batch, axes)
    where = [k for a in axes if (k := place(layout, a)) is not None]
    if batch.unit.kind == "ReduceMean" and keep and _is_pool(batch, layout, where):
        batch.put(layout, batch.make("GlobalAveragePool", [name])[0])
        return
    out = batch.emit.reduce(batch.unit.kind, name, where, keep, batch.hint)
    batch.put(layout if keep else without(layout, axes, rank), out)


def _is_pool(batch: Batch, layout: Layout, axes: Sequence[int]) -> bool:
    """Whether axes are all places of images as convolutions leave them, none of them empty."""
    if len(layout) != 4 or LANE not in layout[1]:
        return False
    name = batch.unit.operands[0]
    while (maker := batch.circuit.maker.get(str(name))) is not None and maker.kind in KEEPS:
        name = maker.operands[0]
    if maker is None or maker.kind != "Conv":
        return False
    single = batch.circuit.elem_type(batch.unit.operands[0]) == TensorProto.FLOAT
    sizes = [batch.bulk(batch.shape(0)).physical(layout)[k] for k in axes]
    there = all(isinstance(size, int) and size > 0 for size in sizes)
    return single and there and list(axes) == [2, 3]


def without(layout: Layout, axes: Sequence[int], rank: int) -> Layout:
    """A layout after some axes, each lying alone, are gone."""
    left = [a for a in range(rank) if a not in axes]
    kept = tuple(atoms for atoms in layout if not (len(atoms) == 1 and atoms[0] in axes))
    return renumber(kept, {a: n for n, a in enumerate(left)})


def arg(batch: Batch) -> None:
    """ArgMax and ArgMin: one axis, kept or not."""
    rank = len(batch.shape(0))
    written = batch.unit.integer("axis", 0)
    axis = wrap(written, rank)
    name, layout = home(batch, [axis])
    where = place(layout, axis)
    assert where is not None
    keep = bool(batch.unit.integer("keepdims", 1))
    out = batch.make(
        batch.unit.kind, [name], **batch.attributes(axis=signed(where, written, layout))
    )
    batch.put(layout if keep else without(layout, [axis], rank), out[0])


def check_split(unit: Unit, circuit: Circuit) -> str | None:
    """Sizes must be constant."""
    if len(unit.operands) > 1 and isinstance(unit.operands[1], str):
        return "its sizes are computed"
    return known(unit, circuit)


def split(batch: Batch) -> None:
    """Split(x_i, axis=a)  ==>  Split(Stack(x), axis=a + 1): one bundle for each output."""
    rank = len(batch.shape(0))
    written = batch.unit.integer("axis", 0)
    name, layout = home(batch, [wrap(written, rank)])
    where = place(layout, wrap(written, rank))
    assert where is not None
    inputs = [name]
    if len(batch.unit.operands) > 1 and isinstance(batch.unit.operands[1], Const):
        inputs.append(batch.emit.const(batch.unit.operands[1], f"{batch.hint}_sizes"))
    outputs = batch.make(
        "Split",
        inputs,
        len(batch.unit.outputs),
        **batch.attributes(axis=signed(where, written, layout)),
    )
    for j, out in enumerate(outputs):
        if batch.unit.outputs[j]:
            batch.put(layout, out, j)


def check_slice(unit: Unit, circuit: Circuit) -> str | None:
    """Bounds must be constant."""
    if any(isinstance(o, str) for o in unit.operands[1:]):
        return "its bounds are computed"
    return known(unit, circuit)


def slice_(batch: Batch) -> None:
    """Slice(x_i, starts, ends, axes)  ==>  Slice(Stack(x), starts, ends, axes + 1), axes spelled out."""
    rank = len(batch.shape(0))
    if batch.emit.opset < 10:
        starts = batch.unit.attribute("starts")
        assert isinstance(starts, tuple)
        given = batch.unit.attribute("axes") or tuple(range(len(starts)))
        assert isinstance(given, tuple)
        name, layout = home(batch, [wrap(a, rank) for a in given])
        where = _places(layout, [wrap(a, rank) for a in given])
        out = batch.make("Slice", [name], **batch.attributes(axes=where))
        batch.put(layout, out[0])
        return
    operands = list(batch.unit.operands)
    first = operands[1]
    assert isinstance(first, Const)
    spelled = operands[3] if len(operands) > 3 else None
    axes = list(range(first.shape[0]))
    if isinstance(spelled, Const):
        axes = [wrap(int(a), rank) for a in np.asarray(spelled.load())]
    name, layout = home(batch, axes)
    names = [
        batch.emit.const(o, f"{batch.hint}_bound") for o in operands[1:3] if isinstance(o, Const)
    ]
    names.append(batch.emit.ints(_places(layout, axes), f"{batch.hint}_axes"))
    if len(operands) > 4 and isinstance(operands[4], Const):
        names.append(batch.emit.const(operands[4], f"{batch.hint}_steps"))
    out = batch.make("Slice", [name, *names])
    batch.put(layout, out[0])


def _places(layout: Layout, axes: Sequence[int]) -> list[int]:
    found = [place(layout, a) for a in axes]
    return [k for k in found if k is not None]


def cumsum(batch: Batch) -> None:
    """CumSum: the axis is an operand."""
    operand = batch.unit.operands[1]
    assert isinstance(operand, Const)
    rank = len(batch.shape(0))
    axis = wrap(int(np.asarray(operand.load()).reshape(-1)[0]), rank)
    name, layout = home(batch, [axis])
    where = place(layout, axis)
    from onnx_sched.constants import from_array

    scalar = from_array(np.array(where, np.int64), TensorProto.INT64)
    out = batch.make(
        "CumSum", [name, batch.emit.const(scalar, f"{batch.hint}_axis")], **batch.attributes()
    )
    batch.put(layout, out[0])


def topk(batch: Batch) -> None:
    """TopK: values and indices along one axis."""
    rank = len(batch.shape(0))
    written = batch.unit.integer("axis", -1)
    name, layout = home(batch, [wrap(written, rank)])
    where = place(layout, wrap(written, rank))
    assert where is not None
    inputs = [name]
    if len(batch.unit.operands) > 1:
        operand = batch.unit.operands[1]
        assert isinstance(operand, Const)
        inputs.append(batch.emit.const(operand, f"{batch.hint}_k"))
    changed: dict[str, Any] = {"axis": signed(where, written, layout)}
    outputs = batch.make("TopK", inputs, len(batch.unit.outputs), **batch.attributes(**changed))
    for j, out in enumerate(outputs):
        if batch.unit.outputs[j]:
            batch.put(layout, out, j)


REDUCTIONS = [
    f"Reduce{k}" for k in "Sum Mean Max Min Prod L1 L2 SumSquare LogSum LogSumExp".split()
]

RULES: Table = {
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), Rule(softmax, known)),
    "LpNormalization": along(-1),
    **dict.fromkeys(REDUCTIONS, Rule(reduce, check_reduce, static=(1,))),
    **dict.fromkeys(("ArgMax", "ArgMin"), Rule(arg, known)),
    "Split": Rule(split, check_split, static=(1,)),
    "Slice": Rule(slice_, check_slice, static=(1, 2, 3, 4)),
    "CumSum": Rule(cumsum, known_const, static=(1,)),
    "TopK": Rule(topk, known_const, static=(1,)),
}
