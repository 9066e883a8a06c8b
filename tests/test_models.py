"""The committed models are what their builders say, and sound enough to judge an optimizer by."""

from __future__ import annotations

import importlib.util
import itertools
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from models import near_misses
from models.catalog import CATALOG, EXPORTED, serialise
from models.convs import conv_towers
from models.experts import mmoe
from models.features import per_feature
from models.mlp import critic_ensemble, grouped_mlp
from models.oracles import ORACLES
from models.transformer import headlocal_transformer

Array = NDArray[np.float32]
Weights = dict[str, Array]

FOLDER = Path(__file__).resolve().parent.parent / "models"
RANDOM = "near_training_dropout"
EVERY = [*CATALOG, *EXPORTED]
REPEATABLE = [name for name in EVERY if name != RANDOM]


def load(name: str) -> onnx.ModelProto:
    return onnx.load(FOLDER / f"{name}.onnx")


def count(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def weights(model: onnx.ModelProto) -> Weights:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def attribute(node: onnx.NodeProto, name: str) -> object:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}[name]


def feed(model: onnx.ModelProto, rows: int) -> dict[str, Array]:
    """Standard normal inputs; the first named dimension is `rows` long, each further one longer."""
    rng = np.random.default_rng(7)
    sizes: dict[str, int] = {}
    values = {}
    for info in model.graph.input:
        shape = [
            dim.dim_value or sizes.setdefault(dim.dim_param, rows + len(sizes))
            for dim in info.type.tensor_type.shape.dim
        ]
        values[info.name] = rng.standard_normal(shape).astype(np.float32)
    return values


def run(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    data = model.SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    results: list[Array] = session.run(None, inputs)
    return results


@pytest.mark.parametrize("name", CATALOG)
def test_committed_file_is_what_its_builder_builds(name: str) -> None:
    """Rebuilding gives the committed bytes (`python -m models` writes them)."""
    assert serialise(CATALOG[name]()) == serialise(load(name))


def test_the_folder_holds_the_catalogue_and_the_exports() -> None:
    """Every file is in the catalogue or exported, every entry has a file, none is large."""
    files = {path.stem: path.stat().st_size for path in FOLDER.glob("*.onnx")}
    assert sorted(files) == sorted(EVERY)
    assert max(files.values()) < 120_000


@pytest.mark.parametrize("name", EVERY)
def test_committed_file_passes_the_full_check(name: str) -> None:
    """The checker accepts it, shapes included; old ORT versions can read it; no value is frozen."""
    model = load(name)
    onnx.checker.check_model(model, full_check=True)
    assert (model.ir_version, model.opset_import[0].version) in {(8, 17), (10, 20)}
    for info in (*model.graph.input, *model.graph.output):
        if not info.name.endswith(".weight"):
            assert info.type.tensor_type.shape.dim[0].dim_param


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", REPEATABLE)
def test_onnx_runtime_agrees_with_the_reference(name: str, rows: int) -> None:
    """ONNX Runtime and onnx.reference give the same outputs at batch 1 and 3."""
    model = load(name)
    inputs = feed(model, rows)
    results = run(model, inputs)
    expected = ReferenceEvaluator(model).run(None, inputs)
    assert len(results) == len(model.graph.output)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", REPEATABLE)
def test_exchanged_parameters_are_noticed(name: str) -> None:
    """Exchanging a parameter between neighbouring members moves an output by 0.5 % or more."""
    model = load(name)
    inputs = feed(model, 64)
    before = run(model, inputs)
    roles: dict[tuple[str, tuple[int, ...]], list[onnx.TensorProto]] = defaultdict(list)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.dims:
            roles[re.sub(r"\d+", "*", tensor.name), tuple(tensor.dims)].append(tensor)
    pairs = [pair for tensors in roles.values() for pair in itertools.pairwise(tensors)]
    assert len(pairs) >= 6
    for one, two in pairs:
        one.raw_data, two.raw_data = two.raw_data, one.raw_data
        after = run(model, inputs)
        one.raw_data, two.raw_data = two.raw_data, one.raw_data
        moved = [np.abs(a - b).max() / np.abs(b).max() for a, b in zip(after, before, strict=True)]
        assert max(moved) > 5e-3, (one.name, two.name)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("activation", ["Relu", "Tanh", "Elu"])
def test_twelve_layers_neither_explode_nor_vanish(activation: str, seed: int) -> None:
    """In every group of a 12-layer MLP the outputs vary over the batch, by about as much as x."""
    model = grouped_mlp(activation=activation, seed=seed)
    (y,) = run(model, feed(model, 256))
    spread = y.reshape(256, 4, 16).std(axis=0).max(axis=1)
    assert (spread > 0.1).all()
    assert (spread < 10.0).all()


@pytest.mark.parametrize("name", ORACLES)
def test_builder_computes_what_it_says(name: str) -> None:
    """Running the members one by one equals running them as one batch in numpy."""
    model = load(name)
    inputs = feed(model, 3)
    for result, wanted in zip(
        run(model, inputs), ORACLES[name](weights(model), inputs), strict=True
    ):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "op", "number"),
    [
        ("grouped_mlp", "MatMul", 48),
        ("grouped_mlp_norm", "LayerNormalization", 16),
        ("headlocal_transformer", "MatMul", 58),
        ("headlocal_transformer", "Erf", 8),
        ("mmoe", "Gemm", 25),
        ("mmoe_norm", "BatchNormalization", 10),
        ("per_feature", "MatMul", 31),
        ("critic_ensemble", "Gemm", 30),
        ("conv_towers", "Conv", 11),
        ("exported_transformer", "MatMul", 58),
        ("exported_transformer", "Erf", 8),
        ("exported_transformer_dynamo", "MatMul", 58),
        ("exported_transformer_dynamo", "Gelu", 8),
    ],
)
def test_number_of_heavy_nodes(name: str, op: str, number: int) -> None:
    """The committed files have the counts that the README promises."""
    assert count(load(name))[op] == number


