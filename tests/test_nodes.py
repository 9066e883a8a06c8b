"""What a node says by itself: what its bodies read, its attributes, and whether its order matters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import GraphProto, NodeProto, helper, numpy_helper

from onnx_sched.nodes import ACTIONS, attributes, captures, has_effect, subgraphs
from tests.nested import NESTED, node
from tests.nets import feeds, net, numbers, run

# -- captures ---------------------------------------------------------------------------------------


def test_captures_are_what_bodies_read_from_outside() -> None:
    """At any depth, each once; what a body makes, or takes as input, hides an outer value's name."""
    assert set(captures(net(NESTED).graph.node[0])) == {"a", "b", "d", "c", "n", "e"}


def test_captures_stand_in_file_order() -> None:
    """The first name that the bodies read, as one reads the file, comes first."""
    assert captures(net(NESTED).graph.node[0]) == ("a", "b", "c", "d", "n", "e")


def test_a_captured_value_cannot_be_missing() -> None:
    """ONNX Runtime runs the model with the captures at hand, and refuses it without any one of them."""
    model = net(NESTED)
    inputs = feeds(model)
    run(model, inputs)
    for name in captures(model.graph.node[0]):
        poorer = net(NESTED)
        kept = [v for v in poorer.graph.input if v.name != name]
        del poorer.graph.input[:]
        poorer.graph.input.extend(kept)
        with pytest.raises(Exception, match=r"(?i)invalid"):
            run(poorer, {k: v for k, v in inputs.items() if k != name})


@st.composite
def bodies(draw: st.DrawFn, depth: int = 2) -> GraphProto:
    """A body with any reads, inputs, initializers and inner bodies, names drawn from a few."""
    names = st.sampled_from("abcde")
    graph = GraphProto(name="body")
    for name in draw(st.lists(names, max_size=2, unique=True)):
        graph.input.append(helper.make_tensor_value_info(name, 1, None))
    if draw(st.booleans()):
        graph.initializer.append(helper.make_tensor(draw(names), 1, [1], [0.0]))
    for _ in range(draw(st.integers(0, 3))):
        made = helper.make_node("Op", draw(st.lists(names, max_size=2)), [draw(names)])
        if depth and draw(st.booleans()):
            inner = draw(st.lists(bodies(depth=depth - 1), min_size=1, max_size=2))
            made.attribute.append(helper.make_attribute("bodies", inner))
        graph.node.append(made)
    for name in draw(st.lists(names, max_size=2, unique=True)):
        graph.output.append(helper.make_tensor_value_info(name, 1, None))
    return graph


def free_names(graph: GraphProto) -> set[str]:
    """What a body reads from outside, as one would define it: its reads less what it defines."""
    free = {name for n in graph.node for name in n.input} | {v.name for v in graph.output}
    for n in graph.node:
        for inner in subgraphs(n):
            free |= free_names(inner)
    own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    return free - own - {name for n in graph.node for name in n.output}


def reads_in_order(graph: GraphProto) -> list[str]:
    """All names that a body reads, inside or outside, as one reads the file."""
    found = []
    for n in graph.node:
        found += list(n.input)
        for inner in subgraphs(n):
            found += reads_in_order(inner)
    return found + [v.name for v in graph.output]


@settings(max_examples=60)
@given(st.lists(bodies(), min_size=1, max_size=2))
def test_captures_follow_the_scopes(graphs: list[GraphProto]) -> None:
    """A name is captured exactly if some body reads it and no scope around the read defines it."""
    holder = helper.make_node("Op", [], ["y"])
    holder.attribute.append(helper.make_attribute("bodies", graphs))
    found = captures(holder)
    assert set(found) == set().union(*map(free_names, graphs))
    assert len(found) == len(set(found))


@given(st.lists(bodies(), min_size=1, max_size=2))
def test_captures_are_in_the_order_of_their_first_reads(graphs: list[GraphProto]) -> None:
    """Where no body gives a captured name a meaning of its own, so that every read of it counts."""
    holder = helper.make_node("Op", [], ["y"])
    holder.attribute.append(helper.make_attribute("bodies", graphs))
    found = captures(holder)
    order = list(dict.fromkeys(n for graph in graphs for n in reads_in_order(graph)))
    made = {n for graph in graphs for n in made_in(graph)}
    assert [n for n in found if n not in made] == [n for n in order if n in {*found} - made]


def test_captures_of_several_bodies_of_one_node_are_in_order() -> None:
    """Bodies of a node inside a body are read as they stand: the first one first."""

    def reading(name: str) -> GraphProto:
        made = helper.make_tensor_value_info(f"{name}_made", 1, None)
        return helper.make_graph([node("Op", name, made.name)], "b", [], [made])

    inner = helper.make_node("Op", [], ["r"])
    inner.attribute.append(helper.make_attribute("bodies", [reading("d"), reading("c")]))
    inner.attribute.append(helper.make_attribute("another", reading("b")))
    outer = helper.make_graph([inner], "o", [], [helper.make_tensor_value_info("r", 1, None)])
    holder = helper.make_node("Op", [], ["y"])
    holder.attribute.append(helper.make_attribute("bodies", [outer, reading("a")]))
    assert captures(inner) == ("d", "c", "b")
    assert captures(holder) == ("d", "c", "b", "a")


