"""`--exact`: one more candidate for the levels, taken where it leaves less, told in every form, replayed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto

import onnx_sched
from onnx_sched import pipeline
from onnx_sched.choose import Decision
from onnx_sched.errors import UsageError
from onnx_sched.levelling import saved
from onnx_sched.options import Options
from onnx_sched.plan import Group, Launches, Optimum
from onnx_sched.planner import measured_plan, modelled_plan, sought
from onnx_sched.progress import Progress, nobody
from onnx_sched.report.data import ExactRow
from onnx_sched.report.optimum import sentence
from onnx_sched.report.text import to_text
from tests.nets import FOLDER, analysed, committed, name_nodes, net, numbers
from tests.rule_examples import compare, with_ranks
from tests.shell import refused, run

needs_ortools = pytest.mark.skipif(
    importlib.util.find_spec("ortools") is None, reason="needs OR-tools: extra `exact`"
)

SCHEMA = json.loads(resources.files("onnx_sched.report").joinpath("schema.json").read_text("utf-8"))
LONG = 20.0
OPS = {"R": "Relu", "S": "Sigmoid", "T": "Tanh"}

BETTER = ("RTMSMRT", "RTSMRT")
"""Branches for which every level function but the exact one leaves launches that need not be."""

GLUED = ("SRRMSR", "SRMRSR", "SMRRSR", "SRRSR", "SRMRSR")
"""Branches whose fewest launches ask for more nodes that bring lanes together than they save."""


def body(words: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Nodes from x to y, and their weights: a branch for each word, an op for each letter, M for MatMul."""
    lanes = range(len(words))
    text, weights = [f"{', '.join(f'v{k}_0' for k in lanes)} = Split<axis=1>(x)"], {}
    for k, word in enumerate(words):
        for n, letter in enumerate(word):
            made, read = f"v{k}_{n + 1}", f"v{k}_{n}"
            if letter == "M":
                weights[f"w{k}_{n}"] = numbers(4, 4, seed=100 * k + n) / 2
                text.append(f"{made} = MatMul({read}, w{k}_{n})")
            else:
                text.append(f"{made} = {OPS[letter]}({read})")
    ends = ", ".join(f"v{k}_{len(word)}" for k, word in enumerate(words))
    return " ".join([*text, f"y = Concat<axis=1>({ends})"]), weights


def branches(words: Sequence[str]) -> ModelProto:
    """A model of branches."""
    text, weights = body(words)
    width = 4 * len(words)
    model = net(f"(float[N,{width}] x) => (float[N,{width}] y) {{ {text} }}", weights)
    return with_ranks(name_nodes(model))


def in_a_body(words: Sequence[str]) -> ModelProto:
    """A model of branches inside an If."""
    text, weights = body(words)
    kind = f"float[N,{4 * len(words)}]"
    then = f"then () => ({kind} y) {{ {text} }}"
    other = f"other () => ({kind} u) {{ u = Identity(x) }}"
    choice = f"z = If (c) <then_branch = {then}, else_branch = {other}>"
    return name_nodes(net(f"(bool c, {kind} x) => ({kind} z) {{ {choice} }}", weights))


def always(model: ModelProto | Path, **given: Any) -> onnx_sched.Result:
    """All that is legal, without running anything."""
    return onnx_sched.optimize(model, choose="always", check=False, **given)


def optimum(result: onnx_sched.Result) -> Optimum:
    """What the search in the main graph came to."""
    (row,) = result.report.exact
    assert row.body == ""
    return row.optimum


@needs_ortools
def test_better_levels_are_taken() -> None:
    """Fewer launches and fewer nodes; the outputs are the same, and everything says where it comes from."""
    model = branches(BETTER)
    plain, exact = always(model), onnx_sched.optimize(model, choose="always", exact=True)
    found = optimum(exact)
    assert (found.taken, found.proven, found.cost < found.before) == (True, True, True)
    assert (plain.report.exact, plain.plan.optimum) == ((), None)
    assert (plain.report.nodes.after, exact.report.nodes.after) == (17, 13)
    assert compare(model, exact.proto, {"N": 3}, {"N": 1}) == 2
    assert f"taken instead of {found.before.heavy} heavy" in " ".join(to_text(exact.report).split())