@pytest.mark.parametrize(
    ("model", "op", "number"),
    [
        (grouped_mlp(layers=3, groups=5, width=2), "MatMul", 3 * 5),
        (headlocal_transformer(blocks=1, heads=2, model=8, seq="seq"), "MatMul", 1 * (7 * 2 + 1)),
        (mmoe(experts=2, gates=1), "Gemm", 2 * 2 + 3 * 1),
        (per_feature(features=3, time="time"), "MatMul", 3 * 3 + 1),
        (critic_ensemble(members=2, depth=1), "Gemm", 2 * (1 + 1)),
        (conv_towers(towers=2, depth=1, branches=3, size="size"), "Conv", 2 * 1 + 3),
    ],
)
def test_parameters_decide_the_size(model: onnx.ModelProto, op: str, number: int) -> None:
    """Other parameters give valid models with the counts that the docstrings promise."""
    onnx.checker.check_model(model, full_check=True)
    assert count(model)[op] == number
    inputs = feed(model, 2)
    for result, wanted in zip(
        run(model, inputs), ReferenceEvaluator(model).run(None, inputs), strict=True
    ):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("opset", "ir_version"), [(13, 7), (18, 8), (21, 10)])
def test_opset_batch_and_seed_are_free(opset: int, ir_version: int) -> None:
    """Opset, IR version and batch size are as asked; another seed gives other numbers."""
    models = [
        grouped_mlp(layers=2, batch=3, seed=seed, opset=opset, ir_version=ir_version)
        for seed in (0, 1)
    ]
    onnx.checker.check_model(models[0], full_check=True)
    assert (models[0].opset_import[0].version, models[0].ir_version) == (opset, ir_version)
    assert models[0].graph.output[0].type.tensor_type.shape.dim[0].dim_value == 3
    one, two = (run(model, feed(model, 3))[0] for model in models)
    assert np.abs(one - two).max() > 0.1


def test_a_weight_depends_on_its_name_alone() -> None:
    """A smaller model has the weights of the larger one, where their names and shapes agree."""
    large, small = weights(load("grouped_mlp")), weights(grouped_mlp(layers=2, groups=3))
    shared = [name for name in small if name.startswith("layers.")]
    assert len(shared) == 12
    for name in shared:
        np.testing.assert_array_equal(small[name], large[name])


def test_unequal_widths() -> None:
    """Exactly one lane has another hidden width."""
    shapes = Counter(
        w.shape for k, w in weights(load("near_unequal_widths")).items() if ".weight" in k
    )
    assert shapes == {(8, 16): 3, (16, 8): 3, (8, 5): 1, (5, 8): 1}


def test_activation_attribute() -> None:
    """Exactly one lane has another slope, and giving it the common one changes y."""
    odd, even = load("near_activation_attribute"), near_misses.activation_attribute(odd_alpha=0.01)
    slopes = [attribute(n, "alpha") for n in odd.graph.node if n.op_type == "LeakyRelu"]
    np.testing.assert_allclose(np.array(slopes), [0.01, 0.2, 0.01, 0.01], rtol=1e-6)
    inputs = feed(odd, 3)
    assert np.abs(run(odd, inputs)[0] - run(even, inputs)[0]).max() > 0.01


def reaches(model: onnx.ModelProto, source: str, target: str) -> bool:
    """Whether a path of tensors leads from node `source` to node `target`."""
    tainted: set[str] = set()
    for node in model.graph.node:  # in topological order
        if node.name == source or tainted & set(node.input):
            tainted.update(node.output)
            if node.name == target and node.name != source:
                return True
    return False


def test_cross_dependency() -> None:
    """The first MatMul of lane 0 reaches that of lane 1, and that of no other lane."""
    model = load("near_cross_dependency")
    first = [f"lanes.{lane}.0/MatMul" for lane in range(4)]
    assert [reaches(model, first[0], name) for name in first] == [False, True, False, False]


