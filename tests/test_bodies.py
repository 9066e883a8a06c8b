"""Groups inside the bodies of If, Loop and Scan, at any depth, and never across a border."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

import onnx_sched
from onnx_sched import pipeline
from onnx_sched.bodies import bodies, hung, replaced
from onnx_sched.graph import every_node
from onnx_sched.options import Options
from onnx_sched.report.data import Report
from tests.nets import Array, analysed, net, numbers, run

HEAVY = frozenset({"MatMul", "Gemm", "Conv"})

WEIGHTS = {f"w{k}": numbers(4, 4, seed=k) for k in range(4)}

LANES = "m0 = MatMul({0}, w0) t0 = Tanh(m0) m1 = MatMul({1}, w1) t1 = Tanh(m1)"


def graph(text: str, weights: dict[str, Array] | None = None) -> GraphProto:
    """A body from its text; what it does not make it reads from outside."""
    body = onnx.parser.parse_graph(f"body {text}")
    body.initializer.extend(numpy_helper.from_array(w, n) for n, w in (weights or {}).items())
    return body


def branches(then: GraphProto, other: GraphProto) -> ModelProto:
    """An If with two bodies that read x and w0 to w3."""
    model = net("(bool c, float[N,4] x) => (float[N,4] y) { y = Identity(x) }", WEIGHTS)
    node = helper.make_node("If", ["c"], ["y"], "choice", then_branch=then, else_branch=other)
    model.graph.node[0].CopyFrom(node)
    return model


def loop(body: GraphProto) -> ModelProto:
    """A Loop that carries one state [N, 4]."""
    model = net("(int64 n, float[N,4] x) => (float[N,4] y) { y = Identity(x) }", WEIGHTS)
    model.graph.node[0].CopyFrom(helper.make_node("Loop", ["n", "", "x"], ["y"], "loop", body=body))
    return model


def scan(body: GraphProto) -> ModelProto:
    """A Scan over T rows that carries one state [4]."""
    model = net(
        "(float[4] s, float[T,4] x) => (float[4] f, float[T,4] y) { y = Identity(x) }", WEIGHTS
    )
    node = helper.make_node("Scan", ["s", "x"], ["f", "y"], "scan", body=body, num_scan_inputs=1)
    model.graph.node[0].CopyFrom(node)
    return model


def plain(reads: str = "x", out: str = "z") -> GraphProto:
    lanes = LANES.replace("{0}", reads).replace("{1}", reads)
    return graph(f"() => (float[N,4] {out}) {{ {lanes} {out} = Add(t0, t1) }}")


def single(out: str = "v") -> GraphProto:
    return graph(f"() => (float[N,4] {out}) {{ {out} = MatMul(x, w2) }}")


def looped() -> GraphProto:
    lanes = LANES.replace("{0}", "a").replace("{1}", "a")
    return graph(
        f"(int64 i, bool go, float[N,4] a) => (bool on, float[N,4] b)"
        f"{{ on = Identity(go) {lanes} b = Add(t0, t1) }}"
    )


def nested() -> ModelProto:
    """An If in a Loop: the inner bodies read the loop's state and the model's weights."""
    inner = helper.make_node(
        "If", ["go"], ["b"], "inner", then_branch=plain("a"), else_branch=single2()
    )
    body = graph(
        "(int64 i, bool go, float[N,4] a) => (bool on, float[N,4] b) { on = Identity(go) }"
    )
    body.node.append(inner)
    return loop(body)


def single2() -> GraphProto:
    return graph("() => (float[N,4] v) { v = MatMul(a, w2) }")


def deep() -> ModelProto:
    """A group in a Loop's body, and another one in an If inside it."""
    inner = helper.make_node(
        "If", ["go"], ["e"], "inner", then_branch=plain("a"), else_branch=single2()
    )
    lanes = "k0 = MatMul(a, w2) k1 = MatMul(a, w3) d = Add(k0, k1)"
    body = graph(
        f"(int64 i, bool go, float[N,4] a) => (bool on, float[N,4] b)"
        f"{{ on = Identity(go) {lanes} e = Identity(a) b = Add(d, e) }}"
    )
    body.node[4].CopyFrom(inner)
    return loop(body)


