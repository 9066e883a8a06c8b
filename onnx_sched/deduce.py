"""What follows from a node and its operands alone: its numbers, its sizes, the value that it hands on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from onnx_sched import size_arithmetic
from onnx_sched.constants import Array, Const, from_array
from onnx_sched.dims import Dim
from onnx_sched.nodes import attributes, domain_of
from onnx_sched.shapes import Operand, ValueType
from onnx_sched.slicing import cuts

FOLD_LIMIT = 65536
"""Constants up to this many bytes are computed now; larger ones only if they do not grow."""

OTHER_DEFAULT = frozenset({"RoiAlign"})
"""Ops that got an attribute whose default is not what they did before."""


def constant_node(node: NodeProto, constant: Callable[[TensorProto], Const | None]) -> Const | None:
    """The constant that a Constant node makes, whichever of its attributes says so.

    Args:
        node: The node.
        constant: Gives a tensor's constant.
    """
    for a in node.attribute:
        if a.name == "value":
            return constant(a.t)
        if a.name in ("value_float", "value_floats"):
            array = np.array(a.f if a.name == "value_float" else list(a.floats), np.float32)
            return from_array(array, TensorProto.FLOAT)
        if a.name in ("value_int", "value_ints"):
            array = np.array(a.i if a.name == "value_int" else list(a.ints), np.int64)
            return from_array(array, TensorProto.INT64)
    return None  # strings and sparse tensors stay what they are


def folded(
    node: NodeProto,
    operands: Sequence[Operand | None],
    known: ValueType | None,
    opsets: Mapping[str, int],
) -> Const | None:
    """The constant that a node makes of constants; None if it cannot be told, or is too large.

    Args:
        node: The node.
        operands: What it reads.
        known: Type of its output.
        opsets: Version by domain.
    """
    consts = [o.const for o in operands if o]
    if not consts or any(c is None for c in consts) or domain_of(node) or len(node.output) != 1:
        return None
    first = consts[0]
    if known is None or known.shape is None or first is None:
        return None
    shape = tuple(d for d in known.shape if isinstance(d, int))
    if len(shape) != len(known.shape):
        return None
    if node.op_type == "Identity":
        return first
    if node.op_type == "Transpose":
        perm = attributes(node).get("perm", tuple(range(first.rank))[::-1])
        assert isinstance(perm, tuple)
        return first.transpose(perm)
    if node.op_type in ("Reshape", "Squeeze", "Unsqueeze", "Flatten"):
        return first.reshape(shape)
    size = int(np.prod(shape, dtype=np.int64)) * 8
    if size > FOLD_LIMIT or any(c.nbytes > FOLD_LIMIT for c in consts if c):
        return None
    array = _evaluate(node, operands, opsets)
    dtype = helper.tensor_dtype_to_np_dtype(known.elem_type)
    if array is None or (array.shape, array.dtype) != (shape, dtype):
        return None
    return from_array(array, known.elem_type)


def _evaluate(
    node: NodeProto, operands: Sequence[Operand | None], opsets: Mapping[str, int]
) -> Array | None:
    """Run one node on onnx's reference evaluator; None where it has no answer."""
    plain = NodeProto()
    plain.CopyFrom(node)
    plain.domain = ""
    del plain.input[:]
    plain.input.extend(o.name if o else "" for o in operands)
    feeds = {o.name: np.asarray(o.const.load()) for o in operands if o and o.const}
    try:
        with np.errstate(all="ignore"):
            evaluator = ReferenceEvaluator(plain, opsets=dict(opsets))
            kinds = {type(inner).__name__ for inner in evaluator.rt_nodes_}
            if node.op_type in kinds and not _means_the_same_now(node.op_type, opsets.get("", 1)):
                return None
            (out,) = evaluator.run(None, feeds)
    except (
        NotImplementedError,
        RuntimeError,
        TypeError,
        ValueError,
        KeyError,
        IndexError,
        AttributeError,
        ZeroDivisionError,
        onnx.defs.SchemaError,
    ):
        return None  # the node stays; ONNX Runtime computes it
    return np.asarray(out)


def _means_the_same_now(op_type: str, opset: int) -> bool:
    """Whether an op means in an opset what it means in the newest one, as far as the older one goes.

    The evaluator has one class for all versions of most ops, and that one computes the newest.
    """
    then = onnx.defs.get_schema(op_type, opset, "")
    now = onnx.defs.get_schema(op_type, "")
    if then.since_version == now.since_version:
        return True
    inputs = [i.name for i in then.inputs]
    same = op_type not in OTHER_DEFAULT and [i.name for i in now.inputs][: len(inputs)] == inputs
    return same and all(
        name in now.attributes and now.attributes[name].default_value == attribute.default_value
        for name, attribute in then.attributes.items()
    )


