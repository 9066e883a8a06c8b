"""The committed models at their best: how few nodes they come to, and that they still give the same."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache

import numpy as np
import onnx
import pytest
from onnx import ModelProto

import onnx_sched
from onnx_sched.passes.rewrite import MEMBERS
from tests.nets import COMMITTED, FOLDER, committed, numbers
from tests.rule_examples import Runs, compare

ROOT = FOLDER.parent
RANDOM = "near_training_dropout"


@cache
def batched(name: str) -> onnx_sched.Result:
    """A committed model with all that is legal done to it, and checked."""
    return onnx_sched.optimize(FOLDER / f"{name}.onnx", choose="always")


@cache
def bare(name: str) -> ModelProto:
    """The same where no batch is empty: nothing that only guards against that."""
    path = FOLDER / f"{name}.onnx"
    return onnx_sched.optimize(path, choose="always", check=False, nonempty=True).proto


def kinds(model: ModelProto) -> Counter[str]:
    """How many nodes of each op type a model has."""
    return Counter(node.op_type for node in model.graph.node)


def counts(name: str, *wanted: str) -> tuple[int, ...]:
    """How many nodes of some op types are left."""
    found = kinds(batched(name).proto)
    return tuple(found[kind] for kind in wanted)


def sizes(name: str) -> list[dict[str, int]]:
    """Sizes at which a model is tried: one, several and no rows, sizes of different axes different."""
    fixed = {f"rows_{k}": 2 + k for k in range(4)}
    return [{"batch": n, **fixed} for n in (1, 5, 0)]


def test_twelve_layers_of_four_groups_are_twelve_products() -> None:
    """48 MatMul become 12; the tensor is stacked once, on the way in, and unstacked once, on the way out."""
    assert kinds(committed("grouped_mlp"))["MatMul"] == 48
    found = kinds(bare("grouped_mlp"))
    assert found == Counter(Reshape=2, Transpose=2, MatMul=12, Add=12, Relu=12)
    order = [node.op_type for node in bare("grouped_mlp").graph.node]
    assert order[:2] == ["Reshape", "Transpose"]
    assert order[-2:] == ["Transpose", "Reshape"]
    careful = kinds(batched("grouped_mlp").proto) - found
    assert careful <= Counter(Reshape=1)  # where a batch may be empty


def test_norms_between_layers_stay_stacked() -> None:
    """16 MatMul, 16 norms and 16 Tanh become 4 each; scales that differ by lane follow as Mul and Add."""
    found = kinds(bare("grouped_mlp_norm"))
    assert found == Counter(
        Reshape=2, Transpose=2, MatMul=4, Add=8, LayerNormalization=4, Mul=4, Tanh=4
    )


HEADS = ("headlocal_transformer", "exported_transformer", "exported_transformer_dynamo")


@pytest.mark.parametrize("name", HEADS)
def test_head_local_projections_are_one_node_a_layer(name: str) -> None:
    """Query, key and value of all heads: 12 products become 1; scores, values and both maps: 4 become 1.

    With the output projection of each of the two blocks that makes 58 products 12.
    """
    result = batched(name)
    products = [(g.size, g.form) for g in result.plan.groups if g.kind in ("Linear", "MatMul")]
    block = [(12, "wide"), (4, "stacked"), (4, "stacked"), (4, "stacked"), (4, "stacked")]
    assert products == block * 2
    before, after = kinds(committed(name)), kinds(result.proto)
    assert (before["MatMul"], after["MatMul"]) == (58, 12)
    for kind, left in (("Softmax", 2), ("LayerNormalization", before["LayerNormalization"] - 6)):
        assert after[kind] == left
    assert not after["Concat"]
    assert not after["Gather"]
    assert after["Split"] == 2


def test_experts_gates_and_towers_are_one_product_each() -> None:
    """8 experts of 2 layers, 3 gates and 3 towers of 2 layers: 25 Gemm become 4 products."""
    assert sum(counts("mmoe", "Gemm", "MatMul")) == 4
    assert counts("mmoe", "Softmax", "ReduceSum", "Mul", "Concat", "Sigmoid") == (1, 1, 1, 0, 1)
    assert sum(counts("mmoe_norm", "Gemm", "MatMul")) == 4
    assert counts("mmoe_norm", "BatchNormalization", "Softmax") == (0, 1)


def test_a_network_for_each_column_is_one_network() -> None:
    """Columns have 3 products each, two of them on one value: 31 become 3, Slices and Concat are gone."""
    found = kinds(batched("per_feature").proto)
    assert found["MatMul"] == 3
    assert (found["Slice"], found["Concat"]) == (0, 0)
    assert (found["Elu"], found["Sigmoid"], found["LayerNormalization"], found["Softmax"]) == (
        1,
        1,
        1,
        1,
    )


def test_an_ensemble_is_one_member() -> None:
    """10 members of 3 layers: 30 Gemm become 3, 20 Relu 2."""
    assert sum(counts("critic_ensemble", "Gemm", "MatMul")) == 3
    assert counts("critic_ensemble", "Relu", "Concat") == (2, 1)


def test_towers_of_convolutions_are_grouped_convolutions() -> None:
    """4 towers of 2, then 3 on one value: 11 Conv become 3; nothing is split or joined in between."""
    assert counts("conv_towers", "Conv", "Relu", "Split", "Concat") == (3, 3, 0, 0)
    assert [g.form for g in batched("conv_towers").plan.groups if g.kind == "Conv"] == [
        "grouped_conv",
        "grouped_conv",
        "wide_conv",
    ]


APART: Mapping[str, tuple[set[str], str]] = {
    "near_unequal_widths": ({"lanes.2.0/MatMul"}, "lanes.0.0/MatMul"),
    "near_activation_attribute": ({"lanes.1/LeakyRelu"}, "lanes.0/LeakyRelu"),
    "near_cross_dependency": ({"lanes.1.0/MatMul"}, "lanes.0.0/MatMul"),
    "near_weight_input": ({"lanes.1.0/MatMul"}, "lanes.0.0/MatMul"),
    "near_weight_default": ({"lanes.1.0/MatMul"}, "lanes.0.0/MatMul"),
    "near_dynamic_dims": ({f"lanes.{k}.0/MatMul" for k in range(4)}, ""),
    RANDOM: ({f"lanes.{k}/Dropout" for k in range(4)}, "lanes.0.0/MatMul"),
}


@pytest.mark.parametrize("name", APART)
def test_what_must_not_run_together_does_not(name: str) -> None:
    """The odd lane of a near miss shares no node with the others; the others still run as one."""
    apart, together = APART[name]
    model = batched(name).proto
    names = {node.name for node in model.graph.node}
    assert apart <= names
    signed = [p.value for n in model.graph.node for p in n.metadata_props if p.key == MEMBERS]
    assert not any(f'"{one}"' in note for one in apart for note in signed)
    assert together not in names or not together


def test_lanes_that_cross_are_batched_one_way() -> None:
    """Norm and map in either order: what shares a level shares a node, and no node waits for itself."""
    groups = batched("near_crossed_order").plan.groups
    assert [(g.kind, g.size) for g in groups].count(("Linear", 4)) == 0
    assert all(g.size == 2 for g in groups)


def test_a_tapped_lane_keeps_its_name() -> None:
    """A lane that is also an output comes out under the model's name; all products are batched."""
    result = batched("near_tapped_lane")
    assert counts("near_tapped_lane", "MatMul") == (2,)
    assert [o.name for o in result.proto.graph.output] == ["y", "tap"]


