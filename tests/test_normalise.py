"""All spellings of a linear map are one unit that computes the same; nothing else is taken in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from onnx_sched.analysis import Analysis
from onnx_sched.circuit import LINEAR, Circuit, Unit
from onnx_sched.constants import Const, from_array
from onnx_sched.passes.normalise import affine, row
from tests.nets import Array, analysed, every_value, feeds, net, numbers
from tests.zoo import MODELS, RANDOM, model, sightings, studied


def units(proto: ModelProto) -> list[Unit]:
    return list(analysed(proto).circuit.units)


def linear(circuit: Circuit, unit: Unit, seen: Mapping[str, Array]) -> Array:
    """What a linear unit computes, by its operands, in double precision."""
    x, weight, bias = unit.operands
    assert isinstance(x, str)
    assert isinstance(weight, Const)
    assert not isinstance(bias, str)
    loaded = np.asarray(weight.load())
    assert (loaded.dtype, loaded.shape) == (weight.dtype, weight.shape)
    assert weight.rank == 2
    result = np.asarray(seen[x].astype(np.float64) @ loaded.astype(np.float64))
    if bias is not None:
        added = np.asarray(bias.load())
        assert (added.dtype, added.shape) == (bias.dtype, bias.shape)
        assert bias.shape == weight.shape[1:]
        assert bias.elem_type == weight.elem_type
        result = result + added.astype(np.float64)
    return result


def check(analysis: Analysis, seen: Mapping[str, Array]) -> int:
    """Hold all linear units of a model against a run; returns how many there are."""
    circuit, count = analysis.circuit, 0
    for unit in circuit.units:
        if unit.kind == LINEAR:
            count += 1
            expected = seen[unit.outputs[0]]
            found = linear(circuit, unit, seen)
            assert found.shape == expected.shape
            close = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-9}[expected.dtype.name]
            np.testing.assert_allclose(found, expected, rtol=close, atol=close)
    return count


# -- spellings ---------------------------------------------------------------------------------------

W, WT, V = numbers(4, 3), np.ascontiguousarray(numbers(4, 3).T), numbers(3, 3)
B, B1, B13, B0, B11 = (
    numbers(3, seed=1),
    numbers(1),
    numbers(1, 3, seed=2),
    numbers(),
    numbers(1, 1),
)
POSITIVE = np.abs(numbers(3, seed=3)) + 0.1
NORM: dict[str, Any] = {"g": numbers(3, seed=4), "h": numbers(3, seed=5), "m": B, "v": POSITIVE}

SPELLINGS: dict[str, str] = {
    "matmul": "y = MatMul(x, w)",
    "matmul, bias": "p = MatMul(x, w) y = Add(p, b)",
    "bias, matmul": "p = MatMul(x, w) y = Add(b, p)",
    "bias of one row": "p = MatMul(x, w) y = Add(p, b13)",
    "bias of one number": "p = MatMul(x, w) y = Add(p, b1)",
    "scalar bias": "p = MatMul(x, w) y = Add(b0, p)",
    "two biases": "p = MatMul(x, w) q = Add(p, b) y = Add(b13, q)",
    "turned weight": "t = Transpose(wt) p = MatMul(x, t) y = Add(p, b)",
    "computed weight": "t = Mul(w, b) p = MatMul(x, t) y = Add(p, b)",
    "gemm": "y = Gemm(x, w, b)",
    "gemm without bias": "y = Gemm(x, w)",
    "gemm with an empty slot": "y = Gemm(x, w, )",
    "gemm, turned": "y = Gemm<transB=1>(x, wt, b)",
    "gemm, scaled": "y = Gemm<alpha=0.5,beta=-2.0>(x, w, b)",
    "gemm, all of it": "y = Gemm<alpha=-1.5,beta=0.25,transB=1>(x, wt, b13)",
    "gemm, one number": "y = Gemm<beta=3.0>(x, w, b1)",
    "gemm, scalar": "y = Gemm(x, w, b0)",
    "gemm, one by one": "y = Gemm(x, w, b11)",
    "gemm, no bias after all": "y = Gemm<beta=0.0>(x, w, endless)",
    "gemm, bias": "p = Gemm(x, w, b) y = Add(p, b13)",
    "gemm, norm": "p = Gemm(x, w, b) y = BatchNormalization(p, g, h, m, v)",
    "matmul, bias, norm": "p = MatMul(x, w) q = Add(p, b) "
    "y = BatchNormalization<epsilon=0.1>(q, g, h, m, v)",
    "matmul, norm": "p = MatMul(x, w) y = BatchNormalization(p, g, h, m, v)",
    "norm, bias, norm": "p = MatMul(x, w) q = BatchNormalization(p, g, h, m, v) r = Add(q, b) "
    "y = BatchNormalization(r, h, g, b, v)",
}

WEIGHTS: dict[str, Any] = {
    "w": W,
    "wt": WT,
    "b": B,
    "b1": B1,
    "b13": B13,
    "b0": B0,
    "b11": B11,
    "endless": np.full(3, np.inf, np.float32),
    **NORM,
}


def typed(array: Any, dtype: str) -> Array:
    return np.asarray(array).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("kind", SPELLINGS)
def test_a_linear_map_is_one_unit_however_it_is_spelled(kind: str, dtype: str) -> None:
    """One unit, all nodes of the spelling in it, and x @ W + b are the numbers of the model."""
    if dtype == "float16" and "norm" in kind:
        pytest.skip("norms are folded in single and double precision only")
    name = {"float32": "float", "float64": "double", "float16": "float16"}[dtype]
    proto = net(
        f"({name}[N,4] x) => ({name}[] y) {{ {SPELLINGS[kind]} }}",
        {n: typed(a, dtype) for n, a in WEIGHTS.items()},
    )
    (unit,) = units(proto)
    assert (unit.kind, unit.outputs) == (LINEAR, ("y",))
    names = [o for k in unit.nodes for o in proto.graph.node[k].output]
    assert names == [n for n in "pqry" if f"{n} = " in SPELLINGS[kind]]
    assert check(analysed(proto), every_value(proto, feeds(proto, N=3))) == 1


def test_rows_of_any_rank_are_mapped() -> None:
    """Rank 3 and 4: MatMul and Add, the bias on the last axis; BatchNormalization is not taken in."""
    proto = net(
        "(float[N,S,4] x, float[2,N,S,4] z) => (float[] y, float[] u, float[] n) "
        "{ p = MatMul(x, w) y = Add(p, b) q = MatMul(z, w) u = Add(b13, q) "
        "r = MatMul(x, k) n = BatchNormalization(r, c, c, c, c) }",
        {**WEIGHTS, "k": numbers(4, 3, seed=9), "c": np.abs(numbers(5)) + 0.1},
    )
    assert [u.kind for u in units(proto)] == [LINEAR, LINEAR, LINEAR, "BatchNormalization"]
    assert check(analysed(proto), every_value(proto, feeds(proto, N=2, S=5))) == 3


@pytest.mark.parametrize("name", sorted({*MODELS} - RANDOM))
def test_linear_units_compute_what_the_model_computes(name: str) -> None:
    """On every model, in every run."""
    for _, seen in sightings(name):
        check(studied(name), seen)


# -- what is not absorbed ----------------------------------------------------------------------------

SPLIT = {
    "column bias": ("p = MatMul(x, w) y = Add(p, col)", "p", ""),
    "matrix bias": ("p = MatMul(x, w) y = Add(p, mat)", "p", ""),
    "bias of higher rank": ("p = MatMul(x, w) y = Add(p, b113)", "p", ""),
    "computed bias": ("p = MatMul(x, w) y = Add(p, z)", "p", ""),
    "itself": ("p = MatMul(x, w) y = Add(p, p)", "p", ""),
    "read twice": ("p = MatMul(x, w) q = Add(p, b) r = Relu(p) y = Add(q, r)", "p", ""),
    "read before": ("p = MatMul(x, w) r = Relu(p) q = Add(p, b) y = Add(q, r)", "p", ""),
    "an output": ("p = MatMul(x, w) y = Add(p, b)", "p", "p"),
    "captured": (
        "p = MatMul(x, w) q = Add(p, b) r = If (c) <"
        "then_branch = t () => (float[] s) { s = Relu(p) }, "
        "else_branch = e () => (float[] s2) { s2 = Neg(p) }> y = Add(q, r)",
        "p",
        "",
    ),
    "captured instead": (
        "p = MatMul(x, w) y = If (c) <"
        "then_branch = t () => (float[] s) { s = Add(p, b) }, "
        "else_branch = e () => (float[] s2) { s2 = Add(b, p) }>",
        "p",
        "",
    ),
    "another op": ("p = MatMul(x, w) y = Sub(p, b)", "p", ""),
    "another domain": ("p = MatMul(x, w) y = f.Add(p, b)", "p", ""),
    "training": (
        "p = MatMul(x, w) y, n, o = BatchNormalization<training_mode=1>(p, g, h, m, v)",
        "p",
        "",
    ),
    "statistics of a product": (
        "p = MatMul(x, w) t = Transpose(p) y = BatchNormalization(x2, g, h, rm, v) "
        "rm = ReduceMean<axes=[0],keepdims=0>(p) x2 = Relu(p)",
        "p",
        "",
    ),
    "computed scale": (
        "p = MatMul(x, w) y = BatchNormalization(p, z3, h, m, v) z3 = ReduceMax<keepdims=0,axes=[0]>(k) "
        "k = Relu(z)",
        "p",
        "",
    ),
    "overridable bias": ("p = MatMul(x, w) y = Add(p, fed)", "p", ""),
    "overridable norm": ("p = MatMul(x, w) y = BatchNormalization(p, fed, h, m, v)", "p", ""),
    "a dead reader": ("p = MatMul(x, w) dead = Add(p, b) y = Relu(p)", "p", ""),
}

REJECTED = {
    "gemm, turned input": "y = Gemm<transA=1>(u, w, b)",
    "gemm, column": "y = Gemm(x, w, col)",
    "gemm, matrix": "y = Gemm(x, w, mat)",
    "gemm, computed bias": "y = Gemm(x, w, z3) z3 = ReduceMax<keepdims=0,axes=[0]>(z)",
    "gemm, overridable bias": "y = Gemm(x, w, fed)",
    "overridable weight": "y = MatMul(x, fedw)",
    "computed weight": "y = MatMul(x, t) t = Transpose(zt)",
    "weight on the left": "y = MatMul(wt, u)",
    "weight of rank three": "y = MatMul(x, w3)",
    "vector weight": "y = MatMul(x, w1)",
    "vector": "y = MatMul(v4, w)",
    "whole numbers": "y = MatMul(xi, wi)",
    "gemm, whole numbers": "y = Gemm(xi, wi)",
    "constants alone": "q = MatMul(wt, w) y = Add(z, q)",
    "another domain": "y = f.MatMul(x, w)",
}

EXTRA: dict[str, Any] = {
    **WEIGHTS,
    "col": numbers(3, 1, seed=7),
    "mat": numbers(3, 3, seed=8),
    "b113": numbers(1, 1, 3),
    "fed": POSITIVE,
    "fedw": W,
    "w3": numbers(2, 4, 3),
    "w1": numbers(4),
    "wi": np.arange(12).reshape(4, 3),
}


def with_extras(text: str, further: str = "") -> ModelProto:
    outputs = "".join(f", float[] {n}" for n in further.split())
    proto = net(
        "(float[3,4] x, float[3,3] z, float[3,4] zt, float[4,3] u, float[4] v4, int64[3,4] xi, "
        f"bool c, float[3] fed, float[4,3] fedw) => (float[] y{outputs}) {{ {text} }}"
        '<domain: "f", opset_import: ["" : 17]> Add (a, b) => (r) { r = Sub(a, b) }'
        '<domain: "f", opset_import: ["" : 17]> MatMul (a, b) => (r) { q = MatMul(a, b) r = Neg(q) }',
        EXTRA,
        domains={"f": 1},
    )
    proto.graph.output[0].CopyFrom(helper.make_empty_tensor_value_info("y"))
    return proto


@pytest.mark.parametrize("kind", SPLIT)
def test_what_is_no_row_of_constants_or_read_elsewhere_stays_out(kind: str) -> None:
    """The product is a unit by itself; the next node is one of its own; the numbers are right."""
    text, product, further = SPLIT[kind]
    proto = with_extras(text, further)
    made = [u for u in units(proto) if u.kind == LINEAR]
    assert [u.outputs for u in made] == [(product,)]
    assert all(len(u.nodes) == 1 for u in made)
    fed = feeds(proto)
    assert check(analysed(proto), every_value(proto, fed)) == 1


@pytest.mark.parametrize("kind", REJECTED)
def test_what_is_no_linear_map_of_constants_is_none(kind: str) -> None:
    """Turned inputs, other biases, weights that are fed, computed, of other ranks or whole numbers."""
    proto = with_extras(REJECTED[kind])
    assert LINEAR not in {u.kind for u in units(proto)}
    if kind != "gemm, whole numbers":  # ONNX Runtime has none
        assert "y" in every_value(proto, feeds(proto))


def test_a_norm_in_training_is_a_unit_of_its_own() -> None:
    """Up to opset 13 a norm trains if it has further outputs, from 14 on if it says so."""
    proto = net(
        "(float[N,4] x) => (float[] y) "
        "{ p = MatMul(x, w) y, n, o, q, r = BatchNormalization(p, g, h, m, v) }",
        WEIGHTS,
        opset=9,
    )
    assert [u.kind for u in units(proto)] == [LINEAR, "BatchNormalization"]
    proto = net(
        "(float[N,4] x) => (float[] y) "
        "{ p = MatMul(x, w) y = BatchNormalization<training_mode=1>(p, g, h, m, v) }",
        WEIGHTS,
    )
    assert [u.kind for u in units(proto)] == [LINEAR, "BatchNormalization"]


def test_a_product_known_by_two_names_is_read_twice() -> None:
    """Two equal MatMul, two biases: neither Add may take in the product that the other needs, too.

    Every value that a unit reads is an input, an initializer, or made by some unit.
    """
    proto = net(
        "(float[N,4] x) => (float[] y, float[] z) "
        "{ p = MatMul(x, w) q = MatMul(x, w) y = Add(p, b) z = Add(q, b13) }",
        WEIGHTS,
    )
    circuit = analysed(proto).circuit
    assert {o for u in circuit.units for o in u.operands if isinstance(o, str)} <= {
        "x",
        *circuit.maker,
    }


# -- the cut into units --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_units_partition_the_live_nodes(name: str) -> None:
    """Every live node is in exactly one unit, unless it makes constants or other names alone."""
    analysis = studied(name)
    graph, values, circuit = analysis.graph, analysis.values, analysis.circuit
    seen = [k for unit in circuit.units for k in unit.nodes]
    assert len(seen) == len(set(seen))
    for k, node in enumerate(graph.nodes):
        renamed = all(
            o in values.constants or (o in values.canon and o not in values.undone)
            for o in node.output
            if o
        )
        assert (k in seen) == (graph.live[k] and not renamed)
    assert [u.number for u in circuit.units] == list(range(len(circuit.units)))


@pytest.mark.parametrize("name", MODELS)
def test_the_circuit_is_closed(name: str) -> None:
    """Every value that a unit reads is made by a unit, or comes from outside; by its first name."""
    analysis = studied(name)
    circuit, proto = analysis.circuit, model(name).graph
    outside = {v.name for v in proto.input} | {t.name for t in proto.initializer}
    outside |= {o for n in proto.node if n.op_type == "Constant" for o in n.output}
    for unit in circuit.units:
        for operand in unit.operands:
            if isinstance(operand, str):
                assert operand in outside or operand in circuit.maker
                assert analysis.values.first(operand) == operand
                assert operand not in analysis.values.constants


@pytest.mark.parametrize("name", MODELS)
def test_units_wait_for_what_their_nodes_wait_for(name: str) -> None:
    """Predecessors come before, and lead back to every unit that a unit's nodes depend on."""
    circuit = studied(name).circuit
    graph = circuit.graph
    above: list[set[int]] = []
    for unit, before in zip(circuit.units, circuit.preds, strict=True):
        assert all(p < unit.number for p in before)
        assert list(before) == sorted(set(before))
        above.append(set(before).union(*(above[p] for p in before)))
    behind: list[set[int]] = []  # by node: the units that it depends on
    for k in range(len(graph.nodes)):
        found: set[int] = set()
        for p in graph.preds[k]:
            found |= behind[p]
            if p in circuit.unit_of:
                found.add(circuit.unit_of[p].number)
        behind.append(found)
        if k in circuit.unit_of:
            unit = circuit.unit_of[k]
            assert found - {unit.number} <= above[unit.number]


