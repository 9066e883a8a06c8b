"""Transposes stay out of products where ONNX Runtime's fusions go wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from onnx_sched.judge.runtime import open_session
from onnx_sched.judge.runtime import run as optimized_run
from onnx_sched.passes.fusion_guards import exposed, read_by_products
from tests.nets import feeds, numbers, run
from tests.rule_examples import carried_out
from tests.test_precautions import build

RUN = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
print([a.shape for a in session.run(None, {"x": numpy.zeros((0, 8), numpy.float32)})])
"""


@pytest.mark.parametrize("between", ["", "b0 = Relu(a0) b1 = Relu(a1) "])
def test_an_empty_batch_runs_with_all_optimizations(between: str, tmp_path: Path) -> None:
    """No Transpose of batch axes is left where the runtime takes it into a product: it dies of that."""
    last = "b" if between else "a"
    body = f"p0, p1 = Split<axis=1>(x) {between.replace('a', 'p')}"
    last = "b" if between else "p"
    body += f"y0 = MatMul({last}0, w0) y1 = MatMul({last}1, w1)"
    model = build(body, "y0 y1")
    careful, daring = carried_out(model).model, carried_out(model, nonempty=True).model
    assert exposed(daring.graph.node, read_by_products(daring.graph.node))
    assert not exposed(careful.graph.node, read_by_products(careful.graph.node))
    path = tmp_path / "model.onnx"
    path.write_bytes(careful.SerializeToString())
    ran = subprocess.run([sys.executable, "-c", RUN, str(path)], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "[(0, 4), (0, 4)]\n")


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
