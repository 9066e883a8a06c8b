"""Which outputs of a model are random, so that two right runs give different values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from onnx_sched.judge.index_limits import all_graphs

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
        unseeded: The outputs whose values depend on a random node without a seed.
        seeded: Those whose values depend on random nodes, all of which have a seed.
    """

    stateful: bool
    unseeded: tuple[str, ...]
    seeded: tuple[str, ...]


def randomness(model: ModelProto) -> Randomness:
    """Look for random nodes, also inside bodies and functions, and for what depends on them.

    In doubt an output counts as random. A node with a seed gives the same numbers in every fresh
    session, as long as the optimizations of ONNX Runtime do not replace it.
    """
    constants = _constants(model)
    functions = _random_functions(model, constants)
    steps = []
    for node in model.graph.node:
        inside = list(_inside(node))
        kinds = {_is_random(part, constants, functions) for part in inside}
        steps.append(_Step(node, kinds, {name for part in inside for name in part.input}))
    names = [value.name for value in model.graph.output]
    unseeded = _reached(steps, {"unseeded"})
    seeded = _reached(steps, {"seeded"}) - unseeded
    return Randomness(
        any(step.kinds - {None} for step in steps),
        tuple(name for name in names if name in unseeded),
        tuple(name for name in names if name in seeded),
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """A node of the main graph with all that is inside: random kinds, and the values read."""

    node: NodeProto
    kinds: set[str | None]
    read: set[str]


def _reached(steps: list[_Step], kinds: set[str]) -> set[str]:
    """The values that depend on a random node of one of these kinds."""
    values: set[str] = set()
    pending, grown = steps, True
    while grown:  # twice, if the nodes are in order
        grown, later = False, []
        for step in pending:
            if kinds.isdisjoint(step.kinds) and values.isdisjoint(step.read):
                later.append(step)
            else:
                values.update(step.node.output)
                grown = True
        pending = later
    return values


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
