"""How deep a model is, and how long its longest chain takes.

Layers: an op is one layer below the deepest of what it reads.  With as many workers as a layer has nodes, a
run would take as long as the slowest node of every layer, one after another: the critical-path latency.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from onnx_sched.judge.profiling import NodeTime

Levels = dict[int, int]


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The longest chain of a run.

    Attributes:
        layers: Layers of the graph that was timed.
        critical_us: Sum over the layers of the slowest node, in microseconds.
        nodes_us: Sum over all nodes: what one worker takes without the overhead between nodes.
        joined: How many timed nodes were found in the graph.
        nodes: How many nodes of the graph have a layer.
        source: Which graph, and whose times.
    """

    layers: int
    critical_us: float
    nodes_us: float
    joined: int
    nodes: int
    source: str


def critical_path(graph: GraphProto, times: Sequence[NodeTime], source: str) -> CriticalPath:
    """Join node times with the layers of a graph by the names of the nodes.

    Nodes inside the bodies of If, Loop and Scan count as part of the node that holds the body. A node that
    was not timed takes no time.
    """
    levels = layers(graph)
    names = {graph.node[place].name: level for place, level in levels.items()}
    slowest: dict[int, float] = {}
    total, joined = 0.0, 0
    for node in times:
        level = names.get(node.name)
        if level is None:
            continue
        joined += 1
        total += node.microseconds
        slowest[level] = max(slowest.get(level, 0.0), node.microseconds)
    deep = max(levels.values(), default=0)
    critical = float(sum(slowest.values()))
    return CriticalPath(deep, critical, float(total), joined, len(levels), source)


def depth(model: ModelProto) -> int:
    """Layers of the model as its file says: nodes on its longest chain, constants not counted."""
    return max(layers(model.graph).values(), default=0)


def layers(graph: GraphProto) -> Levels:
    """Place of a node in the file -> its layer, from 1; nodes that only constants feed have none.

    What the body of If, Loop or Scan captures from outside counts as read by the node that holds it.
    """
    constant = {tensor.name for tensor in graph.initializer}
    constant.update(sparse.values.name for sparse in graph.sparse_initializer)
    constant -= {value.name for value in graph.input}
    level: dict[str, int] = {}
    found: Levels = {}
    for place, node in enumerate(graph.node):
        reads = [name for name in (*node.input, *captures(node)) if name]
        random = node.op_type.startswith(("Random", "Bernoulli", "Multinomial"))
        if not random and (reads or node.op_type == "Constant") and constant.issuperset(reads):
            constant.update(name for name in node.output if name)
            continue
        found[place] = 1 + max((level.get(name, 0) for name in reads), default=0)
        level.update((name, found[place]) for name in node.output if name)
    return found


def captures(node: NodeProto) -> tuple[str, ...]:
    """Names that the bodies of a node use but do not define: values from around it."""
    used: dict[str, None] = {}
    defined: set[str] = set()
    for graph in _bodies(node):
        defined.update(value.name for value in graph.input)
        defined.update(tensor.name for tensor in graph.initializer)
        used.update((value.name, None) for value in graph.output)
        for inner in graph.node:
            used.update((name, None) for name in inner.input)
            defined.update(inner.output)
    return tuple(name for name in used if name and name not in defined)


def _bodies(node: NodeProto) -> Iterator[GraphProto]:
    """All graphs inside a node, however deep."""
    waiting = list(_own_bodies(node.attribute))
    while waiting:
        graph = waiting.pop()
        yield graph
        for inner in graph.node:
            waiting.extend(_own_bodies(inner.attribute))


def _own_bodies(attributes: Iterable[AttributeProto]) -> Iterator[GraphProto]:
    for attribute in attributes:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs
