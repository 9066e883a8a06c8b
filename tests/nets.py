"""A small kit for tests: models in ONNX's text form, feeds for them, and every value that they make.

    model = net("(float[N,4] x) => (float[] y) { y = MatMul(x, w) }", {"w": numbers(4, 3)})
    every_value(model, feeds(model, N=2))["y"]

A type written `float[]` has no shape: the model then says nothing about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import ArrayLike, DTypeLike, NDArray
from onnx import ModelProto, NodeProto, helper, numpy_helper, parser

from onnx_sched.analysis import Analysis, analyse
from onnx_sched.dims import Dim
from onnx_sched.files import Source
from onnx_sched.stacking import LANE, Layout

Array = NDArray[Any]

FOLDER = Path(__file__).resolve().parent.parent / "models"
COMMITTED = sorted(path.stem for path in FOLDER.glob("*.onnx"))
"""Names of the models that stand in the repository."""


def committed(name: str) -> ModelProto:
    """A model of the repository."""
    return onnx.load(FOLDER / f"{name}.onnx")


def net(
    text: str,
    weights: Mapping[str, ArrayLike] | None = None,
    *,
    opset: int = 17,
    ir: int = 8,
    domains: Mapping[str, int] | None = None,
) -> ModelProto:
    """Build a model from its text and its weights.

    Args:
        text: Inputs, outputs and nodes, `(float[N] x) => (float[N] y) { y = Relu(x) }`; function
            bodies may follow.
        weights: Initializers by name, in order.  Below IR version 4 they become inputs, too.
        opset: Version of the default domain.
        ir: IR version.
        domains: Versions of further domains.
    """
    imports = ", ".join(f'"{d}" : {v}' for d, v in {"": opset, **(domains or {})}.items())
    model: ModelProto = parser.parse_model(
        f"<ir_version: {ir}, opset_import: [{imports}]> main {text}"
    )
    for name, given in (weights or {}).items():
        tensor = numpy_helper.from_array(np.asarray(given), name)
        model.graph.initializer.append(tensor)
        if ir < 4:
            value = helper.make_tensor_value_info(name, tensor.data_type, tensor.dims)
            model.graph.input.append(value)
    return model


def name_nodes(model: ModelProto) -> ModelProto:
    """Name every node of the main graph after its first output; the model is changed in place."""
    for k, node in enumerate(model.graph.node):
        node.name = next((o for o in node.output if o), f"node{k}")
    return model


def numbers(*shape: int, seed: int = 0, dtype: DTypeLike = np.float32) -> Array:
    """Standard normal numbers."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def ints(*values: int) -> Array:
    """An int64 vector: axes, sizes, bounds."""
    return np.array(values, np.int64)


def analysed(model: ModelProto) -> Analysis:
    """What is known about a model that is not in a file."""
    return analyse(Source(model, None))


def feeds(model: ModelProto, seed: int = 0, **sizes: int) -> dict[str, Array]:
    """Random inputs: floats standard normal, integers 0 to 2, booleans; sizes by dimension name.

    An axis without a name takes the size called `x_0` (input, axis), or 2; inputs that are
    initializers are not fed.
    """
    given = {t.name for t in model.graph.initializer}
    found = {}
    for k, value in enumerate(v for v in model.graph.input if v.name not in given):
        tensor = value.type.tensor_type
        shape = [
            dim.dim_value
            if dim.HasField("dim_value")
            else sizes.get(dim.dim_param or f"{value.name}_{axis}", 2)
            for axis, dim in enumerate(tensor.shape.dim)
        ]
        rng = np.random.default_rng([seed, k])
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        whole = dtype.kind in "iub"
        array = rng.integers(0, 2 if dtype.kind == "b" else 3, shape) if whole else None
        found[value.name] = (
            np.asarray(array).astype(dtype)
            if array is not None
            else rng.standard_normal(shape).astype(dtype)
        )
    return found


def symbols(model: ModelProto) -> list[str]:
    """Names of the open sizes of the inputs, in order, as `feeds` takes them."""
    found: dict[str, None] = {}
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                found[dim.dim_param or f"{value.name}_{axis}"] = None
    return list(found)


def run(model: ModelProto | Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a model, node by node as it stands (ONNX Runtime changes nothing in it)."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    data = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(inputs)), strict=True))


def every_value(model: ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """All values of the main graph: inputs, initializers, and what every node makes."""
    opened = ModelProto()
    opened.CopyFrom(model)
    shown = {value.name for value in opened.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in shown:
                opened.graph.output.append(helper.make_empty_tensor_value_info(name))
                shown.add(name)
    found = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    found.update(inputs)
    found.update(run(opened, inputs))
    return found


def evaluate(dim: Dim, binding: Mapping[str, int]) -> int:
    """A size once its symbols are bound."""
    if isinstance(dim, int):
        return dim
    return prod(int(part) if part.isdigit() else binding[part] for part in dim.split("*"))


def symbols_of(dim: Dim) -> list[str]:
    """The symbols in a size, repeats kept."""
    return [] if isinstance(dim, int) else [p for p in dim.split("*") if not p.isdigit()]


def physical(stack: Array, layout: Layout) -> Array:
    """The tensor that holds a bundle, entry by entry from the definition of a layout.

    Args:
        stack: The lanes along a new leading axis.
        layout: The physical axes.
    """
    atoms = [LANE, *range(stack.ndim - 1)]
    entry = dict(zip(atoms, np.indices(stack.shape), strict=True))
    size = dict(zip(atoms, stack.shape, strict=True))
    where = []
    for axis in layout:
        index = np.zeros(stack.shape, np.int64)
        for atom in axis:
            index = index * size[atom] + entry[atom]
        where.append(index)
    if not layout:
        return stack.reshape(())
    shape = tuple(prod(size[a] for a in axis) for axis in layout)
    tensor = np.empty(shape, stack.dtype)
    tensor[tuple(where)] = stack
    return tensor


def nodes_of(model: ModelProto, op_type: str) -> list[NodeProto]:
    """The nodes of the main graph of one op type."""
    return [node for node in model.graph.node if node.op_type == op_type]


def bindings(names: Sequence[str], *rows: Sequence[int]) -> Iterator[dict[str, int]]:
    """Sizes for named dimensions, row by row; a short row is repeated."""
    for row in rows:
        yield {name: row[k % len(row)] for k, name in enumerate(names)}
