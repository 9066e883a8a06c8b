"""What is said to keep two nodes apart is what does: operands, names of sizes, ops of the runtime's own."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import ArrayLike
from onnx import ModelProto

import onnx_sched
from onnx_sched.circuit import EMBEDDING, LINEAR, Unit
from onnx_sched.likeness import likeness
from onnx_sched.passes.rules import BY_DOMAIN
from onnx_sched.refusals import HEAVY, MADE_BY_ORT, ONE_NAME, difference
from tests.near_misses import NEAR
from tests.nets import COMMITTED, analysed, committed, name_nodes, net, numbers

SAMPLES = [
    *(pytest.param(lambda name=name: committed(name), id=name) for name in COMMITTED),
    *(
        pytest.param(
            lambda n=n: n.example.build(n.example.ways[0], n.example.opsets[0]),
            id=f"{k}-{n.example.row}",
        )
        for k, n in enumerate(NEAR)
    ),
]


MORE = {
    "shapes that broadcast": ("y = Add(x, r) z = Add(v, one)", "float[N,4]"),
    "an output left out": (
        "y, h = LSTM<hidden_size=3>(x, W, R) z = LSTM<hidden_size=3>(v, W, R)",
        "float[5,N,4]",
    ),
    "a bias left out": (
        "y = QLinearConv(x, s, u, k, s, u, s, u, b) z = QLinearConv(v, s, u, k, s, u, s, u)",
        "uint8[N,4,8]",
    ),
}
SAMPLES += [
    pytest.param(
        lambda body=body, given=given: net(
            f"({given} x, {given} v) => (float[] y, float[] z) {{ {body} }}",
            {
                "W": numbers(1, 12, 4),
                "R": numbers(1, 12, 3),
                "r": numbers(4),
                "one": numbers(1, 4),
                "s": np.float32(0.5),
                "u": np.uint8(3),
                "k": np.ones((2, 4, 3), np.uint8),
                "b": np.ones(2, np.int32),
            },
        ),
        id=what,
    )
    for what, (body, given) in MORE.items()
]


@pytest.mark.parametrize("make", SAMPLES)
def test_what_is_said_to_differ_is_what_keeps_nodes_apart(make: Callable[[], ModelProto]) -> None:
    """Two nodes of a kind differ in something that is told if and only if they cannot run as one."""
    circuit = analysed(make()).circuit
    kinds: dict[tuple[str, str], list[Unit]] = {}
    for unit in circuit.units:
        kinds.setdefault((unit.domain, unit.kind), []).append(unit)
    for units in kinds.values():
        for a, b in pairwise(units[:40]):
            here, there = likeness(circuit, a), likeness(circuit, b)
            if here is not None and there is not None:
                found = difference(circuit, a, b)
                assert (found.far > 0) == (here != there), found
                assert found.reason


def quantized(scale: ArrayLike, other: ArrayLike) -> ModelProto:
    """Two products of eight bits whose results have these scales."""
    arrays: dict[str, ArrayLike] = {
        **{f"c{k}": (10 * numbers(4, 3, seed=k)).astype(np.int8) for k in range(2)},
        "s": np.float32(0.5),
        "z": np.int8(1),
        "t0": np.asarray(scale, np.float32),
        "t1": np.asarray(other, np.float32),
    }
    body = " ".join(
        f"q{k} = QuantizeLinear(x, s, z) y{k} = QLinearMatMul(q{k}, s, z, c{k}, s, z, t{k}, z)"
        for k in range(2)
    )
    return net(f"(float[N,4] x) => (int8[N,3] y0, int8[N,3] y1) {{ {body} }}", arrays)


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        (0.25, 0.75, "y_scale differs, 0.25 beside 0.75"),
        ([0.25, 1, 1], [0.25, 2, 1], "y_scale differs, [0.25, 1, 1] beside [0.25, 2, 1]"),
        (0.25, np.float32(0.25000003), "y_scale differs"),
        (np.arange(1, 6), np.arange(2, 7), "y_scale differs"),
    ],
)
def test_constants_that_must_be_equal_are_named(
    here: ArrayLike, there: ArrayLike, said: str
) -> None:
    """The operand, as ONNX calls it, with its values where they are few and look different."""
    report = onnx_sched.optimize(quantized(here, there), choose="always", check=False).report
    assert [(r.code, r.reason) for r in report.refusals] == [("S302", f"QLinearMatMul: {said}")]
    assert onnx_sched.optimize(quantized(here, here), choose="always", check=False).plan.groups


def beside(
    first: str, second: str, body: str = "y = MatMul(x, w0) z = MatMul(v, w1)"
) -> ModelProto:
    """Two products of inputs of these shapes."""
    given = {f"w{k}": numbers(4, 4, seed=k) for k in range(2)}
    inputs = f"float[{first}] x, float[{second}] v"
    return net(f"({inputs}) => (float[] y, float[] z) {{ {body} }}", given)


ALIKE = {
    ("N,4", "M,4"): "open sizes bear different names, [N, 4] beside [M, 4]; ",
    ("A,B,4", "A,C,4"): "open sizes bear different names, [A, B, 4] beside [A, C, 4]; ",
    ("?,4", "?,4"): "open sizes bear no common name, [size 0 of x, 4] beside [size 0 of v, 4]; ",
    ("N,4", "?,4"): "open sizes bear no common name, [N, 4] beside [size 0 of v, 4]; ",
    ("N,4", "7,4"): "shapes differ, [N, 4] beside [7, 4]",
    ("N,4", "N,2,4"): "shapes differ, [N, 4] beside [N, 2, 4]",
}


@pytest.mark.parametrize(("first", "second"), ALIKE)
def test_names_of_sizes_are_told_from_sizes(first: str, second: str) -> None:
    """Where only names are in the way, the reason says so and what to do; doing it is enough."""
    report = onnx_sched.optimize(beside(first, second), choose="always", check=False).report
    said = ALIKE[first, second]
    reason = f"MatMul: {said}{ONE_NAME if said.endswith('; ') else ''}"
    assert [(r.code, r.reason) for r in report.refusals] == [("S103", reason)]
    if said.endswith("; "):
        renamed = beside(second.replace("?", "N"), second.replace("?", "N"))
        assert onnx_sched.optimize(renamed, choose="always", check=False).plan.groups


def test_more_than_a_name_in_the_way_is_told_first() -> None:
    """With one name these would still not run as one: the advice would be in vain."""
    body = "y = Conv<pads=[2,2]>(x, w) z = Conv<pads=[1,1]>(v, w)"
    text = f"(float[N,4,9] x, float[M,4,9] v) => (float[] y, float[] z) {{ {body} }}"
    said = onnx_sched.optimize(net(text, {"w": numbers(2, 4, 3)}), choose="always", check=False)
    assert {r.code for r in said.report.refusals} == {"S105"}


def test_sizes_that_are_computed_have_no_name_to_change() -> None:
    """Rows that Compress leaves over are not the exporter's to name."""
    given = {"w0": numbers(4, 4), "w1": numbers(4, 4, seed=1), "k": np.ones(3, bool)}
    body = "p = Compress<axis=0>(v, k) y = MatMul(x, w0) z = MatMul(p, w1)"
    model = net(f"(float[N,4] x, float[M,4] v) => (float[] y, float[] z) {{ {body} }}", given)
    circuit = analysed(model).circuit
    one, two = (u for u in circuit.units if u.kind == LINEAR)
    assert difference(circuit, one, two).words == "shapes differ"


