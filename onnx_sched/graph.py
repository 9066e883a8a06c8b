"""A read-only view of one graph of a model: who makes and who reads each value.

The view never changes the proto behind it.  Nodes are numbered by their place in a topological
order that keeps the file's order wherever that is one already.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from onnx_sched.errors import ModelError
from onnx_sched.nodes import (
    DEFAULT_DOMAINS,
    captures,
    domain_of,
    has_effect,
    read_outside,
    subgraphs,
)


def every_node(model: ModelProto) -> Iterator[NodeProto]:
    """All nodes: main graph, subgraphs at any depth, and functions."""
    return nodes_of(model.graph, *model.functions)


def nodes_of(*parts: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """All nodes of graphs and functions, those of subgraphs at any depth included."""
    todo: list[NodeProto] = [node for part in parts for node in part.node]
    while todo:
        node = todo.pop()
        yield node
        for graph in subgraphs(node):
            todo += graph.node


def training_graphs(model: ModelProto) -> Iterator[GraphProto]:
    """The graphs of training steps: they share the main graph's names."""
    for training in model.training_info:
        yield training.initialization
        yield training.algorithm


def trained(model: ModelProto) -> tuple[str, ...]:
    """Names of the initializers that a training step sets."""
    return tuple(
        binding.key
        for training in model.training_info
        for binding in (*training.initialization_binding, *training.update_binding)
    )


def all_names(model: ModelProto) -> set[str]:
    """Every value, node and initializer name in use anywhere: a new name must avoid them all."""
    names: set[str] = set()
    todo: list[GraphProto] = [model.graph, *training_graphs(model)]
    for function in model.functions:
        names.update(function.input, function.output)
        for node in function.node:
            names.update((node.name, *node.input, *node.output))
            todo += subgraphs(node)
    while todo:
        graph = todo.pop()
        for values in (graph.input, graph.output, graph.value_info, graph.initializer):
            names.update(v.name for v in values)
        names.update(s.values.name for s in graph.sparse_initializer)
        names.update(q.tensor_name for q in graph.quantization_annotation)
        for node in graph.node:
            names.update((node.name, *node.input, *node.output))
            todo += subgraphs(node)
    names.discard("")
    return names


@dataclass(frozen=True)
class Graph:
    """One graph, indexed.

    Attributes:
        proto: The graph as it stands in the file.
        opsets: Version by domain ("" is the default domain).
        ir_version: Of the model; below 4 every initializer is constant although listed as an input.
        nodes: The nodes in topological order.
        places: By node: its place in the file.
        needed: Names that something outside the graph reads besides its outputs.
        variable: Initializers that are no constants: something outside the graph sets them.
    """

    proto: GraphProto
    opsets: Mapping[str, int]
    ir_version: int
    nodes: tuple[NodeProto, ...]
    places: tuple[int, ...]
    needed: tuple[str, ...] = ()
    variable: frozenset[str] = frozenset()

    @property
    def opset(self) -> int:
        """Version of the default domain."""
        return self.opsets.get("", 0)

    @cached_property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """By node: the names it reads, captures included, empty slots left out, repeats kept."""
        return tuple(
            (*(i for i in node.input if i), *(captures(node) if node.attribute else ()))
            for node in self.nodes
        )

    @cached_property
    def producer(self) -> dict[str, int]:
        """Node that makes a value, by name."""
        return {o: k for k, node in enumerate(self.nodes) for o in node.output if o}

    @cached_property
    def readers(self) -> dict[str, tuple[int, ...]]:
        """Nodes that read a value, in order; a node that reads it twice stands twice."""
        readers: dict[str, list[int]] = {}
        for k, names in enumerate(self.reads):
            for name in names:
                readers.setdefault(name, []).append(k)
        return {name: tuple(ks) for name, ks in readers.items()}

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of the graph's outputs, in order, and of what else must be there after a run."""
        return tuple(dict.fromkeys((*(v.name for v in self.proto.output), *self.needed)))

    @cached_property
    def output_set(self) -> frozenset[str]:
        """The names in `outputs`."""
        return frozenset(self.outputs)

    @cached_property
    def constants(self) -> dict[str, TensorProto]:
        """Initializers that no caller can override, by name."""
        fed = set() if self.ir_version < 4 else {v.name for v in self.proto.input}
        fed |= self.variable
        return {t.name: t for t in self.proto.initializer if t.name not in fed}

    @cached_property
    def off(self) -> frozenset[str]:
        """Names of constants that are one False: flags that switch nothing on."""
        tensors = [
            (node.output[0], a.t)
            for node in self.nodes
            if node.op_type == "Constant" and domain_of(node) == ""
            for a in node.attribute
            if a.name == "value"
        ]
        return frozenset(
            name for name, tensor in (*self.constants.items(), *tensors) if _is_false(tensor)
        )

    @cached_property
    def effects(self) -> tuple[bool, ...]:
        """By node: whether it has an effect, so that it stays in order with others of the kind."""
        return tuple(has_effect(node, self.off) for node in self.nodes)

    @cached_property
    def live(self) -> tuple[bool, ...]:
        """By node: whether a graph output depends on it."""
        alive = [False] * len(self.nodes)
        todo = list(self.outputs)
        while todo:
            k = self.producer.get(todo.pop())
            if k is not None and not alive[k]:
                alive[k] = True
                todo += self.reads[k]
        return tuple(alive)

    @cached_property
    def preds(self) -> tuple[tuple[int, ...], ...]:
        """By node: the nodes that must run before it (data, captures, effects), ascending."""
        last_effect = -1
        preds = []
        for k, names in enumerate(self.reads):
            before = {self.producer[n] for n in names if n in self.producer}
            if self.live[k] and self.effects[k]:
                if last_effect >= 0:
                    before.add(last_effect)
                last_effect = k
            preds.append(tuple(sorted(before)))
        return tuple(preds)


