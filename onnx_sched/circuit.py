"""The circuit that a graph is: units of work, the values between them, and who waits for whom.

A `Unit` is a node, or a few nodes that are one computation under several spellings (`Gemm`, or `MatMul`
and the `Add` of its bias).  Constants, names for the same value and dead nodes are no units.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from onnx import NodeProto

from onnx_sched.constants import Const
from onnx_sched.dims import Shape
from onnx_sched.graph import Graph
from onnx_sched.stacking import Bulk
from onnx_sched.values import Values

Operand = str | Const | None
"""A value by its first name, a constant, or an empty slot."""

LINEAR = "Linear"
"""Kind of a unit that computes x @ W + b with constant W [K, N] and b [N] or None, however spelled."""


SEVERAL = "Linears"
"""Kind of a unit that computes several of them, of one x, by columns of W and entries of b in turn."""


MAPS = frozenset({LINEAR, SEVERAL})
"""Kinds of units that multiply by a constant matrix."""


EMBEDDING = "Embedding"
"""Kind of a unit that looks up rows of a constant table [V, D]: Gather(table, indices, axis=0)."""


WEIGHTED = "WeightedSum"
"""Kind of a unit that sums the product of two values over one axis: Mul and ReduceSum."""


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One computation.

    Attributes:
        number: Its place in a topological order of the circuit.
        kind: The ONNX op type, or `LINEAR`, `SEVERAL`, `EMBEDDING`, `WEIGHTED`.
        domain: The op's domain, "" for the default one.
        nodes: The nodes that it stands for; the last one makes the outputs.
        operands: What it reads.
        outputs: What it makes; "" for an output that the model leaves out.
        attributes: Name and value, defaults filled in, sorted by name.
        parts: The units that it is made of, if it may run as those, too; or, of a composed one, those that it
            does without.
    """

    number: int
    kind: str
    domain: str
    nodes: tuple[int, ...]
    operands: tuple[Operand, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, Hashable], ...]
    parts: tuple[Unit, ...] = ()

    def attribute(self, name: str, default: Hashable = None) -> Hashable:
        """An attribute's value."""
        return dict(self.attributes).get(name, default)

    def integer(self, name: str, default: int = 0) -> int:
        """An attribute that is an integer."""
        value = self.attribute(name, default)
        assert isinstance(value, int)
        return value


Keep = Callable[[NodeProto], bool]
"""Which nodes must stay as they are."""


def keep_nothing(node: NodeProto) -> bool:
    """Nobody asked for anything to stay."""
    return False


@dataclass(frozen=True)
class Circuit:
    """The units of one graph.

    Attributes:
        graph: The nodes.
        values: What is known about values.
        units: In topological order; `units[k].number == k`.
        preds: By unit: the units that must run before it, ascending.
        nonempty: A promise that no size known only at run time is 0.
        unsummed: Which nodes must not become part of a sum over lanes.
        composed: By unit: linear maps of what is further back that make the same values.
    """

    graph: Graph
    values: Values
    units: tuple[Unit, ...]
    preds: tuple[tuple[int, ...], ...]
    nonempty: bool = False
    unsummed: Keep = keep_nothing
    composed: Mapping[int, Unit] = field(default_factory=dict)

    @cached_property
    def maker(self) -> dict[str, Unit]:
        """The unit that makes a value."""
        return {o: u for u in self.units for o in u.outputs if o}

    @cached_property
    def users(self) -> dict[str, tuple[tuple[Unit, int], ...]]:
        """The units that read a value, with the operand's place."""
        users: dict[str, list[tuple[Unit, int]]] = {}
        for unit in self.units:
            for k, operand in enumerate(unit.operands):
                if isinstance(operand, str):
                    users.setdefault(operand, []).append((unit, k))
        return {name: tuple(found) for name, found in users.items()}

    @cached_property
    def unit_of(self) -> dict[int, Unit]:
        """The unit that a node belongs to, by the node's place."""
        return {k: u for u in self.units for k in u.nodes}

    @cached_property
    def given(self) -> dict[str, tuple[str, int]]:
        """Sizes known only at run time that an input of the graph shows: its name, and the axis.

        Without a way to say that a 0 in a shape means none (opset 14), only for batches that are not empty.
        """
        found: dict[str, tuple[str, int]] = {}
        for value in self.graph.proto.input if self.nonempty or self.graph.opset >= 14 else ():
            for axis, dim in enumerate(self.values.shape(value.name) or ()):
                if isinstance(dim, str) and "*" not in dim:
                    found.setdefault(dim, (value.name, axis))
        return found

    def shape(self, operand: Operand) -> Shape | None:
        """Shape of an operand, if known."""
        if isinstance(operand, Const):
            return operand.shape
        return self.values.shape(operand) if operand is not None else None

    def bulk(self, lanes: int, shape: Shape) -> Bulk:
        """The sizes of some lanes of one shape, with what is promised and given at run time."""
        return Bulk(lanes, shape, self.nonempty, frozenset(self.given))

    def elem_type(self, operand: Operand) -> int | None:
        """ONNX element type of an operand, if known."""
        if isinstance(operand, Const):
            return operand.elem_type
        known = self.values.types.get(operand) if operand is not None else None
        return known.elem_type if known else None

    def label(self, unit: Unit) -> str:
        """What a person calls the unit: the name of its first node, or of its output."""
        return node_label(self.graph, unit.nodes[0])

    def labels(self, units: Sequence[Unit]) -> tuple[str, ...]:
        """What a person calls the units."""
        return tuple(self.label(u) for u in units)


def node_label(graph: Graph, k: int) -> str:
    """A node's name, or where it has none the name of its first output."""
    node = graph.nodes[k]
    return node.name or next((o for o in node.output if o), node.op_type)
