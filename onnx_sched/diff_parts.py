"""The parts of a model that are compared, by name, each with its facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from google.protobuf.message import Message
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

from onnx_sched import files
from onnx_sched.diff_values import Stored, attribute, digest, tensor_words
from onnx_sched.nodes import DEFAULT_DOMAINS
from onnx_sched.report.lineage import members

Facts = Mapping[str, str]

OWN = {"node", "input", "output", "initializer", "sparse_initializer"}
"""Fields of a graph that have sections of their own."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One item of a part.

    Attributes:
        what: What it is, in a word or two.
        facts: Gives all that is compared, by aspect, as text.
        members: The nodes that a node replaced.
        tensor: An initializer, with where its external data is.
    """

    what: str
    facts: Callable[[], Facts]
    members: tuple[str, ...] = ()
    tensor: Stored | None = None


def numbered(pairs: Iterable[tuple[str, Entry]]) -> dict[str, Entry]:
    """Entries by name; a name that stands again gets a number."""
    found: dict[str, Entry] = {}
    for name, entry in pairs:
        key, n = name, 1
        while key in found:
            n += 1
            key = f"{name} #{n}"
        found[key] = entry
    return found


def interface(graph: GraphProto) -> dict[str, Entry]:
    """Inputs and outputs; their order counts, and whether an input has a default."""
    stored = {t.name for t in graph.initializer}
    pairs = []
    for role, values in (("input", graph.input), ("output", graph.output)):
        for place, value in enumerate(values):
            default = "has one" if role == "input" and value.name in stored else ""
            facts = {"type": type_words(value.type), "place": str(place), "default": default}
            entry = Entry(type_words(value.type), partial(dict, {**facts, **notes(value)}))
            pairs.append((f"{role} {value.name}", entry))
    return numbered(pairs)


def nodes(graph: GraphProto) -> dict[str, Entry]:
    """Nodes by name, or by their first output where they have none."""
    pairs = []
    for node in graph.node:
        name = node.name or next((o for o in node.output if o), node.op_type)
        pairs.append((name, Entry(node.op_type, partial(node_facts, node), members(node))))
    return numbered(pairs)


def node_facts(node: NodeProto) -> Facts:
    """All about a node."""
    domain = "" if node.domain in DEFAULT_DOMAINS else node.domain
    facts = {"op": f"{domain}.{node.op_type}" if domain else node.op_type}
    for what, names in (("input", node.input), ("output", node.output)):
        facts |= {f"{what} {k}": name or "left out" for k, name in enumerate(names)}
    for a in sorted(node.attribute, key=lambda a: a.name):
        facts[f"attribute {a.name}"] = attribute(a)
    known = {"name", "input", "output", "op_type", "domain", "attribute"}
    return {**facts, **notes(node), **rest(node, known | _NOTES)}


def weights(source: files.Source) -> dict[str, Entry]:
    """Initializers; their numbers are compared apart."""
    graph = source.model.graph
    pairs = []
    for tensor in graph.initializer:
        what = tensor_words(tensor)
        said: Facts = {"type": what, **notes(tensor)}
        pairs.append((tensor.name, Entry(what, partial(dict, said), (), Stored(source, tensor))))
    for sparse in graph.sparse_initializer:
        what = f"sparse {tensor_words(sparse.values)}"
        said = {"type": what, "numbers": digest(sparse)}
        pairs.append((sparse.values.name, Entry(what, partial(dict, said))))
    return numbered(pairs)


def functions(model: ModelProto) -> dict[str, Entry]:
    """Functions of the model, by domain and name."""
    pairs = []
    for function in model.functions:
        name = ".".join(filter(None, (function.domain, function.name, function.overload)))
        what = f"{len(function.node)} nodes"
        pairs.append((name, Entry(what, partial(_whole, function, "body"))))
    return numbered(pairs)


def metadata(model: ModelProto) -> dict[str, Entry]:
    """Everything else: versions, documentation, notes, and what is said about inner values."""
    found: dict[str, str] = {}
    for opset in model.opset_import:
        domain = "ai.onnx" if opset.domain in DEFAULT_DOMAINS else opset.domain
        found[f"opset {domain}"] = str(opset.version)
    found |= {f"model {k}": v for k, v in notes(model).items() if v}
    found |= {f"graph {k}": v for k, v in notes(model.graph).items() if v}
    for value in model.graph.value_info:
        found[f"value {value.name}"] = type_words(value.type)
    for known in model.graph.quantization_annotation:
        found[f"quantization {known.tensor_name}"] = digest(known)
    skip = {"graph", "functions", "opset_import"} | _NOTES
    found |= {f"model {k}": v for k, v in rest(model, skip).items()}
    skip = OWN | {"value_info", "quantization_annotation"} | _NOTES
    found |= {f"graph {k}": v for k, v in rest(model.graph, skip).items()}
    return {name: Entry(value, partial(dict, {"value": value})) for name, value in found.items()}


_NOTES = {"doc_string", "metadata_props"}


def notes(proto: ModelProto | GraphProto | NodeProto | ValueInfoProto | TensorProto) -> Facts:
    """Documentation and metadata."""
    found = {"doc": proto.doc_string}
    found |= {f"note {p.key}": p.value for p in proto.metadata_props}
    return found


def rest(proto: Message, skip: Iterable[str]) -> dict[str, str]:
    """Fields that nothing else looks at, in short: no field of a newer ONNX goes unseen."""
    left_out = set(skip)
    found = {}
    for field, value in proto.ListFields():
        if field.name not in left_out:
            if isinstance(value, Message):
                value = [value]
            scalar = isinstance(value, str | int | float | bytes)
            deep = not scalar and all(isinstance(v, Message) for v in value)
            found[field.name] = digest(*value) if deep else str(value)
    return found


def _whole(proto: Message, aspect: str) -> Facts:
    return {aspect: digest(proto)}


def type_words(kind: TypeProto) -> str:
    """A type as people write it: `float[batch, 16]`."""
    if not kind.HasField("tensor_type"):
        return str(helper.printable_type(kind)) if kind.WhichOneof("value") else "no type"
    name = TensorProto.DataType.Name(kind.tensor_type.elem_type).lower()
    if not kind.tensor_type.HasField("shape"):
        return f"{name}, rank open"
    dims = [
        str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?"
        for d in kind.tensor_type.shape.dim
    ]
    return f"{name}[{', '.join(dims)}]"
