"""What is known about every value of a graph before anything runs.

One walk in topological order gives each value its type, its numbers where they are constant, its
sizes where it is a vector of sizes, and its first name where two values are surely the same
(`Identity`, Dropout at inference, equal ops on equal inputs, a Split that undoes the Concat before).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from onnx_sched.blocks import Blocks, Look
from onnx_sched.constants import Array, Const, from_array
from onnx_sched.dims import Dim, symbol
from onnx_sched.graph import Graph, domain_of, has_effect, subgraphs
from onnx_sched.shapes import Inference, Operand, ValueType, from_proto

FOLD_LIMIT = 65536
"""Constants up to this many bytes are computed now; larger ones only if they do not grow."""


@dataclass(frozen=True, slots=True)
class Values:
    """Facts about values, by name.

    Attributes:
        types: Type and shape, where known.
        constants: Initializers, Constant nodes, and what follows from them.
        ints: Small integer vectors and scalars (shape arithmetic), with symbols for open sizes.
        canon: The first name of a value that has several; names that are not here are their own.
        undone: Lanes that come back whole out of what a Concat put together, and which they are.
    """

    types: dict[str, ValueType] = field(default_factory=dict)
    constants: dict[str, Const] = field(default_factory=dict)
    ints: dict[str, tuple[Dim, ...]] = field(default_factory=dict)
    canon: dict[str, str] = field(default_factory=dict)
    undone: dict[str, str] = field(default_factory=dict)

    def first(self, name: str) -> str:
        """The name under which a value first appears."""
        return self.canon.get(name, name)

    def shape(self, name: str) -> tuple[Dim, ...] | None:
        """Shape of a value, if known."""
        value = self.types.get(name)
        return value.shape if value else None


Constant = Callable[[TensorProto, str], Const | None]
"""Gives a tensor's constant without reading its numbers, by the tensor and a name that no other one has;
None if it cannot be one (an element type that numpy has no room for)."""

Attributes = tuple[tuple[str, Hashable], ...]


def attributes(node: NodeProto) -> dict[str, Hashable]:
    """A node's attributes as hashable values; graphs are left out, tensors become bytes."""
    found: dict[str, Hashable] = {}
    for a in node.attribute:
        if a.type in (a.GRAPH, a.GRAPHS):
            continue
        if a.type == a.TENSOR:
            found[a.name] = a.t.SerializeToString(deterministic=True)
        elif a.type in (a.TENSORS, a.SPARSE_TENSOR, a.SPARSE_TENSORS, a.TYPE_PROTO, a.TYPE_PROTOS):
            found[a.name] = a.SerializeToString(deterministic=True)
        else:
            value = helper.get_attribute_value(a)
            found[a.name] = (
                tuple(value)
                if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
                else value
            )
    return found


def seen_from(values: Values, names: Iterable[str]) -> Values:
    """What a body knows about the values that it reads from the graph around it."""
    seen = tuple(dict.fromkeys(names))
    return Values(
        {n: t for n in seen if (t := values.types.get(values.first(n))) is not None},
        {n: c for n in seen if (c := values.constants.get(values.first(n))) is not None},
        {n: i for n in seen if (i := values.ints.get(values.first(n))) is not None},
    )


def study(
    graph: Graph,
    constant: Constant,
    outer: Values | None = None,
    space: str = "",
) -> Values:
    """Learn about every value of a graph.

    Args:
        graph: The graph.
        constant: Gives the constants of initializers and of Constant nodes.
        outer: What is known about values from outside; the graph's own go first.
        space: Prefix that sets the graph's sizes and tensors apart from those of other graphs.
    """
    values = outer or Values()
    own = [v.name for v in (*graph.proto.input, *graph.proto.initializer)]
    for name in (*own, *graph.producer) if outer else ():
        for facts in (values.types, values.constants, values.ints):
            facts.pop(name, None)
    infer = Inference(graph.opsets, graph.ir_version)
    for tensor in graph.proto.initializer:
        values.types[tensor.name] = ValueType(tensor.data_type, tuple(tensor.dims))
    for name, tensor in graph.constants.items():
        const = constant(tensor, space + name)
        if const is not None:
            _learn(values, name, const)
    for value in graph.proto.input:
        if value.name not in graph.constants:
            unnamed = partial(_unnamed, space + value.name)
            known = from_proto(value.type, unnamed, lambda size: symbol(space + size))
            if known is not None:
                values.types[value.name] = known
    seen: dict[Hashable, NodeProto] = {}
    blocks = Blocks()
    for node in graph.nodes:
        _visit(graph, node, values, infer, seen, blocks, constant, space)
    return values


