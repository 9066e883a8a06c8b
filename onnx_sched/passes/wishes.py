"""In which layout bundles will be asked for, known before any of them is made.

What makes a bundle may often choose between layouts; the one that its reader wants saves a copy.
"""

from __future__ import annotations

from collections.abc import Iterable

from onnx_sched.circuit import LINEAR, Circuit
from onnx_sched.passes.axes import wrap
from onnx_sched.passes.fold import NORMS
from onnx_sched.passes.homes import Bundle, Piece
from onnx_sched.plan import Group
from onnx_sched.stacking import LANE, Layout, columns, flat, packed, rows


def wishes(
    circuit: Circuit, groups: Iterable[Group], closings: Iterable[tuple[int, list[Piece]]]
) -> dict[Bundle, Layout]:
    """The layout that a group which reads a bundle wants, or else a Concat; spare entries not counted.

    Args:
        circuit: The original.
        groups: The groups of a plan.
        closings: Concats that put lanes together, by their place, and the lanes.
    """
    found: dict[Bundle, Layout] = {}
    for group in groups:
        lanes, shape = group.lanes(0), circuit.shape(group.units[0].operands[0])
        if lanes is not None and shape is not None and group.kind in (LINEAR, *NORMS):
            layout = _of(group, len(shape))
            if layout is not None:
                found.setdefault(lanes, layout)
    for k, pieces in closings:
        shape = circuit.values.shape(pieces[0].lanes[0])
        if len(pieces) == 1 and shape is not None:
            axis = wrap(circuit.unit_of[k].integer("axis", 1), len(shape))
            found.setdefault(pieces[0].lanes, packed(len(shape), axis))
    return found


def _of(group: Group, rank: int) -> Layout | None:
    """What a linear map or a norm in a form works on; a norm as it is takes many layouts."""
    if group.form == "instance_norm":
        return (tuple(range(rank - 1)), (LANE,), (rank - 1,))
    made: dict[str, Layout | None] = {
        "conv_t": columns(rank, spare=False),
        "grouped_conv": rows(rank),
        "grouped_conv_1d": rows(rank, 1),
        "stacked": flat(rank) if group.kind == LINEAR else None,
    }
    return made.get(group.form)
