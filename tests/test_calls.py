"""Calls of model functions give way to their nodes where that opens groups, and only there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

import onnx_sched
from onnx_sched import pipeline
from onnx_sched.calls import FEW, called, opened
from onnx_sched.errors import UsageError
from onnx_sched.options import Options
from tests.nets import analysed, feeds, net, numbers, run

LINEAR = (
    '<domain: "my", opset_import: ["" : 17]> linear (a, w) => (b) { c = MatMul(a, w) b = Relu(c) }'
)
OTHER = '<domain: "my", opset_import: ["" : 17]> other (a) => (b) { c = Tanh(a) b = Neg(c) }'
OUTER = (
    '<domain: "my", opset_import: ["" : 17, "my" : 1]> outer (a, w) => (b) '
    "{ c = my.linear(a, w) b = Neg(c) }"
)
DOMAINS = {"my": 1}


def four(function: str, calls: str, *more: str) -> ModelProto:
    """Four calls with weights of their own, and another node or call."""
    body = " ".join(f"y{k} = my.{function}(x{k}, w{k})" for k in range(4))
    inputs = ", ".join(f"float[N,5] x{k}" for k in range(4))
    outputs = ", ".join(f"float[N,5] y{k}" for k in range(4))
    text = f"({inputs}) => ({outputs}, float[N,5] z) {{ {body} {calls} }}"
    weights = {f"w{k}": numbers(5, 5, seed=k) for k in range(4)}
    return net("\n".join((text, *more)), weights, domains=DOMAINS)


MODELS = {
    "flat": four("linear", "z = Neg(x0)", LINEAR),
    "beside another": four("linear", "z = my.other(x0)", LINEAR, OTHER),
    "nested": four("outer", "z = Neg(x0)", LINEAR, OUTER),
}


@pytest.mark.parametrize("name", MODELS)
def test_calls_that_hide_a_group_give_way(name: str) -> None:
    model = MODELS[name]
    onnx.checker.check_model(model, full_check=True)
    result = onnx_sched.optimize(model, choose="always")
    assert [n.op_type for n in result.proto.graph.node].count("MatMul") == 1
    fed = feeds(model, N=3)
    want, got = run(model, fed), run(result.proto, fed)
    for key in want:
        np.testing.assert_allclose(got[key], want[key], rtol=1e-5, atol=1e-6)


def test_a_function_that_hides_nothing_stays() -> None:
    result = onnx_sched.optimize(MODELS["beside another"], choose="always")
    assert result.plan.inlined == (("my", "linear"),)
    assert [n.op_type for n in result.proto.graph.node].count("other") == 1
    assert "other" in [f.name for f in result.proto.functions]


def test_without_a_group_all_calls_stay() -> None:
    """One call: nothing to batch, the model is handed back as it is."""
    text = "(float[N,5] x) => (float[N,5] y) { y = my.linear(x, w) }\n" + LINEAR
    model = net(text, {"w": numbers(5, 5)}, domains=DOMAINS)
    result = onnx_sched.optimize(model, choose="always")
    assert not result.changed
    assert result.proto == model


def test_many_functions_without_a_group_are_not_touched() -> None:
    """Where there are too many to try one by one, none is replaced for nothing."""
    text = '<domain: "my", opset_import: ["" : 17]> f{0} (a) => (b) {{ b = {1}(a) }}'
    functions = [text.format(k, "Neg" if k % 2 else "Tanh") for k in range(FEW + 1)]
    calls = " ".join(f"v{k + 1} = my.f{k}(v{k})" for k in range(FEW + 1))
    body = f"(float[N,5] v0) => (float[N,5] v{FEW + 1}) {{ {calls} }}"
    model = net("\n".join((body, *functions)), domains=DOMAINS)
    seen = analysed(model)
    assert opened(seen, lambda _: lambda _: False).analysis is seen


def test_what_would_not_pay_leaves_the_calls() -> None:
    """Skipping the products leaves nothing: the function is still a function."""
    result = onnx_sched.optimize(MODELS["flat"], choose="always", skip_ops=["MatMul"])
    assert not result.changed
    assert [f.name for f in result.proto.functions] == ["linear"]


def test_a_plan_replays_calls(tmp_path: Path) -> None:
    path, plan = tmp_path / "m.onnx", tmp_path / "plan.json"
    onnx.save(MODELS["nested"], path)
    first = onnx_sched.optimize(path, choose="always")
    first.save_plan(plan)
    again = pipeline.optimize(path, Options(plan=plan))
    assert again.proto.SerializeToString() == first.proto.SerializeToString()
    onnx.save(MODELS["flat"], path)
    with pytest.raises(UsageError, match="my::outer"):
        pipeline.optimize(path, Options(plan=plan))


def test_called_functions_are_those_in_use() -> None:
    """A function that nothing calls is not in use; one called by another function or a body is."""
    assert called(MODELS["nested"]) == (("my", "linear"), ("my", "outer"))
    unused = net("(float[N,5] x) => (float[N,5] y) { y = Neg(x) }\n" + OTHER, domains=DOMAINS)
    assert called(unused) == ()
