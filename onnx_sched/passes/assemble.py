"""Put a rewritten graph back into its model: everything else stays, field by field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from onnx import ModelProto, NodeProto, helper

from onnx_sched.circuit import Circuit
from onnx_sched.files import placeholder
from onnx_sched.graph import captures
from onnx_sched.passes.rewrite import Rewritten


def assemble(model: ModelProto, circuit: Circuit, rewritten: Rewritten) -> ModelProto:
    """The new model: new nodes, new weights as placeholders, what is unused now left out.

    Left out are initializers that only vanished nodes read, and notes on values that are gone.  An
    initializer that nobody read before, or that is a graph input or output, stays.
    """
    old = circuit.graph
    nodes = distinct([made.proto for made in rewritten.nodes])
    used = set(old.outputs) | {v.name for v in model.graph.input}
    exist = {t.name for t in model.graph.initializer} | {v.name for v in model.graph.input}
    for node in nodes:
        used.update(node.input)
        used.update(captures(node) if node.attribute else ())
        exist.update(node.output)
    exist |= {s.values.name for s in model.graph.sparse_initializer}
    new = ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy_field(new, field.name, value)
    graph = new.graph
    for field, value in model.graph.ListFields():
        if field.name not in ("node", "initializer", "value_info"):
            _copy_field(graph, field.name, value)
    graph.node.extend(nodes)
    for tensor in model.graph.initializer:
        if tensor.name in used or tensor.name not in old.readers:
            graph.initializer.append(tensor)
    for name, const in rewritten.fresh.items():
        graph.initializer.append(placeholder(name, const))
        if model.ir_version < 4:  # every initializer is listed as an input there; none is fed
            value = helper.make_tensor_value_info(name, const.elem_type, const.shape)
            graph.input.append(value)
    graph.value_info.extend(v for v in model.graph.value_info if v.name in exist)
    return new


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


def _copy_field(target: object, name: str, value: object) -> None:
    """Copy one field of a proto, whatever kind it is."""
    current = getattr(target, name)
    if hasattr(current, "extend"):
        current.extend(value)
    elif hasattr(current, "CopyFrom"):
        current.CopyFrom(value)
    else:
        setattr(target, name, value)
