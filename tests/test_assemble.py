"""What is not rewritten stays, field by field; the differ that says so sees every field."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import onnx_sched
from onnx_sched.analysis import analyse
from onnx_sched.assemble import assemble, distinct, doubled
from onnx_sched.circuit import Circuit
from onnx_sched.files import Source
from onnx_sched.nodes import captures
from onnx_sched.passes.rewrite import rewrite
from onnx_sched.plan import Plan
from tests.nets import COMMITTED, every_value, feeds, name_nodes, net, numbers, run
from tests.protodiff import differences
from tests.zoo import MODELS, ZOO, model

UNKNOWN = bytes.fromhex("fa3f03616263")  # field 1023, three bytes: what a later onnx might add


def reassembled(proto: ModelProto) -> ModelProto:
    """A model taken apart and put together again, with nothing to do in between."""
    analysis = analyse(Source(proto, None))
    rewritten = rewrite(analysis.circuit, Plan(), analysis.names, analysis.known)
    assert not rewritten.fresh
    return assemble(proto, analysis.circuit, rewritten)


def note(message: Any, text: str) -> None:
    """Metadata and a doc string."""
    message.doc_string = f"doc of {text}"
    for key in ("b", "a", text):
        message.metadata_props.add(key=key, value=f"note on {text}")


def full(ir: int = 10) -> ModelProto:
    """A model that carries every feature of the format that a graph of tensors can have."""
    proto = net(
        """(float[N,4] x, bool c, float[4] fed) => (float[N,4] y, int64[2] sizes)
        {
            p = MatMul(x, w)
            q = Add(p, fed)
            words = Identity(s)
            k = Constant()
            r = If (c) <
                then_branch = t () => (float[] u) { u = Mul(q, inner) },
                else_branch = e () => (float[] v) {
                    v = If (c) <
                        then_branch = t2 () => (float[] u2) { u2 = Mul(p, outer) },
                        else_branch = e2 () => (float[] v2) { v2 = f.Shift<by=2.0>(q) }
                    >
                }
            >
            sparse_sum = MatMul(x, m)
            dead = Relu(p)
            y, mask = Dropout(r)
            sizes = Shape(x)
        }
        <domain: "f", opset_import: ["" : 17]> Shift <by: float = 1.0> (a) => (b) {
            g = Constant<value_float: float = @by>()
            b = Add(a, g)
        }
        <domain: "f", opset_import: ["" : 17]> Unused (a) => (b) { b = Neg(a) }""",
        {
            "w": numbers(4, 4),
            "fed": numbers(4),
            "outer": numbers(4, seed=1),
            "unread": numbers(2),
            "empty": numbers(0, 3),
        },
        ir=ir,
        domains={"f": 1, "not.used": 7},
    )
    name_nodes(proto)
    proto.producer_name, proto.producer_version = "somebody", "1.2"
    proto.domain, proto.model_version = "org.example", 3
    note(proto, "model")
    graph = proto.graph
    note(graph, "graph")
    graph.name = "named"
    for thing in (*graph.node, *graph.input, *graph.output, *graph.initializer, *proto.functions):
        note(thing, thing.name)
    for node in graph.node:
        for attribute in node.attribute:
            attribute.doc_string = f"doc of {attribute.name}"
    constant = next(n for n in graph.node if n.op_type == "Constant")
    typed = TensorProto(name="", data_type=TensorProto.FLOAT, dims=[2])
    typed.float_data.extend([np.nan, -0.0])
    constant.attribute.append(helper.make_attribute("value", typed))
    words = TensorProto(name="s", data_type=TensorProto.STRING, dims=[2])
    words.string_data.extend([b"a", b"\xff"])
    graph.initializer.append(words)
    graph.initializer.append(
        helper.make_tensor("packed", TensorProto.INT4, [3], [1, -2, 3])  # in int32_data
    )
    body = next(n for n in graph.node if n.op_type == "If").attribute[0].g
    body.initializer.append(numpy_helper.from_array(numbers(4), "inner"))
    note(body, "body")
    values = numpy_helper.from_array(numbers(2), "m")
    indices = numpy_helper.from_array(np.array([1, 6]), "m_indices")
    graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4, 4]))
    for name in ("p", "m", "x"):
        graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]))
    note(graph.value_info[0], "value")
    graph.value_info[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    graph.value_info[0].type.denotation = "TENSOR"
    graph.input[0].type.tensor_type.shape.dim[1].denotation = "DATA_FEATURE"
    annotation = graph.quantization_annotation.add(tensor_name="p")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="unread")
    training = proto.training_info.add()
    training.algorithm.node.append(helper.make_node("Neg", ["w"], ["gradient"]))
    training.initialization.node.append(helper.make_node("Neg", ["w"], ["start"]))
    training.update_binding.add(key="w", value="gradient")
    training.initialization_binding.add(key="w", value="start")
    return proto


@pytest.mark.parametrize("ir", [4, 8, 10, 11])
def test_a_model_with_every_feature_stays_as_it_is(ir: int) -> None:
    """Functions, bodies, sparse and string weights, metadata, training, annotations: nothing is lost."""
    proto = full(ir)
    before = proto.SerializeToString(deterministic=True)
    again = reassembled(proto)
    assert not differences(proto, again)
    assert again.SerializeToString(deterministic=True) == before
    assert proto.SerializeToString(deterministic=True) == before


def test_the_model_with_every_feature_runs() -> None:
    """It is a model: ONNX Runtime computes the same before and after."""
    proto = full()
    proto.graph.initializer.pop()  # 4-bit weights that nobody reads: not every runtime has them
    fed = feeds(proto, N=3)
    for answer in (True, False):
        fed["c"] = np.array(answer)
        once, again = run(proto, fed), run(reassembled(proto), fed)
        for name, array in once.items():
            np.testing.assert_array_equal(array, again[name])


@pytest.mark.parametrize("where", ["model", "graph", "node", "initializer", "function"])
def test_fields_that_this_onnx_does_not_know_stay(where: str) -> None:
    """What a later version of the format adds is carried along, wherever it stands."""
    proto = full()
    if where == "model":
        proto.MergeFromString(UNKNOWN)
    elif where == "function":
        proto.functions[0].MergeFromString(UNKNOWN)
    elif where == "graph":
        proto.graph.MergeFromString(UNKNOWN)
    else:
        getattr(proto.graph, where)[0].MergeFromString(UNKNOWN)
    plain = full()
    assert differences(plain, proto)
    assert not differences(proto, reassembled(proto))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_stays_as_it_is(name: str) -> None:
    """With nothing to do, the models of the zoo and of the repository come back field by field."""
    proto = model(name)
    again = reassembled(proto)
    places = analyse(Source(proto, None)).graph.places
    if places == tuple(range(len(places))):
        assert not differences(proto, again)
    else:
        assert not differences(by_output(proto), by_output(again))


def copied(proto: ModelProto) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(proto)
    return copy


def by_output(proto: ModelProto) -> ModelProto:
    """The model with its nodes in the order of their outputs' names."""
    copy = copied(proto)
    nodes = sorted(proto.graph.node, key=lambda n: list(n.output))
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


