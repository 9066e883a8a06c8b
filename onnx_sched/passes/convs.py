"""Convolutions and what lives in their layout: channels of all lanes side by side, [N, G*C, ...].

Conv(x, W_i, b_i)    ==>  Conv(x, Concat(W), Concat(b))                       one input for all
Conv(x, W_i, b_i)    ==>  Conv(x, Interleave(W), Interleave(b))               the same, depthwise
Conv(x_i, W_i, b_i)  ==>  Conv(Concat(x), Concat(W), Concat(b), group=G*g)    one input each
Pool(x_i)            ==>  Pool(Concat(x))
"""

from __future__ import annotations

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Const, concat, stack
from onnx_sched.passes.axes import known
from onnx_sched.passes.products import biases_like
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.plan import Refused
from onnx_sched.stacking import LANE, packed


def check_conv(unit: Unit, circuit: Circuit) -> str | None:
    """Constant weights and known channels."""
    if not isinstance(unit.operands[1], Const):
        return "its weight is not constant"
    if len(unit.operands) > 2 and isinstance(unit.operands[2], str):
        return "its bias is not constant"
    reason = known(unit, circuit)
    shape = circuit.shape(unit.operands[0])
    if reason is None and shape is not None and not isinstance(shape[1], int):
        return "its number of channels is not known"
    return reason


def conv(batch: Batch) -> None:
    """One convolution; lanes with inputs of their own become groups."""
    rank = len(batch.shape(0))
    group = batch.unit.integer("group", 1)
    single, lanes = batch.single(0), batch.lanes(0)
    weights = [w for w in batch.operands(1) if isinstance(w, Const)]
    if single is not None and group != 1:
        interleaved(batch, single, weights)
        return
    if single is not None:
        x, groups = batch.store.value(single), 1
    else:
        assert lanes is not None
        x, groups = batch.store.get(lanes, packed(rank, 1)), batch.size * group
    names = [x, batch.emit.const(concat(weights, 0), f"{batch.hint}_weight")]
    rows = biases_like(batch, 2, [w.shape[:1] for w in weights])
    if rows:
        names.append(batch.emit.const(concat(rows, 0), f"{batch.hint}_bias"))
    attributes = batch.attributes()
    if groups != group or "group" in attributes:
        attributes["group"] = groups
    batch.put_side_by_side(1, batch.make("Conv", names, **attributes)[0])


def interleaved(batch: Batch, single: str, weights: list[Const]) -> None:
    """Depthwise convolutions of one value: each channel's results of all lanes stand together."""
    channels, rank = batch.unit.integer("group", 1), len(batch.shape(0))
    if any(w.shape[0] != channels for w in weights):
        raise Refused("S302", "grouped convolutions on one input would have to be interleaved")
    names = [batch.store.value(single), batch.emit.const(_woven(weights), f"{batch.hint}_weight")]
    rows = biases_like(batch, 2, [w.shape[:1] for w in weights])
    if rows:
        names.append(batch.emit.const(_woven(rows), f"{batch.hint}_bias"))
    layout = tuple((1, LANE) if a == 1 else (a,) for a in range(rank))
    batch.put(layout, batch.make("Conv", names, **batch.attributes())[0])


def _woven(parts: list[Const]) -> Const:
    """The first row of every part, then the second of every part, and so on."""
    whole = stack(parts)
    rows, lanes, *rest = (whole.shape[1], whole.shape[0], *whole.shape[2:])
    turned = whole.transpose((1, 0, *range(2, whole.rank)))
    return turned.reshape((rows * lanes, *rest))


def check_pool(unit: Unit, circuit: Circuit) -> str | None:
    """Only the pooled values, not where they were."""
    return "the indices are read" if any(unit.outputs[1:]) else known(unit, circuit)


def pool(batch: Batch) -> None:
    """Pooling works channel by channel."""
    lanes = batch.lanes(0)
    if lanes is None:
        raise Refused("S102", f"all lanes of {batch.circuit.label(batch.unit)} read one value")
    layout = packed(len(batch.shape(0)), 1)
    out = batch.make(batch.unit.kind, [batch.store.get(lanes, layout)], **batch.attributes())
    batch.put(layout, out[0])


POOLS = "AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool".split()

RULES: Table = {
    "Conv": Rule(conv, check_conv, optional=(2,), heavy=True),
    **dict.fromkeys(POOLS, Rule(pool, check_pool)),
}
