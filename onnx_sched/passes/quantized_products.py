"""Products of quantised numbers.

    MatMulInteger(x_i, W_i, zx, z_i)  ==>  MatMulInteger(Stack(x), Stack(W), zx, Stack(z))
    MatMulInteger(x, W_i, zx, z_i)    ==>  MatMulInteger(x, Concat(W), zx, Concat(z))        one input for all
    QLinearMatMul, ConvInteger, QLinearConv: the same, the weights' own scales and zero points with them

What one node has only one of must be equal: scale and zero point of its inputs, and of its result.
Sums of whole numbers do not depend on their order: results are equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Array, Const, concat
from onnx_sched.passes.operands import (
    has,
    multiplied,
    one,
    own_consts,
    under,
)
from onnx_sched.passes.products import biases_like, is_matrix, stacked_rows
from onnx_sched.passes.rule import Batch, Rule, Table, laid_const
from onnx_sched.plan import Refused
from onnx_sched.stacking import Bulk, Layout, lead, packed

BYTES = frozenset({TensorProto.INT8, TensorProto.UINT8})


@dataclass(frozen=True, slots=True)
class Places:
    """Where an op has its operands.

    Attributes:
        weight: The second factor.
        own: Scale and zero point of the weight.
        rest: Scales and zero points that one node has only one of.
    """

    weight: int
    own: tuple[int, ...]
    rest: tuple[int, ...]


SHORT = Places(1, (3,), (2,))
LONG = Places(3, (4, 5), (1, 2, 6, 7))
PLACES: Mapping[str, Places] = {
    "MatMulInteger": SHORT,
    "ConvInteger": SHORT,
    "QLinearMatMul": LONG,
    "QLinearConv": LONG,
}


def check_matmul(unit: Unit, circuit: Circuit) -> str | None:
    """Matrices of bytes; what belongs to the weight is constant."""
    places = PLACES[unit.kind]
    for k in (0, places.weight):
        shape = circuit.shape(unit.operands[k])
        if shape is None:
            return "the shape of an operand is not known"
        if len(shape) < 2:
            return "an operand is a vector"
        if circuit.elem_type(unit.operands[k]) not in BYTES:
            return "an operand's numbers are no bytes"
    if circuit.values.shape(unit.outputs[0]) is None:
        return "the shape of the result is not known"
    own = [unit.operands[k] for k in places.own if k < len(unit.operands)]
    if any(isinstance(o, str) for o in own):
        return "its weight's scale or zero point is computed"
    return None


def matmul(batch: Batch) -> None:
    """Side by side where all lanes read one value, else stacked."""
    places = PLACES[batch.unit.kind]
    names = _shared(batch, places)
    weight = batch.unit.operands[places.weight]
    rank = len(batch.out_bulk().shape)
    single = batch.single(0)
    if single is not None and isinstance(weight, Const) and weight.rank == 2:
        names[0] = batch.store.value(single)
        joint = concat(own_consts(batch, places.weight), 1)
        names[places.weight] = batch.emit.const(joint, f"{batch.hint}_weight")
        for k in places.own:
            if has(batch, k):
                names[k] = _equal(batch, k) or _columns(batch, k, weight.shape[1])
        batch.put_side_by_side(rank - 1, batch.make(batch.unit.kind, names)[0])
        return
    matrices = is_matrix(batch.shape(places.weight))
    layout = stacked_rows(batch, batch.outputs()) if matrices else lead(rank)
    names[0] = multiplied(batch, 0, layout)
    given = [k for k in places.own if has(batch, k)]
    equal = {k: _equal(batch, k) for k in given}
    if all(equal.values()):
        names[places.weight] = multiplied(batch, places.weight, layout)
    else:
        names[places.weight] = _apiece(batch, places.weight, layout)
    for k in given:
        names[k] = equal[k] or _planes(batch, k, places.weight, layout)
    batch.put(layout, batch.make(batch.unit.kind, names)[0])


def _shared(batch: Batch, places: Places) -> list[str]:
    """Room for the operands, those filled in that a node has only one of."""
    names = [""] * batch.slots
    for k in places.rest:
        if has(batch, k):
            name = one(batch, k)
            if name is None:
                raise Refused(
                    "S302",
                    "scale or zero point of inputs or results differ, and a node has one of each",
                )
            names[k] = name
    return names


def _equal(batch: Batch, k: int) -> str | None:
    """A scale or zero point that is one number for all lanes."""
    parts = batch.consts(k)
    if len(parts) > 1 or parts[0].shape not in ((), (1,)):
        return None
    return batch.emit.const(parts[0], f"{batch.hint}_const{k}")


def _columns(batch: Batch, k: int, width: int) -> str:
    """A number for each column of each lane's weight, one lane after the other."""
    joint = concat([_wide(c, (width,)) for c in own_consts(batch, k)], 0)
    return batch.emit.const(joint, f"{batch.hint}_const{k}")


