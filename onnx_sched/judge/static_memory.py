"""How many bytes are alive at once, read off the model: an estimate that needs no run.

Values live from the node that writes them to the last node that reads them, in the order of the file; outputs
live to the end. Weights and inputs are not counted, scratch memory is not known, and no node is taken to
write over its input: ONNX Runtime does better than this where it fuses or works in place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import ModelProto, TensorProto, TypeProto, shape_inference

from onnx_sched.judge.critical_path import captures

_VIEWS = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten")
_SMALL = 4096  # bytes of a weight that may tell shape inference a shape


@dataclass(frozen=True, slots=True)
class LiveSet:
    """The largest number of bytes alive at once.

    Attributes:
        peak_bytes: None if nothing is known of any value.
        unknown: Values whose size is not known; they count as empty.
        values: Values in all.
    """

    peak_bytes: int | None
    unknown: int
    values: int

    @property
    def source(self) -> str:
        """Where the bytes come from."""
        text = "estimate: live in file order"
        if self.peak_bytes is None:
            return f"not available: no shape of {self.values} values can be inferred"
        return f"{text}, {self.unknown} of {self.values} sizes unknown" if self.unknown else text


def live_set(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> LiveSet:
    """Estimate the peak of a model whose inputs have the given shapes.

    Args:
        model: The model; the data of its weights may be missing.
        shapes: Input name -> shape.
    """
    sizes = _sizes(model, shapes)
    graph = model.graph
    root: dict[str, str] = {}
    last: dict[str, int] = {}
    born: dict[str, int] = {}
    for place, node in enumerate(graph.node):
        for name in (*node.input, *captures(node)):
            if name:
                last[root.get(name, name)] = place
        if node.op_type == "Constant":
            continue
        if node.op_type in _VIEWS and node.input and node.output:
            root[node.output[0]] = root.get(node.input[0], node.input[0])
            continue
        born.update((name, place) for name in node.output if name)
    end = len(graph.node)
    for value in graph.output:
        last[root.get(value.name, value.name)] = end
    unknown = sum(1 for name in born if sizes.get(name) is None)
    if born and unknown == len(born):
        return LiveSet(None, unknown, len(born))
    change = [0] * (end + 2)
    for name, place in born.items():
        size = sizes.get(name) or 0
        change[place] += size
        change[last.get(name, place) + 1] -= size
    alive = peak = 0
    for step in change:
        alive += step
        peak = max(peak, alive)
    return LiveSet(peak, unknown, len(born))


def _sizes(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> dict[str, int | None]:
    """Bytes of every value whose shape can be inferred."""
    bound = _skeleton(model)
    for value in bound.graph.input:
        if value.name in shapes and value.type.HasField("tensor_type"):
            del value.type.tensor_type.shape.dim[:]
            for size in shapes[value.name]:
                value.type.tensor_type.shape.dim.add().dim_value = size
    for value in bound.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    try:
        bound = shape_inference.infer_shapes(bound, data_prop=True)
    except (shape_inference.InferenceError, RuntimeError, ValueError):
        return {}
    values = (*bound.graph.value_info, *bound.graph.output)
    return {value.name: _bytes(value.type) for value in values}


def _skeleton(model: ModelProto) -> ModelProto:
    """The model without the data of large weights, and without stale shapes of inner values."""
    graph = model.graph
    bare = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    bare.functions.extend(model.functions)
    bare.graph.name = graph.name or "graph"
    bare.graph.node.extend(graph.node)
    bare.graph.input.extend(graph.input)
    fed = {value.name for value in graph.input}
    # An input that is an output, too, would still say what it was before it was bound.
    bare.graph.output.extend(value for value in graph.output if value.name not in fed)
    for tensor in graph.initializer:
        if tensor.ByteSize() <= _SMALL and tensor.data_location != TensorProto.EXTERNAL:
            bare.graph.initializer.append(tensor)
        else:
            bare.graph.initializer.add(
                name=tensor.name, data_type=tensor.data_type, dims=tensor.dims
            )
    return bare


def _bytes(kind: TypeProto) -> int | None:
    tensor: Any = kind.tensor_type
    if not kind.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]
    if min(dims, default=0) < 0 or tensor.elem_type in (TensorProto.UNDEFINED, TensorProto.STRING):
        return None
    width = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).itemsize
    return math.prod(dims) * width
