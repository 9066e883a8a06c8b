"""What a batching rule is, and what it is given to work with.

A rule says how G alike units run as one node: which operands must be equal constants, when it must
refuse, and how the batched nodes are made.  Rules are rows of the tables in the modules beside this
one; `onnx_sched.passes.rules` puts the tables together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from onnx_sched.circuit import Circuit, Operand, Unit
from onnx_sched.constants import Array, Const, stack
from onnx_sched.dims import Dim, Shape
from onnx_sched.passes.boundaries import Store
from onnx_sched.passes.emit import Emitter
from onnx_sched.passes.homes import Bundle
from onnx_sched.plan import Group, Refused
from onnx_sched.stacking import (
    LANE,
    Bulk,
    Layout,
    aligned,
    at,
    columns,
    lay,
    lead,
    packed,
    spare_axis,
    without_spare,
)

Check = Callable[[Unit, Circuit], str | None]


def anything(unit: Unit, circuit: Circuit) -> str | None:
    """The check of a rule that accepts every unit of its kind."""
    return None


@dataclass(frozen=True, slots=True)
class Rule:
    """How units of one kind run together.

    Attributes:
        emit: Makes the batched nodes.
        check: Why a unit cannot take part; None if it can.
        static: Operands that must be constants of equal value in all lanes (axes, shapes, bounds).
        optional: Constant operands that may be missing in some lanes.
        spread: Constant operands may broadcast, so that their shapes need not agree.
        heavy: Whether the op itself is worth a group; light ones follow along the wires.
        unread: Operands that the batched nodes do without: sizes that are known by other means.
    """

    emit: Callable[[Batch], None]
    check: Check = anything
    static: tuple[int, ...] = ()
    optional: tuple[int, ...] = ()
    spread: bool = False
    heavy: bool = False
    unread: tuple[int, ...] = ()


@dataclass(slots=True)
class Batch:
    """One group while its nodes are made."""

    group: Group
    circuit: Circuit
    store: Store
    emit: Emitter

    @property
    def units(self) -> tuple[Unit, ...]:
        """The members, in lane order."""
        return self.group.units

    @property
    def unit(self) -> Unit:
        """The first member; the others are alike."""
        return self.units[0]

    @property
    def size(self) -> int:
        """Number of lanes."""
        return len(self.units)

    @property
    def hint(self) -> str:
        """A name for what is made."""
        return f"{self.circuit.label(self.unit)}_x{self.size}"

    @property
    def varies(self) -> bool:
        """Whether any operand differs by lane."""
        return any(
            self.lanes(k) is not None
            or (isinstance(self.unit.operands[k], Const) and len(self.consts(k)) > 1)
            for k in range(self.slots)
        )

    def may_be_empty(self, *dims: Dim) -> bool:
        """Whether one of these sizes may be 0 at run time."""
        return not self.circuit.nonempty and not all(isinstance(d, int) and d > 0 for d in dims)

    @property
    def slots(self) -> int:
        """Number of operands."""
        return len(self.unit.operands)

    def operands(self, k: int) -> tuple[Operand, ...]:
        """Operand k of every lane."""
        return tuple(u.operands[k] for u in self.units)

    def lanes(self, k: int) -> Bundle | None:
        """Operand k as a bundle; None if it is constant, missing, or one value for all lanes."""
        return self.group.lanes(k)

    def single(self, k: int) -> str | None:
        """The one value that all lanes read as operand k, if that is so."""
        first = self.unit.operands[k]
        return first if isinstance(first, str) and self.lanes(k) is None else None

    def shape(self, k: int) -> Shape:
        """Shape of operand k in each lane."""
        shape = self.circuit.shape(self.unit.operands[k])
        if shape is None:
            raise Refused(
                "S202", f"the shape of operand {k} of {self.circuit.label(self.unit)} is not known"
            )
        return shape

    def bulk(self, shape: Shape) -> Bulk:
        """Sizes of a bundle of one lane a member, each of a shape."""
        return self.circuit.bulk(self.size, shape)

    def out_bulk(self, j: int = 0) -> Bulk:
        """Sizes of output j."""
        return self.store.bulk(self.outputs(j))

    def outputs(self, j: int = 0) -> Bundle:
        """Output j of every lane."""
        return tuple(u.outputs[j] for u in self.units)

    def attributes(self, **changed: Any) -> dict[str, Any]:
        """The attributes that the first member's node spells out, some of them changed."""
        node = self.circuit.values.op(self.circuit.graph.nodes[self.unit.nodes[-1]])
        given: dict[str, Any] = dict(self.unit.attributes)
        written = {a.name for a in node.attribute}
        kept = {k: v for k, v in given.items() if k in written}
        return kept | changed

    def make(
        self, op_type: str, inputs: list[str], outputs: int = 1, **attributes: Any
    ) -> list[str]:
        """Add a node of the group."""
        return self.emit.node(op_type, inputs, self.hint, outputs, **attributes)

    def columns(self, shape: Shape) -> Layout:
        """Channels first, with a spare pixel where there might be none."""
        return columns(len(shape), self.may_be_empty(*shape[:-1]))

    def enter(self, bundle: Bundle, layout: Layout) -> tuple[str, dict[str, Any]]:
        """A bundle as the image of a convolution, and the padding that makes its spare pixel if need be."""
        rows = spare_axis(layout)
        there = self.store.placed(bundle)
        if rows is None or not there or any(spare_axis(la) is not None for la in there):
            return self.store.get(bundle, layout), {}
        return self.store.get(bundle, without_spare(layout)), {"pads": [0, 0, 0, 1]}

    def put(self, layout: Layout, name: str, j: int = 0) -> None:
        """Say where output j of all lanes lies."""
        self.store.put(self.outputs(j), layout, name)

    def put_side_by_side(self, axis: int, name: str) -> None:
        """Say that a tensor holds the outputs side by side; unequal ones are split apart."""
        bundles = self.group.bundles(0)
        rank = len(self.store.bulk(bundles[0]).shape)
        if len(bundles) == 1:
            self.store.put(bundles[0], packed(rank, axis), name)
            return
        sizes = [self._width(b[0], axis) * len(b) for b in bundles]
        outputs = [b[0] if len(b) == 1 else self.emit.name(f"{b[0]}_x{len(b)}") for b in bundles]
        self.emit.split(name, axis, sizes, f"{self.hint}_split", outputs)
        for bundle, out in zip(bundles, outputs, strict=True):
            if len(bundle) > 1:
                self.store.put(bundle, packed(rank, axis), out)

    def _width(self, value: str, axis: int) -> int:
        """Size of an axis that is known."""
        size = self.store.bulk((value,)).shape[axis]
        if not isinstance(size, int):
            raise Refused("S201", f"the width of {value!r} is not known")
        return size

    def consts(self, k: int) -> list[Const]:
        """Operand k as constants, one a lane; equal ones are given once."""
        found = [o for o in self.operands(k) if isinstance(o, Const)]
        if len(found) != self.size:
            raise Refused("S106", f"operand {k} is not constant in every lane")
        return found[:1] if len({c.key for c in found}) == 1 else found

    def laid(self, k: int, layout: Layout, bulk: Bulk) -> str | None:
        """A constant operand, brought to broadcast against a bundle in a layout; its name."""
        parts = self.consts(k)
        if any(self.lanes(j) is not None for j in range(self.slots)):
            parts = one_number(parts)  # else it is they that bring the lane axis
        if (
            self.unit.kind == "Clip"
        ):  # its bounds are scalars, also where they are spelled as vectors
            parts = [p.reshape(()) for p in parts]
        if len(parts) == 1 and (layout == lead(len(bulk.shape)) or parts[0].shape == ()):
            return self.emit.const(parts[0], f"{self.hint}_const{k}")
        made = laid_const(parts, layout, bulk)
        return None if made is None else self.emit.const(made, f"{self.hint}_const{k}")

    def beside(self, name: str, layout: Layout, rank: int, own_rank: int) -> str | None:
        """One value for all lanes, with room for the lane axis; None if there is no room to make."""
        position = lane_alone(layout, rank)
        if position is None:
            return None
        value = self.store.value(name)
        behind = rank - position
        if own_rank <= behind:
            return value  # right-aligned, it ends before the lane axis
        return self.emit.with_axes("Unsqueeze", value, [own_rank - behind], f"{name}_beside", 13)

    def operand(self, k: int, layout: Layout, bulk: Bulk) -> str | None:
        """Operand k, brought to meet a result in a layout under broadcasting; None if it cannot be.

        A missing operand is "".
        """
        if self.unit.operands[k] is None:
            return ""
        if isinstance(self.unit.operands[k], Const):
            return self.laid(k, layout, bulk)
        rank, shape = len(bulk.shape), self.shape(k)
        single = self.single(k)
        if single is not None:
            return self.beside(single, layout, rank, len(shape))
        lanes = self.lanes(k)
        assert lanes is not None
        if not meets(layout, bulk, shape):
            return None
        return self.store.get(lanes, aligned(layout, rank, len(shape)))