def test_defaults_are_filled_in() -> None:
    """An attribute that is left out, or written as its default, gives units that look alike."""
    proto = net(
        "(float[N,4] x, float[N,4] z) => (float[] y) "
        "{ a = LeakyRelu(x) b = LeakyRelu<alpha=0.01>(z) y = Add(a, b) }"
    )
    first, second, _ = units(proto)
    assert first.attributes == second.attributes
    assert dict(first.attributes) == {"alpha": np.float32(0.01)}


def test_commuting_operands_stand_in_one_order() -> None:
    """The constant of Add, Mul and their like comes second, whichever way the file has it."""
    proto = net(
        "(float[N,3] x) => (float[] y) { p = Mul(b, x) q = Mul(x, b) r = Sub(b, x) s = Sub(x, b) "
        "y = Sum(p, q, r, s) }",
        WEIGHTS,
    )
    kinds = [[isinstance(o, Const) for o in u.operands] for u in units(proto)]
    assert kinds == [[False, True], [False, True], [True, False], [False, True], [False] * 4]


# -- rows and norms --------------------------------------------------------------------------------------

ROWS: list[tuple[tuple[int, ...], int, bool]] = [
    ((3,), 3, True),
    ((1, 3), 3, True),
    ((1, 1, 3), 3, True),
    ((1,), 3, True),
    ((), 3, True),
    ((1, 1), 3, True),
    ((3, 1), 3, False),
    ((3, 3), 3, False),
    ((2,), 3, False),
    ((3,), 1, False),
    ((1,), 1, True),
    ((0,), 3, False),
    ((1, 0), 3, False),
]


