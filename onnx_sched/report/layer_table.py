"""What each parallel layer of the original holds, and what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from onnx_sched.report.folding import folds
from onnx_sched.report.scene import Scene


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One layer, or several that look alike.

    Attributes:
        label: Which ones.
        nodes: Nodes in each.
        wires: Wires that its nodes touch.
        ops: What the nodes are, such as "4 MatMul, 4 Add".
        became: What they are now.
        times: How many layers the row stands for.
    """

    label: str
    nodes: int
    wires: int
    ops: str
    became: str
    times: int = 1


def layer_rows(scene: Scene) -> tuple[LayerRow, ...]:
    """A row for each layer; blocks of layers that repeat are given once."""
    rows = _rows(scene)
    numbers: dict[object, int] = {}
    looks = [numbers.setdefault((r.nodes, r.wires, r.ops, r.became), len(numbers)) for r in rows]
    starts = {fold.start: fold for fold in folds(looks)}
    found: list[LayerRow] = []
    at = 0
    while at < len(rows):
        fold = starts.get(at)
        if fold is None:
            found.append(rows[at])
            at += 1
            continue
        for k in range(fold.period):
            row = rows[at + k]
            label = f"L{at + k}, L{at + k + fold.period}" if fold.period > 1 else f"L{at}"
            if fold.times > 2 or fold.period == 1:
                last = at + k + (fold.times - 1) * fold.period
                label = f"L{at + k} to L{last}" if fold.period == 1 else f"{label} ... L{last}"
            found.append(LayerRow(label, row.nodes, row.wires, row.ops, row.became, fold.times))
        at = fold.stop
    return tuple(found)


def _rows(scene: Scene) -> list[LayerRow]:
    graph, annotation = scene.before.graph, scene.before.annotation
    layers: list[list[int]] = [[] for _ in range(annotation.depth)]
    for k in annotation.ops:
        layers[annotation.layers[k]].append(k)
    fate = _Fate(scene)
    found = []
    for number, nodes in enumerate(layers):
        wires = {w for k in nodes for w in annotation.wires[k]}
        ops = Counter(graph.nodes[k].op_type for k in nodes)
        found.append(LayerRow(f"L{number}", len(nodes), len(wires), _counted(ops), fate.of(nodes)))
    return found


def _counted(ops: Counter[str]) -> str:
    """Ops with their numbers, the most frequent first."""
    ordered = sorted(ops.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {op}" if count > 1 else op for op, count in ordered)


class _Fate:
    """What becomes of nodes of the original."""

    def __init__(self, scene: Scene) -> None:
        self._graph = scene.before.graph
        self._groups = scene.plan.groups
        self._group_of = {
            k: n for n, group in enumerate(self._groups) for u in group.units for k in u.nodes
        }
        self._summed = {k for r in scene.plan.reductions for u in r.units for k in u.nodes}
        self._changed = scene.after is not None
        new = scene.after.graph.nodes if scene.after is not None else ()
        self._kept = {(n.op_type, tuple(n.output)) for n in new}

    def of(self, nodes: Sequence[int]) -> str:
        """In words; empty if all are as they were."""
        if not self._changed:
            return ""
        groups: dict[int, int] = {}
        kept = summed = moved = 0
        for k in nodes:
            node = self._graph.nodes[k]
            if k in self._group_of:
                groups[self._group_of[k]] = groups.get(self._group_of[k], 0) + 1
            elif k in self._summed:
                summed += 1
            elif (node.op_type, tuple(node.output)) in self._kept:
                kept += 1
            else:
                moved += 1
        parts = Counter(self._batched(g, count) for g, count in groups.items())
        words = [f"{n} x ({text})" if n > 1 else text for text, n in parts.items()]
        words += [f"{summed} -> a sum over lanes"] if summed else []
        words += [f"{moved} -> layout"] if moved else []
        words += [f"{kept} kept"] if kept and words else []
        return ", ".join(words)

    def _batched(self, group: int, count: int) -> str:
        return f"{count} -> 1 {self._groups[group].form}"