def test_crossed_order() -> None:
    """MatMul and LayerNormalization precede each other in different lanes."""
    model = load("near_crossed_order")
    norms, products = "lanes.{}.norm/LayerNormalization", "lanes.{}/MatMul"
    for lane in range(4):
        forward = reaches(model, norms.format(lane), products.format(lane))
        backward = reaches(model, products.format(lane), norms.format(lane))
        assert (forward, backward) == (lane % 2 == 0, lane % 2 == 1)


def test_dynamic_dims() -> None:
    """No two lanes share a dimension name, and they run with different numbers of rows."""
    model = load("near_dynamic_dims")
    inputs = feed(model, 3)
    assert [len(x) for x in inputs.values()] == [3, 4, 5, 6]
    assert [len(y) for y in run(model, inputs)] == [3, 4, 5, 6]


@pytest.mark.parametrize("name", ["near_weight_input", "near_weight_default"])
def test_weight_input(name: str) -> None:
    """A weight is a graph input; what is fed there counts, whatever the default says."""
    model = load(name)
    weight = "lanes.1.0.weight"
    assert [info.name for info in model.graph.input] == ["x", weight]
    assert (weight in weights(model)) == (name == "near_weight_default")
    inputs = feed(model, 3)
    (y,) = run(model, inputs)
    (other,) = run(model, inputs | {weight: -inputs[weight]})
    changed = np.abs(y - other).reshape(3, 4, 8).max(axis=(0, 2)) > 1e-3
    assert changed.tolist() == [False, True, False, False]


def test_training_dropout() -> None:
    """Each element is dropped or doubled, both happen in each lane, and lanes differ in which."""
    model = load(RANDOM)
    inputs = feed(model, 64)
    (y,) = run(model, inputs)
    for tensor in model.graph.initializer:
        if tensor.name.endswith(".training"):
            tensor.CopyFrom(numpy_helper.from_array(np.array(False), tensor.name))
    (kept,) = run(model, inputs)
    dropped = y == 0
    np.testing.assert_allclose(y, np.where(dropped, 0, 2 * kept), rtol=1e-6)
    shares = dropped.reshape(64, 4, 8).mean(axis=(0, 2))
    assert ((shares > 0.3) & (shares < 0.7)).all()
    patterns = {lane.tobytes() for lane in dropped.reshape(64, 4, 8).swapaxes(0, 1)}
    assert len(patterns) == 4


def test_tapped_lane() -> None:
    """One activation is an output of the graph and is read inside it as well."""
    model = load("near_tapped_lane")
    assert [info.name for info in model.graph.output] == ["y", "tap"]
    assert [n.name for n in model.graph.node if "tap" in n.input] == ["lanes.2.1/MatMul"]


def test_permuted_join() -> None:
    """The lanes come back in the order 2, 0, 3, 1, 0."""
    model, plain = load("near_permuted_join"), near_misses.permuted_join(order=(0, 1, 2, 3))
    inputs = feed(model, 3)
    lanes = run(plain, inputs)[0].reshape(3, 4, 8)
    np.testing.assert_array_equal(run(model, inputs)[0], lanes[:, [2, 0, 3, 1, 0]].reshape(3, 40))


@pytest.mark.parametrize("name", EVERY)
def test_no_traces_of_the_machine(name: str) -> None:
    """No committed file has a doc string, a stack trace or the name of a source file."""
    model = load(name)
    graph = model.graph
    parts = (*graph.node, *graph.initializer, *graph.input, *graph.output, *graph.value_info)
    assert {part.doc_string for part in (model, graph, *parts)} == {""}
    keys = {entry.key for part in (model, graph, *parts) for entry in part.metadata_props}
    assert keys <= {"namespace", "pkg.torch.onnx.name_scopes"}
    assert b".py" not in (FOLDER / f"{name}.onnx").read_bytes()


def test_both_exporters_wrote_the_same_function() -> None:
    """The TorchScript and the dynamo export compute the same outputs."""
    one, two = (load(name) for name in EXPORTED)
    inputs = feed(one, 3)
    np.testing.assert_allclose(run(one, inputs)[0], run(two, inputs)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.export
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch: extra `export`")
def test_a_fresh_export_is_the_committed_one(tmp_path: Path) -> None:
    """Exporting again, with whatever torch is here, gives the same function and MatMul count."""
    command = [sys.executable, "-m", "scripts.export_models", "--out", str(tmp_path)]
    subprocess.run(command, cwd=FOLDER.parent, check=True, capture_output=True, timeout=300)
    fresh = {path.stem: onnx.load(path) for path in tmp_path.glob("*.onnx")}
    assert EXPORTED[0] in fresh
    for name, model in fresh.items():
        committed = load(name)
        assert count(model)["MatMul"] == count(committed)["MatMul"]
        inputs = feed(committed, 3)
        results = run(model, inputs)
        np.testing.assert_allclose(results[0], run(committed, inputs)[0], rtol=1e-5, atol=1e-5)
