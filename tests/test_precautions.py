"""Precautions that no other test sees fail: with one of them switched off, a test here goes red.

`scripts/mutate.py` switches them off one at a time.  Each model is small, and what is made of it gives what
the model gives, ONNX Runtime's own optimizations left off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import ArrayLike
from onnx import ModelProto

from onnx_sched.circuit import LINEAR
from onnx_sched.levelling import best_groups
from onnx_sched.levels import foata
from onnx_sched.passes.rules import rule_for
from onnx_sched.plan import Refusal
from onnx_sched.planner import made
from onnx_sched.signature import signature
from onnx_sched.sums import reductions
from tests.nets import analysed, feeds, ints, name_nodes, net, numbers, run
from tests.rule_examples import Outcome, carried_out, compare, with_ranks

MAPS = "p0, p1 = Split<axis=1>(x) a0 = MatMul(p0, w0) a1 = MatMul(p1, w1) "
"""Two lanes of shape [N, 4]."""

WEIGHTS: Mapping[str, ArrayLike] = {
    **{f"w{k}": numbers(4, 4, seed=k) for k in range(2)},
    **{f"u{k}": numbers(4, 3, seed=10 + k) for k in range(2)},
    **{f"g{k}": np.abs(numbers(4, seed=20 + k)) + np.float32(0.5) for k in range(2)},
    **{f"h{k}": numbers(4, seed=30 + k) for k in range(2)},
}


def build(
    body: str,
    outputs: str,
    inputs: str = "float[N,8] x",
    weights: Mapping[str, ArrayLike] | None = None,
    opset: int = 17,
) -> ModelProto:
    """A model with the weights that its body reads, its nodes named after what they make."""
    given = {**WEIGHTS, **(weights or {})}
    read = {n: v for n, v in given.items() if any(f"{a}{n}{b}" in body for a in "( " for b in ",)")}
    declared = ", ".join(f"float[] {name}" for name in outputs.split())
    text = f"({inputs}) => ({declared}) {{ {body} }}"
    return with_ranks(name_nodes(net(text, read, opset=opset)))


def grouped(outcome: Outcome) -> list[tuple[str, int]]:
    """Kind and size of all groups."""
    return [(g.kind, g.size) for g in outcome.groups]


# -- what every later step relies on ---------------------------------------------------------------------


def test_all_that_a_unit_is_stands_in_its_signature() -> None:
    """Domain, kind, attributes, and which outputs there are, also where a type is not known."""
    circuit = analysed(build("y = Relu(x)", "y", "float[N,4] x")).circuit
    (unit,) = circuit.units
    others = (
        replace(unit, domain="com.microsoft"),
        replace(unit, kind="Sigmoid"),
        replace(unit, attributes=(("alpha", 1.0),)),
        replace(unit, outputs=("y", "")),
        replace(unit, outputs=("y", "of a type that nobody knows")),
    )
    signs = [signature(u, circuit) for u in (unit, *others)]
    assert None not in signs
    assert len(set(signs)) == len(signs)


def test_a_unit_waits_for_whoever_makes_what_it_reads() -> None:
    """Under every name: of equal nodes the first makes the value, also for readers of the others."""
    body = "a = Relu(x) b = Exp(a) c = Relu(x) d = Exp(c) e = Neg(c) y = Sum(b, d, e)"
    circuit = analysed(build(body, "y", "float[N,4] x")).circuit
    level = foata(circuit.preds)
    reads = [
        (circuit.maker[o].number, unit.number)
        for unit in circuit.units
        for o in unit.operands
        if isinstance(o, str) and o in circuit.maker
    ]
    assert len(reads) >= 4
    assert all(level[maker] < level[reader] for maker, reader in reads)


def test_a_pool_that_rounds_up_has_no_window_in_the_padding() -> None:
    """ONNX's inference counts a window that ONNX Runtime does not: such a size is not known."""
    pool = "y = MaxPool<ceil_mode=1, kernel_shape=[2], strides=[{}], pads=[1,1]>(x)"
    for stride, known in ((3, False), (2, True)):
        text = f"(float[N,2,4] x) => (float[] y) {{ {pool.format(stride)} }}"
        model = net(text)
        shape = analysed(model).values.shape("y")
        made = run(model, feeds(model, N=3))["y"].shape
        assert shape == ("N", *made[1:]) if known else shape is None