def one_number(parts: list[Const]) -> list[Const]:
    """The first of lowest rank where all constants are the same single number; else all of them.

    Runtimes know a norm that is spelled out by a single epsilon; with one a lane they may take another.
    """
    if any(p.nbytes != p.dtype.itemsize for p in parts):
        return parts
    values = {p.load().tobytes() for p in parts}
    return [min(parts, key=lambda p: p.rank)] if len(values) == 1 else parts


def lane_alone(layout: Layout, rank: int) -> int | None:
    """Where the lane axis stands if the other axes lie in order, each by itself."""
    position = next((k for k, axis in enumerate(layout) if axis == (LANE,)), None)
    return position if position is not None and layout == at(rank, position) else None


def meets(layout: Layout, bulk: Bulk, shape: Shape) -> bool:
    """Whether lanes of `shape` can lie so that they broadcast against a bundle in `layout`.

    On an axis that lanes share with one of their own axes, each must bring its full size.
    """
    shift = len(bulk.shape) - len(shape)
    for axis in layout:
        own = [a for a in axis if isinstance(a, int)]
        if len(axis) > 1:
            sizes = [shape[a - shift] if a >= shift else 1 for a in own]
            full = all(s == bulk.shape[a] for s, a in zip(sizes, own, strict=True))
            if not full and (len(own) < len(axis) or any(s != 1 for s in sizes)):
                return False
    return True


def laid_const(parts: list[Const], layout: Layout, bulk: Bulk) -> Const | None:
    """Constants of the lanes (or one for all) as one constant that meets a bundle in a layout."""
    rank = len(bulk.shape)
    raised = [p.reshape((1,) * (rank - p.rank) + p.shape) for p in parts]
    common = np.broadcast_shapes(*(p.shape for p in raised))
    widened = [
        p.map(("wide", common), common, lambda a: np.broadcast_to(a, common))
        if p.shape != common
        else p
        for p in raised
    ]
    whole = stack(widened)
    laid = lay(np.broadcast_to(np.zeros((), np.bool_), whole.shape), layout, bulk)
    if laid is None:
        return None
    alike = spare_axis(layout) is None and bulk.core(layout) == bulk.core(lead(rank))
    if alike and prod(laid.shape) == prod(whole.shape):
        return whole.reshape(laid.shape)  # the same bytes in the same order

    def change(array: Array) -> Array:
        result = lay(array, layout, bulk)
        assert result is not None
        return result

    return whole.map(("lay", layout, bulk), laid.shape, change)


Table = Mapping[str, Rule]
"""Rules by op type."""
