"""Linear maps put together with what follows them: the same values, the same rows that are not finite."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import ArrayLike
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator

import onnx_sched
from onnx_sched import pipeline
from onnx_sched.circuit import SEVERAL
from onnx_sched.errors import UsageError
from onnx_sched.levelling import best_groups
from onnx_sched.options import Options
from onnx_sched.passes.affine import COORDINATES, MODES, affine
from onnx_sched.passes.compose import FORMS, composed, ends
from onnx_sched.passes.rewrite import MEMBERS
from onnx_sched.passes.rules import BY_DOMAIN
from onnx_sched.plan_file import to_json
from onnx_sched.variants import SEPARATE, choices, formed, forms, kind_key
from tests.nets import analysed, ints, name_nodes, net, numbers
from tests.rule_examples import IR, Runs, all_made, compare, with_ranks

LANES = 3
WIDTH = 4

NORM = "n@ = LayerNormalization(e@, s@, t@) y@ = Relu(n@)"
LERP = (
    "l@ = Gather<axis=-1>({x}, low) h@ = Gather<axis=-1>({x}, high) d@ = Sub(h@, l@) "
    "w@ = Mul(d@, part) i@ = Add(l@, w@) "
)
GATE = "f@ = Mul(i@, g@) e@ = Mul(f@, two) "


@dataclass(frozen=True)
class Chain:
    """A body after a linear map `a@` of WIDTH features, and the op types that composing does away with."""

    body: str
    gone: tuple[str, ...]
    opset: int = 18
    rank: int = 2


CHAINS: Mapping[str, Chain] = {
    "interpolated": Chain(LERP.format(x="a@") + GATE, ("Gather", "Sub")),
    "interpolated stacks": Chain(LERP.format(x="a@") + GATE, ("Gather", "Sub"), rank=3),
    "features in front": Chain(
        "v@ = Unsqueeze(a@, one) z@ = Transpose<perm=[2, 0, 1]>(v@) "
        "first@ = GatherND(z@, lows) next@ = GatherND(z@, highs) "
        "l@ = Transpose<perm=[1, 2, 0]>(first@) h@ = Transpose<perm=[1, 2, 0]>(next@) "
        "d@ = Sub(h@, l@) w@ = Mul(d@, part) j@ = Add(l@, w@) i@ = Squeeze(j@, one) " + GATE,
        ("GatherND", "Sub"),
    ),
    "resized": Chain(
        'v@ = Unsqueeze(a@, one) r@ = Resize<mode="linear", '
        'coordinate_transformation_mode="align_corners">(v@, , doubled) i@ = Squeeze(r@, one) '
        + GATE,
        ("Resize",),
    ),
    "rows put together": Chain(
        "k@ = Reshape(a@, rows) v@ = Unsqueeze(k@, one) "
        'r@ = Resize<mode="nearest">(v@, , doubled) c@ = Squeeze(r@, one) '
        "i@ = Reshape(c@, stacks) " + GATE,
        ("Resize",),
        rank=3,
    ),
    "all of arithmetic": Chain(
        LERP.format(x="a@")
        + "b@ = Neg(i@) c@ = Add(o@, b@) k@ = Sub(c@, o) q@ = Sub(o, k@) r@ = Div(q@, g@) "
        "j@ = Add(r@, i@) e@ = Sub(j@, one_each) ",
        ("Gather", "Neg", "Div"),
    ),
    "ended by a view": Chain(
        'v@ = Unsqueeze(a@, one) r@ = Resize<mode="linear">(v@, , doubled) e@ = Squeeze(r@, one) ',
        ("Resize",),
    ),
    "no map before it": Chain(
        "k@ = Relu(a@) " + LERP.format(x="k@") + GATE,
        ("Gather", "Sub"),
    ),
}


def build(chain: Chain, after: str = NORM, outputs: str = "y") -> ModelProto:
    """Lanes split off one input: a linear map, a chain, a norm."""
    axis = chain.rank - 1
    lines = [f"p0, p1, p2 = Split<axis={axis}>(x, thirds)"]
    for k in range(LANES):
        body = f"m@ = MatMul(p@, weight@) a@ = Add(m@, bias@) {chain.body} {after}"
        lines.append(body.replace("@", str(k)))
    lines.append(f"y = Concat<axis={axis}>(y0, y1, y2)")
    low, high = np.array([0, 0, 1, 1, 2, 2, 3, 3]), np.array([0, 1, 1, 2, 2, 3, -1, 0])
    weights: dict[str, ArrayLike] = {
        "thirds": ints(2, 2, 2),
        "one": ints(1),
        "low": low,
        "high": high,
        "lows": low[:, None],
        "highs": np.abs(high)[:, None],
        "part": np.linspace(0.1, 0.9, 8, dtype=np.float32),
        "two": np.float32(2),
        "o": np.float32(0.5),
        "one_each": np.ones((1, 8), np.float32),
        "some": np.array([0, 0, 1, 1, 2, 2, 2, 2]),
        "doubled": np.array([1, 1, 2], np.float32),
        "rows": ints(-1, WIDTH),
        "stacks": ints(-1, 5, 2 * WIDTH),
        "cut": ints(3, 5),
    }
    for k in range(LANES):
        weights |= {
            f"weight{k}": numbers(2, WIDTH, seed=k),
            f"bias{k}": numbers(WIDTH, seed=10 + k),
            f"g{k}": np.abs(numbers(8, seed=20 + k)) + np.float32(0.5),
            f"o{k}": numbers(8, seed=30 + k),
            f"s{k}": numbers(8, seed=40 + k),
            f"t{k}": numbers(8, seed=50 + k),
            f"u{k}": numbers(WIDTH, 8, seed=60 + k),
            f"shift{k}": numbers(8, seed=70 + k),
        }
    text = " ".join(lines)
    words = set(text.replace(",", " ").replace("(", " ").replace(")", " ").split())
    read = {n: v for n, v in weights.items() if n in words}
    rows = "N, 5, 6" if chain.rank == 3 else "N, 6"
    declared = ", ".join(f"float[] {name}" for name in outputs.split())
    made_ = net(
        f"(float[{rows}] x) => ({declared}) {{ {text} }}",
        read,
        opset=chain.opset,
        ir=IR[chain.opset],
    )
    return with_ranks(name_nodes(made_))


def composing(model: ModelProto, form: str, every: bool = True) -> ModelProto:
    """All that is legal batched, what can be composed in a form; linear maps in it, too, if asked."""
    analysis = analysed(model)
    _, groups = best_groups(analysis.circuit, lambda unit: False)
    groups = tuple(
        replace(g, form=form)
        if form in forms(g, analysis.circuit) and (every or composed(analysis.circuit, g))
        else g
        for g in groups
    )
    return all_made(model, analysis, groups)


def kinds(model: ModelProto) -> Counter[str]:
    """How many nodes of each op type a model has."""
    return Counter(node.op_type for node in model.graph.node)


@pytest.mark.parametrize("every", [True, False], ids=["all maps", "these alone"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_before_a_norm_is_one_map(name: str, form: str, every: bool) -> None:
    """Its nodes are gone, and the values are the same at every batch size."""
    model = build(CHAINS[name])
    new = composing(model, form, every)
    assert not set(CHAINS[name].gone) & set(kinds(new))
    assert compare(model, new, *({"N": n} for n in (1, 3, 0)), tolerance=2e-4) == 3


@pytest.mark.parametrize("name", CHAINS)
def test_it_is_a_choice(name: str) -> None:
    """Left alone, the chain keeps its spelling; the choice is offered, and taken only where it is made."""
    model = build(CHAINS[name])
    circuit = analysed(model).circuit
    _, groups = best_groups(circuit, lambda unit: False)
    ends = [g for g in groups if composed(circuit, g)]
    assert [g.size for g in ends] == [LANES]
    assert ends[0].form not in FORMS
    assert set(CHAINS[name].gone) & set(kinds(composing(model, "")))
    assert set(FORMS) <= set(choices(groups, circuit)[kind_key(ends[0], circuit)])
    changed = formed(groups, {kind_key(ends[0], circuit): "conv_t"}, circuit)
    assert [a.units[0].number for a, b in zip(changed, groups, strict=True) if a != b] == [
        ends[0].units[0].number
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CHAINS)
def test_rows_that_are_not_finite_stay_by_themselves(name: str, form: str) -> None:
    """What a norm makes of one is the same before and after, in every place."""
    chain = CHAINS[name]
    model = build(chain)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((7, 5, 6) if chain.rank == 3 else (7, 6)).astype(np.float32)
    for row, bad in enumerate((np.nan, np.inf, -np.inf)):
        x[row, ..., row] = bad
    # By the standard: where ONNX Runtime resizes, it reads the next row, too, times zero.
    with np.errstate(invalid="ignore", over="ignore"):
        outputs: Any = ReferenceEvaluator(model).run(["y"], {"x": x})
        want = outputs[0]
    got = Runs(composing(model, form))({"x": x})["y"]
    assert np.isnan(want).any()
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


LEFT: Mapping[str, tuple[Chain, str, str]] = {
    "a norm that knows no mean": (
        replace(CHAINS["interpolated"], opset=23),
        "n@ = RMSNormalization(e@, s@) y@ = Relu(n@)",
        "y",
    ),
    "no norm": (CHAINS["interpolated"], "y@ = Relu(e@)", "y"),
    "another reader": (CHAINS["interpolated"], NORM + " y@ = Add(n@, e@)".replace("y@", "z@"), "y"),
    "an output": (CHAINS["interpolated"], NORM, "y e1"),
    "two norms": (
        replace(CHAINS["interpolated"], opset=23),
        "q@ = RMSNormalization(e@, s@) n@ = LayerNormalization(e@, s@, t@) r@ = Add(q@, n@) "
        "y@ = Relu(r@)",
        "y",
    ),
    "rows in another order": (
        Chain(
            "k@ = Transpose<perm=[1, 0, 2]>(a@) l@ = Gather<axis=-1>(k@, low) "
            "i@ = Reshape(l@, stacks) " + GATE,
            (),
            rank=3,
        ),
        NORM,
        "y",
    ),
    "two sources": (
        Chain("k@ = Relu(a@) " + LERP.format(x="a@").replace("(a@, high", "(k@, high") + GATE, ()),
        NORM,
        "y",
    ),
    "a feature that nobody reads": (
        Chain("k@ = Relu(a@) i@ = Gather<axis=-1>(k@, some) " + GATE, ()),
        NORM,
        "y",
    ),
    "a product of two": (
        Chain(LERP.format(x="a@") + "f@ = Mul(i@, l@) e@ = Mul(f@, two) ", ()),
        NORM,
        "y",
    ),
    "divided by a feature": (
        Chain(LERP.format(x="a@") + "e@ = Div(o@, i@) ", ()),
        NORM,
        "y",
    ),
}


@pytest.mark.parametrize("why", LEFT)
def test_what_would_not_be_the_same_is_left_alone(why: str) -> None:
    """No other norm, no other reader, no second source, no feature that is left out."""
    chain, after, outputs = LEFT[why]
    model = build(chain, after, outputs)
    circuit = analysed(model).circuit
    _, groups = best_groups(circuit, lambda unit: False)
    assert any(g.kind == "Relu" and g.size == LANES for g in groups)
    assert not any(composed(circuit, g) for g in groups)


SPLIT = "q@ = MatMul(a@, u@) r@ = Add(q@, shift@) v@, z@ = Split<axis=-1>(r@, cut) "
MEET = "e@ = Concat<axis=-1>(z@, v@) "
SPLIT_GATE = SPLIT + MEET

EXTREMES: Mapping[str, tuple[str, str, float]] = {
    "a bias that is no number": ("", "bias1", np.nan),
    "an infinite bias": ("", "bias1", np.inf),
    "a weight that is no number": ("", "weight1", np.nan),
    "a product beyond the largest number": ("c@ = Mul(i@, two) e@ = Mul(c@, two)", "two", 1e25),
    "numbers that vanish": ("c@ = Mul(i@, two) e@ = Mul(c@, two)", "two", 1e-25),
    "a shift that is taken back": ("c@ = Add(i@, two) e@ = Sub(c@, two)", "two", 1e6),
}


@pytest.mark.parametrize("why", EXTREMES)
def test_numbers_that_would_round_or_overflow_elsewhere_are_left_alone(why: str) -> None:
    """No NaN, no infinity and no extremes go into a composed map, and nobody is warned of any."""
    ending, name, value = EXTREMES[why]
    model = build(Chain(LERP.format(x="a@") + (ending or GATE), ()))
    tensor = next(t for t in model.graph.initializer if t.name == name)
    array = onnx.numpy_helper.to_array(tensor).copy()
    array.reshape(-1)[-1] = value
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, name))
    circuit = analysed(model).circuit
    _, groups = best_groups(circuit, lambda unit: False)
    assert not any(composed(circuit, g) for g in groups)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tail", [GATE, SPLIT_GATE])
def test_a_lane_without_a_bias_has_a_row_of_zeros(tail: str, form: str) -> None:
    """Lanes with and without one are composed together."""
    split = tail == SPLIT_GATE
    body = tail if split else LERP.format(x="a@") + tail
    model = build(Chain(body, ()), "y@ = Relu(e@)" if split else NORM)
    (add,) = (n for n in model.graph.node if n.output[0] == ("r1" if split else "a1"))
    (product,) = (n for n in model.graph.node if n.output[0] == add.input[0])
    product.output[0] = add.output[0]
    model.graph.node.remove(add)
    circuit = analysed(model).circuit
    _, groups = best_groups(circuit, lambda unit: False)
    assert [g.size for g in groups if composed(circuit, g)] == [LANES]
    new = composing(model, form)
    assert compare(model, new, *({"N": n} for n in (1, 3, 0)), tolerance=2e-4) == 3


@pytest.mark.parametrize("form", FORMS)
def test_what_others_read_is_still_made(form: str) -> None:
    """A value in the middle of a chain that is an output of the model stays one."""
    model = build(CHAINS["interpolated"], outputs="y i1 a0")
    assert len(analysed(model).circuit.composed) == LANES
    new = composing(model, form)
    assert [o.name for o in new.graph.output] == ["y", "i1", "a0"]
    assert compare(model, new, *({"N": n} for n in (1, 3, 0)), tolerance=2e-4) == 3


@pytest.mark.parametrize("every", [True, False], ids=["all maps", "these alone"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", ["", "k@ = LayerNormalization(a@, sw@, tw@) ", "k@ = Relu(a@) "])
def test_a_split_behind_a_map_is_several_maps(before: str, form: str, every: bool) -> None:
    """Also where the map takes in the scale of a norm before it."""
    body = before + SPLIT.replace("a@", "k@" if before else "a@") + MEET
    model = build(Chain(body.replace("sw@", "bias@").replace("tw@", "bias@"), ()), "y@ = Relu(e@)")
    circuit = analysed(model).circuit
    assert {u.kind for u in circuit.composed.values()} == {SEVERAL}
    new = composing(model, form, every)
    first = "p0"  # the Split of the input is left
    assert all("v" not in o for n in new.graph.node if n.op_type == "Split" for o in n.output), (
        first
    )
    assert compare(model, new, *({"N": n} for n in (1, 3, 0)), tolerance=2e-4) == 3
    x = numbers(5, 6, seed=3)
    x[1, 2], x[2, 0] = np.inf, np.nan
    want, got = Runs(model)({"x": x})["y"], Runs(new)({"x": x})["y"]
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


def test_the_map_before_a_split_is_not_left_to_itself() -> None:
    """What is part of composed maps is no group that could stay; the report says where it went."""
    model = build(Chain(SPLIT + MEET, ()), "y@ = Relu(e@)")
    circuit = analysed(model).circuit
    _, groups = best_groups(circuit, lambda unit: False)
    split = next(g for g in groups if composed(circuit, g))
    made_by = split.units[0].operands[0]
    before = next(g for g in groups if g.units[0].outputs[0] == made_by)
    keys = {kind_key(before, circuit): SEPARATE}
    assert before not in formed(groups, keys, circuit)
    changed = formed(groups, keys | {kind_key(split, circuit): "conv_t"}, circuit)
    assert [g.units for g in changed] == [g.units for g in groups]
    assert {groups[a].kind: groups[b].kind for a, b in ends(circuit, changed).items()} == {
        "Linear": "Split"
    }


@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("where", sorted(COORDINATES))
@pytest.mark.parametrize(("width", "by"), [(8, 4.0), (4, 1.5), (6, 0.5), (5, 3.0), (16, 0.25)])
def test_the_matrix_of_a_resize_is_what_the_runtime_does(
    mode: bytes, where: bytes, width: int, by: float
) -> None:
    """ONNX's reference gives the numbers, ONNX Runtime is what runs the original."""
    text = (
        f"(float[N, {width}] x) => (float[] y) {{ v = Unsqueeze(x, one) "
        f'r = Resize<mode="{mode.decode()}", coordinate_transformation_mode="{where.decode()}">'
        "(v, , by) e = Squeeze(r, one) y = Mul(e, two) }"
    )
    weights: dict[str, ArrayLike] = {
        "one": ints(1),
        "by": np.array([1, 1, by], np.float32),
        "two": np.float32(2),
    }
    model = with_ranks(net(text, weights, opset=18))
    found = affine(analysed(model).circuit, "y")
    assert found is not None
    assert found.root == "x"
    x = numbers(3, width)
    want = Runs(model)({"x": x})["y"]
    np.testing.assert_allclose(x @ found.linear + found.shift, want, rtol=1e-5, atol=1e-5)


