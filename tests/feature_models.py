"""Tiny models, one per feature of the format: every field of the schema, set once in a model of its own.

The schema says which fields there are, so a field that a later onnx brings is tried as soon as it is
installed.  What is set sits beside the computation: nothing that runs depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper

Path = tuple[str, ...]

FUTURE = bytes([0xF2, 0x1F, 4]) + b"\xff\x00ab"
"""A field that no schema has: number 510, four bytes."""

SET = (("ir_version",), ("graph",))
"""Set in every model."""

DEPTH = 2
"""Down to this depth every place of a field is tried; below, one place per field and branch."""


def host() -> ModelProto:
    """A model with one node in its main graph, and one value besides its output."""
    nodes = [helper.make_node("Relu", ["host_x"], [y]) for y in ("host_y", "host_z")]
    values = [helper.make_tensor_value_info(n, 1, ["n"]) for n in ("host_x", "host_y")]
    graph = helper.make_graph(nodes, "host", values[:1], values[1:])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("future", 1)]
    model: ModelProto = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return model


def with_body() -> ModelProto:
    """The host, its graph a branch of an If: both branches are alike."""
    model = host()
    inner = GraphProto()
    inner.CopyFrom(model.graph)
    del inner.input[:]
    node = helper.make_node("If", ["host_c"], ["host_r"], then_branch=inner, else_branch=inner)
    del model.graph.node[:]
    del model.graph.output[:]
    model.graph.node.append(node)
    model.graph.input.append(helper.make_tensor_value_info("host_c", TensorProto.BOOL, []))
    model.graph.output.append(helper.make_tensor_value_info("host_r", 1, ["n"]))
    return model


def field_paths(root: Descriptor = ModelProto.DESCRIPTOR) -> list[Path]:
    """Paths to fields below a message, deep ones once for every branch that starts at its top."""
    found: list[Path] = []
    seen: set[tuple[Path, str, str]] = set()
    for path, field in _walk(root, (root.full_name,), ()):
        key = (path[:2], field.containing_type.full_name, field.name)
        if path in SET or (path[-1] in ("data_type", "type") and not field.message_type):
            continue
        if "segment" in path or (path[-1] == "ref_attr_name" and path[0] == "graph"):
            continue  # refused: nothing reads segments, and only functions have attributes
        if len(path) <= DEPTH or key not in seen:
            found.append(path)
        seen.add(key)
    return found


def _walk(message: Descriptor, above: Path, path: Path) -> Iterator[tuple[Path, FieldDescriptor]]:
    for field in message.fields:
        here = (*path, field.name)
        yield here, field
        inner = field.message_type
        if inner is not None and above.count(inner.full_name) < 1 + (inner.name == "GraphProto"):
            yield from _walk(inner, (*above, inner.full_name), here)


def set_field(root: Message, path: Sequence[str]) -> Message:
    """Set the field at the end of a path, in new messages along it; returns the last message."""
    message = root
    for k, name in enumerate(path):
        field = message.DESCRIPTOR.fields_by_name[name]
        rest = path[k + 1 :]
        if field.message_type is None:
            _set_leaf(message, field, path)
            return message
        held = getattr(message, name)
        inner = held.add() if hasattr(held, "add") else held
        inner.SetInParent()
        if not (isinstance(inner, GraphProto) and inner.node):
            _make_sound(inner, tuple(path[: k + 1]), rest[0] if rest else "")
        message = inner
    return message


def _set_leaf(message: Message, field: FieldDescriptor, path: Sequence[str]) -> None:
    reads = (field.containing_type.name, field.name) in READS or tuple(path[-2:]) == (
        "output",
        "name",
    )
    value: Any = _known(path) if reads else _sample(field)
    held = getattr(message, field.name)
    if hasattr(held, "append"):
        held.append(value)
    else:
        setattr(message, field.name, value)


READS = (("NodeProto", "input"), ("FunctionProto", "output"))
"""Names that must be made somewhere."""


def _known(path: Sequence[str]) -> str:
    """A value that can be read at the end of a path."""
    return "feature_in" if path[0] == "functions" else "host_z"


def _sample(field: FieldDescriptor) -> Any:
    kinds = FieldDescriptor
    if field.type == kinds.TYPE_STRING:
        return "feature_ü\n\0"
    if field.type == kinds.TYPE_BYTES:
        return b"\xff\x00\xfe\x01"
    if field.type in (kinds.TYPE_FLOAT, kinds.TYPE_DOUBLE):
        return float("nan")
    return 0 if field.enum_type is not None else 7


_ATTRIBUTES = {
    "f": "FLOAT",
    "i": "INT",
    "s": "STRING",
    "t": "TENSOR",
    "g": "GRAPH",
    "sparse_tensor": "SPARSE_TENSOR",
    "tp": "TYPE_PROTO",
    "floats": "FLOATS",
    "ints": "INTS",
    "strings": "STRINGS",
    "tensors": "TENSORS",
    "graphs": "GRAPHS",
    "sparse_tensors": "SPARSE_TENSORS",
    "type_protos": "TYPE_PROTOS",
}

_DATA = {
    "int32_data": TensorProto.INT32,
    "int64_data": TensorProto.INT64,
    "double_data": TensorProto.DOUBLE,
    "uint64_data": TensorProto.UINT64,
    "string_data": TensorProto.STRING,
    "float_data": TensorProto.FLOAT,
    "raw_data": TensorProto.FLOAT,
}


def _make_sound(message: Any, path: Path, wanted: str) -> None:
    """Give a new message what no reader can do without, so that only one thing is unusual."""
    kind = message.DESCRIPTOR.name
    if kind == "NodeProto":
        message.op_type, message.domain = "Op", "future"
        message.output.append("feature_out")
    elif kind == "AttributeProto":
        message.name = "feature"
        message.type = AttributeProto.AttributeType.Value(_ATTRIBUTES.get(wanted, "INT"))
    elif kind == "TensorProto":
        message.name = "feature_t"
        message.data_type = _DATA.get(wanted, TensorProto.FLOAT)
        message.dims.append(int(wanted in _DATA))
    elif kind == "ValueInfoProto":
        places = {"output": _known(path), "value_info": "host_y"}
        message.name = places.get(path[-1], "feature_in")
    elif kind == "FunctionProto":
        message.name, message.domain = "F", "future"
        message.input.append("feature_in")
    elif kind == "OperatorSetIdProto":
        message.domain, message.version = "feature.imported", 1
    elif kind == "StringStringEntryProto":
        message.key = "feature"


def with_field(path: Path, start: ModelProto | None = None) -> ModelProto:
    """The host, or another model, with one field set."""
    model = start if start is not None else host()
    set_field(model, path)
    return model


def message_paths() -> list[Path]:
    """Paths to messages: the model itself, and each kind of message in each branch."""
    found: list[Path] = [()]
    for path in field_paths():
        message: Descriptor = ModelProto.DESCRIPTOR
        for name in path:
            field = message.fields_by_name[name]
            if field.message_type is None:
                break
            message = field.message_type
        else:
            found.append(path)
    return found


def with_future(path: Path) -> ModelProto:
    """The host with a field of the future in the message at a path."""
    model = host()
    message = set_field(model, path) if path else model
    message.MergeFromString(FUTURE)
    return model


def body_of(model: ModelProto) -> GraphProto:
    """The first branch of the model that `with_body` makes."""
    graph: GraphProto = model.graph.node[0].attribute[0].g
    return graph


ELEMENT_TYPES = {
    name: value for name, value in TensorProto.DataType.items() if value != TensorProto.UNDEFINED
}


def bits(kind: int) -> int:
    """Bits of an element of a type; 0 for strings."""
    name = TensorProto.DataType.Name(kind)
    special = {
        "FLOAT": 32,
        "DOUBLE": 64,
        "BOOL": 8,
        "STRING": 0,
        "COMPLEX64": 64,
        "COMPLEX128": 128,
    }
    if name in special:
        return special[name]
    digits = name.removeprefix("B").removeprefix("U").removeprefix("INT").removeprefix("FLOAT")
    return int(digits.split("E")[0])


def element(name: str, length: int = 5) -> TensorProto:
    """A tensor of an element type with every bit of its first bytes set; strings are not UTF-8."""
    kind = ELEMENT_TYPES[name]
    tensor = TensorProto(name="feature_t", data_type=kind, dims=[length])
    if name == "STRING":
        tensor.string_data.extend([b"\xff\xfe\x00", b"", *[b"plain"] * (length - 2)])
    else:
        tensor.raw_data = b"\xff\x81" * (-(-length * bits(kind) // 16))
        tensor.raw_data = tensor.raw_data[: -(-length * bits(kind) // 8)]
    return tensor


def is_text(path: Path) -> bool:
    """Whether the field at the end of a path is one text."""
    message: Descriptor = ModelProto.DESCRIPTOR
    for name in path[:-1]:
        message = message.fields_by_name[name].message_type
    return bool(message.fields_by_name[path[-1]].type == FieldDescriptor.TYPE_STRING)


def with_odd_text(path: Path) -> ModelProto:
    """The host with a text at a path whose bytes are no UTF-8; some programs write such."""
    model = host()
    message = set_field(model, path)
    key = message.DESCRIPTOR.fields_by_name[path[-1]].number << 3 | 2
    tag = [key] if key < 128 else [key & 127 | 128, key >> 7]
    message.MergeFromString(bytes([*tag, 4]) + b"\xca\xfe\xff\x00")
    return model
