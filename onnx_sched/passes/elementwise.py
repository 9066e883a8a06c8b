"""Ops that work number by number: in any layout, lanes are just more numbers.

    f(x_i, y_i, ...)  ==>  f(Stack(x), Stack(y), ...)

Right-aligned broadcasting is the trap: an operand of lower rank is raised to the lanes' rank before the
lane axis goes in front, (d,) -> (G, 1, d), or it would meet the lanes instead of the rows.
"""

from __future__ import annotations

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Const
from onnx_sched.dims import broadcast
from onnx_sched.passes.homes import Bundle
from onnx_sched.passes.rule import Batch, Rule, Table, lane_alone, meets
from onnx_sched.plan import Refused
from onnx_sched.relayout import effort, steps
from onnx_sched.stacking import Bulk, Layout, at, compact, lead, without_spare


def layouts(batch: Batch, bulk: Bulk) -> list[Layout]:
    """Where the result might lie, best first: where its lane operands lie, or can be brought easily."""
    rank = len(bulk.shape)
    found = [
        lanes
        for k in range(batch.slots)
        if (lanes := batch.lanes(k)) is not None and len(batch.shape(k)) == rank
    ]
    options: dict[Layout, None] = {}
    for lanes in found:
        own = batch.store.bulk(lanes)
        for source in batch.store.placed(lanes):
            near = (compact(source, own), source, *(at(rank, p) for p in range(rank + 1)))
            options |= dict.fromkeys(layout for layout in near if full(layout, bulk))
    options.setdefault(lead(rank))
    widens = broadcasts(batch, bulk)  # along an innermost axis of size 1 that is slow

    wish = batch.store.wish(batch.outputs())

    def price(layout: Layout) -> tuple[int, int]:
        away = sum(distance(batch, lanes, layout) for lanes in dict.fromkeys(found))
        onward = 0
        if wish is not None:
            route = steps(bulk, without_spare(layout), wish)
            onward = rank if route is None else effort(route)
        slow = 2 * (widens and bulk.physical(layout)[-1] == 1)
        # Where it is all the same, what moves moves later: a product takes what follows it at once.
        return away + onward + slow, away

    return sorted(options, key=price)


def distance(batch: Batch, lanes: Bundle, layout: Layout) -> int:
    """Nodes that bring a bundle into a layout from the nearest one at hand."""
    bulk = batch.store.bulk(lanes)
    routes = [steps(bulk, source, layout) for source in batch.store.placed(lanes)]
    return min((effort(r) for r in routes if r is not None), default=len(bulk.shape))


def broadcasts(batch: Batch, bulk: Bulk) -> bool:
    """Whether an operand has to be widened to meet the result; a single number is not counted."""
    for k, operand in enumerate(batch.unit.operands):
        shape = batch.circuit.shape(operand)
        varies = isinstance(operand, Const) and len(batch.consts(k)) > 1
        if operand is not None and shape != bulk.shape and (varies or shape not in ((), (1,))):
            return True
    return False


def full(layout: Layout, bulk: Bulk) -> bool:
    """Whether a layout names every axis that may be wider than 1."""
    named = {a for axis in layout for a in axis}
    return all(i in named or d == 1 for i, d in enumerate(bulk.shape))


def emit(batch: Batch) -> None:
    """One node of the same type on all lanes."""
    bulk = batch.out_bulk()
    if batch.unit.kind == "PRelu" and batch.lanes(0) is None:
        raise Refused("S102", "PRelu of one value: slopes broadcast to it, never it to them")
    for layout in layouts(batch, bulk):
        if not all(fits(batch, k, layout, bulk) for k in range(batch.slots)):
            continue
        names = [batch.operand(k, layout, bulk) for k in range(batch.slots)]
        if None not in names:
            out = batch.make(
                batch.unit.kind,
                [n for n in names if n is not None],
                domain=batch.unit.domain,
                **batch.attributes(),
            )
            batch.put(layout, out[0])
            return
    raise Refused("S302", f"no layout suits every operand of {batch.circuit.label(batch.unit)}")


def fits(batch: Batch, k: int, layout: Layout, bulk: Bulk) -> bool:
    """Whether operand k can meet a result in a layout, asked before anything is made."""
    operand = batch.unit.operands[k]
    if operand is None or isinstance(operand, Const):
        return True
    if batch.single(k) is not None:
        return lane_alone(layout, len(bulk.shape)) is not None
    return meets(layout, bulk, batch.shape(k))


def check(unit: Unit, circuit: Circuit) -> str | None:
    """Shapes must be known, and constants must not raise the rank of the result."""
    shapes = [circuit.shape(o) for o in unit.operands if o is not None]
    if any(s is None for s in shapes):
        return "the shape of an operand is not known"
    out = circuit.values.shape(unit.outputs[0])
    if out is None or any(unit.outputs[1:]):
        return "the shape of the result is not known" if out is None else "it has a second output"
    known = [s for s in shapes if s is not None]
    if broadcast(known) is None:
        return "its operands' shapes may or may not broadcast"
    return None


def check_clip(unit: Unit, circuit: Circuit) -> str | None:
    """Bounds must be constant: a computed bound could differ by lane, and Clip takes scalars only."""
    if any(isinstance(o, str) for o in unit.operands[1:]):
        return "its bounds are computed"
    return check(unit, circuit)


UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu "
    "HardSigmoid HardSwish IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink "
    "Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Cast"
).split()
BINARY = (
    "Add And BitwiseAnd BitwiseOr BitwiseXor BitShift Div Equal Greater GreaterOrEqual Less "
    "LessOrEqual Max Mean Min Mod Mul Or Pow PRelu Sub Sum Where Xor"
).split()

RULES: Table = {
    **dict.fromkeys((*UNARY, *BINARY), Rule(emit, check, spread=True)),
    "Clip": Rule(emit, check_clip, static=(1, 2)),
}

CONTRIB: Table = dict.fromkeys(("Gelu", "QuickGelu"), Rule(emit, check, spread=True))
"""The same for ops of com.microsoft."""
