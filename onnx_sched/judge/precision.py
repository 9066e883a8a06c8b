"""In which floating type the outputs of a model are computed, whatever type they are handed out in.

What was rounded to float16 in a run stays as coarse, also where a Cast makes it float32 at the end. What is
only kept in float16 rounds nothing: a weight that is cast up before it is used, or an input, is the same
number in every model that reads it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
)

_FROM_FINE_TO_COARSE = {
    TensorProto.DOUBLE: "float64",
    TensorProto.FLOAT: "float32",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.FLOAT8E4M3FN: "float8_e4m3fn",
    TensorProto.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    TensorProto.FLOAT8E5M2: "float8_e5m2",
    TensorProto.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
}
_NAMES = tuple(_FROM_FINE_TO_COARSE.values())
_RANKS: dict[int, int] = {kind: rank for rank, kind in enumerate(_FROM_FINE_TO_COARSE)}
_NONE = -1  # the rank of what is no floating type

_SIZES = frozenset("Shape Size".split())
# Ops that make integers or booleans of floats: what they read is rounded no further.
_TELLING = _SIZES | frozenset(
    "ArgMax ArgMin Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual NonZero".split()
)
# Ops whose output holds elements of what they read.
_MOVING = frozenset(
    "Compress Concat ConcatFromSequence DepthToSpace Expand Flatten Gather GatherElements GatherND "
    "Identity OneHot Optional OptionalGetElement Pad Reshape ReverseSequence SequenceAt "
    "SequenceConstruct SequenceInsert Slice SpaceToDepth Split SplitToSequence Squeeze Tile TopK "
    "Transpose Trilu Unsqueeze Where".split()
)
# Ops that take their type from one operand; for others it is the first that is floating.
_TYPED_BY = {"CastLike": 1, "DequantizeLinear": 1, "QuantizeLinear": 2}
_TYPE_ATTRIBUTES = frozenset("dtype output_datatype output_dtype to".split())
_DEEPEST = 60  # functions within one another that are looked into


@dataclass(frozen=True, slots=True)
class _Value:
    """What is known of a value.

    Attributes:
        kind: Rank of its own type.
        rounded: Rank of the coarsest type to which anything was rounded in a run on the way to it.
        fixed: It is the same in every run.
    """

    kind: int = _NONE
    rounded: int = _NONE
    fixed: bool = False


_MISSING = _Value(fixed=True)
_Seen = ChainMap[str, _Value]
_Attributes = Mapping[str, AttributeProto]


def computed_in(model: ModelProto) -> dict[str, str]:
    """The coarsest floating type to which anything is rounded on the way to an output, for each by name.

    Outputs for which nothing is rounded are left out. Follows values into bodies and functions; a node
    with bodies counts as one, so that each of its outputs is as coarse as anything inside.

    Args:
        model: The model; the data of its weights may be missing.
    """
    seen: _Seen = ChainMap()
    _begin(model.graph, seen)
    _Reader(model.functions).run(model.graph.node, seen, {})
    found = {value.name: seen.get(value.name, _MISSING).rounded for value in model.graph.output}
    return {name: _NAMES[rank] for name, rank in found.items() if rank != _NONE}


def coarser(*found: Mapping[str, str]) -> dict[str, str]:
    """The coarsest type of each output where several models make one."""
    together: dict[str, str] = {}
    for each in found:
        for name, kind in each.items():
            together[name] = max(together.get(name, kind), kind, key=_NAMES.index)
    return together


def _begin(graph: GraphProto, seen: _Seen) -> None:
    """Note the weights and the inputs of a graph; a weight that can be fed is an input."""
    for tensor in graph.initializer:
        seen[tensor.name] = _Value(_rank(tensor.data_type), fixed=True)
    for sparse in graph.sparse_initializer:
        seen[sparse.values.name] = _Value(_rank(sparse.values.data_type), fixed=True)
    for value in graph.input:
        seen[value.name] = _Value(_declared(value.type))


class _Reader:
    """Follows values through nodes, in the order of the file."""

    def __init__(self, functions: Iterable[FunctionProto]) -> None:
        self._functions = {(f.domain, f.name, f.overload): f for f in functions}
        self._calls: dict[object, tuple[_Value, ...]] = {}
        self._depth = 0

    def run(self, nodes: Iterable[NodeProto], seen: _Seen, given: _Attributes) -> None:
        """Note what nodes make; `given` holds the attributes of the function that they stand in."""
        self._depth += 1
        for node in nodes:
            made = self._made(node, seen, given)
            seen.update(pair for pair in zip(node.output, made, strict=False) if pair[0])
        self._depth -= 1

    def _made(self, node: NodeProto, seen: _Seen, given: _Attributes) -> Sequence[_Value]:
        read = [seen.get(name, _Value()) if name else _MISSING for name in node.input]
        attributes = {a.name: given.get(a.ref_attr_name, a) for a in node.attribute}
        function = self._functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            return self._called(function, read, attributes)
        bodies = [a.g for a in node.attribute if a.HasField("g")]
        if bodies:
            return self._inside(node, bodies, read, seen, given)
        return [_made(node.op_type, read, attributes)] * len(node.output)

    def _called(
        self, function: FunctionProto, read: Sequence[_Value], attributes: _Attributes
    ) -> tuple[_Value, ...]:
        """What a function makes of operands; each kind of call is followed once."""
        given = {**{a.name: a for a in function.attribute_proto}, **attributes}
        types = tuple((name, a.i, a.t.data_type) for name, a in sorted(given.items()))
        key = (function.domain, function.name, function.overload, tuple(read), types)
        if key in self._calls:
            return self._calls[key]
        # What a function that calls itself, which is no model, finds at the second call.
        self._calls[key] = (_made(function.name, read, {}),) * len(function.output)
        if self._depth < _DEEPEST:
            seen: _Seen = ChainMap(dict(zip(function.input, read, strict=False)))
            self.run(function.node, seen, given)
            self._calls[key] = tuple(seen.get(name, _MISSING) for name in function.output)
        return self._calls[key]

    def _inside(
        self,
        node: NodeProto,
        bodies: Sequence[GraphProto],
        read: Sequence[_Value],
        seen: _Seen,
        given: _Attributes,
    ) -> list[_Value]:
        """What a node with bodies makes: as coarse as anything that it reads or that is inside."""
        rounded = _coarsest(read)
        kinds = [_NONE] * len(node.output)
        for body in bodies:
            inner = seen.new_child()
            _begin(body, inner)
            self.run(body.node, inner, given)
            ends = [inner.get(value.name, _MISSING) for value in body.output]
            rounded = max(rounded, _coarsest([*inner.maps[0].values(), *ends]))
            hidden = max(len(ends) - len(kinds), 0)  # Loop keeps its condition to itself
            for place, value in enumerate(list(body.output)[hidden:]):
                own = max(ends[hidden + place].kind, _declared(value.type))
                kinds[place] = max(kinds[place], own)
        return [_Value(kind, rounded) for kind in kinds]


def _made(op: str, read: Sequence[_Value], attributes: _Attributes) -> _Value:
    """What a plain node makes."""
    kind = _kind(op, read, attributes)
    if op == "Constant" or (read and all(value.fixed for value in read)):
        return _Value(kind, fixed=True)
    if op in _SIZES:
        return _Value()
    before = _coarsest(read)
    exact = op in _MOVING or op == "ConstantOfShape"
    if read and op in ("Cast", "CastLike"):
        exact = kind <= read[0].kind  # to a finer type
    return _Value(kind, before if exact else max(before, kind))


def _kind(op: str, read: Sequence[_Value], attributes: _Attributes) -> int:
    """The rank of the type that a plain node makes."""
    if op in _TELLING:
        return _NONE
    told = [a.i for name, a in attributes.items() if name in _TYPE_ATTRIBUTES and a.i]
    if told:
        return _rank(told[0])
    if op in ("Constant", "ConstantOfShape"):
        return _constant(attributes)
    if op in _TYPED_BY:
        return read[_TYPED_BY[op]].kind if _TYPED_BY[op] < len(read) else _NONE
    return next((value.kind for value in read if value.kind != _NONE), _NONE)


def _constant(attributes: _Attributes) -> int:
    for name, attribute in attributes.items():
        if name == "value":
            return _rank(attribute.t.data_type)
        if name == "sparse_value":
            return _rank(attribute.sparse_tensor.values.data_type)
        if name in ("value_int", "value_ints", "value_string", "value_strings"):
            return _NONE
    return _RANKS[TensorProto.FLOAT]  # floats, and ConstantOfShape without a value


def _coarsest(values: Iterable[_Value]) -> int:
    return max((value.rounded for value in values), default=_NONE)


def _rank(elem_type: int) -> int:
    return _RANKS.get(elem_type, _NONE)


def _declared(kind: TypeProto) -> int:
    """The rank of a type as the file declares it: of the elements of tensors, however wrapped."""
    while kind.HasField("sequence_type") or kind.HasField("optional_type"):
        wrapped = kind.HasField("sequence_type")
        kind = kind.sequence_type.elem_type if wrapped else kind.optional_type.elem_type
    return _rank(kind.tensor_type.elem_type)
