"""`merge` on the command line: what it checks, what it races against, and what it tells."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from onnx_sched import sharing
from onnx_sched.cli import cli
from onnx_sched.judge import members as judged
from onnx_sched.merge import Join, merge, put_together
from tests.members import FEEDS, critics, written

SCHEMA = json.loads(resources.files("onnx_sched.report").joinpath("schema.json").read_text("utf-8"))
JOINS: tuple[Join, ...] = ("outputs", "mean", "stack")


@pytest.fixture
def members(tmp_path: Path) -> list[Path]:
    """Three models of one architecture with different weights."""
    return critics(tmp_path)


def command(members: list[Path], out: Path, *flags: str) -> Result:
    """`merge` on the CPU, one condition to race under."""
    quick = ["--provider", "cpu", "--threads", "1", "--time-limit", "1"]
    return CliRunner().invoke(cli, ["merge", *map(str, members), "-o", str(out), *quick, *flags])


def told(done: Result) -> dict[str, Any]:
    """The JSON report of a run that went well; it follows the schema."""
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    return found


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("choose", ["always", "measured"])
def test_the_report_counts_from_the_models(
    tmp_path: Path, members: list[Path], join: Join, choose: str
) -> None:
    """Before is the models, nodes summed; then what sharing left; after is what the file has."""
    out = tmp_path / "out.onnx"
    found = told(command(members, out, f"--{join}", "--choose", choose, "--json"))
    merged = found["merge"]
    sizes = [len(onnx.load(str(p)).graph.node) for p in members]
    assert merged["inputs"] == [
        {"file": str(p), "nodes": n} for p, n in zip(members, sizes, strict=True)
    ]
    assert (merged["output"], merged["join"]) == (str(out), join)
    assert merged["nodes"] == len(merge(members, join).graph.node)
    assert found["nodes"] == {"before": sum(sizes), "after": len(onnx.load(str(out)).graph.node)}
    assert merged["batched"] == bool(found["groups"])
    assert choose == "measured" or merged["batched"]
    assert found["status"] == "optimized"
    assert found["dispatches"]["before"] >= len(members)


@pytest.mark.parametrize("flags", [(), ("--mean",), ("--stack",), ("--separate-inputs",)])
@pytest.mark.parametrize("choose", ["always", "measured"])
def test_outputs_are_held_against_each_model_by_itself(
    tmp_path: Path, members: list[Path], flags: tuple[str, ...], choose: str
) -> None:
    """At batch 1, 32 and an odd size, with the runtime's optimisations and without; the race, too."""
    out = tmp_path / "out.onnx"
    found = told(command(members, out, *flags, "--choose", choose, "--json"))
    assert found["agreement"]["verdict"] in ("bitwise", "within_tolerance")
    assert found["agreement"]["checks"] == 6
    rows = {row["name"]: row["of"] for row in found["merge"]["outputs"]}
    if flags in ((), ("--separate-inputs",)):
        assert rows == {f"q_{k}": f"q of {path}" for k, path in enumerate(members)}
    else:
        names = ", ".join(map(str, members))
        assert rows == {"q": f"the {flags[0].removeprefix('--')} of q of {names}"}
    assert [row["dims"]["batch"] for row in found["latency"]] == [1, 32]
    assert all(row["pairs"] >= 20 and row["before_us"] > 0 for row in found["latency"])


@pytest.mark.parametrize("join", JOINS)
def test_a_mismatch_writes_nothing_and_names_the_file(
    tmp_path: Path, members: list[Path], monkeypatch: pytest.MonkeyPatch, join: Join
) -> None:
    """Exit 3, whatever went wrong in merging: here weights are shared that only look alike."""

    def careless(tensor: onnx.TensorProto) -> bytes:
        return str((tensor.data_type, list(tensor.dims))).encode()

    monkeypatch.setattr(sharing, "_content", careless)
    out = tmp_path / "out.onnx"
    done = command(members, out, f"--{join}")
    assert (done.exit_code, done.stdout) == (3, "")
    assert not out.exists()
    said = " ".join(done.stderr.split())
    wrong = f"q_1 is not q of {members[1]}" if join == "outputs" else f"q is not the {join} of q of"
    assert wrong in said
    assert f"{out} was not written" in said
    assert "values outside" in said


