"""An If whose condition is known is the one op that its branch comes to."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

import onnx_sched
from onnx_sched.branches import taken
from onnx_sched.constants import from_array
from onnx_sched.graph import every_node
from tests.nets import analysed, ints
from tests.rule_examples import carried_out, compare
from tests.test_fold import build

YES, NO = (from_array(np.array([v]), TensorProto.BOOL) for v in (True, False))


def conditional(then: str, other: str, outputs: int = 1) -> NodeProto:
    """An If on `c`, its branches from the bodies of graphs."""
    graphs = {
        name: onnx.parser.parse_graph(
            f"{name} () => (float[] {body.split(' = ')[-2].split()[-1]}) {{ {body} }}"
        )
        for name, body in (("then_branch", then), ("else_branch", other))
    }
    return helper.make_node("If", ["c"], ["y", "z"][:outputs], name="branch", **graphs)


SQUEEZE = "f = Constant<value_ints=[1]>() s = Squeeze(x, f)"
KEEP = "t = Identity(x)"


def test_the_branch_that_is_taken_is_the_op() -> None:
    """Under the If's name and output; a Constant of the branch comes along under a name of its own."""
    node = conditional(SQUEEZE, KEEP)
    then = taken(node, YES)
    assert then is not None
    op, constants = then
    assert (op.op_type, op.name, list(op.output)) == ("Squeeze", "branch", ["y"])
    assert op.input[0] == "x"
    assert [n.op_type for n in constants.values()] == ["Constant"]
    assert list(constants) == [op.input[1]]
    assert op.input[1] not in ("f", "x", "y")
    other = taken(node, NO)
    assert other is not None
    assert (other[0].op_type, list(other[0].input), other[1]) == ("Identity", ["x"], {})
    assert node.op_type == "If"


NONE = {
    "its second output": (conditional("q, s = TopK(x, k)", KEEP), YES),
    "unknown": (conditional(SQUEEZE, KEEP), None),
    "two ops": (conditional("r = Relu(x) s = Neg(r)", KEEP), YES),
    "only a constant": (conditional("s = Constant<value_floats=[1.0]>()", KEEP), YES),
    "a number": (conditional(SQUEEZE, KEEP), from_array(np.array([1]), TensorProto.INT64)),
    "two conditions": (
        conditional(SQUEEZE, KEEP),
        from_array(np.array([True] * 2), TensorProto.BOOL),
    ),
    "two outputs": (conditional(SQUEEZE, KEEP, 2), YES),
    "no If": (helper.make_node("Neg", ["x"], ["y"]), YES),
}


@pytest.mark.parametrize("what", NONE)
def test_what_is_not_one_op_stays_an_if(what: str) -> None:
    """Where the branch is not known, or is more than one op, nothing is seen through."""
    node, condition = NONE[what]
    assert taken(node, condition) is None


def test_a_branch_with_a_weight_or_a_body_stays_an_if() -> None:
    """Weights of a branch are its own, and an If inside it has a branch of its own."""
    node = conditional("s = Add(x, w)", KEEP)
    assert taken(node, YES) is not None
    weight = onnx.numpy_helper.from_array(np.ones(1, np.float32), "w")
    _then(node).initializer.append(weight)
    assert taken(node, YES) is None
    nested = conditional(SQUEEZE, KEEP)
    _then(nested).node[1].CopyFrom(conditional(KEEP, KEEP))
    _then(nested).output[0].name = "y"
    assert taken(nested, YES) is None


def test_an_op_whose_first_output_is_left_out_stays_an_if() -> None:
    """An If has one output: what it shows would become the op's first, which is another value."""
    node = conditional("l, s = GRU<hidden_size=3>(x, w, r)", KEEP)
    _then(node).node[0].output[0] = ""
    assert taken(node, YES) is None


def _then(node: NodeProto) -> GraphProto:
    found: GraphProto = next(a.g for a in node.attribute if a.name == "then_branch")
    return found


def lanes(then: str, other: str, known: bool = True) -> ModelProto:
    """Three lanes with an If each, between two maps."""
    body = (
        "e@ = Unsqueeze(a@, one) j@ = Shape(e@) i@ = Gather<axis=0>(j@, at) q@ = Equal(i@, one) "
        f"b@ = If (q@) <then_branch = then@ () => (float[] s@) {{ {then} }}, "
        f"else_branch = other@ () => (float[] t@) {{ {other} }}> "
        "r@ = Tanh(b@) y@ = MatMul(r@, m@)"
    )
    more = {"one": ints(1), "at": ints(1 if known else 0)}
    more |= {f"m{k}": np.eye(4, 3, dtype=np.float32) * (k + 1) for k in range(3)}
    return build(body, more=more)