def _unnamed(owner: str, axis: int) -> str:
    """The symbol for an input's size that has no name."""
    return symbol(f"{owner}.{axis}")


def _learn(values: Values, name: str, const: Const) -> None:
    """Note a constant, and its numbers as sizes if they may be some."""
    values.constants[name] = const
    values.types[name] = ValueType(const.elem_type, const.shape)
    if (
        const.elem_type in (TensorProto.INT64, TensorProto.INT32)
        and const.rank <= 1
        and const.nbytes <= 512
    ):
        values.ints[name] = tuple(int(v) for v in np.asarray(const.load()).ravel())


def _visit(
    graph: Graph,
    node: NodeProto,
    values: Values,
    infer: Inference,
    seen: dict[Hashable, NodeProto],
    blocks: Blocks,
    constant: Constant,
    space: str,
) -> None:
    domain = domain_of(node)
    if domain == "" and node.op_type == "Constant":
        const = _constant_node(node, constant, space)
        if const is not None:
            _learn(values, node.output[0], const)
        return
    names = [values.first(i) for i in node.input]
    operands = [
        Operand(n, values.types.get(n), values.constants.get(n), values.ints.get(n)) if n else None
        for n in names
    ]
    pure = not has_effect(node) and next(subgraphs(node), None) is None
    found = infer.outputs(_renamed(node, names), operands) if pure else ()
    for name, value in zip(node.output, found, strict=False):
        if name and value is not None:
            values.types[name] = value
    if not pure:
        return
    if _fold(graph, node, operands, values):
        return
    if domain == "":
        sizes = _sizes(node, operands, graph.opset)
        if sizes is not None:
            values.ints[node.output[0]] = sizes
            if all(isinstance(d, int) for d in sizes):
                _fold_sizes(values, node.output[0], sizes)
                return
        same = _same(node, names, operands, values, graph)
        if same is not None:
            values.canon[node.output[0]] = same
            return
        for name, part in blocks.visit(_look(graph, node, names, operands, values)):
            values.canon[name] = values.undone[name] = part
    key = (
        domain,
        node.op_type,
        tuple(sorted(attributes(node).items())),
        tuple(("=", values.constants[n].key) if n in values.constants else n for n in names),
        len(node.output),
    )
    twin = seen.setdefault(key, node)
    if twin is not node:
        for name, first in zip(node.output, twin.output, strict=True):
            if name and first:
                values.canon[name] = values.first(first)


def _renamed(node: NodeProto, names: Sequence[str]) -> NodeProto:
    if list(node.input) == list(names):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.input[:]
    copy.input.extend(names)
    return copy


def _constant_node(node: NodeProto, constant: Constant, space: str) -> Const | None:
    """The constant that a Constant node makes, whichever of its attributes says so."""
    for a in node.attribute:
        if a.name == "value":
            return constant(a.t, space + node.output[0])
        if a.name in ("value_float", "value_floats"):
            array = np.array(a.f if a.name == "value_float" else list(a.floats), np.float32)
            return from_array(array, TensorProto.FLOAT)
        if a.name in ("value_int", "value_ints"):
            array = np.array(a.i if a.name == "value_int" else list(a.ints), np.int64)
            return from_array(array, TensorProto.INT64)
    return None  # strings and sparse tensors stay what they are


def _fold(
    graph: Graph, node: NodeProto, operands: Sequence[Operand | None], values: Values
) -> bool:
    """Compute a node whose inputs are all constant; whether that was possible and small enough."""
    consts = [o.const for o in operands if o]
    if not consts or any(c is None for c in consts) or domain_of(node) or len(node.output) != 1:
        return False
    known = values.types.get(node.output[0])
    first = consts[0]
    if known is None or known.shape is None or first is None:
        return False
    shape = tuple(d for d in known.shape if isinstance(d, int))
    if len(shape) != len(known.shape):
        return False
    if node.op_type == "Identity":
        _learn(values, node.output[0], first)
        return True
    if node.op_type == "Transpose":
        perm = attributes(node).get("perm", tuple(range(first.rank))[::-1])
        assert isinstance(perm, tuple)
        _learn(values, node.output[0], first.transpose(perm))
        return True
    if node.op_type in ("Reshape", "Squeeze", "Unsqueeze", "Flatten"):
        _learn(values, node.output[0], first.reshape(shape))
        return True
    size = int(np.prod(shape, dtype=np.int64)) * 8
    if size > FOLD_LIMIT or any(c.nbytes > FOLD_LIMIT for c in consts if c):
        return False
    feeds = {o.name: np.asarray(o.const.load()) for o in operands if o and o.const}
    array = _evaluate(node, feeds, graph.opsets)
    if array is None or array.shape != shape:
        return False
    _learn(values, node.output[0], from_array(array, known.elem_type))
    return True


