"""Why this node: what `explain` says is what batching does."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import ModelProto, helper
from rich.console import Console

import onnx_sched
from onnx_sched import files
from onnx_sched.analysis import Analysis, analyse
from onnx_sched.circuit import Circuit, node_label
from onnx_sched.cli import cli
from onnx_sched.errors import UsageError
from onnx_sched.explain import Explainer, Explanation, Skip, explain
from onnx_sched.near import MOST, family, feeds, nearest, unlikeness
from onnx_sched.report import explain_text
from onnx_sched.report.codes import CODES
from tests.nets import name_nodes, net, numbers
from tests.pages import HOSTILE, towers

MODELS = Path(__file__).parent.parent / "models"
SEVERAL = ["grouped_mlp", "mmoe", "near_unequal_widths", "near_tapped_lane", "near_dynamic_dims"]


def everything(circuit: Circuit) -> Skip:
    return lambda unit: False


@cache
def analysed(name: str) -> Analysis:
    return analyse(files.read(MODELS / f"{name}.onnx"))


def of(model: ModelProto, name: str, skips: Any = everything) -> Explanation:
    return explain(analyse(files.Source(name_nodes(model), None)), name, skips)


@pytest.mark.parametrize("name", SEVERAL)
def test_agrees_with_batching(name: str) -> None:
    """For every node: batched, summed, given way, kept, refused, just as `--choose always` does it."""
    analysis = analysed(name)
    result = onnx_sched.optimize(MODELS / f"{name}.onnx", choose="always", check=False)
    explainer = Explainer(analysis, everything(analysis.circuit))
    new = {(n.op_type, *n.output) for n in result.proto.graph.node}
    group_of = {
        analysis.graph.nodes[k].output[0]: (group, lane)
        for group in result.plan.groups
        for lane, unit in enumerate(group.units)
        for k in unit.nodes
    }
    refused = {n: r.code for r in result.plan.refusals for n in r.nodes}
    seen = set()
    for k, node in enumerate(analysis.graph.nodes):
        found = explainer.explain(k)
        seen.add(found.outcome)
        assert (found.outcome == "batched") == (node.output[0] in group_of)
        if found.outcome == "batched":
            group, lane = group_of[node.output[0]]
            assert (found.lane, found.form, len(found.members)) == (lane, group.form, group.size)
            assert found.members == tuple(
                node_label(analysis.graph, u.nodes[0]) for u in group.units
            )
            names = {n.name for n in result.proto.graph.node}
            assert set(found.becomes) <= names
            assert f"{group.size} " in "".join(found.region)
        kept = (node.op_type, *node.output) in new
        assert kept == (found.outcome == "kept")
        if found.outcome == "kept" and found.node in refused:
            assert found.code == refused[found.node]
        assert found.code in {"", *CODES}
        assert found.layer == analysis.annotation.layers[k]
        assert found.wires == analysis.annotation.wires[k]
    assert "kept" in seen or "batched" in seen


@pytest.mark.parametrize(
    ("model", "node", "code", "what", "here", "there"),
    [
        ("unequal_widths", "lanes.2.0/MatMul", "S103", "weight", "[8, 5]", "[8, 16]"),
        ("weight_input", "lanes.1.0/MatMul", "S106", "weight", "computed", "constant"),
        ("cross_dependency", "lanes.1.0/MatMul", "S101", "when it can run", "level 4", "level 3"),
        ("dynamic_dims", "lanes.0.0/MatMul", "S103", "input", "rows_0", "rows_1"),
        ("activation_attribute", "lanes.1/LeakyRelu", "S105", "attribute alpha", "0.2", "0.01"),
    ],
)
def test_near_misses(model: str, node: str, code: str, what: str, here: str, there: str) -> None:
    """A node that nearly ran with others says with whom, and what tells them apart."""
    name = f"near_{model}"
    known = {node_label(analysed(name).graph, k) for k in range(len(analysed(name).graph.nodes))}
    found = explain(analysed(name), node, everything)
    assert (found.outcome, found.code) == ("kept", code)
    assert found.reason
    differences = [d for near in found.near for d in near.differences]
    assert any(d.what == what and here in d.here and there in d.there for d in differences)
    assert {near.node for near in found.near} <= known - {node}


@pytest.mark.parametrize("name", SEVERAL)
def test_nearest(name: str) -> None:
    """The nearest are few, of one family, told apart from the node, and none is much farther."""
    circuit = analysed(name).circuit
    levels = [0] * len(circuit.units)
    for unit in circuit.units[:40]:
        found = nearest(circuit, levels, unit)
        peers = [u for u in circuit.units if u is not unit and family(u) == family(unit)]
        assert len(found) == min(MOST, len(peers))
        far = {circuit.label(p): sum(w for w, _ in unlikeness(circuit, unit, p)) for p in peers}
        if found:
            assert max(far[n.node] for n in found) <= min(
                [far[n] for n in far if n not in {f.node for f in found}] or [99]
            )


@pytest.mark.parametrize("name", SEVERAL)
def test_unlikeness_is_mutual(name: str) -> None:
    """What tells a from b tells b from a, the other way round; nothing tells a node from itself."""
    circuit = analysed(name).circuit
    units = circuit.units[:25]
    for a in units:
        assert unlikeness(circuit, a, a) == []
        for b in units:
            if family(a) == family(b):
                one = [(w, d.what, d.here, d.there) for w, d in unlikeness(circuit, a, b)]
                other = [(w, d.what, d.there, d.here) for w, d in unlikeness(circuit, b, a)]
                assert one == other


def test_feeds() -> None:
    """One unit feeds another exactly if it is among the predecessors of its predecessors."""
    circuit = analysed("mmoe").circuit
    behind: list[set[int]] = []
    for before in circuit.preds:
        behind.append({*before}.union(*(behind[p] for p in before)))
    for a in circuit.units[::3]:
        for b in circuit.units[::3]:
            assert feeds(circuit, a, b) == (a.number in behind[b.number])


LINES = """(float[N,4] x) => (float[] y, float[] z) {
    c = Constant<value_float = 2.0>() i = Identity(x) u = Neg(x)
    a = MatMul(i, v) b = MatMul(a, w) y = Relu(b) z = Softmax(x)
}"""


@pytest.mark.parametrize(
    ("node", "outcome", "code", "said"),
    [
        ("c", "unused", "", "no"),
        ("u", "unused", "", "no"),
        ("i", "renamed", "", "'x'"),
        ("y", "kept", "", "the only Relu"),
        ("z", "kept", "", "the only Softmax"),
        ("a", "kept", "S101", "stands alone"),
    ],
)
def test_outcomes(node: str, outcome: str, code: str, said: str) -> None:
    """A node that does no work, or has nobody to run with, says so."""
    found = of(net(LINES, {"v": numbers(4, 4), "w": numbers(4, 4)}), node)
    assert (found.outcome, found.code) == (outcome, code)
    assert said in found.sentence + found.reason


def test_constants() -> None:
    """A node that makes a constant is no work."""
    model = net(
        "(float[N,4] x) => (float[] y) { c = Transpose(w) y = MatMul(x, c) }", {"w": numbers(6, 4)}
    )
    assert of(model, "c").outcome == "constant"


def test_a_value_names_its_node() -> None:
    """A node can be asked for by what it makes."""
    analysis = analysed("mmoe")
    node = analysis.graph.nodes[5]
    assert explain(analysis, node.output[0], everything).node == node.name


TWO = "(float[N,4] x, float[N,4] z) => (float[] y, float[] q) { y = MatMul(x, v) q = MatMul(z, w) }"
SQUARES = {"v": numbers(4, 4, seed=1), "w": numbers(4, 4, seed=2)}


def test_asked_not_to() -> None:
    """What was asked not to be touched says so, and names no neighbours."""
    found = of(net(TWO, SQUARES), "y", lambda circuit: lambda unit: True)
    assert (found.outcome, found.code, found.near) == ("kept", "S401", ())
    light = net(LINES, {"v": numbers(4, 4), "w": numbers(4, 4)})
    assert of(light, "z", lambda circuit: lambda unit: True).code == "S401"


def test_batched_already() -> None:
    """A node of an earlier run is left alone."""
    made = onnx_sched.optimize(name_nodes(net(TWO, SQUARES)), choose="always", check=False).proto
    names = [n.name for n in made.graph.node if n.op_type == "MatMul"]
    found = explain(analyse(files.Source(made, None)), names[0], everything)
    assert found.outcome == "kept"
    assert found.code in ("", "S402")


def test_inside_a_body() -> None:
    """A node in the body of an If is explained there."""
    body = "{ a = MatMul(x, v) b = MatMul(z, w) p = Add(a, b) }"
    model = net(
        "(float[N,4] x, float[N,4] z, bool c) => (float[N,4] y) { y = If (c) <"
        f"then_branch = yes () => (float[N,4] p) {body},"
        "else_branch = no () => (float[N,4] r) { r = Identity(x) }> }",
        SQUARES,
    )
    for inner in model.graph.node[0].attribute[0].g.node:
        inner.name = f"in/{inner.output[0]}"
    found = of(model, "in/a")
    assert found.outcome in ("batched", "kept")
    assert found.inside.endswith("then_branch")
    assert found.inside in text(found)


def test_namesakes() -> None:
    """Of several nodes of one name the first is explained; all are told by what they make, in bodies too."""
    text_of = """(float[N,4] x, float[N,4] z, bool c) => (float[] y, float[] q, float[] r) {
        y = MatMul(x, v) q = MatMul(z, w)
        r = If (c) <
            then_branch = t () => (float[] s) {
                s0 = MatMul(x, v) s1 = MatMul(z, w) s = Add(s0, s1)
            },
            else_branch = e () => (float[] s2) { s2 = Tanh(x) }
        > }"""
    model = net(text_of, {"v": numbers(4, 4), "w": numbers(4, 4, seed=1)})
    for node in [*model.graph.node[:2], model.graph.node[2].attribute[0].g.node[0]]:
        node.name = "same"
    analysis = analyse(files.Source(model, None))
    found = explain(analysis, "same", everything)
    assert found.namesakes == ("y", "q", "s0")
    assert found.layer == explain(analysis, "y", everything).layer
    shown = " ".join(text(found).split())
    assert "3 nodes bear this name; this is the one that makes y. Others make q, s0" in shown
    assert "--node q" in shown
    for alone in ("y", "q", "s0"):
        assert explain(analysis, alone, everything).namesakes == ()
    assert "bear this name" not in text(explain(analysis, "q", everything))


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:12]))
def test_hostile_namesakes(name: str) -> None:
    """What namesakes make is a stranger's word, too."""
    model = towers(3, 1)
    made = [f"{name}{k}" for k in range(3)]
    for k, node in enumerate([n for n in model.graph.node if n.op_type == "Relu"]):
        node.name = "same"
        for reader in model.graph.node:
            reader.input[:] = [made[k] if i == node.output[0] else i for i in reader.input]
        node.output[0] = made[k]
    found = explain(analyse(files.Source(model, None)), "same", everything)
    assert found.namesakes == tuple(made)
    shown = text(found)
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert max(map(len, shown.split("\n"))) <= 100


