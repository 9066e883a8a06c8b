"""Cut a graph into components that share no batch, and tell apart what can never run together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from onnx_sched.wires import Preds


@dataclass(frozen=True, slots=True)
class Part:
    """A component: ops numbered 0..n-1, what each waits for at least, kinds numbered 0..k-1.

    Attributes:
        preds: By op: the covering relation, without what longer paths imply.
        kinds: By op: what it can share a batch with.
        prices: By kind: what a batch costs.
    """

    preds: tuple[tuple[int, ...], ...]
    kinds: tuple[int, ...]
    prices: tuple[int, ...]


def components(
    dag: Preds, signatures: Sequence[Hashable], weights: Sequence[int]
) -> tuple[int, list[tuple[list[int], Part]]]:
    """What alone ops cost, and the components with their ops."""
    often = Counter(signatures)
    ops = [op for op, sign in enumerate(signatures) if weights[op] and often[sign] > 1]
    kinds = _split([signatures[op] for op in ops], above_of(dag, ops))
    alike = Counter(kinds)
    kept = [(op, kind) for op, kind in zip(ops, kinds, strict=True) if alike[kind] > 1]
    ops, kinds = [op for op, _ in kept], [kind for _, kind in kept]
    batched = set(ops)
    fixed = sum(weight for op, weight in enumerate(weights) if op not in batched)
    above = above_of(dag, ops)
    covers = [nearest(mask, above) for mask in above]
    after: dict[int, set[int]] = {kind: set() for kind in kinds}
    for kind, before in zip(kinds, covers, strict=True):
        for pred in before:
            after[kinds[pred]].add(kind)
    number = {kind: n for n, knot in enumerate(_knots(after)) for kind in knot}
    inside: dict[int, list[int]] = {}
    for place, kind in enumerate(kinds):
        inside.setdefault(number[kind], []).append(place)
    prices = [weights[op] for op in ops]
    return fixed, [
        ([ops[place] for place in places], _part(places, covers, kinds, prices))
        for places in inside.values()
    ]


def _part(
    places: Sequence[int],
    covers: Sequence[Sequence[int]],
    kinds: Sequence[int],
    prices: Sequence[int],
) -> Part:
    """A component by itself, with numbers of its own: what is built alike is equal."""
    at = {place: n for n, place in enumerate(places)}
    new: dict[int, int] = {}
    return Part(
        tuple(tuple(at[p] for p in sorted(covers[place]) if p in at) for place in places),
        tuple(new.setdefault(kinds[place], len(new)) for place in places),
        tuple({kinds[place]: prices[place] for place in places}.values()),
    )


def above_of(dag: Preds, ops: Sequence[int]) -> list[int]:
    """For each of some ops the set of those among them that precede it, as bits in their order."""
    bit = {op: 1 << n for n, op in enumerate(ops)}
    before: list[int] = []
    for preds in dag:
        mask = 0
        for pred in preds:
            mask |= before[pred] | bit.get(pred, 0)
        before.append(mask)
    return [before[op] for op in ops]


def nearest(mask: int, above: Sequence[int]) -> list[int]:
    """The ops of a set that precede no other of it; the highest one left never does."""
    found: list[int] = []
    while mask:
        top = mask.bit_length() - 1
        found.append(top)
        mask &= ~(above[top] | 1 << top)
    return found


def _split(signatures: Sequence[Hashable], above: Sequence[int]) -> list[int]:
    """Tell apart ops of one signature where all earlier ones precede all later ones.

    Returns:
        For each op the first op of its kind.
    """
    members: dict[Hashable, list[int]] = {}
    for op, signature in enumerate(signatures):
        members.setdefault(signature, []).append(op)
    kinds = [0] * len(signatures)
    for ops in members.values():
        earlier, reach = 0, []
        for op in ops:
            beside = earlier & ~above[op]
            reach.append((beside & -beside).bit_length() - 1 if beside else op)
            earlier |= 1 << op
        kind, lowest = [], len(above)
        for op, low in zip(reversed(ops), reversed(reach), strict=True):
            kind.append(op)
            lowest = min(lowest, low)
            if lowest == op:
                for member in kind:
                    kinds[member] = op
                kind = []
    return kinds


def _knots(after: Mapping[int, set[int]]) -> list[list[int]]:
    """Strongly connected components, by Kosaraju's two walks."""
    back: dict[int, set[int]] = {node: set() for node in after}
    for node, others in after.items():
        for other in others:
            back[other].add(node)
    seen: set[int] = set()
    order = [node for start in after for node in _walk(start, after, seen)]
    seen = set()
    return [knot for start in reversed(order) if (knot := _walk(start, back, seen))]


def _walk(start: int, links: Mapping[int, set[int]], seen: set[int]) -> list[int]:
    """The nodes not yet seen that a node reaches, each after those that it leads to."""
    if start in seen:
        return []
    seen.add(start)
    stack, left = [(start, iter(links[start]))], []
    while stack:
        _, rest = stack[-1]
        for other in rest:
            if other not in seen:
                seen.add(other)
                stack.append((other, iter(links[other])))
                break
        else:
            left.append(stack.pop()[0])
    return left
