"""Forms of a norm over features: averages over columns, and norms by channels.

Both end in one node that multiplies and adds, feature by feature, where a runtime has one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from onnx_sched.constants import Const, concat, from_array
from onnx_sched.dims import Shape
from onnx_sched.passes.axes import wrap
from onnx_sched.passes.fold import CENTRED, ones_like
from onnx_sched.passes.homes import Bundle
from onnx_sched.passes.normalise import row
from onnx_sched.passes.products import biases_like
from onnx_sched.passes.rule import Batch, laid_const
from onnx_sched.plan import Refused
from onnx_sched.relayout import steps
from onnx_sched.stacking import (
    LANE,
    SPARE,
    Axis,
    Bulk,
    Layout,
    rows,
    separate,
    spare_axis,
    without_spare,
)


def over_last_axis(batch: Batch) -> tuple[Bundle, Shape]:
    """The lanes that a norm reads, and the shape of each.

    Raises:
        Refused: If it works on other axes than the last one, or on one value for all lanes.
    """
    lanes, shape = batch.lanes(0), batch.shape(0)
    last = wrap(batch.unit.integer("axis", -1), len(shape)) == len(shape) - 1
    if lanes is None or not last or len(shape) < 2:
        raise Refused(
            "S102", f"{batch.circuit.label(batch.unit)} does not work on the last axis alone"
        )
    return lanes, shape


def on_columns(batch: Batch) -> None:
    """A norm over features where rows are innermost: averages run along an outer axis.

        c = x - mean(x)                 nothing where the map before centres already
        y = c * rsqrt(mean(c * c) + epsilon) * g + h

    A runtime's own norm takes row by row, which is slow for short rows.
    """
    lanes, shape = over_last_axis(batch)
    rank = len(shape)
    bulk = batch.bulk(shape)
    target = batch.columns(shape)
    if not any(spare_axis(la) is not None for la in batch.store.placed(lanes)):
        target = without_spare(target)
    layout = separate(target, bulk)
    layout = tuple(axis for axis in layout if axis)
    axis = layout.index((rank - 1,))
    x = batch.store.get(lanes, layout)
    scales = [s for s in batch.operands(1) if isinstance(s, Const)]
    if batch.unit.kind == "LayerNormalization" and not batch.unit.attribute(CENTRED):
        mean = batch.emit.reduce("ReduceMean", x, [axis], True, f"{batch.hint}_mean")
        x = batch.make("Sub", [x, mean])[0]
    square = batch.make("Mul", [x, x])[0]
    variance = batch.emit.reduce("ReduceMean", square, [axis], True, f"{batch.hint}_variance")
    epsilon = batch.unit.attribute("epsilon", 1e-5)
    number = np.array(epsilon, scales[0].dtype)
    small = batch.emit.const(from_array(number, scales[0].elem_type), f"{batch.hint}_epsilon")
    deviation = batch.make("Sqrt", batch.make("Add", [variance, small]))
    out = batch.make("Mul", [x, batch.make("Reciprocal", deviation)[0]])[0]
    shifts = biases_like(batch, 2, [scales[0].shape] * batch.size)
    bare = all(s.key == ones_like(s).key for s in scales)
    side: Layout = ((), (LANE, rank - 1), target[-1])
    if shifts and not bare and scaled_and_shifted(batch, out, scales, shifts, (layout, side)):
        return
    if not bare:
        out = apply(batch, "Mul", out, scales, layout, bulk)
    if shifts:
        out = apply(batch, "Add", out, shifts, layout, bulk)
    batch.put(layout, out)


def by_channels(batch: Batch) -> None:
    """A norm over features where rows are outermost: lanes are channels, their features are pixels.

        c = InstanceNormalization([rows, G, K], 1, 0)             each row of each lane by itself
        y = BatchNormalization([rows, G*K], g, h, mean=0, var=1)  one node where Mul and Add are two

    Runtimes take these two with vectors, their LayerNormalization mostly number by number.
    """
    lanes, shape = over_last_axis(batch)
    rank = len(shape)
    there = batch.store.placed(lanes)
    outer: Axis = tuple(range(rank - 1))
    if any(spare_axis(la) is not None for la in there):
        outer = (*outer, SPARE)
    apart: Layout = (outer, (LANE,), (rank - 1,))
    # Between convolutions on images of one pixel, which want it so, the result is such images again.
    images = [layout for spatial in (1, 2) if (layout := rows(rank, spatial)) in there]
    beside: Layout = images[0] if images else (outer, (LANE, rank - 1))
    scales = [s for s in batch.operands(1) if isinstance(s, Const)]
    shifts = biases_like(batch, 2, [scales[0].shape] * batch.size)
    x = batch.store.get(lanes, apart)
    epsilon = batch.unit.attribute("epsilon", 1e-5)
    out = batch.make(
        "InstanceNormalization",
        [x, *_vectors(batch, batch.size, (1, 0), scales[0])],
        epsilon=epsilon,
    )[0]
    if not shifts and all(s.key == ones_like(s).key for s in scales):
        batch.put(apart, out)
    elif not scaled_and_shifted(batch, out, scales, shifts, (apart, beside)):
        raise Refused("S201", "rows with sizes known only at run time cannot be put together")


def scaled_and_shifted(
    batch: Batch,
    name: str,
    scales: list[Const],
    shifts: list[Const],
    layouts: tuple[Layout, Layout],
) -> bool:
    """Multiply and add, feature by feature, what each lane has of its own, by one node if there is one.

        BatchNormalization(x, g, h, mean=0, var=1, epsilon=0)  =  x * g + h

    Args:
        batch: The group; its result is put where it comes to lie.
        name: What is multiplied.
        scales: One vector a lane.
        shifts: One vector a lane, or none at all.
        layouts: How that lies, and how it must lie: all features of all lanes on axis 1.

    Returns:
        Whether it was done.
    """
    route = steps(batch.bulk(batch.shape(0)), *layouts)
    found = [row(s, scales[0].shape[0]) for s in shifts]  # one number may stand for all features
    shifts = [s for s in found if s is not None]
    if len(shifts) < len(found):
        return False
    if route is None or batch.emit.opset < 9 or scales[0].elem_type != TensorProto.FLOAT:
        return False
    for step in route:
        name = batch.emit.step(name, step, f"{batch.hint}_channels")
    zeros, ones = _vectors(batch, sum(s.shape[0] for s in scales), (0, 1), scales[0])
    shift = batch.emit.const(concat(shifts, 0), f"{batch.hint}_shift") if shifts else zeros
    scale = batch.emit.const(concat(scales, 0), f"{batch.hint}_scale")
    names = [name, scale, shift, zeros, ones]
    batch.put(layouts[1], batch.make("BatchNormalization", names, epsilon=0.0)[0])
    return True


def _vectors(batch: Batch, length: int, values: Sequence[int], like: Const) -> list[str]:
    """Constant vectors of one value each."""
    return [
        batch.emit.const(
            from_array(np.full(length, value, like.dtype), like.elem_type),
            f"{batch.hint}_{'ones' if value else 'zeros'}",
        )
        for value in values
    ]


def apply(
    batch: Batch, op_type: str, name: str, parts: list[Const], layout: Layout, bulk: Bulk
) -> str:
    """Multiply or add what each lane has of its own."""
    made = laid_const(parts, layout, bulk)
    if made is None:
        raise Refused(
            "S201", "parameters would have to be widened to a size known only at run time"
        )
    constant = batch.emit.const(made, f"{batch.hint}_{op_type.lower()}")
    return batch.emit.node(op_type, [name, constant], f"{batch.hint}_{op_type.lower()}")[0]