def test_lines_are_known_by_code() -> None:
    """Every code that an explanation gives is documented."""
    for name in SEVERAL:
        explainer = Explainer(analysed(name), everything(analysed(name).circuit))
        for k in range(len(analysed(name).graph.nodes)):
            assert explainer.explain(k).code in {"", *CODES}


def text(found: Explanation, verbose: bool = False) -> str:
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(explain_text.node(found, verbose))
    return captured.get()


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:12]))
def test_hostile_names(name: str) -> None:
    """Names from hell print in lines of their width, without control characters."""
    model = towers(3, 2, [name], odd=True)
    found = explain(analyse(files.Source(model, None)), f"{name}0.1", everything)
    for verbose in (False, True):
        shown = text(found, verbose)
        assert all(c.isprintable() or c == "\n" for c in shown)
        assert max(map(len, shown.split("\n"))) <= 100


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:12]))
def test_hostile_kinds(name: str) -> None:
    """Op types and attributes of custom ops are a stranger's words, too."""
    model = towers(2, 1)
    for lane, node in enumerate([n for n in model.graph.node if n.op_type == "Relu"]):
        node.op_type, node.domain = name, "custom"
        node.attribute.append(helper.make_attribute(name, lane))
    model.opset_import.append(helper.make_opsetid("custom", 1))
    found = explain(analyse(files.Source(model, None)), "n0.0/act", everything)
    assert any(name in d.what for near in found.near for d in near.differences)
    shown = text(found, verbose=True)
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert max(map(len, shown.split("\n"))) <= 100
    assert len(shown) < 3_000