def test_the_new_nodes_say_what_they_stand_for() -> None:
    """The note on the composed map names the chain; the plan's file carries it out again."""
    model = build(CHAINS["interpolated"])
    new = composing(model, "conv_t")
    notes = [
        p.value
        for n in new.graph.node
        if n.op_type == "Conv"
        for p in n.metadata_props
        if p.key == MEMBERS
    ]
    gathers = [n.name for n in model.graph.node if n.op_type in ("Gather", "Sub")]
    assert any(all(f'"{g}"' in note for g in gathers) for note in notes)


def test_a_plan_with_composed_maps_is_carried_out_again(tmp_path: Path) -> None:
    """Byte for byte; a form that no such group can have is refused, with its place in the file."""
    model = build(CHAINS["interpolated"])
    source, path = tmp_path / "model.onnx", tmp_path / "plan.json"
    onnx.save(model, source)
    first = onnx_sched.optimize(source, choose="always", check=False)
    data = json.loads(to_json(first.plan, nonempty=False))
    ends = {u.outputs[0] for u in analysed(model).circuit.composed.values()}
    (row,) = [r for r in data["groups"] if set(r["members"]) <= ends]
    row["form"] = "conv_t"
    path.write_text(json.dumps(data))
    made_once = pipeline.optimize(source, Options(plan=path))
    assert not {"Gather", "Sub"} & set(kinds(made_once.proto))
    path.write_text(to_json(made_once.plan, nonempty=False))
    again = pipeline.optimize(source, Options(plan=path))
    assert again.proto.SerializeToString() == made_once.proto.SerializeToString()
    row["form"] = "wide"
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match="can only have apart, conv_t"):
        pipeline.optimize(source, Options(plan=path))


def test_no_op_of_a_file_is_called_so() -> None:
    """The row of the table is reached by composing alone."""
    assert SEVERAL in BY_DOMAIN[""]
    with pytest.raises(onnx.defs.SchemaError):
        onnx.defs.get_schema(SEVERAL)
