"""Which wires every node of a model touches, and which parallel layer it belongs to.

Ops are live nodes that are no constants.  Edges are data, captures and effects; a Concat whose lanes are
taken apart again is a view, not an op: it stands in nobody's way, and carries the wires of what it views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    """Lay out a graph's wires and layers."""
    resolved = [tuple(values.undone.get(n, n) for n in names) for names in graph.reads]
    ops = _ops(graph, values, resolved)
    number = {k: n for n, k in enumerate(ops)}
    preds = []
    last_effects = _effect_edges(graph)
    for k in ops:
        before = {number[p] for n in resolved[k] if (p := graph.producer.get(n)) in number}
        before |= {number[p] for p in last_effects.get(k, ()) if p in number}
        preds.append(tuple(sorted(before)))
    supports = lanes(preds)
    numbers = layer_numbers(supports)
    wires: list[Support] = [()] * len(graph.nodes)
    layers = [CONSTANT_LAYER] * len(graph.nodes)
    for n, k in enumerate(ops):
        wires[k], layers[k] = supports[n], numbers[n]
    for k in range(len(graph.nodes)):
        if k not in number and graph.live[k]:
            makers = [p for n in graph.reads[k] if (p := graph.producer.get(n)) is not None]
            wires[k] = tuple(sorted({w for p in makers for w in wires[p]}))
            layers[k] = max((layers[p] for p in makers), default=CONSTANT_LAYER)
    width = len({w for s in supports for w in s})
    return Annotation(ops, tuple(wires), tuple(layers), width, max(layers, default=-1) + 1)


def _ops(graph: Graph, values: Values, resolved: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """Nodes that some output needs when views are seen through, constants left out."""
    needed = [False] * len(graph.nodes)
    todo = list(graph.outputs)
    while todo:
        k = graph.producer.get(todo.pop())
        if k is not None and not needed[k]:
            needed[k] = True
            todo += resolved[k]
    for k, node in enumerate(graph.nodes):
        made = [o for o in node.output if o]
        if made and all(o in values.constants for o in made):
            needed[k] = False
    return tuple(k for k, keep in enumerate(needed) if keep)


def _effect_edges(graph: Graph) -> dict[int, list[int]]:
    """For each node with an effect the one before it."""
    edges: dict[int, list[int]] = {}
    for k, before in enumerate(graph.preds):
        data = {graph.producer[n] for n in graph.reads[k] if n in graph.producer}
        extra = [p for p in before if p not in data]
        if extra:
            edges[k] = extra
    return edges
