"""Keep ONNX Runtime from a fusion that ends the process where a batch is empty.

It pushes a Transpose down to the MatMul that reads it, through whatever lies between, and takes it into
the product.  Where that Transpose moves a batch axis, the fused node divides by zero on a batch of nothing.

    Transpose -> ... -> MatMul   ==>   Transpose -> Reshape(0, 0, ...) -> ... -> MatMul

The Reshape changes nothing and costs no copy, but the Transpose stays above it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnx import NodeProto

from onnx_sched.passes.emit import Emitter

BARRIERS = frozenset(
    "Conv Einsum Gemm MatMul MatMulInteger MatMulNBits QLinearMatMul Reshape".split()
)
"""Ops through which a Transpose is not pushed."""

PRODUCTS = frozenset({"MatMul", "FusedMatMul"})


def exposed(nodes: Sequence[NodeProto], is_new: Callable[[NodeProto], bool]) -> list[NodeProto]:
    """New Transposes that move batch axes and that a MatMul reads without a barrier in between."""
    makers = {o: node for node in nodes for o in node.output if o}
    seen: set[str] = set()
    found: list[NodeProto] = []
    todo = [i for node in nodes if node.op_type in PRODUCTS for i in node.input]
    while todo:
        name = todo.pop()
        maker = makers.get(name)
        if maker is None or name in seen or maker.op_type in BARRIERS:
            continue
        seen.add(name)
        todo += maker.input
        if is_new(maker) and maker.op_type == "Transpose" and moves_batch(maker):
            found.append(maker)
    return found


def moves_batch(transpose: NodeProto) -> bool:
    """Whether a Transpose does more than to swap the last two axes."""
    perm = [p for a in transpose.attribute if a.name == "perm" for p in a.ints]
    return perm[:-2] != list(range(len(perm) - 2))


def barriers(
    nodes: Sequence[NodeProto], emit: Emitter
) -> Mapping[str, tuple[NodeProto, NodeProto]]:
    """By the name of a Transpose's output: the Transpose under another name, and the Reshape behind it."""
    found = {}
    for node in nodes:
        rank = sum(len(a.ints) for a in node.attribute if a.name == "perm")
        moved, same = NodeProto(), emit.ints([0] * rank, f"{node.output[0]}_same")
        moved.CopyFrom(node)
        moved.output[0] = emit.name(f"{node.output[0]}_moved")
        emit.node("Reshape", [moved.output[0], same], f"{node.name}_apart", list(node.output))
        reshape = emit.nodes.pop()
        reshape.metadata_props.extend(node.metadata_props)
        found[node.output[0]] = (moved, reshape)
    return found
