"""Plan files that somebody changed: refused with the file and the group, or carried out and right."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto

import onnx_sched
from onnx_sched import pipeline
from onnx_sched.errors import UsageError
from onnx_sched.options import Options
from onnx_sched.passes.rewrite import GroupRefused, rewrite
from onnx_sched.plan import Refused
from onnx_sched.plan_file import to_json
from tests import test_bodies
from tests.nets import committed, name_nodes, net, numbers
from tests.rule_examples import compare, with_ranks

Data = dict[str, Any]

SMALL = ["mmoe", "near_crossed_order", "near_unequal_widths", "per_feature", "conv_towers"]
FLAG = test_bodies.MODELS["both"][1]


@cache
def plan_text(name: str) -> str:
    """The plan of all that is legal in a model of the repository."""
    result = onnx_sched.optimize(committed(name), choose="always", check=False)
    return to_json(result.plan, nonempty=False)


def bodies_plan() -> tuple[ModelProto, Data]:
    """A model with groups in two bodies, and its plan."""
    model = test_bodies.MODELS["both"][0]
    result = onnx_sched.optimize(model, choose="always", inputs=FLAG)
    return model, json.loads(to_json(result.plan, nonempty=False))


def carried_out(model: ModelProto, data: Data, folder: Path, **given: Any) -> onnx_sched.Result:
    """A model with a plan carried out that stands in a file called plan.json."""
    path = folder / "plan.json"
    path.write_text(json.dumps(data), "utf-8")
    return pipeline.optimize(model, Options(plan=path, check=False, **given))


def error(model: ModelProto, data: Data, folder: Path, **given: Any) -> str:
    """What the error says that a plan is."""
    with pytest.raises(UsageError) as refused:
        carried_out(model, data, folder, **given)
    message = str(refused.value)
    assert message.startswith(f"--plan {folder / 'plan.json'}")
    assert "\n" not in message
    assert refused.value.hint
    return message


# -- what is said --------------------------------------------------------------------------------------


def first(key: str, value: Any) -> Callable[[Data], None]:
    """The change of one key of the first group."""

    def change(data: Data) -> None:
        data["groups"][0][key] = value

    return change


def extra(data: Data) -> None:
    data["groups"][0]["segment"] = []


def swapped_levels(data: Data) -> None:
    one, two = data["groups"][0], data["groups"][-1]
    one["level"], two["level"] = two["level"], one["level"]


def stolen(data: Data) -> None:
    data["groups"].append(copy.deepcopy(data["groups"][0]))


CHANGES: dict[str, tuple[Callable[[Data], None], str]] = {
    "one member": (
        lambda data: first("members", data["groups"][0]["members"][:1])(data),
        "group 1 (Linear experts.0.0/Gemm:0, ...) has members",
    ),
    "no object": (lambda data: data["groups"].insert(1, "x"), "group 2 is not an object with keys"),
    "a key too many": (extra, "has 'segment', which is not known"),
    "a level below 0": (first("level", -1), "has level -1, which must be a whole number from 0"),
    "a level that is true": (first("level", True), "has level true, which must be"),
    "a region with a fraction": (first("region", 0.5), "has region 0.5, which must be"),
    "segments of nothing": (first("segments", [0, 8]), "has segments [0, 8], which must be"),
    "segments of a text": (first("segments", "8"), 'has segments "8", which must be a list'),
    "segments that do not add up": (
        first("segments", [3, 3]),
        "has segments [3, 3], but 11 members",
    ),
    "another form": (first("form", "sideways"), "has form 'sideways', but can only have wide"),
    "a pseudo-form": (first("form", "separate"), "has form 'separate', but can only have"),
    "a kind that is none": (
        first("kind", "Linear2"),
        "group 1 (Linear2 experts.0.0/Gemm:0, ...) was",
    ),
    "a group twice": (stolen, "and so does group 1"),
    "levels the wrong way round": (swapped_levels, "waits for group"),
    "no list of bodies": (lambda data: data.update(bodies=3), "has bodies 3, which must be a list"),
    "a body without a name": (
        lambda data: data.update(bodies=[{"groups": []}]),
        "body 1 has no 'body'",
    ),
    "a body that is not there": (
        lambda data: data.update(bodies=[{"body": "If/then", "groups": data["groups"]}]),
        "body If/then was made for another model: this one has no such body",
    ),
    "an empty body": (lambda data: data.update(bodies=[{"body": "b", "groups": []}]), "no group"),
    "a refusal without a code": (
        lambda data: data.update(refusals=[{"reason": "so", "nodes": []}]),
        "refusal 1 has no 'code'",
    ),
    "a refusal with a word for a code": (
        lambda data: data.update(refusals=[{"code": "no", "reason": "so", "nodes": []}]),
        'refusal 1 has code "no", which must be a code such as S103',
    ),
    "a sum of nothing": (
        lambda data: data.update(sums=["q"]),
        "sums q, which is no sum over the lanes",
    ),
    "sums that are numbers": (lambda data: data.update(sums=[1]), "has sums [1], which must be"),
    "a promise that is text": (lambda data: data.update(nonempty="no"), "must be true or false"),
    "calls that are no pairs": (lambda data: data.update(inlined=["f"]), "has inlined"),
    "calls of no function": (lambda data: data.update(inlined=[["", "f"]]), "does not call"),
    "a key nobody knows": (lambda data: data.update(group=[]), "has 'group', which is not known"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_that_makes_no_sense_is_told_by_its_place(what: str, tmp_path: Path) -> None:
    """The error names the file, the group, and what is wrong with it; nothing is ignored."""
    change, words = CHANGES[what]
    data = json.loads(plan_text("mmoe"))
    change(data)
    assert words in error(committed("mmoe"), data, tmp_path)


def test_a_node_and_what_it_waits_for_are_no_group(tmp_path: Path) -> None:
    """Alike nodes of two layers wait for each other: a group of both would wait for itself."""
    data = json.loads(plan_text("grouped_mlp"))
    one, two = [g for g in data["groups"] if g["kind"] == "Relu"][:2]
    one["members"].append(two["members"][0])
    data["groups"] = [one]
    said = error(committed("grouped_mlp"), data, tmp_path)
    assert "group 1 (Relu layers.0.groups.0/Relu, ...) waits for itself" in said


def test_what_is_missing_may_be_missing(tmp_path: Path) -> None:
    """A short file will do: version and groups are all that it takes."""
    data = json.loads(plan_text("mmoe"))
    short = {"schema_version": data["schema_version"], "groups": data["groups"]}
    made = [carried_out(committed("mmoe"), d, tmp_path).proto for d in (data, short)]
    assert made[0].SerializeToString() == made[1].SerializeToString()


def test_an_endless_file_is_no_plan(tmp_path: Path) -> None:
    """Lists in lists without end are no JSON that anybody wrote."""
    path = tmp_path / "plan.json"
    path.write_text("[" * 100_000, "utf-8")
    with pytest.raises(UsageError, match=r"plan\.json is not JSON"):
        pipeline.optimize(committed("mmoe"), Options(plan=path, check=False))


def test_members_that_no_rule_is_for_are_named(tmp_path: Path) -> None:
    """A group of what is never batched says which node, and why."""
    data = json.loads(plan_text("near_training_dropout"))
    makers = [n for n in committed("near_training_dropout").graph.node if n.op_type == "Dropout"]
    members = [n.output[0] for n in makers]
    row = {"members": members, "kind": "Dropout", "form": "stacked", "level": 1, "region": 0}
    data["groups"] = [{**row, "segments": []}]
    said = error(committed("near_training_dropout"), data, tmp_path)
    assert f"holds {makers[0].name}, which runs with no other: " in said


def test_what_must_stay_as_it_is_contradicts_a_plan(tmp_path: Path) -> None:
    """--skip-op beside a plan that batches such nodes is a contradiction, not a wish to be ignored."""
    data = json.loads(plan_text("mmoe"))
    assert "--skip" in error(committed("mmoe"), data, tmp_path, skip_ops=("Relu",))
    model, data = bodies_plan()
    assert "--skip-pass bodies" in error(model, data, tmp_path, skip_passes=("bodies",))
    model = summing()
    data = json.loads(to_json(always(model).plan, nonempty=False))
    assert "sums s, which a --skip flag" in error(model, data, tmp_path, skip_passes=("sums",))


# -- sums ----------------------------------------------------------------------------------------------


def summing() -> ModelProto:
    """Two products, added up."""
    text = (
        "(float[N,8] x) => (float[] y) { p0, p1 = Split<axis=1>(x) a0 = MatMul(p0, w0) "
        "a1 = MatMul(p1, w1) s = Add(a0, a1) y = Relu(s) }"
    )
    return with_ranks(name_nodes(net(text, {"w0": numbers(4, 4), "w1": numbers(4, 4, seed=1)})))


def always(model: ModelProto, **given: Any) -> onnx_sched.Result:
    """All that is legal."""
    return onnx_sched.optimize(model, choose="always", check=False, **given)


@pytest.mark.parametrize("given", [{}, {"skip_passes": ["sums"]}, {"skip_ops": ["Add"]}], ids=str)
def test_sums_are_those_of_the_file(given: dict[str, Any], tmp_path: Path) -> None:
    """A sum that was left alone stays alone when the plan is carried out, without the flag, too."""
    model = summing()
    first = always(model, **given)
    kinds = [n.op_type for n in first.proto.graph.node]
    assert ("Add" in kinds, "ReduceSum" in kinds) == (bool(given), not given)
    second = carried_out(model, json.loads(to_json(first.plan, nonempty=False)), tmp_path)
    assert second.proto.SerializeToString() == first.proto.SerializeToString()
    assert to_json(second.plan, nonempty=False) == to_json(first.plan, nonempty=False)


# -- bodies --------------------------------------------------------------------------------------------


def test_groups_in_bodies_are_held_against_the_model_too(tmp_path: Path) -> None:
    """A body that stands twice, or a group of it that cannot be: the body is named with the group."""
    model, data = bodies_plan()
    assert carried_out(model, data, tmp_path).report.groups
    label = data["bodies"][0]["body"]
    twice = {**data, "bodies": [*data["bodies"], data["bodies"][0]]}
    assert f"body {label} stands twice" in error(model, twice, tmp_path)
    data["bodies"][0]["groups"][-1]["form"] = "sideways"
    number = len(data["bodies"][0]["groups"])
    assert f"group {number} of body {label} (" in error(model, data, tmp_path)


def test_a_group_of_a_body_that_cannot_be_made_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What turns out to be impossible only when it is made is an error in a body, as it is outside."""
    model, data = bodies_plan()

    def refusing(circuit: Any, plan: Any, *args: Any) -> Any:
        if plan.groups:
            raise GroupRefused(0, Refused("S201", "because"))
        return rewrite(circuit, plan, *args)

    monkeypatch.setattr("onnx_sched.replay.rewrite", refusing)
    said = error(model, {**data, "groups": []}, tmp_path)
    assert f"group 1 of body {data['bodies'][0]['body']} (" in said
    assert said.endswith("cannot be made: because")


