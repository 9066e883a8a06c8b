"""What type and shape a node's outputs have, node by node.

ONNX's own inference answers most questions.  Two things are added.  Sizes that it leaves open get a
symbol by congruence: equal ops on equal shapes have equal output shapes, whatever they are, and that
is all that batching needs to know.  And shape arithmetic (`Shape`, `Gather`, `Concat`, ... of sizes)
is followed with symbols, so that a Reshape to a computed target keeps its sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
from onnx import (
    AttributeProto,
    NodeProto,
    TensorProto,
    TypeProto,
    helper,
    numpy_helper,
    shape_inference,
)

from onnx_sched.constants import Const
from onnx_sched.contrib_types import TABLE, widened
from onnx_sched.dims import Dim, Shape, own, product
from onnx_sched.nodes import attributes, domain_of, subgraphs
from onnx_sched.resizing import factors, resized
from onnx_sched.sizes import POOLS, SIZED_BY, cut_off, evenly, expanded, overhangs, reshaped
from onnx_sched.slicing import cuts, sliced


@dataclass(frozen=True, slots=True)
class ValueType:
    """Element type (ONNX's number) and shape of a tensor; shape None where the rank is unknown."""

    elem_type: int
    shape: Shape | None

    @property
    def rank(self) -> int | None:
        """Number of axes, if known."""
        return None if self.shape is None else len(self.shape)


def from_proto(
    proto: TypeProto, unnamed: Callable[[int], str], spell: Callable[[str], str] = str
) -> ValueType | None:
    """Read a declared type; None unless it is a dense tensor.

    Args:
        proto: The declaration.
        unnamed: Names the size of an axis that has no name, by the axis.
        spell: Turns a named size into a symbol; names of our own are symbols already.
    """
    if proto.WhichOneof("value") != "tensor_type":
        return None
    tensor = proto.tensor_type
    if not tensor.HasField("shape"):
        return ValueType(tensor.elem_type, None)
    dims: list[Dim] = []
    for axis, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            dims.append(dim.dim_value)
        elif dim.dim_param:
            dims.append(spell(dim.dim_param))
        else:
            dims.append(unnamed(axis))
    return ValueType(tensor.elem_type, tuple(dims))


def to_proto(value: ValueType) -> TypeProto:
    """Write a type for ONNX's inference; a symbol travels as a dim_param."""
    return helper.make_tensor_type_proto(value.elem_type, value.shape)


@dataclass(frozen=True, slots=True)
class Operand:
    """What inference may know about an operand: its type, its numbers, its sizes as a vector."""

    name: str
    type: ValueType | None
    const: Const | None
    ints: tuple[Dim, ...] | None


class Inference:
    """Infers output types of nodes; equal questions are asked once.

    Symbols for open sizes are numbered in the order of asking, so that the same model always gets
    the same names.
    """

    def __init__(self, opsets: Mapping[str, int], ir_version: int, nonempty: bool = False) -> None:
        self._opsets = opsets
        self._nonempty = nonempty
        self._imports = [helper.make_opsetid(d, v) for d, v in opsets.items()]
        self._ir_version = ir_version
        self._memo: dict[Hashable, tuple[ValueType | None, ...]] = {}

    def outputs(
        self, node: NodeProto, operands: Sequence[Operand | None]
    ) -> tuple[ValueType | None, ...]:
        """Types of a node's outputs, None where nothing is known."""
        known = self._key(node, operands)
        if known not in self._memo:
            self._memo[known] = self._infer(node, operands, f"{node.op_type}.{len(self._memo)}")
        return self._memo[known]

    def _key(self, node: NodeProto, operands: Sequence[Operand | None]) -> Hashable:
        domain = domain_of(node)
        sized_by = SIZED_BY.get(node.op_type) if domain in ("", "com.microsoft") else None
        parts: list[Hashable] = [domain, node.op_type, len(node.output)]
        parts += sorted(a.SerializeToString(deterministic=True) for a in node.attribute)
        for k, operand in enumerate(operands):
            if operand is None:
                parts.append(None)
                continue
            parts.append(operand.type if operand.type else ("?", operand.name))
            if sized_by is None:
                parts.append(operand.name)  # sizes may follow from data: no congruence
            elif k in sized_by:
                const = operand.const
                parts.append(operand.ints or (const.key if const else operand.name))
        return tuple(parts)

    def _infer(
        self, node: NodeProto, operands: Sequence[Operand | None], tag: str
    ) -> tuple[ValueType | None, ...]:
        domain = domain_of(node)
        if (domain, node.op_type) in TABLE:
            return _from_table(domain, node, operands)
        if next(subgraphs(node), None) is not None:  # onnx 1.17 dies of such a node on its own
            return (None,) * len(node.output)
        try:
            schema = onnx.defs.get_schema(node.op_type, self._opsets.get(domain, 1), domain)
        except onnx.defs.SchemaError:
            return (None,) * len(node.output)
        types: dict[str, TypeProto] = {}
        data: dict[str, TensorProto] = {}
        for operand in operands:
            if operand is None or operand.type is None:
                continue
            types[operand.name] = to_proto(operand.type)
            const = operand.const
            if const is not None and const.nbytes <= 4096 and const.dtype != object:
                data[operand.name] = numpy_helper.from_array(np.asarray(const.load()), operand.name)
        if len(types) < len({o.name for o in operands if o}):
            return (None,) * len(node.output)
        try:
            found = shape_inference.infer_node_outputs(
                schema, node, types, data, None, self._imports, self._ir_version
            )
        except (
            shape_inference.InferenceError,
            onnx.checker.ValidationError,
            RuntimeError,
            TypeError,
            ValueError,  # an element type of the future, for one
        ):
            return (None,) * len(
                node.output
            )  # the checker, or ONNX Runtime, will say what is wrong
        result = []
        for k, name in enumerate(node.output):
            proto = found.get(name)
            if proto and node.op_type == "Attention":
                _reopen(proto, operands)
            value = from_proto(proto, partial(_open_size, f"{tag}.{k}")) if proto else None
            if value is not None and value.elem_type == 0:
                value = None
            result.append(self._refine(node, k, value, operands))
        return tuple(result)

    def _refine(
        self,
        node: NodeProto,
        output: int,
        value: ValueType | None,
        operands: Sequence[Operand | None],
    ) -> ValueType | None:
        """Fill in sizes that ONNX's inference cannot: products and quotients of symbols."""
        if value is None or domain_of(node) or not operands or operands[0] is None:
            return value
        data = operands[0].type
        if node.op_type == "Split" and data is not None and data.shape and value.shape is not None:
            told = operands[1] if len(operands) > 1 else None
            parts = evenly(node, data.shape) if told is None else told.ints
            return ValueType(value.elem_type, cut_off(node, value.shape, parts, output))
        if output:
            return value
        if node.op_type == "Reshape" and len(operands) > 1 and operands[1] is not None:
            target = operands[1].ints
            if target is not None and data is not None:
                zero_copies = not any(a.name == "allowzero" and a.i for a in node.attribute)
                shape = reshaped(data.shape, target, zero_copies, self._nonempty)
                return ValueType(value.elem_type, shape) if shape is not None else value
        if node.op_type == "Flatten" and data is not None and data.shape is not None:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
            axis += len(data.shape) if axis < 0 else 0
            return ValueType(
                value.elem_type, (product(data.shape[:axis]), product(data.shape[axis:]))
            )
        if node.op_type == "Expand" and len(operands) > 1 and operands[1] is not None:
            target = operands[1].ints
            if target is not None and data is not None and data.shape is not None:
                shape = expanded(data.shape, target)
                return ValueType(value.elem_type, shape) if shape is not None else value
        if node.op_type in POOLS and data is not None and overhangs(node, data.shape, value.shape):
            return ValueType(value.elem_type, None)
        if node.op_type in ("Tile", "Pad") and data is not None and data.shape is not None:
            ints = [o.ints if o else None for o in operands[1:]]
            return ValueType(value.elem_type, widened(node.op_type, data.shape, value.shape, ints))
        if node.op_type == "Resize" and data is not None and data.shape is not None:
            scales, sizes = ((*operands, None, None, None)[k] for k in (2, 3))
            by = factors(
                node,
                data.shape,
                scales.const if scales else None,
                sizes.ints if sizes else None,
                self._opsets.get("", 1),
            )
            if by is not None and value.shape is not None:
                return ValueType(value.elem_type, resized(data.shape, by, value.shape))
        if node.op_type == "Slice" and data is not None and data.shape is not None:
            ints = [o.ints if o else () for o in operands[1:]]
            cut = cuts(data.shape, ints, attributes(node), self._opsets.get("", 1))
            if cut is not None and value.shape is not None:
                return ValueType(value.elem_type, sliced(data.shape, cut, value.shape))
        if node.op_type == "ConstantOfShape" and operands[0].ints is not None:
            return ValueType(value.elem_type, operands[0].ints)
        return value


def _reopen(proto: TypeProto, operands: Sequence[Operand | None]) -> None:
    """Take back the sizes 0 of an Attention: ONNX's inference writes them where an operand's is open."""
    shapes = [o.type.shape or () for o in operands if o is not None and o.type is not None]
    if any(0 in shape for shape in shapes):
        return
    for dim in proto.tensor_type.shape.dim:
        if dim.HasField("dim_value") and dim.dim_value == 0:
            dim.Clear()


def _open_size(owner: str, axis: int) -> str:
    """The symbol for a size that nobody named."""
    return own(f"{owner}.{axis}")


def _from_table(
    domain: str, node: NodeProto, operands: Sequence[Operand | None]
) -> tuple[ValueType | None, ...]:
    """Output types of an op that onnx has no inference for."""
    types = [o.type if o else None for o in operands]
    numbers = {a.name: a.i for a in node.attribute if a.type == AttributeProto.INT}
    found: list[ValueType | None] = []
    for typed in TABLE[domain, node.op_type]([t.shape if t else None for t in types], numbers):
        like = types[typed.like] if typed is not None else None
        found.append(ValueType(like.elem_type, typed.shape) if typed and like else None)
    found += [None] * len(node.output)
    return tuple(found[: len(node.output)])
