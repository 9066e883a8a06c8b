"""Every batching rule: lanes run as one node, give what they gave, and units that differ stay apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import ArrayLike
from onnx import ModelProto, NodeProto

import onnx_sched
from onnx_sched.circuit import LINEAR, SEVERAL
from onnx_sched.passes.rewrite import MEMBERS
from onnx_sched.passes.rules import BY_DOMAIN, PASSES, rule_for
from onnx_sched.variants import forms
from tests.more_rule_examples import EXAMPLES as MORE
from tests.more_rule_examples import REFUSED_ROWS
from tests.nets import analysed, feeds, ints, name_nodes, net, nodes_of, numbers
from tests.rule_examples import (
    EXAMPLES,
    IR,
    LANES,
    OPEN,
    WAYS,
    Example,
    Runs,
    carried_out,
    compare,
    with_ranks,
)

CASES = [
    pytest.param(example, way, opset, id=f"{example.row}-{place}-{way}-{opset}")
    for place, example in enumerate(EXAMPLES)
    for way, opset in example.cases
]


def members(node: NodeProto) -> list[str]:
    """The nodes that a node says it replaces."""
    found: list[str] = []
    for note in node.metadata_props:
        if note.key == MEMBERS:
            found += json.loads(note.value)
    return found


def test_every_row_has_an_example() -> None:
    """No rule without a test, and no example of a rule that is gone."""
    rows = {f"{d}.{k}" if d else k for d, table in BY_DOMAIN.items() for k in table}
    rows -= {SEVERAL}  # no op of a file is one: tests/test_compose.py
    assert rows == {example.row for example in (*EXAMPLES, *MORE)} | REFUSED_ROWS


def test_no_op_has_two_rules() -> None:
    """A row that another table hides would never run."""
    for which in (0, 1):
        rows = [op for tables in PASSES.values() for op in tables[which]]
        assert len(rows) == len(set(rows))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.row)
def test_every_example_shows_numbers(example: Example) -> None:
    """An example without finite numbers, or with equal lanes, would show nothing."""
    model = example.build(example.ways[0], example.opsets[-1])
    outputs = list(Runs(model)(feeds(model, N=3, S=5)).values())
    assert all(a.size and np.isfinite(a.astype(np.float64)).all() for a in outputs)
    if len(outputs) == LANES and outputs[0].dtype != np.bool_:
        assert not np.array_equal(outputs[0], outputs[1])


@pytest.mark.parametrize(("example", "way", "opset"), CASES)
def test_lanes_run_as_one(example: Example, way: str, opset: int) -> None:
    """Three alike nodes become one, or none where only axes are renamed, and the outputs stay.

    That holds for one row, for several and for none, wherever the lanes come from; opset, IR version
    and interface stay, and the new model passes the full check.
    """
    model, how = example.build(way, opset), WAYS[way]
    onnx.checker.check_model(model, full_check=True)
    if how.form:
        new = carried_out(model, how.form, nonempty=how.nonempty).model
    else:
        given = {"choose": "always", "check": False, "nonempty": how.nonempty}
        new = onnx_sched.optimize(model, **given).proto  # type: ignore[arg-type]
    gone = set(example.values)
    assert not [n.name for n in new.graph.node if n.name in gone]
    running = [n for n in nodes_of(new, example.kind) if gone & set(members(n))]
    running = [n for n in running if not n.name.endswith("_transpose")]  # brings lanes in or out
    assert len(running) == example.after
    onnx.checker.check_model(new, full_check=True)
    assert (new.ir_version, new.opset_import) == (model.ir_version, model.opset_import)
    assert list(new.graph.output) == list(model.graph.output)
    assert list(new.graph.input)[: len(model.graph.input)] == list(model.graph.input)
    rows = (1, 3, 0) if how.zero else (1, 3)
    assert compare(model, new, *({"N": n, "S": 5} for n in rows)) >= 2
    if way in OPEN:
        assert compare(model, new, {"N": 3, "S": 0}, {"N": 3, "S": 1}) == 2


# -- all forms of linear maps ------------------------------------------------------------------------

SHARED = ("wide", "stacked", "apart", "conv_t", "grouped_conv")
OWN = ("stacked", "conv_t", "grouped_conv")
INPUTS = {"matrix": "float[N,{k}]", "rows": "float[N,5,{k}]", "open": "float[N,S,{k}]"}
BIASES = {"none": "", "every": "012", "some": "02", "one": "1"}
WEIGHTS = {"own": (0, 1, 2), "twice": (0, 1, 0), "same": (0, 0, 0)}


def linear_net(
    own: bool, rows: str, biases: str, weights: Sequence[int], widths: Sequence[int] = (4, 4, 4)
) -> ModelProto:
    """Three linear maps, each with a Relu, of parts of `x` or of all of it."""
    sizes = INPUTS[rows].format(k=3 * LANES if own else 3)
    lines = ["p0, p1, p2 = Split<axis=-1>(x)"] if own else []
    constants: dict[str, ArrayLike] = {}
    for k in range(LANES):
        constants[f"w{k}"] = numbers(3, widths[k], seed=weights[k])
        lines.append(f"m{k} = MatMul({f'p{k}' if own else 'x'}, w{k})")
        if str(k) in biases:
            constants[f"c{k}"] = numbers(*((widths[k],) if k else (1, 1)), seed=9 + weights[k])
            lines.append(f"s{k} = Add(c{k}, m{k})")
        lines.append(f"y{k} = Relu({'s' if str(k) in biases else 'm'}{k})")
    lines.append("y = Concat<axis=-1>(y0, y1, y2)")
    text = f"({sizes} x) => (float[] y) {{ {' '.join(lines)} }}"
    return with_ranks(name_nodes(net(text, constants, opset=16)))


@pytest.mark.parametrize(
    ("form", "own", "rows", "nonempty"),
    [
        (form, own, rows, nonempty)
        for own, listed in ((False, SHARED), (True, OWN))
        for form in listed
        for rows in INPUTS
        for nonempty in (False, True)
        if not ("conv" in form and rows == "open" and not nonempty)
        and not (form == "grouped_conv" and rows == "open")
    ],
)
def test_forms_of_linear_maps_agree(form: str, own: bool, rows: str, nonempty: bool) -> None:
    """Every form gives what the model gives: with biases or not, and with weights that repeat."""
    for biases in BIASES.values():
        for weights in WEIGHTS.values():
            if not own and len(set(weights)) < LANES:
                continue  # twins: the same map of the same value
            model = linear_net(own, rows, biases, weights)
            outcome = carried_out(model, form, nonempty=nonempty)
            group = next(g for g in outcome.groups if g.kind == LINEAR)
            assert (group.form, group.size, outcome.refusals) == (form, LANES, ())
            assert not {f"m{k}" for k in range(LANES)} & {n.name for n in outcome.model.graph.node}
            sizes = (2, 1) if nonempty else (2, 1, 0)
            assert compare(model, outcome.model, *({"N": n, "S": 3} for n in sizes)) == len(sizes)


@pytest.mark.parametrize("form", SHARED)
@pytest.mark.parametrize("rows", INPUTS)
def test_twins_give_the_same_whatever_becomes_of_them(form: str, rows: str) -> None:
    """Maps that are equal, of one value: batched or not, each result is still there."""
    for biases in BIASES.values():
        for weights in ((0, 0, 0), (0, 1, 0)):
            model = linear_net(False, rows, biases, weights)
            for nonempty in (False, True):
                new = carried_out(model, form, nonempty=nonempty).model
                sizes = (2, 1) if nonempty else (2, 1, 0)
                assert compare(model, new, *({"N": n, "S": 3} for n in sizes)) == len(sizes)


def test_an_open_number_of_rows_may_be_none() -> None:
    """Linear maps of lanes with two open axes take an empty batch where the model takes one."""
    model = linear_net(True, "open", "", (0, 1, 2))
    new = onnx_sched.optimize(model, choose="always", check=False).proto
    assert compare(model, new, {"N": 0, "S": 3}, {"N": 2, "S": 0}) == 2


@pytest.mark.parametrize("widths", [(4, 4, 2), (5, 4, 3), (2, 6, 2)])
@pytest.mark.parametrize("rows", INPUTS)
def test_products_of_one_value_stand_side_by_side_whatever_their_width(
    rows: str, widths: tuple[int, ...]
) -> None:
    """Linear(x, W_i, b_i)  ==>  one product, though the widths differ; equal ones stay a bundle."""
    for biases in BIASES.values():
        model = linear_net(False, rows, biases, (0, 1, 2), widths)
        outcome = carried_out(model)
        assert len(nodes_of(outcome.model, "MatMul")) + len(nodes_of(outcome.model, "Gemm")) == 1
        sizes = ({"N": n, "S": 3} for n in (2, 1, 0))
        assert compare(model, outcome.model, *sizes) == 3


def test_parts_of_a_wide_product_can_run_by_themselves() -> None:
    """A wide group of several widths can be taken apart: its bundles are groups, single ones stay."""
    model = linear_net(False, "matrix", "012", (0, 1, 2), (4, 4, 2))
    outcome = carried_out(model)
    circuit = analysed(model).circuit
    found = [forms(g, circuit) for g in outcome.groups if g.segments]
    assert found == [("wide", "parts", "separate")]


def test_a_weight_that_all_lanes_share_is_stored_once() -> None:
    """Where all lanes have one weight the stacked form multiplies by one matrix, not by three."""
    new = carried_out(linear_net(True, "matrix", "", (0, 0, 0)), "stacked").model
    held = {tuple(t.dims) for t in new.graph.initializer}
    assert (3, 4) in held
    assert not any(len(shape) > 2 for shape in held)


# -- what the checks refuse --------------------------------------------------------------------------

X = "(float[N,4] x{more}) => (float[] y) {{ {body} }}"
UNKNOWN_INPUT = "the shape of its input is not known"
UNKNOWN_RESULT = "the shape of its result is not known"
UNKNOWN_OPERAND = "the shape of an operand is not known"

Refusal = tuple[str, str, str, Mapping[str, ArrayLike], int, str]
ROW: Mapping[str, ArrayLike] = {"g": np.abs(numbers(4))}
REFUSED: list[Refusal] = [
    ("Relu", "float[] z", "y = Relu(z)", {}, 17, UNKNOWN_OPERAND),
    ("Where", "bool[] z", "y = Where(z, x, x)", {}, 17, UNKNOWN_OPERAND),
    (
        "Add",
        "float[M,4] z",
        "y = Add(x, z)",
        {},
        17,
        "its operands' shapes may or may not broadcast",
    ),
    ("Clip", "float z", "y = Clip(x, z)", {}, 17, "its bounds are computed"),
    ("Clip", "float z", "y = Clip(x, , z)", {}, 17, "its bounds are computed"),
    ("Clip", "float[] z", "y = Clip(z)", {}, 17, UNKNOWN_OPERAND),
    ("Softmax", "float[] z", "y = Softmax(z)", {}, 17, UNKNOWN_INPUT),
    ("Hardmax", "float[] z", "y = Hardmax(z)", {}, 11, UNKNOWN_INPUT),
    ("ArgMax", "float[] z", "i = ArgMax(z) y = Cast<to=1>(i)", {}, 17, UNKNOWN_INPUT),
    ("ReduceSum", "int64[1] z", "y = ReduceSum(x, z)", {}, 17, UNKNOWN_RESULT),
    (
        "ReduceSum",
        "",
        "y = ReduceSum<noop_with_empty_axes=1>(x)",
        {},
        17,
        "its axes are not constant",
    ),
    ("ReduceMax", "int64[1] z", "y = ReduceMax(x, z)", {}, 18, UNKNOWN_RESULT),
    ("Split", "int64[2] z", "y, q = Split<axis=1>(x, z)", {}, 17, "its sizes are computed"),
    ("Slice", "int64[1] z", "y = Slice(x, z, k)", {"k": ints(3)}, 17, "its bounds are computed"),
    ("Slice", "int64[1] z", "y = Slice(x, k, z)", {"k": ints(0)}, 17, "its bounds are computed"),
    (
        "Concat",
        "float[] z",
        "y = Concat<axis=0>(x, z)",
        {},
        17,
        "the shape of a member is not known",
    ),
    (
        "Concat",
        "",
        "a = Shape(x) b = Concat<axis=0>(a, a) c = Cast<to=1>(b) y = Neg(c)",
        {},
        17,
        "it puts sizes together",
    ),
    ("TopK", "float[] z", "y, i = TopK(z, k)", {"k": ints(2)}, 17, UNKNOWN_INPUT),
    ("Unsqueeze", "int64[1] z", "y = Unsqueeze(x, z)", {}, 17, "its axes are computed"),
    ("Squeeze", "int64[1] z", "y = Squeeze(x, z)", {}, 17, "its axes are computed"),
    ("Squeeze", "", "y = Squeeze(x)", {}, 17, UNKNOWN_RESULT),
    (
        "Squeeze",
        "",
        "y = Squeeze(x, k)",
        {"k": ints(0)},
        17,
        "it removes an axis whose size is known only at run time",
    ),
    ("Transpose", "float[] z", "y = Transpose(z)", {}, 17, UNKNOWN_INPUT),
    ("Gather", "int64[] z", "y = Gather(x, z)", {}, 17, UNKNOWN_OPERAND),
    ("GatherElements", "int64[] z", "y = GatherElements(x, z)", {}, 17, UNKNOWN_OPERAND),
    ("GatherND", "int64[2,K] z", "y = GatherND(x, z)", {}, 17, UNKNOWN_RESULT),
    (
        "LayerNormalization",
        "",
        "y, m = LayerNormalization(x, g)",
        ROW,
        17,
        "its mean or deviation is read",
    ),
    (
        "LayerNormalization",
        "float[4] z",
        "y = LayerNormalization(x, z)",
        {},
        17,
        "its scale or bias is computed",
    ),
    (
        "LayerNormalization",
        "float[4] z",
        "y = LayerNormalization(x, g, z)",
        ROW,
        17,
        "its scale or bias is computed",
    ),
    (
        "LayerNormalization",
        "",
        "y = LayerNormalization(x, g)",
        {"g": numbers(1)},
        17,
        "its scale broadcasts",
    ),
    ("LayerNormalization", "float[] z", "y = LayerNormalization(z, g)", ROW, 17, UNKNOWN_INPUT),
    (
        "BatchNormalization",
        "",
        "y, a, b = BatchNormalization<training_mode=1>(x, g, g, g, g)",
        ROW,
        17,
        "it is in training mode",
    ),
    (
        "BatchNormalization",
        "float[4] z",
        "y = BatchNormalization(x, g, z, g, g)",
        ROW,
        17,
        "its parameters are computed",
    ),
    (
        "BatchNormalization",
        "float[N,4,2] z",
        "y = BatchNormalization<spatial=0>(z, h, h, h, h)",
        {"h": np.abs(numbers(4, 2))},
        7,
        "its parameters differ by place",
    ),
    ("MatMul", "float[4] z", "y = MatMul(x, z)", {}, 17, "an operand is a vector"),
    ("MatMul", "float[] z", "y = MatMul(x, z)", {}, 17, UNKNOWN_OPERAND),
    (
        "Conv",
        "float[N,4,5] z, float[2,4,3] w",
        "y = Conv(z, w)",
        {},
        17,
        "its weight is not constant",
    ),
    (
        "Conv",
        "float[N,4,5] z, float[2] c",
        "y = Conv(z, w, c)",
        {"w": numbers(2, 4, 3)},
        17,
        "its bias is not constant",
    ),
    (
        "Conv",
        "float[N,C,5] z",
        "y = Conv(z, w)",
        {"w": numbers(2, 4, 3)},
        17,
        "its number of channels is not known",
    ),
    (
        "MaxPool",
        "float[N,4,5] z",
        "y, i = MaxPool<kernel_shape=[2]>(z)",
        {},
        17,
        "the indices are read",
    ),
    (
        "Embedding",
        "int64[N] z",
        "y = Gather(w, z)",
        {"w": numbers(4, 3)},
        11,
        "GatherND has no batches before opset 12",
    ),
    (
        "Embedding",
        "int64[] z",
        "y = Gather(w, z)",
        {"w": numbers(4, 3)},
        17,
        "the shape of the indices is not known",
    ),
]


@pytest.mark.parametrize(
    ("kind", "more", "body", "weights", "opset", "reason"),
    [pytest.param(*row, id=f"{row[0]}-{place}") for place, row in enumerate(REFUSED)],
)
def test_a_check_says_why_a_unit_cannot_take_part(
    kind: str, more: str, body: str, weights: Mapping[str, ArrayLike], opset: int, reason: str
) -> None:
    """Each check refuses what its rule cannot do, with a reason for people."""
    text = X.format(more=f", {more}" if more else "", body=body)
    domains = {"com.microsoft": 1}
    model = net(text, weights, opset=opset, ir=IR.get(opset, 8), domains=domains)
    circuit = analysed(model).circuit
    unit = next(u for u in circuit.units if u.kind == kind)
    rule = rule_for(unit)
    assert rule is not None
    assert rule.check(unit, circuit) == reason


def test_every_check_refuses_something() -> None:
    """There is a refusal for every check that a row with an example here has."""
    rows = {example.row for example in EXAMPLES if example.row in BY_DOMAIN[""]}
    refused = {BY_DOMAIN[""][row[0]].check for row in REFUSED}
    assert {row for row in rows if BY_DOMAIN[""][row].check not in refused} == set()


def test_ops_without_a_rule_are_refused() -> None:
    """An op that no table has, or of a domain that no table is for, has no rule."""
    model = net(
        "(float[4,4] x) => (float[] y) { a = Det(x) b = q.Relu(x) y = Add(a, b) }",
        domains={"q": 1},
    )
    found: dict[str, Any] = {u.kind: rule_for(u) for u in analysed(model).circuit.units}
    assert found["Det"] is found["Relu"] is None
    assert found["Add"] is not None


# -- what keeps units apart --------------------------------------------------------------------------

APART = {
    "element type": (
        "y@ = Neg(a@)",
        "q@ = Cast<to=11>(a@) n@ = Neg(q@) y@ = Cast<to=1>(n@)",
        "Neg",
    ),
    "type that is made": (
        "q@ = Cast<to=11>(a@) y@ = Cast<to=1>(q@)",
        "q@ = Cast<to=10>(a@) y@ = Cast<to=1>(q@)",
        "Cast",
    ),
    "attribute": ("y@ = LeakyRelu<alpha=0.1>(a@)", "y@ = LeakyRelu<alpha=0.2>(a@)", "LeakyRelu"),
    "attribute left out": ("y@ = Elu<alpha=2.0>(a@)", "y@ = Elu(a@)", "Elu"),
    "text": ('y@ = Gelu<approximate="tanh">(a@)', "y@ = Gelu(a@)", "Gelu"),
    "axis": ("y@ = Softmax<axis=1>(a@)", "y@ = Softmax<axis=0>(a@)", "Softmax"),
    "epsilon": (
        "y@ = LayerNormalization<epsilon=0.1>(a@, g)",
        "y@ = LayerNormalization<epsilon=0.3>(a@, g)",
        "LayerNormalization",
    ),
    "order of Sub": ("q@ = Exp(a@) y@ = Sub(q@, g)", "q@ = Exp(a@) y@ = Sub(g, q@)", "Sub"),
    "order of Div": ("q@ = Exp(a@) y@ = Div(q@, g)", "q@ = Exp(a@) y@ = Div(g, q@)", "Div"),
    "bound": ("y@ = Clip(a@, low)", "y@ = Clip(a@, high)", "Clip"),
    "bound more": ("y@ = Clip(a@, low)", "y@ = Clip(a@, low, high)", "Clip"),
    "axes": ("y@ = ReduceMax(a@, one)", "y@ = ReduceMax(a@, zero)", "ReduceMax"),
    "kept axis": (
        "i@ = ArgMax<axis=1>(a@) y@ = Cast<to=1>(i@)",
        "i@ = ArgMax<axis=1, keepdims=0>(a@) y@ = Cast<to=1>(i@)",
        "ArgMax",
    ),
    "sizes": ("y@, q@ = Split<axis=1>(a@, s1)", "y@, q@ = Split<axis=1>(a@, s2)", "Split"),
    "range": (
        "r@ = Slice(a@, one, two) y@ = Neg(r@)",
        "r@ = Slice(a@, zero, one) y@ = Neg(r@)",
        "Slice",
    ),
    "shape": (
        "r@ = Unsqueeze(a@, one) y@ = Neg(r@)",
        "r@ = Unsqueeze(a@, zero) y@ = Neg(r@)",
        "Neg",
    ),
    "new axis": (
        "r@ = Unsqueeze(a@, one) y@ = Neg(r@)",
        "r@ = Unsqueeze(a@, zero) y@ = Neg(r@)",
        "Unsqueeze",
    ),
    "perm": (
        "r@ = Transpose(a@) y@ = Neg(r@)",
        "r@ = Transpose<perm=[0,1]>(a@) y@ = Neg(r@)",
        "Transpose",
    ),
    "indices": (
        "r@ = Gather<axis=1>(a@, one) y@ = Neg(r@)",
        "r@ = Gather<axis=1>(a@, zero) y@ = Neg(r@)",
        "Gather",
    ),
    "new shape": (
        "r@ = Reshape(a@, s22) y@ = Neg(r@)",
        "r@ = Reshape(a@, s41) y@ = Neg(r@)",
        "Reshape",
    ),
    "expanded shape": (
        "r@ = Expand(a@, e2) y@ = Neg(r@)",
        "r@ = Expand(a@, e3) y@ = Neg(r@)",
        "Expand",
    ),
    "domain": ("y@ = Gelu(a@)", "y@ = com.microsoft.Gelu(a@)", "Gelu"),
}
"""What differs -> nodes of the lanes 0 and 2, nodes of lane 1, and the op in question."""

CONSTANTS: Mapping[str, ArrayLike] = {
    "g": np.abs(numbers(4)),
    "low": np.array(-0.5, np.float32),
    "high": np.array(0.5, np.float32),
    "zero": ints(0),
    "one": ints(1),
    "two": ints(2),
    "s1": ints(1, 3),
    "s2": ints(2, 2),
    "s22": ints(-1, 2, 2),
    "s41": ints(-1, 4, 1),
    "e2": ints(2, 1, 1),
    "e3": ints(3, 1, 1),
}

TOGETHER = {
    "default spelled": ("y@ = Elu<alpha=1.0>(a@)", "y@ = Elu(a@)", "Elu"),
    "order of Add": ("q@ = Exp(a@) y@ = Add(q@, g)", "q@ = Exp(a@) y@ = Add(g, q@)", "Add"),
    "order of Mul": ("y@ = Mul(a@, g)", "y@ = Mul(g, a@)", "Mul"),
    "rank of a constant": ("y@ = Mul(a@, g)", "y@ = Mul(a@, high)", "Mul"),
    "missing bias": ("y@ = Gemm(a@, w, g)", "y@ = MatMul(a@, w)", LINEAR),
    "spelling of a product": (
        "q@ = MatMul(a@, w) y@ = Add(g, q@)",
        "y@ = Gemm(a@, w, high)",
        LINEAR,
    ),
    "name of the default domain": ("y@ = Neg(a@)", "y@ = ai.onnx.Neg(a@)", "Neg"),
}
"""What does not count -> likewise."""


def two_kinds(most: str, odd: str) -> ModelProto:
    """Three lanes, the middle one with another body."""
    bodies = (most, odd, most)
    lines = ["p0, p1, p2 = Split<axis=1>(x, sizes)"]
    lines += [f"a{k} = MatMul(p{k}, w{k})" for k in range(LANES)]
    lines += [body.replace("@", str(k)) for k, body in enumerate(bodies)]
    text = "(float[N,12] x) => (float[] y0, float[] y1, float[] y2) { " + " ".join(lines) + " }"
    weights = {**CONSTANTS, "sizes": ints(4, 4, 4), "w": numbers(4, 4, seed=5)}
    weights |= {f"w{k}": numbers(4, 4, seed=k) for k in range(LANES)}
    text = text.replace("ai.onnx.", "")
    model = with_ranks(net(text, weights, opset=20, ir=9, domains={"com.microsoft": 1}))
    for node in model.graph.node:
        if "ai.onnx" in odd and node.output[0] == "y1":
            node.domain = "ai.onnx"
    return name_nodes(model)


def lanes_of(outcome: Any, kind: str) -> list[str]:
    """For each group of one kind, which lanes its members belong to."""
    found = [[u.outputs[0][-1] for u in g.units] for g in outcome.groups if g.kind == kind]
    return ["".join(sorted(lanes)) for lanes in found]


@pytest.mark.parametrize("what", APART)
def test_units_that_differ_stay_apart(what: str) -> None:
    """What is not the same computation shares no node, whatever else is alike; the outputs stay."""
    most, odd, kind = APART[what]
    model = two_kinds(most, odd)
    outcome = carried_out(model)
    found = lanes_of(outcome, kind)
    assert "02" in found
    assert not any("1" in lanes for lanes in found)
    assert compare(model, outcome.model, {"N": 3}, {"N": 1}) == 2


@pytest.mark.parametrize("what", TOGETHER)
def test_units_that_differ_in_spelling_run_together(what: str) -> None:
    """Differences that change nothing keep nobody apart."""
    most, odd, kind = TOGETHER[what]
    model = two_kinds(most, odd)
    outcome = carried_out(model)
    assert "012" in lanes_of(outcome, kind)
    assert compare(model, outcome.model, {"N": 3}, {"N": 1}) == 2


OPERANDS_OF_THE_CALLER = {
    "TopK": ("y@, i@ = TopK(a@, z)", "int64[1] z", {"z": ints(2)}),
    "CumSum": ("y@ = CumSum(a@, z)", "int64 z", {"z": np.array(1)}),
    "Expand": ("y@ = Expand(a@, z)", "int64[3] z", {"z": ints(2, 1, 1)}),
    "Reshape": ("y@ = Reshape(a@, z)", "int64[2] z", {"z": ints(2, -1)}),
    "Unsqueeze": ("y@ = Unsqueeze(a@, z)", "int64[1] z", {"z": ints(1)}),
    "ReduceSum": ("y@ = ReduceSum(a@, z)", "int64[1] z", {"z": ints(1)}),
}


@pytest.mark.parametrize("kind", OPERANDS_OF_THE_CALLER)
def test_what_the_caller_says_at_run_time_is_no_constant(kind: str) -> None:
    """Nodes whose axes, counts or shapes are graph inputs stay as they are; nothing breaks."""
    body, more, given = OPERANDS_OF_THE_CALLER[kind]
    lines = ["p0, p1 = Split<axis=1>(x)", "a0 = MatMul(p0, w0)", "a1 = MatMul(p1, w1)"]
    lines += [body.replace("@", str(k)) for k in range(2)]
    text = f"(float[N,8] x, {more}) => (float[] y0, float[] y1) {{ {' '.join(lines)} }}"
    model = name_nodes(net(text, {"w0": numbers(4, 4, seed=1), "w1": numbers(4, 4, seed=2)}))
    new = onnx_sched.optimize(model, choose="always", check=False).proto
    inputs = {**feeds(model, N=4), **given}
    want, got = Runs(model)(inputs), Runs(new)(inputs)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=2e-5, atol=2e-5)
