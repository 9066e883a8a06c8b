"""Dense weights of which only blocks along the diagonal are not zero: their blocks are lanes.

    x @ Diag(W_1, ..., W_G) + b  ==>  Concat(Split(x)_i @ W_i + Split(b)_i)

The zeros are work that need not be done.  They also carry NaN and infinities of one block's input into
every other block's output, which the right side does not: it is done only on the promise that there
are none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from onnx_sched.analysis import Analysis, analyse
from onnx_sched.circuit import LINEAR, Circuit, Unit
from onnx_sched.constants import Array, Const
from onnx_sched.files import Source
from onnx_sched.nodes import captures
from onnx_sched.passes.emit import Emitter
from onnx_sched.plan import Plan
from onnx_sched.tensors import fill, placeholder

SMALLEST = 2
"""Blocks have at least so many rows and columns: single numbers are a scale, not a product."""

ALONE = frozenset(
    "Abs Celu Elu Erf Gelu HardSigmoid HardSwish LeakyRelu Mish Neg Relu Selu Sigmoid Softplus "
    "Softsign Sqrt Tanh ThresholdedRelu".split()
)
"""Ops that take one number at a time, and nothing else."""

FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE})

LOOKED_AT = 64
"""Rows that are looked at first; where all of them are zero there is nothing to gain."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A model with some products cut into their blocks.

    Attributes:
        analysis: The new model.
        parts: By the name of the product's result: the names of what its blocks make.
    """

    analysis: Analysis
    parts: Mapping[str, tuple[str, ...]]


def block_count(weight: Array) -> int:
    """Into how many equal blocks along its diagonal a matrix falls, the rest being zero; 1 if it does not.

    >>> block_count(np.kron(np.eye(3), np.ones((2, 4))))
    3
    >>> block_count(np.ones((6, 6))), block_count(np.zeros((6, 6)))
    (1, 1)
    """
    rows, columns = weight.shape
    corners = rows and columns and not weight[0, -1] and not weight[-1, 0]
    if not corners or weight[0, columns // 2 :].any():  # nearly every weight is through here
        return 1
    if not weight[:: -(-rows // LOOKED_AT)].any():  # full of holes, perhaps larger than memory
        return 1
    filled = weight != 0
    there = filled.any(1)
    first = filled.argmax(1)
    last = columns - 1 - filled[:, ::-1].argmax(1)
    numbers = np.arange(rows)
    for count in range(np.gcd(rows, columns), 1, -1):
        if rows % count or columns % count:
            continue
        tall, broad = rows // count, columns // count
        home = numbers // tall
        inside = (first // broad == home) & (last // broad == home) | ~there
        every = len(set(home[there].tolist())) == count
        if min(tall, broad) >= SMALLEST and every and inside.all():
            return count
    return 1


def products(circuit: Circuit) -> Iterator[tuple[Unit, int]]:
    """The products by a block-diagonal constant, with the number of blocks."""
    for unit in circuit.units:
        if unit.kind != LINEAR or circuit.values.shape(unit.outputs[0]) is None:
            continue
        x, weight, bias = (*unit.operands, None)[:3]
        plain = isinstance(x, str) and isinstance(weight, Const) and weight.elem_type in FLOATS
        if plain and isinstance(weight, Const) and not isinstance(bias, str):
            count = block_count(weight.load())
            if count > 1:
                yield unit, count


def cut(analysis: Analysis, names: Collection[str]) -> Cut:
    """The model with the blocks of some products as products of their own.

    Args:
        analysis: The model.
        names: The results of the products to cut.
    """
    work = _Cutting(analysis)
    for unit, count in products(analysis.circuit):
        if unit.outputs[0] in names:
            work.take_apart(unit, count)
    work.join()
    source = analysis.source
    model = ModelProto()
    model.CopyFrom(source.model)
    del model.graph.node[:]
    for k, node in enumerate(analysis.graph.nodes):
        model.graph.node.extend(work.made.get(k, ()))
        if k not in work.gone:
            model.graph.node.append(node)
    for name, const in work.emitter.fresh.items():
        tensor = placeholder(name, const)
        fill(tensor, const)
        model.graph.initializer.append(tensor)
        if model.ir_version < 4:  # every initializer is listed as an input there
            value = helper.make_tensor_value_info(name, const.elem_type, const.shape)
            model.graph.input.append(value)
    _drop_idle(model, work.spared)
    _drop_unread(model, analysis)
    asked = analysis.circuit
    new = analyse(Source(model, source.path), nonempty=asked.nonempty, unsummed=asked.unsummed)
    return Cut(new, work.parts)


class _Cutting:
    """Products while they are taken apart.

    Attributes:
        emitter: Makes the nodes.
        made: The new nodes, by the place of the node that they come before.
        gone: Places of the nodes that they replace.
        parts: By a product's result: what its blocks make.
        spared: Values that are made only for whoever reads a whole; perhaps nobody does any more.
    """

    def __init__(self, analysis: Analysis) -> None:
        self._circuit = analysis.circuit
        self.emitter = Emitter(analysis.graph.opset, analysis.names, {})
        self.made: dict[int, list[NodeProto]] = {}
        self.gone: set[int] = set()
        self.parts: dict[str, tuple[str, ...]] = {}
        self.spared: set[str] = set()
        self._last: dict[str, int] = {}

    def take_apart(self, unit: Unit, count: int) -> None:
        """A product for each block; its pieces come from a Split, or straight from other blocks."""
        emitter, place = self.emitter, unit.nodes[-1]
        x, weight, bias = (*unit.operands, None)[:3]
        assert isinstance(x, str)
        assert isinstance(weight, Const)
        tall, broad = weight.shape[0] // count, weight.shape[1] // count
        hint, axis = self._circuit.label(unit), len(self._circuit.shape(x) or ()) - 1
        pieces = self._handed_on(x, [tall] * count)
        if not pieces:
            pieces = emitter.split(x, axis, [tall] * count, f"{hint}_split", count)
        made = []
        for k, piece in enumerate(pieces):
            rows, columns = slice(k * tall, (k + 1) * tall), slice(k * broad, (k + 1) * broad)
            name = emitter.const(_slice(weight, (rows, columns)), f"{hint}_block{k}_weight")
            out = emitter.node("MatMul", [piece, name], f"{hint}_block{k}")[0]
            if isinstance(bias, Const):
                shift = emitter.const(_slice(bias, (columns,)), f"{hint}_block{k}_bias")
                out = emitter.node("Add", [out, shift], f"{hint}_block{k}_add")[0]
            made.append(out)
        self.parts[unit.outputs[0]] = tuple(made)
        self._last[unit.outputs[0]] = place
        self.gone.update(unit.nodes)
        self._flush(place)

    def _handed_on(self, x: str, sizes: Sequence[int]) -> list[str]:
        """The pieces of a value that is one number at a time made of other blocks of these sizes."""
        chain: list[Unit] = []
        while x not in self.parts:
            maker = self._circuit.maker.get(x)
            plain = maker is not None and not maker.domain and maker.kind in ALONE
            if maker is None or not plain or not isinstance(maker.operands[0], str):
                return []
            chain.append(maker)
            x = maker.operands[0]
        shape = self._circuit.values.shape(x)
        if len(self.parts[x]) != len(sizes) or shape is None or shape[-1] != sum(sizes):
            return []
        pieces = list(self.parts[x])
        self.spared |= {o for unit in chain for o in unit.outputs}
        for unit in reversed(chain):
            node = self._circuit.values.op(self._circuit.graph.nodes[unit.nodes[-1]])
            for k, piece in enumerate(pieces):
                hint = f"{self._circuit.label(unit)}_block{k}"
                out = self.emitter.node(node.op_type, [piece], hint)[0]
                self.emitter.nodes[-1].attribute.extend(node.attribute)
                pieces[k] = out
        return pieces

    def join(self) -> None:
        """Put the blocks' results together where somebody reads the whole."""
        for whole, parts in self.parts.items():
            shape = self._circuit.values.shape(whole)
            assert shape is not None
            place = self._last[whole]
            hint = f"{self._circuit.graph.nodes[place].output[0]}_concat"
            self.emitter.node("Concat", parts, hint, [whole], axis=len(shape) - 1)
            self.spared.add(whole)
            self._flush(place)

    def _flush(self, place: int) -> None:
        self.made.setdefault(place, []).extend(self.emitter.nodes)
        self.emitter.nodes.clear()


