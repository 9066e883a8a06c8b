"""Put several models of one architecture into one: ensembles, folds, per-tenant heads, adapters.

    y_k = model_k(x), k < K   ==>   one model with K outputs, their mean, or their stack

Weights that are equal in several models are stored once, and nodes that compute the same are kept once, so
that a common trunk runs once.  Batching then makes one node where there were K.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Literal

import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, compose, helper

from onnx_sched import files
from onnx_sched.errors import ModelError
from onnx_sched.graph import sorted_order
from onnx_sched.nodes import attributes, captures, domain_of, has_effect, subgraphs
from onnx_sched.tensors import external_tensors

Join = Literal["outputs", "mean", "stack"]
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def merge(
    paths: Sequence[Path], join: Join = "outputs", *, separate_inputs: bool = False
) -> ModelProto:
    """One model that runs all of them.

    Args:
        paths: The models, at least two.
        join: What becomes of the outputs: all of them (`y_0`, `y_1`, ...), their mean, or their stack
            along a new first axis.
        separate_inputs: Whether every model gets inputs of its own (`x_0`, `x_1`, ...).

    Raises:
        ModelError: If the models do not fit together; it says which and why.
    """
    if len(paths) < 2:
        raise ModelError("merging takes at least two models", "Name two or more .onnx files.")
    models = [_load(path) for path in paths]
    for path, model in zip(paths[1:], models[1:], strict=True):
        _must_fit(paths[0], models[0], path, model)
    result = ModelProto()
    result.CopyFrom(models[0])
    result.ClearField("graph")
    result.ClearField("functions")
    graph = result.graph
    graph.name = f"{len(models)} models"
    parts = [compose.add_prefix(m, f"m{k}/") for k, m in enumerate(models)]
    _inputs(result, models[0], parts, separate_inputs)
    for part in parts:
        graph.node.extend(part.graph.node)
        graph.initializer.extend(part.graph.initializer)
        graph.sparse_initializer.extend(part.graph.sparse_initializer)
        result.functions.extend(part.functions)
    _outputs(result, models[0], parts, join)
    _store_once(result)
    _run_once(result)
    onnx.checker.check_model(result)
    return result


def _load(path: Path) -> ModelProto:
    source = files.read(path)
    for tensor in external_tensors(source.model):
        files.load_external(source, tensor)
    if source.model.ir_version < 4:
        raise ModelError(
            f"{path} has IR version {source.model.ir_version}: its weights are inputs",
            "Convert it to IR version 4 or later first.",
        )
    return source.model


def _must_fit(first: Path, a: ModelProto, path: Path, b: ModelProto) -> None:
    """Refuse a model whose interface or opset differs from the first one's."""
    versions = [{o.domain: o.version for o in m.opset_import} for m in (a, b)]
    if versions[0] != versions[1]:
        raise ModelError(
            f"{path} imports opsets {versions[1]}, but {first} imports {versions[0]}",
            "Export both with the same opset, or convert one (onnx.version_converter).",
        )
    for what, x, y in (("input", _fed(a), _fed(b)), ("output", a.graph.output, b.graph.output)):
        if [_signature(v) for v in x] != [_signature(v) for v in y]:
            raise ModelError(
                f"{path} has {what}s {_shown(y)}, but {first} has {_shown(x)}",
                "Only models of one architecture can be merged.",
            )


def _fed(model: ModelProto) -> list[ValueInfoProto]:
    """Inputs that are no initializers."""
    given = {t.name for t in model.graph.initializer}
    return [v for v in model.graph.input if v.name not in given]


