"""Where a runtime changes into a blocked layout of images and back, for convolutions that work in it.

ONNX Runtime's CPU provider keeps channels in blocks of 16 between such convolutions, and through what works
number by number.  A Transpose from or to channels last is taken into the change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx import NodeProto

from onnx_sched.dims import Shape
from onnx_sched.nodes import attributes

BLOCK = 16
"""Channels in a block with AVX-512."""

KEEPS = frozenset(
    "AveragePool Clip Elu Gelu GlobalAveragePool GlobalMaxPool HardSigmoid LeakyRelu MaxPool Relu "
    "Sigmoid Tanh".split()
)
"""Ops of one operand that work in the blocked layout, or are taken into the convolution."""

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
    blocked = {n.output[0] for n in nodes if n.op_type == "Conv" and in_blocks(n, shape)}
    for node in nodes:
        if node.op_type in KEEPS and node.input[0] in blocked:
            blocked.add(node.output[0])
    found: dict[str, None] = {}
    for node in nodes:
        if node.op_type != "Conv" or node.output[0] not in blocked:
            continue
        before = maker.get(node.input[0])
        if node.input[0] not in blocked and not _turns(before, INTO):
            found[f"into {node.input[0]}"] = None
    for name in blocked:
        after = readers.get(name, [])
        stays = [n for n in after if n.output[0] in blocked]
        if (
            len(stays) < len(after) and not all(_turns(n, OUT_OF) for n in after if n not in stays)
        ) or not after:
            found[f"out of {name}"] = None
    return [key.rpartition(" ")[2] for key in found]


def in_blocks(node: NodeProto, shape: ShapeOf) -> bool:
    """Whether a convolution works in the blocked layout: on images, every group's channels in blocks."""
    weight = shape(node.input[1])
    if weight is None or len(weight) != 4:
        return False
    group = attributes(node).get("group", 1)
    assert isinstance(group, int)
    filters, channels = weight[0], weight[1]
    if not isinstance(filters, int) or not isinstance(channels, int):
        return False
    return (filters // group) % BLOCK == 0 and channels % BLOCK == 0


def _turns(node: NodeProto | None, perm: tuple[int, ...]) -> bool:
    """Whether a node is the Transpose that is taken into the change."""
    return node is not None and node.op_type == "Transpose" and attributes(node).get("perm") == perm
