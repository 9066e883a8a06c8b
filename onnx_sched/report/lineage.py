"""Which nodes of the original a node of a rewritten model stands for."""

from __future__ import annotations

import json
from collections.abc import Iterable

from onnx import NodeProto

from onnx_sched.passes.rewrite import MEMBERS


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


def successors(nodes: Iterable[NodeProto]) -> dict[str, tuple[str, ...]]:
    """For every replaced node the new nodes that note it, in the order of the file."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        for name in members(node):
            found.setdefault(name, []).append(node.name or next(iter(node.output), ""))
    return {name: tuple(dict.fromkeys(new)) for name, new in found.items()}