def test_the_tolerances_that_are_asked_for_hold(tmp_path: Path, members: list[Path]) -> None:
    """A mean rounds in another order than numpy's: to ask for no difference at all is to be refused."""
    out = tmp_path / "out.onnx"
    feeds = tmp_path / "feeds.npz"
    rng = np.random.default_rng(0)
    obs, act = (rng.normal(size=(64, v.shape[1])).astype("f4") for v in FEEDS.values())
    np.savez(feeds, obs=obs, act=act)
    flags = ["--mean", "--choose", "always", "--inputs", str(feeds)]
    assert told(command(members, out, *flags, "--json"))["agreement"]["verdict"] != "bitwise"
    out.unlink()
    done = command(members, out, *flags, "--atol", "0", "--rtol", "0")
    assert done.exit_code == 3, done.output
    assert f"{members[0]} + {members[1]} + {members[2]}, merged: " in done.stderr
    assert "--atol 0" in done.stderr
    assert not out.exists()


def test_the_text_says_what_became_of_what(
    tmp_path: Path, members: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who went in, what was shared, what batching left, what it was compared with; in every form."""
    monkeypatch.setenv("COLUMNS", "999")  # a long path would be broken
    out = tmp_path / "out.onnx"
    forms = [tmp_path / f"report.{suffix}" for suffix in ("txt", "md", "html")]
    done = command(
        members, out, "--choose", "always", *(w for f in forms for w in ("--report", str(f)))
    )
    assert done.exit_code == 0, done.output
    nodes = [len(onnx.load(str(p)).graph.node) for p in members]
    merged, after = put_together(members), len(onnx.load(str(out)).graph.node)
    assert merged.shared.nodes > 0
    line = f"Merged 3 models: {' + '.join(map(str, nodes))} nodes -> {len(merged.model.graph.node)}"
    for said in (done.stdout, *(form.read_text("utf-8") for form in forms)):
        words = " ".join(said.replace("-&gt;", "->").replace("&#43;", "+").split())
        assert line in words.replace("\\", "")
        assert "after sharing equal weights and computations" in words
        assert f", then batched to {after}" in words
        assert "one after another" in words
        assert "the model is unchanged" not in words
        assert all(path.name in words.replace("\\", "") for path in members)
    assert f"q_2 is q of {members[2]}, run by itself: " in " ".join(done.stdout.split())


def test_models_with_nothing_to_batch_are_merged_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no copy of anything: the report does not say that all was left as it is."""
    monkeypatch.setenv("COLUMNS", "999")  # a long path would be broken
    paths = written(tmp_path, "y = Relu(x)", "y = Sigmoid(x)")
    done = command(paths, tmp_path / "out.onnx")
    assert done.exit_code == 0, done.output
    words = " ".join(done.stdout.split())
    assert (
        "1 + 1 nodes -> 2; they have no weights or computations in common; nothing was batched"
        in words
    )
    assert "Left as it is" not in words
    assert f"y_1 is y of {paths[1]}, run by itself: bit for bit equal" in words


def test_without_a_check_nothing_is_run(tmp_path: Path, members: list[Path]) -> None:
    """--no-check: no verdict, no race, and the report says so; the model is there."""
    out = tmp_path / "out.onnx"
    found = told(command(members, out, "--no-check", "--json"))
    assert (found["agreement"]["verdict"], found["latency"]) == ("unvalidated", [])
    assert out.exists()


def test_a_race_runs_each_model_once_in_turn(
    members: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the merged model is raced against: every model, on its own inputs, in order."""
    calls: list[str] = []

    def fake(path: Path, feeds: dict[str, Any], _provider: str, _threads: int | None) -> Any:
        return lambda: calls.append(f"{path.name}:{feeds['obs']}")

    monkeypatch.setattr(judged, "runner", fake)
    apart = judged.members(members, "outputs", separate_inputs=True)
    feeds = {f"{name}_{k}": k for name in FEEDS for k in range(3)}
    once = judged.one_after_another(apart, feeds, "cpu", 1)
    once()
    once()
    assert calls == [f"member{k}.onnx:{k}" for k in range(3)] * 2
