"""Operands that several rules need: one copy a lane, and the layout that takes the fewest nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from onnx_sched.constants import Const
from onnx_sched.passes.axes import place
from onnx_sched.passes.elementwise import full
from onnx_sched.passes.rule import Batch, laid_const, lane_alone
from onnx_sched.plan import Refused
from onnx_sched.relayout import effort, steps
from onnx_sched.stacking import LANE, Bulk, Layout, aligned, at, compact, flat, packed, spare_axis

EXPAND = 8
"""The opset from which on there is Expand."""

Suits = Callable[[Layout], bool]
"""Whether a rule can work in a layout."""


def choose(batch: Batch, slots: Sequence[int], suits: Suits, default: Layout) -> Layout:
    """The layout that suits a rule and to which operands come with the fewest nodes.

    Args:
        batch: The group.
        slots: Operands of equal rank; those that are no lanes do not count.
        suits: What the rule can work in.
        default: Taken where nothing else can be had.
    """
    found = [lanes for k in slots if (lanes := batch.lanes(k)) is not None]
    bulks = [batch.store.bulk(b) for b in found]
    there = [tuple(batch.store.placed(b)) for b in found]
    rank = len(batch.shape(slots[0]))
    options: dict[Layout, None] = {}
    for bulk, layouts in zip(bulks, there, strict=True):
        for layout in layouts:
            options |= dict.fromkeys((compact(layout, bulk), layout))
    options |= dict.fromkeys((default, *(at(rank, p) for p in range(rank + 1))))
    options |= dict.fromkeys(packed(rank, a) for a in range(rank))
    best: tuple[int, Layout] | None = None
    for option in options:
        if not suits(option) or not all(full(option, bulk) for bulk in bulks):
            continue
        costs = [_cost(bulk, ls, option) for bulk, ls in zip(bulks, there, strict=True)]
        total = sum(c for c in costs if c is not None)
        if None not in costs and (best is None or total < best[0]):
            best = total, option
    return best[1] if best is not None else default


def _cost(bulk: Bulk, there: Iterable[Layout], target: Layout) -> int | None:
    """Nodes from the nearest layout at hand; one if there is none, None if sizes stand in the way."""
    routes = [steps(bulk, source, target) for source in there]
    efforts = [effort(r) for r in routes if r is not None]
    return min(efforts, default=None if routes else 1)


def apart(layout: Layout, rank: int) -> bool:
    """Whether lanes and every axis lie by themselves, in whatever order, and nothing else does."""
    alone = (LANE,) in layout and all(place(layout, a) is not None for a in range(rank))
    return alone and spare_axis(layout) is None


def apiece(batch: Batch, k: int, layout: Layout) -> str:
    """Operand k with one copy for each lane, in a layout: for ops that do not broadcast.

    Raises:
        Refused: If the one value that all lanes read finds no axis of its own for the copies.
    """
    lanes = batch.lanes(k)
    if lanes is not None:
        return batch.store.get(lanes, layout)
    own = batch.bulk(batch.shape(k))
    rank = len(own.shape)
    single = batch.single(k)
    if single is None:
        made = laid_const(own_consts(batch, k), layout, own)
        assert made is not None
        return batch.emit.const(made, f"{batch.hint}_const{k}")
    side = next((a for a in range(rank) if layout == packed(rank, a)), None)
    if side is not None:
        copied = [batch.store.value(single)] * batch.size
        return batch.emit.node("Concat", copied, f"{batch.hint}_copies", axis=side)[0]
    position, beside = lane_alone(layout, rank), batch.beside(single, layout, rank, rank)
    if position is None or beside is None or batch.emit.opset < EXPAND:
        raise Refused(
            "S102", f"operand {k} of {batch.circuit.label(batch.unit)} is one value for all lanes"
        )
    copies = [1] * (rank + 1)
    copies[position] = batch.size
    shape = batch.emit.ints(copies, f"{batch.hint}_copies")
    return batch.emit.node("Expand", [beside, shape], f"{batch.hint}_copies")[0]


def own_consts(batch: Batch, k: int) -> list[Const]:
    """Operand k as one constant a lane, equal ones repeated."""
    found = [o for o in batch.operands(k) if isinstance(o, Const)]
    if len(found) != batch.size:
        raise Refused("S106", f"operand {k} is not constant in every lane")
    return found


def has(batch: Batch, k: int) -> bool:
    """Whether the members have an operand k at all."""
    return batch.slots > k and batch.unit.operands[k] is not None


def one(batch: Batch, k: int) -> str | None:
    """Operand k if it is one value or one constant for all lanes."""
    single = batch.single(k)
    if single is not None:
        return batch.store.value(single)
    if isinstance(batch.unit.operands[k], Const) and len(batch.consts(k)) == 1:
        return batch.emit.const(batch.consts(k)[0], f"{batch.hint}_const{k}")
    return None


def factor(batch: Batch, k: int, layout: Layout) -> str:
    """Operand k of a product in a layout; what all lanes share is one lane that broadcasts."""
    lanes, single = batch.lanes(k), batch.single(k)
    bundle = lanes if lanes is not None else (single,) if single is not None else None
    if bundle is not None:
        return batch.store.get(bundle, layout)
    parts = batch.consts(k)
    made = laid_const(parts, layout, Bulk(len(parts), batch.shape(k)))
    assert made is not None
    return batch.emit.const(made, f"{batch.hint}_const{k}")


def under(batch: Batch, k: int, layout: Layout) -> Layout:
    """How operand k, matrices, must lie to meet products that lie in a layout."""
    rank, own = len(batch.out_bulk().shape), len(batch.shape(k))
    return flat(own) if layout == flat(rank) else aligned(layout, rank, own)


def multiplied(batch: Batch, k: int, layout: Layout) -> str:
    """Operand k of products that lie in a layout; one value for all lanes is left to broadcasting."""
    shape, own = batch.shape(k), under(batch, k, layout)
    lanes, single = batch.lanes(k), batch.single(k)
    if lanes is not None:
        return batch.store.get(lanes, own)
    if single is not None:
        merged = own == flat(len(shape))
        return batch.store.get((single,), own) if merged else batch.store.value(single)
    parts = batch.consts(k)
    if len(parts) == 1:
        return batch.emit.const(parts[0], f"{batch.hint}_const{k}")
    made = laid_const(parts, own, Bulk(batch.size, shape))
    assert made is not None
    return batch.emit.const(made, f"{batch.hint}_const{k}")
