"""Graphs inside nodes: each body of an If, Loop or Scan is a circuit of its own.

A group never reaches across the border of a body, since a body may run never, once or often.  What a body
reads from outside counts as an input of it; constants outside are constants inside.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnx import AttributeProto, GraphProto, NodeProto

from onnx_sched.analysis import Analysis, analyse_body
from onnx_sched.circuit import node_label
from onnx_sched.nodes import subgraphs


@dataclass(frozen=True, slots=True)
class Place:
    """Where a body hangs in the graph around it.

    Attributes:
        output: The first output of the node; it keeps its name whatever is rewritten around it.
        attribute: The node's attribute.
        index: Place among the attribute's graphs; 0 where it holds just one.
    """

    output: str
    attribute: str
    index: int


@dataclass(frozen=True, slots=True)
class Body:
    """A body in which something might be done.

    Attributes:
        path: The way to it from the main graph.
        label: What a person calls it: node and attribute, from the outside in.
        analysis: All that is known about it.
    """

    path: tuple[Place, ...]
    label: str
    analysis: Analysis


def bodies(analysis: Analysis) -> tuple[Body, ...]:
    """All bodies with at least two nodes, at any depth, outer ones first, in the file's order."""
    found: list[Body] = []
    labels: set[str] = set()
    todo: list[tuple[tuple[Place, ...], str, Analysis]] = [((), "", analysis)]
    while todo:
        path, label, outer = todo.pop(0)
        for k, node in enumerate(outer.graph.nodes):
            if outer.values.op(node) is not node:
                continue  # its branches are one op, and what never runs
            for place, graph in hung(node):
                if len(graph.node) < 2 and not any(list(subgraphs(n)) for n in graph.node):
                    continue
                where = f"{node_label(outer.graph, k)}/{place.attribute}"
                where = f"{where}[{place.index}]" if place.index else where
                where = f"{label}/{where}" if label else where
                while where in labels:  # nodes may share a name
                    where = f"{where} at {place.output}"
                labels.add(where)
                body = Body((*path, place), where, analyse_body(outer, node, graph, where))
                found.append(body)
                todo.append((body.path, body.label, body.analysis))
    return tuple(found)


def hung(node: NodeProto) -> Iterator[tuple[Place, GraphProto]]:
    """The graphs in a node's attributes, each with its place."""
    output = next((o for o in node.output if o), "")
    if not output:
        return  # nobody can tell it from others
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield Place(output, attribute.name, 0), attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            for index, graph in enumerate(attribute.graphs):
                yield Place(output, attribute.name, index), graph


def replaced(
    nodes: Sequence[NodeProto], graphs: Mapping[tuple[Place, ...], GraphProto]
) -> list[NodeProto]:
    """The nodes with new bodies: those that hold one are copied, the rest are handed on.

    Args:
        nodes: Nodes of the main graph.
        graphs: New bodies by their path; bodies inside them are replaced after them.
    """
    result = list(nodes)
    at = {o: n for n, node in enumerate(nodes) for o in node.output if o}
    copied: set[int] = set()
    for path in sorted(graphs, key=len):
        n = at[path[0].output]
        if n not in copied:
            copy = NodeProto()
            copy.CopyFrom(result[n])
            result[n] = copy
            copied.add(n)
        node = result[n]
        for place, inner in itertools.pairwise(path):
            graph = _graph(node, place)
            node = next(m for m in graph.node if inner.output in m.output)
        _graph(node, path[-1]).CopyFrom(graphs[path])
    return result


def _graph(node: NodeProto, place: Place) -> GraphProto:
    """The graph at a place of a node, to be changed."""
    attribute = next(a for a in node.attribute if a.name == place.attribute)
    graph: GraphProto = attribute.graphs[place.index] if attribute.graphs else attribute.g
    return graph
