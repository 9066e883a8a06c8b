"""Which nodes of the original a node of a rewritten model stands for."""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterable, Sequence

from onnx import NodeProto

from onnx_sched.cost import MOVES, VIEWS
from onnx_sched.passes.rewrite import MEMBERS

LAYOUT = MOVES | VIEWS | {"Shape"}
"""Ops that compute nothing."""


def members(node: NodeProto) -> tuple[str, ...]:
    """The names that a node notes of what it replaced; none where it notes nothing that can be read."""
    note = next((p.value for p in node.metadata_props if p.key == MEMBERS), "")
    try:
        found = json.loads(note) if note else []
    except (ValueError, RecursionError):
        return ()
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        return ()
    return tuple(found)


def workers(nodes: Sequence[tuple[str, Hashable, Collection[str]]]) -> list[bool]:
    """Which nodes do the work of what they stand for, and do not just bring its lanes together.

    >>> workers([("Reshape", 1, {"Relu"}), ("Relu", 1, {"Relu"}), ("Identity", 2, {"Unsqueeze"})])
    [False, True, True]

    Args:
        nodes: In order: the op, what it stands for (None: for nothing), and the ops that this was.
    """
    found = [stands is not None and (op not in LAYOUT or op in ops) for op, stands, ops in nodes]
    working = {stands for (_, stands, _), works in zip(nodes, found, strict=True) if works}
    last = {stands: n for n, (_, stands, _) in enumerate(nodes) if stands not in working}
    for stands, n in last.items():
        found[n] = stands is not None
    return found


def successors(nodes: Iterable[NodeProto]) -> dict[str, tuple[str, ...]]:
    """For every replaced node the new nodes that note it, in the order of the file."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        for name in members(node):
            found.setdefault(name, []).append(node.name or next(iter(node.output), ""))
    return {name: tuple(dict.fromkeys(new)) for name, new in found.items()}
