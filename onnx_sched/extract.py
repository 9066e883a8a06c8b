"""Cut one region out of a model, as it was and as it would be, so that the two can be raced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from onnx_sched.analysis import Analysis
from onnx_sched.constants import Const
from onnx_sched.nodes import captures
from onnx_sched.passes.rewrite import Rewritten
from onnx_sched.tensors import fill, placeholder


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of a model by itself.

    Attributes:
        model: The part; its weights are in it.
        inputs: What it reads from outside.
        outputs: What it hands on.
    """

    model: ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def excerpts(
    analysis: Analysis, rewritten: Rewritten, base: frozenset[int] = frozenset()
) -> tuple[Excerpt, Excerpt] | None:
    """Everything that a rewriting replaces, and what it is replaced by; None if nothing is.

    Both parts hand on the same values.

    Args:
        analysis: The original.
        rewritten: The new graph.
        base: Further nodes of the original that belong to both parts as far as they stay: beside
            their neighbours, where the runtime may fuse them.
    """
    graph = analysis.graph
    kept = {id(m.proto) for m in rewritten.nodes if m.group is None}
    extra = {id(graph.nodes[k]) for k in base}
    new = [m.proto for m in rewritten.nodes if m.group is not None or id(m.proto) in extra]
    old = [
        n for k, n in enumerate(graph.nodes) if graph.live[k] and (k in base or id(n) not in kept)
    ]
    ours = {id(n) for n in new}
    made = {o for n in new for o in n.output if o}
    outside = {n for m in rewritten.nodes if id(m.proto) not in ours for n in reads(m.proto)}
    outside |= set(graph.outputs)
    original = {o for n in old for o in n.output if o}
    outputs = tuple(o for n in new for o in n.output if o in outside and o in original)
    changed = any(m.group is not None for m in rewritten.nodes)
    if not changed or not outputs or set(outputs) != {o for o in made if o in outside}:
        return None
    return (
        _excerpt(analysis, _needed(old, outputs), {}, outputs),
        _excerpt(analysis, new, rewritten.fresh, outputs),
    )


def reads(node: NodeProto) -> list[str]:
    """All names that a node reads."""
    return [n for n in node.input if n] + list(captures(node) if node.attribute else ())


def _needed(nodes: Sequence[NodeProto], outputs: Sequence[str]) -> list[NodeProto]:
    """The nodes that the outputs depend on."""
    needed = set(outputs)
    kept = []
    for node in reversed(nodes):
        if any(o in needed for o in node.output):
            needed.update(reads(node))
            kept.append(node)
    return kept[::-1]


def _excerpt(
    analysis: Analysis,
    nodes: Sequence[NodeProto],
    fresh: dict[str, Const],
    outputs: tuple[str, ...],
) -> Excerpt:
    made = {o for n in nodes for o in n.output}
    names = dict.fromkeys(n for node in nodes for n in reads(node) if n not in made)
    weights: list[TensorProto] = []
    inputs: list[str] = []
    for name in names:
        const = fresh.get(name) or analysis.values.constants.get(name)
        if const is None:
            inputs.append(name)
        else:
            weights.append(placeholder(name, const))
            fill(weights[-1], const)
    graph = helper.make_graph(
        nodes,
        "part",
        [_info(analysis, name) for name in inputs],
        [_info(analysis, name) for name in outputs],
        weights,
    )
    model = helper.make_model(graph, opset_imports=analysis.source.model.opset_import)
    model.ir_version = max(4, analysis.graph.ir_version)
    model.functions.extend(analysis.source.model.functions)
    return Excerpt(model, tuple(inputs), outputs)


def _info(analysis: Analysis, name: str) -> ValueInfoProto:
    """A declaration of a value, as far as its type is known."""
    known = analysis.values.types.get(name)
    if known is None:
        return ValueInfoProto(name=name)
    info: ValueInfoProto = helper.make_tensor_value_info(name, known.elem_type, known.shape)
    return info


def fingerprint(part: Excerpt) -> bytes:
    """What a part computes on what shapes, whatever its names and numbers are."""
    number: dict[str, int] = {}
    words: list[str] = []
    for value in (*part.model.graph.input, *part.model.graph.output):
        number.setdefault(value.name, len(number))
        words.append(value.type.SerializeToString(deterministic=True).hex())
    for tensor in part.model.graph.initializer:
        number.setdefault(tensor.name, len(number))
        words.append(f"{tensor.data_type}{list(tensor.dims)}")
    for node in part.model.graph.node:
        words.append(f"{node.domain}.{node.op_type}")
        for attribute in sorted(node.attribute, key=lambda a: a.name):
            if attribute.type != AttributeProto.TENSOR:
                words.append(attribute.SerializeToString(deterministic=True).hex())
        for name in (*node.input, "/", *node.output):
            words.append(str(number.setdefault(name, len(number))))
    return " ".join(words).encode()