BITS: Mapping[int, int] = {TensorProto.INT32: 31, TensorProto.INT64: 63}
"""How many bits a size of a type has, its sign not counted."""


def sizes_of(
    node: NodeProto, operands: Sequence[Operand | None], opset: int
) -> tuple[Dim, ...] | None:
    """Follow shape arithmetic with symbols: the vector (or scalar) that the node makes.

    None where a number would not fit its type: what a runtime makes of that is its own affair.
    """
    sizes = _sizes_of(node, operands, opset)
    first = operands[0].type if operands and operands[0] else None
    kind = attributes(node).get("to") if node.op_type == "Cast" else first and first.elem_type
    if sizes is None or node.op_type == "Shape":
        return sizes
    bits = BITS.get(kind, 63) if isinstance(kind, int) else 63
    fit = all(not isinstance(d, int) or -(1 << bits) <= d < 1 << bits for d in sizes)
    return sizes if fit else None


def _sizes_of(
    node: NodeProto, operands: Sequence[Operand | None], opset: int
) -> tuple[Dim, ...] | None:
    first = operands[0] if operands else None
    if first is None:
        return None
    attrs = attributes(node)
    if node.op_type == "Shape":
        if first.type is None or first.type.shape is None:
            return None
        start, end = attrs.get("start", 0), attrs.get("end")
        assert isinstance(start, int)
        assert end is None or isinstance(end, int)
        return first.type.shape[start:end]
    vectors = [o.ints if o else None for o in operands]
    if vectors[0] is None or first.type is None:
        return None
    ranks = [o.type.rank if o and o.type else None for o in operands]
    rank = ranks[0]
    if any(o is not None and (r is None or r > 1) for o, r in zip(operands, ranks, strict=True)):
        return None  # a matrix of sizes
    if node.op_type == "Concat":
        if any(v is None for v in vectors):
            return None
        return tuple(d for v in vectors if v for d in v)
    if node.op_type in ("Identity", "Squeeze") or (node.op_type == "Unsqueeze" and rank == 0):
        return vectors[0]
    if node.op_type == "Cast" and attrs.get("to") in (TensorProto.INT64, TensorProto.INT32):
        return vectors[0]
    if node.op_type == "Reshape" and rank == 1:
        return vectors[0]
    if node.op_type in size_arithmetic.RULES and not any(v is None for v in vectors):
        return size_arithmetic.told(
            node, [v for v in vectors if v is not None], first.type.elem_type
        )
    second = vectors[1] if len(vectors) > 1 else None
    if node.op_type == "Gather" and rank == 1 and second is not None:
        if all(isinstance(i, int) and -len(vectors[0]) <= i < len(vectors[0]) for i in second):
            return tuple(vectors[0][int(i)] for i in second)
        return None
    if node.op_type == "Slice" and rank == 1 and opset >= 10:
        bounds = [v for v in vectors[1:] if v is not None]
        if len(bounds) == len(operands) - 1 and all(
            len(b) == 1 and isinstance(b[0], int) for b in bounds
        ):
            ends = [b[0] for b in bounds if isinstance(b[0], int)]
            return vectors[0][slice(ends[0], ends[1], ends[3] if len(ends) > 3 else 1)]
    return None


def as_constant(sizes: tuple[Dim, ...], known: ValueType | None) -> Const | None:
    """The constant that sizes are, if all of them are known.

    Args:
        sizes: What a vector or a number of sizes holds.
        known: Its type.
    """
    if known is None or known.rank is None or known.rank > 1:
        return None
    if not all(isinstance(d, int) for d in sizes):
        return None
    if known.elem_type not in (TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL):
        return None
    array = np.array(sizes, helper.tensor_dtype_to_np_dtype(known.elem_type))
    return from_array(array.reshape(()) if known.rank == 0 else array, known.elem_type)


def handed_on(node: NodeProto, operands: Sequence[Operand | None], opset: int) -> str | None:
    """The value that the node hands on unchanged as its first output, if it does."""
    first = operands[0] if operands else None
    if first is None:
        return None
    attrs = attributes(node)
    if node.op_type == "Identity" or (
        node.op_type in ("Concat", "Sum", "Mean", "Max", "Min") and len(operands) == 1
    ):
        return first.name
    if node.op_type == "Cast" and first.type and attrs.get("to") == first.type.elem_type:
        return first.name
    if node.op_type == "Transpose":
        perm = attrs.get("perm")
        return first.name if isinstance(perm, tuple) and list(perm) == sorted(perm) else None
    if node.op_type == "Slice" and first.type is not None and first.type.shape is not None:
        ints = [o.ints if o else () for o in operands[1:]]
        return first.name if cuts(first.type.shape, ints, attrs, opset) == () else None
    if node.op_type == "Dropout":
        training = operands[2] if len(operands) > 2 else None
        off = training is None or (training.const is not None and not training.const.load().any())
        return first.name if off and opset >= 7 else None
    return None
