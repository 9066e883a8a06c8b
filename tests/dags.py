"""Random graphs and wire systems for property tests, and the slow obvious answers about them.

A graph is a list of predecessors by op number, as in `onnx_sched.wires`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import strategies as st

from onnx_sched.wires import Support

Dag = tuple[tuple[int, ...], ...]


@st.composite
def dags(draw: st.DrawFn, max_ops: int = 14) -> Dag:
    """Any graph: isolated ops, several inputs and outputs, dead ends, long skips."""
    count = draw(st.integers(0, max_ops))
    preds: list[tuple[int, ...]] = []
    for op in range(count):
        if op == 0:
            preds.append(())
            continue
        preds.append(tuple(draw(st.lists(st.integers(0, op - 1), max_size=4, unique=True))))
    return tuple(preds)


@st.composite
def models(draw: st.DrawFn, max_blocks: int = 4) -> Dag:
    """Graphs that look like models: blocks of branches from a fork to a join, residual skips."""
    preds: list[tuple[int, ...]] = [()]
    trunk = 0
    for _ in range(draw(st.integers(0, max_blocks))):
        ends: list[int] = []
        for length in draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)):
            last = trunk
            for _ in range(length):
                preds.append((last,))
                last = len(preds) - 1
            ends.append(last)
        residual = (trunk,) if draw(st.booleans()) else ()
        preds.append((*ends, *residual))
        trunk = len(preds) - 1
    return tuple(preds)


@st.composite
def orders(draw: st.DrawFn, preds: Dag) -> tuple[int, ...]:
    """Another topological order of the ops."""
    waits = [len(set(before)) for before in preds]
    readers: list[list[int]] = [[] for _ in preds]
    for op, before in enumerate(preds):
        for pred in set(before):
            readers[pred].append(op)
    ready = [op for op, count in enumerate(waits) if not count]
    order: list[int] = []
    while ready:
        op = ready.pop(draw(st.integers(0, len(ready) - 1)))
        order.append(op)
        for reader in readers[op]:
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    return tuple(order)


@st.composite
def shuffled(draw: st.DrawFn, max_ops: int = 14) -> tuple[Dag, tuple[int, ...]]:
    """A graph and another topological order of its ops."""
    preds = draw(st.one_of(dags(max_ops), models()))
    return preds, draw(orders(preds))


@st.composite
def wire_systems(draw: st.DrawFn, max_ops: int = 12, max_wires: int = 5) -> tuple[Support, ...]:
    """Any supports: for each op a set of wires, at least one."""
    wires = st.sets(st.integers(0, max_wires - 1), min_size=1, max_size=3)
    return tuple(tuple(sorted(draw(wires))) for _ in range(draw(st.integers(0, max_ops))))


def relabel(preds: Dag, order: Sequence[int]) -> Dag:
    """Number the ops by their place in `order`."""
    place = {op: number for number, op in enumerate(order)}
    return tuple(tuple(place[pred] for pred in preds[op]) for op in order)


def ancestors(preds: Dag) -> list[set[int]]:
    """Return for each op all ops that reach it."""
    above: list[set[int]] = []
    for before in preds:
        above.append(set(before).union(*(above[pred] for pred in before)))
    return above


def longest_paths(preds: Dag) -> list[int]:
    """Return the edges on the longest path to each op, by relaxing until nothing moves."""
    longest = [0] * len(preds)
    moved = True
    while moved:
        moved = False
        for op, before in enumerate(preds):
            for pred in before:
                if longest[op] < longest[pred] + 1:
                    longest[op] = longest[pred] + 1
                    moved = True
    return longest


def long_dag(count: int, window: int, seed: int) -> Dag:
    """A long graph of short skips and a few from far back."""
    rng = random.Random(seed)
    preds: list[tuple[int, ...]] = [()]
    for op in range(1, count):
        start = 0 if rng.random() < 0.05 else max(0, op - window)
        reads = {rng.randrange(start, op) for _ in range(rng.choice((1, 1, 2, 3)))}
        preds.append(tuple(sorted(reads)))
    return tuple(preds)


def grouped_mlp(layers: int, groups: int, ops: int = 1) -> Dag:
    """`layers` times: a Split, `groups` branches of `ops` ops, a Concat."""
    preds: list[tuple[int, ...]] = []
    for _ in range(layers):
        preds.append((len(preds) - 1,) if preds else ())
        split = len(preds) - 1
        ends: list[int] = []
        for _ in range(groups):
            preds.append((split,))
            preds.extend((len(preds) - 1,) for _ in range(ops - 1))
            ends.append(len(preds) - 1)
        preds.append(tuple(ends))
    return tuple(preds)


def chains(*texts: str) -> tuple[Dag, tuple[str, ...]]:
    """Independent chains, one letter an op: the graph and the letters as signatures."""
    preds: list[tuple[int, ...]] = []
    for text in texts:
        for place in range(len(text)):
            preds.append((len(preds) - 1,) if place else ())
    return tuple(preds), tuple("".join(texts))
