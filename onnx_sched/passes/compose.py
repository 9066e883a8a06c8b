"""Linear maps put together with what comes after them, so that one map makes what several nodes made.

    LayerNorm(affine(x_i))                      ==>  LayerNorm(Linear(x_i, R_i, c_i))
    LayerNorm(affine(Linear(x_i, W_i, b_i)))    ==>  LayerNorm(Linear(x_i, W_i R_i, b_i R_i + c_i))
    Split(Linear(x_i, [U_i V_i], [c_i d_i]))    ==>  Linear(x_i, U_i, c_i), Linear(x_i, V_i, d_i)

The first two mix features that the chain keeps apart, so one that is not finite would spread.  Therefore only
norms over all these features may read the result: they spread it as well.  What stood in between is left out
where nobody else reads it.  Which groups do so is the plan's choice: they have the form of a linear map.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from onnx import TensorProto

from onnx_sched.circuit import LINEAR, MAPS, SEVERAL, Circuit, Operand, Unit
from onnx_sched.constants import Array, Const, from_array
from onnx_sched.passes.affine import Affine, Numbers, affine
from onnx_sched.plan import AFFINE, COMPOSED, Group

FORMS = tuple(sorted(COMPOSED))
"""The forms of a group that runs as a linear map of what is further back."""


def find(circuit: Circuit) -> dict[int, Unit]:
    """By unit: the linear map (or several) that makes the same of what is further back."""
    found: dict[int, Unit] = {}
    aliased = frozenset(circuit.values.canon.values()) | circuit.graph.output_set
    for unit in circuit.units:
        made = None
        if unit.kind == "LayerNormalization" and not unit.domain:
            unit = circuit.maker.get(str(unit.operands[0]), unit)
            seen = unit.number in found or unit.outputs[0] in aliased
            if unit.kind in AFFINE and not seen and _normed(circuit, unit):
                made = _mapped(circuit, unit)
        elif unit.kind == "Split" and not unit.domain and unit.operands[0] not in aliased:
            made = _pieces(circuit, unit)
        if made is not None:
            found[unit.number] = made
    return found


def composed(circuit: Circuit, group: Group) -> tuple[Unit, ...]:
    """The linear maps as which a group could run instead; none where it could not, or they are not alike."""
    found = [circuit.composed[u.number] for u in group.units if u.number in circuit.composed]
    if len(found) < group.size or group.segments:
        return ()
    return tuple(found) if len({_sign(circuit, u) for u in found}) == 1 else ()


def compose(circuit: Circuit, groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups with those that have the form of a linear map as one."""
    return tuple(
        replace(g, units=maps) if g.form in FORMS and (maps := composed(circuit, g)) else g
        for g in groups
    )


def behind(groups: Sequence[Group]) -> frozenset[int]:
    """The units, by number, that are not needed for their own sake where these groups run as linear maps."""
    maps = (u for g in groups for u in g.units if u.kind in MAPS)
    return frozenset(p.number for u in maps for p in u.parts)


def ends(circuit: Circuit, groups: Sequence[Group]) -> dict[int, int]:
    """By group that may be part of a linear map in this plan: the group with which that ends, by place."""
    into = {
        p.number: n
        for n, g in enumerate(compose(circuit, groups))
        for u in g.units
        if u.kind in MAPS
        for p in u.parts
    }
    found = {n: into.get(g.units[0].number) for n, g in enumerate(groups)}
    return {n: end for n, end in found.items() if end is not None}


def _sign(circuit: Circuit, unit: Unit) -> object:
    """What linear maps must share to run as one."""
    weight = unit.operands[1]  # a bias that a lane has not is a row of zeros
    shape = weight.shape if isinstance(weight, Const) else None
    return (unit.kind, unit.attributes, circuit.shape(unit.operands[0]), shape)


# -- chains before norms ----------------------------------------------------------------------------


def _normed(circuit: Circuit, unit: Unit) -> bool:
    """Whether norms over the last axis read a unit's result, and nobody else."""
    name, graph = unit.outputs[0], circuit.graph
    users = [u for u, k in circuit.users.get(name, ()) if k == 0]
    rank = len(circuit.shape(name) or ())
    norms = all(
        u.kind == "LayerNormalization" and u.integer("axis", -1) % max(1, rank) == rank - 1
        for u in users
    )
    nodes = {k for u in users for k in u.nodes}
    return bool(
        norms
        and set(graph.readers.get(name, ())) <= nodes
        and len(users) == len(circuit.users.get(name, ()))
    )


