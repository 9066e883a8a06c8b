"""The view of a graph: who makes and reads each value, in what order, and what must stay in order."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from onnx_sched.errors import ModelError
from onnx_sched.graph import all_names, every_node, sorted_order, topological, view
from onnx_sched.nodes import domain_of, subgraphs
from tests.dags import Dag, dags, relabel, shuffled
from tests.nested import NESTED, node
from tests.nets import COMMITTED, committed, every_value, feeds, net, numbers


def model_of(nodes: list[NodeProto], inputs: str = "x", outputs: str = "y") -> ModelProto:
    given, made = (
        [helper.make_tensor_value_info(n, 1, [2]) for n in text.split()]
        for text in (inputs, outputs)
    )
    graph = helper.make_graph(nodes, "g", given, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def model_from(preds: Dag) -> ModelProto:
    """A model with an op for each op of a graph, named by its number; every last op is an output."""
    nodes = [
        helper.make_node("Sum", ["x", *(f"v{p}" for p in before)], [f"v{k}"], name=str(k))
        for k, before in enumerate(preds)
    ]
    read = {p for before in preds for p in before}
    ends = " ".join(f"v{k}" for k in range(len(preds)) if k not in read)
    return model_of(nodes, outputs=ends)


# -- reads, readers, producers ----------------------------------------------------------------------


def test_reads_keep_repeats_and_skip_empty_slots() -> None:
    """A node that reads a value twice is its reader twice; a body's read counts for the node."""
    inner = helper.make_graph(
        [node("Add", "p p", "q")], "then", [], [helper.make_tensor_value_info("q", 1, None)]
    )
    nodes = [
        node("Relu", "x", "p"),
        node("Add", "p p", "r"),
        node("Clip", "r - hi", "s"),
        node("If", "c", "t", then_branch=inner, else_branch=inner),
        node("Sum", "s t", "y"),
    ]
    graph = view(model_of(nodes, "x hi c"))
    assert graph.reads == (("x",), ("p", "p"), ("r", "hi"), ("c", "p"), ("s", "t"))
    assert graph.readers["p"] == (1, 1, 3)
    assert graph.readers["hi"] == (2,)
    assert "" not in graph.readers
    assert graph.producer == {"p": 0, "r": 1, "s": 2, "t": 3, "y": 4}
    assert graph.outputs == ("y",)


@pytest.mark.parametrize("name", COMMITTED)
def test_reads_readers_and_producers_are_one_relation(name: str) -> None:
    """Counting reads by node or by value gives the same; a maker stands before its readers."""
    graph = view(committed(name))
    by_node = Counter((k, n) for k, names in enumerate(graph.reads) for n in names)
    by_value = Counter((k, n) for n, nodes in graph.readers.items() for k in nodes)
    assert by_node == by_value
    for k, names in enumerate(graph.reads):
        assert {graph.producer[n] for n in names if n in graph.producer} == {
            p for p in graph.preds[k] if {*graph.nodes[p].output} & {*names}
        }
        assert all(p < k for p in graph.preds[k])


@pytest.mark.parametrize(("ir", "constant"), [(3, {"v", "w"}), (4, {"v"}), (8, {"v"})])
def test_a_weight_that_can_be_fed_is_not_constant(ir: int, constant: set[str]) -> None:
    """From IR version 4 on an initializer that is an input may be overridden; below none may."""
    model = model_of([node("Sum", "x v w", "y")], "x w")
    model.ir_version = ir
    for name in "vw":
        model.graph.initializer.append(helper.make_tensor(name, 1, [2], [1.0, 2.0]))
    assert set(view(model).constants) == constant


def test_the_default_domain_has_two_spellings() -> None:
    """`ai.onnx` is the empty domain: in the imports, and on nodes."""
    model = model_of([node("Relu", "x", "y", "ai.onnx")])
    del model.opset_import[:]
    model.opset_import.extend([helper.make_opsetid("ai.onnx", 15), helper.make_opsetid("other", 3)])
    graph = view(model)
    assert (graph.opset, graph.opsets["other"]) == (15, 3)
    assert domain_of(graph.nodes[0]) == ""
    assert domain_of(node("Gelu", "x", "y", "com.microsoft")) == "com.microsoft"


