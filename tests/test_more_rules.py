"""Further batching rules: three lanes run as one node, with the same numbers; near misses stay apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto, helper

from onnx_sched import writing
from onnx_sched.analysis import analyse
from onnx_sched.assemble import assemble
from onnx_sched.circuit import SEVERAL
from onnx_sched.files import Source
from onnx_sched.passes.rules import BY_DOMAIN, rule_for
from onnx_sched.plan import Refusal
from onnx_sched.planner import legal, made
from tests.example_parts import QUANTISED, codes, scale, zero
from tests.more_rule_examples import EXAMPLES, REFUSED_ROWS
from tests.near_misses import NEAR, Near, by_lane
from tests.nets import Array, analysed, evaluate, every_value, feeds
from tests.rule_examples import EXAMPLES as FIRST_EXAMPLES
from tests.rule_examples import WAYS, Example, Maker

UNCHECKED = {"GroupNormalization", "SimplifiedLayerNormalization"}
"""Ops that onnx's checker refuses at some opset although ONNX Runtime runs them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A rewritten model, and what was refused on the way."""

    model: ModelProto
    refusals: tuple[Refusal, ...]


def optimised(model: ModelProto, way: str) -> Outcome:
    """All that is legal, linear maps in the form of a way."""
    how = WAYS[way]
    analysis = analyse(Source(model, None), nonempty=how.nonempty)
    _, groups, refusals = legal(analysis, lambda unit: False)
    if how.form:
        groups = tuple(replace(g, form=how.form) if g.kind == "Linear" else g for g in groups)
    rewritten, _ = made(analysis, groups, refusals)
    out = ModelProto()
    out.CopyFrom(model if rewritten is None else assemble(model, analysis.circuit, rewritten))
    if rewritten is not None:
        writing.fill_all(out, rewritten.fresh)
    return Outcome(out, tuple(refusals))


def run(model: ModelProto, inputs: dict[str, Array]) -> list[Array]:
    """Outputs of a model as it stands, weights of few bits multiplied in full precision."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found: list[Array] = session.run(None, inputs)
    return found


def joined(model: ModelProto) -> ModelProto:
    """The model with its outputs put together by one Concat, if they have axes and one open size at most."""
    whole = ModelProto()
    whole.CopyFrom(model)
    outputs = list(model.graph.output)
    shape = analysed(model).values.shape(outputs[0].name) or ()
    rank = len(shape)
    if rank and sum(not isinstance(d, int) for d in shape) < 2:
        names = [o.name for o in outputs]
        whole.graph.node.append(
            helper.make_node("Concat", names, ["joined"], name="joined", axis=rank - 1)
        )
        del whole.graph.output[1:]
        whole.graph.output[0].name = "joined"
    return whole


def batched(example: Example, model: ModelProto) -> int:
    """How many nodes of the op type in question stand for the lanes."""
    made = re.compile(rf"{example.result.replace('@', '0')}_x\d+(_\d+)?")
    return sum(n.op_type == example.kind and bool(made.fullmatch(n.name)) for n in model.graph.node)


def apart(example: Example, model: ModelProto) -> int:
    """How many lanes still have a node of their own."""
    own = {example.result.replace("@", str(k)) for k in range(3)}
    return sum(node.name in own and not node.metadata_props for node in model.graph.node)


def checked(example: Example, model: ModelProto) -> None:
    """Have onnx check a model where it knows all ops."""
    if not example.row.startswith("com.") and example.row not in UNCHECKED:
        onnx.checker.check_model(model)


def same_outputs(before: ModelProto, after: ModelProto) -> None:
    """Both models give the same at batch 1 and 3: whole numbers exactly, others closely."""
    for batch in (1, 3):
        inputs = feeds(before, N=batch, S=2, J=2)
        for x, y in zip(run(before, inputs), run(after, inputs), strict=True):
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            if x.dtype.kind == "f":
                np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-5)
            else:
                np.testing.assert_array_equal(y, x)


def cases() -> Iterator[object]:
    """Every example in every way; all opsets in the first way, the last opset in the others."""
    for n, example in enumerate(EXAMPLES):
        for k, way in enumerate(example.ways):
            for opset in example.opsets if k == 0 else example.opsets[-1:]:
                yield pytest.param(
                    example, way, opset, id=f"{n}-{example.row.rpartition('.')[2]}-{way}-{opset}"
                )


@pytest.mark.parametrize(("example", "way", "opset"), tuple(cases()))
def test_lanes_run_as_one_node_and_give_the_same(example: Example, way: str, opset: int) -> None:
    """Whether lanes are joined or, in the first way, read by themselves: one node, the same numbers."""
    built = example.build(way, opset)
    for model in (built, joined(built)) if way == example.ways[0] else (joined(built),):
        checked(example, model)
        after = optimised(model, way).model
        checked(example, after)
        assert (batched(example, after), apart(example, after)) == (example.after, 0)
        same_outputs(model, after)


def test_every_rule_is_shown() -> None:
    """Every row of the tables has an example, or a near miss if it only says why not."""
    rows = {f"{d}.{k}" if d else k for d, table in BY_DOMAIN.items() for k in table}
    rows -= {SEVERAL}  # no op of a file is one: tests/test_compose.py
    shown = {e.row for e in (*EXAMPLES, *FIRST_EXAMPLES)}
    assert rows - shown == REFUSED_ROWS
    assert {n.example.row for n in NEAR} >= REFUSED_ROWS


@pytest.mark.parametrize("near", NEAR, ids=lambda n: f"{n.example.row}-{n.says or 'differs'}")
def test_near_misses_stay_apart(near: Near) -> None:
    """What differs where a node has only one, or cannot be known, keeps the lanes' own nodes."""
    example = near.example
    way, opset = example.ways[0], example.opsets[0]
    model = example.build(way, opset)
    outcome = optimised(model, way)
    assert (batched(example, outcome.model), apart(example, outcome.model)) == (0, 3)
    if near.runs:
        same_outputs(model, outcome.model)
    reasons = [r.reason for r in outcome.refusals]
    circuit = analysed(model).circuit
    for unit in circuit.units:
        rule = rule_for(unit)
        if example.result.replace("@", "0") in unit.outputs and rule is not None:
            reasons.append(rule.check(unit, circuit) or "")
    assert not near.says or any(near.says in r for r in reasons)


