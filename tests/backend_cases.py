"""The test models that the onnx package makes for its own backends, one per operator variant."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx.backend.test.case.model as simple_cases
import onnx.backend.test.case.node as node_cases
from onnx import ModelProto, helper, numpy_helper

SLOW = frozenset({"averagepool", "lppool", "maxpool"})
"""Modules that compute what they expect in Python loops: longer than all others together."""

GRAFT = "graft"
"""Prefix of the names of everything that a graft adds."""


@dataclass(frozen=True, slots=True)
class Case:
    """One model, with the inputs that the package wrote for it."""

    name: str
    model: ModelProto
    inputs: tuple[Any, ...]


def collect(leave_out: Collection[str] = ()) -> list[Case]:
    """All cases, by name, but for the modules of node cases that are left out."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # some cases overflow on purpose
        for module in pkgutil.iter_modules(node_cases.__path__):
            if module.name not in leave_out and not module.ispkg:
                importlib.import_module(f"{node_cases.__name__}.{module.name}")
        if not leave_out:
            node_cases.collect_testcases(None)
        found = [*node_cases._NodeTestCases, *simple_cases.collect_testcases()]
    made = (c for c in found if c.model is not None)
    cases = (Case(c.name, c.model, tuple(c.data_sets[0][0])) for c in made)
    return sorted(cases, key=lambda case: case.name)


def grafted(model: ModelProto, first: bool = False) -> ModelProto:
    """The model with two products of a new input beside it: something that is always batched.

    Args:
        model: Any model; it is not changed.
        first: Whether the new nodes stand before the old ones or after them.
    """
    new = ModelProto()
    new.CopyFrom(model)
    if not any(o.domain in ("", "ai.onnx") for o in new.opset_import):
        new.opset_import.add(version=17)
    graph = new.graph
    shape = [3, 4]
    graph.input.append(helper.make_tensor_value_info(f"{GRAFT}_x", 1, shape))
    nodes = []
    for k in range(2):
        weight = np.arange(16, dtype=np.float32).reshape(4, 4) + k
        graph.initializer.append(numpy_helper.from_array(weight, f"{GRAFT}_w{k}"))
        if new.ir_version < 4:
            graph.input.append(helper.make_tensor_value_info(f"{GRAFT}_w{k}", 1, [4, 4]))
        names = [f"{GRAFT}_x", f"{GRAFT}_w{k}"]
        nodes.append(helper.make_node("MatMul", names, [f"{GRAFT}_y{k}"], f"{GRAFT}_{k}"))
        graph.output.append(helper.make_tensor_value_info(f"{GRAFT}_y{k}", 1, shape))
    if first:
        old = list(graph.node)
        del graph.node[:]
        graph.node.extend([*nodes, *old])
    else:
        graph.node.extend(nodes)
    return new


def pruned(model: ModelProto) -> ModelProto:
    """The model without what a graft brought, or what became of it."""
    new = ModelProto()
    new.CopyFrom(model)
    graph = new.graph
    for values in (graph.input, graph.output, graph.initializer, graph.value_info):
        kept = [v for v in values if not v.name.startswith(GRAFT)]
        del values[:]
        values.extend(kept)
    nodes = [n for n in graph.node if not any(o.startswith(GRAFT) for o in n.output)]
    del graph.node[:]
    graph.node.extend(nodes)
    return new


def in_reach(model: ModelProto) -> bool:
    """Whether the forms of the model's operator set are known, so that a graft is batched."""
    versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    return all(v >= 7 for v in versions)
