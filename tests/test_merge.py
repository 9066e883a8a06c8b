"""Merging models of one architecture into one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import ModelProto, numpy_helper

import onnx_sched
from models.mlp import critic_ensemble
from onnx_sched.cli import cli
from onnx_sched.errors import ModelError
from onnx_sched.judge.runtime import open_session, run
from onnx_sched.merge import merge

FEEDS = {
    "obs": np.linspace(-1, 1, 36, dtype=np.float32).reshape(3, 12),
    "act": np.linspace(1, -1, 12, dtype=np.float32).reshape(3, 4),
}


def results(model: ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    return run(open_session(model.SerializeToString(), "cpu", optimize=False), feeds)


@pytest.fixture
def members(tmp_path: Path) -> list[Path]:
    """Three models of one architecture with different weights."""
    paths = []
    for k in range(3):
        paths.append(tmp_path / f"member{k}.onnx")
        onnx.save(critic_ensemble(members=1, seed=k), str(paths[-1]))
    return paths


def alone(paths: list[Path], feeds: dict[str, Any] = FEEDS) -> list[Any]:
    return [results(onnx.load(str(p)), feeds)["q"] for p in paths]


def test_outputs_are_those_of_the_members(members: list[Path]) -> None:
    """q_k of the merged model is q of model k, bit for bit."""
    found = results(merge(members), FEEDS)
    for k, expected in enumerate(alone(members)):
        np.testing.assert_array_equal(found[f"q_{k}"], expected)


def test_separate_inputs_feed_one_member_each(members: list[Path]) -> None:
    """Member k sees only its own inputs."""
    feeds = {f"{n}_{k}": v * (k + 1) for n, v in FEEDS.items() for k in range(3)}
    found = results(merge(members, separate_inputs=True), feeds)
    for k, path in enumerate(members):
        own = alone([path], {n: v * (k + 1) for n, v in FEEDS.items()})[0]
        np.testing.assert_array_equal(found[f"q_{k}"], own)


@pytest.mark.parametrize("join", ["mean", "stack"])
def test_joins(members: list[Path], join: Any) -> None:
    """The mean is the mean of the members' outputs, the stack has them along a new first axis."""
    expected = np.stack(alone(members))
    found = results(merge(members, join), FEEDS)["q"]
    np.testing.assert_allclose(found, expected.mean(0) if join == "mean" else expected, rtol=1e-6)


@pytest.mark.parametrize("join", ["outputs", "mean", "stack"])
def test_merged_members_run_as_one_node_a_layer(members: list[Path], join: Any) -> None:
    """Where there were K products a layer, one is left, and outputs agree."""
    merged = merge(members, join)
    assert Counter(n.op_type for n in merged.graph.node)["Gemm"] == 9
    batched = onnx_sched.optimize(merged, choose="always", provider="cpu").proto
    counts = Counter(n.op_type for n in batched.graph.node)
    assert counts["Gemm"] + counts["MatMul"] == 3
    for name, value in results(merged, FEEDS).items():
        np.testing.assert_allclose(results(batched, FEEDS)[name], value, rtol=1e-5, atol=1e-6)


def test_a_common_trunk_is_stored_and_run_once(tmp_path: Path, members: list[Path]) -> None:
    """Members that share all but the last layer: the shared layers stand once in the result."""
    first = onnx.load(str(members[0]))
    paths = []
    for k in range(3):
        model = ModelProto()
        model.CopyFrom(first)
        last = next(n for n in reversed(model.graph.node) if n.op_type == "Gemm")
        for tensor in model.graph.initializer:
            if tensor.name in last.input:
                array = numpy_helper.to_array(tensor) + np.float32(k)
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        paths.append(tmp_path / f"adapter{k}.onnx")
        onnx.save(model, str(paths[-1]))
    merged = merge(paths)
    assert Counter(n.op_type for n in merged.graph.node)["Gemm"] == 2 + 3
    assert merged.ByteSize() < 2 * first.ByteSize()
    found = results(merged, FEEDS)
    for k, expected in enumerate(alone(paths)):
        np.testing.assert_array_equal(found[f"q_{k}"], expected)


def test_models_that_do_not_fit_are_named(tmp_path: Path, members: list[Path]) -> None:
    """Another interface, another opset, a single model: an error that names the file and the reason."""
    other = tmp_path / "other.onnx"
    onnx.save(critic_ensemble(members=1, observation=5), str(other))
    with pytest.raises(ModelError, match=r"other\.onnx has inputs obs\[batch, 5\]"):
        merge([members[0], other])
    onnx.save(critic_ensemble(members=1, opset=13), str(other))
    with pytest.raises(ModelError, match=r"other\.onnx imports opsets"):
        merge([members[0], other])
    with pytest.raises(ModelError, match="at least two"):
        merge(members[:1])


def test_the_command_writes_a_batched_ensemble(tmp_path: Path, members: list[Path]) -> None:
    """`merge A B C -o OUT --mean` does it all."""
    out = tmp_path / "ensemble.onnx"
    names = [str(p) for p in members]
    done = CliRunner().invoke(
        cli, ["merge", *names, "-o", str(out), "--mean", "--choose", "always", "--provider", "cpu"]
    )
    assert done.exit_code == 0, done.output
    expected = np.mean(alone(members), axis=0)
    np.testing.assert_allclose(results(onnx.load(str(out)), FEEDS)["q"], expected, rtol=1e-5)
