"""A read-only view of one graph of a model: who makes and who reads each value.

The view never changes the proto behind it.  Nodes are numbered by their place in a topological
order that keeps the file's order wherever that is one already.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from onnx_sched.errors import ModelError

RANDOM = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
"""Ops of the default domain that draw numbers whenever they run."""

DEFAULT_DOMAINS = ("", "ai.onnx")


def domain_of(node: NodeProto) -> str:
    """The node's domain; the default one, which has two spellings, as the empty string."""
    return "" if node.domain in DEFAULT_DOMAINS else node.domain


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in a node's attributes (bodies of If, Loop, Scan and the like)."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def captures(node: NodeProto) -> tuple[str, ...]:
    """Names that the node's subgraphs, at any depth, read from outside, each once, in file order.

    A name counts as read from outside unless the subgraph itself or one around it makes it.
    """
    found: dict[str, None] = {}
    todo: list[tuple[GraphProto, frozenset[str]]] = [(g, frozenset()) for g in subgraphs(node)]
    while todo:
        graph, outer = todo.pop()
        own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
        own |= {s.values.name for s in graph.sparse_initializer}
        own |= {o for n in graph.node for o in n.output}
        known = outer | own
        for inner in graph.node:
            for name in inner.input:
                if name and name not in known:
                    found[name] = None
            todo += [(g, known) for g in subgraphs(inner)]
        for value in graph.output:
            if value.name not in known:
                found[value.name] = None
    return tuple(found)


def every_node(model: ModelProto) -> Iterator[NodeProto]:
    """All nodes: main graph, subgraphs at any depth, and functions."""
    todo: list[NodeProto] = list(model.graph.node)
    for function in model.functions:
        todo += function.node
    while todo:
        node = todo.pop()
        yield node
        for graph in subgraphs(node):
            todo += graph.node


def all_names(model: ModelProto) -> set[str]:
    """Every value, node and initializer name in use anywhere: a new name must avoid them all."""
    names: set[str] = set()
    todo: list[GraphProto] = [model.graph]
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
    """

    proto: GraphProto
    opsets: Mapping[str, int]
    ir_version: int
    nodes: tuple[NodeProto, ...]
    places: tuple[int, ...]

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
        """Names of the graph's outputs, in order."""
        return tuple(v.name for v in self.proto.output)

    @cached_property
    def output_set(self) -> frozenset[str]:
        """Names of the graph's outputs."""
        return frozenset(self.outputs)

    @cached_property
    def constants(self) -> dict[str, TensorProto]:
        """Initializers that no caller can override, by name."""
        fed = set() if self.ir_version < 4 else {v.name for v in self.proto.input}
        return {t.name: t for t in self.proto.initializer if t.name not in fed}

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
            if has_effect(self.nodes[k]):
                if last_effect >= 0:
                    before.add(last_effect)
                last_effect = k
            preds.append(tuple(sorted(before)))
        return tuple(preds)


def has_effect(node: NodeProto) -> bool:
    """Whether the order among such nodes matters: random ops, and ops that nobody here knows.

    Bodies count: an If with a random op inside draws numbers when it runs.
    """
    todo = [node]
    while todo:
        n = todo.pop()
        domain = domain_of(n)
        if domain == "":
            if n.op_type in RANDOM or (n.op_type == "Dropout" and len(n.input) > 2 and n.input[2]):
                return True
        elif domain not in KNOWN_DOMAINS:
            return True
        for graph in subgraphs(n):
            todo += graph.node
    return False


KNOWN_DOMAINS = frozenset({"ai.onnx.ml", "com.microsoft", "ai.onnx.preview.training"})
"""Domains whose ops are functions of their inputs alone (the few random ones are not batched)."""


def view(model: ModelProto) -> Graph:
    """Index the main graph of a model; the model is only read.

    Raises:
        ModelError: If the nodes depend on each other in a circle.
    """
    opsets = {
        "" if o.domain in DEFAULT_DOMAINS else o.domain: o.version for o in model.opset_import
    }
    return _indexed(model.graph, opsets, model.ir_version)


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
