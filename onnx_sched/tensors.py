"""The tensors of a model: where they stand, how many bytes they take, whether they hold them."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, SparseTensorProto, TensorProto, helper

from onnx_sched.constants import Const
from onnx_sched.graph import nodes_of, training_graphs

NUMPY_TYPES: dict[int, np.dtype[Any]] = {
    TensorProto.FLOAT: np.dtype(np.float32),
    TensorProto.DOUBLE: np.dtype(np.float64),
    TensorProto.FLOAT16: np.dtype(np.float16),
    TensorProto.INT8: np.dtype(np.int8),
    TensorProto.INT16: np.dtype(np.int16),
    TensorProto.INT32: np.dtype(np.int32),
    TensorProto.INT64: np.dtype(np.int64),
    TensorProto.UINT8: np.dtype(np.uint8),
    TensorProto.UINT16: np.dtype(np.uint16),
    TensorProto.UINT32: np.dtype(np.uint32),
    TensorProto.UINT64: np.dtype(np.uint64),
    TensorProto.BOOL: np.dtype(np.bool_),
}
"""Element types that a pass may read and stack.  bfloat16 travels as its bits (see `files.constant`)."""

LARGEST = 2**58
"""So many elements, 16 bytes each, cannot be counted in bytes any more."""

_OTHER_BITS = {
    "BFLOAT16": 16,
    "COMPLEX64": 64,
    "COMPLEX128": 128,
    "FLOAT8E4M3FN": 8,
    "FLOAT8E4M3FNUZ": 8,
    "FLOAT8E5M2": 8,
    "FLOAT8E5M2FNUZ": 8,
    "FLOAT8E8M0": 8,
    "FLOAT6E2M3": 6,
    "FLOAT6E3M2": 6,
    "FLOAT4E2M1": 4,
    "INT4": 4,
    "UINT4": 4,
    "INT2": 2,
    "UINT2": 2,
}
"""Bits of an element by the type's name, since older versions of onnx do not have all of them."""

_KINDS = dict(TensorProto.DataType.items())
ELEMENT_BITS = {kind: dtype.itemsize * 8 for kind, dtype in NUMPY_TYPES.items()} | {
    _KINDS[name]: bits for name, bits in _OTHER_BITS.items() if name in _KINDS
}
"""Bits that an element takes in raw data, by type; strings and types still to come are not here."""


def every_tensor(model: ModelProto) -> Iterator[TensorProto]:
    """All tensors of a model: initializers and attributes, wherever there is a graph or a function."""
    graphs: list[GraphProto] = [model.graph, *training_graphs(model)]
    for node in nodes_of(*graphs, *model.functions):
        for a in node.attribute:
            if a.type == AttributeProto.TENSOR:
                yield a.t
            elif a.type == AttributeProto.TENSORS:
                yield from a.tensors
            elif a.type == AttributeProto.SPARSE_TENSOR:
                yield from _parts(a.sparse_tensor)
            elif a.type == AttributeProto.SPARSE_TENSORS:
                for sparse in a.sparse_tensors:
                    yield from _parts(sparse)
            elif a.type == AttributeProto.GRAPH:
                graphs.append(a.g)
            elif a.type == AttributeProto.GRAPHS:
                graphs += a.graphs
    for graph in graphs:
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from _parts(sparse)


def _parts(sparse: SparseTensorProto) -> tuple[TensorProto, TensorProto]:
    return sparse.values, sparse.indices


def external_tensors(model: ModelProto) -> list[TensorProto]:
    """The tensors whose numbers live in other files."""
    return [t for t in every_tensor(model) if t.data_location == TensorProto.EXTERNAL]


def tensor_bytes(tensor: TensorProto) -> int:
    """Bytes that a tensor's raw data takes; where the type does not say so, what the tensor takes now."""
    bits = ELEMENT_BITS.get(tensor.data_type)
    return int(tensor.ByteSize()) if bits is None else -(-prod(tensor.dims) * bits // 8)


def misfit(tensor: TensorProto) -> str:
    """What is wrong with a tensor that does not hold as many numbers as its shape says; else empty.

    Where the numbers are in another file, only the shape is looked at.
    """
    if any(d < 0 for d in tensor.dims):
        return f"its shape {list(tensor.dims)} has a negative size"
    if prod(d for d in tensor.dims if d) >= LARGEST:  # numpy refuses it even where it is empty
        return f"its shape {list(tensor.dims)} is larger than any array"
    if tensor.data_location == TensorProto.EXTERNAL:
        return ""
    if tensor.HasField("segment"):
        return "it is cut into segments, which nothing reads"
    if tensor.data_type in ELEMENT_BITS and tensor.HasField("raw_data"):
        need, held, unit = tensor_bytes(tensor), len(tensor.raw_data), "bytes"
    elif tensor.data_type in ELEMENT_BITS or tensor.data_type == TensorProto.STRING:
        need, unit = _typed_length(tensor), "elements"
        held = len(getattr(tensor, helper.tensor_dtype_to_field(tensor.data_type)))
    else:
        return ""
    if held == need:
        return ""
    return f"its shape {list(tensor.dims)} takes {need} {unit}, but it holds {held}"


def _typed_length(tensor: TensorProto) -> int:
    """How long the field must be that holds the elements where there is no raw data."""
    count: int = prod(tensor.dims)
    bits = ELEMENT_BITS.get(tensor.data_type, 8)
    if tensor.data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        return 2 * count
    return (
        tensor_bytes(tensor) if bits in (2, 4) else count
    )  # those share an integer, 6 bits do not


def placeholder(name: str, const: Const) -> TensorProto:
    """A tensor with a constant's name, type and shape, its numbers still to come."""
    tensor = TensorProto(name=name, data_type=const.elem_type)
    tensor.dims.extend(const.shape)
    return tensor


def fill(tensor: TensorProto, const: Const) -> None:
    """Put a constant's numbers into a tensor."""
    array = np.ascontiguousarray(const.load()).reshape(const.shape)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    tensor.raw_data = array.tobytes()
