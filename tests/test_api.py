"""The functions for other programs: they change nothing, print nothing, and raise errors of one family."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import ModelProto

import onnx_sched
from onnx_sched import writing
from onnx_sched.errors import MismatchError, ModelError, SchedError, UsageError
from onnx_sched.judge.agree import Agreement
from tests.nets import COMMITTED, FOLDER, committed, numbers
from tests.rule_examples import Runs, compare

SMALL = "near_tapped_lane"


def digest(model: ModelProto) -> str:
    """All that a model says."""
    return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()


def always(model: Any, **given: Any) -> onnx_sched.Result:
    """All that is legal, unchecked."""
    return onnx_sched.optimize(model, choose="always", check=False, **given)


@pytest.mark.parametrize("name", COMMITTED)
def test_a_model_is_never_changed(name: str) -> None:
    """What is given is afterwards what it was."""
    model = committed(name)
    before = digest(model)
    result = onnx_sched.optimize(model, choose="always", seed=3)
    assert result.proto
    onnx_sched.annotate(model)
    assert digest(model) == before


@pytest.mark.parametrize("name", [SMALL, "near_dynamic_dims"])
def test_a_result_is_the_callers_own(name: str) -> None:
    """What a caller does to a result, changed or not, does not reach what was given."""
    model = committed(name)
    before = digest(model)
    always(model).proto.graph.node[0].name = "changed by the caller"
    assert digest(model) == before


def test_a_changed_result_changes_no_other() -> None:
    """What a caller does to one proto reaches neither the next nor the model."""
    result = always(committed("mmoe"))
    first = result.proto
    text = digest(first)
    del first.graph.node[:]
    assert digest(result.proto) == text


def test_an_unchanged_model_comes_back_as_it_is() -> None:
    """Nothing to do: the result's proto says what the model said."""
    model = committed("near_dynamic_dims")
    result = always(model)
    assert not result.changed
    assert digest(result.proto) == digest(model)


@pytest.mark.parametrize("name", [SMALL, "mmoe", "near_dynamic_dims", "conv_towers"])
def test_a_graph_comes_back_as_a_graph(name: str) -> None:
    """A graphsurgeon Graph in, a Graph out, with the outputs of the model; the given one stays."""
    model = committed(name)
    graph = gs.import_onnx(model)
    nodes = [(n.op, n.name) for n in graph.nodes]
    before = digest(gs.export_onnx(graph))
    result = always(graph)
    assert isinstance(result.model, gs.Graph)
    assert digest(gs.export_onnx(graph)) == before
    assert [(n.op, n.name) for n in graph.nodes] == nodes
    back = gs.export_onnx(result.model, ir_version=model.ir_version)
    sizes = {f"rows_{k}": 2 + k for k in range(4)}
    assert compare(model, back, {"batch": 3, **sizes}) == 1
    products = [n for n in result.model.nodes if n.op in ("MatMul", "Conv")]
    straight = always(model).proto.graph.node
    assert len(products) == sum(n.op_type in ("MatMul", "Conv") for n in straight)


def test_a_path_a_text_and_a_model_give_the_same(tmp_path: Path) -> None:
    """The same model, however it is given."""
    path = FOLDER / "mmoe.onnx"
    results = [always(given) for given in (path, str(path), committed("mmoe"))]
    assert len({digest(r.proto) for r in results}) == 1
    for k, result in enumerate(results):
        result.save(tmp_path / f"{k}.onnx")
    assert len({(tmp_path / f"{k}.onnx").read_bytes() for k in range(3)}) == 1
    assert digest(onnx.load(tmp_path / "0.onnx")) == digest(results[0].proto)


@pytest.mark.parametrize("given", [None, 3, b"bytes", ["model.onnx"], committed(SMALL).graph])
def test_what_is_no_model_is_refused(given: Any) -> None:
    """Anything else than a path, a ModelProto or a Graph: the type is named."""
    with pytest.raises(UsageError, match=type(given).__name__):
        always(given)


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """Not by Python, and not by the runtime below it."""
    onnx_sched.optimize(committed(SMALL), choose="always", dims={"batch": [1, 3]})
    onnx_sched.optimize(committed(SMALL), choose="model")
    onnx_sched.optimize(committed(SMALL), time_limit=0.0, dims={"batch": [1]})
    onnx_sched.check_provider("cuda")
    with pytest.raises(SchedError):
        onnx_sched.optimize(FOLDER / "gone.onnx")
    assert capfd.readouterr() == ("", "")


