"""The head rule: which ops may run together, given the wires that they touch.

Wires w_1..w_m, supports S_x, head pointers h. F = {x : for all i in S_x, (w_i)_{h_i} = x} is the
next layer; advance the pointers of its wires, repeat. Two ops of F never share a wire, since both
would be the head of it. The result is the Cartier-Foata normal form: as few layers as any layering
that keeps the order on every wire can have, and every op in the earliest layer that it can have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain

from onnx_sched.errors import SchedError
from onnx_sched.wires import Support, Wire, words

_SHOWN = 6  # steps of a cycle that a message spells out


class Deadlock(SchedError):  # noqa: N818 - the name of the field
    """The orders on the wires contradict each other, so that some ops never come first.

    Attributes:
        cycle: Ops of which each waits for the next, and the last for the first.
    """

    def __init__(self, message: str, cycle: tuple[int, ...], hint: str = "") -> None:
        super().__init__(message, hint)
        self.cycle = cycle


@dataclass(frozen=True, slots=True)
class Layer:
    """Ops that may run together: no two of them touch one wire.

    Attributes:
        ops: The ops, ascending when the head rule made the layer.
        supports: For each op, in the same order, the wires that it touches.

    Raises:
        SchedError: If two ops share a wire, or the numbers of ops and supports differ.
    """

    ops: tuple[int, ...]
    supports: tuple[Support, ...]

    def __post_init__(self) -> None:
        if len(self.ops) != len(self.supports):
            raise SchedError(f"a layer of {len(self.ops)} ops has {len(self.supports)} supports")
        if len(set(chain.from_iterable(self.supports))) == sum(map(len, self.supports)):
            return
        owner: dict[Wire, int] = {}
        for op, wires in zip(self.ops, self.supports, strict=True):
            for wire in wires:
                if wire in owner:
                    raise SchedError(f"op {owner[wire]} and op {op} of one layer share wire {wire}")
                owner[wire] = op


def head_layers(
    supports: Sequence[Support], order: Sequence[int] | None = None
) -> tuple[Layer, ...]:
    """Layer the ops by the head rule, where every wire has its ops in one common order.

    Words that are projections of one sequence never deadlock. Takes O(sum |S_x|) steps.

    Args:
        supports: For each op the wires that it touches, at least one. (On an op without wires the
            head condition holds for ever; whoever makes supports gives such an op a private wire.)
        order: The common order, a permutation of the ops; the order of their numbers if None.

    Raises:
        SchedError: If an op touches no wire or one twice, or `order` is not a permutation.
    """
    _refuse_empty(supports)
    if order is None:
        return _layers(words(supports), dict(enumerate(supports)))
    if sorted(order) != list(range(len(supports))):
        raise SchedError(f"the order does not name each of the {len(supports)} ops once")
    renumbered = words([supports[op] for op in order])
    return _layers([[order[k] for k in word] for word in renumbered], dict(enumerate(supports)))


def head_layers_of_words(orders: Sequence[Sequence[int]]) -> tuple[Layer, ...]:
    """Layer the ops by the head rule, where every wire brings its own order.

    Args:
        orders: For each wire the ops that touch it, first to last.

    Raises:
        Deadlock: If the orders contradict each other.
        SchedError: If an op stands twice on a wire.
    """
    touched: dict[int, list[Wire]] = {}
    for wire, word in enumerate(orders):
        for op in word:
            wires = touched.setdefault(op, [])
            if wires and wires[-1] == wire:
                raise SchedError(f"op {op} stands twice on wire {wire}")
            wires.append(wire)
    return _layers(orders, {op: tuple(wires) for op, wires in touched.items()})


def layer_numbers(supports: Sequence[Support]) -> tuple[int, ...]:
    """Return layer(x) = 1 + max layer of the ops before x on its wires, -1 where there are none.

    The same layers as `head_layers`, counted from 0, as one number for each op.

    Raises:
        SchedError: If an op touches no wire.
    """
    _refuse_empty(supports)
    last: dict[Wire, int] = {}
    numbers: list[int] = []
    for wires in supports:
        layer = 1 + max([last.get(wire, -1) for wire in wires])
        last.update(dict.fromkeys(wires, layer))
        numbers.append(layer)
    return tuple(numbers)


def depth(supports: Sequence[Support]) -> int:
    """Return the number of layers: ops on the longest chain of neighbours on wires, 0 for no ops.

    Raises:
        SchedError: If an op touches no wire.
    """
    return 1 + max(layer_numbers(supports), default=-1)


def _refuse_empty(supports: Sequence[Support]) -> None:
    if not all(supports):
        op = next(op for op, wires in enumerate(supports) if not wires)
        raise SchedError(
            f"op {op} touches no wire, so nothing says when it may run",
            hint="give an op without inputs and readers a wire of its own",
        )


def _layers(orders: Sequence[Sequence[int]], supports: Mapping[int, Support]) -> tuple[Layer, ...]:
    rest = [iter(word) for word in orders]
    missing = {op: len(wires) for op, wires in supports.items()}  # wires that it does not head yet
    heads = [next(word, None) for word in rest]  # only of the wires that have just moved on
    layers: list[Layer] = []
    while heads:
        feasible: list[int] = []
        for op in heads:
            if op is not None:
                missing[op] -= 1
                if not missing[op]:
                    feasible.append(op)
        if not feasible:
            break
        feasible.sort()
        layers.append(Layer(tuple(feasible), tuple([supports[op] for op in feasible])))
        heads = [next(rest[wire], None) for wire in chain.from_iterable(layers[-1].supports)]
    if any(missing.values()):
        raise _deadlock(orders, supports, {op for op, wires in missing.items() if wires})
    return tuple(layers)


def _deadlock(
    orders: Sequence[Sequence[int]], supports: Mapping[int, Support], stuck: Set[int]
) -> Deadlock:
    """Follow "waits for the head of one of my wires" from a stuck op until it closes a cycle."""
    head = [next((op for op in word if op in stuck), None) for word in orders]
    path: list[tuple[int, Wire, int]] = []
    place: dict[int, int] = {}
    op = min(stuck)
    while op not in place:
        place[op] = len(path)
        wire, awaited = next(
            (wire, first)
            for wire in supports[op]
            if (first := head[wire]) is not None and first != op
        )
        path.append((op, wire, awaited))
        op = awaited
    cycle = path[place[op] :]
    told = [f"op {op} waits for op {awaited} on wire {wire}" for op, wire, awaited in cycle]
    if len(told) > _SHOWN:
        told[_SHOWN:] = [f"and so on, {len(cycle)} ops in all"]
    return Deadlock(
        "the orders on the wires contradict each other: " + "; ".join(told),
        tuple(op for op, _, _ in cycle),
        hint="take the order of every wire from one topological order of the graph",
    )
