"""What nodes cost, roughly: a dispatch each, and a roofline of arithmetic and bytes.

The model proposes; it is no measurement.  Its numbers come from a device profile (`profiles/*.toml`),
which says where each was measured.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from math import exp, inf, log
from pathlib import Path
from typing import Any

from onnx import NodeProto

from onnx_sched.dims import Shape, count
from onnx_sched.errors import UsageError
from onnx_sched.nodes import domain_of
from onnx_sched.reorders import reorders


@dataclass(frozen=True, slots=True)
class Device:
    """How fast a device is; see the profiles for units and sources."""

    name: str
    dispatch_us: float
    gflops: float
    weights_gb_s: float
    repack_gb_s: float
    lane_us: float
    stream_gb_s: float
    move_gb_s: float
    norm_gb_s: float
    run_us: float
    lead_gb_s: float
    rows_gflops: float
    image_us: float
    fuses_linear: bool
    convolves: bool


MAY_BE_FREE = frozenset({"image_us", "lane_us", "run_us"})
"""What takes no time on some devices, or too little to be seen when a profile is fitted."""

SHIPPED = ("cpu", "cuda-a100", "cuda-h100", "cuda-h200", "cuda-t4")
"""Profiles that come with the package."""


@cache
def device(name: str) -> Device:
    """A shipped profile."""
    text = resources.files("onnx_sched.profiles").joinpath(f"{name}.toml").read_text("utf-8")
    return Device(**tomllib.loads(text))


def load(target: str) -> Device:
    """A profile by its name, or from a file that `calibrate` wrote.

    Raises:
        UsageError: If there is none.
    """
    if target in SHIPPED:
        return device(target)
    path = Path(target)
    if path.suffix != ".toml":
        close = difflib.get_close_matches(target, SHIPPED, n=1)
        hint = (
            f"Did you mean {close[0]}?"
            if close
            else f"There are {', '.join(SHIPPED)}, and .toml files."
        )
        raise UsageError(f"--target {target}: no such device profile", hint)
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(
            f"--target {target}: {error.strerror}", "Make one with `calibrate`."
        ) from None
    except ValueError as error:
        raise UsageError(
            f"--target {target} is no device profile: {error}", "Make one with `calibrate`."
        ) from None
    for fault in _faults(data):
        raise UsageError(
            f"--target {target} is no device profile: {fault}", "Make one with `calibrate`."
        )
    return Device(**data)


def _faults(data: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a profile of a file."""
    kinds = {"name": str, "fuses_linear": bool, "convolves": bool}
    known = [field.name for field in fields(Device)]
    for key in known:
        kind, value = kinds.get(key), data.get(key)
        if key not in data:
            yield f"it has no {key}"
        elif kind is not None and not isinstance(value, kind):
            yield f"{key} must be {'text' if kind is str else 'true or false'}"
        elif kind is None and (
            not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < inf
        ):
            yield f"{key} must be a number, 0 or more"
        elif kind is None and value == 0 and key not in MAY_BE_FREE:
            yield f"{key} must be a number above 0"
    for key in data:
        if key not in known:
            yield f"{key} is not known"


def profile_for(provider: str) -> Device:
    """The profile that stands for an execution provider."""
    return device("cuda-a100" if provider.lower().startswith("cuda") else "cpu")


MOVES = frozenset(
    "Concat DepthToSpace Expand Gather GatherElements GatherND Pad ScatterND Slice SpaceToDepth Split Tile "
    "Transpose".split()
)
BY_NUMBER = frozenset(
    "GroupNormalization LayerNormalization RMSNormalization SkipLayerNormalization".split()
)
VIEWS = frozenset("Flatten Identity Reshape Squeeze Unsqueeze".split())
BROADCASTING = frozenset("Add Div Max Mean Min Mod Mul Pow PRelu Sub Sum Where".split())
FREE = frozenset({"Constant"})

