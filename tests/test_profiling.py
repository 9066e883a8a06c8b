"""Dispatches, bytes and times as ONNX Runtime reports them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from onnx_sched.judge.profiling import profile, read_profile
from onnx_sched.judge.runtime import RuntimeRefused

CPU = "CPUExecutionProvider"


def parse(text: str) -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')


def bytes_of(model: ModelProto) -> bytes:
    return bytes(model.SerializeToString())


CHAIN = bytes_of(
    parse(
        """g (float[N] x) => (float[N] y) {
             [a] a = Neg(x)  [b] b = Exp(a)  [c] c = Sqrt(b)  [y] y = Sum(a, b, c) }"""
    )
)


@pytest.mark.parametrize("elements", [1, 1000, 123457])
def test_the_peak_is_exact(elements: int) -> None:
    """a, b, c and y are alive together while the sum is computed: four arrays, to the byte."""
    result = profile(CHAIN, {"x": np.ones(elements, np.float32)}, "cpu")
    assert result.peak_activation_bytes == 4 * 4 * elements
    assert result.source.startswith("ONNX Runtime profile")


def test_the_peak_does_not_count_weights() -> None:
    """Weights lie in the same arena, packed: only what comes on top of them counts."""
    model = parse("g (float[N,64] x) => (float[N,64] y) { a = MatMul(x, w) y = MatMul(a, w) }")
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    result = profile(bytes_of(model), {"x": np.ones((10, 64), np.float32)}, "cpu")
    assert result.peak_activation_bytes == 2 * 4 * 10 * 64


def test_dispatches_are_counted_after_fusion() -> None:
    """What ONNX Runtime runs, not what the file says: MatMul + Add is one."""
    model = parse("g (float[N,4] x) => (float[N,4] y) { a = MatMul(x, w) y = Add(a, b) }")
    for name, shape in [("w", (4, 4)), ("b", (4,))]:
        model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    result = profile(bytes_of(model), {"x": np.ones((2, 4), np.float32)}, "cpu")
    assert result.dispatches == 1
    assert result.nodes_per_provider == {CPU: 1}


def test_dispatches_do_not_depend_on_the_number_of_runs() -> None:
    """One run counts, however many were made; times come for every node, in order."""
    feeds = {"x": np.ones(100, np.float32)}
    once, often = (profile(CHAIN, feeds, "cpu", warm_runs=runs) for runs in (0, 5))
    assert once.dispatches == often.dispatches == 4
    assert once.peak_activation_bytes == often.peak_activation_bytes
    for result in (once, often):
        assert [node.name for node in result.node_times_us] == ["a", "b", "c", "y"]
        assert [node.op_type for node in result.node_times_us] == ["Neg", "Exp", "Sqrt", "Sum"]
        assert {node.provider for node in result.node_times_us} == {CPU}
        assert all(node.calls == 1 and node.microseconds >= 0 for node in result.node_times_us)


def test_a_loop_counts_every_turn() -> None:
    """Nodes inside a body are dispatched as often as the body runs, beside the loop itself."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["again"], name="keep"),
            helper.make_node("Exp", ["v"], ["w"], name="exp"),
        ],
        "body",
        [
            value("turn", TensorProto.INT64, []),
            value("go", TensorProto.BOOL, []),
            value("v", TensorProto.FLOAT, [4]),
        ],
        [value("again", TensorProto.BOOL, []), value("w", TensorProto.FLOAT, [4])],
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body, name="loop")
    graph = helper.make_graph(
        [loop],
        "g",
        [value("n", TensorProto.INT64, []), value("x", TensorProto.FLOAT, [4])],
        [value("y", TensorProto.FLOAT, [4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = {"n": np.array(3), "x": np.zeros(4, np.float32)}
    result = profile(bytes_of(model), feeds, "cpu")
    assert result.dispatches == 1 + 3 * 2
    calls = {node.name: node.calls for node in result.node_times_us}
    assert calls == {"loop": 1, "keep": 3, "exp": 3}
    assert result.node_times_us[0].name == "loop"
    # One float array lives before each turn and one after it, and the flag beside them.
    assert result.peak_activation_bytes is not None
    assert result.peak_activation_bytes >= 2 * 16


def test_a_model_that_is_all_constant_dispatches_nothing() -> None:
    """No node, no bytes; not an error."""
    model = parse("g () => (float[2] y) { y = Add(w, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    result = profile(bytes_of(model), {}, "cpu")
    assert (result.dispatches, result.peak_activation_bytes) == (0, 0)
    assert result.nodes_per_provider == {}


def test_nothing_stays_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of the profile is removed, also when the run fails."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    profile(CHAIN, {"x": np.ones(1, np.float32)}, "cpu")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeRefused):
        profile(CHAIN, {}, "cpu")
    assert list(tmp_path.iterdir()) == []


def row(name: str, ts: int, provider: str, used: int | None, grown: int = 0) -> dict[str, Any]:
    memory = {"mem_bytes_requested_in_use": str(used), "mem_requested_in_use_delta": str(grown)}
    args = {"provider": provider, "op_name": "Op", **(memory if used is not None else {})}
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": ts, "dur": 5, "args": args}


RUN = {"cat": "Session", "name": "model_run", "ts": 0, "dur": 99, "args": {}}


def test_without_memory_fields_there_are_no_bytes() -> None:
    """An older ONNX Runtime gives dispatches, but no bytes, and the source says which version."""
    result = read_profile([row("a", 1, CPU, None), RUN], "1.27.0")
    assert (result.dispatches, result.peak_activation_bytes) == (1, None)
    assert "1.27.0" in result.source
    assert "not available" in result.source


def test_each_provider_has_memory_of_its_own() -> None:
    """The peak is the largest sum over all providers at one moment, each above its own start."""
    rows = [
        row("a", 1, "GPU", 1000 + 64, 64),
        row("b", 2, CPU, 500 + 8, 8),
        row("c", 3, "GPU", 1000 + 16, 0),
        RUN,
    ]
    result = read_profile(rows, "x")
    assert result.peak_activation_bytes == 64 + 8
    assert result.nodes_per_provider == {CPU: 1, "GPU": 2}


def test_the_baseline_is_before_the_node_that_starts_first() -> None:
    """A node with a body ends after the nodes inside it, but started before them."""
    rows = [row("inner", 2, CPU, 140, 16), row("outer", 1, CPU, 124, 24), RUN]
    result = read_profile(rows, "x")
    assert result.peak_activation_bytes == 40
    assert [node.name for node in result.node_times_us] == ["outer", "inner"]


def test_times_are_the_median_of_the_warm_runs() -> None:
    """The first run, which warms up, does not count; a node called twice adds up."""
    runs = []
    for duration in (1000, 10, 30, 20):
        one = {**row("a", 1, CPU, 0), "dur": duration}
        runs += [one, {**one, "ts": 2}, RUN]
    (node,) = read_profile(runs, "x").node_times_us
    assert (node.microseconds, node.calls) == (40, 2)
