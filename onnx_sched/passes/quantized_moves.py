"""Signed bytes are moved before they are dequantised, from opset 21 on.

ONNX Runtime does so itself: it puts a pair of QuantizeLinear and DequantizeLinear behind what moves numbers.
From opset 21 on the first one says of which type it makes its bytes, and where that is int8, with a zero
point, a later pass makes them uint8 without changing that word: the model does not load.

    DequantizeLinear -> Reshape -> Transpose  ==>  Reshape -> Transpose -> DequantizeLinear
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from onnx import NodeProto, TensorProto

from onnx_sched.dims import Shape
from onnx_sched.nodes import captures
from onnx_sched.passes.emit import Emitter
from onnx_sched.passes.quantized_fusions import FAR

OPSET = 21
"""The first in which QuantizeLinear says what it makes."""

Known = Callable[[str], tuple[Shape | None, int]]
"""Says the shape of a value, None if that is not known, and its element type."""


@dataclass(slots=True)
class _Low:
    """A value as it is before it is dequantised.

    Attributes:
        name: Of its bytes.
        root: The node of the graph that dequantises them.
        node: The node that does so after the moves.
    """

    name: str
    root: NodeProto
    node: NodeProto


class Moves:
    """The moves of signed bytes that a graph must not leave to ONNX Runtime."""

    def __init__(
        self,
        nodes: Sequence[NodeProto],
        new: Collection[int],
        outputs: Collection[str],
        known: Known,
        emit: Emitter,
    ) -> None:
        """Look through a graph.

        Args:
            nodes: The new graph, in order.
            new: Identities of the nodes that the original does not have; what others do is its own risk.
            outputs: What others read of the graph.
            known: Shapes and element types of constants.
            emit: Makes names.
        """
        self._nodes = nodes
        self._new = new
        self._outputs = outputs
        self._known = known
        self._emit = emit
        self._readers: dict[str, list[NodeProto]] = defaultdict(list)
        self._low: dict[str, _Low] = {}
        self._turned: dict[int, NodeProto] = {}

    def first(self) -> dict[int, list[tuple[NodeProto, int]]]:
        """What stands in the place of some nodes, by their identities.

        Each comes with the node of the graph whose place in the plan it takes.
        """
        if self._emit.opset < OPSET or not any(map(self._is_signed, self._nodes)):
            return {}
        for node in self._nodes:
            for name in (*node.input, *captures(node)):
                self._readers[name].append(node)
        for node in self._nodes:
            if self._is_signed(node):
                self._low[node.output[0]] = _Low(node.input[0], node, node)
            elif node.op_type in FAR and node.input[0] in self._low and self._is_at_risk(node):
                self._turned[id(node)] = self._turn(node)
        return self._placed() if self._turned else {}

    def _turn(self, move: NodeProto) -> NodeProto:
        """A move of bytes; what dequantises them behind it is noted."""
        source, out = self._low[move.input[0]], move.output[0]
        moved, last = NodeProto(), NodeProto()
        moved.CopyFrom(move)
        moved.input[0], moved.output[0] = source.name, self._emit.name(f"{out}_bytes")
        last.CopyFrom(source.root)
        last.input[0], last.output[0] = moved.output[0], out
        self._low[out] = _Low(moved.output[0], source.root, last)
        return moved

    def _placed(self) -> dict[int, list[tuple[NodeProto, int]]]:
        """The moves, and where somebody reads on what dequantises, under its name once."""
        made: dict[int, list[tuple[NodeProto, int]]] = {}
        named = {id(low.root) for low in self._low.values() if self._is_kept(low)}
        for node in self._nodes:
            low = self._low.get(node.output[0])
            moved = self._turned.get(id(node))
            if low is None or (moved is None and self._is_kept(low)):
                continue
            made[id(node)] = [(moved, id(node))] if moved is not None else []
            if moved is not None and self._is_read(node.output[0]):
                like = low.root if id(low.root) in self._new else node
                del low.node.metadata_props[:]
                low.node.metadata_props.extend(like.metadata_props)
                if id(low.root) in named or like is node:
                    low.node.name = self._emit.name(f"{node.name}_dequantized")
                named.add(id(low.root))
                made[id(node)].append((low.node, id(like)))
        return made

    def _is_kept(self, low: _Low) -> bool:
        """Whether a node dequantises where it did."""
        return low.node is low.root and self._is_read(low.node.output[0])

    def _is_signed(self, node: NodeProto) -> bool:
        """Whether something dequantises signed bytes by one scale and one zero point."""
        if node.op_type != "DequantizeLinear" or len(node.input) < 3 or not node.input[2]:
            return False
        known = [self._known(name) for name in node.input[1:]]
        single = all(shape in ((), (1,)) for shape, _ in known)
        return single and known[1][1] == TensorProto.INT8

    def _is_at_risk(self, move: NodeProto) -> bool:
        """Whether ONNX Runtime would take a DequantizeLinear through a move, and would not without us."""
        readers = self._readers[move.output[0]]
        if not {id(n) for n in (move, *readers)} & set(self._new):
            return False
        exposed = move.output[0] in self._outputs
        return exposed or any(r.op_type != "QuantizeLinear" for r in readers)

    def _is_read(self, name: str) -> bool:
        """Whether somebody needs a value that is dequantised."""
        readers = self._readers[name]
        moved = [r for r in readers if id(r) in self._turned and name not in r.input[1:]]
        return name in self._outputs or len(moved) < len(readers) or not readers
