"""Units with one signature are the same computation; whatever makes them differ is in it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.passes.rules import rule_for
from onnx_sched.signature import Signature, signature
from tests.nets import analysed, ints, net, numbers
from tests.zoo import MODELS, model, studied

WEIGHTS: dict[str, Any] = {
    "w": numbers(4, 4),
    "w2": numbers(4, 4, seed=1),
    "wide": numbers(4, 5),
    "b2": numbers(4, seed=1),
    "b1": numbers(1),
    "s0": np.array(0),
    "i0": ints(0),
    "i1": ints(1),
    "i2": ints(2),
    "i3": ints(3),
}

INPUTS = (
    "(float[N,4] x, float[N,4] z, float[M,4] m, double[N,4] d, double[N,4] e, float[N,4,1] r, "
    "int64[1] n, float[] u) => (float[] y)"
)


def parts(text: str) -> tuple[Circuit, Unit, Unit]:
    """The units that make a and b in a net."""
    proto = net(f"{INPUTS} {{ {text} y = Add(x, x) }}", WEIGHTS, domains={"com.microsoft": 1})
    proto.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in "ab")
    circuit = analysed(proto).circuit
    return circuit, circuit.maker["a"], circuit.maker["b"]


def both(text: str, **how: Any) -> tuple[Signature | None, Signature | None]:
    circuit, a, b = parts(text)
    return signature(a, circuit, **how), signature(b, circuit, **how)


ALIKE = {
    "input": "a = Relu(x) b = Relu(z)",
    "weight": "a = MatMul(x, w) b = MatMul(z, w2)",
    "same weight": "a = MatMul(x, w) b = MatMul(z, w)",
    "spelling": "a = Gemm<alpha=2.0,transB=1>(x, w, b2) p = MatMul(z, w2) b = Add(b2, p)",
    "default": "a = LeakyRelu(x) b = LeakyRelu<alpha=0.01>(z)",
    "order": "a = Mul(x, b1) b = Mul(b1, z)",
    "double": "a = Relu(d) b = Relu(e)",
}

UNLIKE = {
    "kind": "a = Relu(x) b = Tanh(z)",
    "attribute": "a = LeakyRelu<alpha=0.1>(x) b = LeakyRelu<alpha=0.2>(z)",
    "axis": "a = Softmax<axis=0>(x) b = Softmax<axis=1>(z)",
    "type": "a = Relu(x) b = Relu(d)",
    "target type": "a = Cast<to=10>(x) b = Cast<to=11>(z)",
    "open size": "a = Relu(x) b = Relu(m)",
    "rank": "a = Relu(x) b = Relu(r)",
    "width": "a = MatMul(x, w) b = MatMul(z, wide)",
    "bias": "a = Gemm(x, w, b2) b = Gemm(z, w)",
    "constant or computed": "a = Mul(x, b1) b = Mul(x, z)",
    "slot": "a = Clip(x, s) s = Cast<to=1>(s0) b = Clip(x, , s)",
    "outputs": "a, i = MaxPool<kernel_shape=[1]>(r) b = MaxPool<kernel_shape=[1]>(r2) r2 = Neg(r)",
    "left out": "a, , s = LayerNormalization(x, b2) b, m, t = LayerNormalization(z, b2)",
    "type of a constant": "a = Pow(x, b1) b = Pow(z, i1)",
    "domain": "a = Gelu(x) b = com.microsoft.Gelu(z)",
}


@pytest.mark.parametrize("kind", ALIKE)
def test_alike_units_have_one_signature(kind: str) -> None:
    """Other data, other weights of one shape, another spelling, a default written out."""
    a, b = both(ALIKE[kind])
    assert a is not None
    assert a == b
    assert hash(a) == hash(b)


@pytest.mark.parametrize("kind", UNLIKE)
def test_unlike_units_have_two(kind: str) -> None:
    """Op, domain, attributes, types, shapes, which slots are filled: each is in the signature."""
    a, b = both(UNLIKE[kind])
    assert a is not None
    assert b is not None
    assert a != b


def test_too_little_known_is_no_signature() -> None:
    """Without a shape or a type nothing can be said to be alike."""
    a, b = both("a = Relu(u) b = Relu(x)")
    assert a is None
    assert b is not None


SLICES = "a = Slice(x, i0, i2, i1) b = Slice(z, {}, i1)"


@pytest.mark.parametrize(("bounds", "alike"), [("i0, i2", True), ("i1, i3", False)])
def test_static_operands_are_compared_by_value(bounds: str, alike: bool) -> None:
    """Bounds, axes and the like must be equal; without being told so, any values of a shape are."""
    a, b = both(SLICES.format(bounds), static=(1, 2))
    assert (a == b) == alike
    a, b = both(SLICES.format(bounds))
    assert a == b


def test_optional_operands_may_be_missing_or_of_any_value() -> None:
    """A bias that some members lack does not part them; the other operands still do."""
    text = "a = Gemm(x, w, b2) b = Gemm(z, w2)"
    assert len(set(both(text, optional=(2,)))) == 1
    assert len(set(both(text))) == 2
    assert len(set(both("a = Gemm(x, w, b2) b = Gemm(z, wide)", optional=(2,)))) == 2


def test_spread_constants_may_differ_in_shape_but_not_in_result() -> None:
    """A row or a single number, broadcast: alike if the results have one shape."""
    text = "a = Mul(x, b1) b = Mul(z, b2)"
    assert len(set(both(text))) == 2
    assert len(set(both(text, spread=True))) == 1
    raised = "a = Mul(x, b1) b = Mul(z, high) high = Unsqueeze(q, i0) q = Unsqueeze(b1, i0)"
    assert len(set(both(raised, spread=True))) == 2
    typed = "a = Mul(x, b1) b = Mul(d, t) t = Cast<to=11>(b1)"
    assert len(set(both(typed, spread=True))) == 2


def signatures(circuit: Circuit) -> list[tuple[Unit, Signature]]:
    """The units that a batching rule accepts, as the finder signs them."""
    found = []
    for unit in circuit.units:
        rule = rule_for(unit)
        if rule is not None and rule.check(unit, circuit) is None:
            sign = signature(unit, circuit, rule.static, rule.optional, rule.spread)
            if sign is not None:
                found.append((unit, sign))
    return found


@pytest.mark.parametrize("name", MODELS)
def test_units_of_one_signature_make_values_of_one_type(name: str) -> None:
    """On every model: equal signatures, equal shapes and types of all results."""
    values = studied(name).values
    for (one, a), (other, b) in itertools.combinations(signatures(studied(name).circuit), 2):
        if a == b:
            assert len(one.outputs) == len(other.outputs)
            for x, z in zip(one.outputs, other.outputs, strict=True):
                assert bool(x) == bool(z)
                assert not x or values.types.get(x) == values.types.get(z)


def renamed(proto: ModelProto) -> ModelProto:
    """The same model with other names for all values and nodes."""
    copy = ModelProto()
    copy.CopyFrom(proto)
    graph = copy.graph
    for node in graph.node:
        node.name = f"node of {node.name}" if node.name else ""
        for names in (node.input, node.output):
            names[:] = [f"value of {n}" if n else "" for n in names]
    for thing in (*graph.input, *graph.output, *graph.initializer):
        thing.name = f"value of {thing.name}"
    return copy


@pytest.mark.parametrize("name", ["mmoe", "grouped_mlp_norm", "conv_towers", "cuts", "names twice"])
def test_names_do_not_matter(name: str) -> None:
    """Renaming everything leaves every signature as it was."""
    before = [sign for _, sign in signatures(studied(name).circuit)]
    after = [sign for _, sign in signatures(analysed(renamed(model(name))).circuit)]
    assert before
    assert before == after