@pytest.mark.parametrize("name", ["full", *COMMITTED])
def test_an_unsorted_file_is_sorted_and_nothing_else(name: str) -> None:
    """Every node after what it reads, captures included; all else as it was."""
    proto = full() if name == "full" else copied(model(name))
    nodes = list(proto.graph.node)
    random.Random(name).shuffle(nodes)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    again = reassembled(proto)
    assert not differences(by_output(proto), by_output(again))
    made = {o for n in again.graph.node for o in n.output}
    seen: set[str] = set()
    for node in again.graph.node:
        assert {*node.input, *captures(node)} & made <= seen | {""}
        seen.update(node.output)


def test_old_models_keep_their_weights_among_the_inputs() -> None:
    """IR version 3, where every initializer is an input."""
    proto = net(
        "(float[N,4] x) => (float[N,4] y) { p = MatMul(x, w) y = Add(p, b) }",
        {"w": numbers(4, 4), "b": numbers(4), "unread": numbers(2)},
        opset=8,
        ir=3,
    )
    assert not differences(proto, reassembled(proto))


# -- with something to do -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMITTED)
def test_a_rewritten_model_is_complete_and_tidy(name: str) -> None:
    """All but nodes, weights and notes on values is as it was; every read is made; nothing lies about.

    Weights that nobody reads any more are gone, and so are notes on values that are.
    """
    before = model(name)
    after = onnx_sched.optimize(before, choose="always", check=False).proto
    onnx.checker.check_model(after)
    kept = copied(after)
    for field in ("node", "initializer", "value_info"):
        getattr(kept.graph, field).MergeFrom(getattr(before.graph, field))
        del getattr(kept.graph, field)[: len(getattr(after.graph, field))]
    assert not differences(before, kept)
    weights = {t.name for t in after.graph.initializer}
    inputs = {v.name for v in after.graph.input}
    made = {o for n in after.graph.node for o in n.output}
    read = {i for n in after.graph.node for i in (*n.input, *captures(n)) if i}
    assert read <= weights | inputs | made
    unread = {t.name for t in before.graph.initializer} - {
        i for n in before.graph.node for i in (*n.input, *captures(n))
    }
    assert weights <= read | inputs | unread
    assert {v.name for v in after.graph.value_info} <= weights | inputs | made
    assert not doubled(after.graph.node)