def _is_false(tensor: TensorProto) -> bool:
    inside = tensor.data_location != TensorProto.EXTERNAL
    if tensor.data_type != TensorProto.BOOL or list(tensor.dims) not in ([], [1]) or not inside:
        return False
    return not numpy_helper.to_array(tensor).any()


def view(model: ModelProto) -> Graph:
    """Index the main graph of a model; the model is only read.

    Raises:
        ModelError: If the nodes depend on each other in a circle.
    """
    opsets = {
        "" if o.domain in DEFAULT_DOMAINS else o.domain: o.version for o in model.opset_import
    }
    graph = _indexed(model.graph, opsets, model.ir_version)
    if not model.training_info:
        return graph
    read, set_ = read_outside(*training_graphs(model)), trained(model)
    there = {*graph.producer, *(t.name for t in model.graph.initializer)}
    needed = tuple(n for n in (*read, *set_) if n in there)
    return replace(graph, needed=needed, variable=frozenset(set_))


def view_body(outer: Graph, body: GraphProto) -> Graph:
    """Index a graph inside a node of another one.

    Raises:
        ModelError: If the nodes depend on each other in a circle.
    """
    return _indexed(body, outer.opsets, outer.ir_version)


def _indexed(proto: GraphProto, opsets: Mapping[str, int], ir_version: int) -> Graph:
    file = tuple(proto.node)
    places = sorted_order(file)
    nodes = tuple(file[k] for k in places)
    return Graph(proto, opsets, ir_version, nodes, tuple(places))


def sorted_order(nodes: Sequence[NodeProto]) -> list[int]:
    """A topological order of nodes that keeps the file's order where it is one already.

    Raises:
        ModelError: On a circle; it names nodes on it.
    """
    producer: dict[str, int] = {}
    for k, node in enumerate(nodes):
        for name in node.output:
            if name:
                producer[name] = k
    reads = [(*node.input, *(captures(node) if node.attribute else ())) for node in nodes]
    preds = [{producer[n] for n in names if n in producer} for names in reads]
    if all(not p or max(p) < k for k, p in enumerate(preds)):
        return list(range(len(nodes)))
    return topological(preds, lambda k: _describe(nodes[k]))


def topological(preds: Sequence[Iterable[int]], name: Callable[[int], str] = str) -> list[int]:
    """Order 0..n-1 so that predecessors come first, the smallest number first among the ready.

    Raises:
        ModelError: On a circle; `name(k)` describes its members.
    """
    waits = [len(set(p)) for p in preds]
    succs: list[list[int]] = [[] for _ in waits]
    for k, before in enumerate(preds):
        for p in set(before):
            succs[p].append(k)
    ready = [k for k, w in enumerate(waits) if not w]
    order = []
    while ready:
        k = heapq.heappop(ready)
        order.append(k)
        for s in succs[k]:
            waits[s] -= 1
            if not waits[s]:
                heapq.heappush(ready, s)
    if len(order) < len(waits):
        circle = _circle(preds, {k for k, w in enumerate(waits) if w})
        shown = ", ".join(name(k) for k in circle[:5])
        more = f" and {len(circle) - 5} more" if len(circle) > 5 else ""
        raise ModelError(
            f"the graph has a cycle through {len(circle)} node(s): {shown}{more}",
            "A model must be acyclic; export it again.",
        )
    return order


def _circle(preds: Sequence[Iterable[int]], stuck: set[int]) -> list[int]:
    """A circle among nodes that wait for each other, found by walking back until one repeats."""
    k = min(stuck)
    seen: dict[int, int] = {}
    path: list[int] = []
    while k not in seen:
        seen[k] = len(path)
        path.append(k)
        k = min(p for p in preds[k] if p in stuck)
    return path[seen[k] :][::-1]


def _describe(node: NodeProto) -> str:
    """A node as a person would look for it."""
    label = node.name or next((o for o in node.output if o), "")
    return f"{node.op_type} {label!r}"
