"""Plans as files: what was decided once is done again byte for byte; a file that does not fit says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from onnx import ModelProto

import onnx_sched
from onnx_sched import pipeline, plan_file
from onnx_sched.circuit import LINEAR
from onnx_sched.errors import UsageError
from onnx_sched.options import Options
from onnx_sched.passes.rewrite import Rewritten
from onnx_sched.plan import Group, Plan
from onnx_sched.planner import Draft, modelled_plan
from onnx_sched.result import Result
from onnx_sched.variants import forms
from tests.nets import COMMITTED, FOLDER, analysed, committed, name_nodes, net, numbers
from tests.rule_examples import with_ranks


def saved(result: Result, folder: Path) -> Path:
    """A result's plan as a file."""
    path = folder / "plan.json"
    result.save_plan(path)
    return path


def replayed(model: ModelProto | Path, plan: Path, **given: Any) -> Result:
    """The model with a saved plan carried out."""
    return pipeline.optimize(model, Options(plan=plan, check=False, **given))


def always(name: str, **given: Any) -> Result:
    """A committed model with all that is legal done to it."""
    return onnx_sched.optimize(committed(name), choose="always", check=False, **given)


@pytest.mark.parametrize("name", COMMITTED)
def test_a_plan_from_a_file_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    """Save, read, carry out: the same model, byte for byte, the same plan, and the same file again."""
    first = always(name)
    path = saved(first, tmp_path)
    second = replayed(committed(name), path)
    assert second.proto.SerializeToString() == first.proto.SerializeToString()
    assert (second.report.status, second.report.groups) == (
        first.report.status,
        first.report.groups,
    )
    assert second.plan.refusals == first.plan.refusals
    text = path.read_text("utf-8")
    assert saved(second, tmp_path).read_text("utf-8") == text


def test_forms_levels_and_parts_are_kept(tmp_path: Path) -> None:
    """A file holds each group's members in lane order, form, level, region and segments."""
    text = (
        "(float[N,5] x) => (float[] y) { a0 = MatMul(x, w0) a1 = MatMul(x, w1) a2 = MatMul(x, w2) "
    )
    text += "y = Concat<axis=1>(a0, a1, a2) }"
    weights = {f"w{k}": numbers(5, n, seed=k) for k, n in enumerate((4, 3, 4))}
    model = with_ranks(name_nodes(net(text, weights)))
    result = onnx_sched.optimize(model, choose="always", check=False)
    path = saved(result, tmp_path)
    (row,) = json.loads(path.read_text("utf-8"))["groups"]
    assert sorted(row) == ["form", "kind", "level", "members", "region", "segments", "summed"]
    assert (row["form"], row["kind"], sorted(row["segments"])) == ("wide", LINEAR, [1, 2])
    assert sorted(row["members"]) == ["a0", "a1", "a2"]
    again = replayed(model, path)
    assert again.plan.groups == result.plan.groups or [
        (tuple(u.outputs for u in g.units), g.form, g.level, g.region, g.segments)
        for g in again.plan.groups
    ] == [
        (tuple(u.outputs for u in g.units), g.form, g.level, g.region, g.segments)
        for g in result.plan.groups
    ]