# -- the command ----------------------------------------------------------------------------------


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(cli, [*map(str, arguments)])


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("experts.0.0/gemm", "experts.0.0/Gemm"),
        ("expert.0.0/Gemm", "experts.0.0/Gemm"),
        ("gates.0/SoftMax", "gates.0/Softmax"),
    ],
)
def test_did_you_mean(given: str, meant: str) -> None:
    """A misspelt node is an error that names the node that was meant."""
    with pytest.raises(UsageError) as caught:
        explain(analysed("mmoe"), given, everything)
    assert repr(meant) in caught.value.hint


def test_no_such_node() -> None:
    """A name like no other gets examples of names."""
    result = run("explain", MODELS / "mmoe.onnx", "--node", "zzzzzzzzzzzz")
    assert result.exit_code == 2
    assert "such as 'experts.0.0/Gemm'" in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--node", "x"], "--node needs a model"),
        ([MODELS / "mmoe.onnx"], "which node?"),
        (["S999"], "no such code"),
        (["no.onnx", "--node", "x"], "no such file"),
        ([MODELS / "mmoe.onnx", "--node", "task_0", "--skip-op", "Gem"], "Did you mean 'Gemm'?"),
    ],
)
def test_refused(arguments: list[str | Path], said: str) -> None:
    """What makes no sense is refused with advice."""
    result = run("explain", *arguments)
    assert result.exit_code in (1, 2)
    assert said in result.output
    assert "hint: " in result.output


