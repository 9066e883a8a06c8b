"""Weighted sums, as gates make them of experts: what is multiplied and then added up is a matrix product.

    ReduceSum(Mul(w_i, x_i), axis)  ==>  MatMul(Stack(w), Stack(x))

Conditions: floating point, one constant axis of equal size, an operand that broadcasts along an axis of
the other (numbers multiplied in pairs gain nothing), and a product that nobody else reads.  Saved is a Mul
that broadcasts, and all that it would write and the sum read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from onnx_sched.circuit import WEIGHTED, Circuit, Unit
from onnx_sched.passes import axes, elementwise
from onnx_sched.passes.boundaries import Store
from onnx_sched.passes.emit import Emitter
from onnx_sched.passes.homes import Bundle
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.relayout import Crop, Step, Transpose, effort, steps
from onnx_sched.stacking import Layout, plain
from onnx_sched.values import Values
from onnx_sched.weighing import FORM, MULTIPLIED, Factors, Place, Way, ways

MOVED = 3
"""What a step counts that copies, where others count 1."""

FAR = 100
"""What a layout counts that cannot be reached."""


def together(product: Unit, total: Unit, values: Values, opset: int) -> Unit | None:
    """A Mul and the ReduceSum that alone reads it as one unit, if they are a matrix product that pays.

    The operand with the larger free part comes second, so that lanes are alike however they are spelled.
    """
    a, b = product.operands
    if not isinstance(a, str) or not isinstance(b, str) or a == b:
        return None
    if any(n not in values.types or values.types[n].elem_type not in MULTIPLIED for n in (a, b)):
        return None
    shapes = values.shape(a), values.shape(b)
    if shapes[0] is None or shapes[1] is None:
        return None
    rank = max(len(shapes[0]), len(shapes[1]))
    summed = axes.axes_of(total, opset, axes.reduction_since(total.kind), rank)
    if summed is None or len(summed) != 1 or not 0 <= summed[0] < rank:
        return None
    inner = summed[0]
    keep = bool(total.integer("keepdims", 1))
    factors = Factors((shapes[0], shapes[1]), inner, keep)
    if not factors.fits or not factors.size(0, inner) == factors.size(1, inner) != 1:
        return None
    if not factors.pays():
        return None
    if len(factors.free(0)) > len(factors.free(1)):
        a, b = b, a
    return replace(
        total,
        kind=WEIGHTED,
        nodes=(*product.nodes, *total.nodes),
        operands=(a, b),
        attributes=(("axis", inner), ("keepdims", int(keep))),
        parts=(product, total),
    )


def factors_of(unit: Unit, circuit: Circuit) -> Factors | None:
    """What a weighted sum multiplies and over what it sums."""
    shapes = circuit.shape(unit.operands[0]), circuit.shape(unit.operands[1])
    if shapes[0] is None or shapes[1] is None:
        return None
    return Factors((shapes[0], shapes[1]), unit.integer("axis"), bool(unit.integer("keepdims")))


def check(unit: Unit, circuit: Circuit) -> str | None:
    """Shapes must be known."""
    if factors_of(unit, circuit) is None or circuit.values.shape(unit.outputs[0]) is None:
        return "the shape of an operand or of the result is not known"
    return None


def weigh(batch: Batch) -> None:
    """One product for the weighted sums of all lanes; or one Mul and one ReduceSum."""
    if batch.group.form == FORM and _as_product(batch):
        return
    for k, rule in enumerate((elementwise.RULES["Mul"], axes.RULES["ReduceSum"])):
        units = tuple(u.parts[k] for u in batch.units)
        rule.emit(replace(batch, group=replace(batch.group, units=units)))


def _as_product(batch: Batch) -> bool:
    """Make one product; False if sizes stand in the way."""
    factors = factors_of(batch.unit, batch.circuit)
    assert factors is not None
    held = tuple(k for k in (0, 1) if batch.lanes(k) is not None)
    places = [Place(held, "batch", at) for at in range(len(factors.batches) + 1)]
    if len(held) == 1:
        # ONNX Runtime gets the shape wrong where matrices are repeated and there is nothing to sum.
        nothing = factors.inner is not None and batch.may_be_empty(factors.size(0, factors.inner))
        places = [Place(held, "free"), *([] if nothing else places)]
    bundles = [batch.lanes(k) or (batch.single(k) or "",) for k in (0, 1)]
    wish, bulk = batch.store.wish(batch.outputs()), batch.out_bulk()

    def onward(whole: Layout) -> int:
        return 0 if wish is None else toll(steps(bulk, whole, wish))

    options = (way for place in places for way in ways(factors, place))
    best = nearest(batch.store, bundles, options, onward)
    if best is None:
        return False
    _, way = best
    names = [batch.store.get(b, layout) for b, layout in zip(bundles, way.layouts, strict=True)]
    batch.put(way.whole, product(batch.emit, names, way, batch.hint))
    return True


def product(
    emit: Emitter, names: Sequence[str], way: Way, hint: str, out: str | None = None
) -> str:
    """The MatMul of a way, of the operands in their order."""
    outputs = 1 if out is None else [out]
    return emit.node("MatMul", [names[way.left], names[1 - way.left]], hint, outputs)[0]


def nearest(
    store: Store, bundles: Sequence[Bundle], options: Iterable[Way], onward: Callable[[Layout], int]
) -> tuple[int, Way] | None:
    """The product whose operands and result move least, and how much that is.

    An empty bundle is a constant that lies as it must.  None if sizes stand in the way of every one.
    """
    best: tuple[int, Way] | None = None
    for way in options:
        cost = onward(way.whole)
        laid = zip(bundles, way.layouts, strict=True)
        cost += sum(_distance(store, bundle, layout) for bundle, layout in laid if bundle)
        if cost < FAR and (best is None or cost < best[0]):
            best = cost, way
    return best


def _distance(store: Store, bundle: Bundle, layout: Layout) -> int:
    """What it takes to bring a bundle into a layout; of one that comes from several places, a guess."""
    bulk = store.bulk(bundle)
    there: list[Layout] = list(store.placed(bundle))
    if not there and len(bundle) == 1:
        there = [plain(len(bulk.shape))]
    return min((toll(steps(bulk, source, layout)) for source in there), default=MOVED)


def toll(route: tuple[Step, ...] | None) -> int:
    """Nodes of a change of layout; those that copy count more."""
    if route is None:
        return FAR
    return effort(route) + (MOVED - 1) * sum(isinstance(step, Transpose | Crop) for step in route)


RULES: Table = {WEIGHTED: Rule(weigh, check)}