def _mapped(circuit: Circuit, unit: Unit) -> Unit | None:
    """The linear map that ends with a unit."""
    found = affine(circuit, unit.outputs[0])
    if found is None:
        return None
    root, (weight, bias), parts = found.root, _constants(found), found.units[:-1]
    first = circuit.maker.get(root)
    if first is not None and _narrows(first, weight):
        root = str(first.operands[0])
        weight, bias = _product(first, weight, bias)
        parts = (first, *parts)
        if not all(_is_finite(c) for c in (*first.operands[1:], weight, bias)):
            return None
    elif not found.used:
        return None  # a feature that is not finite would reach results that do not follow from it
    return replace(unit, kind=LINEAR, operands=(root, weight, bias), attributes=(), parts=parts)


def _constants(found: Affine) -> tuple[Const, Const | None]:
    def single(numbers: Numbers) -> Const:
        return from_array(numbers.astype(np.float32), TensorProto.FLOAT)

    return single(found.linear), single(found.shift) if found.shift.any() else None


def _is_finite(operand: Operand) -> bool:
    """Whether a small constant is finite throughout; what is missing is."""
    return not isinstance(operand, Const) or bool(np.isfinite(operand.load()).all())


def _narrows(first: Unit, weight: Const) -> bool:
    """Whether the map before a chain is one by constants, and reads no more features than the chain does."""
    own = first.operands[1] if first.kind == LINEAR else None
    if not isinstance(own, Const) or own.elem_type != TensorProto.FLOAT:
        return False
    return own.shape[0] <= weight.shape[0]


def _product(first: Unit, weight: Const, bias: Const | None) -> tuple[Const, Const | None]:
    """The constants of one linear map after another, summed in double precision."""
    _, own, shift = first.operands
    assert isinstance(own, Const)
    whole = own.map(
        ("then", weight.key), (own.shape[0], weight.shape[1]), lambda w: _times(w, weight)
    )
    if not isinstance(shift, Const):
        return whole, bias
    last = bias

    def moved(row: Array) -> Array:
        with np.errstate(all="ignore"):
            total = np.asarray(row, np.float64) @ np.asarray(weight.load(), np.float64)
            result: Array = (total if last is None else total + last.load()).astype(row.dtype)
        return result

    key = ("then", weight.key, None if last is None else last.key)
    return whole, shift.map(key, weight.shape[1:], moved)


def _times(left: Array, weight: Const) -> Array:
    with np.errstate(all="ignore"):  # what is not finite is told afterwards
        result: Array = np.asarray(left, np.float64) @ np.asarray(weight.load(), np.float64)
        return result.astype(left.dtype)


# -- Splits behind linear maps ----------------------------------------------------------------------


def _pieces(circuit: Circuit, unit: Unit) -> Unit | None:
    """The linear maps that make the outputs of a Split, each with columns of its own."""
    name = str(unit.operands[0])
    first, shape = circuit.maker.get(name), circuit.shape(name)
    sizes = [(circuit.shape(o) or (None,))[-1] for o in unit.outputs if o]
    known = [s for s in sizes if isinstance(s, int) and s > 0]
    if first is None or first.kind != LINEAR or not shape or len(known) < len(unit.outputs):
        return None
    weight, last = first.operands[1], unit.integer("axis") % len(shape) == len(shape) - 1
    alone = set(circuit.graph.readers.get(name, ())) <= set(unit.nodes)
    if not last or not alone:
        return None
    if not isinstance(weight, Const) or weight.elem_type != TensorProto.FLOAT:
        return None
    return replace(
        unit,
        kind=SEVERAL,
        operands=first.operands,
        attributes=(("sizes", tuple(known)),),
        parts=(first,),
    )


def pieces(unit: Unit) -> Iterator[Unit]:
    """The linear maps of such a unit one by one."""
    sizes = unit.attribute("sizes")
    x, weight, bias = unit.operands
    assert isinstance(sizes, tuple)
    assert isinstance(weight, Const)
    start = 0
    for name, size in zip(unit.outputs, sizes, strict=True):
        cut = (start, start + size)
        columns = _columns(weight, cut)
        row = _columns(bias, cut) if isinstance(bias, Const) else None
        yield replace(unit, kind=LINEAR, operands=(x, columns, row), outputs=(name,), attributes=())
        start += size


def _columns(const: Const, cut: tuple[int, int]) -> Const:
    """Some entries of the last axis."""
    start, end = cut
    shape = (*const.shape[:-1], end - start)
    return const.map(("columns", cut), shape, lambda a: a[..., start:end])