SMALLER = [e for e in EXAMPLES if e.row == "DequantizeLinear" and "MatMul" in e.body]


@pytest.mark.parametrize("example", SMALLER, ids=lambda e: e.body[:40])
def test_weights_of_eight_bits_stay_so(example: Example) -> None:
    """Batched quantised weights are stored in the bytes that they had."""
    after = optimised(example.build("rows", 21), "rows").model
    large = [t for t in after.graph.initializer if np.prod(t.dims) >= 3 * 4 * 3000]
    assert [t.data_type for t in large] in ([TensorProto.INT8], [TensorProto.UINT8])


TYPED = [e for e in EXAMPLES if e.row.startswith("com.") or e.row in {*UNCHECKED, "Pad", "Tile"}]


@pytest.mark.parametrize("example", TYPED, ids=lambda e: f"{e.row}-{e.body[5:60]}")
def test_types_that_onnx_does_not_infer_are_those_of_the_runtime(example: Example) -> None:
    """What is known about a value before anything runs is so when it runs."""
    way, opset = example.ways[0], example.opsets[-1]
    model = example.build(way, opset)
    types = analysed(model).values.types
    inputs = feeds(model, N=3, S=2)
    sizes = {"N": 3, "S": 2}
    seen = 0
    for name, array in every_value(model, inputs).items():
        known = types.get(name)
        if known is None or name not in {o for node in model.graph.node for o in node.output}:
            continue
        assert known.elem_type == helper.np_dtype_to_tensor_dtype(array.dtype)
        assert known.shape is not None
        for dim, size in zip(known.shape, array.shape, strict=True):
            assert evaluate(dim, {str(dim): size, **sizes}) == size  # a symbol of its own fits any
            assert example.row != "Tile" or not str(dim).startswith("Tile")
        seen += name.startswith(("r", "y"))
    assert seen >= 3


def agreeing(row: str, body: str, own: Maker, **more: Any) -> Example:
    """Lanes of which the last has another `o`."""
    weights = {
        "c@": codes(4, 3),
        "s": scale(),
        "z": zero(),
        "e": scale(),
        **more.pop("weights", {}),
    }
    return Example(row, body, {**weights, "o@": own}, **more)


PARTLY = (
    agreeing(
        "MatMulInteger",
        "q@ = QuantizeLinear(a@, s, o@) y@ = MatMulInteger(q@, c@, o@)",
        by_lane(np.int8(1), np.int8(1), np.int8(2)),
        out="int32",
    ),
    agreeing(
        "QLinearMatMul",
        QUANTISED + "y@ = QLinearMatMul(q@, s, z, c@, e, z, o@, z)",
        by_lane(np.float32(0.1), np.float32(0.1), np.float32(0.2)),
        out="int8",
    ),
    agreeing(
        "QLinearConv",
        QUANTISED + "y@ = QLinearConv(q@, s, z, c@, e, z, o@, z)",
        by_lane(np.float32(0.1), np.float32(0.1), np.float32(0.2)),
        out="int8",
        ways=("channels",),
        weights={"c@": codes(3, 4, 1, 1)},
    ),
    agreeing(
        "ConvInteger",
        "q@ = QuantizeLinear(a@, s, z) y@ = ConvInteger(q@, c@, z, o@)",
        by_lane(np.uint8(1), np.uint8(1), np.uint8(2)),
        out="int32",
        ways=("channels",),
        weights={"c@": codes(3, 4, 1, 1, dtype=np.uint8), "z": zero(dtype=np.uint8)},
    ),
)


@pytest.mark.parametrize("example", PARTLY, ids=lambda e: e.row)
def test_lanes_that_agree_run_together(example: Example) -> None:
    """Where a node has one scale or zero point, lanes of equal ones are one node and others stay apart."""
    model = example.build(example.ways[0], 21)
    after = optimised(model, example.ways[0]).model
    assert (batched(example, after), apart(example, after)) == (1, 1)
    same_outputs(model, after)


def test_entries_of_one_value_are_one_gather() -> None:
    """Members that read other columns of one value read them together; one column each takes no node."""
    by_row = {e.row: e for e in EXAMPLES if e.body.startswith("r@ = Gather<axis=1>(x")}
    after = optimised(by_row["GatherMany"].build("rows", 21), "rows").model
    assert [n.op_type for n in after.graph.node if n.op_type == "Gather"] == ["Gather"]


def test_sizes_are_not_put_together_in_lanes() -> None:
    """A Concat that only makes a shape is left to the Reshape that asks for it."""
    example = Example(
        "Concat",
        "h@ = Shape(a@) n@ = Gather(h@, at) r@ = Concat<axis=0>(n@, c) y@ = Reshape(a@, r@)",
        {"at": lambda lane: np.array([0]), "c": lambda lane: np.array([2, 2])},
    )
    circuit = analysed(example.build("rows", 21)).circuit
    unit = next(u for u in circuit.units if u.kind == "Concat")
    rule = rule_for(unit)
    assert rule is not None
    assert rule.check(unit, circuit) == "it puts sizes together"