def _signature(value: ValueInfoProto) -> Hashable:
    """Name, type and known sizes; names of open sizes do not matter."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return (value.name, value.type.SerializeToString(deterministic=True))
    tensor = value.type.tensor_type
    dims = tuple(d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim)
    return (value.name, tensor.elem_type, tensor.HasField("shape"), dims)


def _shown(values: Sequence[ValueInfoProto]) -> str:
    found = []
    for value in values:
        tensor = value.type.tensor_type
        dims = [
            str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?"
            for d in tensor.shape.dim
        ]
        found.append(f"{value.name}[{', '.join(dims)}]")
    return ", ".join(found)


def _inputs(
    result: ModelProto, first: ModelProto, parts: Sequence[ModelProto], separate: bool
) -> None:
    """Declare the inputs, and connect every model to them."""
    for value in _fed(first):
        for k, part in enumerate(parts):
            name = f"{value.name}_{k}" if separate else value.name
            if separate or k == 0:
                copy = result.graph.input.add()
                copy.CopyFrom(value)
                copy.name = name
            inner = f"m{k}/{value.name}"
            link = helper.make_node("Identity", [name], [inner], name=f"{inner}/link")
            part.graph.node.insert(0, link)
    for part in parts:
        given = {t.name for t in part.graph.initializer}
        result.graph.input.extend(v for v in part.graph.input if v.name in given)


def _outputs(
    result: ModelProto, first: ModelProto, parts: Sequence[ModelProto], join: Join
) -> None:
    """Declare the outputs, and make them from every model's."""
    opset = {o.domain: o.version for o in result.opset_import}.get("", 0)
    for value in first.graph.output:
        names = [f"m{k}/{value.name}" for k in range(len(parts))]
        tensor = value.type.tensor_type
        if join == "outputs":
            for k, name in enumerate(names):
                copy = result.graph.output.add()
                copy.CopyFrom(value)
                copy.name = f"{value.name}_{k}"
                _name_output(result, name, copy.name)
            continue
        copy = result.graph.output.add()
        copy.CopyFrom(value)
        if join == "mean":
            if tensor.elem_type not in FLOATS:
                raise ModelError(
                    f"output {value.name!r} is no floating-point tensor: it has no mean",
                    "Use --stack or --outputs.",
                )
            result.graph.node.append(
                helper.make_node("Mean", names, [value.name], name=f"{value.name}/mean")
            )
            continue
        copy.type.tensor_type.shape.dim.insert(
            0, onnx.TensorShapeProto.Dimension(dim_value=len(parts))
        )
        raised = [f"{n}/raised" for n in names]
        if opset >= 13:
            axes = helper.make_tensor(f"{value.name}/axes", TensorProto.INT64, [1], [0])
            result.graph.initializer.append(axes)
        for name, out in zip(names, raised, strict=True):
            node = (
                helper.make_node("Unsqueeze", [name, f"{value.name}/axes"], [out], name=out)
                if opset >= 13
                else helper.make_node("Unsqueeze", [name], [out], name=out, axes=[0])
            )
            result.graph.node.append(node)
        result.graph.node.append(
            helper.make_node("Concat", raised, [value.name], name=f"{value.name}/stack", axis=0)
        )


def _name_output(model: ModelProto, inner: str, name: str) -> None:
    """Give a model's output its name in the merged one; its maker takes the name where one exists."""
    for node in model.graph.node:
        for k, made in enumerate(node.output):
            if made == inner and node.op_type != "Identity":
                node.output[k] = name
                _rename(model, {inner: name})
                return
    model.graph.node.append(helper.make_node("Identity", [inner], [name], name=f"{name}/out"))


def _store_once(model: ModelProto) -> None:
    """Weights of equal type, shape and bytes become one."""
    fed = {v.name for v in model.graph.input}
    seen: dict[bytes, str] = {}
    names: dict[str, str] = {}
    kept = []
    for tensor in model.graph.initializer:
        bare = TensorProto()
        bare.CopyFrom(tensor)
        bare.name = bare.doc_string = ""
        key = bare.SerializeToString(deterministic=True)
        if tensor.name not in fed and key in seen:
            names[tensor.name] = seen[key]
            continue
        if tensor.name not in fed:
            seen.setdefault(key, tensor.name)
        kept.append(tensor)
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    _rename(model, names)


def _rename(model: ModelProto, names: dict[str, str]) -> None:
    """Read other names, in bodies of control flow, too."""
    todo: list[NodeProto] = list(model.graph.node)
    while todo:
        node = todo.pop()
        for k, name in enumerate(node.input):
            if name in names:
                node.input[k] = names[name]
        for graph in subgraphs(node):
            todo += graph.node
            for value in graph.output:
                value.name = names.get(value.name, value.name)


def _run_once(model: ModelProto) -> None:
    """Nodes that do the same on the same inputs become one, the first of them."""
    nodes = list(model.graph.node)
    outputs = {o.name for o in model.graph.output}
    names: dict[str, str] = {}
    seen: dict[Hashable, NodeProto] = {}
    kept: list[NodeProto] = []
    for k in sorted_order(nodes):
        node = nodes[k]
        for n, name in enumerate(node.input):
            if name in names:
                node.input[n] = names[name]
        plain = domain_of(node) in ("", "com.microsoft", "ai.onnx.ml")
        if plain and not has_effect(node) and not captures(node) and not outputs & set(node.output):
            if node.op_type == "Identity":
                names[node.output[0]] = node.input[0]
                continue
            key = (
                node.domain,
                node.op_type,
                tuple(sorted(attributes(node).items())),
                tuple(node.input),
                len(node.output),
            )
            twin = seen.setdefault(key, node)
            if twin is not node and next(subgraphs(node), None) is None:
                names.update(zip(node.output, twin.output, strict=True))
                continue
        kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    _rename(model, names)