@pytest.mark.parametrize(("rows", "said"), [(2, True), (3, False)])
def test_a_name_mends_no_factor(rows: int, said: bool) -> None:
    """Twice N beside three times M stays apart, whatever they are called."""
    model = net(
        f"(float[N,8] x, float[M,{4 * rows}] v) => (float[] y, float[] z) "
        "{ a = Reshape(x, s) b = Reshape(v, s) y = MatMul(a, w0) z = MatMul(b, w1) }",
        {"w0": numbers(4, 4), "w1": numbers(4, 4, seed=1), "s": np.array([-1, 4])},
    )
    circuit = analysed(model).circuit
    one, two = (u for u in circuit.units if u.kind == LINEAR)
    assert (difference(circuit, one, two).advice == ONE_NAME) == said


@pytest.mark.parametrize("domain", BY_DOMAIN)
def test_what_is_batched_for_its_own_sake_is_told_of_where_it_is_not(domain: str) -> None:
    """Each op with a heavy rule is one whose refusals are told; looking up rows is none."""
    heavy = {kind for kind, rule in BY_DOMAIN[domain].items() if rule.heavy}
    assert heavy - {EMBEDDING} <= HEAVY


def test_ops_that_the_runtime_made_are_told_of() -> None:
    """They have no rule, and what follows them has no shape: both say so, however far behind."""
    fused = 'com.microsoft.FusedGemm<activation="Relu">'
    body = " ".join(
        f"a{k} = {fused}(x, w{k}, b) t{k} = Tanh(a{k}) y{k} = Gemm(t{k}, v{k})" for k in range(2)
    )
    arrays = {f"{name}{k}": numbers(4, 4, seed=k) for name in "wv" for k in range(2)}
    model = net(
        f"(float[N,4] x) => (float[] y0, float[] y1) {{ {body} }}", {**arrays, "b": numbers(4)}
    )
    report = onnx_sched.optimize(name_nodes(model), choose="always", check=False).report
    no_rule = "FusedGemm: there is no batching rule for FusedGemm, "
    assert {(r.code, r.reason, r.nodes) for r in report.refusals} == {
        ("S102", no_rule + MADE_BY_ORT, ("a0", "a1")),
        ("S202", "Gemm: the shape of an operand is not known: FusedGemm tells none", ("y0", "y1")),
    }
