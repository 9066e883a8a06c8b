"""Block-diagonal weights: their blocks become lanes where that is promised to be harmless, else S306."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

import onnx_sched
from onnx_sched.diagonal import block_count, cut, products
from onnx_sched.errors import UsageError
from tests.nets import Array, analysed, feeds, net, numbers, run

FOUR = 4


def diagonal(rows: int, columns: int, count: int = FOUR, seed: int = 0) -> Array:
    """A matrix of blocks along the diagonal, zeros elsewhere."""
    whole = np.zeros((count * rows, count * columns), np.float32)
    for k in range(count):
        at = slice(k * rows, (k + 1) * rows), slice(k * columns, (k + 1) * columns)
        whole[at] = numbers(rows, columns, seed=seed + k)
    return whole


def layers(text: str = "", opset: int = 17, **weights: Array) -> ModelProto:
    """Two products by block-diagonal matrices with an activation between them."""
    text = text or "a = MatMul(x, u) c = Add(a, b) d = Relu(c) y = MatMul(d, v)"
    given = {
        "u": diagonal(8, 6),
        "v": diagonal(6, 4, seed=9),
        "b": numbers(24),
        **weights,
    }
    given = {name: given[name] for name in given if re.search(rf"\b{name}\b", text)}
    return net(f"(float[N,32] x) => (float[] y) {{ {text} }}", given, opset=opset)


SPELLINGS = {
    "MatMul": layers(),
    "old Split": layers(opset=11),
    "Gemm": layers("c = Gemm(x, u, b) d = Relu(c) y = MatMul(d, v)"),
    "turned": layers("c = Gemm<transB=1>(x, t, b) y = Relu(c)", t=diagonal(8, 6).T.copy()),
    "rank 3": net(
        "(float[N,S,32] x) => (float[] y) { a = MatMul(x, u) y = Add(a, b) }",
        {"u": diagonal(8, 6), "b": numbers(24)},
    ),
}


def heavy(model: ModelProto) -> list[str]:
    return [n.op_type for n in model.graph.node if n.op_type in ("MatMul", "Gemm", "Conv")]


def bytes_of_weights(model: ModelProto) -> int:
    return sum(len(t.raw_data) for t in model.graph.initializer)


@pytest.mark.parametrize("name", SPELLINGS)
def test_blocks_run_as_lanes(name: str) -> None:
    """As many products as before, of a quarter of the weights; the outputs agree."""
    model = SPELLINGS[name]
    result = onnx_sched.optimize(model, choose="always", assume_finite=True)
    new = result.proto
    assert len(heavy(new)) == len(heavy(model))
    assert bytes_of_weights(new) < bytes_of_weights(model) / 2
    for size in (0, 1, 5):
        fed = feeds(model, N=size, S=3)
        np.testing.assert_allclose(run(new, fed)["y"], run(model, fed)["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SPELLINGS)
def test_without_the_promise_nothing_changes(name: str) -> None:
    """Zeros times NaN are NaN: the model stays, and S306 names the products and the flag."""
    model = SPELLINGS[name]
    result = onnx_sched.optimize(model, choose="always")
    assert result.proto.SerializeToString() == model.SerializeToString()
    (refusal,) = [r for r in result.plan.refusals if r.code == "S306"]
    assert len(refusal.nodes) == len(heavy(model))
    assert "--assume-finite" in refusal.reason


def test_a_nan_is_what_the_promise_is_about() -> None:
    """In one block of the input it spoils every output of the original, and one block's of the other."""
    model = layers("y = MatMul(x, u)")
    new = onnx_sched.optimize(model, choose="always", assume_finite=True).proto
    fed = feeds(model, N=1)
    fed["x"][0, 0] = np.nan
    assert np.isnan(run(model, fed)["y"]).all()
    assert np.isnan(run(new, fed)["y"]).sum() == 6


DENSE = {
    "one number outside": (0, 23, 1.0),
    "NaN outside": (31, 0, np.nan),
    "a small number outside": (0, 23, 1e-38),
}


@pytest.mark.parametrize("what", DENSE)
def test_a_matrix_that_is_not_quite_diagonal_stays(what: str) -> None:
    row, column, number = DENSE[what]
    weight = diagonal(8, 6)
    weight[row, column] = number
    assert block_count(weight) == 1
    model = layers("y = MatMul(x, u)", u=weight)
    result = onnx_sched.optimize(model, choose="always", assume_finite=True)
    assert result.proto.SerializeToString() == model.SerializeToString()
    assert not [r for r in result.plan.refusals if r.code == "S306"]


@pytest.mark.parametrize("count", [2, 3, 4, 6])
@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 5), (8, 2)])
def test_the_most_blocks_are_found(rows: int, columns: int, count: int) -> None:
    """Whatever the sizes; a hole in a block makes no difference, a block of zeros is none."""
    weight = diagonal(rows, columns, count)
    assert block_count(weight) == count
    weight[0, :columns] = 0
    weight[:, 0] = 0
    assert block_count(weight) == count
    weight[:rows] = 0
    assert block_count(weight) != count