def test_weights_that_are_still_needed_stay() -> None:
    """Those that nobody ever read, and those that are outputs; what only vanished nodes read is gone.

    So are notes on values that are gone; the others stay.
    """
    before = copied(model("grouped_mlp"))
    before.graph.initializer.append(numpy_helper.from_array(numbers(3), "unread"))
    shown, *others = (t for t in before.graph.initializer if t.name.endswith("weight"))
    before.graph.output.append(
        helper.make_tensor_value_info(shown.name, shown.data_type, [*shown.dims])
    )
    product = next(n for n in before.graph.node if n.op_type == "MatMul").output[0]
    for name in (product, "x", "y"):
        before.graph.value_info.append(helper.make_tensor_value_info(name, 1, None))
    result = onnx_sched.optimize(before, choose="always", check=False)
    assert result.changed
    kept = {t.name for t in result.proto.graph.initializer}
    assert {"unread", shown.name} <= kept
    assert not kept & {t.name for t in others}
    assert [v.name for v in result.proto.graph.value_info] == ["x", "y"]


def test_what_a_training_step_uses_stays() -> None:
    """Weights that it sets are no constants, values that it reads are still made: the step can be done."""
    before = copied(model("grouped_mlp"))
    first, second, *others = (t for t in before.graph.initializer if t.name.endswith("weight"))
    product = next(n for n in before.graph.node if n.op_type == "MatMul").output[0]
    step = before.training_info.add()
    step.algorithm.node.append(
        helper.make_node("Shift", [first.name, second.name, product], ["next"])
    )
    step.update_binding.add(key=first.name, value="next")
    result = onnx_sched.optimize(before, choose="always", check=False)
    assert result.changed
    after = result.proto
    assert after.training_info == before.training_info
    assert first in after.graph.initializer
    assert second in after.graph.initializer
    assert not {t.name for t in others} <= {t.name for t in after.graph.initializer}
    made = {o for n in after.graph.node for o in n.output}
    assert product in made
    assert {i for n in after.graph.node for i in n.input} & {first.name}
    fed = feeds(before)
    for name, array in run(before, fed).items():
        np.testing.assert_allclose(run(after, fed)[name], array, rtol=1e-5, atol=1e-6)


# -- names of nodes -------------------------------------------------------------------------------------

names = st.lists(st.sampled_from(["", "a", "a_2", "a_3", "b", "b_2"]), max_size=8)


@given(names)
def test_doubled_names_become_distinct(given_names: list[str]) -> None:
    """Every name once; the first to bear it keeps it; nodes without a name, and all else, stay."""
    nodes = [NodeProto(name=n, op_type="Relu", output=[f"v{k}"]) for k, n in enumerate(given_names)]
    before = [n.SerializeToString() for n in nodes]
    after = distinct(nodes)
    assert doubled(after) == []
    assert sorted(doubled(nodes)) == sorted(
        n for n, c in Counter(given_names).items() if n and c > 1
    )
    seen: set[str] = set()
    for old, new in zip(nodes, after, strict=True):
        if not old.name or old.name not in seen:
            assert new.name == old.name
        else:
            assert new.name.startswith(f"{old.name}_")
            assert new.name not in given_names
        seen.add(old.name)
        copy = NodeProto()
        copy.CopyFrom(new)
        copy.name = old.name
        assert copy == old
    assert [n.SerializeToString() for n in nodes] == before


