"""Fold what a norm multiplies and adds per lane into the linear maps behind it.

    Linear(LayerNorm(x_i, g_i, h_i), W_i, b_i)  ==>  Linear(LayerNorm(x_i, 1), g_i * W_i, b_i + h_i W_i)

Conditions: the norm works on the last axis, its scales differ by lane (equal ones cost nothing), and
nothing but linear maps of groups reads its result.  Rounding changes; the values do not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from onnx_sched.circuit import LINEAR, MAPS, Circuit, Operand, Unit
from onnx_sched.constants import Array, Const
from onnx_sched.plan import Group

CENTRED = "onnx_sched.centred"
"""Mark on a norm whose input has mean zero already: the linear map before it sees to that."""

Users = Mapping[str, Sequence[tuple[Unit, int]]]

NORMS = frozenset({"LayerNormalization", "RMSNormalization"})


def fold_norms(circuit: Circuit, groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups with every norm that can be folded left bare."""
    in_group = {u.number: u for g in groups for u in g.units}
    users = _users(circuit, in_group)
    changed: dict[int, Unit] = {}
    for group in groups:
        differs = group.kind in NORMS and len({key(u.operands[1]) for u in group.units}) > 1
        if differs and all(_foldable(circuit, unit, in_group, users) for unit in group.units):
            for unit in group.units:
                _fold(unit, [u for u, _ in users[unit.outputs[0]]], changed)
    return tuple(replace(g, units=tuple(changed.get(u.number, u) for u in g.units)) for g in groups)


def _users(circuit: Circuit, in_group: Mapping[int, Unit]) -> Users:
    """Who reads what: groups as they run, which may be as maps of what is further back."""
    found: dict[str, list[tuple[Unit, int]]] = {}
    for unit in circuit.units:
        unit = in_group.get(unit.number, unit)
        for k, operand in enumerate(unit.operands):
            if isinstance(operand, str):
                found.setdefault(operand, []).append((unit, k))
    return found


def fold_centres(circuit: Circuit, groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups with the mean that a norm by convolution subtracts taken out of the maps before it.

    x W + b - mean(x W + b)  ==>  x (W - mean(W)) + (b - mean(b)),  means over the columns
    """
    home = {u.number: g for g in groups for u in g.units}
    changed: dict[int, Unit] = {}
    for group in groups:
        if group.kind != "LayerNormalization" or group.form != "conv_t":
            continue
        makers = [_sole_maker(circuit, unit, home) for unit in group.units]
        if None in makers:
            continue
        for unit, maker in zip(group.units, makers, strict=True):
            assert maker is not None
            _, weight, bias = maker.operands
            assert isinstance(weight, Const)
            fixed = weight.map("centred", weight.shape, _centred)
            if isinstance(bias, Const):
                bias = bias.map("centred", bias.shape, _centred)
            changed[maker.number] = replace(maker, operands=(maker.operands[0], fixed, bias))
            changed[unit.number] = replace(unit, attributes=(*unit.attributes, (CENTRED, 1)))
    return tuple(replace(g, units=tuple(changed.get(u.number, u) for u in g.units)) for g in groups)


def _centred(numbers: Array) -> Array:
    """Numbers less their mean along the last axis."""
    with np.errstate(invalid="ignore"):  # infinite weights come to nothing, as in the norm
        result: Array = numbers - numbers.mean(axis=-1, keepdims=True, dtype=numbers.dtype)
    return result


def _sole_maker(circuit: Circuit, norm: Unit, home: Mapping[int, Group]) -> Unit | None:
    """The linear map of a group that makes a norm's input for it alone."""
    name = norm.operands[0]
    shape = circuit.shape(name)
    maker = circuit.maker.get(name) if isinstance(name, str) else None
    if maker is None or shape is None or maker.number not in home:
        return None
    maker = next(u for u in home[maker.number].units if u.number == maker.number)
    if maker.kind != LINEAR:
        return None
    if norm.integer("axis", -1) % len(shape) != len(shape) - 1 or not isinstance(name, str):
        return None
    # The norm may read it by way of a Concat and a Split, which others may read, too.
    alone = set(circuit.graph.readers.get(name, ())) <= set(norm.nodes)
    alone = alone and name not in circuit.graph.output_set
    return maker if alone else None


def key(operand: Operand) -> object:
    """What equal operands share."""
    return operand.key if isinstance(operand, Const) else operand


def _foldable(circuit: Circuit, unit: Unit, in_group: Collection[int], all_users: Users) -> bool:
    """Whether only linear maps of groups read a norm's result, as the rows that they multiply."""
    name, shape = unit.outputs[0], circuit.shape(unit.operands[0])
    if shape is None or unit.integer("axis", -1) % len(shape) != len(shape) - 1:
        return False
    if name in circuit.graph.output_set or not isinstance(unit.operands[1], Const):
        return False
    users = all_users.get(name, ())
    nodes = {k for u, _ in users for k in u.nodes}
    others = [k for k in circuit.graph.readers.get(name, ()) if k not in nodes]
    return (
        bool(users)
        and not others
        and all(u.kind in MAPS and k == 0 and u.number in in_group for u, k in users)
    )


def _fold(norm: Unit, users: Sequence[Unit], changed: dict[int, Unit]) -> None:
    """Move a norm's scale and shift into the linear maps behind it."""
    scale = norm.operands[1]
    shift = norm.operands[2] if len(norm.operands) > 2 else None
    assert isinstance(scale, Const)
    ones = ones_like(scale)
    rest = () if len(norm.operands) < 3 else (None,)
    changed[norm.number] = replace(norm, operands=(norm.operands[0], ones, *rest))
    for user in users:
        unit = changed.get(user.number, user)
        weight, bias = unit.operands[1], unit.operands[2]
        assert isinstance(weight, Const)
        new_bias = bias
        if isinstance(shift, Const):
            new_bias = _shifted(weight, bias if isinstance(bias, Const) else None, shift)
        scaled = weight.map(("rows", scale.key), weight.shape, lambda w: w * scale.load()[:, None])
        changed[user.number] = replace(unit, operands=(unit.operands[0], scaled, new_bias))


def ones_like(like: Const) -> Const:
    """Ones in another constant's shape and type."""
    key = ("ones", like.shape, like.elem_type)
    shape, dtype = like.shape, like.dtype
    return Const(shape, like.elem_type, dtype, key, lambda: np.ones(shape, dtype))


def _shifted(weight: Const, bias: Const | None, shift: Const) -> Const:
    """B + h W, summed in double precision."""
    key = ("shifted", weight.key, shift.key, bias.key if bias else None)

    def load() -> Array:
        total = np.asarray(shift.load(), np.float64) @ np.asarray(weight.load(), np.float64)
        if bias is not None:
            total = total + np.asarray(bias.load(), np.float64)
        result: Array = total.astype(weight.dtype)
        return result

    return Const(weight.shape[1:], weight.elem_type, weight.dtype, key, load)
