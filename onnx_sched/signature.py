"""When two units are the same computation on different data."""

from __future__ import annotations

from collections.abc import Hashable

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Const

Signature = tuple[Hashable, ...]


def signature(
    unit: Unit,
    circuit: Circuit,
    static: tuple[int, ...] = (),
    optional: tuple[int, ...] = (),
    spread: bool = False,
) -> Signature | None:
    """What must be equal for units to run as one node; None where too little is known.

    Args:
        unit: The unit.
        circuit: Its surroundings.
        static: Operands whose constant values must be equal, too.
        optional: Operands that may be missing in some lanes (a bias is then a row of zeros).
        spread: Whether constant operands may have different shapes (they broadcast).
    """
    parts: list[Hashable] = [unit.domain, unit.kind, unit.attributes, len(unit.outputs)]
    parts.append(tuple(bool(o) for o in unit.outputs))
    for k, operand in enumerate(unit.operands):
        if k in optional:
            continue
        if operand is None:
            parts.append(None)
            continue
        shape, elem_type = circuit.shape(operand), circuit.elem_type(operand)
        if shape is None or elem_type is None:
            return None
        if isinstance(operand, Const):
            if k in static:
                parts.append(("static", operand.key))
            else:
                parts.append(("const", elem_type, None if spread else shape))
        else:
            parts.append(("value", elem_type, shape))
    # An operand that is computed may decide the shape: equal operand types are then not enough.
    parts += [circuit.values.types.get(o) for o in unit.outputs]
    return tuple(parts)
