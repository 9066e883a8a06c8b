"""Which wires every node of a model touches, and which parallel layer it belongs to.

Ops are live nodes that are no constants.  Edges are data, captures and effects; a Concat whose lanes are
taken apart again is a view, not an op: it stands in nobody's way, and carries the wires of what it views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from onnx import NodeProto

from onnx_sched.graph import Graph
from onnx_sched.layers import layer_numbers
from onnx_sched.values import Values
from onnx_sched.wires import Support, lanes

CONSTANT_LAYER = -1
"""The layer that is noted on constants: they are there before anything runs."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """Wires and layers of a graph's nodes, by the node's place.

    Attributes:
        ops: The nodes that take part in the schedule, ascending.
        wires: Wires of every node; empty for constants and dead nodes.
        layers: Layer of every node, from 0; `CONSTANT_LAYER` for constants and dead nodes.
        lanes: Number of wires.
        depth: Number of layers.
    """

    ops: tuple[int, ...]
    wires: tuple[Support, ...]
    layers: tuple[int, ...]
    lanes: int
    depth: int


def annotate(graph: Graph, values: Values) -> Annotation:
    """Lay out a graph's wires and layers; the order of the nodes in the file changes nothing."""
    resolved = [tuple(values.undone.get(n, n) for n in names) for names in graph.reads]
    before = _edges(graph, resolved)
    ops = _ops(graph, values, before)
    number = {k: n for n, k in enumerate(ops)}
    supports = lanes([tuple(sorted({number[p] for p in before[k] if p in number})) for k in ops])
    numbers = layer_numbers(supports)
    wires: list[Support] = [()] * len(graph.nodes)
    layers = [CONSTANT_LAYER] * len(graph.nodes)
    for n, k in enumerate(ops):
        wires[k], layers[k] = supports[n], numbers[n]
    for k, node in enumerate(graph.nodes):
        if k not in number and graph.live[k] and not _is_constant(node, values):
            makers = [p for n in graph.reads[k] if (p := graph.producer.get(n)) is not None]
            wires[k] = tuple(sorted({w for p in makers for w in wires[p]}))
            layers[k] = max((layers[p] for p in makers), default=CONSTANT_LAYER)
    width = len({w for s in supports for w in s})
    return Annotation(
        tuple(sorted(ops)), tuple(wires), tuple(layers), width, max(layers, default=-1) + 1
    )


def _edges(graph: Graph, resolved: Sequence[Sequence[str]]) -> list[list[int]]:
    """By node that an output needs: the nodes that run before it, in the order of what it reads.

    Nodes with an effect keep their order; one whose effect nobody needs takes no part.
    """
    edges = [[p for n in names if (p := graph.producer.get(n)) is not None] for names in resolved]
    needed = [False] * len(edges)
    todo = [graph.producer[o] for o in graph.outputs if o in graph.producer]
    while todo:
        k = todo.pop()
        if not needed[k]:
            needed[k] = True
            todo += edges[k]
    effects = [k for k, effect in enumerate(graph.effects) if needed[k] and effect]
    for first, then in pairwise(effects):
        edges[then].append(first)
    return edges


def _is_constant(node: NodeProto, values: Values) -> bool:
    made = [o for o in node.output if o]
    return bool(made) and all(o in values.constants for o in made)


def _ops(graph: Graph, values: Values, before: Sequence[Sequence[int]]) -> list[int]:
    """Nodes that some output needs when views are seen through, constants left out.

    They come depth first from the outputs, a topological order that knows nothing of the file's:
    branch g is the g-th that whoever joins them reads.
    """
    ops: list[int] = []
    seen: set[int] = set()
    for output in graph.outputs:
        last = graph.producer.get(output)
        path = [] if last is None or last in seen else [(last, iter(before[last]))]
        seen |= {k for k, _ in path}
        while path:
            node, rest = path[-1]
            k = next((k for k in rest if k not in seen), None)
            if k is None:
                path.pop()
                ops.append(node)
            else:
                seen.add(k)
                path.append((k, iter(before[k])))
    return [k for k in ops if not _is_constant(graph.nodes[k], values)]
