"""Values that are compared between two models: tensors by their numbers, attributes in words."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import Message
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from onnx_sched import files
from onnx_sched.constants import Array
from onnx_sched.tensors import NUMPY_TYPES

SHORT = 8
"""Elements of a tensor that are written out."""

CHUNK = 1 << 22
"""Elements that are compared at a time: weights may be larger than memory."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor, and the model whose external data it may refer to."""

    source: files.Source
    tensor: TensorProto


def difference(a: Stored, b: Stored) -> str:
    """How two tensors of one type and shape differ, in words; empty if they hold the same bits."""
    x, y = array(a), array(b)
    if x is None or y is None:
        return "" if _raw(a) == _raw(b) else "bytes differ"
    unequal, largest = 0, 0.0
    flat = (
        np.ascontiguousarray(v).reshape(-1) if not isinstance(v, np.memmap) else v.reshape(-1)
        for v in (x, y)
    )
    p, q = flat
    for start in range(0, p.size, CHUNK):
        u, v = p[start : start + CHUNK], q[start : start + CHUNK]
        if u.tobytes() == v.tobytes():
            continue
        other = np.frombuffer(u.tobytes(), np.uint8) != np.frombuffer(v.tobytes(), np.uint8)
        unequal += int(np.count_nonzero(other.reshape(u.size, -1).any(axis=1)))
        with np.errstate(all="ignore"):
            apart = np.abs(u.astype(np.float64) - v.astype(np.float64))
        largest = max(largest, float(np.nanmax(apart, initial=0.0)))
    if not unequal:
        return ""
    return f"{unequal} of {p.size} differ, by up to {largest:.3g}"


def array(stored: Stored) -> Array | None:
    """A tensor's numbers; None for types that numpy does not have."""
    tensor = stored.tensor
    if tensor.data_type not in NUMPY_TYPES:
        return None
    if tensor.data_location == TensorProto.EXTERNAL:
        const = files.constant(stored.source, tensor)
        return const.load() if const is not None else None
    return numpy_helper.to_array(tensor)


def _raw(stored: Stored) -> bytes:
    """The bits of a tensor, in whichever field they are."""
    tensor = stored.tensor
    if tensor.data_location == TensorProto.EXTERNAL:
        return files.read_span(files.locate(stored.source, tensor))
    if tensor.raw_data:
        return tensor.raw_data
    if tensor.string_data:
        return b"".join(len(s).to_bytes(8, "little") + s for s in tensor.string_data)
    return numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data


def tensor_words(tensor: TensorProto) -> str:
    """Type and shape, such as `float[4, 6]`."""
    name = TensorProto.DataType.Name(tensor.data_type).lower()
    return f"{name}[{', '.join(map(str, tensor.dims))}]"


def attribute(given: AttributeProto) -> str:
    """An attribute's value in words: short ones whole, long ones by their fingerprint."""
    if given.type == AttributeProto.TENSOR:
        return f"{tensor_words(given.t)} {_numbers(given.t)}"
    if given.type == AttributeProto.GRAPH:
        return f"graph of {len(given.g.node)} nodes {digest(given.g)}"
    if given.type in _SCALARS:
        value = helper.get_attribute_value(given)
        several = not isinstance(value, bytes | int | float)
        text = "[" + ", ".join(map(_text, value)) + "]" if several else _text(value)
        return text if len(text) <= 200 else f"{text[:100]}... {digest(given)}"
    return digest(given)


_SCALARS = (
    AttributeProto.FLOAT,
    AttributeProto.INT,
    AttributeProto.STRING,
    AttributeProto.FLOATS,
    AttributeProto.INTS,
    AttributeProto.STRINGS,
)


def _text(value: object) -> str:
    if isinstance(value, float):
        return str(np.float32(value))  # attributes are float32; this is the shortest that tells
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _numbers(tensor: TensorProto) -> str:
    """The numbers of a small tensor, the fingerprint of another."""
    count = int(np.prod(tensor.dims, dtype=np.int64))
    if tensor.data_type not in NUMPY_TYPES or tensor.data_location == TensorProto.EXTERNAL:
        return digest(tensor)
    numbers = numpy_helper.to_array(tensor)
    if count <= SHORT:
        return str(numbers.ravel().tolist())
    return f"<{hashlib.sha256(numbers.tobytes()).hexdigest()[:12]}>"


def digest(*protos: Message) -> str:
    """The fingerprint of protos: equal ones have equal ones."""
    whole = hashlib.sha256()
    for proto in protos:
        data = proto.SerializeToString(deterministic=True)
        whole.update(len(data).to_bytes(8, "little") + data)
    return f"<{whole.hexdigest()[:12]}>"
