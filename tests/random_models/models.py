"""Whole models: blocks in a row, put together in one of many ways; and their inputs."""

from __future__ import annotations

from functools import partial

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper

from tests.random_models.builder import BATCH_NAMES, INDEX, LENGTH_NAMES, Array, Dim, Value, elem
from tests.random_models.lanes import open_lanes, run_chain
from tests.random_models.ops import Build
from tests.random_models.sinks import close_lanes


def random_model(seed: int) -> ModelProto:
    """A valid model that follows from a seed."""
    b = Build(seed)
    trunk: Value | None = None
    small = b.flip(0.4)
    for _ in range(1 if small else b.pick([1, 2, 2, 3])):
        trunk = block(b, trunk, small)
    assert trunk is not None
    return finish(b, trunk)


def block(b: Build, trunk: Value | None, small: bool) -> Value:
    """Lanes that are opened, run along and closed again."""
    most = 3 if small else 6
    while (lanes := b.attempt(partial(open_lanes, b, trunk, b.whole(2, most)))) is None:
        if b.flip(0.3) and trunk is not None:
            b.outputs.append(trunk)
            trunk = None
    lanes = run_chain(b, lanes, b.whole(1, most))
    trunk = close_lanes(b, lanes)
    if b.flip(0.15) and b.opset < 22:
        noise(b, trunk)
    return trunk


def noise(b: Build, x: Value) -> None:
    """Random numbers beside the lanes, from a seed."""
    op = b.pick(["RandomNormal", "RandomUniform"])
    dtype = x.dtype if x.dtype in ("float32", "float64") else "float32"
    shape = [d if isinstance(d, int) else 1 for d in x.shape] or [1]
    seed = float(b.whole(1, 9))
    made = b.op(op, [], dtype, shape, shape=shape, dtype=elem(dtype), seed=seed)
    b.outputs.append(made if b.flip() else b.same("Abs", made))


def finish(b: Build, last: Value) -> ModelProto:
    """Put the model together."""
    outputs = _outputs(b, last)
    nodes = shuffled(b, b.nodes) if b.flip(0.15) else b.nodes
    graph = helper.make_graph(
        nodes, "random", _inputs(b), [_info(b, v, b.pick([1, 2])) for v in outputs], b.weights
    )
    if b.flip(0.2):
        inner = [v for v in b.values.values() if v not in outputs and v not in b.inputs]
        graph.value_info.extend(_info(b, v) for v in inner if b.flip() and v.rank)
    opsets = [helper.make_opsetid("" if b.flip(0.9) else "ai.onnx", b.opset)]
    opsets += [helper.make_opsetid(d, 1) for d in sorted(b.domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=b.ir)


def _inputs(b: Build) -> list[ValueInfoProto]:
    """Inputs, weights among them that may be overridden; before IR version 4 that is all of them."""
    infos = [_info(b, v) for v in b.inputs]
    for tensor in b.weights:
        if b.ir < 4 or tensor.name in b.listed:
            infos.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )
    return infos


def _outputs(b: Build, last: Value) -> list[Value]:
    """What a model gives: what was tapped, the last value, some of what nobody reads; never nothing."""
    outputs = list(dict.fromkeys([*b.outputs, last]))
    made = [v for v in b.values.values() if v not in b.inputs]
    unread = [v for v in made if v.name not in b.read and v not in outputs and v.rank < 5]
    outputs += [v for v in unread if b.flip(0.5)]
    outputs = [v for v in outputs if v not in b.inputs or (b.flip(0.3) and b.ir >= 4)]
    if not outputs:
        outputs = [b.same("Neg", last)]
    return [outputs[i] for i in b.rng.permutation(len(outputs))] if b.flip(0.2) else outputs


def _info(b: Build, v: Value, detail: int = 2) -> ValueInfoProto:
    """A declaration: 1 leaves open sizes without names, 2 says all it can."""
    named = (*BATCH_NAMES, *LENGTH_NAMES)
    dims: list[Dim | None] = [
        d if isinstance(d, int) or (d in named and detail == 2) else None for d in v.shape
    ]
    return helper.make_tensor_value_info(v.name, elem(v.dtype), dims)


def shuffled(b: Build, nodes: list[NodeProto]) -> list[NodeProto]:
    """Another topological order; rarely none at all."""
    if b.flip(0.1):
        return [nodes[i] for i in b.rng.permutation(len(nodes))]
    made = {o for n in nodes for o in n.output if o}
    needs = [{i for i in (*n.input, *captured(n)) if i in made} for n in nodes]
    there: set[str] = set()
    left, out = list(range(len(nodes))), []
    while left:
        k = b.pick([k for k in left if needs[k] <= there])
        left.remove(k)
        out.append(nodes[k])
        there.update(nodes[k].output)
    return out


def captured(node: NodeProto) -> list[str]:
    """Every name that a node's bodies read, their own included."""
    found: list[str] = []
    todo: list[GraphProto] = [a.g for a in node.attribute if a.HasField("g")]
    while todo:
        for inner in todo.pop().node:
            found += inner.input
            todo += [a.g for a in inner.attribute if a.HasField("g")]
    return found


def make_feeds(
    model: ModelProto, batch: int, length: int, seed: int, *, wild: bool = False
) -> dict[str, Array]:
    """Inputs of a size: normal floats, small whole numbers, coins; `wild` puts a NaN and an Inf among them.

    Overridable initializers are fed in every second call (odd seeds).
    """
    rng = np.random.default_rng([seed, 5])
    weights = {t.name for t in model.graph.initializer}
    fed = seed % 2 == 1 and model.ir_version >= 4
    feeds: dict[str, Array] = {}
    for value in model.graph.input:
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if value.name in weights and not (fed and dtype.kind == "f"):
            continue
        shape = _shape(value, batch, length)
        if dtype.kind == "f":
            array = np.asarray(rng.standard_normal(shape)).astype(dtype)
            if wild and array.size:
                array.reshape(-1)[rng.integers(0, array.size, 2)] = [np.nan, np.inf]
        elif dtype.kind == "b":
            array = np.asarray(rng.random(shape) < 0.5)
        elif value.name.startswith(INDEX):
            array = np.ones(shape, dtype)
        else:
            array = np.asarray(rng.integers(-3, 4, shape)).astype(dtype)
        feeds[value.name] = array
    return feeds


def _shape(value: ValueInfoProto, batch: int, length: int) -> list[int]:
    """The shape of an input; open sizes are the batch's or the length's."""
    shape = []
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        long = dim.dim_param in LENGTH_NAMES or (axis and not dim.dim_param)
        shape.append(dim.dim_value if dim.HasField("dim_value") else length if long else batch)
    return shape