def test_json() -> None:
    """`--json` gives the whole explanation."""
    node = "lanes.2.0/MatMul"
    result = run("explain", MODELS / "near_unequal_widths.onnx", "--node", node, "--json")
    found = explain(analysed("near_unequal_widths"), node, everything)
    assert json.loads(result.output) == json.loads(json.dumps(found.to_dict()))


ODD = """(float[N,4] x, bool c) => (float[] y, float[] q, float[] r) {
    k = Constant<value_float = 2.0>()
    shape = Shape(x) rows = Gather(shape, at) size = Concat<axis=0>(rows, four)
    fixed = Mul(k, k) unused = Neg(x) same = Identity(x) e = Exp(same)
    a = Reshape(e, size) b = Mul(a, fixed)
    y = MatMul(b, v) q = MatMul(x, w)
    r = If (c) <
        then_branch = t () => (float[] s) { one = Constant<value_float = 1.0>() s = Mul(x, one) },
        else_branch = f () => (float[] u) { dead = Tanh(x) p = Identity(x) u = Sin(p) }
    >
}"""
"""Nodes on no wire and nodes that do nothing, in the graph and in bodies."""


def odd() -> ModelProto:
    arrays = {"v": numbers(4, 4), "w": numbers(4, 4, seed=1)}
    sizes = {"at": np.array([0]), "four": np.array([4])}
    return name_nodes(net(ODD, {**arrays, **sizes}))


def test_every_node_can_be_asked_about(tmp_path: Path) -> None:
    """Also one that makes a constant, is never read, or stands in a body: a sentence, and exit 0."""
    model, path = odd(), tmp_path / "odd.onnx"
    onnx.save(model, path)
    bodies = [a.g for node in model.graph.node for a in node.attribute if a.HasField("g")]
    outcomes = {}
    for node in (n for graph in (model.graph, *bodies) for n in graph.node):
        shown = run("explain", path, "--node", node.output[0])
        assert (shown.exit_code, shown.exception) == (0, None)
        found = run("explain", path, "--node", node.output[0], "--json")
        assert found.exit_code == 0
        told = json.loads(found.output)
        assert told["op_type"] == node.op_type
        words = " ".join(shown.output.split())
        assert told["sentence"] in words or f"left alone: {told['code']} " in words
        outcomes[node.output[0]] = (told["outcome"], bool(told["wires"]), told["layer"] >= 0)
    aside = {name for name, (_, wired, layered) in outcomes.items() if not (wired and layered)}
    assert aside >= {"k", "fixed", "one"}
    assert {outcomes[name][0] for name in ("k", "fixed", "one")} == {"constant"}
    assert {outcomes[name][0] for name in ("unused", "dead")} == {"unused"}
    assert {outcomes[name][0] for name in ("same", "p")} == {"renamed"}
    assert "it computes a size" in run("explain", path, "--node", "shape").output


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.onnx")), ids=lambda path: path.stem)
def test_every_node_of_a_model_has_something_to_say(path: Path) -> None:
    """Its kind, a sentence, and where it stands if it stands anywhere."""
    analysis = analysed(path.stem)
    explainer = Explainer(analysis, everything(analysis.circuit))
    for k, node in enumerate(analysis.graph.nodes):
        found = explainer.explain(k)
        shown = " ".join(text(found).split())
        assert node.op_type in shown
        assert found.sentence in shown or CODES[found.code].title in shown
        assert (" wire" in shown.split(found.node)[1]) == bool(found.wires) or found.reason
        assert (found.outcome == "constant") == (not found.wires)
        assert json.loads(json.dumps(found.to_dict()))["node"] == found.node


def test_quiet() -> None:
    """`-q` prints nothing."""
    assert run("explain", "S103", "-q").output == ""


def test_skips() -> None:
    """Flags of `optimize` count."""
    result = run("explain", MODELS / "mmoe.onnx", "--node", "experts.0.0/Gemm", "--skip-op", "Gemm")
    assert "S401" in result.output
