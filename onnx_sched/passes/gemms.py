"""Gemm with a weight that is computed, from quantised numbers for one; constant weights are linear maps.

    Gemm(x_i, W_i, c_i)  ==>  alpha * MatMul(Stack(x), Stack(W)) + beta * Stack(c)

A transposed factor is brought in the other order of its axes.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import from_array
from onnx_sched.passes.operands import factor, has
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.plan import Refused
from onnx_sched.stacking import LANE, Layout, lead

FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16})

TURNED: Layout = ((LANE,), (1,), (0,))
"""Lanes in front of matrices that are transposed."""


def check(unit: Unit, circuit: Circuit) -> str | None:
    """Matrices of floating point and known shapes."""
    if any(circuit.shape(o) is None for o in unit.operands if o is not None):
        return "the shape of an operand is not known"
    if circuit.values.shape(unit.outputs[0]) is None:
        return "the shape of the result is not known"
    if circuit.elem_type(unit.operands[0]) not in FLOATS:
        return "its numbers are not of a floating-point type that every runtime multiplies"
    return None


def gemm(batch: Batch) -> None:
    """A batched product, then what is left of alpha, beta and C."""
    layout, bulk = lead(2), batch.out_bulk()
    turned = [bool(batch.unit.attribute(name, 0)) for name in ("transA", "transB")]
    names = [factor(batch, k, TURNED if turned[k] else layout) for k in (0, 1)]
    out = _times(batch, batch.make("MatMul", names)[0], "alpha")
    if has(batch, 2) and batch.unit.attribute("beta", 1.0) != 0:
        added = batch.operand(2, layout, bulk)
        if added is None:
            raise Refused("S201", "C would have to be widened to a size known only at run time")
        out = batch.make("Add", [out, _times(batch, added, "beta")])[0]
    batch.put(layout, out)


def _times(batch: Batch, name: str, attribute: str) -> str:
    """A value times a factor of the Gemm, unless that is 1."""
    number = batch.unit.attribute(attribute, 1.0)
    kind = batch.circuit.elem_type(batch.unit.outputs[0])
    if number == 1.0 or kind is None:
        return name
    scalar = from_array(np.array(number, helper.tensor_dtype_to_np_dtype(kind)), kind)
    return batch.make("Mul", [name, batch.emit.const(scalar, f"{batch.hint}_{attribute}")])[0]


RULES: Table = {"Gemm": Rule(gemm, check, heavy=True)}
