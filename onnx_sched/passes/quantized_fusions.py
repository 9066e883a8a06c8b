"""Find where ONNX Runtime would take a scale for every lane into an op that knows one scale.

What stands between DequantizeLinear and QuantizeLinear it runs on the integers.  It does not look at the
scales before, and what it makes refuses more than one, or takes the first for all:

    DequantizeLinear(axis) -> Sigmoid -> QuantizeLinear(axis)   becomes a QLinearSigmoid that is refused
    DequantizeLinear -> Softmax -> QuantizeLinear(axis)         becomes a QLinearSoftmax that is wrong
    DequantizeLinear -> Conv by floats -> QuantizeLinear(axis)  rounds the weights to eight bits

It does so through Transposes, and carries a single scale, but no other, along through all that moves
numbers without a change.  So nothing keeps a single scale from a Conv, where the weights of all lanes would
be rounded by one scale: there lanes have a scale each, also if all are equal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from onnx import NodeProto

from onnx_sched.circuit import LINEAR, Circuit, Unit
from onnx_sched.constants import Const

FUSED = frozenset(
    "Add AveragePool Concat Conv ConvTranspose Gemm GlobalAveragePool LeakyRelu MatMul Mul Sigmoid "
    "Softmax Where".split()
)
"""Ops that may become one node with what dequantises before and quantises behind them."""

PRODUCTS = frozenset({"Gemm", "MatMul"})
"""Those that may do so, too, where nothing quantises behind them."""

WEIGHED = frozenset({"Conv", "ConvTranspose", "Gemm"})
"""Those whose constant weights may be quantised for it, also where the result is clipped first."""

NEAR = frozenset({"Identity", "Transpose"})
"""Ops through which scales by lane are seen."""

FAR = NEAR | frozenset("Flatten MaxPool Reshape Slice Squeeze Unsqueeze".split())
"""Ops through which a single scale is carried."""

LANEWISE = frozenset({"Concat", "Gather", "Split"})
"""Ops that may be gone where lanes run as one."""

CLIPS = frozenset({"Clip", "Relu"})
"""Ops that may be left out before QuantizeLinear."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A node as it is seen from an op: None for a constant.

    Attributes:
        node: What it is.
        hops: The ops in between.
        by_lane: Whether it is new and has scales of several lanes.
    """

    node: NodeProto | None
    hops: frozenset[str]
    by_lane: bool


class QuantizedFusions:
    """The fusions that must not be, in each of which one node is to be kept apart from the op.

    Attributes:
        before: DequantizeLinears, by identity, to be kept from what reads them.
        behind: QuantizeLinears, by identity, to be kept from what they read.
    """

    def __init__(
        self,
        nodes: Sequence[NodeProto],
        new: Collection[int],
        rank: Callable[[str], int | None],
    ) -> None:
        """Look through a graph.

        Args:
            nodes: The new graph.
            new: Identities of the nodes that the original does not have; what others do is its own risk.
            rank: Says how many axes a constant has.
        """
        self.before: dict[int, NodeProto] = {}
        self.behind: dict[int, NodeProto] = {}
        self._rank = rank
        self._by_lane = {id(n) for n in nodes if id(n) in new and _has_axis(n)}
        self._makers: dict[str, NodeProto] = {}
        self._readers: dict[str, list[NodeProto]] = defaultdict(list)
        if not self._by_lane:
            return
        for node in nodes:
            self._makers |= dict.fromkeys(node.output, node)
            for name in set(node.input):
                self._readers[name].append(node)
        for node in nodes:
            if node.op_type in FUSED and not node.domain:
                self._look_at(node)

    def _look_at(self, op: NodeProto) -> None:
        """Note what is to be kept from an op, if it might become one with what quantises around it."""
        sources = self._sources(op)
        behind = list(self._quantisers(op))
        if not sources or not (behind or op.op_type in PRODUCTS):
            return
        before = [s.node for k, s in enumerate(sources) if s.node and self._is_wrong(op, k, s)]
        wrong = [q.node for q in behind if q.node and q.by_lane]
        if before and (op.op_type in PRODUCTS or not wrong):
            self.before[id(before[0])] = before[0]
        else:
            self.behind |= {id(q): q for q in wrong}

    def _sources(self, op: NodeProto) -> list[_Seen]:
        """What dequantises the operands; nothing if one of them comes from elsewhere."""
        found = []
        for k, name in enumerate(_quantised(op)):
            source = self._source(name)
            constant = op.op_type == "Where" or (op.op_type in WEIGHED and k == 1)
            if source.node is None and not constant:
                return []
            if source.node is not None and source.node.op_type != "DequantizeLinear":
                return []
            if source.by_lane and not source.hops <= NEAR:
                return []
            found.append(source)
        floats = op.op_type in WEIGHED and found[1].node is None
        return [] if floats and found[0].by_lane else found

    def _source(self, name: str) -> _Seen:
        """What makes a value before it is moved."""
        hops = set[str]()
        maker = self._makers.get(name)
        while maker is not None and maker.op_type in FAR:
            hops.add(maker.op_type)
            maker = self._makers.get(maker.input[0])
        if maker is not None and maker.op_type == "Constant":
            maker = None
        return _Seen(maker, frozenset(hops), id(maker) in self._by_lane)

    def _quantisers(self, op: NodeProto) -> Iterator[_Seen]:
        """What quantises the result of an op, as far as it is seen from there."""
        near = NEAR | CLIPS if op.op_type in WEIGHED else NEAR
        todo = [(op.output[0], frozenset[str]())]
        while todo:
            name, hops = todo.pop()
            for reader in self._readers[name]:
                if reader.input[0] != name:
                    continue
                if reader.op_type == "QuantizeLinear":
                    by_lane = id(reader) in self._by_lane
                    if not by_lane or hops <= near:
                        yield _Seen(reader, hops, by_lane)
                elif reader.op_type in FAR | CLIPS:
                    todo.append((reader.output[0], hops | {reader.op_type}))

    def _is_wrong(self, op: NodeProto, k: int, source: _Seen) -> bool:
        """Whether an operand has scales of several lanes that are not those of a weight's columns."""
        if not source.by_lane or source.node is None:
            return False
        if k != 1 or source.hops:
            return True
        axis: int = next(a.i for a in source.node.attribute if a.name == "axis")
        if op.op_type == "Conv":
            return axis != 0
        turned = any(a.name == "transB" and a.i for a in op.attribute)
        matrix = op.op_type in PRODUCTS and self._rank(source.node.input[0]) == 2
        return not matrix or bool(axis % 2) == turned


