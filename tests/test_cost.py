"""The cost model: it adds up, grows with the work, and knows what a runtime fuses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import NodeProto

from onnx_sched.analysis import Analysis
from onnx_sched.cost import (
    FREE,
    SHIPPED,
    VIEWS,
    Device,
    Estimate,
    device,
    geometric_mean,
    load,
    profile_for,
)
from onnx_sched.errors import UsageError
from tests.nets import analysed, net, nodes_of, numbers
from tests.zoo import MODELS, model, studied

PROFILES = sorted(
    p.name.removesuffix(".toml")
    for p in resources.files("onnx_sched.profiles").iterdir()
    if p.name.endswith(".toml")
)
CPU, CUDA = device("cpu"), device("cuda-a100")


def estimate(analysis: Analysis, on: Device = CPU, assume: int = 1) -> Estimate:
    values = analysis.values
    return Estimate(on, values.shape, values.constants.__contains__, assume)


def ready(text: str, on: Device = CPU, assume: int = 4) -> tuple[Estimate, list[NodeProto]]:
    """The nodes of a net and the estimate for them; x is [N, 64], weights are named by their sizes."""
    proto = net(
        f"(float[N,64] x, float[N,64] z, float[64,64] v, float[2,N,64] x3) => (float[] y) {{ {text} }}",
        {
            "w64": numbers(64, 64),
            "w256": numbers(64, 256),
            "w2_64": numbers(2, 64, 64),
            "w8_64": numbers(8, 64, 64),
            "b": numbers(64),
            "k": numbers(8, 64, 1, 1),
            "m": numbers(2, 1, 64),
            "c": numbers(2, 4, 1),
            "one": numbers(1, 1, 1),
            "t": numbers(1, 1, 1) > 0,
        },
    )
    return estimate(analysed(proto), on, assume), list(proto.graph.node)


def cost(text: str, on: Device = CPU, assume: int = 4) -> float:
    """Estimated time of a net's nodes one after another."""
    found, nodes = ready(text, on, assume)
    return found.total(nodes)


# -- profiles -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROFILES)
def test_shipped_profiles_are_complete(name: str) -> None:
    """Every profile names itself, and holds all numbers, none below zero, rates above it."""
    found = device(name)
    assert found.name == name
    for field in fields(Device):
        value = getattr(found, field.name)
        if isinstance(value, float):
            assert value >= 0
            assert math.isfinite(value)
            assert value > 0 or not field.name.endswith("_s")


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        ("cpu", "cpu"),
        ("CPUExecutionProvider", "cpu"),
        ("cuda", "cuda-a100"),
        ("CUDAExecutionProvider", "cuda-a100"),
        ("auto", "cpu"),
    ],
)
def test_a_provider_has_a_profile(provider: str, name: str) -> None:
    """By its short name or the runtime's; what has none of its own is taken for a CPU."""
    assert profile_for(provider) is device(name)


