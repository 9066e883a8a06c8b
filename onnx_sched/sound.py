"""What every other module takes for granted about a model, checked once when it is read.

Names are text, each value is made once and only read where it is known, operators have the inputs and
attributes that their definition asks for.  A model that breaks one of these runs nowhere; it gets an
error that names the node, instead of whatever the first reader would make of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

from onnx_sched.errors import ModelError
from onnx_sched.nodes import DEFAULT_DOMAINS, domain_of, subgraphs

INT32 = 2**31
NO_TEXT = "is no text (UTF-8)"
FIELDS = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    AttributeProto.TYPE_PROTO: "tp",
}
"""Where an attribute of one value keeps it; lists may be empty."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """A graph or function to look at, and the names that can be read in it.

    Attributes:
        part: The graph or function.
        known: Names known around it.
        opsets: Version by domain.
        place: What messages call it; empty for the main graph.
        function: Whether attributes may refer to those of a call.
    """

    part: GraphProto | FunctionProto
    known: frozenset[str] | set[str]
    opsets: dict[str, int]
    place: str
    function: bool


def faults(model: ModelProto) -> Iterator[str]:
    """What is wrong with a model, one sentence each, the first first."""
    if not 0 < model.ir_version < INT32:
        yield f"its IR version is {model.ir_version}"
    yield from _bad_imports(model.opset_import)
    opsets = _opsets(model.opset_import)
    todo = [_Scope(model.graph, frozenset(), opsets, "", False)]
    seen = Counter((f.domain, f.name, f.overload) for f in model.functions)
    for function in model.functions:
        yield from _bad_imports(function.opset_import)
        name = f"{function.domain}::{function.name}"
        if seen[function.domain, function.name, function.overload] > 1:
            yield f"function {name} is there twice"
        own = _opsets(function.opset_import)
        todo.append(_Scope(function, frozenset(), own, f"function {name}: ", True))
    while todo:
        yield from _look(todo.pop(), todo)


def check(model: ModelProto, name: str) -> None:
    """Refuse a model that no runtime could run.

    Raises:
        ModelError: It says what is wrong, and with which node.
    """
    fault = next(faults(model), None)
    if fault is not None:
        raise ModelError(f"{name} is broken: {fault}", "Export it again; onnx.checker says more.")


def _opsets(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {"" if o.domain in DEFAULT_DOMAINS else o.domain: o.version for o in imports}


def _bad_imports(imports: Iterable[onnx.OperatorSetIdProto]) -> Iterator[str]:
    for o in imports:
        if not isinstance(o.domain, str):
            yield f"it imports domain {o.domain!r}, which {NO_TEXT}"
        elif not 0 <= o.version < INT32:
            yield f"it imports version {o.version} of domain {o.domain!r}"


def _look(scope: _Scope, todo: list[_Scope]) -> Iterator[str]:
    """What is wrong with one graph or function; its bodies join the list of what to look at."""
    part = scope.part
    given = list(_given(part))
    made = [o for node in part.node for o in node.output if o]
    noted = list(_noted(part))
    odd = next((n for n in chain(given, made, noted) if not isinstance(n, str)), None)
    if odd is not None:
        yield f"{scope.place}{odd!r:.100} is the name of a value or a size, and {NO_TEXT}"
        return
    twice = _twice(part, given, made)
    if twice is not None:
        yield f"{scope.place}value {twice!r} is made twice"
    known = {*scope.known, *given, *made}
    for node in part.node:
        fault = _bad_node(node, scope)
        if fault is None:
            missing = [i for i in node.input if i and i not in known]
            fault = f"reads {missing[0]!r}, which nothing makes" if missing else None
        if fault is not None:
            yield f"{scope.place}{_called(node)} {fault}"
            return
        for graph in subgraphs(node) if node.attribute else ():
            place = f"{scope.place}{_called(node)}: "
            place = place if len(place) < 200 else f"...{place[-200:]}"
            inner = _Scope(graph, known, scope.opsets, place, scope.function)
            todo.append(inner)
    outputs = part.output if isinstance(part, FunctionProto) else [v.name for v in part.output]
    for name in outputs:
        if name not in known:
            yield f"{scope.place}output {name!r} is made by nothing"


def _given(part: GraphProto | FunctionProto) -> Iterator[str]:
    """Names that a graph has without computing them."""
    if isinstance(part, FunctionProto):
        yield from part.input
        return
    yield from (v.name for v in part.input)
    yield from (t.name for t in part.initializer)
    yield from (s.values.name for s in part.sparse_initializer)


def _noted(part: GraphProto | FunctionProto) -> Iterator[str]:
    """Names of outputs, of values that something is noted about, and of open sizes."""
    if isinstance(part, FunctionProto):
        yield from part.output
        return
    for value in chain(part.input, part.output, part.value_info):
        yield value.name
        if value.type.HasField("tensor_type"):
            yield from (d.dim_param for d in value.type.tensor_type.shape.dim)


def _twice(
    part: GraphProto | FunctionProto, given: Sequence[str], made: Sequence[str]
) -> str | None:
    """A value that is made by two nodes, or by a node though it is there already."""
    distinct = set(made)
    if len(distinct) == len(made) and distinct.isdisjoint(given):
        return None
    counts = Counter(chain(made, set(given)))
    return next((name for name, n in counts.items() if n > 1), None)


def _called(node: NodeProto) -> str:
    label = node.name or next((o for o in node.output if o), "")
    return f"node {str(label)[:100]!r} ({str(node.op_type)[:50]})"


def _bad_node(node: NodeProto, scope: _Scope) -> str | None:
    """What is wrong with a node by itself."""
    texts = (node.op_type, node.domain, node.name, node.overload, *node.input)
    if not all(isinstance(text, str) for text in texts):
        return f"has a name that {NO_TEXT}"
    domain = domain_of(node)
    version = scope.opsets.get(domain, 0)
    if not version and not domain:
        return "is of the standard operators, of which no version is imported"
    takes = _definition(node.op_type, domain, version)
    if takes is not None:
        fault = takes.arity(node)
        if fault is not None:
            return fault
    for a in node.attribute:
        fault = _bad_attribute(a, takes, scope.function)
        if fault is not None:
            return f"has an attribute {str(a.name)[:50]!r} that {fault}"
    if takes is not None and takes.required:
        missing = takes.required - {a.name for a in node.attribute}
        if missing:
            return f"lacks the attribute {min(missing)!r}"
    return None


def _bad_attribute(a: AttributeProto, takes: _Definition | None, function: bool) -> str | None:
    if not isinstance(a.name, str) or not isinstance(a.ref_attr_name, str):
        return f"has a name that {NO_TEXT}"
    if a.ref_attr_name:
        return None if function else "refers to an attribute of a function, but stands in none"
    if a.type not in AttributeProto.AttributeType.values() or not a.type:
        return "says not of what kind it is"
    wanted = takes.kinds.get(a.name) if takes is not None else None
    if wanted is not None and wanted != a.type:
        names = AttributeProto.AttributeType
        return f"is {names.Name(a.type)}, not {names.Name(wanted)}"
    field = FIELDS.get(a.type)
    if field in ("t", "g", "sparse_tensor", "tp") and not a.HasField(field):
        return "holds nothing"
    return None


@dataclass(frozen=True, slots=True)
class _Definition:
    """What an operator takes, as onnx defines it."""

    least: int
    most: int
    least_out: int
    most_out: int
    needed: tuple[bool, ...]
    kinds: dict[str, int]
    required: frozenset[str]

    def arity(self, node: NodeProto) -> str | None:
        """What is wrong with the number of inputs or outputs."""
        n = len(node.input)
        if not self.least <= n <= self.most:
            return f"has {n} inputs, and takes {_span(self.least, self.most)}"
        for k, (name, needed) in enumerate(zip(node.input, self.needed, strict=False)):
            if needed and not name:
                return f"lacks input {k}"
        if not self.least_out <= len(node.output) <= self.most_out:
            return (
                f"has {len(node.output)} outputs, and gives {_span(self.least_out, self.most_out)}"
            )
        return None


def _span(least: int, most: int) -> str:
    return f"{least} to {most}" if most < INT32 - 1 else f"at least {least}"


@cache
def _definition(op_type: str, domain: str, version: int) -> _Definition | None:
    """The definition of an operator; None if onnx has none."""
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    return _Definition(
        schema.min_input,
        schema.max_input,
        schema.min_output,
        schema.max_output,
        tuple(p.option == single for p in schema.inputs),
        {
            name: AttributeProto.AttributeType.Value(str(a.type).rpartition(".")[2])
            for name, a in schema.attributes.items()
        },
        frozenset(name for name, a in schema.attributes.items() if a.required),
    )
