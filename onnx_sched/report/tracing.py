"""Run the original and the rewritten model under the profiler, and lay both out as one trace."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import GraphProto

from onnx_sched import files
from onnx_sched.analysis import Analysis
from onnx_sched.circuit import node_label
from onnx_sched.judge.opening import Setup, open_for
from onnx_sched.judge.profiling import Profile, Row, profile_session
from onnx_sched.judge.provider import select_provider
from onnx_sched.options import Options
from onnx_sched.report.lineage import members, successors
from onnx_sched.report.trace import Ran, Slice, ran, supports, trace
from onnx_sched.targets import replacing
from onnx_sched.trial import Trial
from onnx_sched.wires import Support

THREADS = 1
"""Threads within a node: with one the times say most about the nodes."""

_BLOCKED = "_nchwc"
"""What ONNX Runtime adds to the name of a value to name the node that makes it in a blocked layout."""


def record(before: Analysis, rewritten: Path | None, options: Options) -> dict[str, Any]:
    """Profile both models at the sizes that were timed, and make the trace.

    Args:
        before: The original.
        rewritten: The new model's file; None if the original was left as it is.
        options: As they were given to `optimize`; they say on what inputs, and where.

    Raises:
        RuntimeRefused: If a model does not load or run.
        ProviderError: If the provider that was asked for cannot run here.
    """
    provider = select_provider(options.provider).name
    setup = Setup(provider, THREADS)
    with tempfile.TemporaryDirectory(prefix="onnx_sched_") as folder:
        trial = Trial(Path(folder), before.source, options, provider)
        feeds = trial.profiled()
        old = _run(trial.original, feeds, setup, Path(folder) / "before")
        new = _run(rewritten, feeds, setup, Path(folder) / "after") if rewritten else None
        shapes = trial.shapes()
    graph = files.read(rewritten).model.graph if rewritten else None
    told = {
        "model": before.source.name,
        "provider": provider,
        "threads": THREADS,
        "shapes": {name: list(shape) for name, shape in shapes.items()},
    }
    after = _after(new, graph, before) if new is not None and graph is not None else None
    own = [run.rows for run in (old, new) if run is not None]
    return trace(_before(old, graph, before), after, before.annotation.lanes, told, own)


def write(data: Mapping[str, Any], path: Path) -> None:
    """Write a trace; it appears whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(data, indent=1) + "\n", "utf-8")


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was seen of a model.

    Attributes:
        profile: Times of its nodes.
        graph: What the runtime made of the model; None if it keeps that to itself.
        rows: The runtime's own profile.
    """

    profile: Profile
    graph: GraphProto | None
    rows: Sequence[Row]


def _run(model: Path, feeds: Mapping[str, Any], setup: Setup, folder: Path) -> _Seen:
    """Run a model under the profiler."""
    folder.mkdir()
    graph_path = folder / "graph.onnx"
    session = open_for(model, setup, profile_prefix=folder / "profile", graph_path=graph_path)
    profile = profile_session(session, feeds)
    written = next(folder.glob("profile*.json")).read_text("utf-8", errors="replace")
    graph = onnx.load(graph_path, load_external_data=False).graph if graph_path.exists() else None
    return _Seen(profile, graph, json.loads(written, strict=False))


def _before(seen: _Seen, new: GraphProto | None, before: Analysis) -> tuple[Slice, ...]:
    """The original's slices: wires from the annotation, and what became of each node."""
    nodes = ran(seen.profile, seen.graph)
    found = [_place(node, before) for node in nodes]
    wires = supports(nodes, lambda node: _wires(_place(node, before), before))
    became = successors(new.node) if new is not None else {}
    slices = []
    for node, k, touched in zip(nodes, found, wires, strict=True):
        label = node_label(before.graph, k) if k is not None else ""
        slices.append(Slice(node, touched, label, (), became.get(label, ())))
    return tuple(slices)


def _after(seen: _Seen, graph: GraphProto, before: Analysis) -> tuple[Slice, ...]:
    """The new model's slices: wires of what a node replaced, or of the same node in the original."""
    nodes = ran(seen.profile, seen.graph)
    maker = {o: k for k, node in enumerate(graph.node) for o in node.output if o}
    named = {node.name: k for k, node in enumerate(graph.node) if node.name}
    label = {node_label(before.graph, k): k for k in range(len(before.graph.nodes))}

    def place(node: Ran) -> int | None:
        made = next((maker[o] for o in _made(node) if o in maker), None)
        return made if made is not None else named.get(node.name)

    def own(node: Ran) -> Support:
        k = place(node)
        replaced = [label[n] for n in members(graph.node[k]) if n in label] if k is not None else []
        if replaced:
            return tuple(sorted({w for p in replaced for w in before.annotation.wires[p]}))
        return _wires(_place(node, before), before)

    slices = []
    for node, touched in zip(nodes, supports(nodes, own), strict=True):
        k = place(node)
        name = "" if k is None else graph.node[k].name or next(iter(graph.node[k].output), "")
        slices.append(Slice(node, touched, name, members(graph.node[k]) if k is not None else ()))
    return tuple(slices)


def _place(node: Ran, analysis: Analysis) -> int | None:
    """The node of a model that a node of the runtime is, or the last of those that it fuses."""
    graph = analysis.graph
    made = [graph.producer[o] for o in _made(node) if o in graph.producer]
    if made:
        return made[0]
    return next((k for k, n in enumerate(graph.nodes) if n.name and n.name == node.name), None)


def _made(node: Ran) -> tuple[str, ...]:
    """The values that a node makes, under the model's names: one in a blocked layout is called by its."""
    blocked = node.name.removesuffix(_BLOCKED)
    return (*node.makes, blocked) if blocked != node.name else node.makes


def _wires(k: int | None, analysis: Analysis) -> Support:
    return analysis.annotation.wires[k] if k is not None else ()
