"""Where lanes open: tensors of the model that hold a whole bundle already.

    x_0, x_1, ... = Split(X, axis)                      X holds them side by side
    x_i = Slice(X, i*d, (i+1)*d, axis)                  the same
    x_i = Gather(X, i, axis)                            X holds them on an axis of their own

Cuts that nobody makes are holes, filled with names that no model can have.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Const
from onnx_sched.dims import Shape
from onnx_sched.stacking import Layout, at, packed

MOST = 4096
"""An axis longer than this is no row of lanes (a vocabulary, an image line)."""


def openings(circuit: Circuit) -> Iterator[tuple[tuple[str, ...], Layout, str]]:
    """Bundle, layout and source of every tensor that opens lanes, in the order of the units."""
    cuts: dict[tuple[str, str, int, int], dict[int, str]] = {}
    for unit in circuit.units:
        if unit.domain or not unit.operands or not isinstance(unit.operands[0], str):
            continue
        shape = circuit.shape(unit.operands[0])
        if not shape:
            continue
        rank = len(shape)
        if unit.kind == "Split":
            axis = unit.integer("axis") % rank
            parts = {circuit.values.shape(o) for o in unit.outputs}
            if (
                len(parts) == 1
                and None not in parts
                and all(unit.outputs)
                and len(unit.outputs) > 1
            ):
                yield unit.outputs, packed(rank, axis), unit.operands[0]
            continue
        if unit.kind == "Slice":
            cut = _slice(unit, circuit, rank)
        elif unit.kind == "Gather":
            cut = _gather(unit, shape)
        else:
            continue
        if cut is not None:
            axis, start, size = cut
            kind = "at" if size == 0 else "packed"
            key = (unit.operands[0], kind, axis, max(size, 1))
            cuts.setdefault(key, {}).setdefault(start, unit.outputs[0])
    for (source, kind, axis, size), found in cuts.items():
        shape = circuit.shape(source)
        assert shape is not None
        whole = shape[axis]
        if not isinstance(whole, int) or whole % size or whole // size > MOST or len(found) < 2:
            continue
        if any(start % size for start in found):
            continue
        bundle = tuple(
            found.get(k * size, f"{source}\0{kind}{axis}:{k * size}") for k in range(whole // size)
        )
        rank = len(shape)
        yield bundle, at(rank - 1, axis) if kind == "at" else packed(rank, axis), source


def _numbers(unit: Unit, k: int) -> list[int] | None:
    """A constant operand as ints; None if it is computed, [] if it is missing."""
    operand = unit.operands[k] if len(unit.operands) > k else None
    if operand is None:
        return []
    return (
        [int(v) for v in np.asarray(operand.load()).ravel()] if isinstance(operand, Const) else None
    )


def _slice(unit: Unit, circuit: Circuit, rank: int) -> tuple[int, int, int] | None:
    """Axis, start and length of a Slice of one axis; None if it is none, or open."""
    if circuit.graph.opset >= 10:
        found = [_numbers(unit, k) for k in range(1, 5)]
    else:
        names = ("starts", "ends", "axes")
        given = [unit.attribute(n) or () for n in names]
        found = [list(g) if isinstance(g, tuple) else None for g in given]
        found.append([])
    starts, ends, axes, steps = found
    if not starts or not ends or len(starts) != 1 or axes is None or steps is None:
        return None
    axis = (axes[0] if axes else 0) % rank
    shape = circuit.shape(unit.operands[0])
    assert shape is not None
    whole = shape[axis]
    if not isinstance(whole, int) or (steps and steps[0] != 1):
        return None
    start, end, _ = slice(starts[0], ends[0]).indices(whole)
    return (axis, start, end - start) if end > start else None


def _gather(unit: Unit, shape: Shape) -> tuple[int, int, int] | None:
    """Axis and index of a Gather of one entry, from the front; length 0 says that the axis goes away."""
    index = unit.operands[1]
    if not isinstance(index, Const) or index.shape not in ((), (1,)):
        return None
    where = int(np.asarray(index.load()).reshape(-1)[0])
    axis = unit.integer("axis") % len(shape)
    whole = shape[axis]
    if not isinstance(whole, int) or not -whole <= where < whole:
        return None
    return axis, where % whole, 0 if index.shape == () else 1