def test_lanes_joined_in_another_order_are_put_in_order_once() -> None:
    """The order 2, 0, 3, 1, 0 of a Concat is one Gather."""
    assert counts("near_permuted_join", "MatMul", "Gather", "Concat") == (2, 1, 0)


@pytest.mark.parametrize("name", COMMITTED)
def test_the_batched_model_agrees(name: str) -> None:
    """Without the runtime's optimisations and with them the outputs agree, and the full check passes."""
    result = batched(name)
    assert result.report.verdict in ("bitwise", "within_tolerance")
    assert result.report.checks > 0 or result.report.status == "unchanged"
    onnx.checker.check_model(result.proto, full_check=True)
    compared = compare(committed(name), result.proto, *sizes(name))
    assert compared == (
        2 if name == "per_feature" else 3
    )  # its ReduceSum of nothing has a shape of its own


@pytest.mark.parametrize("name", COMMITTED)
def test_what_is_not_batched_is_as_it_was(name: str) -> None:
    """Interface, opsets, IR version, functions, notes and untouched nodes of a model stay."""
    old, new = committed(name), batched(name).proto
    assert list(new.graph.input) == list(old.graph.input)
    assert list(new.graph.output) == list(old.graph.output)
    assert (new.ir_version, list(new.opset_import)) == (old.ir_version, list(old.opset_import))
    assert list(new.metadata_props) == list(old.metadata_props)
    nodes = {node.name: node for node in old.graph.node if node.name}
    for node in new.graph.node:
        if node.name in nodes and node.op_type != "Concat":
            assert node == nodes[node.name]


