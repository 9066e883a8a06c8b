"""Products of quantised numbers.

    MatMulInteger(x_i, W_i, zx, z_i)  ==>  MatMulInteger(Stack(x), Stack(W), zx, Stack(z))
    MatMulInteger(x, W_i, zx, z_i)    ==>  MatMulInteger(x, Concat(W), zx, Concat(z))        one input for all
    QLinearMatMul, ConvInteger, QLinearConv: the same, weights' scales and zero points along their columns

What one node has only one of must be equal: scale and zero point of the inputs, and of the result.
Whole numbers add up to the same sum in any order: results are equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Array, Const, concat, stack
from onnx_sched.passes.axes import known
from onnx_sched.passes.operands import has, in_front, own_consts
from onnx_sched.passes.products import biases_like
from onnx_sched.passes.quantized import NARROW
from onnx_sched.passes.rule import Batch, Check, Rule, Table, laid_const
from onnx_sched.plan import Refused
from onnx_sched.stacking import Bulk, lead, packed


def check_operands(shared: Sequence[int], own: Sequence[int]) -> Check:
    """A check: matrices of whole bytes; what is the weight's own is constant, the rest is, or is one value."""

    def check(unit: Unit, circuit: Circuit) -> str | None:
        weight = shared[-1] if unit.kind == "" else own[0]
        for k in (0, weight):
            shape = circuit.shape(unit.operands[k])
            if shape is None:
                return "the shape of an operand is not known"
            if len(shape) < 2:
                return "an operand is a vector"
            if circuit.elem_type(unit.operands[k]) not in NARROW:
                return "an operand's numbers have no whole bytes"
        return None

    return check
