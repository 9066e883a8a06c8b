"""What a model wants to be fed: names, types and sizes of its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, TensorShapeProto, TypeProto, ValueInfoProto, helper

from onnx_sched.errors import UsageError

Dim = int | str | None

_NO_INITIALIZER_DEFAULTS = 4  # below this IR version, weights are listed as inputs, too


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input that has to be fed.

    Attributes:
        name: Name in the graph.
        dtype: Type of the elements as numpy and ml_dtypes spell it, or `string`.
        shape: One entry per axis: its size, the name of its size, or None; None for an open rank.
        kind: `tensor`, or `sequence`, `optional`, `map`, `sparse`.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    kind: str = "tensor"


def input_specs(model: ModelProto) -> tuple[InputSpec, ...]:
    """The inputs of the model that have to be fed, in the order of the file.

    Inputs that are also initializers are weights (below IR version 4) or have a default value (from
    there on): they are left out.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    weights.update(tensor.values.name for tensor in model.graph.sparse_initializer)
    return tuple(_spec(value) for value in model.graph.input if value.name not in weights)


def overridable_names(model: ModelProto) -> tuple[str, ...]:
    """The inputs that have a default value and may be fed, but need not."""
    if model.ir_version < _NO_INITIALIZER_DEFAULTS:
        return ()
    required = {spec.name for spec in input_specs(model)}
    return tuple(value.name for value in model.graph.input if value.name not in required)


def _spec(value: ValueInfoProto) -> InputSpec:
    kind = value.type.WhichOneof("value") or "tensor_type"
    if kind == "tensor_type":
        tensor = value.type.tensor_type
        shape = tuple(_dim(dim) for dim in tensor.shape.dim) if tensor.HasField("shape") else None
        return InputSpec(value.name, dtype_name(tensor.elem_type), shape)
    elem = element_type(value.type)
    return InputSpec(value.name, dtype_name(elem), None, kind.split("_")[0])


def _dim(dim: TensorShapeProto.Dimension) -> Dim:
    if dim.dim_param:
        return dim.dim_param
    # Some exporters write -1 for "any size".
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def element_type(kind: TypeProto) -> int:
    """The type number of the tensors inside a sequence, an optional or a map; 0 if unknown."""
    ends = ("tensor_type", "sparse_tensor_type", "opaque_type", None)
    while (case := kind.WhichOneof("value")) not in ends:
        inner = getattr(kind, case)
        kind = inner.value_type if case == "map_type" else inner.elem_type
    sparse = kind.WhichOneof("value") == "sparse_tensor_type"
    return kind.sparse_tensor_type.elem_type if sparse else kind.tensor_type.elem_type


def dtype_name(elem_type: int) -> str:
    """The name of an ONNX element type: `float32`, `bfloat16`, `bool`, `string`; or `undefined`."""
    if elem_type == TensorProto.STRING:
        return "string"
    if elem_type == TensorProto.UNDEFINED or elem_type not in TensorProto.DataType.values():
        return "undefined"
    return str(helper.tensor_dtype_to_np_dtype(elem_type).name)


def numpy_type(spec: InputSpec) -> np.dtype[Any]:
    """The numpy type of a tensor input; strings are Python objects.

    Raises:
        UsageError: The model does not say, or numpy has no such type.
    """
    if spec.dtype == "string":
        return np.dtype(object)
    try:
        return np.dtype(spec.dtype)
    except TypeError:
        pass
    import ml_dtypes

    kind = getattr(ml_dtypes, spec.dtype, None)
    if kind is None:
        raise UsageError(f"input {spec.name} has the type {spec.dtype}", "give it by --inputs")
    dtype: np.dtype[Any] = np.dtype(kind)
    return dtype