@pytest.mark.parametrize("form", ["conv_t", "grouped_conv"])
def test_a_form_that_a_race_chose_is_carried_out_again(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever forms were chosen, the file gives them back, and the promise of no empty batch with them."""

    def chosen(*args: Any) -> Draft:
        draft = modelled_plan(*args)
        groups = tuple(
            replace(g, form=form) if form in forms(g, args[0].circuit) else g
            for g in draft.plan.groups
        )
        return Draft(Plan(groups, refusals=draft.plan.refusals), _made(args[0], groups))

    monkeypatch.setattr(pipeline, "modelled_plan", chosen)
    first = always("grouped_mlp", nonempty=True)
    monkeypatch.undo()
    kinds = {node.op_type for node in first.proto.graph.node}
    assert "Conv" in kinds
    assert not kinds & {"Pad", "MatMul"}
    second = replayed(committed("grouped_mlp"), saved(first, tmp_path))
    assert second.proto.SerializeToString() == first.proto.SerializeToString()


def _made(analysis: Any, groups: tuple[Group, ...]) -> Rewritten | None:
    from onnx_sched.planner import made

    return made(analysis, groups, [])[0]


def test_a_replayed_plan_measures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a plan nothing is raced, only checked."""
    path = saved(always("critic_ensemble"), tmp_path)

    def race(*args: object) -> None:
        raise AssertionError("raced")

    monkeypatch.setattr("onnx_sched.races.Race", race)
    result = pipeline.optimize(FOLDER / "critic_ensemble.onnx", Options(plan=path))
    assert result.report.status == "optimized"
    assert result.report.latency == ()
    assert result.report.verdict in ("bitwise", "within_tolerance")


def test_an_empty_plan_leaves_the_model_alone(tmp_path: Path) -> None:
    """A plan without groups is a plan: the model is unchanged."""
    first = onnx_sched.optimize(
        committed("grouped_mlp"), choose="always", check=False, skip_ops=["MatMul"]
    )
    assert first.plan.groups == ()
    second = replayed(committed("grouped_mlp"), saved(first, tmp_path))
    assert second.report.status == "unchanged"


def test_a_plan_for_another_model_is_refused(tmp_path: Path) -> None:
    """Members that the model has not are named, with the flag and the file."""
    path = saved(always("grouped_mlp"), tmp_path)
    with pytest.raises(UsageError, match="was made for another model") as refused:
        replayed(committed("mmoe"), path)
    message = str(refused.value)
    assert str(path) in message
    assert "--plan" in message
    assert "layers.0" in message
    assert "save-plan" in refused.value.hint


def rows(path: Path) -> dict[str, Any]:
    """What a file holds."""
    data: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return data


CHANGES: dict[str, tuple[str, Any]] = {
    "another kind": ("kind", "Conv"),
    "a member twice": ("members", None),
    "no members": ("members", []),
    "a form of its own": ("form", "sideways"),
    "a form of others": ("form", "wide"),
    "a member that is a list": ("members", [["x"]]),
    "no list": ("members", 3),
    "text for a region": ("region", "first"),
    "segments that do not add up": ("segments", [1, 1]),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_plan_that_makes_no_sense_is_refused(what: str, tmp_path: Path) -> None:
    """A group that cannot be is a usage error that names the file: never a traceback, never a wrong model."""
    path = saved(always("grouped_mlp"), tmp_path)
    data = rows(path)
    key, value = CHANGES[what]
    group = data["groups"][0]
    group[key] = [group["members"][0]] * 4 if what == "a member twice" else value
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(UsageError, match=r"plan\.json"):
        replayed(committed("grouped_mlp"), path)


@pytest.mark.parametrize("key", ["members", "kind", "form", "level", "region", "segments"])
def test_a_group_that_lacks_something_is_refused(key: str, tmp_path: Path) -> None:
    """Every key of a group is needed."""
    path = saved(always("grouped_mlp"), tmp_path)
    data = rows(path)
    del data["groups"][0][key]
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(UsageError, match=r"plan\.json"):
        replayed(committed("grouped_mlp"), path)


def test_groups_that_wait_for_each_other_are_refused(tmp_path: Path) -> None:
    """A file whose groups would make a cycle is a usage error, too."""
    path = saved(always("near_crossed_order"), tmp_path)
    data = rows(path)
    merged = []
    for kind in ("LayerNormalization", LINEAR):
        alike = [g for g in data["groups"] if g["kind"] == kind]
        merged.append({**alike[0], "members": [m for g in alike for m in g["members"]]})
    path.write_text(json.dumps({**data, "groups": merged}), "utf-8")
    with pytest.raises(UsageError, match=r"plan\.json"):
        replayed(committed("near_crossed_order"), path)


def test_members_that_are_not_alike_are_refused(tmp_path: Path) -> None:
    """Units of one kind but of different shapes are no group, whatever a file says."""
    path = saved(always("near_unequal_widths"), tmp_path)
    data = rows(path)
    data["groups"][0]["members"].insert(2, "lanes.2.0/Add:0")
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(UsageError, match=r"plan\.json"):
        replayed(committed("near_unequal_widths"), path)


BAD = {
    "nothing": ("", "is not JSON"),
    "text": ("groups", "is not JSON"),
    "half a file": ('{"schema_version": "1", "groups": [', "is not JSON"),
    "a list": ("[]", "is no plan of this version"),
    "another version": ('{"schema_version": "2", "groups": []}', "is no plan of this version"),
    "no version": ('{"groups": []}', "is no plan of this version"),
    "no groups": ('{"schema_version": "1"}', "is no plan of this version"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_plan_is_refused(what: str, tmp_path: Path) -> None:
    """Empty, cut off, of another version: one line that names the file, and what to do."""
    text, expected = BAD[what]
    path = tmp_path / "plan.json"
    path.write_text(text, "utf-8")
    with pytest.raises(UsageError, match=expected) as refused:
        plan_file.read(path)
    assert str(path) in str(refused.value)
    assert refused.value.hint
    assert refused.value.exit_code == 2


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """A model is no plan."""
    path = tmp_path / "plan.json"
    path.write_bytes((FOLDER / "mmoe.onnx").read_bytes())
    with pytest.raises(UsageError, match="is not JSON"):
        plan_file.read(path)


@pytest.mark.parametrize("what", ["missing", "directory"])
def test_a_file_that_cannot_be_read_is_refused(what: str, tmp_path: Path) -> None:
    """Missing, or a folder: the system's own words, with the flag."""
    path = tmp_path / "gone.json" if what == "missing" else tmp_path
    with pytest.raises(UsageError, match="--plan"):
        plan_file.read(path)


def test_names_in_a_file_are_text_as_it_is(tmp_path: Path) -> None:
    """Names with quotes, line breaks and other letters come back as they were."""
    odd = 'ä"\n\\[b]\u202e'
    text = (
        "(float[N,8] x) => (float[] y) { p0, p1 = Split<axis=1>(x) a0 = MatMul(p0, w0) "
        "a1 = MatMul(p1, w1) y = Concat<axis=1>(a0, a1) }"
    )
    model = with_ranks(name_nodes(net(text, {"w0": numbers(4, 4), "w1": numbers(4, 4, seed=1)})))
    for node in model.graph.node:
        for names in (node.input, node.output):
            for k, name in enumerate(names):
                if name.startswith("a"):
                    names[k] = name + odd
    result = onnx_sched.optimize(model, choose="always", check=False)
    path = saved(result, tmp_path)
    assert rows(path)["groups"][0]["members"] == [f"a{k}{odd}" for k in range(2)]
    assert replayed(model, path).proto.SerializeToString() == result.proto.SerializeToString()


def test_units_are_known_by_their_first_value() -> None:
    """The name of a unit is the first value that it makes, and no two units share it."""
    circuit = analysed(committed("per_feature")).circuit
    found = [plan_file.name_of(u) for u in circuit.units]
    assert len(found) == len(set(found))
    assert all(circuit.maker[name] is unit for name, unit in zip(found, circuit.units, strict=True))