def test_a_scale_is_no_product() -> None:
    """A diagonal of single numbers is cut in pieces of two at least; a matrix of zeros in none."""
    assert block_count(np.diag(numbers(6))) == 3
    assert block_count(np.zeros((8, 8), np.float32)) == 1


def test_a_weight_that_others_read_stays() -> None:
    model = layers("a = MatMul(x, u) s = ReduceSum<keepdims=0>(u) y = Add(a, s)")
    new = onnx_sched.optimize(model, choose="always", assume_finite=True).proto
    assert "u" in [t.name for t in new.graph.initializer]
    fed = feeds(model, N=3)
    np.testing.assert_allclose(run(new, fed)["y"], run(model, fed)["y"], rtol=1e-4, atol=1e-5)


def test_what_does_not_pay_is_not_cut() -> None:
    """Blocks that run in no group would be pieces for nothing: the product stays whole."""
    model = layers("y = MatMul(x, u)")
    given = {"choose": "always", "assume_finite": True, "skip_ops": ["MatMul"]}
    result = onnx_sched.optimize(model, **given)  # type: ignore[arg-type]
    assert result.proto.SerializeToString() == model.SerializeToString()
    assert "S306" not in [r.code for r in result.plan.refusals]


def test_what_turns_out_not_to_pay_stays_whole() -> None:
    """What there was no time to measure is not changed: a copy of the original, and a note."""
    model = layers("y = MatMul(x, u)")
    result = onnx_sched.optimize(model, time_limit=0, assume_finite=True)
    assert result.proto.SerializeToString() == model.SerializeToString()
    assert any("stay whole" in note for note in result.report.notes)


def test_a_plan_cuts_the_same_products(tmp_path: Path) -> None:
    """Byte for byte, with or without the flag: the plan is the promise."""
    model = tmp_path / "model.onnx"
    onnx.save(layers(), model)
    first = onnx_sched.optimize(model, choose="always", assume_finite=True)
    first.save(tmp_path / "first.onnx")
    first.save_plan(tmp_path / "plan.json")
    again = onnx_sched.optimize(model, plan=tmp_path / "plan.json")
    again.save(tmp_path / "again.onnx")
    assert (tmp_path / "first.onnx").read_bytes() == (tmp_path / "again.onnx").read_bytes()


def test_what_lies_between_is_cut_with_them() -> None:
    """An activation between two such products runs block by block: one layout change in, one out."""
    new = onnx_sched.optimize(layers(), choose="always", assume_finite=True).proto
    kinds = [n.op_type for n in new.graph.node]
    assert kinds.index("Relu") - kinds.index("MatMul") == 2
    assert kinds[kinds.index("Relu") + 1] == "MatMul"
    assert "Concat" not in kinds


def test_what_reads_the_whole_still_can() -> None:
    """The activation's other reader gets it whole."""
    model = layers("a = MatMul(x, u) d = Relu(a) p = MatMul(d, v) s = ReduceSum(d) y = Add(p, s)")
    new = onnx_sched.optimize(model, choose="always", assume_finite=True).proto
    fed = feeds(model, N=3)
    np.testing.assert_allclose(run(new, fed)["y"], run(model, fed)["y"], rtol=1e-4, atol=1e-5)


def test_blocks_that_do_not_meet_are_joined_first() -> None:
    """Four blocks, then two."""
    model = layers("a = MatMul(x, u) d = Relu(a) y = MatMul(d, v)", v=diagonal(12, 4, 2))
    new = onnx_sched.optimize(model, choose="always", assume_finite=True).proto
    fed = feeds(model, N=3)
    np.testing.assert_allclose(run(new, fed)["y"], run(model, fed)["y"], rtol=1e-4, atol=1e-5)


def test_a_plan_for_other_weights_is_refused(tmp_path: Path) -> None:
    """The same graph with dense weights has nothing to cut: the error names the plan and the product."""
    first = onnx_sched.optimize(layers(), choose="always", assume_finite=True)
    first.save_plan(tmp_path / "plan.json")
    with pytest.raises(UsageError, match=r"plan\.json cuts the product that makes c,"):
        onnx_sched.optimize(layers(u=numbers(32, 24)), plan=tmp_path / "plan.json")


def test_the_cut_model_is_the_same_function() -> None:
    """Before anything is batched: Split, four products, Concat."""
    model = layers()
    analysis = analysed(model)
    assert [count for _, count in products(analysis.circuit)] == [FOUR, FOUR]
    made = cut(analysis, [u.outputs[0] for u, _ in products(analysis.circuit)])
    pieces = made.analysis.source.model
    fed = feeds(model, N=3)
    np.testing.assert_allclose(run(pieces, fed)["y"], run(model, fed)["y"], rtol=1e-4, atol=1e-5)
    assert "u" not in [t.name for t in pieces.graph.initializer]
