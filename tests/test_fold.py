"""What a norm scales and shifts per lane moves into the maps behind it, its mean into those before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import ArrayLike
from onnx import ModelProto

from onnx_sched.circuit import LINEAR
from onnx_sched.constants import from_array
from onnx_sched.levelling import best_groups
from onnx_sched.passes.fold import CENTRED, fold_centres, fold_norms, ones_like
from tests.nets import analysed, ints, name_nodes, net, numbers
from tests.rule_examples import IR, LANES, carried_out, compare, with_ranks

NORM = "n@ = LayerNormalization<epsilon=0.01>(a@, g@, h@) "
MAP = "y@ = MatMul(n@, u@)"


def build(
    body: str,
    outputs: str = "y",
    rows: str = "float[N,12]",
    opset: int = 21,
    axis: int = -1,
    more: Mapping[str, ArrayLike] | None = None,
) -> ModelProto:
    """Three lanes: a map, then the body, which may read more weights; `y@` of all lanes are joined."""
    lines = [f"p0, p1, p2 = Split<axis={axis}>(x, thirds)"]
    lines += [f"a{k} = Gemm(p{k}, w{k}, c{k})" for k in range(LANES)]
    if rows.count(",") > 1:
        lines[1:] = [f"m{k} = MatMul(p{k}, w{k}) a{k} = Add(m{k}, c{k})" for k in range(LANES)]
    lines += [body.replace("@", str(k)) for k in range(LANES)]
    lines.append(f"y = Concat<axis={axis}>(y0, y1, y2)")
    weights: dict[str, ArrayLike] = {"thirds": ints(4, 4, 4), "g": np.abs(numbers(4)) + 0.5}
    weights["h"] = numbers(4, seed=3)
    for k in range(LANES):
        weights |= {
            f"w{k}": numbers(4, 4, seed=k),
            f"c{k}": numbers(4, seed=10 + k),
            f"g{k}": np.abs(numbers(4, seed=20 + k)) + 0.5,
            f"h{k}": numbers(4, seed=30 + k),
            f"u{k}": numbers(4, 3, seed=40 + k),
            f"v{k}": numbers(4, 5, seed=50 + k),
            f"d{k}": numbers(3, seed=60 + k),
        }
    weights |= more or {}
    read = {n: v for n, v in weights.items() if n in " ".join(lines)}
    declared = ", ".join(f"float[] {name}" for name in outputs.split())
    text = f"({rows} x) => ({declared}) {{ {' '.join(lines)} }}"
    return with_ranks(name_nodes(net(text, read, opset=opset, ir=IR[opset])))


def kinds(model: ModelProto) -> Counter[str]:
    """How many nodes of each op type a model has."""
    return Counter(node.op_type for node in model.graph.node)


FOLDED: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "scale and shift": (NORM + MAP, {"Mul": 0, "Add": 2}),
    "with a bias": (NORM + "y@ = Gemm(n@, u@, d@)", {"Mul": 0, "Add": 2}),
    "scale alone": ("n@ = LayerNormalization(a@, g@) " + MAP, {"Mul": 0, "Add": 1}),
    "own scale, one shift": ("n@ = LayerNormalization(a@, g@, h) " + MAP, {"Mul": 0, "Add": 2}),
    "two maps": (
        NORM + "r@ = MatMul(n@, u@) s@ = MatMul(n@, v@) y@ = Concat<axis=1>(r@, s@)",
        {"Mul": 0},
    ),
    "no centre": ("n@ = RMSNormalization(a@, g@) " + MAP, {"Mul": 0, "Add": 1}),
}
KEPT: Mapping[str, tuple[str, str, Mapping[str, int]]] = {
    "read elsewhere": (NORM + "r@ = MatMul(n@, w@) y@ = Add(r@, n@)", "y", {"Mul": 1}),
    "an output": (NORM + MAP, "y n1", {"Mul": 1}),
    "another reader": (NORM + "r@ = Relu(n@) y@ = MatMul(r@, u@)", "y", {"Mul": 1}),
    "equal scales": (NORM.replace("g@", "g").replace("h@", "h") + MAP, "y", {"Mul": 0, "Add": 1}),
    "another axis": (
        "n@ = LayerNormalization<axis=0>(p@, w@) y@ = MatMul(n@, u@)",
        "y",
        {"LayerNormalization": 1, "Mul": 1},
    ),
}


@pytest.mark.parametrize("what", FOLDED)
def test_scale_and_shift_move_into_the_maps_behind(what: str) -> None:
    """Linear(Norm(x, g_i, h_i), W_i, b_i)  ==>  Linear(Norm(x, 1), g_i * W_i, b_i + h_i W_i)."""
    body, after = FOLDED[what]
    model = build(body, opset=23 if "RMS" in body else 21)
    outcome = carried_out(model)
    found = kinds(outcome.model)
    assert {kind: found[kind] for kind in after} == after
    assert compare(model, outcome.model, {"N": 3}, {"N": 1}, {"N": 0}) == 3


@pytest.mark.parametrize("what", KEPT)
def test_what_others_read_keeps_its_scale(what: str) -> None:
    """Scales stay with a norm that somebody else reads, that covers other axes, or that lanes share."""
    body, outputs, after = KEPT[what]
    rows = "float[4,12]" if "axis=0" in body else "float[N,12]"
    model = build(body, outputs, rows)
    outcome = carried_out(model)
    found = kinds(outcome.model)
    assert {kind: found[kind] for kind in after} == after
    assert compare(model, outcome.model, {"N": 3}, {"N": 1}) == 2


def test_folding_changes_no_group_but_norms_and_the_maps_behind_them() -> None:
    """Members, forms, levels and regions stay; a folded norm has scales of one, and no shift."""
    circuit = analysed(build(NORM + MAP)).circuit
    _, groups = best_groups(circuit, lambda unit: False)
    folded = fold_norms(circuit, groups)
    for old, new in zip(groups, folded, strict=True):
        assert (old.form, old.level, old.region) == (new.form, new.level, new.region)
        assert [u.number for u in old.units] == [u.number for u in new.units]
        assert [u.outputs for u in old.units] == [u.outputs for u in new.units]
    norm = next(g for g in folded if g.kind == "LayerNormalization")
    for unit in norm.units:
        scale = unit.operands[1]
        assert not isinstance(scale, str | None)
        assert (scale.load() == 1).all()
        assert unit.operands[2] is None
    first, behind = (g for g in folded if g.kind == LINEAR)
    assert [u.operands for u in first.units] == [
        u.operands for u in next(g for g in groups if g.kind == LINEAR).units
    ]
    assert all(u.operands[2] is not None for u in behind.units)


@pytest.mark.parametrize("rows", ["float[N,12]", "float[N,5,12]"])
@pytest.mark.parametrize("nonempty", [False, True])
@pytest.mark.parametrize("kind", ["LayerNormalization", "RMSNormalization"])
def test_a_norm_over_columns_gives_what_the_norm_gives(
    kind: str, nonempty: bool, rows: str
) -> None:
    """With rows innermost a norm runs as averages; where the map before centres, no mean is taken."""
    body = "n@ = " + kind + "<epsilon=0.01>(a@, g@) y@ = MatMul(n@, u@)"
    model = build(body, rows=rows, opset=23)
    outcome = carried_out(model, "conv_t", kinds=(LINEAR, kind), nonempty=nonempty)
    assert not outcome.refusals
    found = kinds(outcome.model)
    assert found[kind] == 0
    assert found["Conv"] == 2
    assert found["ReduceMean"] == 1
    assert found["Sub"] == 0
    sizes = ({"N": 3}, {"N": 1}) if nonempty else ({"N": 3}, {"N": 1}, {"N": 0})
    assert compare(model, outcome.model, *sizes) == len(sizes)


UNCENTRED = {
    "map read elsewhere": ("n@ = LayerNormalization(a@, g@, h@) y@ = Add(n@, a@)", "y"),
    "map is an output": (NORM + "y@ = Relu(n@)", "y a1"),
    "no map before": (NORM.replace("a@", "b@") + "y@ = Relu(n@)", "y"),
}


@pytest.mark.parametrize("what", UNCENTRED)
def test_a_mean_is_taken_where_no_map_can_do_it(what: str) -> None:
    """A map whose result others read stays as it is; the norm behind it takes the mean itself."""
    body, outputs = UNCENTRED[what]
    if "b@" in body:
        body = "b@ = Sigmoid(a@) " + body
    model = build(body, outputs)
    outcome = carried_out(model, "conv_t", kinds=(LINEAR, "LayerNormalization"))
    found = kinds(outcome.model)
    assert (found["LayerNormalization"], found["ReduceMean"], found["Sub"]) == (0, 2, 1)
    assert compare(model, outcome.model, {"N": 3}, {"N": 1}, {"N": 0}) == 3


def test_a_centred_map_has_mean_zero() -> None:
    """Linear(x, W, b) - mean  ==>  Linear(x, W - mean(W), b - mean(b)): every row of it sums to nothing."""
    circuit = analysed(build(NORM + "y@ = Relu(n@)")).circuit
    _, groups = best_groups(circuit, lambda unit: False)
    columns = [replace(g, form="conv_t") if g.kind != "Relu" else g for g in groups]
    changed = fold_centres(circuit, columns)
    maps = next(g for g in changed if g.kind == LINEAR)
    for unit in maps.units:
        for operand in unit.operands[1:]:
            assert not isinstance(operand, str | None)
            np.testing.assert_allclose(operand.load().sum(axis=-1), 0, atol=1e-6)
    norms = next(g for g in changed if g.kind == "LayerNormalization")
    assert all(u.attribute(CENTRED) == 1 for u in norms.units)
    assert fold_centres(circuit, groups) == groups


def test_ones_keep_shape_and_type() -> None:
    """A bare scale is ones in the shape and element type of the one it stands for."""
    like = from_array(numbers(3, dtype=np.float64), 11)
    ones = ones_like(like)
    assert (ones.shape, ones.elem_type) == ((3,), 11)
    assert ones.load().dtype == np.float64
    assert (ones.load() == 1).all()
    assert ones.key == ones_like(from_array(numbers(3, seed=4, dtype=np.float64), 11)).key
