"""Ops of ONNX Runtime's own domain, com.microsoft, and the norms that it keeps beside ONNX's.

    BiasGelu(x_i, b_i)                ==>  BiasGelu(Concat(x), Concat(b)) side by side, else Gelu(Stack(x) + Stack(b))
    FastGelu(x_i, b_i)                ==>  likewise
    FusedMatMul(a_i, b_i)             ==>  FusedMatMul(Stack(a), Stack(b)), its attributes as they are
    SkipNorm(x_i, s_i, g_i, h_i, b_i) ==>  SkipNorm(Stack(x) + Stack(b), Stack(s), 1) * Stack(g) + Stack(h)
    MatMulNBits(x, W_i)               ==>  MatMulNBits(x, Concat(W))

Runtimes take a bias or a scale as one row: rows that differ by lane are added or multiplied beside the op.
"""

from __future__ import annotations

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Const, concat
from onnx_sched.passes import elementwise
from onnx_sched.passes.fold import ones_like
from onnx_sched.passes.norms import apply, check_layer_norm, layer_norm
from onnx_sched.passes.operands import apiece, has, in_front, one, own_consts
from onnx_sched.passes.products import check_matmul
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.plan import Refused
from onnx_sched.stacking import Bulk, flat, lead, packed

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
    return check_matmul(unit, circuit)


def fused_matmul(batch: Batch) -> None:
    """FusedMatMul with lanes in front: what it transposes are the last two axes."""
    rank = len(batch.out_bulk().shape)
    names = [in_front(batch, k, rank) for k in (0, 1)]
    out = batch.make(batch.unit.kind, names, domain=DOMAIN, **batch.attributes())
    batch.put(lead(rank), out[0])


def check_skip(unit: Unit, circuit: Circuit) -> str | None:
    """Two inputs of one shape, constant parameters, no statistics read."""
    if any(unit.outputs[1:3]):
        return "its mean or deviation is read"
    if not all(isinstance(o, Const) or o is None for o in unit.operands[2:]):
        return "its scale or bias is computed"
    first, second = (circuit.shape(unit.operands[k]) for k in (0, 1))
    if first is None or circuit.values.shape(unit.outputs[0]) is None:
        return "the shape of its input is not known"
    if first != second or len(first) < 2:
        return "its inputs are not of one shape"
    return None


def skip_norm(batch: Batch) -> None:
    """SkipLayerNormalization and its kin on rows of all lanes; what differs by lane stands around it."""
    shape = batch.shape(0)
    rank = len(shape)
    bulk, layout = Bulk(batch.size, shape), flat(rank)
    x, skip = (apiece(batch, k, layout) for k in (0, 1))
    last = 4 if batch.unit.kind == "SkipLayerNormalization" else 3
    shift = 3 if last == 4 else None
    bias = ""
    if has(batch, last):
        common = one(batch, last)
        if common is None:
            x = apply(batch, "Add", x, _rows(batch, last, rank), layout, bulk)
        bias = common or ""
    scale, scales = batch.consts(2)[0], _rows(batch, 2, rank)
    equal = len(batch.consts(2)) == 1
    shifts = [] if shift is None or not has(batch, shift) else _rows(batch, shift, rank)
    inside = equal and (shift is None or not shifts or len(batch.consts(shift)) == 1)
    gamma = batch.emit.const(scale if inside else ones_like(scale), f"{batch.hint}_scale")
    names = [x, skip, gamma]
    if shift is not None:
        names.append((one(batch, shift) or "") if inside and shifts else "")
    names.append(bias)
    while not names[-1]:
        names.pop()
    outputs = ["", "", ""]
    outputs[0] = batch.emit.name(f"{batch.hint}_out")
    if len(batch.unit.outputs) > 3 and batch.unit.outputs[3]:
        outputs.append(batch.emit.name(f"{batch.hint}_sum"))
        batch.put(layout, outputs[3], 3)
    else:
        outputs = outputs[:1]
    kind, attributes = batch.unit.kind, batch.attributes()
    out = batch.emit.node(kind, names, batch.hint, outputs, DOMAIN, **attributes)[0]
    if not inside:
        out = apply(batch, "Mul", out, scales, layout, bulk)
        if shifts:
            out = apply(batch, "Add", out, shifts, layout, bulk)
    batch.put(layout, out)


def _rows(batch: Batch, k: int, rank: int) -> list[Const]:
    """Constant rows of the lanes, in the rank of what they meet."""
    return [c.reshape((1,) * (rank - c.rank) + c.shape) for c in own_consts(batch, k)]


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
        raise Refused("S302", "products of packed weights have no stacked form, only one input for all")
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
    **dict.fromkeys(
        ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), Rule(skip_norm, check_skip)
    ),
    "MatMulNBits": Rule(four_bits, check_four_bits, heavy=True),
}
"""Rules of com.microsoft."""

NORMS: Table = {"SimplifiedLayerNormalization": Rule(layer_norm, check_layer_norm)}
"""A norm that ONNX Runtime keeps in ONNX's own domain."""
