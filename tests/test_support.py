"""Wires and layers of real graphs: the laws of the theory, and the notes that are written on nodes."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import ModelProto, helper, numpy_helper

import onnx_sched
from models.mlp import grouped_mlp
from models.transformer import headlocal_transformer
from onnx_sched.analysis import Analysis
from onnx_sched.nodes import has_effect
from onnx_sched.support import CONSTANT_LAYER, Annotation
from onnx_sched.wires import Support, is_faithful
from tests.nets import FOLDER, analysed, feeds, ints, name_nodes, net, numbers, run
from tests.protodiff import differences
from tests.zoo import MODELS, RANDOM, ZOO, model, studied

LAYER, WIRES = "onnx_sched.layer", "onnx_sched.wires"


def preds_of(analysis: Analysis) -> list[list[int]]:
    """By op: the ops that it waits for, as the theory lists the edges.

    Data and captures, a Concat that is taken apart again seen through; and effects, in a row.
    """
    graph, annotation = analysis.graph, analysis.annotation
    number = {k: n for n, k in enumerate(annotation.ops)}
    preds: list[list[int]] = []
    effects: list[int] = []
    for k, names in enumerate(graph.reads):
        names = tuple(analysis.values.undone.get(n, n) for n in names)
        makers = {graph.producer[n] for n in names if n in graph.producer}
        if graph.live[k] and has_effect(graph.nodes[k]):
            makers |= {*effects[-1:]}
            effects.append(k)
        if k in number:
            preds.append(sorted(number[p] for p in makers if p in number))
    return preds


def supports_of(annotation: Annotation) -> list[Support]:
    return [annotation.wires[k] for k in annotation.ops]


@pytest.mark.parametrize("name", MODELS)
def test_ops_of_a_layer_share_no_wire(name: str) -> None:
    """L1: any two ops of one layer have disjoint supports, and every op has one."""
    annotation = studied(name).annotation
    layers: dict[int, list[Support]] = {}
    for k in annotation.ops:
        assert annotation.wires[k]
        layers.setdefault(annotation.layers[k], []).append(annotation.wires[k])
    for supports in layers.values():
        for one, other in itertools.combinations(supports, 2):
            assert not {*one} & {*other}


@pytest.mark.parametrize("name", MODELS)
def test_a_layer_is_one_more_than_the_last_on_its_wires(name: str) -> None:
    """T1: layer(x) = 1 + max layer of the op before x on each of its wires, counted from 0."""
    annotation = studied(name).annotation
    last: dict[int, int] = {}
    for k in annotation.ops:
        before = [last.get(wire, -1) for wire in annotation.wires[k]]
        assert annotation.layers[k] == 1 + max(before)
        last.update(dict.fromkeys(annotation.wires[k], annotation.layers[k]))


@pytest.mark.parametrize("name", MODELS)
def test_wires_are_faithful_to_the_graph(name: str) -> None:
    """T2: the wires impose what data, captures and effects impose, no more and no less.

    So the depth is the longest chain of ops.
    """
    analysis = studied(name)
    annotation, preds = analysis.annotation, preds_of(analysis)
    assert is_faithful(preds, supports_of(annotation))
    longest: list[int] = []
    for before in preds:
        longest.append(1 + max((longest[p] for p in before), default=0))
    assert annotation.depth == max(longest, default=0)
    assert annotation.lanes == len({*itertools.chain(*supports_of(annotation))})


@pytest.mark.parametrize("name", MODELS)
def test_constants_and_dead_nodes_have_no_wires(name: str) -> None:
    """They stand in layer -1, and are no ops."""
    analysis = studied(name)
    graph, annotation = analysis.graph, analysis.annotation
    for k, node in enumerate(graph.nodes):
        constant = all(o in analysis.values.constants for o in node.output if o)
        if constant or not graph.live[k]:
            assert k not in annotation.ops
            assert (node.name, annotation.wires[k]) == (node.name, ())
            assert annotation.layers[k] == CONSTANT_LAYER


@pytest.mark.parametrize("name", MODELS)
def test_every_other_live_node_is_an_op_or_a_view(name: str) -> None:
    """A view stands in nobody's way: what it makes is read under the names of the lanes alone."""
    analysis = studied(name)
    graph, annotation, undone = analysis.graph, analysis.annotation, analysis.values.undone
    for k, node in enumerate(graph.nodes):
        constant = all(o in analysis.values.constants for o in node.output if o)
        if graph.live[k] and not constant and k not in annotation.ops:
            assert not {*node.output} & graph.output_set
            readers = [r for o in node.output if o not in undone for r in graph.readers.get(o, ())]
            assert not {*readers} & {*annotation.ops}
            makers = [graph.producer[n] for n in graph.reads[k] if n in graph.producer]
            assert {*annotation.wires[k]} == {w for p in makers for w in annotation.wires[p]}
            assert annotation.layers[k] == max((annotation.layers[p] for p in makers), default=-1)