# -- order ------------------------------------------------------------------------------------------


@given(dags())
def test_an_order_that_is_one_stays(preds: Dag) -> None:
    """A file whose nodes stand after what they read is taken as it is."""
    graph = view(model_from(preds))
    assert graph.places == tuple(range(len(preds)))
    assert [n.name for n in graph.nodes] == [str(k) for k in range(len(preds))]


@given(dags(), st.randoms(use_true_random=False))
def test_any_file_order_becomes_topological(preds: Dag, dice: random.Random) -> None:
    """Every node after what it reads, and as near to the file as that allows.

    At each place stands, of the nodes whose reads are all there, the first one of the file.
    """
    file = list(range(len(preds)))
    dice.shuffle(file)
    model = model_from(preds)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(nodes[k] for k in file)
    graph = view(model)
    assert [file[p] for p in graph.places] == [int(n.name) for n in graph.nodes]
    assert sorted(graph.places) == list(range(len(preds)))
    sorted_already = all(file.index(p) < k for k, n in enumerate(file) for p in preds[n])
    if sorted_already:
        assert graph.places == tuple(range(len(preds)))
        return
    done: set[int] = set()
    for place in graph.places:
        ready = [k for k, n in enumerate(file) if n not in done and done.issuperset(preds[n])]
        assert place == ready[0]
        done.add(file[place])


@given(shuffled())
def test_sorting_knows_the_captures(graph: tuple[Dag, tuple[int, ...]]) -> None:
    """A node whose body reads a value stands after the node that makes it."""
    preds, order = graph
    nodes = []
    for k, before in enumerate(preds):
        body = GraphProto(name="b")
        body.node.extend(node("Relu", f"v{p}", f"w{p}") for p in before)
        nodes.append(node("If", "c", f"v{k}", then_branch=body, else_branch=GraphProto(name="e")))
    found = sorted_order([nodes[k] for k in order[::-1]])
    place = {len(preds) - 1 - k: n for n, k in enumerate(found)}
    for k, before in enumerate(relabel(preds, order)):
        assert all(place[p] < place[k] for p in before)


def test_a_long_graph_in_reverse_is_sorted_without_recursion() -> None:
    """Twenty thousand nodes in a row, last one first."""
    chain = [node("Relu", f"v{k}", f"v{k + 1}") for k in range(20_000)]
    assert sorted_order(chain[::-1]) == list(range(20_000))[::-1]


def test_a_cycle_is_refused_by_name() -> None:
    """The error names the nodes of the cycle, those without a name by their output, and no others."""
    nodes = [
        helper.make_node("Relu", ["x"], ["in"], name="before"),
        helper.make_node("Add", ["in", "c"], ["a"], name="first"),
        helper.make_node("Mul", ["a", "a"], ["b"]),
        helper.make_node("Sub", ["b", "in"], ["c"], name="last"),
        helper.make_node("Neg", ["c"], ["y"], name="after"),
    ]
    with pytest.raises(ModelError, match="cycle through 3 node") as caught:
        view(model_of(nodes))
    text = str(caught.value)
    assert "Add 'first'" in text
    assert "Mul 'b'" in text
    assert "Sub 'last'" in text
    assert "before" not in text
    assert "after" not in text


@pytest.mark.parametrize("size", [1, 5, 6, 40])
def test_a_cycle_of_any_length_is_told_in_one_line(size: int) -> None:
    """Up to five members are named, the others counted; a node that reads itself is a cycle."""
    preds = [[(k - 1) % size] for k in range(size)]
    with pytest.raises(ModelError) as caught:
        topological(preds, lambda k: f"<{k}>")
    text = str(caught.value)
    assert f"{size} node" in text
    assert text.count("<") == min(size, 5)
    assert ("more" in text) == (size > 5)
    if size > 5:
        assert f"{size - 5} more" in text


