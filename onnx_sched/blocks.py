"""Follow what Concat put side by side, so that cutting it apart again is no join.

A value is a *block value* if it holds a bundle in some layout: Concat makes one, Reshape, Transpose,
Squeeze and Unsqueeze carry it on, and a Split, Slice or Gather of whole lanes gives the lanes back.
Whatever is not understood ends the trail, which is always safe.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from onnx_sched.dims import Shape, product
from onnx_sched.slicing import cuts
from onnx_sched.stacking import LANE, Atom, Bulk, Layout, at, lane_axis, packed, plain


@dataclass(frozen=True, slots=True)
class Block:
    """A bundle and how it lies in one tensor."""

    lanes: tuple[str, ...]
    bulk: Bulk
    layout: Layout


@dataclass(frozen=True, slots=True)
class Look:
    """What the walk may ask about a node.

    Attributes:
        op_type: Of the default domain.
        inputs: First names.
        outputs: Names as they stand.
        attributes: As spelled.
        ints: By input: its numbers, if constant and few.
        shapes: By input: its shape, if known.
        out_shapes: By output.
        opset: Version of the default domain.
    """

    op_type: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Hashable]
    ints: Sequence[tuple[int, ...] | None]
    shapes: Sequence[Shape | None]
    out_shapes: Sequence[Shape | None]
    opset: int

    def axes(self, since: int = 13, slot: int = 1) -> tuple[int, ...] | None:
        """Axes, an attribute or from opset `since` on an input."""
        if self.opset >= since:
            return self.ints[slot] if len(self.ints) > slot else None
        given = self.attributes.get("axes")
        return given if isinstance(given, tuple) else None

    def axis(self, default: int, rank: int) -> int:
        """The axis attribute, counted from the front."""
        value = self.attributes.get("axis", default)
        assert isinstance(value, int)
        return value % rank if rank else 0


@dataclass(slots=True)
class Blocks:
    """Block values seen so far, by name, and where a lane was squeezed or unsqueezed from."""

    found: dict[str, Block] = field(default_factory=dict)
    _raised: dict[str, tuple[str, int, Shape]] = field(default_factory=dict)

    def visit(self, node: Look) -> list[tuple[str, str]]:
        """Learn from a node; returns pairs (its output, the lane that this output is again)."""
        shape = node.shapes[0] if node.shapes else None
        if shape is None or not node.outputs:
            return []
        if node.op_type == "Concat":
            self._concat(node, shape)
            return []
        if node.op_type == "Unsqueeze":
            axes = node.axes()
            if axes is not None and len(axes) == 1:
                rank = len(shape) + 1
                self._raised[node.outputs[0]] = (node.inputs[0], axes[0] % rank, shape)
        block = self.found.get(node.inputs[0])
        if block is None:
            return []
        if node.op_type in ("Split", "Slice", "Gather"):
            return _cut(node, block, shape)
        moved = _moved(node, block, shape)
        if moved is not None:
            self.found[node.outputs[0]] = Block(block.lanes, block.bulk, moved)
        return []

    def _concat(self, node: Look, shape: Shape) -> None:
        if len(node.inputs) < 2 or any(s != shape for s in node.shapes):
            return
        axis = node.axis(1, len(shape))
        below = [self._raised.get(n) for n in node.inputs]
        inner = [b for b in below if b is not None and b[1] == axis]
        if len(inner) == len(node.inputs):
            lanes, lane_shape = tuple(b[0] for b in inner), inner[0][2]
            layout = at(len(lane_shape), axis)
        else:
            lanes, lane_shape = tuple(node.inputs), shape
            layout = packed(len(shape), axis)
        self.found[node.outputs[0]] = Block(lanes, Bulk(len(lanes), lane_shape), layout)


def _moved(node: Look, block: Block, shape: Shape) -> Layout | None:
    """The layout after an op that only moves axes."""
    layout = block.layout
    if node.op_type == "Transpose":
        perm = node.attributes.get("perm") or tuple(range(len(shape)))[::-1]
        assert isinstance(perm, tuple)
        return tuple(layout[p] for p in perm)
    if node.op_type == "Squeeze":
        axes = node.axes()
        gone = (
            {a % len(shape) for a in axes} if axes else {k for k, d in enumerate(shape) if d == 1}
        )
        if any(LANE in layout[k] for k in gone):
            return None
        return tuple(axis for k, axis in enumerate(layout) if k not in gone)
    if node.op_type == "Unsqueeze":
        axes = node.axes()
        if axes is None:
            return None
        rank = len(shape) + len(axes)
        added, old = {a % rank for a in axes}, iter(layout)
        return tuple(() if k in added else next(old) for k in range(rank))
    if node.op_type in ("Reshape", "Flatten") and node.out_shapes[0] is not None:
        return regroup(block.bulk, layout, node.out_shapes[0])
    return None


def regroup(bulk: Bulk, layout: Layout, shape: Shape) -> Layout | None:
    """The layout after a Reshape to `shape`, if every new axis is a run of whole atoms.

    >>> regroup(Bulk(4, ("B", 8)), packed(2, 1), ("B", 4, 8))
    ((0,), ('G',), (1,))
    """
    atoms = [a for axis in layout for a in axis if bulk.dim(a) != 1]
    found: list[tuple[Atom, ...]] = []
    k = 0
    for dim in shape:
        axis: list[Atom] = []
        while dim != 1 and k < len(atoms) and product(bulk.dim(a) for a in axis) != dim:
            axis.append(atoms[k])
            k += 1
        if product(bulk.dim(a) for a in axis) != dim:
            return None
        found.append(tuple(axis))
    return tuple(found) if k == len(atoms) else None


def _cut(node: Look, block: Block, shape: Shape) -> list[tuple[str, str]]:
    """The lanes that a Split, Slice or Gather takes out whole."""
    where = lane_axis(block.layout)
    if block.layout[where][0] != LANE:
        return []
    size = product(block.bulk.dim(a) for a in block.layout[where][1:])
    alone = len(block.layout[where]) == 1
    left = tuple(
        tuple(a for a in axis if a != LANE) if k == where else axis
        for k, axis in enumerate(block.layout)
    )
    if node.op_type == "Gather":
        index = node.ints[1] if len(node.ints) > 1 else None
        if not alone or index is None or len(index) != 1 or node.axis(0, len(shape)) != where:
            return []
        if node.shapes[1] != () or not 0 <= index[0] < block.bulk.lanes:
            return []
        left = left[:where] + left[where + 1 :]
        whole = [(node.outputs[0], block.lanes[index[0]])]
    elif node.op_type == "Split":
        if node.axis(0, len(shape)) != where or len(node.outputs) != block.bulk.lanes:
            return []
        if any(s is None or s[where] != size for s in node.out_shapes):
            return []
        whole = [(o, lane) for o, lane in zip(node.outputs, block.lanes, strict=True) if o]
    else:
        cut = _slice(node, shape)
        if cut is None or cut[0] != where or not isinstance(size, int):
            return []
        if cut[1] % size or cut[2] - cut[1] != size:
            return []
        whole = [(node.outputs[0], block.lanes[cut[1] // size])]
    return whole if _is_plain(left, block.bulk.shape, node.out_shapes) else []


def _is_plain(layout: Layout, shape: Shape, out_shapes: Sequence[Shape | None]) -> bool:
    """Whether what is left is the lane itself, axis by axis."""
    return layout == plain(len(shape)) and all(s is None or s == shape for s in out_shapes)


def _slice(node: Look, shape: Shape) -> tuple[int, int, int] | None:
    """Axis, start and end of a Slice of one axis with step 1."""
    found = cuts(shape, node.ints[1:], node.attributes, node.opset)
    if found is None or len(found) != 1 or found[0].step != 1:
        return None
    axis, start, end, _ = found[0]
    size = shape[axis]
    if not isinstance(size, int):
        return None
    start, end, _ = slice(start, end).indices(size)
    return axis, start, end
