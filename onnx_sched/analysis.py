"""All that is known about a model before anything is decided."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from onnx_sched import files
from onnx_sched.circuit import Circuit
from onnx_sched.graph import Graph, all_names, view
from onnx_sched.passes.normalise import normalise
from onnx_sched.support import Annotation, annotate
from onnx_sched.values import Values, study


@dataclass(frozen=True, slots=True)
class Analysis:
    """A model seen as wires, layers and units; the model itself is only read."""

    source: files.Source
    graph: Graph
    values: Values
    annotation: Annotation
    circuit: Circuit

    @property
    def names(self) -> set[str]:
        """Every name in use in the model."""
        return all_names(self.source.model)

    @property
    def known(self) -> dict[object, str]:
        """Names of the initializers by the key of their constant, the first of equal ones."""
        constants = self.values.constants
        return {
            constants[name].key: name
            for name in reversed(self.graph.constants)
            if name in constants
        }


def analyse(source: files.Source, *, nonempty: bool = False) -> Analysis:
    """Read a model's structure.

    Args:
        source: The model.
        nonempty: A promise that no batch is empty.

    Raises:
        ModelError: If its nodes form a cycle.
    """
    graph = view(source.model)
    values = study(graph, partial(files.constant, source))
    circuit = replace(normalise(graph, values), nonempty=nonempty)
    return Analysis(source, graph, values, annotate(graph, values), circuit)