def made_in(graph: GraphProto) -> set[str]:
    made = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    for n in graph.node:
        made.update(n.output)
        for inner in subgraphs(n):
            made |= made_in(inner)
    return made


# -- effects ---------------------------------------------------------------------------------------


def random_body() -> GraphProto:
    return helper.make_graph(
        [node("RandomNormal", "", "r", shape=[2])],
        "b",
        [],
        [helper.make_tensor_value_info("r", 1, None)],
    )


EFFECTS = [
    (node("RandomNormal", "", "y", shape=[2]), True),
    (node("RandomUniformLike", "x", "y"), True),
    (node("Bernoulli", "x", "y"), True),
    (node("Multinomial", "x", "y"), True),
    (node("RandomNormal", "", "y", "ai.onnx", shape=[2]), True),
    (node("Dropout", "x", "y"), False),
    (node("Dropout", "x ratio", "y"), False),
    (node("Dropout", "x ratio -", "y"), False),
    (node("Dropout", "x ratio train", "y"), True),
    (node("Relu", "x", "y"), False),
    (node("BatchNormalization", "x s b m v", "y"), False),
    (node("Gelu", "x", "y", "com.microsoft"), False),
    (node("Scaler", "x", "y", "ai.onnx.ml"), False),
    (node("Dropout", "x ratio train", "y", "com.microsoft"), False),
    (node("BiasDropout", "x b", "y", "com.microsoft"), False),
    (node("BiasDropout", "x b - ratio -", "y", "com.microsoft"), False),
    (node("BiasDropout", "x b - ratio train", "y", "com.microsoft"), True),
    (node("BitmaskDropout", "x ratio train", "y", "com.microsoft"), True),
    (node("BitmaskBiasDropout", "x b - ratio", "y", "com.microsoft"), False),
    (node("BitmaskBiasDropout", "x b - ratio train", "y", "com.microsoft"), True),
    (node("Sampling", "x", "y", "com.microsoft"), True),
    (node("Bernoulli", "x", "y", "com.microsoft"), False),
    *((node(op, "x", "y", "com.microsoft"), True) for op in sorted(ACTIONS)),
    (node("AllReduce", "x", "y", "ai.onnx.ml"), False),
    (node("Relu", "x", "y", "my.own"), True),
    (node("If", "c", "y", then_branch=random_body(), else_branch=GraphProto(name="e")), True),
    (
        node("If", "c", "y", then_branch=GraphProto(name="t"), else_branch=GraphProto(name="e")),
        False,
    ),
]


@pytest.mark.parametrize(("made", "expected"), EFFECTS)
def test_random_and_unknown_ops_have_an_effect(made: NodeProto, expected: bool) -> None:
    """What draws numbers, what nobody here knows, and what holds such a node in a body."""
    assert has_effect(made) == expected


@pytest.mark.parametrize("op", ["Dropout", "Relu", "Bernoulli"])
def test_a_flag_that_is_off_switches_nothing_on(op: str) -> None:
    """Only where an op draws numbers by its flag, and where the flag has its name from this graph."""
    made = node(op, "x ratio train", "y")
    assert has_effect(made, {"x", "ratio"}) == has_effect(made)
    assert has_effect(made, {"train"}) == (op == "Bernoulli")
    body = helper.make_graph([made], "b", [], [helper.make_tensor_value_info("y", 1, None)])
    holder = node("If", "c", "z", then_branch=body, else_branch=body)
    assert has_effect(holder, {"train"}) == has_effect(made)  # a body may have a value of that name


def test_an_effect_two_bodies_down_counts() -> None:
    """A random op in a Loop in an If makes the If random."""
    inner = helper.make_graph(
        [node("Loop", "n - x", "r", body=random_body())],
        "b",
        [],
        [helper.make_tensor_value_info("r", 1, None)],
    )
    assert has_effect(node("If", "c", "y", then_branch=inner, else_branch=GraphProto(name="e")))


# -- attributes -------------------------------------------------------------------------------------


def test_attributes_of_every_kind_can_be_compared() -> None:
    """Numbers, strings, lists, tensors, types: equal ones are equal and can be keys; graphs are left out."""

    def node() -> NodeProto:
        tensor = numpy_helper.from_array(numbers(2))
        sparse = helper.make_sparse_tensor(
            helper.make_tensor("v", 1, [1], [1.0]), helper.make_tensor("i", 7, [1], [0]), [2]
        )
        kind = helper.make_tensor_type_proto(1, [2])
        graph = helper.make_graph([], "g", [], [])
        given = {
            "i": 1,
            "f": 0.5,
            "s": "text",
            "is": [1, 2],
            "fs": [0.5, 1.0],
            "ss": ["a", "b"],
            "t": tensor,
            "ts": [tensor],
            "st": sparse,
            "sts": [sparse],
            "tp": kind,
            "tps": [kind],
            "g": graph,
            "gs": [graph],
        }
        made = helper.make_node("Op", [], [])
        made.attribute.extend(helper.make_attribute(name, value) for name, value in given.items())
        return made

    found = attributes(node())
    assert sorted(found) == "f fs i is s ss st sts t tp tps ts".split()
    assert hash(tuple(found.items())) == hash(tuple(attributes(node()).items()))
    assert (found["i"], found["f"], found["s"], found["is"]) == (1, 0.5, b"text", (1, 2))
    assert found["ss"] == (b"a", b"b")
