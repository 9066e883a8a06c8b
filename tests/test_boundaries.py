"""Where lanes begin, end and change places: whatever reads or makes them gets what the model says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from onnx import ModelProto

from onnx_sched.circuit import LINEAR
from onnx_sched.passes.homes import Homes, View
from onnx_sched.stacking import packed
from tests.nets import feeds, ints, name_nodes, net, nodes_of, numbers
from tests.rule_examples import IR, Outcome, Runs, carried_out, compare, with_ranks

OPSETS = (11, 13, 18)
CUT = "p0, p1, p2 = Split<axis=1>(x, thirds) "
MAPS = "a0 = MatMul(p0, w0) a1 = MatMul(p1, w1) a2 = MatMul(p2, w2) "
LANES = CUT + MAPS
RELU = "b0 = Relu(a0) b1 = Relu(a1) b2 = Relu(a2) "
TANH = "c0 = Tanh(a0) c1 = Tanh(a1) c2 = Tanh(a2) "

WEIGHTS: Mapping[str, ArrayLike] = {
    "thirds": ints(4, 4, 4),
    "row": numbers(4, seed=9),
    **{f"w{k}": numbers(4, 4, seed=k) for k in range(4)},
    **{f"v{k}": numbers(5, 4, seed=20 + k) for k in range(6)},
    **{f"n{k}": np.array(k) for k in range(3)},
    **{f"i{k}": ints(k) for k in range(17)},
    "last": ints(-1),
    **{f"d{k}": numbers(4, 1, 3, seed=40 + k) for k in range(3)},
    "odd": ints(4, 1, 4, 4),
    "halves": ints(4, 4),
}


def build(body: str, outputs: str, inputs: str = "float[N,12] x", opset: int = 13) -> ModelProto:
    """A model whose outputs are floats of whatever shape."""
    if opset < 13:
        body = body.replace(", thirds)", ")")
    declared = ", ".join(f"float[] {name}" for name in outputs.split())
    text = f"({inputs}) => ({declared}) {{ {body} }}"
    read = {name: value for name, value in WEIGHTS.items() if _word(name, body)}
    return with_ranks(name_nodes(net(text, read, opset=opset, ir=IR[opset])))


def _word(name: str, body: str) -> bool:
    """Whether a name is read in a body."""
    return any(f"{before}{name}{after}" in body for before in "( " for after in ",)")


def kinds(model: ModelProto) -> Counter[str]:
    """How many nodes of each op type a model has."""
    return Counter(node.op_type for node in model.graph.node)


Law = tuple[str, str, str]
ENDS: dict[str, Law] = {
    "in order": ("y = Concat<axis=1>(a0, a1, a2)", "y", "Transpose Reshape"),
    "one under the other": ("y = Concat<axis=0>(a0, a1, a2)", "y", "Reshape"),
    "another order": ("y = Concat<axis=1>(a2, a0, a1)", "y", "Gather Transpose Reshape"),
    "repeated": ("y = Concat<axis=1>(a0, a1, a0, a2, a2)", "y", "Gather Transpose Reshape"),
    "the first two": (
        "y = Concat<axis=1>(a0, a1) z = Neg(a2)",
        "y z",
        "Slice Transpose Reshape Gather Neg",
    ),
    "the last two": (
        "y = Concat<axis=1>(a1, a2) z = Neg(a0)",
        "y z",
        "Slice Transpose Reshape Gather Neg",
    ),
    "a stranger between": (
        "y = Concat<axis=1>(a0, f, a1, a2)",
        "y",
        "Gather Slice Transpose Reshape Concat",
    ),
    "two groups in turn": (
        RELU + TANH + "y = Concat<axis=1>(b0, c0, b1, c1, b2, c2)",
        "y",
        "Relu Tanh Reshape Split Reshape Split Concat",
    ),
    "two groups in a row": (
        RELU + TANH + "y = Concat<axis=1>(b0, b1, b2, c0, c1, c2)",
        "y",
        "Relu Tanh Transpose Reshape Transpose Reshape Concat",
    ),
    "stacked in front": (
        "u0 = Unsqueeze(a0, i0) u1 = Unsqueeze(a1, i0) u2 = Unsqueeze(a2, i0) "
        "y = Concat<axis=0>(u0, u1, u2)",
        "y",
        "Identity",
    ),
    "stacked behind": (
        "u0 = Unsqueeze(a0, i2) u1 = Unsqueeze(a1, i2) u2 = Unsqueeze(a2, i2) "
        "y = Concat<axis=2>(u0, u1, u2)",
        "y",
        "Transpose",
    ),
    "stacked inside": (
        "u0 = Unsqueeze(a0, i1) u1 = Unsqueeze(a1, i1) u2 = Unsqueeze(a2, i1) "
        "y = Concat<axis=1>(u0, u1, u2) z = Neg(y)",
        "z",
        "Transpose Neg",
    ),
    "one is an output": (
        "y = Concat<axis=1>(a0, a1, a2) z = Neg(y)",
        "z a1",
        "Gather Transpose Reshape Neg",
    ),
    "one is read elsewhere": (
        RELU + "y = Concat<axis=1>(b0, b1, b2) z = Softmax(a1)",
        "y z",
        "Relu Transpose Reshape Gather Softmax",
    ),
    "two are outputs": (
        "y = Concat<axis=1>(a0, a1, a2)",
        "y a0 a2",
        "Gather Gather Transpose Reshape",
    ),
    "all are outputs": ("", "a0 a1 a2", "Reshape Split"),
    "summed": ("y = Sum(a0, a1, a2)", "y", "ReduceSum"),
    "averaged": ("y = Mean(a0, a1, a2)", "y", "ReduceMean"),
    "added up": ("s = Add(a0, a1) y = Add(s, a2)", "y", "ReduceSum"),
    "added from the right": ("s = Add(a1, a2) y = Add(a0, s)", "y", "ReduceSum"),
    "added with a stranger": (
        "s = Add(a0, f) t = Add(s, a1) y = Add(t, a2)",
        "y",
        "ReduceSum Add",
    ),
    "one added twice": ("s = Add(a0, a0) t = Add(s, a1) y = Add(t, a2)", "y", "Gather ReduceSum"),
    "the sum added twice": (
        "s = Add(a0, a1) t = Add(s, a2) y = Add(t, t)",
        "y",
        "ReduceSum Add",
    ),
    "a partial sum read elsewhere": (
        "s = Add(a0, a1) y = Add(s, a2) z = Neg(s)",
        "y z",
        "Slice ReduceSum Gather Add Neg",
    ),
    "a partial sum is an output": (
        "s = Add(a0, a1) y = Add(s, a2)",
        "y s",
        "Slice ReduceSum Gather Add",
    ),
    "averaged with a stranger": ("y = Mean(a0, f, a1, a2)", "y", "Reshape Split Mean"),
    "one averaged twice": ("y = Mean(a0, a0, a1, a2)", "y", "Gather ReduceMean"),
    "two summed": ("y = Sum(a0, a1) z = Neg(a2)", "y z", "Slice ReduceSum Gather Neg"),
    "the largest": ("y = Max(a0, a1, a2)", "y", "Reshape Split Max"),
    "multiplied": ("s = Mul(a0, a1) y = Mul(s, a2)", "y", "Reshape Split Mul Mul"),
    "one times another": (
        "t = Transpose(a1) y = MatMul(a0, t) z = Neg(a2)",
        "y z",
        "Reshape Split Transpose MatMul Neg",
    ),
}
"""How lanes end -> nodes, outputs, and the nodes that are there afterwards."""


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("end", ENDS)
def test_lanes_end_as_the_model_says(end: str, opset: int) -> None:
    """Whoever reads lanes, in whatever order and how often, gets them; by the fewest nodes, at any size.

    [N, 12] -> Split -> three maps -> the reader: one change of layout in, one at most for a reader.  Where
    a batch may be empty, it may take a few nodes more.
    """
    body, outputs, after = ENDS[end]
    if opset < 13:
        body = re.sub(r"Unsqueeze\((\w+), i(\d)\)", r"Unsqueeze<axes=[\2]>(\1)", body)
    stranger = ", float[N,4] f" if _word("f", body) else ""
    model = build(LANES + body, outputs, "float[N,12] x" + stranger, opset)
    outcome = carried_out(model, nonempty=True)
    assert [(g.kind, g.size) for g in outcome.groups][:1] == [(LINEAR, 3)]
    assert kinds(outcome.model) == Counter(f"Reshape Transpose MatMul {after}".split())
    assert compare(model, outcome.model, {"N": 2}, {"N": 1}) == 2
    careful = carried_out(model)
    assert len(careful.groups) == len(outcome.groups)
    assert compare(model, careful.model, {"N": 2}, {"N": 1}, {"N": 0}) == 3


DEPTHWISE = " ".join(f"a{k} = Conv<group=4, pads=[1,1]>(x, d{k})" for k in range(3)) + " "


@pytest.mark.parametrize("end", [end for end in ENDS if "MatMul" not in ENDS[end][0]])
def test_lanes_that_lie_interleaved_end_so_too(end: str) -> None:
    """Channel by channel, as depthwise convolutions of one value leave them: no lane is one block."""
    body, outputs, _ = ENDS[end]
    stranger = ", float[N,4,5] f" if _word("f", body) else ""
    model = build(DEPTHWISE + body, outputs, "float[N,4,5] x" + stranger)
    outcome = carried_out(model)
    assert [(g.kind, g.size) for g in outcome.groups][:1] == [("Conv", 3)]
    assert kinds(outcome.model)["Conv"] == 1
    assert compare(model, outcome.model, {"N": 2}, {"N": 1}) == 2


WIDE = "a0 = MatMul(x, v0) a1 = MatMul(x, v1) a2 = MatMul(x, v2) "


def test_lanes_from_elsewhere_meet_interleaved_ones() -> None:
    """What comes from three inputs is put together lane by lane, whatever it is then added to."""
    body = DEPTHWISE + " ".join(f"b{k} = Add(a{k}, g{k})" for k in range(3))
    inputs = "float[N,4,5] x, " + ", ".join(f"float[N,4,5] g{k}" for k in range(3))
    model = build(body + " y = Concat<axis=1>(b0, b1, b2)", "y", inputs)
    outcome = carried_out(model)
    assert kinds(outcome.model)["Conv"] == 1
    assert compare(model, outcome.model, {"N": 2}, {"N": 1}) == 2


OPEN = {
    "by features": "y = Concat<axis=2>(a0, a1, a2)",
    "by rows": "y = Concat<axis=1>(a0, a1, a2)",
    "by batch": "y = Concat<axis=0>(a0, a1, a2)",
    "one by one": "y = Neg(a0) z = Neg(a1) t = Neg(a2)",
}


@pytest.mark.parametrize("way", OPEN)
def test_two_open_axes_may_be_empty(way: str) -> None:
    """Lanes with two sizes known only at run time end well if one of the two is zero."""
    outputs = "y z t" if way == "one by one" else "y"
    model = build(WIDE + OPEN[way], outputs, "float[N,S,5] x", 16)
    new = carried_out(model).model
    assert len(nodes_of(new, "MatMul")) == 1 or way == "by rows"
    sizes = ({"N": n, "S": s} for n, s in ((2, 3), (0, 3), (2, 0)))
    assert compare(model, new, *sizes) == 3
    assert compare(model, carried_out(model, nonempty=True).model, {"N": 2, "S": 3}) == 1


BEGINNINGS: dict[str, Law] = {
    "equal parts": (CUT, "float[N,12] x", "Reshape Transpose"),
    "slices": (
        "p0 = Slice(x, i0, i4, i1) p1 = Slice(x, i4, i8, i1) p2 = Slice(x, i8, i12, i1) ",
        "float[N,12] x",
        "Reshape Transpose",
    ),
    "slices from the end": (
        "p0 = Slice(x, i0, i4, i1) p1 = Slice(x, i4, i8, last) p2 = Slice(x, i8, i12, i1) ",
        "float[N,12] x",
        "Reshape Transpose",
    ),
    "slices with a hole": (
        "p0 = Slice(x, i0, i4, i1) p1 = Slice(x, i8, i12, i1) p2 = Slice(x, i12, i16, i1) ",
        "float[N,16] x",
        "Reshape Transpose Gather",
    ),
    "entries": (
        "p0 = Gather<axis=1>(x, n0) p1 = Gather<axis=1>(x, n1) p2 = Gather<axis=1>(x, n2) ",
        "float[N,3,4] x",
        "Transpose",
    ),
    "entries in front": (
        "p0 = Gather(x, n0) p1 = Gather(x, n1) p2 = Gather(x, n2) ",
        "float[3,N,4] x",
        "",
    ),
    "entries behind": (
        "p0 = Gather<axis=2>(x, n0) p1 = Gather<axis=2>(x, n1) p2 = Gather<axis=2>(x, n2) ",
        "float[N,4,3] x",
        "Transpose",
    ),
    "inputs of their own": ("", "float[N,4] p0, float[N,4] p1, float[N,4] p2", "Concat Reshape"),
    "another order": (
        "p2, p0, p1 = Split<axis=1>(x, thirds) ",
        "float[N,12] x",
        "Reshape Transpose Gather",
    ),
    "unequal parts": (
        "p0, q, p1, p2 = Split<axis=1>(x, odd) ",
        "float[N,13] x",
        "Split Concat Reshape",
    ),
}
"""How lanes begin -> nodes, inputs, and the nodes that stand before the product afterwards."""


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_lanes_begin_as_the_model_says(beginning: str, opset: int) -> None:
    """However lanes are cut from tensors, each map gets its own; cuts of one tensor cost no node each."""
    body, inputs, before = BEGINNINGS[beginning]
    model = build(body + MAPS + "y = Concat<axis=1>(a0, a1, a2)", "y", inputs, opset)
    outcome = carried_out(model, nonempty=True)
    assert [(g.kind, g.size) for g in outcome.groups] == [(LINEAR, 3)]
    assert kinds(outcome.model) == Counter(f"{before} MatMul Transpose Reshape".split())
    assert compare(model, outcome.model, {"N": 2}, {"N": 1}) == 2
    assert compare(model, carried_out(model).model, {"N": 2}, {"N": 1}, {"N": 0}) == 3


def test_parts_of_different_tensors_form_groups_of_their_own() -> None:
    """Lanes of one tensor run together; what comes from another one is not glued to them."""
    cuts = "p0, p1 = Split<axis=1>(x, halves) p2, q = Split<axis=1>(z, halves) "
    model = build(cuts + MAPS + "y = Concat<axis=1>(a0, a1, a2)", "y", "float[N,8] x, float[N,8] z")
    outcome = carried_out(model)
    assert [[u.operands[0] for u in g.units] for g in outcome.groups] == [["p0", "p1"]]
    assert compare(model, outcome.model, {"N": 2}, {"N": 0}) == 2


def test_one_part_may_feed_two_maps() -> None:
    """Lanes that share a part get it twice."""
    body = CUT + MAPS + "d = MatMul(p1, w3) y = Concat<axis=1>(a0, a1, a2, d)"
    model = build(body, "y")
    outcome = carried_out(model)
    assert [(g.kind, g.size) for g in outcome.groups] == [(LINEAR, 4)]
    assert compare(model, outcome.model, {"N": 2}, {"N": 0}) == 2


def test_a_join_that_is_cut_again_is_none() -> None:
    """Concat, then Split of the same lanes: the stacked tensor runs on, and nothing stands between.

    maps -> Concat -> Split -> maps  ==>  MatMul -> MatMul
    """
    second = "j = Concat<axis=1>(a0, a1, a2) q0, q1, q2 = Split<axis=1>(j, thirds) "
    third = "b0 = MatMul(q0, w0) b1 = MatMul(q1, w1) b2 = MatMul(q2, w2) "
    model = build(LANES + second + third + "y = Concat<axis=1>(b0, b1, b2)", "y")
    outcome = carried_out(model, nonempty=True)
    expected = Counter("Reshape Transpose MatMul MatMul Transpose Reshape".split())
    assert kinds(outcome.model) == expected
    assert compare(model, outcome.model, {"N": 2}) == 1
    assert compare(model, carried_out(model).model, {"N": 2}, {"N": 0}) == 2


def test_several_regions_stand_by_themselves() -> None:
    """Two sets of lanes with a mixing step between them: each is stacked and unstacked once."""
    mixed = "j = Concat<axis=1>(a0, a1, a2) s = Softmax<axis=1>(j) q0, q1, q2 = Split<axis=1>(s, thirds) "
    third = "b0 = MatMul(q0, w0) b1 = MatMul(q1, w1) b2 = MatMul(q2, w2) "
    model = build(LANES + mixed + third + "y = Concat<axis=1>(b0, b1, b2)", "y")
    outcome = carried_out(model, nonempty=True)
    assert [g.region for g in outcome.groups] == [0, 1]
    assert kinds(outcome.model) == Counter(MatMul=2, Reshape=4, Transpose=4, Softmax=1)
    assert compare(model, outcome.model, {"N": 2}) == 1
    assert compare(model, carried_out(model).model, {"N": 2}, {"N": 0}) == 2


QKV = " ".join(
    f"{part}{head} = MatMul(x, v{3 * head + place})"
    for head in range(2)
    for place, part in enumerate("qkv")
)
HEADS = " ".join(
    f"t{h} = Transpose<perm=[0,2,1]>(k{h}) s{h} = MatMul(q{h}, t{h}) e{h} = Softmax(s{h}) "
    f"o{h} = MatMul(e{h}, v_{h})"
    for h in range(2)
)


@pytest.mark.parametrize("form", ["wide", "stacked", "apart"])
@pytest.mark.parametrize("rows", ["float[N,3,5] x", "float[N,S,5] x"])
def test_queries_keys_and_values_come_out_of_one_product(form: str, rows: str) -> None:
    """Six maps of one value, read in three parts by attention: the parts are cut once, not per head."""
    attention = HEADS.replace("v_", "r")
    maps = QKV.replace(" v0 =", " r0 =").replace(" v1 =", " r1 =")
    body = f"{maps} {attention} y = Concat<axis=2>(o0, o1)"
    model = build(body, "y", rows, 16)
    outcome = carried_out(model, form, nonempty=True)
    assert [(g.kind, g.size) for g in outcome.groups if g.kind in (LINEAR, "MatMul")] == [
        (LINEAR, 6),
        ("MatMul", 2),
        ("MatMul", 2),
    ]
    found = kinds(outcome.model)
    assert found["MatMul"] == (5 if form == "apart" else 3)
    assert found["Split"] <= 1
    assert not found["Gather"]
    assert compare(model, outcome.model, {"N": 2, "S": 4}, {"N": 1, "S": 1}) == 2


def test_a_body_reads_a_lane_under_its_own_name() -> None:
    """What an If body reads from outside keeps its name, though it became a lane of a stacked tensor."""
    body = (
        LANES + RELU + "y = If (c) <then_branch = t () => (float[N,4] u) { u = Neg(b1) }, "
        "else_branch = e () => (float[N,4] v) { v = Add(b2, a0) }> z = Concat<axis=1>(b0, b1, b2)"
    )
    model = build(body, "y z", "float[N,12] x, bool c")
    outcome = carried_out(model)
    assert [(g.kind, g.size) for g in outcome.groups] == [(LINEAR, 3), ("Relu", 3)]
    made = {o for node in outcome.model.graph.node for o in node.output}
    assert {"b1", "b2", "a0"} <= made
    for choice in (True, False):
        inputs = {**feeds(model, N=2), "c": np.array(choice)}
        for name, array in Runs(model)(inputs).items():
            np.testing.assert_allclose(
                Runs(outcome.model)(inputs)[name], array, rtol=2e-5, atol=2e-5
            )


def test_an_output_keeps_name_and_place() -> None:
    """Lanes that are outputs come out under their own names, in the order of the model."""
    model = build(LANES + RELU + "y = Concat<axis=1>(b2, b1, b0)", "a2 y b1 a0")
    outcome = carried_out(model)
    assert [o.name for o in outcome.model.graph.output] == ["a2", "y", "b1", "a0"]
    assert compare(model, outcome.model, {"N": 2}) == 1


def _two_lanes(outcome: Outcome) -> list[tuple[str, int]]:
    return [(g.kind, g.size) for g in outcome.groups]


def test_what_nobody_reads_is_not_made() -> None:
    """A lane whose result nobody reads is no member; the others are batched without it."""
    model = build(LANES + "y = Concat<axis=1>(a0, a2) dead = Neg(a1)", "y")
    outcome = carried_out(model)
    assert _two_lanes(outcome) == [(LINEAR, 2)]
    assert compare(model, outcome.model, {"N": 2}, {"N": 0}) == 2


# -- which bundles are at hand ------------------------------------------------------------------------

VALUES = [f"v{k}" for k in range(8)]
bundles = st.lists(st.permutations(VALUES).map(lambda p: tuple(p[:3])), max_size=4)


@given(bundles, bundles, st.lists(st.sampled_from([*VALUES, "stranger"]), min_size=1, max_size=9))
def test_pieces_make_up_a_bundle(
    groups: list[tuple[str, ...]], views: list[tuple[str, ...]], wanted: list[str]
) -> None:
    """Pieces put side by side are the bundle; each is a run of one home; single values have none or one."""
    homes = Homes()
    for bundle in groups:
        homes.add_group(bundle)
    for bundle in views:
        homes.add_view(View(bundle, packed(2, 1), "tensor"))
    pieces = homes.pieces(tuple(wanted))
    assert [v for piece in pieces for v in piece.lanes] == wanted
    everywhere = [*groups, *views]
    for piece in pieces:
        if piece.home is None:
            assert len(piece.lanes) == 1
            assert not any(piece.lanes[0] in home for home in everywhere)
        else:
            assert piece.home in everywhere
            assert set(piece.lanes) <= set(piece.home)


@given(bundles, st.lists(st.sampled_from(VALUES), min_size=2, max_size=9))
def test_pieces_are_as_long_as_they_can_be(
    groups: list[tuple[str, ...]], wanted: list[str]
) -> None:
    """No home holds a longer run from where a piece begins."""
    homes = Homes()
    for bundle in groups:
        homes.add_group(bundle)
    begin = 0
    for piece in homes.pieces(tuple(wanted)):
        for home in groups:
            run = 0
            while begin + run < len(wanted) and wanted[begin + run] in home:
                run += 1
            assert run <= len(piece.lanes)
        begin += len(piece.lanes)