def test_a_cycle_through_a_body_is_a_cycle() -> None:
    """An If whose body reads what is made of the If's own result."""
    body = GraphProto(name="b")
    body.node.append(node("Relu", "z", "w"))
    nodes = [node("If", "c", "y", then_branch=body, else_branch=body), node("Neg", "y", "z")]
    with pytest.raises(ModelError, match="cycle through 2"):
        view(model_of(nodes, "c"))


@given(dags())
def test_viewing_changes_nothing(preds: Dag) -> None:
    """The proto is the same before and after everything has been asked."""
    model = model_from(preds)
    before = model.SerializeToString(deterministic=True)
    graph = view(model)
    _ = graph.reads, graph.readers, graph.live, graph.preds, graph.constants, graph.output_set
    assert model.SerializeToString(deterministic=True) == before


# -- liveness and effects ---------------------------------------------------------------------------


@given(dags(), st.data())
def test_live_is_what_an_output_reaches(preds: Dag, data: st.DataObject) -> None:
    """A node is live exactly if walking back from some output gets there."""
    chosen = data.draw(st.sets(st.sampled_from(range(len(preds))))) if preds else set()
    model = model_from(preds)
    del model.graph.output[:]
    for k in sorted(chosen):
        model.graph.output.append(helper.make_tensor_value_info(f"v{k}", 1, None))
    wanted = set(chosen)
    for k in range(len(preds) - 1, -1, -1):
        if k in wanted:
            wanted.update(preds[k])
    assert view(model).live == tuple(k in wanted for k in range(len(preds)))


def test_what_a_body_reads_is_live() -> None:
    """So is every node of which any one output is needed."""
    body = helper.make_graph(
        [node("Relu", "p", "q")], "b", [], [helper.make_tensor_value_info("q", 1, None)]
    )
    nodes = [
        node("Split", "x", "o p", axis=0),
        node("Neg", "o", "dead"),
        node("If", "c", "y", then_branch=body, else_branch=body),
    ]
    assert view(model_of(nodes, "x c")).live == (True, False, True)


def test_effects_keep_the_order_of_the_file() -> None:
    """Every node with an effect waits for the one before it, and for nothing else that it reads not."""
    nodes = [
        node("RandomNormal", "", "a", shape=[2]),
        node("Relu", "x", "b"),
        node("Mine", "b", "c", "my.own"),
        node("Relu", "b", "d"),
        node("Bernoulli", "a", "e"),
        node("Sum", "c d e", "y"),
    ]
    assert view(model_of(nodes)).preds == ((), (), (0, 1), (1,), (0, 2), (2, 3, 4))


@pytest.mark.parametrize("kind", ["initializer", "node", "input", "fed", "on", "two", "number"])
def test_lanes_with_a_dropout_at_rest_do_not_wait(kind: str) -> None:
    """A flag that is constant and false switches nothing on; any other may."""
    nodes = [node("Dropout", "x ratio train", f"y{k}") for k in range(3)]
    array = {"on": np.array(True), "two": np.zeros(2, bool), "number": np.array(0)}
    flag = numpy_helper.from_array(array.get(kind, np.array(False)), "train")
    if kind == "node":
        nodes.insert(0, node("Constant", "", "train", value=flag))
    model = model_of(nodes, "x ratio train" if kind in ("input", "fed") else "x ratio", "y0 y1 y2")
    if kind not in ("node", "input"):
        model.graph.initializer.append(flag)
    graph = view(model)
    at_rest = kind in ("initializer", "node")
    first = int(kind == "node")
    assert graph.effects[first:] == (not at_rest,) * 3
    flags = (0,) if kind == "node" else ()
    assert graph.preds[first:] == ((flags,) * 3 if at_rest else ((), (0,), (1,)))


# -- training ---------------------------------------------------------------------------------------


