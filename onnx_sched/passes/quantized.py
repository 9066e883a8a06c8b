"""Quantisation: what one scale and one zero point cover stays covered by them.

    QuantizeLinear(x_i, s)             ==>  QuantizeLinear(Stack(x), s)
    the same around a Conv by floats   ==>  QuantizeLinear(Stack(x), [s, s, ...], axis of the lanes)
    QuantizeLinear(x_i, s_i)           ==>  QuantizeLinear(Stack(x), [s_0, s_1, ...], axis of the lanes)
    QuantizeLinear(x_i, s_i[C], axis)  ==>  QuantizeLinear(Concat(x, axis), Concat(s), axis)
    blocks of their own scales         ==>  the same, scales stacked as the numbers are

The same for DequantizeLinear, of lanes or of weights: weights of eight bits are stacked as they are.
"""

from __future__ import annotations

from onnx import TensorProto

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Const, concat
from onnx_sched.passes.axes import place, signed, wrap
from onnx_sched.passes.operands import apart, apiece, choose, has, own_consts
from onnx_sched.passes.quantized_fusions import at_rounded_weights
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.plan import Refused
from onnx_sched.stacking import LANE, Layout, lead, packed

NARROW = frozenset(
    {
        TensorProto.INT8,
        TensorProto.UINT8,
        TensorProto.INT16,
        TensorProto.UINT16,
        TensorProto.INT32,
    }
)
"""Quantised element types that can be stacked: whole bytes, known to every runtime."""

ROUNDS = "ONNX Runtime would round the weights of all lanes by one scale"


def check(unit: Unit, circuit: Circuit) -> str | None:
    """Scale and zero point constant, whole bytes, shapes known."""
    narrow = unit.operands[0] if unit.kind == "DequantizeLinear" else unit.outputs[0]
    if circuit.elem_type(narrow) not in NARROW:
        return "its numbers have no whole bytes, or are no integers"
    if not all(isinstance(o, Const) or o is None for o in unit.operands[1:]):
        return "its scale or zero point is computed"
    if circuit.shape(unit.operands[0]) is None or circuit.values.shape(unit.outputs[0]) is None:
        return "the shape of its input is not known"
    return None


def quantise(batch: Batch) -> None:
    """QuantizeLinear or DequantizeLinear, by what the scales cover."""
    scale = batch.consts(1)[0]
    equal = len(batch.consts(1)) == 1 and (not has(batch, 2) or len(batch.consts(2)) == 1)
    if scale.rank > 1 or batch.unit.integer("block_size"):
        _blocks(batch)
    elif scale.shape in ((), (1,)):
        _tensors(batch, equal)
    else:
        _columns(batch, equal)


def _tensors(batch: Batch, equal: bool) -> None:
    """One scale a lane: the lanes are the axis that scales go along."""
    rank = len(batch.shape(0))
    if equal and batch.emit.opset >= 13 and at_rounded_weights(batch.unit, batch.circuit):
        try:
            _by_lane(batch, rank)
        except Refused as refused:
            reason = f"its lanes need scales of their own: {ROUNDS}; {refused.reason}"
            raise Refused(refused.code, reason) from None
        return
    if equal:
        layout = choose(batch, [0], lambda la: True, lead(rank))
        parameters = [batch.emit.const(batch.consts(k)[0], _hint(batch, k)) for k in _given(batch)]
        _make(batch, layout, parameters, None)
        return
    if batch.emit.opset < 13:
        raise Refused("S302", f"{batch.unit.kind} has one scale for all before opset 13")
    _by_lane(batch, rank)


def _by_lane(batch: Batch, rank: int) -> None:
    """A scale for each lane, along the axis of lanes."""
    layout = choose(batch, [0], lambda la: (LANE,) in la, lead(rank))
    _make(batch, layout, [_beside(batch, k) for k in _given(batch)], layout.index((LANE,)))


def _columns(batch: Batch, equal: bool) -> None:
    """Scales along an axis of the lanes: side by side along it, unless they are the same."""
    rank = len(batch.shape(0))
    written = batch.unit.integer("axis", 1)
    axis = wrap(written, rank)
    if equal:
        layout = choose(batch, [0], lambda la: place(la, axis) is not None, lead(rank))
        parameters = [batch.emit.const(batch.consts(k)[0], _hint(batch, k)) for k in _given(batch)]
        position = place(layout, axis)
        assert position is not None
        _make(batch, layout, parameters, signed(position, written, layout))
        return
    joint = (LANE, axis)
    layout = choose(batch, [0], lambda la: joint in la, packed(rank, axis))
    parameters = [_beside(batch, k) for k in _given(batch)]
    _make(batch, layout, parameters, signed(layout.index(joint), written, layout))


def _blocks(batch: Batch) -> None:
    """A scale for every few numbers along an axis: scales lie as the numbers do."""
    rank = len(batch.shape(0))
    written = batch.unit.integer("axis", 1)
    layout = choose(batch, [0], lambda la: apart(la, rank), lead(rank))
    position = place(layout, wrap(written, rank))
    assert position is not None
    parameters = [apiece(batch, k, layout) for k in _given(batch)]
    _make(batch, layout, parameters, signed(position, written, layout))


def _given(batch: Batch) -> list[int]:
    """The operands that are scale and zero point."""
    return [1, 2] if has(batch, 2) else [1]


def _hint(batch: Batch, k: int) -> str:
    return f"{batch.hint}_{'scale' if k == 1 else 'zero'}"


def _beside(batch: Batch, k: int) -> str:
    """The vectors, or numbers, of all lanes one after the other."""
    parts = [c if c.rank else c.reshape((1,)) for c in own_consts(batch, k)]
    return batch.emit.const(concat(parts, 0), _hint(batch, k))


def _make(batch: Batch, layout: Layout, parameters: list[str], axis: int | None) -> None:
    attributes = batch.attributes() if axis is None else batch.attributes(axis=axis)
    if axis is None:
        attributes.pop("axis", None)  # of no meaning for a single scale
    out = batch.make(batch.unit.kind, [apiece(batch, 0, layout), *parameters], **attributes)
    batch.put(layout, out[0])


def refuse_dynamic(unit: Unit, circuit: Circuit) -> str:
    """DynamicQuantizeLinear takes the range of all that it is given."""
    return "its range would span all lanes"


def never(batch: Batch) -> None:
    """Nothing passes the check of a rule that only says why not."""
    raise AssertionError(f"{batch.unit.kind} cannot be batched")


RULES: Table = {
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), Rule(quantise, check)),
    "DynamicQuantizeLinear": Rule(never, refuse_dynamic),
}
