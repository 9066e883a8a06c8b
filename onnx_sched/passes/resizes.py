"""Resize: every lane by the same factors, each apart from the others.

    Resize(x_i, scales)  ==>  Resize(Stack(x) as images, scales)

Nearest neighbours are taken with lanes on an axis of their own.  What interpolates takes the axes that it
resizes as the height and width of images, and everything else, lanes too, as a batch of them: a number
that is none (NaN) reaches neighbours although they weigh nothing, and must not reach those of another lane.
Along axes that keep their size it reaches none any more, where a runtime lets it in volumes of three axes.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import from_array
from onnx_sched.passes.axes import known
from onnx_sched.passes.normalise import FLOATS
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.plan import Refused
from onnx_sched.resizing import SCALES
from onnx_sched.stacking import LANE, Axis, lead

OTHER_WAYS = ("axes", "keep_aspect_ratio_policy")
"""Attributes about how the factors are given."""


def check(unit: Unit, circuit: Circuit) -> str | None:
    """The factors must be known, and at most two axes interpolated."""
    scales = unit.attribute(SCALES)
    if not isinstance(scales, tuple):
        return "what it resizes to is not known"
    if unit.attribute("antialias", 0):
        return "it smooths while it resizes"
    resized = sum(s != 1 for s in scales)
    if unit.attribute("mode", b"nearest") != b"nearest":
        if not 1 <= resized <= 2:
            return "it interpolates along other than one or two axes"
        if circuit.elem_type(unit.operands[0]) not in FLOATS:
            return "it interpolates whole numbers, and how it rounds them depends on its axes"
    return known(unit, circuit)


def resize(batch: Batch) -> None:
    """One Resize by factors."""
    lanes, shape = batch.lanes(0), batch.shape(0)
    if lanes is None:
        raise Refused("S102", f"all lanes of {batch.circuit.label(batch.unit)} read one value")
    scales = batch.unit.attribute(SCALES)
    assert isinstance(scales, tuple)
    rank = len(shape)
    layout = lead(rank)
    factors = [1.0, *scales]
    if batch.unit.attribute("mode", b"nearest") != b"nearest":
        images: Axis = (LANE, *(a for a in range(rank) if scales[a] == 1))
        moved = [a for a in range(rank) if scales[a] != 1]
        height_and_width: tuple[Axis, ...] = ((), *((a,) for a in moved))[-2:]
        layout = (images, (), *height_and_width)
        factors = [1.0, 1.0, *([1.0] * (2 - len(moved))), *(scales[a] for a in moved)]
    array = np.array(factors, np.float32)
    scale = batch.emit.const(from_array(array, TensorProto.FLOAT), f"{batch.hint}_scales")
    region = ""
    if batch.emit.opset < 13:  # it may not be left out yet
        empty = from_array(np.zeros(0, np.float32), TensorProto.FLOAT)
        region = batch.emit.const(empty, f"{batch.hint}_roi")
    kept = {k: v for k, v in batch.attributes().items() if k not in OTHER_WAYS}
    names = [batch.store.get(lanes, layout), region, scale]
    batch.put(layout, batch.make("Resize", names, **kept)[0])


RULES: Table = {"Resize": Rule(resize, check)}
