"""Put a rewritten graph back into its model: everything else stays, field by field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from google.protobuf.unknown_fields import UnknownFieldSet
from onnx import GraphProto, ModelProto, NodeProto, helper

from onnx_sched.bodies import Body, Place, replaced
from onnx_sched.circuit import Circuit
from onnx_sched.nodes import captures
from onnx_sched.passes.rewrite import Rewritten
from onnx_sched.tensors import placeholder


def assemble(
    model: ModelProto,
    circuit: Circuit,
    rewritten: Rewritten,
    inner: Sequence[tuple[Body, Rewritten]] = (),
) -> ModelProto:
    """The new model: new nodes, new weights as placeholders, what is unused now left out.

    Left out are initializers that only vanished nodes read, and notes on values that are gone.  An
    initializer that nobody read before, or that is a graph input or output, stays.

    Args:
        model: The original.
        circuit: Its main graph.
        rewritten: The main graph's new nodes.
        inner: Bodies in nodes that stay, with their new nodes.
    """
    graphs: dict[tuple[Place, ...], GraphProto] = {}
    for body, made in inner:
        graphs[body.path] = GraphProto()
        _fill(graphs[body.path], body.analysis.circuit, made, _protos(made))
    nodes = replaced(distinct(_protos(rewritten)), graphs)
    new = ModelProto()
    _copy_all_but(new, model, ("graph",))
    _fill(new.graph, circuit, rewritten, nodes)
    for made in (rewritten, *(m for _, m in inner)):
        for name, const in made.fresh.items():
            new.graph.initializer.append(placeholder(name, const))
            if model.ir_version < 4:  # every initializer is listed as an input there; none is fed
                value = helper.make_tensor_value_info(name, const.elem_type, const.shape)
                new.graph.input.append(value)
    return new


def _protos(rewritten: Rewritten) -> list[NodeProto]:
    return [made.proto for made in rewritten.nodes]


def _fill(
    graph: GraphProto, circuit: Circuit, rewritten: Rewritten, nodes: Sequence[NodeProto]
) -> None:
    """Make an empty graph the old one with other nodes, without what only vanished nodes had use for."""
    old = circuit.graph
    used = {*(v.name for v in old.proto.input), *old.outputs}
    for node in nodes:
        used.update(node.input)
        used.update(captures(node) if node.attribute else ())
    _copy_all_but(graph, old.proto, ("node", "initializer", "value_info"))
    graph.node.extend(nodes)
    for tensor in old.proto.initializer:
        if tensor.name in used or tensor.name not in old.readers:
            graph.initializer.append(tensor)
    gone = {*old.producer, *(t.name for t in old.proto.initializer)}
    gone -= {o for node in nodes for o in node.output} | {t.name for t in graph.initializer}
    graph.value_info.extend(v for v in old.proto.value_info if v.name not in gone)


def doubled(nodes: Iterable[NodeProto]) -> list[str]:
    """Node names that stand more than once; ONNX Runtime refuses such a graph."""
    return [n for n, c in Counter(node.name for node in nodes if node.name).items() if c > 1]


def distinct(nodes: Sequence[NodeProto]) -> list[NodeProto]:
    """The nodes with every name once; the first to bear a name keeps it."""
    if not doubled(nodes):
        return list(nodes)
    taken, seen = {n.name for n in nodes}, set[str]()
    result = []
    for node in nodes:
        if node.name and node.name in seen:
            copy, n = NodeProto(), 2
            copy.CopyFrom(node)
            while f"{node.name}_{n}" in taken:
                n += 1
            copy.name = f"{node.name}_{n}"
            taken.add(copy.name)
            result.append(copy)
        else:
            result.append(node)
        seen.add(node.name)
    return result


def _copy_all_but(
    target: ModelProto | GraphProto, source: ModelProto | GraphProto, left_out: Collection[str]
) -> None:
    """Copy all fields but some, those that the installed onnx does not know included."""
    odd = []
    for field, value in source.ListFields():
        if field.name in left_out:
            continue
        current = getattr(target, field.name)
        if isinstance(value, bytes):  # text that is no UTF-8: it can be read, but not be set
            odd.append(field.name)
        elif hasattr(current, "extend"):
            current.extend(value)
        elif hasattr(current, "CopyFrom"):
            current.CopyFrom(value)
        else:
            setattr(target, field.name, value)
    if odd or len(UnknownFieldSet(source)):
        bare = type(source)()
        bare.CopyFrom(source)
        for field, _ in source.ListFields():
            if field.name not in odd:
                bare.ClearField(field.name)
        target.MergeFrom(bare)
