"""What a node says by itself: its domain, its attributes, its bodies, and whether its order matters."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Sequence

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, ValueInfoProto, helper

DEFAULT_DOMAINS = ("", "ai.onnx")
MICROSOFT = "com.microsoft"


def domain_of(node: NodeProto) -> str:
    """The node's domain; the default one, which has two spellings, as the empty string."""
    return "" if node.domain in DEFAULT_DOMAINS else node.domain


def attributes(node: NodeProto) -> dict[str, Hashable]:
    """A node's attributes as hashable values; graphs are left out, tensors become bytes."""
    found: dict[str, Hashable] = {}
    for a in node.attribute:
        if a.type in (a.GRAPH, a.GRAPHS):
            continue
        if a.type == a.TENSOR:
            found[a.name] = a.t.SerializeToString(deterministic=True)
        elif a.type in (a.TENSORS, a.SPARSE_TENSOR, a.SPARSE_TENSORS, a.TYPE_PROTO, a.TYPE_PROTOS):
            found[a.name] = a.SerializeToString(deterministic=True)
        else:
            value = helper.get_attribute_value(a)
            found[a.name] = (
                tuple(value)
                if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
                else value
            )
    return found


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
    return read_outside(*subgraphs(node))


def read_outside(*graphs: GraphProto) -> tuple[str, ...]:
    """Names that graphs, with all that is in them, read and do not make, each once, in file order."""
    found: dict[str, None] = {}
    todo: list[tuple[GraphProto | NodeProto | ValueInfoProto, frozenset[str]]] = [
        (graph, frozenset()) for graph in reversed(graphs)
    ]
    while todo:
        part, known = todo.pop()
        if isinstance(part, GraphProto):
            known |= _made(part)
            todo += [(inner, known) for inner in (*part.node, *part.output)][::-1]
            continue
        names = part.input if isinstance(part, NodeProto) else (part.name,)
        found.update(dict.fromkeys(n for n in names if n and n not in known))
        if isinstance(part, NodeProto):
            todo += [(graph, known) for graph in subgraphs(part)][::-1]
    return tuple(found)


def _made(graph: GraphProto) -> set[str]:
    """Names that a graph itself gives values to."""
    made = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    made |= {s.values.name for s in graph.sparse_initializer}
    return made | {o for n in graph.node for o in n.output}


RANDOM = frozenset(
    {
        ("", "Bernoulli"),
        ("", "Multinomial"),
        ("", "RandomNormal"),
        ("", "RandomNormalLike"),
        ("", "RandomUniform"),
        ("", "RandomUniformLike"),
        (MICROSOFT, "Sampling"),
    }
)
"""Ops that draw numbers whenever they run, by domain and op type."""

TRAINING_FLAG = {
    ("", "Dropout"): 2,
    (MICROSOFT, "BiasDropout"): 4,
    (MICROSOFT, "BitmaskBiasDropout"): 4,
    (MICROSOFT, "BitmaskDropout"): 2,
}
"""Ops that draw numbers while training: which operand says that they do."""

KNOWN_DOMAINS = frozenset({"", "ai.onnx.ml", MICROSOFT, "ai.onnx.preview.training"})
"""Domains whose other ops are functions of their inputs alone."""

ACTIONS = frozenset(
    {
        "AllGather",
        "AllReduce",
        "AllToAll",
        "InPlaceAccumulator",
        "InPlaceAccumulatorV2",
        "NcclAllGather",
        "NcclAllReduce",
        "NcclReduceScatter",
        "PythonOp",
        "PythonOpGrad",
        "RecordEvent",
        "Recv",
        "Send",
        "ShardedMoE",
        "WaitEvent",
        "YieldOp",
        *(
            f"Distributed{k}"
            for k in "Expand MatMul ReduceMax ReduceMean ReduceSum Reshape Slice Squeeze Unsqueeze".split()
        ),
    }
)
"""Ops of ONNX Runtime that do something besides: talk to other devices, call out, write in place."""


def has_effect(node: NodeProto, off: Container[str] = ()) -> bool:
    """Whether the order among such nodes matters: random ops, and ops that nobody here knows.

    Bodies count: an If with a random op inside draws numbers when it runs.

    Args:
        node: The node.
        off: Names in the node's graph that are constant and false, such as flags for training.
    """
    kind = (domain_of(node), node.op_type)
    if kind in TRAINING_FLAG:
        flag = "".join(node.input[TRAINING_FLAG[kind] :][:1])
        return bool(flag) and flag not in off
    if kind in RANDOM or kind[0] not in KNOWN_DOMAINS:
        return True
    if kind[0] == MICROSOFT and node.op_type in ACTIONS:
        return True
    # A body may give another meaning to a name: no flag is known to be off there.
    return any(has_effect(inner) for graph in subgraphs(node) for inner in graph.node)
