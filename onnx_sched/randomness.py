"""Which outputs of a model are random, so that two right runs give different values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from onnx_sched.index_limits import all_graphs

_ALWAYS_RANDOM = (
    ("", "Bernoulli"),
    ("", "Multinomial"),
    ("", "RandomNormal"),
    ("", "RandomNormalLike"),
    ("", "RandomUniform"),
    ("", "RandomUniformLike"),
    ("com.microsoft", "BiasDropout"),
    ("com.microsoft", "BitmaskBiasDropout"),
    ("com.microsoft", "BitmaskDropout"),
    ("com.microsoft", "Sampling"),
)
_TRAINING_MODE = 2  # operand of Dropout


@dataclass(frozen=True, slots=True)
class Randomness:
    """The random side of a model.

    Attributes:
        stateful: It holds random nodes, which give other numbers with every run of one session.
        outputs: The outputs whose values depend on a random node without a seed.
    """

    stateful: bool
    outputs: tuple[str, ...]


def randomness(model: ModelProto) -> Randomness:
    """Look for random nodes, also inside bodies and functions, and for what depends on them.

    In doubt an output counts as random. A node with a seed gives the same numbers in every fresh
    session, so what depends on such nodes alone is not listed.
    """
    constants = _constants(model)
    functions = _random_functions(model, constants)
    stateful = bool(functions)
    random_values: set[str] = set()
    pending = [(node, tuple(_inside(node))) for node in model.graph.node]
    grown = True
    while grown:  # once, if the nodes are in order
        grown, later = False, []
        for node, inside in pending:
            kinds = [_is_random(part, constants, functions) for part in inside]
            stateful = stateful or any(kind is not None for kind in kinds)
            read = {name for part in inside for name in part.input}
            if "unseeded" in kinds or not random_values.isdisjoint(read):
                random_values.update(node.output)
                grown = True
            else:
                later.append((node, inside))
        pending = later
    names = [value.name for value in model.graph.output]
    return Randomness(stateful, tuple(name for name in names if name in random_values))


def _inside(node: NodeProto) -> Iterator[NodeProto]:
    """The node and all nodes of its bodies."""
    yield node
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.HasField("g") else []
        for body in [*graphs, *attribute.graphs]:
            for graph in all_graphs(body):
                yield from graph.node


def _is_random(
    node: NodeProto, constants: dict[str, bool], functions: dict[tuple[str, str], str]
) -> str | None:
    """`unseeded`, `seeded`, or None if the node is not random."""
    kind = ("" if node.domain == "ai.onnx" else node.domain, node.op_type)
    if kind in functions:
        return functions[kind]
    if kind not in _ALWAYS_RANDOM and not (kind == ("", "Dropout") and _trains(node, constants)):
        return None
    return "seeded" if any(a.name == "seed" for a in node.attribute) else "unseeded"


def _trains(node: NodeProto, constants: dict[str, bool]) -> bool:
    """Whether a Dropout may drop anything; it does unless it is known not to."""
    old_style = {a.name: a for a in node.attribute}.get("is_test")
    if old_style is not None:  # up to opset 6
        return int(old_style.i) == 0
    if len(node.input) <= _TRAINING_MODE or not node.input[_TRAINING_MODE]:
        return False
    return constants.get(node.input[_TRAINING_MODE], True)


def _constants(model: ModelProto) -> dict[str, bool]:
    """The values of all boolean constants of one element that nobody can override."""
    found: dict[str, bool] = {}
    inputs = {value.name for value in model.graph.input}
    graphs = list(all_graphs(model.graph))
    tensors = [(t.name, t) for graph in graphs for t in graph.initializer if t.name not in inputs]
    nodes = [node for graph in graphs for node in graph.node]
    nodes += [node for function in model.functions for node in function.node]
    for node in nodes:
        if node.op_type == "Constant":
            tensors += [(node.output[0], a.t) for a in node.attribute if a.name == "value"]
    for name, tensor in tensors:
        if tensor.data_type == TensorProto.BOOL and list(tensor.dims) in ([], [1]):
            # One name may stand for several constants in different bodies: in doubt it trains.
            found[name] = found.get(name, False) or bool(numpy_helper.to_array(tensor).any())
    return found


def _random_functions(model: ModelProto, constants: dict[str, bool]) -> dict[tuple[str, str], str]:
    """The model's own functions that hold random nodes, also by calling one another."""
    found: dict[tuple[str, str], str] = {}
    grown = True
    while grown:
        grown = False
        for function in model.functions:
            kinds = {
                _is_random(part, constants, found)
                for node in function.node
                for part in _inside(node)
            }
            kind = "unseeded" if "unseeded" in kinds else "seeded" if "seeded" in kinds else None
            key = (function.domain, function.name)
            if kind is not None and found.get(key) != kind:
                found[key] = kind
                grown = True
    return found