def test_a_model_with_doubled_names_runs_afterwards() -> None:
    """ONNX Runtime refuses it before, and runs it after."""
    proto = net("(float[N,4] x) => (float[N,4] y) { p = Relu(x) y = Neg(p) }")
    for node in proto.graph.node:
        node.name = "same"
    with pytest.raises(Exception, match="same node name"):
        run(proto, feeds(proto))
    again = reassembled(proto)
    assert [n.name for n in again.graph.node] == ["same", "same_2"]
    assert "y" in every_value(again, feeds(again))


# -- the differ -----------------------------------------------------------------------------------------


def test_the_differ_sees_every_field() -> None:
    """Clearing any one field of any part of the full model is a difference, named by its path."""
    proto = full()
    assert not differences(proto, full())
    paths: list[list[Any]] = [[]]
    count = 0
    while paths:
        path = paths.pop()
        part = follow(proto, path)
        for field, value in part.ListFields():
            changed = copied(proto)
            follow(changed, path).ClearField(field.name)
            found = differences(proto, changed)
            assert found, [*path, field.name]
            assert any(field.name in text for text in found)
            count += 1
            several = hasattr(value, "extend")
            if isinstance(value[0] if several else value, Message):
                places: list[list[Any]] = (
                    [[k] for k in range(min(len(value), 2))] if several else [[]]
                )
                paths += [[*path, field.name, *place] for place in places]
    assert count > 200


def follow(message: Any, path: list[Any]) -> Any:
    for step in path:
        message = message[step] if isinstance(step, int) else getattr(message, step)
    return message


SUBTLE: dict[str, Any] = {
    "order of nodes": lambda m: m.graph.node.reverse(),
    "order of metadata": lambda m: m.metadata_props.reverse(),
    "sign of a zero": lambda m: constant_data(m).__setitem__(1, 0.0),
    "not a number": lambda m: constant_data(m).__setitem__(0, 1.0),
    "one bit": lambda m: setattr(
        m.graph.initializer[0], "raw_data", b"\x01" + m.graph.initializer[0].raw_data[1:]
    ),
    "presence": lambda m: setattr(m.graph.node[0], "domain", ""),
    "presence of a part": lambda m: m.graph.node[0].attribute.add(),
    "one more": lambda m: m.graph.input.add(),
    "unknown": lambda m: m.graph.MergeFromString(UNKNOWN),
    "unknown, deep": lambda m: m.graph.node[0].MergeFromString(UNKNOWN),
    "another kind of type": lambda m: m.graph.input[0].type.sequence_type.SetInParent(),
}


def constant_data(proto: ModelProto) -> Any:
    return next(n for n in proto.graph.node if n.op_type == "Constant").attribute[0].t.float_data


@pytest.mark.parametrize("kind", SUBTLE)
def test_the_differ_sees_subtle_changes(kind: str) -> None:
    """Order, presence, single bits, unknown fields."""
    proto, changed = full(), full()
    for node in (*proto.graph.node, *changed.graph.node):
        node.ClearField("domain")
    SUBTLE[kind](changed)
    assert differences(proto, changed)
    assert differences(changed, proto)
    assert not differences(changed, ModelProto.FromString(changed.SerializeToString()))


def test_the_differ_tells_types_apart() -> None:
    """Two messages of different types differ, even if both are empty."""
    assert differences(ModelProto(), NodeProto())
    assert not differences(NodeProto(), NodeProto())


def test_a_circuit_is_taken_as_it_is() -> None:
    """Putting a model together changes neither the circuit nor its nodes."""
    proto = full()
    circuit: Circuit = analyse(Source(proto, None)).circuit
    nodes = [n.SerializeToString() for n in circuit.graph.nodes]
    again = reassembled(proto)
    again.graph.node[0].name = "changed"
    assert [n.SerializeToString() for n in circuit.graph.nodes] == nodes
    assert set(ZOO) <= set(MODELS)