# -- whatever is done to a file ------------------------------------------------------------------------


def mutated(data: Data, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
    """One change of the kind that people and programs make."""
    groups = data["groups"]
    row = draw(st.sampled_from(groups))
    other = draw(st.sampled_from(groups))
    match draw(st.sampled_from(("order", "drop", "move", "form", "level", "join", "less", "cut"))):
        case "order":
            row["members"] = draw(st.permutations(row["members"]))
        case "drop":
            row["members"].remove(draw(st.sampled_from(row["members"])))
        case "move":
            row["members"].append(other["members"].pop())
        case "form":
            row["form"] = draw(
                st.sampled_from(("stacked", "wide", "conv_t", "grouped_conv", "apart"))
            )
        case "level":
            row["level"] = draw(st.integers(0, 12))
        case "join":
            row["members"] = list(dict.fromkeys(row["members"] + other["members"]))
        case "less" if len(groups) > 1:
            groups.remove(row)
        case _:
            row["segments"] = draw(st.lists(st.integers(1, 4), max_size=3))


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_a_changed_plan_is_refused_or_right(tmp_path: Path, data: st.DataObject) -> None:
    """Members moved, groups joined, forms and levels changed: an error with the file, or equal outputs."""
    name = data.draw(st.sampled_from(SMALL))
    plan = json.loads(plan_text(name))
    for _ in range(data.draw(st.integers(1, 3))):
        mutated(plan, data.draw)
        if not all(group["members"] for group in plan["groups"]):
            break
    model = committed(name)
    said, result = "", None
    try:
        result = carried_out(model, plan, tmp_path)
    except UsageError as refused:
        said = str(refused)
    if result is None:
        assert "plan.json: group" in said
    else:
        assert compare(model, result.proto, dict.fromkeys(("N", "batch"), 3))