def _wide(const: Const, shape: tuple[int, ...]) -> Const:
    """A number, or a row of them, repeated to a shape."""

    def change(array: Array) -> Array:
        flat = array.reshape(()) if array.size == 1 else array
        return np.broadcast_to(flat, shape)

    return const.map(("wide", shape), shape, change)


def _apiece(batch: Batch, k: int, layout: Layout) -> str:
    """The weights, one copy a lane even where they are equal: numbers of their own go with them."""
    weight = batch.unit.operands[k]
    if not isinstance(weight, Const):
        return multiplied(batch, k, layout)
    bulk = Bulk(batch.size, weight.shape)
    made = laid_const(own_consts(batch, k), under(batch, k, layout), bulk)
    assert made is not None
    return batch.emit.const(made, f"{batch.hint}_weight")


def _planes(batch: Batch, k: int, weight: int, layout: Layout) -> str:
    """A number for each column of each matrix, lying as the weights do."""
    shape = batch.shape(weight)
    if batch.single(weight) is not None or not all(isinstance(d, int) for d in shape[:-2]):
        raise Refused("S302", "the scales of computed weights differ by lane")
    if not isinstance(shape[-1], int):
        raise Refused("S201", "how many columns a weight has is known only at run time")
    outer = tuple(d for d in shape[:-2] if isinstance(d, int))
    own = (*outer, 1, shape[-1])
    parts = [_wide(c, own) for c in own_consts(batch, k)]
    made = laid_const(parts, under(batch, weight, layout), Bulk(batch.size, own))
    assert made is not None
    return batch.emit.const(made, f"{batch.hint}_const{k}")


def check_conv(unit: Unit, circuit: Circuit) -> str | None:
    """Constant weights, zero points of the weights that are one number, known channels."""
    places = PLACES[unit.kind]
    weight, shape = unit.operands[places.weight], circuit.shape(unit.operands[0])
    if not isinstance(weight, Const):
        return "its weight is not constant"
    if not isinstance(unit.operands[0], str) or shape is None:
        return "the shape of its input is not known"
    if circuit.values.shape(unit.outputs[0]) is None:
        return "the shape of its result is not known"
    if not isinstance(shape[1], int):
        return "its number of channels is not known"
    own = [unit.operands[k] for k in (*places.own, 8) if k < len(unit.operands)]
    if any(isinstance(o, str) for o in own):
        return "its weight's scale or zero point, or its bias, is computed"
    zero = unit.operands[places.own[-1]] if len(unit.operands) > places.own[-1] else None
    if isinstance(zero, Const) and zero.shape not in ((), (1,)):
        return "its channels have zero points of their own"
    return None


def conv(batch: Batch) -> None:
    """One convolution; lanes with inputs of their own become groups."""
    places = PLACES[batch.unit.kind]
    names = _shared(batch, places)
    group = batch.unit.integer("group", 1)
    single, rank = batch.single(0), len(batch.shape(0))
    if single is not None and group != 1:
        raise Refused("S302", "grouped convolutions on one input would have to be interleaved")
    if single is not None:
        names[0], groups = batch.store.value(single), 1
    else:
        lanes = batch.lanes(0)
        assert lanes is not None
        names[0], groups = batch.store.get(lanes, packed(rank, 1)), batch.size * group
    weights = own_consts(batch, places.weight)
    names[places.weight] = batch.emit.const(concat(weights, 0), f"{batch.hint}_weight")
    *scales, zero = places.own
    for k in scales:
        names[k] = _equal(batch, k) or _columns(batch, k, weights[0].shape[0])
    if has(batch, zero):
        equal = _equal(batch, zero)
        if equal is None:
            raise Refused("S302", "zero points of weights differ, and a node has one")
        names[zero] = equal
    names = names[:8]
    rows = biases_like(batch, 8, [w.shape[:1] for w in weights])
    if rows:
        names.append(batch.emit.const(concat(rows, 0), f"{batch.hint}_bias"))
    attributes = batch.attributes()
    if groups != group or "group" in attributes:
        attributes["group"] = groups
    batch.put_side_by_side(1, batch.make(batch.unit.kind, names, **attributes)[0])


RULES: Table = {
    "MatMulInteger": Rule(matmul, check_matmul, static=(2,), heavy=True),
    "QLinearMatMul": Rule(matmul, check_matmul, static=(1, 2, 6, 7), heavy=True),
    "ConvInteger": Rule(conv, check_conv, static=(2, 3), heavy=True),
    "QLinearConv": Rule(conv, check_conv, static=(1, 2, 5, 6, 7), heavy=True),
}