# -- units that look alike -------------------------------------------------------------------------------

LOOKUPS = "y0 = Gather(t0, i) y1 = Gather(t1, j)"
TABLES: Mapping[str, ArrayLike] = {"t0": numbers(3, 4), "t1": numbers(3, 4, seed=1)}
KERNEL: Mapping[str, ArrayLike] = {
    "k0": numbers(4, 2, 3),
    "k1": numbers(4, 2, 3, seed=1),
    "k2": numbers(4, 2, 1),
}

APART: dict[str, tuple[str, str, Mapping[str, ArrayLike]]] = {
    "lookups by indices of other types": (LOOKUPS, "int64[N] i, int32[N] j", TABLES),
    "images of other sizes, results of one": (
        "y0 = Conv<strides=[2]>(x, k0) y1 = Conv<strides=[2]>(z, k1)",
        "float[N,2,7] x, float[N,2,8] z",
        KERNEL,
    ),
    "kernels of other sizes, results of one": (
        'y0 = Conv<auto_pad="SAME_UPPER">(x, k0) y1 = Conv<auto_pad="SAME_UPPER">(z, k2)',
        "float[N,2,7] x, float[N,2,7] z",
        KERNEL,
    ),
    "kernels of other sizes on one image": (
        'y0 = Conv<auto_pad="SAME_UPPER">(x, k0) y1 = Conv<auto_pad="SAME_UPPER">(x, k2)',
        "float[N,2,7] x",
        KERNEL,
    ),
    "other strides on one image": (
        "y0 = Conv<pads=[1,1]>(x, k0) y1 = Conv<strides=[2]>(x, k1)",
        "float[N,2,7] x",
        KERNEL,
    ),
    "groups of several filters on one image of open width": (
        "y0 = Conv<group=2>(x, k0) y1 = Conv<group=2>(x, k1)",
        "float[N,4,W] x",
        KERNEL,
    ),
}


@pytest.mark.parametrize("what", APART)
def test_units_that_look_alike_stay_apart(what: str) -> None:
    """Heavy ops of one attribute list, or of one result, that are not the same computation."""
    body, inputs, weights = APART[what]
    model = build(body, "y0 y1", inputs, weights)
    outcome = carried_out(model)
    assert grouped(outcome) == []
    assert compare(model, outcome.model, {"N": 3, "W": 7}) == 1


SEQUENCES = "t0 = Transpose<perm=[1,0,2]>(s0) t1 = Transpose<perm=[1,0,2]>(s1) "
RECURRENT: Mapping[str, ArrayLike] = {
    "W": numbers(1, 12, 4),
    "V": numbers(1, 12, 4, seed=1),
    "R": numbers(1, 12, 3),
    "B0": numbers(1, 24),
    "B1": numbers(1, 24, seed=1),
    "P0": numbers(1, 9),
    "P1": numbers(1, 9, seed=1),
}


@pytest.mark.parametrize(
    ("first", "second", "size"),
    [
        ("t0, W, R", "t1, W, R", 2),
        ("t0, W, R", "t1, V, R", 0),
        ("t0, W, R, B0", "t1, W, R, B0", 2),
        ("t0, W, R, B0", "t1, W, R, B1", 0),
        ("t0, W, R, , , , , P0", "t1, W, R, , , , , P0", 2),
        ("t0, W, R, , , , , P0", "t1, W, R, , , , , P1", 0),
    ],
)
def test_recurrences_share_all_that_they_learned(first: str, second: str, size: int) -> None:
    """One batch of two sequences: not where weights, biases or peepholes differ, of which a node has one."""
    lstm = "y{}, h{}, c{} = LSTM<hidden_size=3>({}) "
    body = SEQUENCES + lstm.format(0, 8, 0, first) + lstm.format(1, 9, 1, second)
    model = build(body, "y0 y1", "float[N,5,4] s0, float[N,5,4] s1", RECURRENT)
    outcome = carried_out(model)
    assert [n for kind, n in grouped(outcome) if kind == "LSTM"] == [size] * bool(size)
    assert compare(model, outcome.model, {"N": 2}) == 1


