"""The unit of a single node: its operands by their first names, its attributes spelled out.

What an attribute would be if it were left out is written down, so that nodes are alike however much of it
they spell: defaults, windows, the factors of a Resize, the axes of which a Slice leaves something out.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from onnx_sched.circuit import EMBEDDING, Operand, Unit
from onnx_sched.constants import Const, from_array
from onnx_sched.graph import Graph
from onnx_sched.nodes import attributes, domain_of
from onnx_sched.resizing import SCALES, factors
from onnx_sched.slicing import cuts
from onnx_sched.values import Values

KERNELS = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "QLinearConv": 3}
"""Convolutions, and the operand that shows how large their windows are, if it is constant."""
POOLS = frozenset({"MaxPool", "AveragePool"})
COMMUTATIVE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "Min", "Max", "Sum", "Mean"})


@lru_cache(maxsize=4096)
def _defaults(op_type: str, version: int, domain: str) -> tuple[tuple[str, Hashable], ...]:
    """Attribute defaults that the op's schema gives."""
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return ()
    found = []
    for name, attribute in schema.attributes.items():
        proto = attribute.default_value
        if proto.type:
            value = helper.get_attribute_value(proto)
            found.append((name, tuple(value) if isinstance(value, list) else value))
    return tuple(found)


def plain(graph: Graph, values: Values, k: int) -> Unit:
    """The unit of a single node."""
    node = values.op(graph.nodes[k])
    domain = domain_of(node)
    operands = [operand_of(values, name) for name in node.input]
    if node.op_type in COMMUTATIVE and domain == "" and len(operands) == 2:
        operands.sort(key=lambda o: isinstance(o, Const))
    kind = node.op_type
    if kind == "Gather" and domain == "" and _is_embedding(node, operands):
        kind = EMBEDDING
    if domain == "" and kind in ("Conv", "LayerNormalization"):
        operands += [None] * (3 - len(operands))
    version = graph.opsets.get(domain, 1)
    named = {**dict(_defaults(node.op_type, version, domain)), **attributes(node)}
    if domain == "":
        named = {**_windows(kind, operands, named), **named}
    if domain == "" and kind == "Resize":
        by = _factors(node, values, version)
        if by is not None:
            operands, named[SCALES] = operands[:1], by
    if domain == "" and kind == "Slice":
        operands, changed = _narrowed(node, operands, values, version)
        named |= changed
    return Unit(
        -1,
        kind,
        domain,
        (k,),
        tuple(operands),
        tuple(node.output),
        tuple(sorted(named.items())),
    )


def _windows(
    kind: str, operands: Sequence[Operand], given: Mapping[str, Hashable]
) -> dict[str, Hashable]:
    """What a convolution or a pool takes for the attributes of its window that it does not spell out."""
    if kind not in KERNELS and kind not in POOLS:
        return {}
    weight = operands[KERNELS[kind]] if kind in KERNELS else None
    kernel = weight.shape[2:] if isinstance(weight, Const) else given.get("kernel_shape")
    if not isinstance(kernel, tuple):
        return {}
    ones = (1,) * len(kernel)
    found: dict[str, Hashable] = {"kernel_shape": kernel, "strides": ones, "dilations": ones}
    if given.get("auto_pad", b"NOTSET") == b"NOTSET":
        found["pads"] = (0,) * (2 * len(kernel))
    return found


def _narrowed(
    node: NodeProto, operands: list[Operand], values: Values, opset: int
) -> tuple[list[Operand], dict[str, Hashable]]:
    """A Slice by the axes of which it leaves something out, if it names others, too; its bounds as int64."""
    names = [values.first(n) for n in node.input]
    shape = values.shape(names[0])
    ints = [values.ints.get(n, None) if n else () for n in names[1:]]
    found = cuts(shape, ints, attributes(node), opset) if shape is not None else None
    if not found:
        return operands, {}
    rows = {"starts": 1, "ends": 2, "axes": 0, "steps": 3}
    if opset < 10:
        return operands, {n: tuple(c[k] for c in found) for n, k in rows.items() if n != "steps"}
    bounds = [o for o in operands[1:] if isinstance(o, Const)]
    whole = len(bounds[0].shape) == 1 and bounds[0].shape[0] == len(found)
    if whole and all(o.elem_type == TensorProto.INT64 for o in bounds):
        return operands, {}
    arrays = [np.array([c[k] for c in found], np.int64) for k in rows.values()]
    made = [from_array(a, TensorProto.INT64) for a in arrays]
    return [operands[0], *made], {}


def _factors(node: NodeProto, values: Values, opset: int) -> tuple[float, ...] | None:
    """By how much a Resize resizes each axis, if that is known."""
    names = [values.first(n) for n in (*node.input, "", "", "")]
    shape = values.shape(names[0])
    if shape is None:
        return None
    return factors(node, shape, values.constants.get(names[2]), values.ints.get(names[3]), opset)


def _is_embedding(node: NodeProto, operands: Sequence[Operand]) -> bool:
    """Whether a Gather looks up rows of a constant table."""
    table, index = operands
    flat = all(a.name != "axis" or a.i in (0, -2) for a in node.attribute)
    return flat and isinstance(table, Const) and table.rank == 2 and isinstance(index, str)


def operand_of(values: Values, name: str) -> Operand:
    """What a node reads by a name: a constant, a value by its first name, or an empty slot."""
    if not name:
        return None
    return values.constants.get(name) or values.first(name)
