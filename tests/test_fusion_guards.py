"""Transposes stay out of products where ONNX Runtime's fusions go wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

from onnx_sched.judge.runtime import open_session
from onnx_sched.judge.runtime import run as optimized_run
from onnx_sched.passes.emit import Emitter
from onnx_sched.passes.fusion_guards import exposed, guards, read_by_products
from tests.nets import feeds, ints, net, numbers, run
from tests.rule_examples import carried_out
from tests.test_precautions import build

RUN = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
shape = tuple(map(int, sys.argv[2:]))
kind = {"tensor(float)": "float32", "tensor(float16)": "float16"}[session.get_inputs()[0].type]
print([a.shape for a in session.run(None, {"x": numpy.zeros(shape, kind)})])
"""


def shapes(model: ModelProto, path: Path, *shape: int) -> str:
    """What comes of zeros of a shape in a process of its own, which may die of them."""
    path.write_bytes(model.SerializeToString())
    command = [sys.executable, "-c", RUN, str(path), *map(str, shape)]
    ran = subprocess.run(command, capture_output=True, text=True)
    return ran.stdout.strip() or f"exit code {ran.returncode}"


OWN = """r = Reshape(x, shape) t = Transpose<perm=[1,0,2]>(r) q0, q1 = Split<axis=0>(t)
p0 = Squeeze(q0, zero) p1 = Squeeze(q1, zero) """
"""Two lanes that a Transpose of the model's own puts first."""


@pytest.mark.parametrize(
    "body",
    [
        "p0, p1 = Split<axis=1>(x) y0 = MatMul(p0, w0) y1 = MatMul(p1, w1)",
        "p0, p1 = Split<axis=1>(x) b0 = Relu(p0) b1 = Relu(p1) y0 = MatMul(b0, w0) y1 = MatMul(b1, w1)",
        f"{OWN} y0 = MatMul(p0, w0) y1 = MatMul(p1, w1)",
    ],
    ids=["ours", "ours, with something between", "the model's own"],
)
def test_an_empty_batch_runs_with_all_optimizations(body: str, tmp_path: Path) -> None:
    """No Transpose of batch axes is left where the runtime takes it into a product: it dies of that."""
    model = build(body, "y0 y1", weights={"shape": ints(0, 2, 4), "zero": ints(0)})
    careful, daring = carried_out(model).model, carried_out(model, nonempty=True).model
    assert exposed(daring.graph.node, read_by_products(daring.graph.node))
    assert shapes(careful, tmp_path / "m.onnx", 0, 8) == "[(0, 4), (0, 4)]"


LANES = """p0, p1 = Split<axis=1>(x) a0 = MatMul(p0, w0) a1 = MatMul(p1, w1)
t0 = Transpose<perm=[1,0]>(a0) t1 = Transpose<perm=[1,0]>(a1) y1 = Neg(t1) """
"""Two lanes that are read apart, each transposed; y0 is still to come."""


OTHERS = """b0 = MatMul(p0, u0) b1 = MatMul(p1, u1)
s0 = Transpose<perm=[1,0]>(b0) s1 = Transpose<perm=[1,0]>(b1) y3 = Neg(s0)"""


@pytest.mark.parametrize(
    "last",
    [
        "y0 = MatMul(t0, v)",
        f"{OTHERS} y0 = Gemm(t0, s, h) y2 = Gemm(r, s1, t0)",
        f"{OTHERS} y0 = Gemm(t0, s, h) q = MatMul(r, s1) y2 = Add(q, t0)",
    ],
)
@pytest.mark.parametrize("rows", ["3", "N"])
def test_no_lane_is_multiplied_wrongly_by_a_fusion(last: str, rows: str) -> None:
    """With all optimizations the result gives what the original gives without."""
    weights = {
        "v": numbers(3),
        "r": numbers(4, 3, seed=1),
        "h": numbers(3),
        "s": numbers(3, 3, seed=2),
    }
    outputs = " ".join(y for y in ("y0", "y1", "y2", "y3") if y in LANES + last)
    model = build(LANES + last, outputs, f"float[{rows},8] x", weights, opset=9)
    outcome = carried_out(model)
    assert outcome.groups
    given = feeds(model, N=3)
    want = run(model, given)
    session = open_session(outcome.model.SerializeToString(), "cpu", optimize=True)
    got = optimized_run(session, given)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-5)