ShapeOf = Callable[[str], Shape | None]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimates the time of nodes.

    Attributes:
        device: On what.
        shape: Gives the shape of a value, if known.
        constant: Whether a value is a weight.
        assume: What a size known only at run time is taken to be.
    """

    device: Device
    shape: ShapeOf
    constant: Callable[[str], bool]
    assume: int
    _known: dict[Hashable, float] = field(default_factory=dict, repr=False, compare=False)

    def total(self, nodes: Iterable[NodeProto]) -> float:
        """Microseconds that nodes take one after another, the runtime's own fusions considered."""
        listed = list(nodes)
        fused = _fused(listed, self) if self.device.fuses_linear else frozenset()
        time = sum(self.node(n) for k, n in enumerate(listed) if k not in fused)
        changes = reorders(listed, self.shape) if self.device.convolves else []
        return time + sum(self._reordered(name) for name in changes)

    def _reordered(self, name: str) -> float:
        """Microseconds of a change into the layout of convolutions, or out of it."""
        return self.device.dispatch_us + 8 * self._size(name) / self.device.move_gb_s / 1e3

    def node(self, node: NodeProto) -> float:
        """Microseconds of one node; of nodes that look alike one is worked out."""
        reads = tuple((self.shape(i), self.constant(i)) if i else None for i in node.input)
        makes = tuple(self.shape(o) if o else 0 for o in node.output)
        looks = (node.op_type, node.domain, reads, makes)
        if looks not in self._known:
            self._known[looks] = self._node(node)
        return self._known[looks]

    def _node(self, node: NodeProto) -> float:
        if node.op_type in FREE:
            return 0.0
        d = self.device
        time = d.dispatch_us
        if domain_of(node) == "" and node.op_type in VIEWS:
            return time
        values = [
            *(i for i in node.input if i and not self.constant(i)),
            *(o for o in node.output if o),
        ]
        moved = sum(4 * self._size(v) for v in values)
        if node.op_type in ("MatMul", "Gemm", "Conv"):
            return time + self._product(node)
        rate = d.move_gb_s if node.op_type in MOVES else d.stream_gb_s
        if node.op_type in BY_NUMBER:
            rate = d.norm_gb_s
        if node.op_type.startswith("Reduce"):
            return time + self._reduction(node, moved)
        return time + moved / rate / 1e3 + d.run_us * self._runs(node)

    def _reduction(self, node: NodeProto, moved: int) -> float:
        """Time of a reduction beyond its dispatch: along a leading axis it does not stream."""
        d, whole, out = self.device, self.shape(node.input[0]), self.shape(node.output[0])
        time = moved / d.stream_gb_s / 1e3
        if whole is None or out is None:
            return time
        gone = [
            a
            for a in range(len(whole))
            if out in ((*whole[:a], *whole[a + 1 :]), (*whole[:a], 1, *whole[a + 1 :]))
        ]
        if not gone or count(whole[gone[-1] + 1 :], self.assume) == 1:
            return time
        blocks = count(whole[: gone[-1]], self.assume)
        if blocks > 1:
            return time + blocks * d.lane_us
        return max(time, 4 * count(whole, self.assume) / d.lead_gb_s / 1e3)

    def _runs(self, node: NodeProto) -> int:
        """Stretches in which an operand that broadcasts meets a result; 0 where none does."""
        out = self.shape(node.output[0])
        if node.op_type not in BROADCASTING or out is None:
            return 0
        lengths = []
        for name in node.input:
            shape = self.shape(name) if name else None
            if shape is not None and shape != out and len(shape) <= len(out):
                lengths.append(self._run(shape, out))
        return count(out, self.assume) // min(lengths) if lengths else 0

    def _run(self, shape: Shape, out: Shape) -> int:
        """Numbers of a result over which an operand goes on without a turn."""
        padded = (1,) * (len(out) - len(shape)) + shape
        length, follows = 1, None
        for own, whole in zip(reversed(padded), reversed(out), strict=True):
            if whole == 1:
                continue
            if follows is not None and (own == whole) != follows:
                break
            follows = own == whole
            length *= count((whole,), self.assume)
        return max(1, length)

    def _size(self, name: str) -> int:
        shape = self.shape(name)
        return count(shape, self.assume) if shape is not None else 1

    def _product(self, node: NodeProto) -> float:
        """Time of a matrix product or convolution beyond its dispatch."""
        d = self.device
        out, weight = self.shape(node.output[0]), self.shape(node.input[1])
        first = self.shape(node.input[0])
        if out is None or weight is None or first is None:
            return 0.0
        outputs = count(out, self.assume)
        if node.op_type == "Conv" and out[2:] and all(d == 1 for d in out[2:]):
            return time_of_rows(d, out, weight, self.assume)
        inner = count(weight[1:] if node.op_type == "Conv" else first[-1:], self.assume)
        flops = 2.0 * outputs * inner
        time = flops / d.gflops / 1e3
        if not self.constant(node.input[1]):
            matrices = count(out[:-2], self.assume) if len(out) > 2 else 0
            read = 4 * count(weight, self.assume) / d.stream_gb_s / 1e3
            return time + matrices * d.lane_us + read
        size = 4.0 * count(weight, self.assume)
        time += size / d.weights_gb_s / 1e3
        if len(weight) > 2 and node.op_type != "Conv":
            lanes = count(weight[:-2], self.assume)
            rows = outputs // max(1, lanes * count(weight[-1:], self.assume))
            time += lanes * d.lane_us
            if rows > 1:
                time += size / d.repack_gb_s / 1e3
        return time


def time_of_rows(d: Device, out: Shape, weight: Shape, assume: int) -> float:
    """A convolution on images of one pixel: a runtime takes image by image and group by group."""
    images, filters = count(out[:1], assume), count(out[1:], assume)
    groups = max(1, filters // max(1, count(weight[1:], assume)))
    flops = 2.0 * images * filters * count(weight[1:], assume)
    weights = 4.0 * count(weight, assume) / d.weights_gb_s / 1e3
    if images == 1:
        return weights + flops / d.gflops / 1e3
    return weights + flops / d.rows_gflops / 1e3 + images * groups * d.image_us


def _fused(nodes: Sequence[NodeProto], estimate: Estimate) -> frozenset[int]:
    """Nodes that the runtime takes into the product before them: a bias, then an activation."""
    readers: dict[str, int] = {}
    for node in nodes:
        for name in node.input:
            readers[name] = readers.get(name, 0) + 1
    open_for: dict[str, str] = {}
    fused: set[int] = set()
    for k, node in enumerate(nodes):
        if node.op_type in ("MatMul", "Gemm", "Conv"):
            weight = estimate.shape(node.input[1])
            plain = node.op_type != "MatMul" or (weight is not None and len(weight) == 2)
            flat = node.op_type == "Conv" or len(estimate.shape(node.output[0]) or ()) == 2
            if plain and flat:
                open_for[node.output[0]] = node.op_type
            continue
        host = next((i for i in node.input if i in open_for and readers.get(i) == 1), None)
        if host is None:
            continue
        kind = open_for[host]
        bias = node.op_type == "Add" and kind == "MatMul"
        if bias and any(estimate.constant(i) for i in node.input):
            fused.add(k)
            open_for[node.output[0]] = "Gemm"
        elif node.op_type in ("Relu", "Sigmoid", "Tanh", "LeakyRelu") and kind in ("Gemm", "Conv"):
            fused.add(k)
    return frozenset(fused)


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean; 1 for none."""
    logs = [log(v) for v in values]
    return exp(sum(logs) / len(logs)) if logs else 1.0