@needs_ortools
def test_levels_that_cost_more_glue_than_they_save_are_not_taken() -> None:
    """Fewer launches in theory, more nodes in the end: the model is the one without the search."""
    model = branches(GLUED)
    plain, exact = always(model), always(model, exact=True)
    found = optimum(exact)
    assert (found.taken, found.cost < found.before) == (False, True)
    assert exact.proto.SerializeToString() == plain.proto.SerializeToString()
    assert exact.report.notes[-1].endswith(
        f"not taken: what can be made of them saves no more than {found.before.heavy} heavy and "
        f"{found.before.light} light launches do"
    )


@needs_ortools
def test_fewer_launches_that_batch_no_more_are_not_taken() -> None:
    """Launches are counted by what is alike; what cannot be made all the same leaves the plan as it was."""
    found = optimum(always(committed("near_cross_dependency"), exact=True))
    assert (found.taken, found.proven, found.cost < found.before) == (False, True, True)


@needs_ortools
def test_what_must_stay_is_a_launch_by_itself() -> None:
    """With everything skipped every unit counts; without, alike ones share."""
    analysis = analysed(branches(BETTER))
    nothing = sought(analysis, lambda _: True, LONG).optimum
    everything = sought(analysis, lambda _: False, LONG).optimum
    assert nothing is not None
    assert everything is not None
    assert nothing.cost == nothing.before == Launches(3, 12)
    assert everything.cost < nothing.cost


WORDS = st.lists(st.text("MMRST", min_size=2, max_size=7), min_size=2, max_size=4)


@needs_ortools
@settings(deadline=None, max_examples=30)
@given(WORDS)
def test_it_is_never_worse_than_without(words: list[str]) -> None:
    """What is saved is no less, what is left is no more, and the outputs agree."""
    model = branches(words)
    analysis = analysed(model)
    plain, exact = (sought(analysis, lambda _: False, s) for s in (None, LONG))
    assert saved(exact.groups) >= saved(plain.groups)
    assert exact.optimum is not None
    assert exact.optimum.bound <= exact.optimum.cost <= exact.optimum.before
    assert exact.optimum.taken == (exact.level != plain.level)
    one, two = always(model), always(model, exact=True)
    assert (two.report.nodes.after or 0) <= (one.report.nodes.after or 0)
    assert compare(model, two.proto, {"N": 2}) == 1


@needs_ortools
@pytest.mark.parametrize("make", [branches, in_a_body])
def test_a_plan_carries_the_choice(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Carried out where OR-tools is not installed: the same bytes, the same report, the same file again."""
    model = make(BETTER)
    first, path = always(model, exact=True), tmp_path / "plan.json"
    assert any(row.optimum.taken for row in first.report.exact)
    first.save_plan(path)
    for module in ("ortools", "ortools.sat", "ortools.sat.python"):
        monkeypatch.setitem(sys.modules, module, None)
    again = pipeline.optimize(model, Options(plan=path, check=False))
    assert again.proto.SerializeToString() == first.proto.SerializeToString()
    assert again.report.exact == first.report.exact
    assert again.report.notes == first.report.notes
    again.save_plan(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == path.read_text()


@needs_ortools
def test_bodies_are_searched_too() -> None:
    """Each body in which something is batched has a row of its own; the note names it."""
    result = always(in_a_body(BETTER), exact=True)
    main, row = result.report.exact
    assert (main.body, row.body.endswith("then_branch")) == ("", True)
    assert row.optimum == optimum(always(branches(BETTER), exact=True))
    assert f"--exact in the body {row.body}: " in result.report.notes[-1]


@dataclass
class Yes:
    """A chooser to whom everything is faster."""

    progress: Progress = nobody

    def decide(self, region: Sequence[Group]) -> Decision:
        return Decision(tuple(region), (), "")


@needs_ortools
def test_the_races_are_between_regions_of_the_levels_found() -> None:
    """`--choose measured` and `always` start from the same groups."""
    analysis = analysed(branches(BETTER))
    chooser: Any = Yes()
    raced = measured_plan(analysis, lambda _: False, chooser, LONG).plan
    legal = modelled_plan(analysis, lambda _: False, None, LONG).plan
    assert raced.optimum is not None
    assert raced.optimum.taken
    assert (raced.groups, raced.optimum) == (legal.groups, legal.optimum)


@needs_ortools
def test_a_second_run_of_another_process_gives_the_same_bytes(tmp_path: Path) -> None:
    """Model, plan and report are the same whatever the seed of Python's hashes."""
    onnx.save(branches(BETTER), tmp_path / "m.onnx")
    outputs = []
    for seed in ("1", "2"):
        flags = ("--choose", "always", "--no-check", "--exact", "--json", "--save-plan", "p.json")
        command = [sys.executable, "-m", "onnx_sched", "optimize", "m.onnx", "-o", "o.onnx", *flags]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(FOLDER.parent)},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        report = json.loads(done.stdout)
        jsonschema.Draft202012Validator(SCHEMA).validate(report)
        assert report["exact"][0]["taken"]
        del report["seconds"]
        files = [(tmp_path / name).read_bytes() for name in ("o.onnx", "p.json")]
        outputs.append((report, *files))
    assert outputs[0] == outputs[1]


