"""Memory over the schedule: what must be alive while each node runs, counted without running anything.

    live(k) = sum of bytes of the values that are made at or before node k and read at or after it

Counted as ONNX Runtime counts activations: weights and inputs are not, outputs stay to the end, and a
Reshape and its like share what they read.  The runtime may reuse memory within a node and runs nodes in
an order of its own, so that its peak can differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from onnx import TensorProto, helper

from onnx_sched.analysis import Analysis
from onnx_sched.circuit import node_label
from onnx_sched.cost import VIEWS
from onnx_sched.dims import Dim
from onnx_sched.nodes import domain_of


@dataclass(frozen=True, slots=True)
class Curve:
    """Bytes that are alive while each node runs.

    Attributes:
        live: By node of the schedule, in the file's order.
        names: What the nodes are called.
        unknown: How many values have a size that nobody knows; they count as nothing.
    """

    live: tuple[int, ...]
    names: tuple[str, ...]
    unknown: int

    @property
    def peak(self) -> int:
        """The most that is alive at once."""
        return max(self.live, default=0)

    @property
    def at(self) -> int:
        """The first node at which that is so."""
        return self.live.index(self.peak) if self.live else 0


def curve(analysis: Analysis, sizes: Mapping[str, int], assume: int) -> Curve:
    """What is alive over the schedule of a model.

    Args:
        analysis: The model.
        sizes: Open sizes by symbol.
        assume: What other open sizes are taken to be.
    """
    graph, values = analysis.graph, analysis.values
    steps = [
        k
        for k, node in enumerate(graph.nodes)
        if graph.live[k] and any(o and o not in values.constants for o in node.output)
    ]
    place = {k: n for n, k in enumerate(steps)}
    owner: dict[str, str] = {}
    born: dict[str, int] = {}
    for k in steps:
        node = graph.nodes[k]
        shared = domain_of(node) == "" and node.op_type in VIEWS and node.input[0] in owner
        for name in (o for o in node.output if o):
            owner[name] = owner[node.input[0]] if shared else name
            born.setdefault(owner[name], place[k])
    last = dict(born)
    for name, root in owner.items():
        ends = [place[r] for r in graph.readers.get(name, ()) if r in place]
        if name in graph.output_set:
            ends.append(len(steps) - 1)
        last[root] = max([last[root], *ends])
    change = [0] * (len(steps) + 1)
    unknown = 0
    for root, begin in born.items():
        size = bytes_of(analysis, root, sizes, assume)
        unknown += size is None
        change[begin] += size or 0
        change[last[root] + 1] -= size or 0
    live = tuple(accumulate(change[:-1]))
    return Curve(live, tuple(node_label(graph, k) for k in steps), unknown)


def bytes_of(analysis: Analysis, name: str, sizes: Mapping[str, int], assume: int) -> int | None:
    """Bytes of a value; None if its shape is not known."""
    known = analysis.values.types.get(name)
    if known is None or known.shape is None or known.elem_type == TensorProto.STRING:
        return None
    total = helper.tensor_dtype_to_np_dtype(known.elem_type).itemsize
    for dim in known.shape:
        total *= measure(dim, sizes, assume)
    return int(total)


def measure(dim: Dim, sizes: Mapping[str, int], assume: int) -> int:
    """A size as a number.

    >>> measure("6*batch*seq", {"batch": 2}, 10)
    120
    """
    if isinstance(dim, int):
        return dim
    total = 1
    for part in dim.split("*"):
        total *= int(part) if part.isdigit() else sizes.get(part, assume)
    return total
