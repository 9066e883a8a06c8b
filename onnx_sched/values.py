"""What is known about every value of a graph before anything runs.

One walk in topological order gives each value its type, its numbers where they are constant, its
sizes where it is a vector of sizes, and its first name where two values are surely the same
(`Identity`, Dropout at inference, equal ops on equal inputs, a Split that undoes the Concat before).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from onnx import NodeProto, TensorProto

from onnx_sched.blocks import Blocks, Look
from onnx_sched.branches import cast_to, taken
from onnx_sched.constants import Const
from onnx_sched.deduce import as_constant, constant_node, folded, handed_on, sizes_of
from onnx_sched.dims import Dim, own, symbol, told_apart
from onnx_sched.graph import Graph
from onnx_sched.nodes import attributes, domain_of, has_effect, subgraphs
from onnx_sched.shapes import Inference, Operand, ValueType, from_proto


@dataclass(frozen=True, slots=True)
class Values:
    """Facts about values, by name.

    Attributes:
        types: Type and shape, where known.
        constants: Initializers, Constant nodes, and what follows from them.
        ints: Small integer vectors and scalars (shape arithmetic), with symbols for open sizes.
        canon: The first name of a value that has several; names that are not here are their own.
        undone: Lanes that come back whole out of what a Concat put together, and which they are.
        taken: By the output of an If or a CastLike the one op that it comes to, where its condition or
            the type is known.
    """

    types: dict[str, ValueType] = field(default_factory=dict)
    constants: dict[str, Const] = field(default_factory=dict)
    ints: dict[str, tuple[Dim, ...]] = field(default_factory=dict)
    canon: dict[str, str] = field(default_factory=dict)
    undone: dict[str, str] = field(default_factory=dict)
    taken: dict[str, NodeProto] = field(default_factory=dict)

    def first(self, name: str) -> str:
        """The name under which a value first appears."""
        return self.canon.get(name, name)

    def shape(self, name: str) -> tuple[Dim, ...] | None:
        """Shape of a value, if known."""
        value = self.types.get(name)
        return value.shape if value else None

    def op(self, node: NodeProto) -> NodeProto:
        """A node, or the op that it comes to."""
        seen_through = node.op_type in ("If", "CastLike")
        return self.taken.get(node.output[0], node) if seen_through else node

    def spellings(self, node: NodeProto) -> tuple[NodeProto, NodeProto]:
        """A node as the file has it, and as the op that it comes to: a flag may name either."""
        return node, self.op(node)


Constant = Callable[[TensorProto, str], Const | None]
"""Gives a tensor's constant without reading its numbers, by the tensor and a name that no other one has;
None if it cannot be one (an element type that numpy has no room for)."""


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
    nonempty: bool = False,
) -> Values:
    """Learn about every value of a graph.

    Args:
        graph: The graph.
        constant: Gives the constants of initializers and of Constant nodes.
        outer: What is known about values from outside; the graph's own go first.
        space: Prefix that sets the graph's sizes and tensors apart from those of other graphs.
        nonempty: A promise that no size known only at run time is 0.
    """
    walk = _Walk(graph, constant, space, outer or Values(), nonempty)
    if outer is not None:
        walk.forget()
    walk.run({})
    if outer is None and walk.equal:  # what only a Concat deep inside tells holds from the start
        names = _one_name(walk.equal)
        walk = _Walk(graph, constant, space, Values(), nonempty)
        walk.run(names)
    return walk.values


def _one_name(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """One name for symbols that must be equal: the first of them in the alphabet."""
    name: dict[str, str] = {}

    def root(symbol_: str) -> str:
        while symbol_ in name:
            symbol_ = name[symbol_]
        return symbol_

    for a, b in pairs:
        first, second = sorted((root(a), root(b)))
        if first != second:
            name[second] = first
    return {symbol_: root(symbol_) for symbol_ in name}


class _Walk:
    """One walk through a graph, in topological order."""

    def __init__(
        self, graph: Graph, constant: Constant, space: str, values: Values, nonempty: bool
    ) -> None:
        self.values = values
        self._graph = graph
        self._constant = constant
        self._space = space
        self._infer = Inference(graph.opsets, graph.ir_version, nonempty)
        self._seen: dict[Hashable, NodeProto] = {}
        given = (*graph.proto.input, *graph.proto.initializer)
        self._own = {*graph.producer, *(v.name for v in given)}
        self._blocks = Blocks()
        self._sizes: dict[tuple[ValueType, tuple[Dim, ...]], str] = {}
        self._depth: dict[str, int] = {}
        self.equal: list[tuple[str, str]] = []
        self._given: set[str] = set()

    def forget(self) -> None:
        """Drop what is known about outer values whose names the graph gives to its own."""
        for name in self._own:
            for facts in (self.values.types, self.values.constants, self.values.ints):
                facts.pop(name, None)

    def run(self, names: Mapping[str, str]) -> None:
        """Learn about all values; open sizes of inputs under other names where they have some."""
        self._start(names)
        for k, node in enumerate(self._graph.nodes):
            self.visit(node)
            if self._graph.live[k] and node.op_type == "Concat" and domain_of(node) == "":
                self._put_together(node)

    def _put_together(self, node: NodeProto) -> None:
        """Note which sizes a Concat takes to be equal: all but those along its axis.

        ONNX says so for empty ones, too; ONNX Runtime overlooks it where one of the inputs is empty.
        """
        shapes = [self.values.shape(self.values.first(n)) for n in node.input]
        axis = attributes(node).get("axis", 1)
        known = [s for s in shapes if s is not None]
        assert isinstance(axis, int)
        for shape in known[1:]:
            for a, (x, y) in enumerate(zip(known[0], shape, strict=False)):
                pair = told_apart(x, y) if len(shape) == len(known[0]) > 1 else None
                if pair is not None and a != axis % len(shape) and self._given.issuperset(pair):
                    self.equal.append(pair)

    def _start(self, names: Mapping[str, str]) -> None:
        """Note what initializers hold and what inputs declare."""
        graph, values = self._graph, self.values
        for tensor in graph.proto.initializer:
            values.types[tensor.name] = ValueType(tensor.data_type, tuple(tensor.dims))
        for name, tensor in graph.constants.items():
            self._learn(name, self._constant(tensor, self._space + name))
        for value in graph.proto.input:
            if value.name not in graph.constants:
                unnamed = partial(_unnamed, self._space + value.name)
                known = from_proto(value.type, unnamed, lambda size: symbol(self._space + size))
                if known is not None:
                    shape = known.shape and tuple(names.get(str(d), d) for d in known.shape)
                    self._given.update(d for d in shape or () if isinstance(d, str))
                    values.types[value.name] = replace(known, shape=shape)

    def _learn(self, name: str, const: Const | None) -> bool:
        """Note a constant, and its numbers as sizes if they may be some; whether there is one."""
        if const is None:
            return False
        self.values.constants[name] = const
        self.values.types[name] = ValueType(const.elem_type, const.shape)
        if (
            const.elem_type in (TensorProto.INT64, TensorProto.INT32)
            and const.rank <= 1
            and const.nbytes <= 512
        ):
            self.values.ints[name] = tuple(int(v) for v in np.asarray(const.load()).ravel())
        return True

    def visit(self, node: NodeProto) -> None:
        """Learn about the outputs of the next node."""
        before = (self._depth.get(self.values.first(name), 0) for name in node.input)
        self._depth.update(dict.fromkeys(node.output, 1 + max(before, default=0)))
        plain = domain_of(node) == ""
        if plain and node.op_type == "Constant":
            tensor = partial(self._named, node.output[0])
            self._learn(node.output[0], constant_node(node, tensor))
        elif not has_effect(node, self._graph.off) and (op := self._comes_to(node)) is not None:
            plain = domain_of(op) == ""
            operands = [self._operand(self.values.first(name)) for name in op.input]
            self._infer_types(op, operands)
            if not (plain and any(op.output[:1]) and self._is_known(op, operands)):
                self._find_twin(op, operands)

    def _comes_to(self, node: NodeProto) -> NodeProto | None:
        """A node, or the one op that it comes to, which is noted; None if it has bodies that stay."""
        if node.op_type == "CastLike" and domain_of(node) == "" and len(node.input) == 2:
            like = self.values.types.get(self.values.first(node.input[1]))
            if like is not None:
                self.values.taken[node.output[0]] = cast_to(node, like.elem_type)
            return self.values.op(node)
        if next(subgraphs(node), None) is None:
            return node
        found = taken(node, self.values.constants.get(self.values.first(node.input[0])))
        if found is None:
            return None
        op, constants = found
        known = {n: constant_node(made, partial(self._named, n)) for n, made in constants.items()}
        if None in known.values() or not known.keys().isdisjoint(self._own):
            return None
        for name, const in known.items():
            self._learn(name, const)
        self.values.taken[node.output[0]] = op
        return op

    def _named(self, name: str, tensor: TensorProto) -> Const | None:
        return self._constant(tensor, self._space + name)

    def _operand(self, name: str) -> Operand | None:
        if not name:
            return None
        facts = self.values
        return Operand(name, facts.types.get(name), facts.constants.get(name), facts.ints.get(name))

    def _infer_types(self, node: NodeProto, operands: Sequence[Operand | None]) -> None:
        found = self._infer.outputs(_renamed(node, operands), operands)
        for name, value in zip(node.output, found, strict=False):
            if name and value is not None:
                self.values.types[name] = value

    def _is_known(self, node: NodeProto, operands: Sequence[Operand | None]) -> bool:
        """Whether the first output is a constant, or a value that exists already; then that is noted."""
        values, opset, made = self.values, self._graph.opset, node.output[0]
        known = values.types.get(made)
        if self._learn(made, folded(node, operands, known, self._graph.opsets)):
            return True
        sizes = sizes_of(node, operands, opset)
        if sizes is not None:
            values.ints[made] = sizes
            if self._learn(made, as_constant(sizes, known)):
                return True
            if known is not None and known.shape is not None:
                twin = self._sizes.get((known, sizes))
                if twin is not None and self._depth[twin] <= self._depth[made]:
                    values.canon[made] = twin
                    return True
                self._sizes[known, sizes] = made  # never one that has to wait for longer
        same = handed_on(node, operands, opset)
        if same is not None:
            values.canon[made] = same
            return True
        for name, part in self._blocks.visit(self._look(node, operands)):
            values.canon[name] = values.undone[name] = part
        return False

    def _find_twin(self, node: NodeProto, operands: Sequence[Operand | None]) -> None:
        """Give the outputs the names of those of an equal node before, if there is one."""
        values = self.values
        key = (
            domain_of(node),
            node.op_type,
            tuple(sorted(attributes(node).items())),
            tuple(("=", o.const.key) if o and o.const else o and o.name for o in operands),
            len(node.output),
        )
        twin = self._seen.setdefault(key, node)
        if twin is not node:
            for name, first in zip(node.output, twin.output, strict=True):
                if name and first:
                    values.canon[name] = values.first(first)

    def _look(self, node: NodeProto, operands: Sequence[Operand | None]) -> Look:
        """The node as the walk along blocks sees it."""
        ints = []
        for operand in operands:
            sizes = operand.ints if operand else ()
            known = sizes is not None and all(isinstance(d, int) for d in sizes)
            ints.append(tuple(int(d) for d in sizes) if known and sizes is not None else None)
        return Look(
            node.op_type,
            [o.name if o else "" for o in operands],
            node.output,
            attributes(node),
            ints,
            [o.type.shape if o and o.type else None for o in operands],
            [self.values.shape(o) for o in node.output],
            self._graph.opset,
        )


def _unnamed(owner: str, axis: int) -> str:
    """The symbol for an input's size that has no name."""
    return own(f"{owner}.{axis}", made=False)


def _renamed(node: NodeProto, operands: Sequence[Operand | None]) -> NodeProto:
    names = [o.name if o else "" for o in operands]
    if list(node.input) == names:
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.input[:]
    copy.input.extend(names)
    return copy