def scanned() -> GraphProto:
    lanes = "m0 = MatMul(r, w0) m1 = MatMul(r, w1)"
    return graph(
        f"(float[4] p, float[4] q) => (float[4] n, float[4] o)"
        f"{{ one = Constant<value_ints = [0]>() r = Unsqueeze(q, one) {lanes}"
        f" d = Add(m0, m1) e = Squeeze(d, one) n = Add(p, e) o = Tanh(e) }}"
    )


X = numbers(3, 4, seed=9)
FLAG = [{"c": np.array(v), "x": X} for v in (True, False)]
COUNT = [{"n": np.array(v), "x": X} for v in (0, 1, 5)]
MODELS = {
    "if": (branches(plain(), single()), FLAG, 1),
    "both": (branches(plain(), plain(out="v")), FLAG, 2),
    "own weights": (
        branches(
            graph(
                "() => (float[N,4] z) { m0 = MatMul(x, u0) m1 = MatMul(x, u1) z = Add(m0, m1) }",
                {"u0": numbers(4, 4, seed=20), "u1": numbers(4, 4, seed=21)},
            ),
            single(),
        ),
        FLAG,
        1,
    ),
    "loop": (loop(looped()), COUNT, 1),
    "nested": (nested(), COUNT, 1),
    "deep": (deep(), COUNT, 2),
    "scan": (scan(scanned()), [{"s": X[0], "x": numbers(5, 4, seed=3)}], 1),
}


def heavy(model: ModelProto) -> int:
    return sum(node.op_type in HEAVY for node in every_node(model))


@pytest.mark.parametrize("name", MODELS)
def test_groups_in_bodies_are_found(name: str) -> None:
    """Two products of a body become one, and every way through the model gives the same outputs."""
    model, given, groups = MODELS[name]
    onnx.checker.check_model(model, full_check=True)
    result = onnx_sched.optimize(model, choose="always", inputs=given)
    onnx.checker.check_model(result.proto, full_check=True)
    assert heavy(result.proto) == heavy(model) - groups
    for fed in given:
        want, got = run(model, fed), run(result.proto, fed)
        assert want.keys() == got.keys()
        for key in want:
            np.testing.assert_allclose(got[key], want[key], rtol=1e-4, atol=1e-5)


def rows(report: Report) -> list[tuple[str, str]]:
    return [(g.op_type, g.body) for g in report.groups]


def test_the_report_says_in_which_body() -> None:
    model, given, _ = MODELS["nested"]
    report = onnx_sched.optimize(model, choose="always", inputs=given).report
    assert ("MatMul", "loop/body/inner/then_branch") in rows(report)


def test_nothing_is_grouped_across_a_border() -> None:
    """One product in each branch and one outside: three circuits, nothing to do."""
    model = branches(single("z"), single("v"))
    model.graph.node.add(op_type="MatMul", input=["x", "w3"], output=["outside"], name="outside")
    model.graph.output.add(name="outside").type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    result = onnx_sched.optimize(model, choose="always", inputs=FLAG)
    assert not result.changed


def test_a_second_run_changes_nothing() -> None:
    for model, given, _ in MODELS.values():
        once = onnx_sched.optimize(model, choose="always", inputs=given).proto
        twice = onnx_sched.optimize(once, choose="always", inputs=given)
        assert not twice.changed


