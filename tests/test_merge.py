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
from onnx_sched.merge import merge, put_together
from tests.members import FEEDS, alone, critics, results, written


@pytest.fixture
def members(tmp_path: Path) -> list[Path]:
    """Three models of one architecture with different weights."""
    return critics(tmp_path)


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


@pytest.mark.parametrize(
    ("other", "code", "said"),
    [
        ("foreign", 2, "foreign.onnx has inputs obs[batch, 5]"),
        ("gone", 1, "gone.onnx: no such file"),
        ("junk", 1, "junk.onnx is not an ONNX model"),
    ],
)
def test_the_exit_code_tells_misuse_from_failure(
    tmp_path: Path, members: list[Path], other: str, code: int, said: str
) -> None:
    """Models that do not fit together are a mistake of the caller, 2; one that cannot be read is 1."""
    onnx.save(critic_ensemble(members=1, observation=5), str(tmp_path / "foreign.onnx"))
    (tmp_path / "junk.onnx").write_bytes(b"not a model")
    there = sorted(tmp_path.iterdir())
    words = [str(members[0]), str(tmp_path / f"{other}.onnx"), "-o", str(tmp_path / "out.onnx")]
    done = CliRunner().invoke(cli, ["merge", *words])
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr
    assert "hint: " in done.stderr
    assert sorted(tmp_path.iterdir()) == there


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


# -- what is shared, and what only looks alike ---------------------------------------------------------


def test_zeros_of_either_sign_are_two(tmp_path: Path) -> None:
    """-0.0 equals 0.0, but 1 / -0.0 is no 1 / 0.0: attributes are the same only bit for bit."""
    paths = written(
        tmp_path, *(f"c = Constant<value_float: float = {v}>() y = Div(x, c)" for v in "01")
    )
    for path, zero in zip(paths, (0.0, -0.0), strict=True):
        model = onnx.load(str(path))
        model.graph.node[0].attribute[0].f = zero
        onnx.save(model, str(path))
    found = results(merge(paths), {"x": np.ones((1, 4), np.float32)})
    assert np.all(found["y_0"] == np.inf)
    assert np.all(found["y_1"] == -np.inf)


def test_what_is_shared_is_counted(members: list[Path]) -> None:
    """A model merged with itself: every weight stands once for two, every node but the outputs' runs once."""
    one = onnx.load(str(members[0]))
    both = put_together([members[0], members[0]])
    before, after = (
        [numpy_helper.to_array(t).nbytes for t in m.graph.initializer] for m in (one, both.model)
    )
    assert both.shared.weights == len(after) <= len(before)
    assert both.shared.weight_bytes == 2 * sum(before) - sum(after) > 0
    assert len(both.model.graph.node) == 2 * len(one.graph.node) - both.shared.nodes
    assert both.shared.nodes == len(one.graph.node) - 1


def test_a_stack_of_open_rank_stays_open(tmp_path: Path) -> None:
    """An output without a shape gets none: one of rank 1 would be a lie."""
    paths = written(tmp_path, "y = Relu(x)", "y = Sigmoid(x)")
    for path in paths:
        model = onnx.load(str(path))
        model.graph.output[0].type.tensor_type.ClearField("shape")
        onnx.save(model, str(path))
    merged = merge(paths, "stack")
    assert not merged.graph.output[0].type.tensor_type.HasField("shape")
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    expected = np.stack([results(onnx.load(str(p)), {"x": x})["y"] for p in paths])
    np.testing.assert_array_equal(results(merged, {"x": x})["y"], expected)


def test_names_that_come_to_stand_twice_are_told(tmp_path: Path) -> None:
    """An input `y_0` and an output `y` that becomes `y_0`: no traceback, but the files and the name."""
    paths = written(tmp_path, *["y = Relu(x)"] * 2)
    for path in paths:
        model = onnx.load(str(path))
        model.graph.input[0].name = model.graph.node[0].input[0] = "y_0"
        onnx.save(model, str(path))
    with pytest.raises(ModelError, match=r"model0\.onnx, .*model1\.onnx: merged, 'y_0' would be"):
        merge(paths)


def test_a_mean_of_integers_is_refused_with_the_files_name(tmp_path: Path) -> None:
    """What has no mean says which file and which output."""
    paths = written(tmp_path, *["y = Shape(x)"] * 2, y="int64[2]")
    with pytest.raises(ModelError, match=r"model0\.onnx: output 'y' is no floating-point tensor"):
        merge(paths, "mean")


def test_types_that_differ_are_told(tmp_path: Path) -> None:
    """Equal sizes of other types: the message shows the types."""
    (tmp_path / "other").mkdir()
    paths = written(tmp_path, "y = Relu(x)")
    paths += written(tmp_path / "other", "y = Cast<to = 11>(x)", y="double[N, 4]")
    with pytest.raises(ModelError, match=r"outputs y\[N, 4\] double, but .* y\[N, 4\] float"):
        merge(paths)


def test_what_models_say_of_themselves_is_kept(members: list[Path]) -> None:
    """The first one's stands as it was; what others say differently stands under their number."""
    for k, path in enumerate(members):
        model = onnx.load(path)
        model.doc_string = f"member {k}"
        model.metadata_props.add(key="labels", value="same")
        model.metadata_props.add(key="fold", value=str(k))
        onnx.save(model, path)
    merged = merge(members)
    notes = {p.key: p.value for p in merged.metadata_props}
    assert merged.doc_string == "member 0"
    assert notes == {
        "labels": "same",
        "fold": "0",
        "m1/fold": "1",
        "m2/fold": "2",
        "m1/doc_string": "member 1",
        "m2/doc_string": "member 2",
    }
