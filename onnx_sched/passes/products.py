"""Matrix products: what batching is about.

    Linear(x_i, W_i, b_i)  ==>  MatMul(Stack(x), Stack(W)) + Stack(b)         form "stacked"
    Linear(x, W_i, b_i)    ==>  Linear(x, Concat(W), Concat(b))               form "wide": lanes side by side
    MatMul(a_i, b_i)       ==>  MatMul(Stack(a), Stack(b))

Operands of lower rank are raised first, so that lanes meet lanes and batch axes meet batch axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from onnx import TensorProto

from onnx_sched.circuit import LINEAR, SEVERAL, Circuit, Unit
from onnx_sched.constants import Const, concat
from onnx_sched.dims import Shape
from onnx_sched.passes.compose import pieces
from onnx_sched.passes.homes import Bundle
from onnx_sched.passes.rule import Batch, Rule, Table, laid_const
from onnx_sched.plan import Refused
from onnx_sched.relayout import steps
from onnx_sched.stacking import Bulk, Layout, aligned, flat, lead, rows


def check_matmul(unit: Unit, circuit: Circuit) -> str | None:
    """Matrices, not vectors: a vector operand changes the rank of the result."""
    for operand in unit.operands[:2]:
        shape = circuit.shape(operand)
        if shape is None:
            return "the shape of an operand is not known"
        if len(shape) < 2:
            return "an operand is a vector"
    if circuit.values.shape(unit.outputs[0]) is None:
        return "the shape of the result is not known"
    return None


def matmul(batch: Batch) -> None:
    """MatMul of anything with anything, lanes in front."""
    rank = len(batch.out_bulk().shape)
    shapes = [batch.shape(k) for k in (0, 1)]
    layout = stacked_rows(batch, batch.outputs()) if is_matrix(shapes[1]) else lead(rank)
    names = [_factor(batch, k, layout, rank) for k in (0, 1)]
    batch.put(layout, batch.make("MatMul", names, **batch.attributes())[0])


def is_matrix(shape: Shape) -> bool:
    """Whether a right operand is one matrix, however many axes of size 1 stand before it."""
    return all(d == 1 for d in shape[:-2])


def stacked_rows(batch: Batch, lanes: Bundle) -> Layout:
    """Where a product by one matrix a lane puts its results: all rows of a lane on one axis, if need be.

    That is one large product a lane; and where a batch is empty the runtime refuses to pair it with the
    axis of size 1 that matrices have there otherwise.
    """
    bulk = batch.store.bulk(lanes)
    rank = len(bulk.shape)
    if rank == 2 or steps(bulk, flat(rank), lead(rank)) is not None:
        return flat(rank)
    if batch.may_be_empty(*bulk.shape[:-2]):
        raise Refused(
            "S201", "an empty batch would not run (--nonempty promises that there is none)"
        )
    return lead(rank)


def _factor(batch: Batch, k: int, layout: Layout, rank: int) -> str:
    """Operand k of a MatMul whose result lies in a layout."""
    shape = batch.shape(k)
    merged = layout == flat(rank)
    own = flat(len(shape)) if merged else aligned(layout, rank, len(shape))
    lanes, single = batch.lanes(k), batch.single(k)
    if lanes is not None:
        return batch.store.get(lanes, own)
    if single is not None:
        return batch.store.get((single,), own) if merged else batch.store.value(single)
    parts = batch.consts(k)
    made = _raised(parts[0]) if len(parts) == 1 else laid_const(parts, own, Bulk(batch.size, shape))
    assert made is not None
    return batch.emit.const(made, f"{batch.hint}_const{k}")


def _raised(weight: Const) -> Const:
    """A weight that all lanes share, as a matrix; of half precision as a stack of one.

    ONNX Runtime crashes where it fuses a Transpose with a product by a matrix of half precision.
    """
    half = weight.elem_type == TensorProto.FLOAT16 and weight.rank == 2
    return weight.reshape((1, *weight.shape)) if half else weight


def biases_like(batch: Batch, k: int, shapes: Sequence[tuple[int, ...]]) -> list[Const]:
    """Operand k as one bias a lane, zeros where a lane has none; empty if no lane has one."""
    found = [u.operands[k] if len(u.operands) > k else None for u in batch.units]
    given = [b for b in found if isinstance(b, Const)]
    if not given:
        return []
    return [
        bias if isinstance(bias, Const) else zeros(shape, given[0])
        for bias, shape in zip(found, shapes, strict=True)
    ]


def zeros(shape: tuple[int, ...], like: Const) -> Const:
    """Zeros of a shape, in another constant's element type."""
    dtype = like.dtype
    key = ("zeros", shape, like.elem_type)
    return Const(shape, like.elem_type, dtype, key, lambda: np.zeros(shape, dtype))


def biases(batch: Batch) -> list[Const]:
    """The biases of linear maps."""
    weights = [w for w in batch.operands(1) if isinstance(w, Const)]
    return biases_like(batch, 2, [w.shape[1:] for w in weights])


def linear(batch: Batch) -> None:
    """Linear maps in the form that the plan says."""
    FORMS[batch.group.form](batch)