def test_a_plan_with_bodies_is_carried_out_again(tmp_path: Path) -> None:
    model, given, _ = MODELS["both"]
    first = onnx_sched.optimize(model, choose="always", inputs=given)
    first.save(tmp_path / "a.onnx")
    first.save_plan(tmp_path / "plan.json")
    onnx.save(model, tmp_path / "m.onnx")
    again = pipeline.optimize(
        tmp_path / "m.onnx", Options(plan=tmp_path / "plan.json", inputs=given)
    )
    again.save(tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_new_names_are_fresh_everywhere() -> None:
    """Two bodies and the main graph get new weights and values; no two of them share a name."""
    model = branches(plain(), plain(out="v"))
    text = onnx.parser.parse_graph(
        "g () => (float[N,4] s) { m4 = MatMul(x, w2) m5 = MatMul(x, w3) s = Mul(m4, m5) }"
    )
    model.graph.node.extend(text.node)
    model.graph.output.extend(text.output)
    result = onnx_sched.optimize(model, choose="always", inputs=FLAG)
    assert {g.body for g in result.report.groups} == {
        "",
        "choice/then_branch",
        "choice/else_branch",
    }
    old = {o for n in every_node(model) for o in n.output}
    made = Counter(o for n in every_node(result.proto) for o in n.output if o not in old)
    made.update(t.name for t in result.proto.graph.initializer if t.name not in WEIGHTS)
    assert max(made.values()) == 1
    names = Counter(n.name for n in every_node(result.proto) if n.name)
    assert max(names.values()) == 1


def test_what_hides_an_outer_value_counts() -> None:
    """A body's own w0 is not the model's w0; the numbers tell."""
    own = graph(
        "() => (float[N,4] z) { m0 = MatMul(x, w0) m1 = MatMul(x, w1) z = Add(m0, m1) }",
        {"w0": numbers(4, 4, seed=77)},
    )
    model = branches(own, single())
    body = bodies(analysed(model))[0]
    seen = body.analysis.values.constants["w0"].load()
    np.testing.assert_array_equal(seen, numbers(4, 4, seed=77))
    assert body.analysis.known[body.analysis.values.constants["w1"].key] == "w1"
    outer = analysed(model).values.constants["w0"]
    assert outer.key not in body.analysis.known


def test_what_the_other_branch_reads_is_not_known_here() -> None:
    """One branch reads the model's w2, the other makes a w2 of its own."""
    own = graph("() => (float[N,4] z) { w2 = Identity(x) z = Add(w2, w2) }")
    (body,) = bodies(analysed(branches(own, single())))
    assert "w2" not in body.analysis.values.constants


def test_sizes_of_a_body_are_its_own() -> None:
    """N of a loop's state need not be the N of the model."""
    (body,) = bodies(analysed(loop(looped())))
    assert body.analysis.values.shape("a") == ("loop/body/N", 4)


def test_bodies_come_outer_first_with_their_labels() -> None:
    model, _, _ = MODELS["nested"]
    found = bodies(analysed(model))
    assert [b.label for b in found] == ["loop/body", "loop/body/inner/then_branch"]


def test_labels_are_distinct_where_names_are_not() -> None:
    model = branches(plain(), single())
    twin = NodeProto()
    twin.CopyFrom(model.graph.node[0])
    twin.output[0] = "other"
    model.graph.node.append(twin)
    model.graph.output.add(name="other").type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    labels = [b.label for b in bodies(analysed(model))]
    assert len(labels) == len(set(labels)) == 2


def test_replaced_touches_only_what_it_is_told() -> None:
    """The node with the new body is a copy; the original and the other nodes are as they were."""
    model, _, _ = MODELS["nested"]
    before = model.SerializeToString()
    nodes = list(model.graph.node)
    body = bodies(analysed(model))[1]
    new = replaced(nodes, {body.path: GraphProto(name="new")})
    assert model.SerializeToString() == before
    (loop_body,) = (g for _, g in hung(new[0]))
    inner = loop_body.node[1]
    names = {place.attribute: g.name for place, g in hung(inner)}
    assert names == {"then_branch": "new", "else_branch": "body"}
    assert new[1:] == nodes[1:]
