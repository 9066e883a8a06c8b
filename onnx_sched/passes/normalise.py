"""See through spellings: one unit per computation, on a copy of the facts, never in the graph.

    Gemm(x, W, b),  MatMul(x, W) + b,  BatchNormalization(Gemm(x, W, b))  ==>  Linear(x, W', b')
    ReduceSum(Mul(w, x), axis)                                            ==>  WeightedSum(w, x)

Conditions: W and b are constant, b is one row, and what lies between the nodes is read by no one else.
What ends up unbatched keeps the spelling that it has in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from onnx import NodeProto, TensorProto

from onnx_sched.circuit import LINEAR, Circuit, Unit
from onnx_sched.constants import Array, Const
from onnx_sched.graph import Graph
from onnx_sched.nodes import attributes, domain_of
from onnx_sched.passes import compose, weighted_sums
from onnx_sched.passes.units import operand_of, plain
from onnx_sched.values import Values

FLOATS = frozenset(
    {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
)


def normalise(graph: Graph, values: Values) -> Circuit:
    """Cut a graph into units."""
    spellings = _Spellings(graph, values)
    absorbed: dict[int, int] = {}
    drafts: dict[int, Unit] = {}
    for k in range(len(graph.nodes)):
        if not graph.live[k] or _is_no_unit(graph, values, k) or k in absorbed:
            continue
        unit = spellings.start(k) or plain(graph, values, k)
        while (grown := spellings.grow(unit)) is not None:
            absorbed[grown.nodes[-1]] = k
            unit = grown
        drafts[unit.nodes[-1]] = unit
    units = tuple(replace(unit, number=n) for n, (_, unit) in enumerate(sorted(drafts.items())))
    circuit = Circuit(graph, values, units, _preds(graph, values, units))
    return replace(circuit, composed=compose.find(circuit))


def _is_no_unit(graph: Graph, values: Values, k: int) -> bool:
    """Constants, and other names for values that exist already."""
    made = [o for o in graph.nodes[k].output if o]
    if not made:
        return False
    renamed = [o for o in made if o in values.canon or o in values.constants]
    if any(o in values.undone for o in made):
        return False  # what undoes a Concat still runs for whoever reads it by its own name
    return len(renamed) == len(made)


def _preds(graph: Graph, values: Values, units: Sequence[Unit]) -> tuple[tuple[int, ...], ...]:
    """By unit: the units before it, through nodes that are no units, under all names of a value.

    Both the names in the file and the first names count, so that whatever is later read from either,
    a level function of these dependencies is one of the rewritten graph.
    """
    unit_of = {k: u.number for u in units for k in u.nodes}
    behind: dict[int, tuple[int, ...]] = {}
    found: list[set[int]] = [set() for _ in units]
    for k in range(len(graph.nodes)):
        before: set[int] = set()
        makers = list(graph.preds[k])
        makers += [
            graph.producer[f] for n in graph.reads[k] if (f := values.first(n)) in graph.producer
        ]
        for p in makers:
            if p in unit_of:
                before.add(unit_of[p])
            else:
                before.update(behind.get(p, ()))
        if k in unit_of:
            found[unit_of[k]] |= before - {unit_of[k]}
        else:
            behind[k] = tuple(sorted(before))
    return tuple(tuple(sorted(f)) for f in found)


def row(const: Const, width: int) -> Const | None:
    """A constant as one row [width]; None if it is none (a column, or more than one row)."""
    if (
        const.nbytes
        and all(d == 1 for d in const.shape[:-1])
        and const.shape[-1:] in ((), (1,), (width,))
    ):
        return const.map(
            ("row", width), (width,), lambda a: np.broadcast_to(a.reshape(-1), (width,))
        )
    return None


class _Spellings:
    """Recognises linear maps with constant weights, and weighted sums."""

    def __init__(self, graph: Graph, values: Values) -> None:
        self._graph = graph
        self._values = values
        self._aliased = set(values.canon.values())

    def start(self, k: int) -> Unit | None:
        """The linear map that begins at a MatMul or Gemm, if one does."""
        node = self._graph.nodes[k]
        if domain_of(node) or node.op_type not in ("MatMul", "Gemm"):
            return None
        x, weight = (
            operand_of(self._values, node.input[0]),
            self._values.constants.get(node.input[1]),
        )
        known = self._values.types.get(x) if isinstance(x, str) else None
        if (
            weight is None
            or weight.rank != 2
            or known is None
            or known.rank is None
            or known.rank < 2
        ):
            return None
        if weight.elem_type not in FLOATS or known.elem_type != weight.elem_type:
            return None
        bias: Const | None = None
        if node.op_type == "Gemm":
            attrs = attributes(node)
            if attrs.get("transA", 0):
                return None
            if attrs.get("transB", 0):
                weight = weight.transpose((1, 0))
            alpha, beta = attrs.get("alpha", 1.0), attrs.get("beta", 1.0)
            assert isinstance(alpha, float)
            assert isinstance(beta, float)
            weight = weight.scale(alpha)
            if len(node.input) > 2 and node.input[2] and beta:
                const = self._values.constants.get(node.input[2])
                bias = row(const, weight.shape[1]) if const else None
                if bias is None:
                    return None
                bias = bias.scale(beta)
        if 0 in weight.shape:
            return None
        return Unit(-1, LINEAR, "", (k,), (x, weight, bias), tuple(node.output), ())

    def grow(self, unit: Unit) -> Unit | None:
        """The unit with the next node taken in, if the two are one computation."""
        if unit.domain or unit.kind not in (LINEAR, "Mul"):
            return None
        reader = self._only_reader(unit.outputs[0])
        if reader is None:
            return None
        if unit.kind == LINEAR:
            return self._affine(unit, reader)
        if self._graph.nodes[reader].op_type != "ReduceSum":
            return None
        total = plain(self._graph, self._values, reader)
        return weighted_sums.together(unit, total, self._values, self._graph.opset)

    def _only_reader(self, value: str) -> int | None:
        """The one node that reads a value, by this name and by no other."""
        readers = self._graph.readers.get(value, ())
        if len(readers) != 1 or value in self._graph.output_set or value in self._aliased:
            return None
        node = self._graph.nodes[readers[0]]
        known = not domain_of(node) and value in node.input and self._graph.live[readers[0]]
        return readers[0] if known else None

    def _affine(self, unit: Unit, reader: int) -> Unit | None:
        """The linear map with a bias or an affine norm taken in."""
        value, node = unit.outputs[0], self._graph.nodes[reader]
        _, weight, bias = unit.operands
        assert isinstance(weight, Const)
        assert not isinstance(bias, str)
        changed: tuple[Const, Const | None] | None = None
        if node.op_type == "Add":
            changed = self._add(node, value, weight, bias)
        elif node.op_type == "BatchNormalization":
            changed = self._norm(node, value, weight, bias)
        if changed is None:
            return None
        return replace(
            unit,
            nodes=(*unit.nodes, reader),
            operands=(unit.operands[0], *changed),
            outputs=tuple(node.output[:1]),
        )

    def _add(
        self, node: NodeProto, value: str, weight: Const, bias: Const | None
    ) -> tuple[Const, Const | None] | None:
        other = node.input[1] if node.input[0] == value else node.input[0]
        const = self._values.constants.get(other)
        known = self._values.types.get(value)
        if const is None or known is None or known.rank is None or const.rank > known.rank:
            return None
        more = row(const, weight.shape[1])
        if more is None or more.elem_type != weight.elem_type:
            return None
        if bias is None:
            return weight, more
        first = bias
        key = ("plus", first.key)
        return weight, more.map(key, more.shape, lambda a: first.load() + a)

    def _norm(
        self, node: NodeProto, value: str, weight: Const, bias: Const | None
    ) -> tuple[Const, Const | None] | None:
        """BatchNormalization at inference is an affine map of each column: fold it into W and b."""
        attrs = attributes(node)
        known = self._values.types.get(value)
        names = [self._values.constants.get(n) for n in node.input[1:5]]
        used = [o for o in node.output[1:] if o]
        if used or attrs.get("training_mode") or known is None or known.rank != 2 or None in names:
            return None
        if node.input[0] != value or weight.elem_type not in (
            TensorProto.FLOAT,
            TensorProto.DOUBLE,
        ):
            return None
        epsilon = attrs.get("epsilon", 1e-5)
        assert isinstance(epsilon, float)
        scale, shift = affine([c for c in names if c], epsilon)
        key = (scale.key, shift.key)
        scaled = weight.map(("columns", scale.key), weight.shape, lambda a: a * scale.load())
        if bias is None:
            return scaled, shift
        moved = bias.map(("affine", key), bias.shape, lambda a: a * scale.load() + shift.load())
        return scaled, moved


def affine(norm: Sequence[Const], epsilon: float) -> tuple[Const, Const]:
    """BatchNormalization's parameters (scale, B, mean, var) as y = x * a + b; a and b, each [C]."""
    gamma, beta, mean, var = norm

    def factor() -> Array:
        v = np.asarray(var.load(), np.float64)
        wide: Array = np.asarray(gamma.load(), np.float64) / np.sqrt(v + epsilon)
        return wide

    def offset() -> Array:
        wide: Array = (
            np.asarray(beta.load(), np.float64) - np.asarray(mean.load(), np.float64) * factor()
        )
        return wide

    keys = tuple(c.key for c in norm)
    kind = gamma.dtype.type
    a = gamma.map(("bn-scale", epsilon, keys), gamma.shape, lambda _: factor().astype(kind))
    b = gamma.map(("bn-shift", epsilon, keys), gamma.shape, lambda _: offset().astype(kind))
    return a, b
