"""Put several models of one architecture into one: ensembles, folds, per-tenant heads, adapters.

    y_k = model_k(x), k < K   ==>   one model with K outputs, their mean, or their stack

Weights that are equal in several models are stored once, and nodes that compute the same are kept once, so
that a common trunk runs once.  Batching then makes one node where there were K.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto, compose, helper

from onnx_sched import files, sharing, writing
from onnx_sched.errors import ModelError
from onnx_sched.judge.members import Join as Join  # what `merge` takes
from onnx_sched.nodes import DEFAULT_DOMAINS
from onnx_sched.option_checks import one_of
from onnx_sched.sharing import Shared, rename
from onnx_sched.tensors import external_tensors

FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


@dataclass(frozen=True, slots=True)
class Merged:
    """Several models as one.

    Attributes:
        model: The one that runs all of them.
        nodes: How many nodes each of them has, in their order.
        shared: What they have in common, and what is kept once for that.
    """

    model: ModelProto
    nodes: tuple[int, ...]
    shared: Shared


def merge(
    paths: Sequence[Path], join: Join = "outputs", *, separate_inputs: bool = False
) -> ModelProto:
    """One model that runs all of them; see `put_together`."""
    return put_together(paths, join, separate_inputs=separate_inputs).model


def put_together(
    paths: Sequence[Path], join: Join = "outputs", *, separate_inputs: bool = False
) -> Merged:
    """One model that runs all of them, and what it took from them.

    Args:
        paths: The models, at least two.
        join: What becomes of the outputs: all of them (`y_0`, `y_1`, ...), their mean, or their stack
            along a new first axis.
        separate_inputs: Whether every model gets inputs of its own (`x_0`, `x_1`, ...).

    Raises:
        ModelError: If the models do not fit together; it says which and why.
        UsageError: If there is no such `join`.
    """
    one_of("join", join, get_args(Join))
    if len(paths) < 2:
        raise ModelError("merging takes at least two models", "Name two or more .onnx files.")
    models = [_load(path) for path in paths]
    for path, model in zip(paths[1:], models[1:], strict=True):
        _must_fit(paths[0], models[0], path, model)
    _must_join(paths[0], models[0], join)
    result = ModelProto()
    result.CopyFrom(models[0])
    result.ir_version = max(m.ir_version for m in models)
    for part_of_one in ("graph", "functions", "training_info"):
        result.ClearField(part_of_one)
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
    _keep_notes(result, models)
    _must_be_apart(result, paths)
    shared = sharing.share(result)
    _must_be_sound(result, paths, models)
    return Merged(result, tuple(len(m.graph.node) for m in models), shared)


NOTES = ("doc_string", "producer_name", "producer_version", "domain")


def _keep_notes(merged: ModelProto, models: Sequence[ModelProto]) -> None:
    """Keep what the further models say of themselves and the first does not, under `m1/`, `m2/`, ..."""
    first = _notes(models[0])
    for k, model in enumerate(models[1:], 1):
        for key, value in _notes(model).items():
            if first.get(key) != value:
                merged.metadata_props.add(key=f"m{k}/{key}", value=value)


def _notes(model: ModelProto) -> dict[str, str]:
    """What a model says of itself: its metadata, and who made it."""
    told = {name: getattr(model, name) for name in NOTES if getattr(model, name)}
    return told | {p.key: p.value for p in model.metadata_props}


def _must_be_apart(merged: ModelProto, paths: Sequence[Path]) -> None:
    """Refuse names that would mean an input and an output at once."""
    twice = {v.name for v in merged.graph.input} & {v.name for v in merged.graph.output}
    if twice:
        names = ", ".join(map(str, paths))
        raise ModelError(
            f"{names}: merged, {min(twice)!r} would be an input and an output at once",
            "Rename one of the two in the models.",
        )


def _must_be_sound(merged: ModelProto, paths: Sequence[Path], models: Sequence[ModelProto]) -> None:
    """Refuse what no file could hold, and what ONNX forbids though it allows each of the models."""
    names = ", ".join(map(str, paths))
    size = writing.size_inline(merged)
    if size >= writing.PROTOBUF_LIMIT:
        raise ModelError(
            f"{names}: together their weights take {size / 2**30:.1f} GiB, more than one protobuf holds",
            "Merge fewer of them.",
        )
    fault = _fault(merged)
    if fault and not any(map(_fault, models)):  # the runtime takes more than ONNX allows
        raise ModelError(
            f"{names}: merged, they are no valid model: {fault}",
            "Please report these models.",
        )


def _fault(model: ModelProto) -> str:
    """What ONNX has against a model; empty if nothing."""
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        return str(error).strip().partition("\n")[0] or "it gives no reason"
    return ""


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


def _must_join(path: Path, model: ModelProto, join: Join) -> None:
    """Refuse a mean or a stack of what has none."""
    for value in model.graph.output:
        tensor = value.type.WhichOneof("value") == "tensor_type"
        if join == "mean" and not (tensor and value.type.tensor_type.elem_type in FLOATS):
            raise ModelError(
                f"{path}: output {value.name!r} is no floating-point tensor: it has no mean",
                "Use --stack or --outputs.",
            )
        if join == "stack" and not tensor:
            raise ModelError(
                f"{path}: output {value.name!r} is no tensor: it cannot be stacked",
                "Use --outputs.",
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
    """Values with their shapes and types, as messages have them."""
    return ", ".join(map(_in_words, values)) or "none"


def _in_words(value: ValueInfoProto) -> str:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return f"{value.name} ({(kind or 'no type').removesuffix('_type')})"
    tensor = value.type.tensor_type
    dims = [
        str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?"
        for d in tensor.shape.dim
    ]
    shape = f"[{', '.join(dims)}]" if tensor.HasField("shape") else "[...]"
    number = tensor.elem_type
    known = number in TensorProto.DataType.values()
    return f"{value.name}{shape} {TensorProto.DataType.Name(number).lower() if known else number}"


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
    for value in first.graph.output:
        names = [f"m{k}/{value.name}" for k in range(len(parts))]
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
            mean = helper.make_node("Mean", names, [value.name], name=f"{value.name}/mean")
            result.graph.node.append(mean)
            continue
        tensor = copy.type.tensor_type
        if tensor.HasField("shape"):  # else the rank is open, and stays so
            tensor.shape.dim.insert(0, onnx.TensorShapeProto.Dimension(dim_value=len(parts)))
        _stack(result, names, value.name)


def _stack(result: ModelProto, names: Sequence[str], to: str) -> None:
    """Concat(Unsqueeze(y_0), Unsqueeze(y_1), ...) along a new first axis."""
    opset = max(o.version for o in result.opset_import if o.domain in DEFAULT_DOMAINS)
    as_input = opset >= 13  # where Unsqueeze reads its axes
    if as_input:
        axes = helper.make_tensor(f"{to}/axes", TensorProto.INT64, [1], [0])
        result.graph.initializer.append(axes)
    raised = [f"{name}/raised" for name in names]
    for name, out in zip(names, raised, strict=True):
        node = (
            helper.make_node("Unsqueeze", [name, f"{to}/axes"], [out], name=out)
            if as_input
            else helper.make_node("Unsqueeze", [name], [out], name=out, axes=[0])
        )
        result.graph.node.append(node)
    concat = helper.make_node("Concat", raised, [to], name=f"{to}/stack", axis=0)
    result.graph.node.append(concat)


def _name_output(model: ModelProto, inner: str, name: str) -> None:
    """Give a model's output its name in the merged one; its maker takes the name where one exists."""
    for node in model.graph.node:
        for k, made in enumerate(node.output):
            if made == inner and node.op_type != "Identity":
                node.output[k] = name
                rename(model, {inner: name})
                return
    model.graph.node.append(helper.make_node("Identity", [inner], [name], name=f"{name}/out"))