def stacked(batch: Batch) -> None:
    """MatMul(Stack(x), Stack(W)) + Stack(b); a weight that all lanes share stays one matrix.

    All rows of a lane lie on one axis where they can be told apart again: one large product a lane.
    """
    _stacked(batch, 0, batch.size)


def apart(batch: Batch) -> None:
    """The same, but one product for each part that is asked for as a bundle of its own (Q, K, V)."""
    for start, end in batch.store.tiles(batch.outputs()):
        _stacked(batch, start, end)


def _stacked(batch: Batch, start: int, end: int) -> None:
    lanes, size = batch.outputs()[start:end], end - start
    bulk = batch.store.bulk(lanes)
    layout = stacked_rows(batch, lanes)
    single, own = batch.single(0), batch.lanes(0)
    bundle = (single,) if single is not None else (own or ())[start:end]
    x = batch.store.get(bundle, layout)
    weights = batch.consts(1)
    if len(weights) == 1:
        w = batch.emit.const(_raised(weights[0]), f"{batch.hint}_weight")
    else:
        inner = (1,) * (len(layout) - 3) + weights[0].shape
        made = laid_const(weights[start:end], lead(len(inner)), Bulk(size, inner))
        assert made is not None
        w = batch.emit.const(made, f"{batch.hint}_weight")
    out = batch.make("MatMul", [x, w])[0]
    shifts = biases(batch)[start:end]
    if shifts:
        shared = len({b.key for b in shifts}) == 1
        row = shifts[0] if shared else laid_const(shifts, layout, bulk)
        assert row is not None
        bias = batch.emit.const(row, f"{batch.hint}_bias")
        out = batch.emit.node("Add", [out, bias], f"{batch.hint}_add")[0]
    batch.store.put(lanes, layout, out)


def as_convolution(batch: Batch) -> None:
    """Conv(x, Concat(W)^T, Concat(b), group=G): features are channels, rows are images or pixels.

    Bias and activation run with it, its weights are packed when the model is loaded.  With pixels, an
    open number of rows gets a spare one, made by the convolution's own padding.  A runtime may keep images
    of two axes in a layout of its own from one convolution to the next; those of one axis it takes as
    they lie.
    """
    shape = batch.shape(0)
    form = batch.group.form
    spatial = 1 if form == "grouped_conv_1d" else 2
    layout = batch.columns(shape) if form == "conv_t" else rows(len(shape), spatial)
    lanes, single = batch.lanes(0), batch.single(0)
    bundle: tuple[str, ...] = lanes if lanes is not None else (single or "",)
    weights = [w for w in batch.operands(1) if isinstance(w, Const)]
    require_convolution(batch, weights[0].elem_type)
    kernel = concat([w.transpose((1, 0)) for w in weights], 0)
    kernel = kernel.reshape((*kernel.shape, *[1] * spatial))
    x, attributes = batch.enter(bundle, layout)
    names = [x, batch.emit.const(kernel, f"{batch.hint}_weight")]
    shifts = biases(batch)
    if shifts:
        names.append(batch.emit.const(concat(shifts, 0), f"{batch.hint}_bias"))
    batch.put(layout, batch.make("Conv", names, group=len(bundle), **attributes)[0])


def require_convolution(batch: Batch, elem_type: int) -> None:
    """Refuse element types for which the runtime has no convolution."""
    if elem_type not in (TensorProto.FLOAT, TensorProto.FLOAT16):
        raise Refused(
            "S104", f"{batch.circuit.label(batch.unit)}: no convolution has this element type"
        )


def wide(batch: Batch) -> None:
    """One product with all weights side by side."""
    rank = len(batch.shape(0))
    single = batch.single(0)
    assert single is not None
    x = batch.store.value(single)
    weights = [w for w in batch.operands(1) if isinstance(w, Const)]
    w = batch.emit.const(concat(weights, 1), f"{batch.hint}_weight")
    shifts = biases(batch)
    if not shifts:
        out = batch.make("MatMul", [x, w])[0]
    else:
        bias = batch.emit.const(concat(shifts, 0), f"{batch.hint}_bias")
        if rank == 2 and batch.emit.opset >= 7:
            out = batch.make("Gemm", [x, w, bias])[0]
        else:
            out = batch.make("MatMul", [x, w])[0]
            out = batch.emit.node("Add", [out, bias], f"{batch.hint}_add")[0]
    batch.put_side_by_side(rank - 1, out)


FORMS: dict[str, Callable[[Batch], None]] = {
    "stacked": stacked,
    "apart": apart,
    "wide": wide,
    "grouped_conv": as_convolution,
    "conv_t": as_convolution,
    "grouped_conv_1d": as_convolution,
}
"""How linear maps can be run, by the name of the form."""


def several(batch: Batch) -> None:
    """Each of several linear maps as a batched node of its own."""
    for units in zip(*(pieces(u) for u in batch.units), strict=True):
        linear(replace(batch, group=replace(batch.group, units=units)))


RULES: Table = {
    SEVERAL: Rule(several, check_matmul, optional=(2,)),
    LINEAR: Rule(linear, check_matmul, optional=(2,), heavy=True),
    "MatMul": Rule(matmul, check_matmul, heavy=True),
}
