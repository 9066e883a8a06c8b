"""Whether ONNX Runtime still runs on integers what it ran on integers, and rounds nothing that it did not.

A product of numbers that are dequantised right before it runs on integers.  With something in between that
only takes lanes out of what is dequantised together, it runs on floats, slower, and if only its weight is
still dequantised right before it, they are rounded for it by blocks (MatMulNBits):

    DequantizeLinear -> MatMul by DequantizeLinear           on integers, exactly
    DequantizeLinear -> Split -> MatMul by DequantizeLinear  what is multiplied is rounded once more

Signed bytes it makes unsigned ones first, where they are quantised right before they are dequantised.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from onnx import NodeProto, TensorProto

from onnx_sched.dims import Shape
from onnx_sched.passes.quantized_fusions import CLIPS, FAR, NEAR, PRODUCTS, WEIGHED

FLOATS, ROUNDED, INTEGERS, BYTES = "floats", "rounded", "integers", "bytes"
"""How a product runs: on floats, after rounding them, on integers, or on integers that it makes, too."""

Known = Callable[[str], tuple[Shape | None, int]]
"""Says the shape of a value, None if that is not known, and its element type."""


class Manners:
    """How the products of a graph run."""

    def __init__(self, nodes: Sequence[NodeProto], outputs: Collection[str], known: Known) -> None:
        """Look through a graph.

        Args:
            nodes: Its nodes.
            outputs: What others read of it.
            known: Shapes and element types of constants, and of what the original has.
        """
        self._outputs = outputs
        self._known = known
        self._makers: dict[str, NodeProto] = {}
        self._readers: dict[str, list[NodeProto]] = defaultdict(list)
        for node in nodes:
            self._makers |= dict.fromkeys(node.output, node)
            for name in node.input:
                self._readers[name].append(node)

    def of(self, op: NodeProto) -> str:
        """How a product runs."""
        behind = self.quantised(op.output[0])
        if self._on_bytes(op, behind) and (behind or op.op_type in PRODUCTS):
            return BYTES if behind else INTEGERS
        one = op.op_type in PRODUCTS and not behind and not self.dequantised(op.input[0])
        return ROUNDED if one and self._is_packed(op.input[1]) else FLOATS

    def rounds_weights(self, op: NodeProto) -> bool:
        """Whether floats that are constant weights are rounded for a product."""
        if op.op_type not in WEIGHED or self._maker(op.input[1]) is not None:
            return False
        maker, _ = self._source(op.input[0])
        return self.of(op) == BYTES and maker is not None and self._is_single(maker)

    def way(self, op: NodeProto, ahead: bool) -> Iterator[NodeProto]:
        """What is behind a product, or what is ahead of it, the nearest first."""
        seen: set[str] = set()
        todo = [op]
        for node in todo:
            yield node
            for name in node.output if ahead else node.input:
                if name not in seen:
                    seen.add(name)
                    maker = self._makers.get(name)
                    todo += self._readers[name] if ahead else [maker] if maker is not None else []

    def dequantised(self, name: str) -> bool:
        """Whether ONNX Runtime sees that a value is dequantised."""
        maker, hops = self._source(name)
        if maker is None or maker.op_type != "DequantizeLinear":
            return False
        return hops <= NEAR or self._is_single(maker)

    def quantised(self, name: str) -> bool:
        """Whether all that reads a value quantises it, to unsigned bytes or what becomes such."""
        readers = self._readers[name]
        if not readers or name in self._outputs:
            return False
        quantisers = [r for r in readers if r.op_type == "QuantizeLinear"]
        if not all(
            self._elem_type(q) != TensorProto.INT8 or self._is_paired(q) for q in quantisers
        ):
            return False
        moved = [r for r in readers if r.op_type != "QuantizeLinear"]
        return all(r.op_type in FAR | CLIPS and self.quantised(r.output[0]) for r in moved)

    def _is_paired(self, quantiser: NodeProto) -> bool:
        """Whether only DequantizeLinear reads what something makes."""
        todo = [quantiser.output[0]]
        for name in todo:
            readers = self._readers[name]
            todo += [r.output[0] for r in readers if r.op_type == "Identity"]
            known = all(r.op_type in ("DequantizeLinear", "Identity") for r in readers)
            if name in self._outputs or not known:
                return False
        return True

    def _on_bytes(self, op: NodeProto, behind: bool) -> bool:
        """Whether all that a product reads is dequantised, or a constant to be rounded for its result."""
        for k, name in enumerate(op.input):
            constant = behind and op.op_type in WEIGHED and k > 0 and self._maker(name) is None
            if not constant and not self.dequantised(name):
                return False
        return self._is_unsigned(op.input[0])

    def _is_unsigned(self, name: str) -> bool:
        """Whether a value is dequantised from unsigned bytes, or from what becomes such."""
        maker, _ = self._source(name)
        if maker is None or self._elem_type(maker) != TensorProto.INT8:
            return True
        source = self._maker(maker.input[0])
        return source is not None and source.op_type == "QuantizeLinear"

    def _elem_type(self, node: NodeProto) -> int:
        """Of the bytes that something makes or reads."""
        if len(node.input) > 2 and node.input[2]:
            return self._known(node.input[2])[1]
        return self._known(node.input[0] if node.op_type == "DequantizeLinear" else node.output[0])[
            1
        ]

    def _is_packed(self, name: str) -> bool:
        """Whether a weight is a dequantised constant matrix that nobody else reads."""
        maker, hops = self._source(name)
        if len(self._readers[name]) != 1 or not self.dequantised(name) or not hops <= NEAR:
            return False
        assert maker is not None
        shape, _ = self._known(maker.input[0])
        return self._maker(maker.input[0]) is None and len(shape or ()) == 2

    def _source(self, name: str) -> tuple[NodeProto | None, set[str]]:
        """What computes a value before it is moved, and the moves."""
        hops = set[str]()
        maker = self._maker(name)
        while maker is not None and maker.op_type in FAR:
            hops.add(maker.op_type)
            maker = self._maker(maker.input[0])
        return maker, hops

    def _is_single(self, node: NodeProto) -> bool:
        """Whether something dequantises by one scale."""
        return self._known(node.input[1])[0] in ((), (1,))

    def _maker(self, name: str) -> NodeProto | None:
        """What computes a value."""
        maker = self._makers.get(name)
        while maker is not None and maker.op_type == "Identity":
            maker = self._makers.get(maker.input[0])
        return maker if maker is not None and maker.op_type != "Constant" else None


def worse(
    old: Manners,
    new: Manners,
    nodes: Sequence[tuple[NodeProto, int | None]],
    members: Mapping[int, Sequence[NodeProto]],
) -> tuple[int, str] | None:
    """A group that makes a product run worse than it did, by its number, and why; None if there is none.

    Args:
        old: The original.
        new: The new graph.
        nodes: The new nodes, each with the number of the group that it serves.
        members: By such a number: the nodes that the group replaces.
    """
    group_of = {id(node): group for node, group in nodes}
    for node, group in nodes:
        if node.domain or node.op_type not in PRODUCTS | WEIGHED:
            continue
        manner = new.of(node)
        if group is not None:
            before = [n for n in members[group] if n.op_type in PRODUCTS | WEIGHED]
            if manner == ROUNDED and any(old.of(n) != ROUNDED for n in before):
                return group, "ONNX Runtime would round what the product reads"
            if manner != BYTES and any(map(old.rounds_weights, before)):
                return group, "ONNX Runtime runs them on integers, and would not one node for all"
            continue
        if not _is_worse(old.of(node), manner):
            continue
        out = node.output[0]
        ahead = old.quantised(out) and not new.quantised(out)
        found = (group_of[id(n)] for side in (ahead, not ahead) for n in new.way(node, side))
        blamed = next((g for g in found if g is not None), None)
        if blamed is not None:
            place = "before" if ahead else "behind"
            return blamed, f"ONNX Runtime would not run the {node.op_type} {place} it on integers"
    return None


def _is_worse(before: str, after: str) -> bool:
    """Whether a product ran on integers that does not any more, or is rounded for that was not."""
    return before != after and (before in (INTEGERS, BYTES) or after == ROUNDED)