def test_errors_are_of_one_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong is raised, never exits: one base class, with a hint and an exit code."""
    wrong = Agreement("mismatch", (), 4, "y differs")
    monkeypatch.setattr("onnx_sched.trial.agree.validate", lambda *args, **kwargs: wrong)
    with pytest.raises(MismatchError, match="y differs") as failed:
        onnx_sched.optimize(committed(SMALL), choose="always")
    assert (failed.value.exit_code, bool(failed.value.hint)) == (3, True)
    with pytest.raises(ModelError, match=r"gone\.onnx"):
        always(FOLDER / "gone.onnx")
    with pytest.raises(UsageError, match=r"^skip_ops Matmul"):
        always(committed(SMALL), skip_ops=["Matmul"])
    for kind in (ModelError, UsageError, MismatchError):
        assert issubclass(kind, SchedError)


@pytest.mark.parametrize("atol", [1e-30, "1e-30", ["y:1e-30"], ("tap:1e-30", "y:1e-30")])
def test_tolerances_are_numbers_or_texts(atol: Any) -> None:
    """One number for all outputs, or texts, for one output each; too small a one fails."""
    strict = [atol] if isinstance(atol, str) else atol
    with pytest.raises(MismatchError):
        onnx_sched.optimize(committed(SMALL), choose="always", atol=strict, rtol=0.0)
    found = onnx_sched.optimize(committed(SMALL), choose="always", atol=1.0, rtol=1.0)
    assert found.report.verdict in ("bitwise", "within_tolerance")


def test_inputs_may_be_given_as_they_are() -> None:
    """Feeds are dicts of arrays; each is checked without and with the runtime's optimisations."""
    fed = [{"x": numbers(n, 32)} for n in (1, 4, 9)]
    report = onnx_sched.optimize(committed(SMALL), choose="always", inputs=fed).report
    assert report.checks == 2 * len(fed)


def test_the_result_is_told_as_json_tells_it() -> None:
    """`report.to_dict()` is what --json prints, and plain data throughout."""
    report = always(committed(SMALL)).report.to_dict()
    todo: list[Any] = [report]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            assert all(isinstance(k, str) for k in value)
            todo += value.values()
        elif isinstance(value, list):
            todo += value
        else:
            assert value is None or type(value) in (str, int, float, bool)


def test_a_result_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """`save` refuses a directory, the input, and no folder; else the file is the model."""
    path = tmp_path / "in.onnx"
    path.write_bytes((FOLDER / f"{SMALL}.onnx").read_bytes())
    result = always(path)
    with pytest.raises(UsageError, match="directory"):
        result.save(tmp_path)
    with pytest.raises(UsageError, match="input itself"):
        result.save(path)
    with pytest.raises(UsageError, match="no folder"):
        result.save(tmp_path / "gone" / "out.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["in.onnx"]
    result.save(str(tmp_path / "out.onnx"))
    assert digest(onnx.load(tmp_path / "out.onnx")) == digest(result.proto)


def test_a_model_too_large_for_a_protobuf_is_only_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit of protobuf `proto` says so, and what to do."""
    result = always(committed(SMALL))
    monkeypatch.setattr(writing, "PROTOBUF_LIMIT", 1000)
    with pytest.raises(ModelError, match="more than one protobuf holds") as refused:
        result.proto  # noqa: B018 - a property that refuses
    assert "save" in refused.value.hint


def test_weights_elsewhere_need_a_path(tmp_path: Path) -> None:
    """A ModelProto whose weights lie in a file came without its place: that is said."""
    options: dict[str, Any] = {"save_as_external_data": True, "size_threshold": 0}
    onnx.save_model(committed(SMALL), tmp_path / "m.onnx", location="w.bin", **options)
    bare = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    with pytest.raises(ModelError, match="came without a path"):
        always(bare)
    inside = always(tmp_path / "m.onnx").proto
    assert compare(committed(SMALL), inside, {"batch": 3}) == 1


def test_all_names_are_there_and_no_more() -> None:
    """Every name of `__all__` can be had; others are no attributes."""
    for name in onnx_sched.__all__:
        assert getattr(onnx_sched, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        onnx_sched.nothing  # noqa: B018 - an attribute that is not there


def test_importing_the_package_loads_nothing() -> None:
    """`import onnx_sched` waits for neither onnx nor numpy."""
    code = "import sys, onnx_sched; print([m for m in ('onnx', 'numpy') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=FOLDER.parent,
        timeout=60,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_runs_are_independent() -> None:
    """Results do not depend on what was optimised before."""
    first = digest(always(committed("mmoe")).proto)
    always(committed("per_feature"))
    always(committed("conv_towers"))
    assert digest(always(committed("mmoe")).proto) == first


def test_constants_of_the_model_are_not_touched() -> None:
    """Weights that stay are the same initializers; new ones are made of the old ones' numbers."""
    old, new = committed("grouped_mlp"), always(committed("grouped_mlp")).proto
    given = {t.name: onnx.numpy_helper.to_array(t) for t in old.graph.initializer}
    made = [onnx.numpy_helper.to_array(t) for t in new.graph.initializer if t.name not in given]
    stacked = [a for a in made if a.shape == (4, 16, 16)]
    assert len(stacked) == 12
    for layer, weights in enumerate(stacked):
        for group in range(4):
            np.testing.assert_array_equal(
                weights[group], given[f"layers.{layer}.groups.{group}.weight"]
            )
    assert Runs(new)({"x": numbers(2, 64)})["y"].shape == (2, 64)
