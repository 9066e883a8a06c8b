"""Ops of ONNX Runtime's own domain, com.microsoft, and the norms that it keeps beside ONNX's.

    BiasGelu(x_i, b_i)                ==>  BiasGelu(Concat(x), Concat(b)) where lanes lie side by side
                                           Gelu(Stack(x) + Stack(b)) elsewhere; FastGelu likewise
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
from onnx_sched.passes.operands import apiece, choose, has, in_front, one, own_consts
from onnx_sched.passes.products import check_matmul
from onnx_sched.passes.rule import Batch, Rule, Table, laid_const
from onnx_sched.plan import Refused
from onnx_sched.stacking import Bulk, Layout, at, flat, lead, packed, spare_axis, steps

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
    if first != second or len(first) not in (2, 3):
        return "its inputs are not of one shape, or not rows"
    return None


def skip_norm(batch: Batch) -> None:
    """SkipLayerNormalization and its kin on rows of all lanes; what differs by lane stands around it."""
    norm = _SkipNorm(batch)
    x = norm.biased()
    out = norm.normalised(x)
    norm.scaled(out)


class _SkipNorm:
    """One norm in two layouts: `inner` is what runtimes take, in `outer` each lane has its own row."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._bias = 4 if batch.unit.kind == "SkipLayerNormalization" else 3
        self._shift = 3 if self._bias == 4 else None
        shape = batch.shape(0)
        self._rank = rank = len(shape)
        self._bulk = bulk = Bulk(batch.size, shape)
        front = lead(rank)
        default = next(la for la in (flat(rank), packed(rank, 1), front) if _free(bulk, la, front))

        def suits(layout: Layout) -> bool:
            """Two or three axes, the last one normalised, and lanes that can be told apart again."""
            whole = 2 <= len(layout) <= 3 and layout[-1] == (rank - 1,)
            return whole and _free(bulk, layout, front)

        self._inner = choose(batch, [0, 1], suits, default)
        mixed = laid_const(self._rows(2), self._inner, bulk) is None
        self._outer = at(rank, 1) if mixed else self._inner

    def _rows(self, k: int) -> list[Const]:
        """Constant rows of the lanes, in the rank of what they meet."""
        raised = (1,) * (self._rank - 1)
        return [c.reshape(raised + c.shape) for c in own_consts(self._batch, k)]

    def _one(self, k: int | None) -> str:
        """A row that all lanes share; "" if there is none, or each has its own."""
        if k is None or not has(self._batch, k):
            return ""
        return one(self._batch, k) or ""

    def _apply(self, op_type: str, name: str, k: int) -> str:
        return apply(self._batch, op_type, name, self._rows(k), self._outer, self._bulk)

    def _moved(self, name: str, source: Layout, target: Layout) -> str:
        route = steps(self._bulk, source, target)
        assert route is not None
        for step in route:
            name = self._batch.emit.step(name, step, self._batch.hint)
        return name

    def biased(self) -> str:
        """The first input with the biases that differ added."""
        batch, k = self._batch, self._bias
        if not has(batch, k) or self._one(k):
            return apiece(batch, 0, self._inner)
        x = self._apply("Add", apiece(batch, 0, self._outer), k)
        return self._moved(x, self._outer, self._inner)

    def _shared(self) -> bool:
        """Whether scale and shift are the same for all lanes."""
        batch, k = self._batch, self._shift
        equal = len(batch.consts(2)) == 1
        return equal and (k is None or not has(batch, k) or len(batch.consts(k)) == 1)

    def normalised(self, x: str) -> str:
        """The norm, with the parameters that are the same for all lanes."""
        batch = self._batch
        scale = batch.consts(2)[0] if self._shared() else ones_like(batch.consts(2)[0])
        names = [x, apiece(batch, 1, self._inner), batch.emit.const(scale, f"{batch.hint}_scale")]
        if self._shift is not None:
            names.append(self._one(self._shift) if self._shared() else "")
        names.append(self._one(self._bias))
        while not names[-1]:
            names.pop()
        outputs = [batch.emit.name(f"{batch.hint}_out")]
        if len(batch.unit.outputs) > 3 and batch.unit.outputs[3]:
            outputs += ["", "", batch.emit.name(f"{batch.hint}_sum")]
            batch.put(self._inner, outputs[3], 3)
        kind, attributes = batch.unit.kind, batch.attributes()
        return batch.emit.node(kind, names, batch.hint, outputs, DOMAIN, **attributes)[0]

    def scaled(self, out: str) -> None:
        """Scales and shifts that differ."""
        batch = self._batch
        if self._shared():
            batch.put(self._inner, out)
            return
        out = self._apply("Mul", self._moved(out, self._inner, self._outer), 2)
        if self._shift is not None and has(batch, self._shift):
            out = self._apply("Add", out, self._shift)
        batch.put(self._outer, out)


def _free(bulk: Bulk, layout: Layout, target: Layout) -> bool:
    """Whether lanes in a layout can be told apart again."""
    return spare_axis(layout) is None and steps(bulk, layout, target) is not None


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
    **dict.fromkeys(
        ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), Rule(skip_norm, check_skip)
    ),
    "MatMulNBits": Rule(four_bits, check_four_bits, heavy=True),
}
"""Rules of com.microsoft."""

NORMS: Table = {"SimplifiedLayerNormalization": Rule(layer_norm, check_layer_norm)}
"""A norm that ONNX Runtime keeps in ONNX's own domain."""
