"""Nodes by their names: who is meant, who else bears the name, and what may have been meant instead."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Sequence

from onnx import ModelProto

from onnx_sched.errors import UsageError
from onnx_sched.graph import Graph, every_node

FEW = 3
"""Names that a hint lists."""


def find(graph: Graph, name: str) -> int | None:
    """The first node of a name, or else the one that makes a value of this name."""
    return next(iter(named(graph, name)), graph.producer.get(name))


def named(graph: Graph, name: str) -> list[int]:
    """All nodes of a name."""
    return [k for k, node in enumerate(graph.nodes) if node.name and node.name == name]


def close_to(given: str, names: Sequence[str]) -> str:
    """A hint for whoever gave a name, or a pattern, that there is not: close names, or what names there are.

    >>> close_to("/hed/*", ["/head/MatMul", "/out/MatMul"])
    "Did you mean '/head/MatMul'?"
    >>> close_to("zz*", ["a", "b", "c", "d"]), close_to("zz*", [""])
    ("It has 4, such as 'a', 'b', 'c'.", 'None of its nodes has a name.')
    """
    known = [n for n in dict.fromkeys(names) if n]
    if not known:
        return "None of its nodes has a name."
    alike = [n for n in known if abs(len(n) - len(given)) <= max(8, len(given))]
    close = difflib.get_close_matches(given, alike, n=FEW, cutoff=0.5)
    if not close:
        last = given.strip("*?/").rsplit("/", 1)[-1]
        close = [n for n in known if last and last.lower() in n.lower()][:FEW]
    if close:
        return f"Did you mean {' or '.join(map(repr, close))}?"
    return f"It has {len(names)}, such as {', '.join(map(repr, known[:FEW]))}."


def check_patterns(patterns: Sequence[str], model: ModelProto) -> None:
    """See that every pattern of `--skip-node` fits a node.

    Raises:
        UsageError: If one fits none; it names nodes that there are.
    """
    names = [node.name for node in every_node(model)][::-1]  # in the order of the file
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            raise UsageError(
                f"--skip-node {pattern}: no such node in the model", close_to(pattern, names)
            )
