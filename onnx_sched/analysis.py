"""All that is known about a model before anything is decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from onnx import GraphProto, NodeProto, TensorProto

from onnx_sched import files
from onnx_sched.circuit import Circuit, Keep, keep_nothing
from onnx_sched.constants import Const
from onnx_sched.graph import Graph, all_names, view, view_body
from onnx_sched.nodes import captures
from onnx_sched.passes.normalise import normalise
from onnx_sched.support import Annotation, annotate
from onnx_sched.values import Values, seen_from, study


@dataclass(frozen=True, slots=True)
class Analysis:
    """One graph of a model seen as wires, layers and units; the model itself is only read.

    Attributes:
        source: The model.
        graph, values, annotation, circuit: The graph, and what is known about it.
        outside: Names of initializers around a body, by the key of their constant.
        reserved: Names that are not in the model but that new ones must avoid all the same.
    """

    source: files.Source
    graph: Graph
    values: Values
    annotation: Annotation
    circuit: Circuit
    outside: Mapping[object, str] = field(default_factory=dict)
    reserved: frozenset[str] = frozenset()

    @property
    def names(self) -> set[str]:
        """Every name that a new value must avoid."""
        return all_names(self.source.model) | self.reserved

    @property
    def known(self) -> dict[object, str]:
        """Names of the initializers by the key of their constant, the first of equal ones."""
        constants = self.values.constants
        own = {
            constants[name].key: name
            for name in reversed(self.graph.constants)
            if name in constants
        }
        return {**self.outside, **own}


def analyse(
    source: files.Source,
    *,
    nonempty: bool = False,
    unsummed: Keep = keep_nothing,
    fresh: Mapping[str, Const] | None = None,
) -> Analysis:
    """Read a model's structure.

    Args:
        source: The model.
        nonempty: A promise that no batch is empty.
        unsummed: Which nodes must not become part of a sum over lanes.
        fresh: Weights that are only placeholders in the model, by name.

    Raises:
        ModelError: If its nodes form a cycle.
    """
    graph = view(source.model)
    new = fresh or {}

    def constant(tensor: TensorProto, owner: str) -> Const | None:
        return new.get(owner) or files.constant(source, tensor, owner)

    values = study(graph, constant, nonempty=nonempty)
    circuit = replace(normalise(graph, values), nonempty=nonempty, unsummed=unsummed)
    return Analysis(source, graph, values, annotate(graph, values), circuit)


def analyse_body(outer: Analysis, node: NodeProto, body: GraphProto, label: str) -> Analysis:
    """Read a graph inside a node, in the light of what is known around it.

    Args:
        outer: The graph that holds the node.
        node: The node.
        body: The graph in one of its attributes.
        label: Sets the body's sizes apart from sizes of the same name elsewhere.
    """
    graph = view_body(outer.graph, body)
    constant = partial(files.constant, outer.source)
    asked, seen = outer.circuit, seen_from(outer.values, captures(node))
    values = study(graph, constant, seen, f"{label}/", nonempty=asked.nonempty)
    circuit = replace(normalise(graph, values), nonempty=asked.nonempty, unsummed=asked.unsummed)
    hidden = {v.name for v in body.input} | {t.name for t in body.initializer}
    hidden |= {o for n in body.node for o in n.output}
    outside = {key: name for key, name in outer.known.items() if name not in hidden}
    annotation = annotate(graph, values)
    return Analysis(outer.source, graph, values, annotation, circuit, outside)
