"""Keep once what stands in a model several times: weights, and nodes that compute the same.

y_k = op_k(x, W_k), k < K, all op_k equal and all W_k equal   ==>   y = op(x, W), read K times
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from onnx import AttributeProto, ModelProto, NodeProto, TensorProto

from onnx_sched.graph import nodes_of, sorted_order
from onnx_sched.nodes import captures, domain_of, has_effect, subgraphs
from onnx_sched.tensors import tensor_bytes

KNOWN = ("", "com.microsoft", "ai.onnx.ml")
"""Domains whose operators are known to give the same for the same inputs."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What stood several times and now stands once.

    Attributes:
        weights: Weights that are left of several equal ones.
        weight_bytes: Bytes of the copies that are gone.
        nodes: Nodes that are left of several that compute the same, constants among them.
    """

    weights: int
    weight_bytes: int
    nodes: int


def share(model: ModelProto) -> Shared:
    """Store equal weights once, then run equal nodes once; the model is changed."""
    weights, saved = store_once(model)
    return Shared(weights, saved, run_once(model))


def store_once(model: ModelProto) -> tuple[int, int]:
    """Weights of equal type, shape and bytes become one.

    Returns:
        How many weights stand for several now, and the bytes of those that are gone.
    """
    fed = {v.name for v in model.graph.input}
    seen: dict[bytes, str] = {}
    names: dict[str, str] = {}
    kept, saved = [], 0
    for tensor in model.graph.initializer:
        if tensor.name in fed:  # whoever runs the model may feed another value
            kept.append(tensor)
            continue
        twin = seen.setdefault(_content(tensor), tensor.name)
        if twin != tensor.name:
            names[tensor.name] = twin
            saved += tensor_bytes(tensor)
        else:
            kept.append(tensor)
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    rename(model, names)
    return len(set(names.values())), saved


def _content(tensor: TensorProto) -> bytes:
    """All of a tensor but its name."""
    bare = TensorProto()
    bare.CopyFrom(tensor)
    bare.name = bare.doc_string = ""
    return bytes(bare.SerializeToString(deterministic=True))


def run_once(model: ModelProto) -> int:
    """Nodes that do the same on the same inputs become one, the first of them; Identity nodes go.

    Returns:
        How many nodes stand for several now.
    """
    nodes = list(model.graph.node)
    outputs = {o.name for o in model.graph.output}
    names: dict[str, str] = {}
    seen: dict[Hashable, NodeProto] = {}
    twins: set[str] = set()
    kept: list[NodeProto] = []
    for k in sorted_order(nodes):
        node = nodes[k]
        for n, name in enumerate(node.input):
            if name in names:
                node.input[n] = names[name]
        if not _alike(node) or outputs & set(node.output):
            kept.append(node)
            continue
        if node.op_type == "Identity":
            names[node.output[0]] = node.input[0]
            continue
        twin = seen.setdefault(_doing(node), node)
        if twin is node:
            kept.append(node)
            continue
        names.update(zip(node.output, twin.output, strict=True))
        twins.add(twin.output[0])
    del model.graph.node[:]
    model.graph.node.extend(kept)
    rename(model, names)
    return len(twins)


def _alike(node: NodeProto) -> bool:
    """Whether the node gives the same wherever it stands, and has nothing in it that would differ."""
    if domain_of(node) not in KNOWN or has_effect(node) or captures(node):
        return False
    return next(subgraphs(node), None) is None and bool(node.output and node.output[0])


def _doing(node: NodeProto) -> Hashable:
    """What two nodes that compute the same have in common.

    Attributes are compared by their bytes: -0.0 is no 0.0, and 1 is no 1.0.
    """
    given = []
    for attribute in node.attribute:
        bare = AttributeProto()
        bare.CopyFrom(attribute)
        bare.doc_string = ""
        if bare.type == AttributeProto.TENSOR:
            bare.t.name = ""
        given.append(bare.SerializeToString(deterministic=True))
    present = tuple(bool(name) for name in node.output)
    return domain_of(node), node.op_type, tuple(sorted(given)), tuple(node.input), present


def rename(model: ModelProto, names: dict[str, str]) -> None:
    """Read other names, in bodies of control flow, too."""
    for node in nodes_of(model.graph):
        for k, name in enumerate(node.input):
            if name in names:
                node.input[k] = names[name]
        for graph in subgraphs(node):
            for value in graph.output:
                value.name = names.get(value.name, value.name)