def shuffled(proto: ModelProto, seed: int) -> ModelProto:
    """The same model, its nodes in any order."""
    mixed = ModelProto()
    mixed.CopyFrom(proto)
    nodes = list(proto.graph.node)
    random.Random(seed).shuffle(nodes)
    del mixed.graph.node[:]
    mixed.graph.node.extend(nodes)
    return mixed


def named(name: str) -> ModelProto:
    """A model whose nodes all have names, each once."""
    proto = ModelProto()
    proto.CopyFrom(model(name))
    return name_nodes(proto) if name in ZOO else proto


def notes_of(proto: ModelProto) -> dict[str, dict[str, str]]:
    return {n.name: {p.key: p.value for p in n.metadata_props} for n in proto.graph.node}


EFFECTS = {"draws", "functions", "near_training_dropout"}
"""Here the order of the file says which node with an effect comes first."""

SHUFFLED = sorted({*MODELS} - EFFECTS)


@pytest.mark.parametrize("name", SHUFFLED)
def test_the_order_of_the_file_changes_no_layer(name: str) -> None:
    """T1: the layers follow from the graph; shuffling the node list moves no node to another."""
    before = notes_of(onnx_sched.annotate(named(name)))
    for seed in range(4):
        after = notes_of(onnx_sched.annotate(shuffled(named(name), seed)))
        assert {n: p[LAYER] for n, p in after.items()} == {n: p[LAYER] for n, p in before.items()}


@pytest.mark.parametrize("name", ["grouped_mlp", "mmoe", "headlocal_transformer", "two names"])
def test_the_order_of_the_file_changes_no_wire(name: str) -> None:
    """Nor does any node touch other wires than before."""
    before = notes_of(onnx_sched.annotate(named(name)))
    for seed in range(4):
        after = notes_of(onnx_sched.annotate(shuffled(named(name), seed)))
        assert {n: p[WIRES] for n, p in after.items()} == {n: p[WIRES] for n, p in before.items()}


# -- joins that are none ---------------------------------------------------------------------------


def two_layers(between: str, cut: str) -> ModelProto:
    """Two lanes, two layers; what stands between the layers is given."""
    return name_nodes(
        net(
            "(float[N,8] x) => (float[] y) { p, q = Split<axis=1>(x) "
            f"p1 = MatMul(p, a) q1 = MatMul(q, b) {between} {cut} "
            "p3 = MatMul(p2, c) q3 = MatMul(q2, d) y = Concat<axis=1>(p3, q3) }",
            {n: numbers(4, 4, seed=k) for k, n in enumerate("abcd")}
            | {"i0": ints(0), "i1": ints(1), "i4": ints(4), "i8": ints(8)},
        )
    )