@pytest.mark.parametrize(("shape", "width", "is_row"), ROWS)
def test_a_row_is_what_every_row_of_a_matrix_gets(
    shape: tuple[int, ...], width: int, is_row: bool
) -> None:
    """Exactly the constants that, added to [2, width], add one row of that width to both rows."""
    const = from_array(numbers(*shape), TensorProto.FLOAT)
    found = row(const, width)
    assert (found is not None) == is_row
    if found is not None:
        zeros = np.zeros((2, width), np.float32)
        assert found.shape == (width,)
        np.testing.assert_array_equal((zeros + const.load()).reshape(-1, width)[0], found.load())


@pytest.mark.parametrize("epsilon", [1e-5, 0.5])
def test_an_affine_norm_is_a_scale_and_a_shift(epsilon: float) -> None:
    """With a = scale / sqrt(var + epsilon) and b = B - mean * a: x * a + b, in the type of the scale."""
    parts = [from_array(NORM[n], TensorProto.FLOAT) for n in "ghmv"]
    scale, shift = (np.asarray(c.load()) for c in affine(parts, epsilon))
    assert scale.dtype == shift.dtype == np.float32
    x = numbers(5, 3)
    expected = (x - NORM["m"]) / np.sqrt(NORM["v"] + epsilon) * NORM["g"] + NORM["h"]
    np.testing.assert_allclose(x * scale + shift, expected, rtol=1e-5, atol=1e-6)
    again = affine(parts, epsilon)
    other = affine(parts, epsilon * 2)
    assert [c.key for c in again] == [c.key for c in affine(parts, epsilon)]
    assert not {c.key for c in again} & {c.key for c in other}


