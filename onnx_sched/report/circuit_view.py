"""What a model's circuit looks like, before and after it was rewritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnx_sched.analysis import Analysis
from onnx_sched.circuit import Circuit, node_label
from onnx_sched.report.drawing import Box, Kind, Picture
from onnx_sched.report.lineage import members, workers


def before(analysis: Analysis) -> Picture:
    """The circuit of a model as it is; an optimised one shows its batched nodes."""
    return _picture(analysis, _title(analysis), None)


def after(analysis: Analysis, original: Analysis | None = None) -> Picture:
    """The circuit of a rewritten model.

    Args:
        analysis: As the rewriting left it, with the members of each batched node in its metadata.
        original: What it was made from: then the `xN` of batched nodes is known, not guessed.
    """
    title = _title(analysis)
    if original is not None:
        old, new = len(original.annotation.ops), len(analysis.annotation.ops)
        source = original.source.path
        name = f"{source.name}, rewritten" if source else "rewritten"
        title = f"{name}: {_count(new, 'op')} (were {old}), {_sizes(analysis)}"
    return _picture(analysis, title, original.circuit if original is not None else None)


def lanes_of(members: Sequence[str], units: Mapping[str, int] | None = None) -> int:
    """How many lanes the nodes make up that one batched node stands for.

    A lane is one node, or two where a product and the Add of its bias are one unit.  The original says
    which; without it names tell that alternate in kind, as in "0/MatMul", "0/Add", "1/MatMul", "1/Add".
    Otherwise it is the number of nodes.

    >>> lanes_of(["a/MatMul", "a/Add", "b/MatMul", "b/Add"]), lanes_of(["q", "k", "v"])
    (2, 3)
    >>> lanes_of(["q", "k", "v"], {"q": 7, "k": 7, "v": 8})
    2

    Args:
        members: Names of the nodes.
        units: The number of the unit that each node of the original belongs to, by the node's name.
    """
    if units is not None and all(name in units for name in members):
        return len({units[name] for name in members})
    kinds = [_letters(name) for name in members]
    first, second = set(kinds[::2]), set(kinds[1::2])
    pairs = len(kinds) >= 4 and len(kinds) % 2 == 0 and len(first) == len(second) == 1
    return len(kinds) // 2 if pairs and first != second else len(kinds)


def _letters(name: str) -> str:
    """The last part of a node's name without numbers: exporters put the op type there."""
    return "".join(c for c in name.rsplit("/", 1)[-1] if c.isalpha())


def _title(analysis: Analysis) -> str:
    path: Path | None = analysis.source.path
    name = path.name if path else analysis.graph.proto.name or "model"
    return f"{name}: {_count(len(analysis.annotation.ops), 'op')}, {_sizes(analysis)}"


def _sizes(analysis: Analysis) -> str:
    annotation = analysis.annotation
    return f"{_count(annotation.lanes, 'wire')}, {_count(annotation.depth, 'layer')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _units(circuit: Circuit) -> dict[str, int]:
    """The number of each node's unit, by the node's name."""
    return {node_label(circuit.graph, k): u.number for u in circuit.units for k in u.nodes}


def _ops(circuit: Circuit) -> dict[str, str]:
    """The op of each node, by the node's name."""
    graph = circuit.graph
    return {node_label(graph, k): node.op_type for k, node in enumerate(graph.nodes)}


def _picture(analysis: Analysis, title: str, original: Circuit | None) -> Picture:
    units = _units(original) if original is not None else None
    ops_of = _ops(original) if original is not None else {}
    annotation = analysis.annotation
    columns, headings = _columns(analysis)
    ops = set(annotation.ops)
    notes = {k: found for k in columns if (found := members(analysis.graph.nodes[k]))}
    nodes = [
        (analysis.graph.nodes[k].op_type, found, {ops_of.get(n, _letters(n)) for n in found})
        for k, found in notes.items()
    ]
    working = {k for k, works in zip(notes, workers(nodes), strict=True) if works}
    boxes = []
    for k, column in columns.items():
        node = analysis.graph.nodes[k]
        kind: Kind = "join" if len(annotation.wires[k]) > 1 else "op"
        lanes = 1
        names: tuple[str, ...] = (node_label(analysis.graph, k),)
        if k not in ops:
            kind = "view"
        elif k in notes:
            many = lanes_of(notes[k], units)
            if many > 1 and k in working:
                kind, lanes = "batched", many
            names += notes[k]
        boxes.append(Box(node.op_type, annotation.wires[k], column, kind, lanes, names))
    return Picture(annotation.lanes, len(headings), tuple(boxes), title, headings)


def _columns(analysis: Analysis) -> tuple[dict[int, int], tuple[str, ...]]:
    """The column of every node that is drawn, and the headings of the columns.

    Ops stand in their layer. Views have no layer: they stand between two, in columns without a heading,
    one after the other where they share a wire.
    """
    annotation, graph = analysis.annotation, analysis.graph
    places: dict[int, tuple[int, int]] = {k: (annotation.layers[k], 0) for k in annotation.ops}
    taken: set[tuple[int, int, int]] = set()
    for k, wires in enumerate(annotation.wires):
        constant = all(o in analysis.values.constants for o in graph.nodes[k].output if o)
        if k in places or not wires or constant:
            continue
        layer = annotation.layers[k]
        makers = [p for name in graph.reads[k] if (p := graph.producer.get(name)) in places]
        step = 1 + max((places[p][1] for p in makers if places[p][0] == layer), default=0)
        while any((layer, step, w) in taken for w in wires):
            step += 1
        places[k] = (layer, step)
        taken.update((layer, step, w) for w in wires)
    order = sorted(set(places.values()))
    number: Mapping[tuple[int, int], int] = {place: n for n, place in enumerate(order)}
    headings = tuple("" if step else f"L{layer}" for layer, step in order)
    return {k: number[places[k]] for k in sorted(places)}, headings
