"""Where a runtime changes into a blocked layout of images and back, for convolutions that work in it.

ONNX Runtime's CPU provider keeps channels in blocks of 16 (with AVX-512) between such convolutions, and
through some of what works number by number.  A Transpose from or to channels last is taken into the change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx import NodeProto

from onnx_sched.dims import Shape
from onnx_sched.nodes import attributes

BLOCK = 16

KEEPS = frozenset(
    "AveragePool Clip Elu Gelu GlobalAveragePool GlobalMaxPool HardSigmoid LeakyRelu MaxPool Relu "
    "Sigmoid Tanh".split()
)
"""Ops of one operand that work in the blocked layout, or are taken into the convolution."""

JOINS = frozenset("Add Concat Mul Sum".split())
"""Ops that work in it where all their operands lie so."""

INTO, OUT_OF = (0, 3, 1, 2), (0, 2, 3, 1)

ShapeOf = Callable[[str], Shape | None]


def reorders(nodes: Sequence[NodeProto], shape: ShapeOf) -> list[str]:
    """The values that are brought into the blocked layout, or out of it; one may be named for either.

    Args:
        nodes: In order.
        shape: Gives the shape of a value, if known.
    """
    maker = {o: n for n in nodes for o in n.output if o}
    readers: dict[str, list[NodeProto]] = {}
    for node in nodes:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    blocked: dict[str, None] = {}
    into: dict[str, None] = {}
    for node in nodes:
        kept = node.op_type in KEEPS and node.input[0] in blocked
        joined = node.op_type in JOINS and all(name in blocked for name in node.input)
        if kept or joined:
            blocked[node.output[0]] = None
        elif node.op_type == "Conv" and in_blocks(node, shape):
            name = node.input[0]
            if (
                name not in blocked
                and _reads_blocks(node, shape)
                and not _turns(maker.get(name), INTO)
            ):
                into[name] = None
            blocked[node.output[0]] = None
    out_of = []
    for name in blocked:
        others = [n for n in readers.get(name, ()) if n.output[0] not in blocked]
        if not readers.get(name) or (others and not all(_turns(n, OUT_OF) for n in others)):
            out_of.append(name)
    return [*into, *out_of]


def in_blocks(node: NodeProto, shape: ShapeOf) -> bool:
    """Whether a convolution works in the blocked layout: on images, the channels of every group in blocks."""
    weight, group = shape(node.input[1]), _group(node)
    if weight is None or len(weight) != 4:
        return False
    filters, channels = weight[0], weight[1]
    if not isinstance(filters, int) or not isinstance(channels, int):
        return False
    each = channels == 1 and filters == group
    return group == 1 or each or ((filters // group) % BLOCK == 0 and channels % BLOCK == 0)


def _reads_blocks(node: NodeProto, shape: ShapeOf) -> bool:
    """Whether it reads blocks, too: less than one of them is read as it lies."""
    weight = shape(node.input[1])
    return (
        _group(node) > 1 or weight is None or not isinstance(weight[1], int) or weight[1] >= BLOCK
    )


def _group(node: NodeProto) -> int:
    group = attributes(node).get("group", 1)
    assert isinstance(group, int)
    return group


def _turns(node: NodeProto | None, perm: tuple[int, ...]) -> bool:
    """Whether a node is the Transpose that is taken into the change."""
    return node is not None and node.op_type == "Transpose" and attributes(node).get("perm") == perm