def test_quantised_lanes_have_one_scale_and_other_zero_points() -> None:
    """Equal scales alone do not make one QuantizeLinear of a whole tensor."""
    body = MAPS + "q0 = QuantizeLinear(a0, s, z0) q1 = QuantizeLinear(a1, s, z1) "
    body += "y0 = Cast<to=1>(q0) y1 = Cast<to=1>(q1)"
    weights: dict[str, ArrayLike] = {"s": np.float32(0.1), "z0": np.int8(1), "z1": np.int8(-9)}
    model = build(body, "y0 y1", weights=weights)
    outcome = carried_out(model)
    assert ("QuantizeLinear", 2) in grouped(outcome)
    assert compare(model, outcome.model, {"N": 3}, tolerance=1.0) == 1  # one step, at a border


def test_one_value_takes_no_slopes_of_its_own() -> None:
    """Slopes broadcast to a value, never a value to slopes: PRelu of one value stays for each lane."""
    body = "b0 = PRelu(x, h0) b1 = PRelu(x, h1) y0 = MatMul(b0, u0) y1 = MatMul(b1, u1)"
    model = build(body, "y0 y1", "float[N,4] x")
    outcome = carried_out(model)
    assert grouped(outcome) == [(LINEAR, 2)]
    assert compare(model, outcome.model, {"N": 3, "W": 7}) == 1


def test_doubles_have_no_convolution() -> None:
    """A form that the runtime has no kernel for is refused, whoever asks for it."""
    body = MAPS + "y0 = Cast<to=1>(a0) y1 = Cast<to=1>(a1)"
    for dtype, code in ((np.float64, "S104"), (np.float32, None)):
        weights = {f"w{k}": numbers(4, 4, seed=k, dtype=dtype) for k in range(2)}
        kind = "float" if dtype is np.float32 else "double"
        analysis = analysed(build(body, "y0 y1", f"{kind}[N,8] x", weights))
        _, groups = best_groups(analysis.circuit, lambda unit: False)
        for form in ("conv_t", "grouped_conv"):
            refusals: list[Refusal] = []
            asked = tuple(replace(g, form=form) if g.kind == LINEAR else g for g in groups)
            made(analysis, asked, refusals)
            assert [r.code for r in refusals] == [code] * (code is not None)


# -- what others see -------------------------------------------------------------------------------------

NORMS = "n0 = LayerNormalization(a0, g0, h0) n1 = LayerNormalization(a1, g1, h1) "


def test_a_norm_that_a_body_reads_keeps_its_scale() -> None:
    """A body is a reader like another: what it reads is the norm with its scale, not without."""
    body = MAPS + NORMS + "y0 = MatMul(n0, u0) y1 = MatMul(n1, u1) "
    body += "y2 = If (c) <then_branch = t () => (float[N,4] u) { u = Neg(n1) }, "
    body += "else_branch = e () => (float[N,4] v) { v = Exp(n1) }>"
    model = build(body, "y0 y1 y2", "float[N,8] x, bool c")
    outcome = carried_out(model)
    assert ("LayerNormalization", 2) in grouped(outcome)
    assert compare(model, outcome.model, {"N": 3, "W": 7}) == 1


def test_a_scale_moves_only_into_maps_that_are_made_anew() -> None:
    """Maps of other widths are in no group: they multiply the norm as it is."""
    body = MAPS + NORMS + "y0 = MatMul(n0, u0) y1 = MatMul(n1, v)"
    model = build(body, "y0 y1", weights={"v": numbers(4, 5)})
    outcome = carried_out(model)
    assert grouped(outcome) == [(LINEAR, 2), ("LayerNormalization", 2)]
    assert compare(model, outcome.model, {"N": 3, "W": 7}) == 1


def test_a_norm_in_training_is_refused() -> None:
    """Training is said by an attribute, also where no running mean is read."""
    text = (
        "(float[N,4] x) => (float[] y) { y = BatchNormalization<training_mode=1>(x, g, h, h, g) }"
    )
    circuit = analysed(net(text, {"g": WEIGHTS["g0"], "h": WEIGHTS["h0"]}, opset=15)).circuit
    (unit,) = circuit.units
    rule = rule_for(unit)
    assert rule is not None
    assert rule.check(unit, circuit) == "it is in training mode"