def test_what_a_training_step_reads_and_sets_stays() -> None:
    """Values of the main graph that it reads are needed; initializers that it sets are no constants."""
    model = model_of([node("Mul", "x w", "p"), node("Neg", "p", "q"), node("Sum", "p v u", "y")])
    for name in "wvu":
        model.graph.initializer.append(helper.make_tensor(name, 1, [2], [1.0, 2.0]))
    graph = view(model)
    assert (graph.outputs, set(graph.constants)) == (("y",), {"w", "v", "u"})
    assert graph.live == (True, False, True)
    step = model.training_info.add()
    body = helper.make_graph(
        [node("Relu", "u", "z")], "b", [], [helper.make_tensor_value_info("z", 1, None)]
    )
    step.algorithm.node.extend(
        [
            node("Sub", "q r", "next"),
            node("Neg", "next", "own"),
            node("If", "c", "i", then_branch=body, else_branch=body),
        ]
    )
    step.algorithm.initializer.append(helper.make_tensor("r", 1, [2], [0.1, 0.1]))
    step.update_binding.add(key="w", value="next")
    step.initialization_binding.add(key="v", value="start")
    graph = view(model)
    assert graph.outputs == ("y", "q", "u", "v", "w")
    assert graph.output_set == {*graph.outputs}
    assert set(graph.constants) == {"u"}
    assert graph.live == (True, True, True)


# -- names ------------------------------------------------------------------------------------------


def full_model() -> ModelProto:
    """A model with names in every scope: bodies, functions, training, sparse tensors, annotations."""
    model = net(
        NESTED + '<domain: "f", opset_import: ["" : 17]> Twice (fx, unread) => (fy) '
        "{ ft = Identity(fx) fy = Add(ft, ft) }",
        {"weight": numbers(2)},
        domains={"f": 1},
    )
    model.graph.node[0].name = "main_if"
    model.graph.value_info.append(helper.make_tensor_value_info("noted", 1, [2]))
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(helper.make_tensor("sparse_weight", 1, [1], [1.0]))
    model.graph.quantization_annotation.add().tensor_name = "quantized"
    body = helper.make_graph([helper.make_node("Relu", ["d"], ["deep"])], "b", [], [])
    model.functions[0].node.add().CopyFrom(
        node("If", "fx", "fz", then_branch=body, else_branch=body)
    )
    training = model.training_info.add()
    training.algorithm.node.add().CopyFrom(node("Neg", "weight", "gradient"))
    training.initialization.node.add().CopyFrom(node("Neg", "weight", "started"))
    return model


def names_in(message: Message) -> set[str]:
    """Every name of a value, node or tensor in a proto, found by looking at all of its parts."""
    found: set[str] = set()
    todo: list[Any] = [message]
    while todo:
        part = todo.pop()
        kind = part.DESCRIPTOR.name
        if kind in ("NodeProto", "FunctionProto"):
            found.update(part.input, part.output)
        if kind in ("NodeProto", "ValueInfoProto", "TensorProto"):
            found.add(part.name)
        if kind == "TensorAnnotation":
            found.add(part.tensor_name)
        for _, value in part.ListFields():
            for inner in value if hasattr(value, "extend") else [value]:
                if isinstance(inner, Message):
                    todo.append(inner)
    return found - {""}


def test_every_name_in_use_is_known() -> None:
    """A new name must avoid values, nodes and initializers of all scopes, annotations included."""
    model = full_model()
    model.training_info.pop()
    assert all_names(model) == names_in(model)


def test_names_of_the_training_graphs_are_in_use() -> None:
    """A training algorithm shares the main graph's scope: its names are taken, too."""
    model = full_model()
    assert all_names(model) >= names_in(model.training_info[0])


@pytest.mark.parametrize("name", COMMITTED)
def test_every_name_of_a_committed_model_is_known(name: str) -> None:
    """The same on the models of the repository."""
    assert all_names(committed(name)) == names_in(committed(name))


def test_every_node_is_met_once() -> None:
    """In the main graph, in bodies at any depth, and in functions."""
    model = full_model()
    model.training_info.pop()
    expected: list[NodeProto] = []
    todo: list[Any] = [model.graph, *model.functions]
    while todo:
        for n in todo.pop().node:
            expected.append(n)
            todo += subgraphs(n)
    met = Counter(n.SerializeToString() for n in every_node(model))
    assert met == Counter(n.SerializeToString() for n in expected)
    assert len(expected) == 15


def test_the_nested_model_is_sound() -> None:
    """ONNX Runtime runs the model that stands for all bodies here."""
    assert "y" in every_value(net(NESTED), feeds(net(NESTED)))