def test_a_profile_is_found_by_name_or_in_a_file(tmp_path: Path) -> None:
    """A file holds what a shipped profile holds; all that are shipped are named."""
    assert sorted(SHIPPED) == PROFILES
    shipped = resources.files("onnx_sched.profiles").joinpath("cpu.toml").read_text("utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(shipped.replace("0.7 ", "1.5 "), "utf-8")
    assert load("cpu") is CPU
    assert load(str(path)) == replace(CPU, dispatch_us=1.5)


SHIPPED_CPU = resources.files("onnx_sched.profiles").joinpath("cpu.toml").read_text("utf-8")


def test_what_takes_no_time_to_be_seen_may_be_zero(tmp_path: Path) -> None:
    """A lane, an image or a run may cost nothing; a file that `calibrate` wrote can say so."""
    path = tmp_path / "mine.toml"
    path.write_text(SHIPPED_CPU.replace("0.04 ", "0.0 "), "utf-8")
    assert load(str(path)) == replace(CPU, image_us=0.0)


BAD_PROFILES = {
    "no such name": ("cuda-h10", None, "cuda-h100"),
    "nothing like it": ("abacus", None, "There are"),
    "missing": ("{}/missing.toml", None, "calibrate"),
    "no toml": ("{}/bad.toml", "name = ", "calibrate"),
    "too little": ("{}/bad.toml", 'name = "mine"', "calibrate"),
    "no rate": ("{}/bad.toml", SHIPPED_CPU.replace("12.0 ", "0.0 "), "calibrate"),
    "below zero": ("{}/bad.toml", SHIPPED_CPU.replace("0.04 ", "-1 "), "calibrate"),
    "too much": ("{}/bad.toml", 'name = "mine"\nspeed = 1.0', "calibrate"),
}


@pytest.mark.parametrize("kind", BAD_PROFILES)
def test_a_profile_that_is_none_is_refused(tmp_path: Path, kind: str) -> None:
    """The error names what was asked for, the hint what there is or how to make one."""
    target, text, hint = BAD_PROFILES[kind]
    if text is not None:
        (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(UsageError, match="--target") as caught:
        load(target.format(tmp_path))
    assert target.format(tmp_path) in str(caught.value)
    assert hint in caught.value.hint


# -- nodes and sums -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_every_node_costs_a_dispatch_but_constants(name: str) -> None:
    """Nothing that runs is cheaper than starting it; a Constant does not run; a view is just a start."""
    proto = model(name)
    for on in (CPU, CUDA):
        found = estimate(studied(name), on, 3)
        for node in proto.graph.node:
            time = found.node(node)
            assert math.isfinite(time)
            assert time == 0 if node.op_type in FREE else time >= on.dispatch_us
            if node.op_type in VIEWS and node.domain == "":
                assert time == on.dispatch_us


@pytest.mark.parametrize("name", MODELS)
def test_larger_sizes_never_cost_less(name: str) -> None:
    """Node by node and in all, the estimate grows with the sizes known only at run time."""
    proto = model(name)
    for on in (CPU, CUDA):
        rows = [estimate(studied(name), on, size) for size in (1, 2, 8, 32, 1000)]
        for node in proto.graph.node:
            times = [row.node(node) for row in rows]
            assert times == sorted(times), (node.op_type, node.name)
        totals = [row.total(proto.graph.node) for row in rows]
        assert totals == sorted(totals)


@pytest.mark.parametrize("name", MODELS)
def test_a_total_is_the_sum_of_what_runs(name: str) -> None:
    """Without fusion the parts add up exactly; with it the whole is never more than its nodes.

    What a convolution's own layout costs depends on who stands beside it, and is counted apart.
    """
    proto = model(name)
    nodes = list(proto.graph.node)
    half = len(nodes) // 2
    alone = replace(CPU, convolves=False)
    plain = estimate(studied(name), replace(alone, fuses_linear=False), 8)
    assert plain.total(nodes) == pytest.approx(sum(plain.node(n) for n in nodes))
    assert plain.total(nodes) == pytest.approx(
        plain.total(nodes[:half]) + plain.total(nodes[half:])
    )
    fused = estimate(studied(name), alone, 8)
    assert fused.total(nodes) <= plain.total(nodes)
    assert estimate(studied(name), CPU, 8).total(nodes) >= fused.total(nodes)
    assert estimate(studied(name)).total([]) == 0


def test_a_rate_that_doubles_halves_what_it_counts() -> None:
    """Elementwise ops stream, cuts and turns move, products compute: each by its own rate."""
    cases = [
        ("y = Exp(x)", "stream_gb_s"),
        ("y = Transpose(x)", "move_gb_s"),
        ("y = Concat<axis=1>(x, z)", "move_gb_s"),
        ("y = LayerNormalization(x, b)", "norm_gb_s"),
    ]
    for text, rate in cases:
        bare = cost(text) - CPU.dispatch_us
        changed: dict[str, Any] = {rate: 2 * getattr(CPU, rate)}
        faster = replace(CPU, **changed)
        assert cost(text, faster) - CPU.dispatch_us == pytest.approx(bare / 2)
        for field in fields(Device):
            if field.name.endswith(("_s", "flops")) and field.name != rate:
                changed = {field.name: 7.0}
                other = replace(CPU, **changed)
                assert cost(text, other) == cost(text)


def test_bytes_read_and_written_are_counted_weights_are_not() -> None:
    """Two inputs and one output of [N, 64]; a constant operand stays in the cache."""
    size = 4 * 4 * 64 / CPU.stream_gb_s / 1e3
    assert cost("y = Add(x, z)") == pytest.approx(CPU.dispatch_us + 3 * size)
    assert cost("y = Add(x, b)") == pytest.approx(CPU.dispatch_us + 2 * size + 4 * CPU.run_us)
    assert cost("y = Exp(x)") == pytest.approx(CPU.dispatch_us + 2 * size)


RUNS = [
    ("y = Add(x, b)", 4),
    ("y = Add(x, z)", 0),
    ("y = Mul(x3, x)", 2),
    ("y = Mul(x3, m)", 8),
    ("y = Mul(x3, c)", 8),
    ("y = Mul(x3, one)", 1),
    ("y = Where(t, x3, m)", 8),
    ("y = Exp(x3)", 0),
]


@pytest.mark.parametrize(("text", "runs"), RUNS)
def test_what_broadcasts_is_met_run_by_run(text: str, runs: int) -> None:
    """As many stretches as an operand turns back or stands still: [2, 4, 64] and [2, 1, 64] meet in 8."""
    slow = replace(CPU, run_us=100.0)
    assert cost(text, slow) - cost(text, replace(CPU, run_us=0.0)) == pytest.approx(100 * runs)


def test_a_product_costs_its_arithmetic_and_its_weight() -> None:
    """2 * rows * K * N operations, and K * N numbers read once."""
    bare = replace(CPU, dispatch_us=0.0)
    flops, weight = 2 * 4 * 64 * 64 / CPU.gflops / 1e3, 4 * 64 * 64 / CPU.weights_gb_s / 1e3
    assert cost("y = MatMul(x, w64)", bare) == pytest.approx(flops + weight)
    assert cost("y = Gemm(x, w64, b)", bare) == pytest.approx(flops + weight)
    assert cost("y = MatMul(x, w256)", bare) == pytest.approx(4 * (flops + weight))
    stream = 4 * 64 * 64 / CPU.stream_gb_s / 1e3
    assert cost("y = MatMul(x, v)", bare) == pytest.approx(flops + stream)


def test_a_batched_product_pays_for_every_lane() -> None:
    """Twice 64x64 costs two lanes, and packing at more than one row, on top of the same arithmetic."""
    bare = replace(CPU, dispatch_us=0.0)
    for rows in (1, 4):
        packed = (rows > 1) * 2 * 4 * 64 * 64 / CPU.repack_gb_s / 1e3
        apart = 2 * cost("y = MatMul(x, w64)", bare, rows)
        together = cost("y = MatMul(x3, w2_64)", bare, rows)
        assert together == pytest.approx(apart + 2 * CPU.lane_us + packed)


def test_unknown_shapes_are_taken_as_small() -> None:
    """A value of which nothing is known costs a dispatch and a few bytes, not an error."""
    found, _ = ready("y = Relu(x)")
    for op in ("Mystery", "MatMul", "Conv", "Exp"):
        node = NodeProto(op_type=op, input=["unknown", "other"], output=["result"])
        assert CPU.dispatch_us <= found.node(node) < CPU.dispatch_us + 0.01


# -- fusion -------------------------------------------------------------------------------------------

FUSED = [
    ("p = MatMul(x, w64) y = Add(p, b)", 1),
    ("p = MatMul(x, w64) y = Add(b, p)", 1),
    ("p = MatMul(x, w64) q = Add(p, b) y = Relu(q)", 1),
    ("p = Gemm(x, w64, b) y = Sigmoid(p)", 1),
    ("p = Gemm(x, w64) y = Tanh(p)", 1),
    ("p = MatMul(x, w64) q = MatMul(z, w64) r = Add(p, b) s = Add(q, b) y = Sub(r, s)", 3),
]

APART = [
    ("p = MatMul(x, w64) y = Add(p, z)", 2),
    ("p = MatMul(x, w64) y = Relu(p)", 2),
    ("p = MatMul(x, w64) y = Mul(p, b)", 2),
    ("p = MatMul(x, w64) q = Add(p, b) y = Exp(q)", 2),
    ("p = MatMul(x, w64) q = Add(p, b) y = Sub(p, q)", 3),
    ("p = MatMul(x3, w2_64) y = Add(p, b)", 2),
    ("p = MatMul(x3, w64) y = Add(p, b)", 2),
    ("p = Gemm(x, w64, b) q = Relu(p) y = Relu(q)", 2),
]


@pytest.mark.parametrize(("text", "dispatches"), [*FUSED, *APART])
def test_what_a_runtime_fuses_is_one_dispatch(text: str, dispatches: int) -> None:
    """Product, bias and activation, in two dimensions and read by nobody else; nothing more."""
    endless: dict[str, Any] = {f.name: 1e30 for f in fields(Device)}
    started = replace(
        Device(**endless),
        name="starts alone",
        dispatch_us=1.0,
        lane_us=0.0,
        run_us=0.0,
        image_us=0.0,
        fuses_linear=True,
    )
    assert cost(text, started) == pytest.approx(dispatches)
    never = replace(started, fuses_linear=False)
    assert cost(text, never) == pytest.approx(text.count(" = "))


def test_the_order_of_independent_nodes_changes_no_total() -> None:
    """Lanes one after the other or side by side: the same sum."""
    proto = model("grouped_mlp")
    found = estimate(studied("grouped_mlp"), CPU, 8)
    nodes = list(proto.graph.node)
    lanes = sorted(nodes, key=lambda n: n.name.split(".groups.")[-1].split("/")[0])
    assert lanes != nodes
    assert found.total(lanes) == pytest.approx(found.total(nodes))
    assert len(nodes_of(proto, "MatMul")) == 48


# -- the mean -----------------------------------------------------------------------------------------

positive = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20)


@given(positive, st.floats(1e-3, 1e3))
def test_the_geometric_mean_scales(values: Sequence[float], factor: float) -> None:
    """It is the root of the product: a factor comes out, inverses invert, it lies between the ends."""
    mean = geometric_mean(values)
    assert mean == pytest.approx(float(np.exp(np.mean(np.log(values)))))
    assert geometric_mean([v * factor for v in values]) == pytest.approx(mean * factor)
    assert geometric_mean([1 / v for v in values]) == pytest.approx(1 / mean)
    assert min(values) * (1 - 1e-9) <= mean <= max(values) * (1 + 1e-9)


def test_the_geometric_mean_of_nothing_changes_nothing() -> None:
    """No measurement, no change: 1."""
    assert geometric_mean([]) == 1
    assert geometric_mean(iter([2.0, 0.5])) == pytest.approx(1)