def _slice(const: Const, where: tuple[slice, ...]) -> Const:
    """A part of a constant."""
    shape = tuple(s.stop - s.start for s in where)
    return const.map(("part", *((s.start, s.stop) for s in where)), shape, lambda a: a[where])


def _drop_idle(model: ModelProto, spared: Collection[str]) -> None:
    """Leave out nodes that make only such values, where nobody reads them."""
    read = {v.name for v in model.graph.output}
    nodes: list[NodeProto] = []
    for node in reversed(model.graph.node):
        if set(node.output) <= set(spared) and read.isdisjoint(node.output):
            continue
        nodes.append(node)
        read.update(node.input, captures(node))
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))


def _drop_unread(model: ModelProto, analysis: Analysis) -> None:
    """Leave out initializers that only the products read."""
    graph = model.graph
    read = {v.name for v in graph.output}
    if model.ir_version >= 4:
        read |= {v.name for v in graph.input}
    for node in graph.node:
        read.update(node.input, captures(node))
    there = analysis.graph.readers
    tensors = [t for t in graph.initializer if t.name in read or t.name not in there]
    gone = {t.name for t in graph.initializer} - {t.name for t in tensors}
    inputs = [v for v in graph.input if v.name not in gone]
    for field, values in ((graph.initializer, tensors), (graph.input, inputs)):
        del field[:]
        field.extend(values)


def kept(plan: Plan, parts: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The products whose blocks all run in one group: the others had better stay whole."""
    home = {o: n for n, g in enumerate(plan.groups) for u in g.units for o in u.outputs}
    found = []
    for name, made in parts.items():
        groups = {home.get(o) for o in made}
        if len(groups) == 1 and None not in groups:
            found.append(name)
    return tuple(found)