@pytest.mark.parametrize("name", COMMITTED)
def test_optimising_again_changes_nothing(name: str) -> None:
    """A batched model has nothing left to batch: the second run is unchanged, byte for byte."""
    first = batched(name).proto
    second = onnx_sched.optimize(first, choose="always", check=False)
    assert second.report.status == "unchanged"
    assert second.proto.SerializeToString() == first.SerializeToString()


DIGESTS = """
import hashlib, sys
import onnx_sched
for path in sys.argv[1:]:
    proto = onnx_sched.optimize(path, choose="always", check=False).proto
    print(hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest())
"""


def test_the_result_is_the_same_each_time() -> None:
    """The same model gives the same bytes, in this process and in others with any seed of hashing."""
    mine = []
    for name in COMMITTED:
        proto = onnx_sched.optimize(FOLDER / f"{name}.onnx", choose="always", check=False).proto
        mine.append(hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest())
        again = batched(name).proto
        assert proto.SerializeToString() == again.SerializeToString()
    paths = [str(FOLDER / f"{name}.onnx") for name in COMMITTED]
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", DIGESTS, *paths],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        )
        for seed in ("0", "1")
    ]
    for run in runs:
        output, _ = run.communicate(timeout=120)
        assert output.split() == mine


def test_a_lane_with_nothing_but_nan_leaves_the_others_alone() -> None:
    """No number of one lane reaches another: not even infinity times zero."""
    model = committed("grouped_mlp")
    inputs = {"x": numbers(3, 64)}
    clean = Runs(batched("grouped_mlp").proto)(inputs)["y"]
    inputs["x"] = inputs["x"].copy()
    inputs["x"][:, 16:32] = np.nan
    inputs["x"][:, 48:] = np.inf
    with np.errstate(all="ignore"):
        spoilt = Runs(batched("grouped_mlp").proto)(inputs)["y"]
        expected = Runs(model)(inputs)["y"]
    np.testing.assert_array_equal(spoilt[:, :16], clean[:, :16])
    np.testing.assert_array_equal(spoilt[:, 32:48], clean[:, 32:48])
    assert np.isnan(spoilt[:, 16:32]).all() == np.isnan(expected[:, 16:32]).all()


@pytest.mark.parametrize("name", ["grouped_mlp", "mmoe", "conv_towers"])
def test_each_output_has_its_largest_difference(name: str) -> None:
    """The report has a row for every output of the model, in its order, with how far it is off."""
    report = batched(name).report
    model = committed(name)
    assert [o.name for o in report.outputs] == [o.name for o in model.graph.output]
    for row in report.outputs:
        assert row.max_abs is not None
        assert 0 <= row.max_abs < 1e-4
        assert row.max_abs == 0 or not row.bitwise