VIEWS = {
    "split": ("j = Concat<axis=1>(p1, q1)", "p2, q2 = Split<axis=1>(j)"),
    "slices": (
        "j = Concat<axis=1>(p1, q1)",
        "p2 = Slice(j, i0, i4, i1) q2 = Slice(j, i4, i8, i1)",
    ),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_an_aligned_split_after_a_concat_is_no_join(kind: str) -> None:
    """Each lane keeps to its own wire, and the layers are those without the two."""
    found = notes_of(onnx_sched.annotate(two_layers(*VIEWS[kind])))
    plain = notes_of(onnx_sched.annotate(two_layers("", "p2 = Identity(p1) q2 = Identity(q1)")))
    for node in ("p1", "q1", "p3", "q3", "y"):
        assert found[node][WIRES] == plain[node][WIRES]
    assert not {*found["p3"][WIRES].split(",")} & {*found["q3"][WIRES].split(",")}
    layers = [found[node][LAYER] for node in ("p", "p1", "p3", "y")]
    assert layers == ["0", "1", "2", "3"]
    assert found["j"][LAYER] == "1"
    assert {*found["j"][WIRES].split(",")} == {
        *found["p1"][WIRES].split(","),
        *found["q1"][WIRES].split(","),
    }


def test_lanes_that_cross_are_no_join_lanes_that_meet_are() -> None:
    """Lanes that change places go on along their own wires; work on all of them is a join."""
    crossed = two_layers("j = Concat<axis=1>(q1, p1)", "p2, q2 = Split<axis=1>(j)")
    found = notes_of(onnx_sched.annotate(crossed))
    assert found["p3"][WIRES] == found["q1"][WIRES]
    joined = two_layers("j = Concat<axis=1>(p1, q1) k = Neg(j)", "p2, q2 = Split<axis=1>(k)")
    found = notes_of(onnx_sched.annotate(joined))
    assert found["j"][WIRES] == found["k"][WIRES] == "0,1"
    assert found["p3"][LAYER] == "5"


def test_a_view_that_is_also_read_whole_is_an_op() -> None:
    """The Concat still runs for whoever reads it whole; the lanes do not wait for that."""
    proto = two_layers("j = Concat<axis=1>(p1, q1) z = Neg(j)", "p2, q2 = Split<axis=1>(j)")
    proto.graph.output.append(helper.make_empty_tensor_value_info("z"))
    analysis = analysed(proto)
    ops = {analysis.graph.nodes[k].name for k in analysis.annotation.ops}
    assert {"j", "z"} <= ops
    assert notes_of(onnx_sched.annotate(proto))["p3"][LAYER] == "2"


@pytest.mark.parametrize("groups", [2, 4, 7])
@pytest.mark.parametrize("layers", [1, 5])
def test_group_g_stays_lane_g(groups: int, layers: int) -> None:
    """A grouped MLP has a lane for each group; the ops of group g touch lane g alone."""
    proto = grouped_mlp(layers=layers, groups=groups)
    annotation = analysed(proto).annotation
    assert annotation.lanes == groups
    assert annotation.depth == 3 * layers + 2
    everything = ",".join(map(str, range(groups)))
    for name, notes in notes_of(onnx_sched.annotate(proto)).items():
        parts = name.split(".groups.")
        expected = parts[1].split("/")[0].split(".")[0] if len(parts) > 1 else everything
        assert notes[WIRES] == expected


def test_the_heads_of_a_transformer_are_lanes() -> None:
    """Q, K and V of four heads: twelve lanes."""
    assert analysed(headlocal_transformer(heads=4)).annotation.lanes == 12


# -- the notes -------------------------------------------------------------------------------------


def stripped(proto: ModelProto) -> ModelProto:
    """A model without the notes."""
    bare = ModelProto()
    bare.CopyFrom(proto)
    for node in bare.graph.node:
        kept = [p for p in node.metadata_props if p.key not in (LAYER, WIRES)]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    return bare


@pytest.mark.parametrize("name", MODELS)
def test_every_node_is_noted_and_nothing_else_changes(name: str) -> None:
    """Both notes on every node of the graph; without them the model is the same, field by field."""
    before = model(name).SerializeToString(deterministic=True)
    noted = onnx_sched.annotate(model(name))
    assert model(name).SerializeToString(deterministic=True) == before
    assert not differences(model(name), stripped(noted))
    analysis = studied(name)
    for k, place in enumerate(analysis.graph.places):
        node = noted.graph.node[place]
        notes = {p.key: p.value for p in node.metadata_props}
        assert notes[LAYER] == str(analysis.annotation.layers[k])
        assert notes[WIRES] == ",".join(map(str, analysis.annotation.wires[k]))
        assert len(notes) == len(node.metadata_props)
    assert not differences(noted, onnx_sched.annotate(noted))


@pytest.mark.parametrize("name", sorted({*MODELS} - RANDOM))
def test_onnx_runtime_runs_the_noted_model(name: str) -> None:
    """To the same bits; and where the checker accepts the model, it accepts the noted one."""
    noted = onnx_sched.annotate(model(name))
    if name not in ZOO:  # those leave shapes of outputs open
        onnx.checker.check_model(noted, full_check=True)
    sizes = dict.fromkeys("N M B S H W batch".split(), 6)
    fed = feeds(model(name), **sizes)
    if name == "by inputs":
        fed |= {n: ints(2, 3) for n in "ef"} | {n: ints(2, -1) for n in "st"}
        fed |= {n: ints(1) for n in "ij"}
    for output, array in run(noted, fed).items():
        np.testing.assert_array_equal(array, run(model(name), fed)[output])


@pytest.mark.parametrize("ir", range(3, 12))
def test_models_of_every_ir_version_are_noted(ir: int) -> None:
    """The version stays, the checker accepts the model, ONNX Runtime runs it."""
    proto = net(
        "(float[N,4] x) => (float[N,4] y) { p = MatMul(x, w) q = MatMul(x, v) y = Add(p, q) }",
        {"w": numbers(4, 4), "v": numbers(4, 4, seed=1)},
        opset=8,
        ir=ir,
    )
    noted = onnx_sched.annotate(proto)
    assert noted.ir_version == ir
    onnx.checker.check_model(noted)
    fed = feeds(proto)
    np.testing.assert_array_equal(run(noted, fed)["y"], run(proto, fed)["y"])
    notes = [{p.key: p.value for p in n.metadata_props} for n in noted.graph.node]
    assert [n[LAYER] for n in notes] == ["0", "0", "1"]
    assert [n[WIRES] for n in notes] == ["0", "1", "0,1"]


def test_notes_land_on_their_nodes_in_an_unsorted_file() -> None:
    """The file keeps its order; every node has the notes that it has in a sorted file."""
    proto = named("grouped_mlp")
    mixed = shuffled(proto, 1)
    noted = onnx_sched.annotate(mixed)
    assert [n.name for n in noted.graph.node] == [n.name for n in mixed.graph.node]
    layers = {name: notes[LAYER] for name, notes in notes_of(onnx_sched.annotate(proto)).items()}
    assert {name: notes[LAYER] for name, notes in notes_of(noted).items()} == layers


def test_notes_of_others_stay() -> None:
    """Metadata that was there is kept, old notes of ours are renewed."""
    proto = named("mmoe")
    proto.graph.node[0].metadata_props.add(key="namespace", value="block.0")
    proto.graph.node[0].metadata_props.add(key=LAYER, value="99")
    notes = notes_of(onnx_sched.annotate(proto))[proto.graph.node[0].name]
    assert notes["namespace"] == "block.0"
    assert notes[LAYER] == "0"


@pytest.mark.parametrize("form", ["path", "text", "proto", "graph"])
def test_a_model_in_any_form_is_noted(form: str) -> None:
    """A path, its text, a proto, a graphsurgeon graph: a ModelProto comes back."""
    path = FOLDER / "mmoe.onnx"
    given: dict[str, Any] = {"path": path, "text": str(path), "proto": onnx.load(path)}
    if form == "graph":
        given["graph"] = gs.import_onnx(onnx.load(path))
    noted = onnx_sched.annotate(given[form])
    assert isinstance(noted, ModelProto)
    if form != "graph":
        assert not differences(noted, onnx_sched.annotate(model("mmoe")))
    assert notes_of(noted) == notes_of(onnx_sched.annotate(model("mmoe")))


def test_weights_in_a_file_stay_there(tmp_path: Path) -> None:
    """Annotating a model with external data gives one that refers to the same file."""
    proto = net("(float[N,4] x) => (float[N,4] y) { y = MatMul(x, w) }", {"w": numbers(4, 4)})
    onnx.save_model(
        proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0
    )
    noted = onnx_sched.annotate(tmp_path / "m.onnx")
    assert noted.graph.initializer[0].external_data[0].value == "m.data"
    (tmp_path / "noted.onnx").write_bytes(noted.SerializeToString())
    loaded = onnx.load(tmp_path / "noted.onnx").graph.initializer[0]
    np.testing.assert_array_equal(numpy_helper.to_array(loaded), numbers(4, 4))