WINDOWS = {
    "Conv": ("Conv{}(x, w@)", "kernel_shape=[3,3]|strides=[1,1]|pads=[0,0,0,0]|dilations=[1,1]"),
    "ConvTranspose": ("ConvTranspose{}(x, w@)", "kernel_shape=[3,3]|strides=[1,1]|pads=[0,0,0,0]"),
    "MaxPool": ("MaxPool{}(x)", "kernel_shape=[3,3]|strides=[1,1]|pads=[0,0,0,0]|dilations=[1,1]"),
    "AveragePool": ("AveragePool{}(x)", "kernel_shape=[3,3]|strides=[1,1]|pads=[0,0,0,0]"),
}


@pytest.mark.parametrize("kind", WINDOWS)
def test_windows_are_alike_however_much_of_them_is_spelled_out(kind: str) -> None:
    """What an attribute would be if it were left out is no difference; anything else is one."""
    call, spelled = WINDOWS[kind]
    parts = spelled.split("|")
    needed = parts[:1] if kind.endswith("Pool") else []
    variants = [needed, *([*needed, p] for p in parts[len(needed) :]), parts, [*needed, "other"]]
    other = {"other": "strides=[2,2]"}
    lines = []
    for k, chosen in enumerate(variants):
        attributes = ", ".join(other.get(a, a) for a in chosen)
        made = call.format(f"<{attributes}>" if attributes else "").replace("@", str(k))
        lines.append(f"y{k} = {made}")
    weights = {f"w{k}": numbers(4, 4, 3, 3, seed=k) for k in range(len(lines))}
    outputs = ", ".join(f"float[] y{k}" for k in range(len(lines)))
    read = weights if "w@" in call else {}
    text = f"(float[N,4,9,9] x) => ({outputs}) {{ {' '.join(lines)} }}"
    units = analysed(net(text, read, opset=17)).circuit.units
    attributes_of = [u.attributes for u in units if u.kind == kind]
    # Equal pools of one value are one pool.
    assert len(set(attributes_of)) == 2
    assert attributes_of[-1] not in attributes_of[:-1]