def _evaluate(
    node: NodeProto, feeds: Mapping[str, Array], opsets: Mapping[str, int]
) -> Array | None:
    """Run one node on onnx's reference evaluator; None where it has no answer."""
    plain = NodeProto()
    plain.CopyFrom(node)
    plain.domain = ""
    try:
        with np.errstate(all="ignore"):
            (out,) = ReferenceEvaluator(plain, opsets=dict(opsets)).run(None, dict(feeds))
    except (
        NotImplementedError,
        RuntimeError,
        TypeError,
        ValueError,
        KeyError,
        IndexError,
        AttributeError,
        ZeroDivisionError,
    ):
        return None  # the node stays; ONNX Runtime computes it
    return np.asarray(out)


def _sizes(
    node: NodeProto, operands: Sequence[Operand | None], opset: int
) -> tuple[Dim, ...] | None:
    """Follow shape arithmetic with symbols: the vector (or scalar) that the node makes."""
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
    rank = first.type.rank
    if node.op_type == "Concat":
        if any(v is None for v in vectors):
            return None
        return tuple(d for v in vectors if v for d in v)
    if node.op_type in ("Identity", "Squeeze", "Unsqueeze"):
        return vectors[0]
    if node.op_type == "Cast" and attrs.get("to") in (TensorProto.INT64, TensorProto.INT32):
        return vectors[0]
    if node.op_type == "Reshape" and rank == 1:
        return vectors[0]
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


def _fold_sizes(values: Values, name: str, sizes: tuple[Dim, ...]) -> None:
    """Sizes that turn out to be known make a constant."""
    known = values.types.get(name)
    if known is None or known.rank is None or known.rank > 1:
        return
    dtype = np.int32 if known.elem_type == TensorProto.INT32 else np.int64
    array = np.array(sizes, dtype)
    _learn(
        values, name, from_array(array.reshape(()) if known.rank == 0 else array, known.elem_type)
    )


def _same(
    node: NodeProto,
    names: Sequence[str],
    operands: Sequence[Operand | None],
    values: Values,
    graph: Graph,
) -> str | None:
    """The value that the node hands on unchanged, if it does."""
    first = operands[0] if operands else None
    if first is None:
        return None
    attrs = attributes(node)
    if node.op_type == "Identity" or (
        node.op_type in ("Concat", "Sum", "Mean", "Max", "Min") and len(names) == 1
    ):
        return names[0]
    if node.op_type == "Cast" and first.type and attrs.get("to") == first.type.elem_type:
        return names[0]
    if node.op_type == "Transpose":
        perm = attrs.get("perm")
        return names[0] if isinstance(perm, tuple) and list(perm) == sorted(perm) else None
    if node.op_type == "Dropout":
        training = operands[2].const if len(operands) > 2 and operands[2] else None
        off = (
            len(operands) < 3
            or operands[2] is None
            or (training is not None and not training.load())
        )
        return names[0] if off and graph.opset >= 7 else None
    return None


def _look(
    graph: Graph,
    node: NodeProto,
    names: Sequence[str],
    operands: Sequence[Operand | None],
    values: Values,
) -> Look:
    """The node as the walk along blocks sees it."""
    ints = []
    for operand in operands:
        sizes = operand.ints if operand else ()
        known = sizes is not None and all(isinstance(d, int) for d in sizes)
        ints.append(tuple(int(d) for d in sizes) if known and sizes is not None else None)
    return Look(
        node.op_type,
        names,
        node.output,
        attributes(node),
        ints,
        [o.type.shape if o and o.type else None for o in operands],
        [values.shape(o) for o in node.output],
        graph.opset,
    )


def opset_error(version: int) -> bool:
    """Whether onnx knows no schemas for an opset of the default domain."""
    return version > onnx.defs.onnx_opset_version()