def test_an_empty_batch_is_multiplied_by_a_matrix(tmp_path: Path) -> None:
    """A Transpose of each row's own axes stays out of such a product, too."""
    body = """p0, p1 = Split<axis=2>(x) a0 = MatMul(p0, w0) a1 = MatMul(p1, w1)
    t0 = Transpose<perm=[0,2,1]>(a0) t1 = Transpose<perm=[0,2,1]>(a1) y0 = MatMul(t0, v) y1 = Neg(t1)"""
    model = build(body, "y0 y1", "float[N,3,8] x", {"v": numbers(3, 2)})
    outcome = carried_out(model)
    assert outcome.groups
    assert shapes(outcome.model, tmp_path / "m.onnx", 0, 3, 8) == "[(0, 4, 2), (0, 4, 3)]"


def test_half_floats_are_multiplied_by_a_matrix(tmp_path: Path) -> None:
    """A Transpose that moves a batch axis stays out of such a product, too: it would end the process."""
    body = "t = Transpose<perm=[0,2,3,1]>(x) a = Gather<axis=0>(t, first) y = MatMul(a, v)"
    text = f"(float16[2,8,2,3] x) => (float16[2,3,32] y) {{ {body} }}"
    half = numbers(8, 32).astype(np.float16)
    model = net(text, {"v": half, "first": np.int64(0)})
    emit = Emitter(17, {"x", "t", "a", "y", "v", "first"}, {})
    nodes = list(model.graph.node)
    apart = guards(
        nodes, {id(nodes[0])}, {"v": (2, TensorProto.FLOAT16)}.__getitem__, emit, may_be_empty=False
    )
    del model.graph.node[:]
    model.graph.node.extend(n for node in nodes for n in apart.get(id(node), [node]))
    for name, const in emit.fresh.items():
        model.graph.initializer.append(numpy_helper.from_array(const.load(), name))
    assert shapes(model, tmp_path / "m.onnx", 2, 8, 2, 3) == "[(2, 3, 32)]"


@pytest.mark.parametrize("between", ["", "r = Reshape(a, shape)"])
def test_no_transpose_comes_to_a_cast_before_a_product(between: str) -> None:
    """Behind a Cast the runtime's fusion of the two dies; a Reshape between them does not keep them apart."""
    text = f"t = Transpose<perm=[1,2,0]>(x) a = ArgMin<axis=0>(t) {between} "
    text += f"c = Cast<to=1>({'r' if between else 'a'}) y = MatMul(c, w)"
    model = net(
        f"(float[4,N,3] x) => (float[] y) {{ {text} }}",
        {"w": numbers(4, 2), "shape": ints(0, 3, 4)},
    )
    nodes = list(model.graph.node)
    transpose = nodes[0]
    emit = Emitter(17, set(), {})
    made = guards(nodes, {id(transpose)}, lambda name: (3, 1), emit, may_be_empty=False)
    assert [n.op_type for n in made[id(transpose)]] == ["Transpose", "Unsqueeze", "Squeeze"]


@pytest.mark.parametrize(
    ("rank", "kind", "fenced"), [(0, 1, 0), (1, 1, 0), (3, 1, 1), (0, 11, 1), (None, 1, 1)]
)
def test_an_epsilon_that_a_fusion_misreads_is_kept_from_it(
    rank: int | None, kind: int, fenced: int
) -> None:
    """One number of float32 is read; another type, or one a lane, would give way to the default."""
    text = "m = ReduceMean<axes=[-1]>(x) a = Add(m, e) s = Sqrt(a) y = Div(x, s)"
    model = net(f"(float[4,N,3] x, float e) => (float[] y) {{ {text} }}")
    nodes = list(model.graph.node)
    types = {"e": (rank, kind)}
    emit = Emitter(17, set(), {})
    new = {id(n) for n in nodes}
    made = guards(nodes, new, lambda name: types.get(name, (3, 1)), emit, may_be_empty=False)
    assert [len(made.get(id(n), [n])) for n in nodes] == [1, 1, 1 + 2 * fenced, 1]
