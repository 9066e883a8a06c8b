"""Ops that only move numbers: where the result is the same tensor under other axis names, no node is made.

Transpose(x_i), Squeeze(x_i), Unsqueeze(x_i)  ==>  nothing: the bundle lies as before, renumbered
Reshape(x_i, shape)                           ==>  Reshape(Stack(x), (G, *shape))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Const
from onnx_sched.dims import product
from onnx_sched.passes.axes import known, wrap
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.plan import Refused
from onnx_sched.relayout import reshape_target
from onnx_sched.stacking import Bulk, Layout, lead, packed, regrouped, renumber


def renamed(batch: Batch, axes: Mapping[int, int]) -> None:
    """Hand on the input under new axis numbers, in every layout in which it lies."""
    lanes = batch.lanes(0)
    if lanes is None:
        raise Refused("S102", f"all lanes of {batch.circuit.label(batch.unit)} read one value")
    if not batch.store.placed(lanes):
        batch.store.get(lanes, lead(len(batch.shape(0))))
    for layout, name in tuple(batch.store.placed(lanes).items()):
        batch.put(renumber(layout, axes), name)


def listed(unit: Unit, opset: int) -> tuple[int, ...] | None:
    """Axes of Squeeze or Unsqueeze as they are written; None if there are none."""
    if opset >= 13:
        operand = unit.operands[1] if len(unit.operands) > 1 else None
        return (
            tuple(int(a) for a in np.asarray(operand.load()).ravel())
            if isinstance(operand, Const)
            else None
        )
    given = unit.attribute("axes")
    assert given is None or isinstance(given, tuple)
    return given


def check_axes(unit: Unit, circuit: Circuit) -> str | None:
    """Axes must be constant, and what Squeeze removes surely 1."""
    if len(unit.operands) > 1 and isinstance(unit.operands[1], str):
        return "its axes are computed"
    reason = known(unit, circuit)
    if reason is None and unit.kind == "Squeeze":
        shape = circuit.shape(unit.operands[0])
        assert shape is not None
        axes = listed(unit, circuit.graph.opset)
        if axes is None and any(not isinstance(d, int) for d in shape):
            return "which axes it removes depends on sizes known only at run time"
        if any(shape[wrap(a, len(shape))] != 1 for a in axes or ()):
            return "it removes an axis whose size is known only at run time"
    return reason


def squeeze(batch: Batch) -> None:
    """The axes that stay get new numbers."""
    shape = batch.shape(0)
    axes = listed(batch.unit, batch.emit.opset)
    gone = (
        {wrap(a, len(shape)) for a in axes} if axes else {a for a, d in enumerate(shape) if d == 1}
    )
    left = [a for a in range(len(shape)) if a not in gone]
    renamed(batch, {a: n for n, a in enumerate(left)})


def unsqueeze(batch: Batch) -> None:
    """The axes that were there make room."""
    axes = listed(batch.unit, batch.emit.opset) or ()
    rank = len(batch.shape(0)) + len(axes)
    added = {wrap(a, rank) for a in axes}
    left = [a for a in range(rank) if a not in added]
    renamed(batch, dict(enumerate(left)))


def transpose(batch: Batch) -> None:
    """Axis perm[i] becomes axis i."""
    perm = batch.unit.attribute("perm") or tuple(range(len(batch.shape(0))))[::-1]
    assert isinstance(perm, tuple)
    renamed(batch, {p: i for i, p in enumerate(perm)})


def reshape(batch: Batch) -> None:
    """Reshape and Flatten; what merges the axes behind the first keeps channels side by side."""
    lanes = batch.lanes(0)
    if lanes is None:
        raise Refused("S102", f"all lanes of {batch.circuit.label(batch.unit)} read one value")
    before, after = batch.bulk(batch.shape(0)), batch.out_bulk()
    rank, new = len(before.shape), len(after.shape)
    renamed_layouts = {
        layout: name
        for source, name in batch.store.placed(lanes).items()
        if (layout := regrouped(source, before.shape, after.shape)) is not None
    }
    if renamed_layouts:
        for layout, name in renamed_layouts.items():
            batch.put(layout, name)
        return
    side = packed(rank, 1) if rank > 1 else None
    if (
        side is not None
        and side in batch.store.placed(lanes)
        and _flattens(before.shape, after.shape)
    ):
        _move(batch, batch.store.get(lanes, side), (before, side), (after, packed(2, 1)))
        return
    _move(batch, batch.store.get(lanes, lead(rank)), (before, lead(rank)), (after, lead(new)))


def _flattens(before: Sequence[object], after: Sequence[object]) -> bool:
    """Whether [B, C, ...] becomes [B, C*...]."""
    dims = [d for d in before if isinstance(d, int | str)]
    return len(after) == 2 and after[0] == dims[0] and after[1] == product(dims[1:])


def _move(batch: Batch, name: str, before: tuple[Bulk, Layout], after: tuple[Bulk, Layout]) -> None:
    own = reshape_target(before[0].shape, after[0].shape)
    nonempty = batch.circuit.nonempty or own is None  # by itself it cannot do without, either
    physical = before[0].physical(before[1]), after[0].physical(after[1])
    target = reshape_target(*physical, nonempty)
    if target is None:
        raise Refused(
            "S201", f"{batch.circuit.label(batch.unit)} needs sizes known only at run time"
        )
    shape = batch.emit.ints(target, f"{batch.hint}_shape")
    batch.put(after[1], batch.make("Reshape", [name, shape])[0])


def expand(batch: Batch) -> None:
    """Expand(x_i, shape)  ==>  Expand(Stack(x), (1, *shape)): a 1 keeps the size that is there."""
    lanes = batch.lanes(0)
    after = batch.out_bulk()
    before = batch.shape(0)
    if lanes is None:
        raise Refused("S102", f"all lanes of {batch.circuit.label(batch.unit)} read one value")
    rank = len(after.shape)
    raised = (1,) * (rank - len(before)) + before
    target = [1]
    for have, want in zip(raised, after.shape, strict=True):
        if have == want:
            target.append(1)
        elif isinstance(want, int):
            target.append(want)
        else:
            raise Refused(
                "S201", f"{batch.circuit.label(batch.unit)} needs sizes known only at run time"
            )
    from onnx_sched.stacking import aligned

    name = batch.store.get(lanes, aligned(lead(rank), rank, len(before)))
    out = batch.make("Expand", [name, batch.emit.ints(target, f"{batch.hint}_shape")])
    batch.put(lead(rank), out[0])


RULES: Table = {
    "Squeeze": Rule(squeeze, check_axes, static=(1,)),
    "Unsqueeze": Rule(unsqueeze, check_axes, static=(1,)),
    "Transpose": Rule(transpose, known),
    "Reshape": Rule(reshape, known, unread=(1,)),
    "Flatten": Rule(reshape, known),
    "Expand": Rule(expand, known, unread=(1,)),
}