def test_what_a_training_step_sets_is_no_constant() -> None:
    """Weights that training changes stay initializers of their own: nothing is folded from them."""
    text = "(float[N,4] x) => (float[] y0, float[] y1) { y0 = MatMul(x, w0) y1 = MatMul(x, w1) }"
    model = net(text, {n: WEIGHTS[n] for n in ("w0", "w1")})
    assert analysed(model).values.constants.keys() == {"w0", "w1"}
    step = model.training_info.add()
    step.update_binding.add(key="w0", value="new_w0")
    assert analysed(model).values.constants.keys() == {"w1"}


def test_bytes_are_not_added_up_over_lanes() -> None:
    """Runtimes reduce no bytes: an Add of such lanes stays an Add."""
    body = MAPS + "{0} y = Add(q0, q1)"
    for kind, found in ((2, 0), (3, 0), (6, 1), (7, 1)):
        casts = f"q0 = Cast<to={kind}>(a0) q1 = Cast<to={kind}>(a1)"
        model = net(
            f"(float[N,8] x) => (float[] y) {{ {body.format(casts)} }}",
            {n: WEIGHTS[n] for n in ("w0", "w1")},
        )
        circuit = analysed(model).circuit
        _, groups = best_groups(circuit, lambda unit: False)
        assert [(g.kind, g.size) for g in groups] == [(LINEAR, 2), ("Cast", 2)]
        assert len(reductions(circuit, groups)) == found


# -- sizes known only at run time ------------------------------------------------------------------------


def test_a_size_that_only_the_runtime_knows_is_not_expanded_to() -> None:
    """Lanes of one row each, repeated as often as another input is long: every lane still is."""
    body = MAPS + (
        "r0 = Unsqueeze(a0, one) r1 = Unsqueeze(a1, one) s = Shape(z) l = Gather(s, one) "
        "to = Concat<axis=0>(one, l, one) e0 = Expand(r0, to) e1 = Expand(r1, to) "
        "y0 = Relu(e0) y1 = Relu(e1)"
    )
    model = build(body, "y0 y1", "float[N,8] x, float[N,S] z", {"one": ints(1)})
    outcome = carried_out(model)
    assert (LINEAR, 2) in grouped(outcome)
    assert compare(model, outcome.model, {"N": 2, "S": 3}, {"N": 2, "S": 1}) == 2


@pytest.mark.parametrize(("opset", "axis"), [(11, 1), (13, 1), (11, -1)])
def test_softmax_takes_no_lanes_along(opset: int, axis: int) -> None:
    """Before opset 13 it flattens all axes behind its own: lanes that lie there are moved first."""
    body = "p0 = Gather<axis=2>(x, n0) p1 = Gather<axis=2>(x, n1) "
    body += "".join(
        f"s{k} = Softmax<axis={axis}>(p{k}) y{k} = MatMul(s{k}, u{k}) " for k in range(2)
    )
    weights = {"n0": np.array(0), "n1": np.array(1)}
    model = build(body, "y0 y1", "float[N,4,2] x", weights, opset)
    outcome = carried_out(model)
    assert grouped(outcome) == [("Softmax", 2), (LINEAR, 2)]
    assert compare(model, outcome.model, {"N": 3, "W": 7}) == 1


def test_what_is_always_empty_is_left_alone() -> None:
    """No rows at all: there is nothing to gain, and runtimes stumble."""
    body = MAPS + "y0 = Relu(a0) y1 = Relu(a1)"
    for rows, found in ((0, []), (3, [(LINEAR, 2), ("Relu", 2)])):
        model = build(body, "y0 y1", f"float[{rows},8] x")
        outcome = carried_out(model)
        assert grouped(outcome) == found
        assert compare(model, outcome.model, {}) == 1


def test_products_that_an_empty_batch_would_break_are_refused() -> None:
    """Where rows cannot be told apart again, matrices would have to meet a batch axis of size 1."""
    model = build(MAPS.replace("axis=1", "axis=2"), "a0 a1", "float[N,S,8] x", opset=13)
    outcome = carried_out(model)
    assert (grouped(outcome), [r.code for r in outcome.refusals]) == ([], ["S201"])
    promised = carried_out(model, nonempty=True)
    assert grouped(promised) == [(LINEAR, 2)]
    assert compare(model, promised.model, {"N": 2, "S": 3}) == 1
