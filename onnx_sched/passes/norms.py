"""Normalisations: one node on all lanes, what differs by lane applied after it.

    LayerNormalization(x_i, g_i, h_i)   ==>  LayerNormalization(Stack(x), 1) * Stack(g) + Stack(h)
    LayerNormalization(x_i, g_i, h_i)   ==>  the same by two nodes that know channels, `by_channels`
    BatchNormalization(x_i, parameters) ==>  Stack(x) * Stack(a) + Stack(b), or side by side in one node

A scale that broadcasts over the lane axis would be one node less, but runtimes refuse it or get it wrong.
"""

from __future__ import annotations

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Const, concat
from onnx_sched.passes.axes import home, known, wrap
from onnx_sched.passes.fold import ones_like
from onnx_sched.passes.norm_forms import apply, by_channels, on_columns
from onnx_sched.passes.normalise import affine
from onnx_sched.passes.products import biases_like
from onnx_sched.passes.rule import Batch, Rule, Table, laid_const
from onnx_sched.plan import Refused
from onnx_sched.stacking import lead, packed


def check_layer_norm(unit: Unit, circuit: Circuit) -> str | None:
    """Scale and bias constant, no statistics read, and the sizes they cover known."""
    if any(unit.outputs[1:]):
        return "its mean or deviation is read"
    if not all(isinstance(o, Const) or o is None for o in unit.operands[1:]):
        return "its scale or bias is computed"
    reason = known(unit, circuit)
    if reason is None:
        shape = circuit.shape(unit.operands[0])
        assert shape is not None
        tail = shape[wrap(unit.integer("axis", -1), len(shape)) :]
        scale = unit.operands[1]
        assert isinstance(scale, Const)
        if scale.shape != tail:
            return "its scale broadcasts"
    return reason


def layer_norm(batch: Batch) -> None:
    """One LayerNormalization (or RMSNormalization) on all lanes, or averages that do the same."""
    if batch.group.form == "conv_t":
        on_columns(batch)
        return
    if batch.group.form == "instance_norm":
        by_channels(batch)
        return
    lanes = batch.lanes(0)
    if lanes is None:
        raise Refused("S102", f"all lanes of {batch.circuit.label(batch.unit)} read one value")
    shape = batch.shape(0)
    rank = len(shape)
    written = batch.unit.integer("axis", -1)
    bulk = batch.bulk(shape)
    name, layout = home(batch, range(wrap(written, rank), rank))
    tail = tuple((a,) for a in range(wrap(written, rank), rank))
    scales = batch.consts(1)
    fits = len(scales) == 1 or laid_const(scales, layout, bulk) is not None
    if layout[-len(tail) :] != tail or not fits:
        layout = lead(rank)
        name = batch.store.get(lanes, layout)
    axis = wrap(written, rank) - rank
    shifts = biases_like(batch, 2, [scales[0].shape] * batch.size)
    shifts = shifts[:1] if len({c.key for c in shifts}) == 1 else shifts
    if len(scales) == 1 and len(shifts) <= 1:
        names = [batch.emit.const(c, f"{batch.hint}_const") for c in (scales[0], *shifts)]
        out = batch.make(batch.unit.kind, [name, *names], **batch.attributes(axis=axis))[0]
    else:
        plain, same = ones_like(scales[0]), f"{batch.hint}_ones"
        out = batch.make(
            batch.unit.kind, [name, batch.emit.const(plain, same)], **batch.attributes(axis=axis)
        )[0]
        out = apply(batch, "Mul", out, scales, layout, bulk)
        if shifts:
            out = apply(batch, "Add", out, shifts, layout, bulk)
    batch.put(layout, out)


def check_batch_norm(unit: Unit, circuit: Circuit) -> str | None:
    """Inference mode with constant parameters."""
    if any(unit.outputs[1:]) or unit.attribute("training_mode", 0):
        return "it is in training mode"
    if not all(isinstance(o, Const) for o in unit.operands[1:5]):
        return "its parameters are computed"
    if circuit.graph.opset < 9 and unit.attribute("spatial", 1) == 0:
        return "its parameters differ by place"
    return known(unit, circuit)


def batch_norm(batch: Batch) -> None:
    """Side by side where channels lie so, else one scale and one shift."""
    lanes = batch.lanes(0)
    if lanes is None:
        raise Refused("S102", f"all lanes of {batch.circuit.label(batch.unit)} read one value")
    shape = batch.shape(0)
    rank = len(shape)
    bulk = batch.bulk(shape)
    if rank > 2 and packed(rank, 1) in batch.store.placed(lanes):
        names = [batch.store.get(lanes, packed(rank, 1))]
        for k in range(1, 5):
            parts = [o for o in batch.operands(k) if isinstance(o, Const)]
            names.append(batch.emit.const(concat(parts, 0), f"{batch.hint}_const{k}"))
        out = batch.make("BatchNormalization", names, **batch.attributes())[0]
        batch.put(packed(rank, 1), out)
        return
    epsilon = batch.unit.attribute("epsilon", 1e-5)
    assert isinstance(epsilon, float)
    column = (-1,) + (1,) * (rank - 2)
    scales, shifts = [], []
    for unit in batch.units:
        a, b = affine([o for o in unit.operands[1:5] if isinstance(o, Const)], epsilon)
        wide = (a.shape[0], *column[1:])
        scales.append(a.reshape(wide))
        shifts.append(b.reshape(wide))
    out = batch.store.get(lanes, lead(rank))
    out = apply(batch, "Mul", out, scales, lead(rank), bulk)
    out = apply(batch, "Add", out, shifts, lead(rank), bulk)
    batch.put(lead(rank), out)


RULES: Table = {
    "LayerNormalization": Rule(layer_norm, check_layer_norm, optional=(2,)),
    "RMSNormalization": Rule(layer_norm, check_layer_norm, optional=(2,)),
    "BatchNormalization": Rule(batch_norm, check_batch_norm),
}
