"""What speaks against a finished plan: a lost attention fusion, memory, speed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

import onnx_sched
from onnx_sched import plan_file
from onnx_sched.choose import Condition
from onnx_sched.judge.measure import Speedup
from onnx_sched.judge.profiling import NodeTime, Profile
from onnx_sched.objections import attention, too_large, too_slow, unfused
from onnx_sched.plan import Plan
from onnx_sched.planner import least, legal, sites, without
from tests.nets import analysed, ints, net, numbers

HEADS, SIZE, SEQ = 2, 4, 8
HIDDEN = HEADS * SIZE


def norm(x: str, out: str) -> str:
    """LayerNormalization as exporters spelled it before there was such an op."""
    return (
        f"{out}mu = ReduceMean<axes = [-1]>({x}) {out}d = Sub({x}, {out}mu) {out}q = Pow({out}d, two) "
        f"{out}v = ReduceMean<axes = [-1]>({out}q) {out}e = Add({out}v, eps) {out}s = Sqrt({out}e) "
        f"{out}n = Div({out}d, {out}s) {out}m = Mul({out}n, g{out}) {out} = Add({out}m, b{out}) "
    )


def head(p: str) -> str:
    perm = "[0, 2, 3, 1]" if p == "k" else "[0, 2, 1, 3]"
    return (
        f"{p}m = MatMul(h, w{p}) {p}a = Add({p}m, c{p}) {p}r = Reshape({p}a, split) "
        f"{p}t = Transpose<perm = {perm}>({p}r) "
    )


def bert_layer() -> ModelProto:
    """A layer in which ONNX Runtime finds an attention block, mask and all."""
    text = (
        f"(float[B,{SEQ},{HIDDEN}] x, int64[B,{SEQ}] mask) => (float[B,{SEQ},{HIDDEN}] y) {{ "
        "u1 = Unsqueeze<axes = [1]>(mask) u2 = Unsqueeze<axes = [2]>(u1) mc = Cast<to = 1>(u2) "
        "ms = Sub(one, mc) mm = Mul(ms, far) "
        + norm("x", "h")
        + "".join(map(head, "qkv"))
        + "qk = MatMul(qt, kt) qd = Div(qk, root) masked = Add(qd, mm) sm = Softmax<axis = 3>(masked) "
        "av = MatMul(sm, vt) at = Transpose<perm = [0, 2, 1, 3]>(av) ar = Reshape(at, join) "
        "o = MatMul(ar, wo) oa = Add(o, co) sk = Add(oa, h) " + norm("sk", "y") + "}"
    )
    scalars = {"two": 2.0, "eps": 1e-5, "one": 1.0, "far": -10000.0, "root": SIZE**0.5}
    weights: dict[str, Any] = {n: np.array(v, np.float32) for n, v in scalars.items()}
    weights |= {"split": ints(0, 0, HEADS, SIZE), "join": ints(0, 0, HIDDEN)}
    weights |= {f"{k}{n}": numbers(HIDDEN, seed=ord(n)) for n in "hy" for k in "gb"}
    weights |= {f"w{n}": numbers(HIDDEN, HIDDEN, seed=ord(n)) for n in "qkvo"}
    weights |= {f"c{n}": numbers(HIDDEN, seed=ord(n)) for n in "qkvo"}
    return net(text, weights, opset=12)


def test_attention_stays_fused() -> None:
    """Query, key and value could be one product; the runtime then would not see its attention block."""
    given = bert_layer()
    model = analysed(given)
    _, groups, _ = legal(model, lambda _: False)
    assert any(g.form == "wide" and g.size == 3 for g in groups)
    result = onnx_sched.optimize(given, choose="always")
    (refused,) = (r for r in result.report.refusals if r.code == "S305")
    assert len(refused.nodes) == 3
    assert not any(g.form == "wide" for g in result.plan.groups)


def test_products_without_attention_are_made_wide() -> None:
    """The same three products with nothing to fuse after them become one."""
    text = (
        f"(float[B,{SEQ},{HIDDEN}] h) => (float[] q, float[] k, float[] v) "
        "{ q = MatMul(h, wq) k = MatMul(h, wk) v = MatMul(h, wv) }"
    )
    weights = {f"w{n}": numbers(HIDDEN, HIDDEN, seed=ord(n)) for n in "qkv"}
    result = onnx_sched.optimize(net(text, weights), choose="always")
    assert [g.form for g in result.plan.groups] == ["wide"]


def two_regions() -> tuple[onnx_sched.analysis.Analysis, Plan]:
    """Two products of one value, and three of another one."""
    text = (
        "(float[N,4] x, float[N,4] z) => (float[] a, float[] b, float[] c, float[] d, float[] e) "
        "{ a = MatMul(x, w0) b = MatMul(x, w1) "
        "c = MatMul(z, w2) d = MatMul(z, w3) e = MatMul(z, w4) }"
    )
    model = analysed(net(text, {f"w{k}": numbers(4, 4, seed=k) for k in range(5)}))
    return model, Plan(legal(model, lambda _: False)[1])


def profiled(ops: dict[str, int], peak: int | None = 0) -> Profile:
    times = tuple(NodeTime(op, op, "CPU", 1.0, calls) for op, calls in ops.items())
    return Profile(sum(ops.values()), peak, "a test", {}, times)


def test_unfused_blames_wide_products_only_if_attention_is_lost() -> None:
    _, plan = two_regions()
    one, none = profiled({"Attention": 1, "MatMul": 2}), profiled({"MatMul": 5})
    found = unfused((one, none), plan)
    assert found is not None
    assert set(found.sites) == set(sites(plan))
    assert unfused((one, one), plan) is None
    assert unfused((none, one), plan) is None
    stacked = replace(plan, groups=tuple(replace(g, form="stacked") for g in plan.groups))
    assert unfused((one, none), stacked) is None


def test_attention_counts_calls() -> None:
    """A node in a loop that runs five times counts five times; other nodes do not count."""
    assert attention(profiled({"MultiHeadAttention": 5, "QAttention": 1, "MatMul": 7})) == 6


@pytest.mark.parametrize(
    ("before", "after", "factor", "large"),
    [
        (1 << 30, (1 << 30) * 2, 1.25, True),
        (1 << 30, (1 << 30) * 2, 2.0, False),
        (100, 1000, 1.25, False),  # sixteen megabytes more are nobody's trouble
        (100, (1 << 24) + 100, 1.25, False),
        (100, (1 << 24) + 101, 1.25, True),
        (None, 1 << 40, 1.25, False),
        (1, None, 1.25, False),
    ],
)
def test_too_large(before: int | None, after: int | None, factor: float, large: bool) -> None:
    _, plan = two_regions()
    found = too_large((profiled({}, before), profiled({}, after)), plan, factor)
    assert (found is not None) == large
    assert found is None or (found.code == "S304" and list(found.sites) == [least(plan)])


def test_too_slow_blames_the_region_that_saves_least() -> None:
    _, plan = two_regions()

    def raced(ratio: float) -> tuple[Condition, Speedup]:
        speedup = Speedup(100.0, 100.0 / ratio, ratio, ratio - 0.01, ratio + 0.01, 50)
        return Condition((("N", 1),), {}, 1), speedup

    assert too_slow([raced(2.0), raced(1.01)], plan) is None
    undecided = too_slow([raced(1.01), raced(1.02)], plan)
    assert undecided is not None
    assert "1.02x" in undecided.reason
    assert "no clear gain" in undecided.reason
    assert too_slow([], plan) is None
    found = too_slow([raced(2.0), raced(0.7), raced(0.9)], plan)
    assert found is not None
    assert found.code == "S303"
    assert "0.70x" in found.reason
    (site,) = found.sites
    assert [g.size for g in sites(plan)[site]] == [2]


def test_without_a_region_the_others_stay() -> None:
    model, plan = two_regions()
    draft = without(model, plan, [least(plan)], "S303", "too slow")
    assert [g.size for g in draft.plan.groups] == [3]
    (refused,) = draft.plan.refusals
    assert (refused.code, len(refused.nodes)) == ("S303", 2)
    assert plan_file.to_json(draft.plan, nonempty=False) != plan_file.to_json(plan, nonempty=False)
    nothing = without(model, draft.plan, [least(draft.plan)], "S304", "too large")
    assert nothing.rewritten is None
