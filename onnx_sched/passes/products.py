"""Matrix products: what batching is about.

    Linear(x_i, W_i, b_i)  ==>  MatMul(Stack(x), Stack(W)) + Stack(b)         form "stacked"
    Linear(x, W_i, b_i)    ==>  Linear(x, Concat(W), Concat(b))               form "wide": lanes side by side
    MatMul(a_i, b_i)       ==>  MatMul(Stack(a), Stack(b))

Operands of lower rank are raised first, so that lanes meet lanes and batch axes meet batch axes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_sched.circuit import LINEAR, Circuit, Unit
from onnx_sched.constants import Const, concat
from onnx_sched.passes.rule import Batch, Rule, Table, laid_const
from onnx_sched.stacking import Bulk, aligned, lead


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
    bulk = batch.out_bulk()
    rank = len(bulk.shape)
    names = []
    for k in (0, 1):
        shape = batch.shape(k)
        lanes, single = batch.lanes(k), batch.single(k)
        if lanes is not None:
            names.append(batch.store.get(lanes, aligned(lead(rank), rank, len(shape))))
        elif single is not None:
            names.append(batch.store.value(single))
        else:
            parts = batch.consts(k)
            if len(parts) == 1:
                names.append(batch.emit.const(parts[0], f"{batch.hint}_const{k}"))
                continue
            own = Bulk(batch.size, (1,) * (rank - len(shape)) + shape)
            made = laid_const(parts, lead(rank), own)
            assert made is not None
            names.append(batch.emit.const(made, f"{batch.hint}_const{k}"))
    batch.put(lead(rank), batch.make("MatMul", names, **batch.attributes())[0])


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
    """Linear maps: side by side where all lanes read one value, else lanes in front."""
    if batch.lanes(0) is None:
        wide(batch)
    else:
        stacked(batch)


def stacked(batch: Batch) -> None:
    """MatMul(Stack(x), Stack(W)) + Stack(b); a weight that all lanes share stays one matrix."""
    bulk = batch.out_bulk()
    rank = len(bulk.shape)
    lanes = batch.lanes(0)
    assert lanes is not None
    x = batch.store.get(lanes, lead(rank))
    weights = batch.consts(1)
    if len(weights) == 1:
        w = batch.emit.const(weights[0], f"{batch.hint}_weight")
    else:
        made = laid_const(
            weights, lead(rank), Bulk(batch.size, (1,) * (rank - 2) + weights[0].shape)
        )
        assert made is not None
        w = batch.emit.const(made, f"{batch.hint}_weight")
    out = batch.make("MatMul", [x, w])[0]
    rows = biases(batch)
    if rows:
        one = [rows[0]] if len({r.key for r in rows}) == 1 else rows
        made = laid_const(one, lead(rank), bulk)
        assert made is not None
        bias = one[0] if len(one) == 1 else made
        out = batch.emit.node(
            "Add", [out, batch.emit.const(bias, f"{batch.hint}_bias")], f"{batch.hint}_add"
        )[0]
    batch.put(lead(rank), out)


def wide(batch: Batch) -> None:
    """One product with all weights side by side."""
    rank = len(batch.shape(0))
    single = batch.single(0)
    assert single is not None
    x = batch.store.value(single)
    weights = [w for w in batch.operands(1) if isinstance(w, Const)]
    w = batch.emit.const(concat(weights, 1), f"{batch.hint}_weight")
    rows = biases(batch)
    if not rows:
        out = batch.make("MatMul", [x, w])[0]
    else:
        bias = batch.emit.const(concat(rows, 0), f"{batch.hint}_bias")
        if rank == 2 and batch.emit.opset >= 7:
            out = batch.make("Gemm", [x, w, bias])[0]
        else:
            out = batch.make("MatMul", [x, w])[0]
            out = batch.emit.node("Add", [out, bias], f"{batch.hint}_add")[0]
    batch.put_side_by_side(rank - 1, out)


RULES: Table = {
    LINEAR: Rule(linear, check_matmul, optional=(2,), heavy=True),
    "MatMul": Rule(matmul, check_matmul, heavy=True),
}
