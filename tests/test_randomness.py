"""Which outputs are random: in doubt all of them, but not without a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from onnx_sched.judge.randomness import Randomness, randomness


def parse(text: str) -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "fun" : 1]> {text}')


def test_a_model_without_random_nodes_is_not_random() -> None:
    """Dropout at rest drops nothing."""
    model = parse("g (float[N] x) => (float[N] y) { y = Dropout(x) }")
    assert randomness(model) == Randomness(False, (), ())


def dropout(mode: str, kind: str = "initializer") -> Randomness:
    model = parse("g (float[N] x, bool t) => (float[N] y) { y = Dropout(x, r, t) }")
    model.graph.initializer.append(numpy_helper.from_array(np.array(0.5, np.float32), "r"))
    value = numpy_helper.from_array(np.array(mode == "on"), "t")
    if kind != "input":
        del model.graph.input[1]
    if kind == "initializer":
        model.graph.initializer.append(value)
    if kind == "constant":
        model.graph.node.insert(0, helper.make_node("Constant", [], ["t"], value=value))
    if kind == "overridable":
        model.graph.input.append(helper.make_tensor_value_info("t", TensorProto.BOOL, []))
        model.graph.initializer.append(value)
    return randomness(model)


def test_dropout_counts_when_it_may_train() -> None:
    """Only a constant False that nobody can override keeps Dropout quiet."""
    quiet, loud = Randomness(False, (), ()), Randomness(True, ("y",), ())
    assert dropout("off") == dropout("off", "constant") == quiet
    assert dropout("on") == dropout("on", "constant") == loud
    assert dropout("off", "input") == dropout("off", "overridable") == loud


@pytest.mark.parametrize(
    "node",
    [
        "r = RandomUniformLike(x)",
        "r = RandomNormalLike(x)",
        "r = RandomUniform<shape=[1]>()",
        "r = RandomNormal<shape=[1]>()",
        "b = Bernoulli(x) r = Cast<to=1>(b)",
        "m = Multinomial(x) r = Cast<to=1>(m)",
    ],
)
def test_every_random_operator_is_known(node: str) -> None:
    """What reads its values is random, what does not is not; with a seed it is only stateful."""
    text = f"g (float[1,N] x) => (float[1,N] y, float[1,N] z) {{ {node} y = Mul(x, r) z = Neg(x) }}"
    assert randomness(parse(text)) == Randomness(True, ("y",), ())
    model = parse(text)
    model.graph.node[0].attribute.append(helper.make_attribute("seed", 1.0))
    assert randomness(model) == Randomness(True, (), ("y",))


def test_randomness_inside_bodies_and_functions_is_found() -> None:
    """In a branch, by a captured value, in a function, and in a function that calls another."""
    value = helper.make_tensor_value_info("o", TensorProto.FLOAT, ["N"])
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])

    def branching(inside: list[Any], before: str) -> ModelProto:
        model = parse(f"g (float[N] x) => (float[N] y) {{ {before} q = Neg(x) }}")
        branch = helper.make_graph(inside, "b", [], [value])
        model.graph.input.append(condition)
        node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
        model.graph.node.append(node)
        return model

    draw = helper.make_node("RandomNormalLike", ["x"], ["o"])
    assert randomness(branching([draw], "")) == Randomness(True, ("y",), ())
    read = helper.make_node("Neg", ["r"], ["o"])
    assert randomness(branching([read], "r = RandomNormalLike(x)")) == Randomness(True, ("y",), ())
    assert randomness(branching([read], "r = Abs(x)")) == Randomness(False, (), ())
    functions = """<opset_import: ["" : 17, "fun" : 1], domain: "fun">
        Outer (a) => (b) { b = fun.Inner(a) }
        <opset_import: ["" : 17], domain: "fun">
        Inner (a) => (b) { r = RandomNormalLike(a) b = Add(a, r) }"""
    text = "g (float[N] x) => (float[N] y, float[N] z) { y = fun.Outer(x) z = Neg(x) }"
    assert randomness(parse(text + functions)) == Randomness(True, ("y",), ())