def test_lanes_run_together_through_an_if() -> None:
    """A squeeze that an exporter left to run time is none if shapes tell: nothing of the If is left."""
    model = lanes("f@ = Constant<value_ints=[1]>() s@ = Squeeze(e@, f@)", "t@ = Identity(e@)")
    outcome = carried_out(model)
    assert not outcome.refusals
    found = Counter(n.op_type for n in outcome.model.graph.node)
    assert (found["If"], found["Shape"], found["Equal"], found["Tanh"]) == (0, 0, 0, 1)
    assert found["MatMul"] == 2
    assert compare(model, outcome.model, {"N": 3}, {"N": 1}, {"N": 0}) == 3


def test_an_op_in_a_branch_keeps_its_attributes() -> None:
    """The batched node says what the op in the branch says, not what its defaults are."""
    then = "f@ = Constant<value_ints=[1]>() s@ = Squeeze(e@, f@)"
    model = lanes("s@ = LeakyRelu<alpha=0.3>(a@)", then.replace("s@", "t@"))
    outcome = carried_out(model)
    assert not outcome.refusals
    kinds = Counter(n.op_type for n in outcome.model.graph.node)
    assert (kinds["If"], kinds["LeakyRelu"]) == (0, 1)
    assert compare(model, outcome.model, {"N": 3}, {"N": 1}) == 2


def test_an_if_that_asks_for_an_open_size_stays() -> None:
    """Whether N is 1 is known only at run time: each lane asks for itself."""
    model = lanes("s@ = Neg(a@)", "t@ = Identity(a@)", known=False)
    outcome = carried_out(model)
    assert Counter(n.op_type for n in outcome.model.graph.node)["If"] == 3
    assert compare(model, outcome.model, {"N": 3}, {"N": 1}) == 2


def test_an_if_that_stays_is_the_if_it_was() -> None:
    """What is seen through and not batched is left as it stands in the file."""
    model = lanes("f@ = Constant<value_ints=[1]>() s@ = Squeeze(e@, f@)", "t@ = Identity(e@)")
    units = analysed(model).circuit.units
    assert [u.kind for u in units].count("Squeeze") == 3
    assert "If" not in {u.kind for u in units}
    result = onnx_sched.optimize(model, choose="always", check=False, skip_ops="If")
    old, new = ([n for n in m.graph.node if n.op_type == "If"] for m in (model, result.proto))
    assert [n.SerializeToString(deterministic=True) for n in old] == [
        n.SerializeToString(deterministic=True) for n in new
    ]
    assert result.changed
    assert compare(model, result.proto, {"N": 3}, {"N": 1}) == 2


@pytest.mark.parametrize("skipped", ["If", "LeakyRelu"])
def test_a_flag_reaches_an_op_in_a_branch(skipped: str) -> None:
    """By the name of the If as by that of the op that it comes to."""
    model = lanes("s@ = LeakyRelu<alpha=0.3>(a@)", "t@ = Identity(a@)")
    if skipped == "LeakyRelu":  # a flag must name an op of the model
        assert any(n.op_type == skipped for n in every_node(model))
    result = onnx_sched.optimize(model, choose="always", check=False, skip_ops=skipped)
    assert Counter(n.op_type for n in result.proto.graph.node)["If"] == 3


def test_a_branch_that_never_runs_is_not_planned() -> None:
    """Groups in it would be groups of nothing, and gone with the If once that is batched."""
    other = " ".join(f"m{j}@ = MatMul(a@, z{j}) n{j}@ = Relu(m{j}@)" for j in range(3))
    model = lanes("s@ = Tanh(a@)", f"{other} t@ = Sum(n0@, n1@, n2@)")
    more = {f"z{j}": np.eye(4, dtype=np.float32) * (j + 1) for j in range(3)}
    for name, array in more.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    result = onnx_sched.optimize(model, choose="always", check=False)
    assert Counter(n.op_type for n in result.proto.graph.node)["If"] == 0
    assert result.plan.bodies == ()
    assert compare(model, result.proto, {"N": 3}, {"N": 1}) == 2
    assert "Tanh" in {g["op_type"] for g in result.report.to_dict()["groups"]}


def test_a_name_that_the_model_has_is_not_given_to_a_constant_of_a_branch() -> None:
    """Nor is an If seen through whose Constant holds what no constant can be made of."""
    body = "f@ = Constant<value_ints=[1]>() s@ = Squeeze(e@, f@)"
    model = lanes(body, "t@ = Identity(e@)")
    node = next(n for n in model.graph.node if n.op_type == "If")
    weight = onnx.numpy_helper.from_array(ints(0), f"%{node.output[0]}.f0")
    model.graph.initializer.append(weight)
    kinds = [u.kind for u in analysed(model).circuit.units]
    assert (kinds.count("Squeeze"), kinds.count("If")) == (2, 1)
    text = lanes('f@ = Constant<value_string="a">() s@ = Squeeze(e@, f@)', "t@ = Identity(e@)")
    assert [u.kind for u in analysed(text).circuit.units].count("If") == 3