# -- what is said --------------------------------------------------------------------------------------

FEW, MANY = Launches(3, 9), Launches(4, 20)
LEAST = "at least 3 heavy and 9 light launches must be left"
SAID = {
    Optimum(MANY, FEW, FEW, "", True): "3 heavy and 9 light launches, proven optimal; "
    "taken instead of 4 heavy and 20 light launches",
    Optimum(FEW, FEW, FEW): "3 heavy and 9 light launches, proven optimal; "
    "the levels found without it are as good",
    Optimum(MANY, FEW, FEW): "3 heavy and 9 light launches, proven optimal; "
    "not taken: what can be made of them saves no more than 4 heavy and 20 light launches do",
    Optimum(MANY, MANY, FEW, "time"): "4 heavy and 20 light launches, not proven optimal "
    f"(stopped by --time-limit; {LEAST}); the levels found without it are as good",
    Optimum(
        MANY, MANY, FEW, "clock"
    ): "4 heavy and 20 light launches, not proven optimal (stopped by the "
    f"clock at --time-limit: another run may get further; {LEAST}); the levels found without it are as good",
    Optimum(MANY, MANY, FEW, "size"): "4 heavy and 20 light launches, not proven optimal "
    f"(too large to prove; {LEAST}); the levels found without it are as good",
}


@pytest.mark.parametrize("found", SAID)
def test_what_it_came_to_is_one_sentence(found: Optimum) -> None:
    """Cost, proof or bound with the reason, and what became of it; JSON has the same."""
    assert sentence(ExactRow("", found)) == f"--exact: {SAID[found]}"
    row = ExactRow("", found).to_dict()
    assert row["cost"] == {"heavy": found.cost.heavy, "light": found.cost.light}
    assert (row["proven"], row["stopped"]) == (found.cost == found.bound, found.stopped)


# -- what is refused -----------------------------------------------------------------------------------


def test_without_or_tools_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 2 and how to install it, before the model is even read."""
    for module in ("ortools", "ortools.sat", "ortools.sat.python"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)
    words = ("--exact needs OR-tools", "pip install 'onnx-sched[exact]'")
    refused(run("optimize", "missing.onnx", "-o", "o.onnx", "--exact"), 2, *words)
    refused(run("plan", "missing.onnx", "--exact"), 2, *words)
    assert list(tmp_path.iterdir()) == []


def test_a_saved_plan_leaves_nothing_to_search(tmp_path: Path) -> None:
    """--plan and --exact contradict each other."""
    with pytest.raises(UsageError, match=r"--plan carries out a saved plan as it is"):
        Options(plan=tmp_path / "plan.json", exact=True)


@pytest.mark.parametrize("change", [{"cost": [1]}, {"taken": 1}, {"stopped": "later"}, {"x": 0}])
def test_a_search_that_no_run_saves_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    """A plan file whose note of the search has another form is no plan."""
    model = committed("grouped_mlp")
    path = tmp_path / "plan.json"
    always(model).save_plan(path)
    row = {"before": [4, 5], "cost": [4, 5], "bound": [4, 5], "stopped": "", "taken": False}
    data = {**json.loads(path.read_text()), "optimum": {**row, **change}}
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match=r"plan\.json has optimum .* as --save-plan writes it"):
        pipeline.optimize(model, Options(plan=path, check=False))
