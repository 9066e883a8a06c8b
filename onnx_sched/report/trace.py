"""A run as Chrome-trace events, for Perfetto (ui.perfetto.dev) or chrome://tracing.

Two processes, "before" and "after"; in each one track per wire of the original's annotation, so that the
same lane stands on the same track in both.  One slice per node, as long as the runtime's profile says;
slices stand end to end in the order in which the runtime started the nodes, because it runs one after the
other.  A node on several wires stands on the first of them.  Arrows are values that one node hands to
another.  Two further processes show the runtime's own profiles as they are.

`trace_schema.json` beside this file documents every field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import fsum
from typing import Any

from onnx import GraphProto, NodeProto

from onnx_sched.judge.profiling import Profile, Row
from onnx_sched.nodes import captures, subgraphs
from onnx_sched.report.own_profile import own_profile
from onnx_sched.wires import Support

VERSION = "1"

OWN = 3
"""The first process that shows the runtime's own profile."""

NO_WIRE = 0
"""The track of nodes that no wire can be told of; wire w is track w + 1."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One node as the runtime ran it, after its own fusions.

    Attributes:
        name, op_type, provider: As the profile says.
        microseconds: Time in a run, all calls together.
        calls: How often a run calls it.
        reads, makes: Names of values; empty if the runtime did not tell its graph.
    """

    name: str
    op_type: str
    provider: str
    microseconds: float
    calls: int
    reads: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Slice:
    """A node in its place.

    Attributes:
        ran: What ran.
        wires: The wires that it touches, of the original.
        node: The node of the model that it is, or the last of those that it fuses; may be unknown.
        members: Nodes of the original that this node replaced.
        became: Nodes of the new model that replaced this node.
    """

    ran: Ran
    wires: Support
    node: str = ""
    members: tuple[str, ...] = ()
    became: tuple[str, ...] = ()


def ran(profile: Profile, graph: GraphProto | None) -> tuple[Ran, ...]:
    """The nodes of a profile with their values, from the graph that the runtime made of the model."""
    known: dict[str, NodeProto] = {}
    todo = [graph] if graph is not None else []
    while todo:
        for node in todo.pop().node:
            known.setdefault(node.name, node)
            todo += subgraphs(node)
    found = []
    for time in profile.node_times_us:
        proto = known.get(time.name, NodeProto())
        inner = captures(proto) if proto.attribute else ()
        reads = tuple(n for n in (*proto.input, *inner) if n)
        makes = tuple(o for o in proto.output if o)
        found.append(
            Ran(
                time.name,
                time.op_type,
                time.provider,
                time.microseconds,
                time.calls,
                reads,
                makes,
            )
        )
    return tuple(found)


def supports(nodes: Sequence[Ran], own: Callable[[Ran], Support]) -> tuple[Support, ...]:
    """The wires of every node: its own, or else those of what it reads, or else of what reads it.

    Args:
        nodes: In the order in which they ran.
        own: The wires of a node that the model knows; () for one that the runtime made up.
    """
    found = [own(node) for node in nodes]
    for back in (False, True):
        seen: dict[str, Support] = {}
        for n in sorted(range(len(nodes)), reverse=back):
            near, far = (
                (nodes[n].makes, nodes[n].reads) if back else (nodes[n].reads, nodes[n].makes)
            )
            if not found[n]:
                found[n] = next((seen[name] for name in near if seen.get(name)), ())
            for name in far:
                seen.setdefault(name, found[n])
    return tuple(found)


def trace(
    before: Sequence[Slice],
    after: Sequence[Slice] | None,
    wires: int,
    told: Mapping[str, Any],
    own: Sequence[Sequence[Row]] = (),
) -> dict[str, Any]:
    """The whole trace.

    Args:
        before: The original, in the order in which it ran.
        after: The rewritten model; None if there is none.
        wires: Number of wires of the original.
        told: What else a reader should know: model, provider, sizes.
        own: The runtime's own profiles of both, which stand beside them.
    """
    sides = [("before", before)] + ([("after", after)] if after is not None else [])
    events: list[dict[str, Any]] = []
    totals: dict[str, float] = {}
    for pid, (title, slices) in enumerate(sides, 1):
        events += _tracks(pid, title, wires, any(not s.wires for s in slices))
        events += _slices(pid, slices)
        events += _arrows(pid, slices)
        totals[f"{title}_us"] = fsum(s.ran.microseconds for s in slices)
    for pid, ((title, _), rows) in enumerate(zip(sides, own, strict=False), OWN):
        events += own_profile(rows, pid, f"{title}, ONNX Runtime's own profile")
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"schema_version": VERSION, **told, **totals},
    }


def _tracks(pid: int, title: str, wires: int, spare: bool) -> list[dict[str, Any]]:
    """Names and order of the process and its tracks."""

    def note(name: str, tid: int, /, **args: Any) -> dict[str, Any]:
        return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}

    found = [
        note("process_name", NO_WIRE, name=title),
        note("process_sort_index", NO_WIRE, sort_index=pid),
    ]
    for wire in range(wires):
        found.append(note("thread_name", wire + 1, name=f"wire {wire}"))
        found.append(note("thread_sort_index", wire + 1, sort_index=wire))
    if spare:
        found.append(note("thread_name", NO_WIRE, name="no wire"))
        found.append(note("thread_sort_index", NO_WIRE, sort_index=wires))
    return found


def _begins(slices: Sequence[Slice]) -> list[float]:
    """When each slice begins, in microseconds: where the one before it ends."""
    return list(accumulate((s.ran.microseconds for s in slices), initial=0.0))[:-1]


def _track(piece: Slice) -> int:
    return piece.wires[0] + 1 if piece.wires else NO_WIRE


def _slices(pid: int, slices: Sequence[Slice]) -> list[dict[str, Any]]:
    found = []
    for begin, piece in zip(_begins(slices), slices, strict=True):
        args: dict[str, Any] = {
            "runtime_node": piece.ran.name,
            "node": piece.node,
            "wires": list(piece.wires),
            "calls": piece.ran.calls,
            "provider": piece.ran.provider,
        }
        if piece.members:
            args["members"] = list(piece.members)
        if piece.became:
            args["became"] = list(piece.became)
        found.append(
            {
                "ph": "X",
                "name": piece.ran.op_type,
                "cat": "batched" if piece.members else "node",
                "pid": pid,
                "tid": _track(piece),
                "ts": begin,
                "dur": piece.ran.microseconds,
                "args": args,
            }
        )
    return found


def _arrows(pid: int, slices: Sequence[Slice]) -> list[dict[str, Any]]:
    """One arrow for each pair of nodes of which one reads what the other makes."""
    begins = _begins(slices)
    maker: dict[str, int] = {}
    found: list[dict[str, Any]] = []
    for n, piece in enumerate(slices):
        sources = dict.fromkeys(maker[name] for name in piece.ran.reads if name in maker)
        for k in sources:
            both = {"name": "value", "cat": "dependency", "pid": pid, "id": f"{pid}.{k}.{n}"}
            inside = begins[k] + slices[k].ran.microseconds / 2
            found.append({**both, "ph": "s", "tid": _track(slices[k]), "ts": inside})
            found.append({**both, "ph": "f", "bp": "e", "tid": _track(piece), "ts": begins[n]})
        maker.update(dict.fromkeys(piece.ran.makes, n))
    return found
