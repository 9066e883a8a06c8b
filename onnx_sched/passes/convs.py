"""Convolutions and what lives in their layout: channels of all lanes side by side, [N, G*C, ...].

Conv(x, W_i, b_i)    ==>  Conv(x, Concat(W), Concat(b))                       one input for all
Conv(x, W_i, b_i)    ==>  Conv(x, Interleave(W), Interleave(b))               the same, by groups
Conv(x_i, W_i, b_i)  ==>  Conv(Concat(x), Concat(W), Concat(b), group=G*g)    one input each
Pool(x_i)            ==>  Pool(Concat(x))
"""

from __future__ import annotations

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Const, concat, stack
from onnx_sched.dims import is_static
from onnx_sched.passes.axes import known
from onnx_sched.passes.products import biases_like
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.plan import Refused
from onnx_sched.relayout import Reshape, Transpose
from onnx_sched.stacking import LANE, lead, packed


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
    """Convolutions with groups of one value: each group's results of all lanes stand together.

    Where a group has one filter, lanes are left so; else they are sorted apart, which is a copy.
    """
    groups, rank = batch.unit.integer("group", 1), len(batch.shape(0))
    filters = {w.shape[0] for w in weights}
    result = batch.circuit.shape(batch.unit.outputs[0])
    if len(filters) > 1 or result is None:
        raise Refused("S302", "grouped convolutions on one input differ in their filters")
    depthwise = filters == {groups}
    if not depthwise and not is_static(result[2:]):
        raise Refused("S201", "lanes of open sizes cannot be sorted out of the groups")
    names = [
        batch.store.value(single),
        batch.emit.const(_woven(weights, groups), f"{batch.hint}_weight"),
    ]
    rows = biases_like(batch, 2, [w.shape[:1] for w in weights])
    if rows:
        names.append(batch.emit.const(_woven(rows, groups), f"{batch.hint}_bias"))
    out = batch.make("Conv", names, **batch.attributes())[0]
    if depthwise:
        batch.put(tuple((1, LANE) if a == 1 else (a,) for a in range(rank)), out)
        return
    sizes = tuple(d for d in result[2:] if isinstance(d, int))
    each = filters.pop()
    apart = (0, groups, batch.size, each // groups, *sizes)
    turned = (2, 0, 1, *range(3, len(apart)))
    for step in (Reshape(apart), Transpose(turned), Reshape((0, 0, each, *sizes))):
        out = batch.emit.step(out, step, batch.hint)
    batch.put(lead(rank), out)


def _woven(parts: list[Const], groups: int) -> Const:
    """The first group's rows of every part, then the second group's of every part, and so on."""
    whole = stack(parts)
    lanes, rows, *rest = whole.shape
    cut = whole.reshape((lanes, groups, rows // groups, *rest))
    turned = cut.transpose((1, 0, *range(2, cut.rank)))
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
