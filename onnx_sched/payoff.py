"""Which regions pay, by the cost model: what they replace against what they become."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import log

from onnx import TensorProto

from onnx_sched.analysis import Analysis
from onnx_sched.cost import Device, Estimate
from onnx_sched.dims import Shape, is_own
from onnx_sched.find import heavy_regions
from onnx_sched.passes.rewrite import Rewritten
from onnx_sched.plan import Group
from onnx_sched.shapes import Inference, Operand, ValueType

SIZES = (1, 32)
"""What a size known only at run time is taken to be, in turn."""

MARGIN = 0.97
"""A region must be estimated to take less than this share of the time, at every size."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Estimated times of one or more regions, in microseconds, by size."""

    device: str
    sizes: tuple[int, ...]
    before: dict[int, float]
    after: dict[int, float]

    def pays(self) -> bool:
        """Whether the estimate says faster, with a margin, at every size."""
        return all(self.after[s] < MARGIN * self.before[s] for s in self.sizes)

    def words(self) -> str:
        """The worst of the estimates, for people."""
        size = max(self.sizes, key=self.log_ratio)
        return (
            f"estimated {self.before[size]:.0f} us before and {self.after[size]:.0f} us after, "
            f"open sizes taken as {size} (profile {self.device})"
        )

    def log_ratio(self, size: int) -> float:
        """The logarithm of after / before."""
        return log(max(self.after[size], 1e-9) / max(self.before[size], 1e-9))


def region_costs(
    analysis: Analysis,
    groups: Sequence[Group],
    rewritten: Rewritten,
    device: Device,
    base: frozenset[int] = frozenset(),
) -> Costs:
    """What all regions of a rewriting replace, and what they become.

    Args:
        analysis: The model.
        groups: The groups that were rewritten.
        rewritten: The whole graph.
        device: Profile to estimate with.
        base: Further nodes of the original that count on both sides, as far as they stay; so that
            variants of different reach can be compared.
    """
    nodes = analysis.graph.nodes
    counted = base | replaced(analysis, groups, rewritten)
    stays = {id(nodes[k]) for k in counted}
    old = [analysis.values.op(nodes[k]) for k in sorted(counted)]
    new = [m.proto for m in rewritten.nodes if m.group is not None or id(m.proto) in stays]
    before, after = {}, {}
    shapes = new_shapes(analysis, rewritten)
    weights = set(analysis.values.constants) | set(rewritten.fresh)
    for size in SIZES:
        estimate = Estimate(device, shapes.get, weights.__contains__, size)
        before[size], after[size] = estimate.total(old), estimate.total(new)
    return Costs(device.name, SIZES, before, after)


def replaced(analysis: Analysis, groups: Sequence[Group], rewritten: Rewritten) -> frozenset[int]:
    """The nodes of the original that a rewriting makes superfluous, by their place."""
    return frozenset(k for ks in by_region(analysis, groups, rewritten).values() for k in ks)


def idle_regions(analysis: Analysis, groups: Sequence[Group], rewritten: Rewritten) -> set[int]:
    """Regions of light groups alone that do not even save nodes."""
    light = {g.region for g in groups} - heavy_regions(groups)
    if not light:
        return set()
    old = by_region(analysis, groups, rewritten)
    new: dict[int, int] = {}
    for made in rewritten.nodes:
        if made.group is not None:
            region = groups[made.group].region
            new[region] = new.get(region, 0) + 1
    return {r for r in light if new.get(r, 0) >= len(old.get(r, ()))}


def by_region(
    analysis: Analysis, groups: Sequence[Group], rewritten: Rewritten
) -> dict[int, list[int]]:
    """The nodes that each region makes superfluous, by their place."""
    graph = analysis.graph
    region_of = {k: g.region for g in groups for u in g.units for k in u.nodes}
    kept = {id(m.proto) for m in rewritten.nodes}
    gone = [k for k, n in enumerate(graph.nodes) if graph.live[k] and id(n) not in kept]
    for _ in range(2):  # what stands beside a region, then what stands beside that
        for k in gone:
            if k not in region_of:
                near = [n for n in _neighbours(analysis, k) if n in region_of]
                if near:
                    region_of[k] = region_of[near[-1]]
    found: dict[int, list[int]] = {}
    for k in gone:
        if k in region_of:
            found.setdefault(region_of[k], []).append(k)
    return found


def _neighbours(analysis: Analysis, k: int) -> Iterable[int]:
    graph = analysis.graph
    for name in graph.nodes[k].output:
        yield from graph.readers.get(name, ())
    for name in graph.reads[k]:
        if name in graph.producer:
            yield graph.producer[name]


def new_shapes(analysis: Analysis, rewritten: Rewritten) -> dict[str, Shape]:
    """Shapes of all values of the new graph, as far as they can be known."""
    types: dict[str, ValueType] = dict(analysis.values.types)
    for name, const in rewritten.fresh.items():
        types[name] = ValueType(const.elem_type, const.shape)
    infer = Inference(analysis.graph.opsets, analysis.graph.ir_version)
    for made in rewritten.nodes:
        if all(o in types for o in made.proto.output if o):
            continue
        operands = [_operand(analysis, rewritten, types, name) for name in made.proto.input]
        results = zip(made.proto.output, infer.outputs(made.proto, operands), strict=True)
        types.update({n: _guessed(v, operands) for n, v in results if v is not None})
    return {name: value.shape for name, value in types.items() if value.shape is not None}


def _guessed(value: ValueType, operands: Sequence[Operand | None]) -> ValueType:
    """A type in which a size without a name is about that of the same axis of the first operand.

    What makes such sizes are the spare pixel of a convolution that comes, and the Slice with which it goes.
    """
    first = operands[0].type if operands and operands[0] is not None else None
    if value.shape is None or first is None or first.shape is None:
        return value
    if len(first.shape) != len(value.shape):
        return value
    sizes = zip(value.shape, first.shape, strict=True)
    return replace(value, shape=tuple(f if is_own(d) else d for d, f in sizes))


def _operand(
    analysis: Analysis, rewritten: Rewritten, types: dict[str, ValueType], name: str
) -> Operand | None:
    """What is known about an operand of a new node."""
    if not name:
        return None
    const = rewritten.fresh.get(name) or analysis.values.constants.get(name)
    ints = analysis.values.ints.get(name)
    if (
        ints is None
        and const is not None
        and const.rank <= 1
        and const.elem_type == TensorProto.INT64
    ):
        ints = tuple(int(v) for v in const.load().ravel())
    return Operand(name, types.get(name), const, ints)
