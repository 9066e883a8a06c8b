"""Ops of ONNX Runtime's own domain, com.microsoft.

    BiasGelu(x_i, b_i)                ==>  BiasGelu(Concat(x), Concat(b)) where lanes lie side by side
                                           Gelu(Stack(x) + Stack(b)) elsewhere; FastGelu likewise
    FusedMatMul(a_i, b_i)             ==>  FusedMatMul(Stack(a), Stack(b)), its attributes as they are
    MatMulNBits(x, W_i)               ==>  MatMulNBits(x, Concat(W))

A bias is one row: rows that differ by lane are added before the op.
"""

from __future__ import annotations

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Const, concat
from onnx_sched.passes import elementwise
from onnx_sched.passes.norm_forms import apply
from onnx_sched.passes.operands import apiece, has, multiplied, own_consts
from onnx_sched.passes.products import check_matmul, is_matrix, stacked_rows
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.plan import Refused
from onnx_sched.stacking import Bulk, lead, packed

DOMAIN = "com.microsoft"


def check_biased(unit: Unit, circuit: Circuit) -> str | None:
    """A constant bias, of one row."""
    bias = unit.operands[1] if len(unit.operands) > 1 else None
    if isinstance(bias, str):
        return "its bias is computed"
    if isinstance(bias, Const) and bias.rank != 1:
        return "its bias is no row"
    return elementwise.check(unit, circuit)


def biased(batch: Batch) -> None:
    """BiasGelu and FastGelu: one row for all, rows side by side, or an Add before it."""
    if not has(batch, 1):
        elementwise.emit(batch)
        return
    shape, rows = batch.shape(0), own_consts(batch, 1)
    rank = len(shape)
    lanes = batch.lanes(0)
    side = packed(rank, rank - 1)
    kind = batch.unit.kind
    if lanes is not None and side in batch.store.placed(lanes):
        bias = batch.emit.const(concat(rows, 0), f"{batch.hint}_bias")
        out = batch.make(kind, [batch.store.get(lanes, side), bias], domain=DOMAIN)[0]
        batch.put(side, out)
        return
    layout = lead(rank)
    x = apiece(batch, 0, layout)
    if len(batch.consts(1)) == 1:
        bias = batch.emit.const(rows[0], f"{batch.hint}_bias")
        batch.put(layout, batch.make(kind, [x, bias], domain=DOMAIN)[0])
        return
    raised = [r.reshape((1,) * (rank - 1) + r.shape) for r in rows]
    x = apply(batch, "Add", x, raised, layout, Bulk(batch.size, shape))
    alone = "Gelu" if kind == "BiasGelu" else kind
    batch.put(layout, batch.make(alone, [x], domain=DOMAIN)[0])


def check_fused(unit: Unit, circuit: Circuit) -> str | None:
    """Matrices, and no transposition of their batch axes."""
    if unit.attribute("transBatchA", 0) or unit.attribute("transBatchB", 0):
        return "it transposes batch axes, and lanes are one more"
    reason, first = check_matmul(unit, circuit), circuit.shape(unit.operands[0])
    turned = bool(unit.attribute("transA", 0))
    if reason is None and first is not None and (turned or unit.attribute("transB", 0)):
        inner = first[-2] if turned else first[-1]
        if not circuit.nonempty and (not isinstance(inner, int) or inner == 0):
            return "it may sum over nothing, and runtimes leave such results unset (--nonempty)"
    return reason


def fused_matmul(batch: Batch) -> None:
    """FusedMatMul with lanes among the batch axes: what it transposes are the last two axes."""
    matrices = is_matrix(batch.shape(1)) and not batch.unit.attribute("transA", 0)
    rank = len(batch.out_bulk().shape)
    layout = stacked_rows(batch, batch.outputs()) if matrices else lead(rank)
    names = [multiplied(batch, k, layout) for k in (0, 1)]
    out = batch.make(batch.unit.kind, names, domain=DOMAIN, **batch.attributes())
    batch.put(layout, out[0])


def check_four_bits(unit: Unit, circuit: Circuit) -> str | None:
    """Constant weights in the order of their columns."""
    if not all(isinstance(o, Const) or o is None for o in unit.operands[1:]):
        return "its weight is computed"
    if len(unit.operands) > 4 and unit.operands[4] is not None:
        return "its weight's rows are in an order of their own"
    if circuit.shape(unit.operands[0]) is None or circuit.values.shape(unit.outputs[0]) is None:
        return "the shape of its input is not known"
    return None


def four_bits(batch: Batch) -> None:
    """MatMulNBits: columns of all lanes side by side; every operand goes column by column."""
    single = batch.single(0)
    if single is None:
        raise Refused(
            "S302", "products of packed weights have no stacked form, only one input for all"
        )
    width = batch.unit.integer("N")
    names = [batch.store.value(single)]
    for k in range(1, batch.slots):
        given = has(batch, k)
        joint = concat(own_consts(batch, k), 0) if given else None
        names.append(batch.emit.const(joint, f"{batch.hint}_const{k}") if joint else "")
    attributes = batch.attributes(N=width * batch.size)
    out = batch.make(batch.unit.kind, names, domain=DOMAIN, **attributes)
    batch.put_side_by_side(len(batch.shape(0)) - 1, out[0])


RULES: Table = {
    **dict.fromkeys(("BiasGelu", "FastGelu"), Rule(biased, check_biased)),
    "FusedMatMul": Rule(fused_matmul, check_fused, heavy=True),
    "MatMulNBits": Rule(four_bits, check_four_bits, heavy=True),
}
"""Rules of com.microsoft."""