def _has_axis(node: NodeProto) -> bool:
    """Whether something quantises or dequantises by more than one scale."""
    kinds = ("DequantizeLinear", "QuantizeLinear")
    return node.op_type in kinds and any(a.name == "axis" for a in node.attribute)


def _quantised(op: NodeProto) -> Sequence[str]:
    """The operands that must be dequantised, so that an op can run on integers."""
    operands = list(op.input)
    if op.op_type == "Where":
        return operands[1:]
    return operands[:2] if op.op_type in WEIGHED else operands


def at_rounded_weights(unit: Unit, circuit: Circuit) -> bool:
    """Whether something quantises or dequantises for an op of which constant weights would be rounded.

    What only brings lanes together or takes them apart may be gone when they run as one.
    """
    if unit.kind == "QuantizeLinear":
        ops = _behind(unit, circuit, FAR | CLIPS | LANEWISE)
    else:
        ops = _ahead(unit, circuit, FAR | LANEWISE)
    return any(_is_rounded(op, circuit) for op in ops)


def _is_rounded(op: Unit, circuit: Circuit) -> bool:
    """Whether constant weights stand between what dequantises and what quantises."""
    if op.kind not in {"Conv", "ConvTranspose", LINEAR} or not isinstance(op.operands[1], Const):
        return False
    sources = _behind(op, circuit, FAR | LANEWISE)
    if all(source.kind != "DequantizeLinear" for source in sources):
        return False
    return any(u.kind == "QuantizeLinear" for u in _ahead(op, circuit, FAR | CLIPS | LANEWISE))


def _behind(unit: Unit, circuit: Circuit, moves: Collection[str]) -> Iterator[Unit]:
    """What makes the first operand before it is moved; all operands of what puts some together."""

    def makers(user: Unit) -> Iterator[Unit]:
        for operand in user.operands if user.kind == "Concat" else user.operands[:1]:
            if isinstance(operand, str) and operand in circuit.maker:
                yield circuit.maker[operand]

    return _past(unit, makers, moves)


def _ahead(unit: Unit, circuit: Circuit, moves: Collection[str]) -> Iterator[Unit]:
    """What reads the results as its first operand after they are moved, or among others put together."""

    def readers(maker: Unit) -> Iterator[Unit]:
        for name in maker.outputs:
            yield from (u for u, k in circuit.users.get(name, ()) if not k or u.kind == "Concat")

    return _past(unit, readers, moves)


def _past(
    unit: Unit, near: Callable[[Unit], Iterator[Unit]], moves: Collection[str]
) -> Iterator[Unit]:
    """What is next to a unit, or to what moves its numbers there; each once."""
    seen: set[int] = set()
    todo = [unit]
    for one in todo:
        for other in near(one):
            if other.number in seen:
                continue
            seen.add(other.number)
            if other.kind in moves:
                todo.append(other)
            else:
                yield other
