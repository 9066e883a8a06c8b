"""The whole flow: in order, checked, taken back where it is slower or too large, and cleaned up."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import onnx_sched
from onnx_sched import pipeline
from onnx_sched.assemble import assemble
from onnx_sched.choose import Condition
from onnx_sched.errors import MismatchError, UsageError
from onnx_sched.judge.agree import Agreement
from onnx_sched.judge.measure import Speedup
from onnx_sched.judge.profiling import Profile
from onnx_sched.options import Options
from onnx_sched.planner import modelled_plan
from onnx_sched.progress import Step
from onnx_sched.trial import Trial
from tests.nets import committed, name_nodes, net, numbers
from tests.rule_examples import compare, with_ranks

SMALL = "near_tapped_lane"


def two_regions() -> ModelProto:
    """Three lanes of two maps, a Softmax over all, then two lanes of a map."""
    maps = " ".join(f"a{k} = MatMul(p{k}, w{k}) b{k} = MatMul(a{k}, w{k})" for k in range(3))
    text = (
        f"(float[batch,12] x) => (float[] y) {{ p0, p1, p2 = Split<axis=1>(x) {maps} "
        "j = Concat<axis=1>(b0, b1, b2) s = Softmax<axis=1>(j) q0, q1 = Split<axis=1>(s) "
        "c0 = MatMul(q0, v0) c1 = MatMul(q1, v1) y = Concat<axis=1>(c0, c1) }"
    )
    weights = {f"w{k}": numbers(4, 4, seed=k) for k in range(3)}
    weights |= {f"v{k}": numbers(6, 6, seed=k) for k in range(2)}
    return with_ranks(name_nodes(net(text, weights)))


FAST = Speedup(100.0, 50.0, 2.0, 1.9, 2.1, 40)
SLOW = Speedup(100.0, 120.0, 0.83, 0.8, 0.86, 40)
WHERE = Condition((("batch", 32),), {}, 1)


def measured(
    monkeypatch: pytest.MonkeyPatch, races: Sequence[Speedup], model: ModelProto | None = None
) -> onnx_sched.Result:
    """A run whose regions all win, and whose whole model is raced with the given results."""
    left = list(races)

    def plan(analysis: Any, skip: Any, chooser: Any, *_: Any) -> Any:
        return modelled_plan(analysis, skip, None)

    def race(self: Trial, path: Path, deadline: float) -> list[tuple[Condition, Speedup]]:
        assert path.exists()
        return [(WHERE, left.pop(0))]

    monkeypatch.setattr(pipeline, "measured_plan", plan)
    monkeypatch.setattr(Trial, "race", race)
    result = onnx_sched.optimize(model or two_regions())
    assert not left
    return result


def test_a_faster_model_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole model is raced once and told with its interval."""
    report = measured(monkeypatch, [FAST]).report
    assert (report.status, len(report.groups)) == ("optimized", 3)
    (row,) = report.latency
    assert (row.dims, row.threads, row.pairs) == ({"batch": 32}, 1, 40)
    assert (row.speedup, row.ci_low, row.ci_high) == (2.0, 1.9, 2.1)
    assert report.verdict in ("bitwise", "within_tolerance")


def test_a_slower_model_loses_its_least_region_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Region by region is taken back until the race is not lost; what went is refused by S303."""
    result = measured(monkeypatch, [SLOW, FAST])
    assert [g.size for g in result.report.groups] == [3, 3]
    (refusal,) = (r for r in result.report.refusals if r.code == "S303")
    assert refusal.nodes == ("c0", "c1")
    assert "0.83x [0.80, 0.86] at batch=32, 1 thread" in refusal.reason
    assert len(result.report.latency) == 1
    assert result.report.latency[0].speedup == 2.0
    assert compare(two_regions(), result.proto, {"batch": 3}) == 1


def test_a_model_that_is_slower_in_all_ways_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left: the model is unchanged, and says so, without the numbers of what was given up."""
    model = two_regions()
    result = measured(monkeypatch, [SLOW, SLOW], model)
    assert (result.report.status, result.plan.groups) == ("unchanged", ())
    assert result.proto == model
    assert (result.report.verdict, result.report.verdict_reason) == (
        "bitwise",
        "the model is unchanged",
    )
    assert result.report.latency == ()
    assert result.report.dispatches.before is None
    assert sum(len(r.nodes) for r in result.report.refusals if r.code == "S303") == 8


@pytest.mark.parametrize(("after", "kept"), [(1 << 24, 3), ((1 << 24) + 1001, 2)])
def test_a_peak_that_grows_too_much_costs_a_region(
    monkeypatch: pytest.MonkeyPatch, after: int, kept: int
) -> None:
    """Above the factor and above 16 MiB more a region is taken back by S304; below either it stays."""
    real = Trial.profiles
    calls: list[int] = []

    def profiles(self: Trial, path: Path) -> tuple[Profile, Profile]:
        before, now = real(self, path)
        calls.append(1)
        grown = after if len(calls) == 1 else 1000
        return replace(before, peak_activation_bytes=1000), replace(
            now, peak_activation_bytes=grown
        )

    monkeypatch.setattr(Trial, "profiles", profiles)
    result = measured(monkeypatch, [FAST])
    assert len(result.report.groups) == kept
    codes = [r.code for r in result.report.refusals]
    assert ("S304" in codes) == (kept < 3)
    assert result.report.peak.before == 1000


def test_always_means_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """With choose="always" neither memory nor time speaks against what is legal."""

    def race(*args: object) -> None:
        raise AssertionError("raced")

    monkeypatch.setattr(Trial, "race", race)
    result = onnx_sched.optimize(two_regions(), choose="always", max_activation=1.0)
    assert len(result.report.groups) == 3
    assert result.report.latency == ()


def test_outputs_that_disagree_stop_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mismatch is raised with the model's name and what differs; it is no reason to try less."""
    calls: list[int] = []

    def validate(*args: object, **kwargs: object) -> Agreement:
        calls.append(1)
        return Agreement("mismatch", (), 6, "y: 3 of 8 elements differ")

    monkeypatch.setattr("onnx_sched.trial.agree.validate", validate)
    with pytest.raises(MismatchError, match="y: 3 of 8 elements differ"):
        onnx_sched.optimize(committed(SMALL), choose="always")
    assert len(calls) == 1


def test_a_wrong_rewriting_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes in a wrong order are a mismatch: nothing that is wrong gets out."""

    def broken(model: ModelProto, circuit: Any, rewritten: Any, *more: Any) -> ModelProto:
        new = assemble(model, circuit, rewritten, *more)
        for made in rewritten.nodes:
            for attribute in made.proto.attribute:
                if made.proto.op_type == "Transpose" and attribute.name == "perm":
                    node = next(n for n in new.graph.node if n.name == made.proto.name)
                    node.op_type = "Identity"
                    del node.attribute[:]
                    return new
        raise AssertionError("no Transpose to break")

    monkeypatch.setattr(pipeline, "assemble", broken)
    with pytest.raises(MismatchError):
        onnx_sched.optimize(committed("near_permuted_join"), choose="always")


def test_without_a_check_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """check=False: no provider, no run, no profile; the verdict says that nobody looked."""

    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("run")

    monkeypatch.setattr("onnx_sched.trial.agree.validate", never)
    monkeypatch.setattr(Trial, "profiles", never)
    monkeypatch.setattr(pipeline, "select_provider", never)
    report = onnx_sched.optimize(committed(SMALL), choose="always", check=False).report
    assert (report.status, report.provider, report.verdict) == ("optimized", "", "unvalidated")
    assert report.verdict_reason == "validation was switched off"
    assert (report.checks, report.outputs) == (0, ())


def test_an_original_that_does_not_run_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the original itself cannot run, nothing can be compared: that is said, and nothing is raced."""

    def race(*args: object) -> None:
        raise AssertionError("raced")

    monkeypatch.setattr(Trial, "race", race)
    unsure = Agreement("unvalidated", (), 0, "the original does not run: no kernel")
    monkeypatch.setattr("onnx_sched.trial.agree.validate", lambda *args, **kwargs: unsure)
    report = onnx_sched.optimize(committed(SMALL), choose="always").report
    assert (report.verdict, report.verdict_reason) == ("unvalidated", unsure.reason)
    assert report.dispatches.before is None


@pytest.mark.parametrize("opset", [3, 6, 29])
def test_an_opset_whose_forms_are_not_known_is_left_alone(opset: int) -> None:
    """Outside 7 to 28 nothing is touched: S204, with the numbers."""
    text = "(float[N,4] x) => (float[N,4] y) { a = Relu(x) b = Relu(x) y = Mul(a, b) }"
    model = net(text, opset=opset)
    result = onnx_sched.optimize(model, choose="always", check=False)
    (refusal,) = result.report.refusals
    assert (refusal.code, refusal.nodes) == ("S204", ())
    assert f"opset {opset} is outside 7 to 28" in refusal.reason
    assert result.proto == model


@pytest.mark.parametrize("opset", [7, 28])
def test_the_borders_of_the_known_opsets_are_known(opset: int) -> None:
    """7 and 28 are in."""
    sized = "Split<axis=1>(x)" if opset < 18 else "Split<axis=1, num_outputs=2>(x)"
    text = (
        f"(float[N,8] x) => (float[] y) {{ p0, p1 = {sized} a0 = MatMul(p0, w0) "
        "a1 = MatMul(p1, w1) y = Concat<axis=1>(a0, a1) }"
    )
    weights = {"w0": numbers(4, 4), "w1": numbers(4, 4, seed=1)}
    model = net(text, weights, opset=opset, ir=3 if opset == 7 else 13)
    result = onnx_sched.optimize(model, choose="always", check=False)
    assert result.changed
    assert not [r for r in result.report.refusals if r.code == "S204"]


def test_doubled_names_are_made_distinct_and_told() -> None:
    """The runtime refuses a graph with a node name twice: it is repaired, and that is noted once."""
    model = committed("near_dynamic_dims")
    model.graph.node[1].name = model.graph.node[0].name
    result = onnx_sched.optimize(model, choose="always")
    doubled, refused = result.report.notes
    assert model.graph.node[0].name in doubled
    assert refused.startswith("the original does not run")  # so that nobody could compare them
    names = [n.name for n in result.proto.graph.node]
    assert len(names) == len(set(names))
    assert result.report.status == "optimized"


def test_no_time_means_no_race(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time limit of 0: nothing is raced, everything stays, S900 says why."""
    monkeypatch.setattr("onnx_sched.races.Race", None)
    result = onnx_sched.optimize(two_regions(), time_limit=0.0)
    assert result.report.status == "unchanged"
    assert {r.code for r in result.report.refusals} == {"S900"}
    assert sum(len(r.nodes) for r in result.report.refusals) == 8


def test_a_profile_may_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a target nothing is raced, and the report says that it was estimated."""
    monkeypatch.setattr("onnx_sched.races.Race", None)
    for given in ({"choose": "model"}, {"target": "cuda-a100"}):
        report = onnx_sched.optimize(committed("grouped_mlp"), **given).report  # type: ignore[arg-type]
        assert any("estimated, not measured" in note for note in report.notes)
        assert report.latency == ()


def test_steps_come_in_order() -> None:
    """Progress is told of reading, analysing, planning and checking, in this order."""
    seen: list[Step] = []
    onnx_sched.optimize(committed(SMALL), choose="always", progress=seen.append)
    assert [step.phase for step in seen] == ["read", "analyse", "plan", "check"]


def test_what_progress_raises_ends_the_run() -> None:
    """A caller can stop a run from its callback."""

    class StopError(Exception):
        pass

    def stop(step: Step) -> None:
        if step.phase == "check":
            raise StopError

    with pytest.raises(StopError):
        onnx_sched.optimize(committed(SMALL), choose="always", progress=stop)


def test_temporary_files_go_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever happens, the folder in which models were tried is gone afterwards."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    onnx_sched.optimize(committed(SMALL), choose="always")
    assert list(tmp_path.iterdir()) == []
    wrong = Agreement("mismatch", (), 6, "y")
    monkeypatch.setattr("onnx_sched.trial.agree.validate", lambda *args, **kwargs: wrong)
    with pytest.raises(MismatchError):
        onnx_sched.optimize(committed(SMALL), choose="always")
    assert list(tmp_path.iterdir()) == []


def test_sizes_and_seeds_are_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checked are the sizes asked for, with numbers of the seed asked for; raced are they alone."""
    seen: list[list[dict[str, np.ndarray[Any, Any]]]] = []

    def validate(before: Any, after: Any, inputs: Any, *args: Any, **kwargs: Any) -> Agreement:
        seen.append(list(inputs))
        return Agreement("bitwise", (), len(inputs), "")

    monkeypatch.setattr("onnx_sched.trial.agree.validate", validate)
    for seed in (1, 2, 1):
        onnx_sched.optimize(committed(SMALL), choose="always", dims={"batch": [2, 5]}, seed=seed)
    assert [[f["x"].shape for f in feeds] for feeds in seen] == [[(2, 32), (5, 32)]] * 3
    assert not np.array_equal(seen[0][0]["x"], seen[1][0]["x"])
    assert np.array_equal(seen[0][0]["x"], seen[2][0]["x"])
    onnx_sched.optimize(committed(SMALL), choose="always")
    assert [f["x"].shape[0] for f in seen[3]] == [1, 32, 7]


def test_conditions_are_sizes_times_threads(tmp_path: Path) -> None:
    """Raced are the sizes asked for, or batch 1 and 32, each with every number of threads, once."""
    source, _ = pipeline.take(committed(SMALL))

    def conditions(**given: Any) -> list[tuple[dict[str, int], int]]:
        options = Options(**given)
        found = Trial(tmp_path, source, options, "CPUExecutionProvider").conditions()
        return [(dict(c.sizes), c.threads) for c in found]

    assert conditions() == [
        ({"batch": 1}, 1),
        ({"batch": 1}, 0),
        ({"batch": 32}, 1),
        ({"batch": 32}, 0),
    ]
    assert conditions(dims={"batch": (3, 4, 9)}, threads=(2, 2)) == [
        ({"batch": n}, 2) for n in (3, 4, 9)
    ]
    fed = [{"x": numbers(6, 32)}]
    assert conditions(inputs=fed, threads=(1,)) == [({}, 1)]


def test_a_model_in_memory_is_tried_as_a_file(tmp_path: Path) -> None:
    """A model without a path is written into the folder of the trial; one with a path is not copied."""
    source, _ = pipeline.take(committed(SMALL))
    trial = Trial(tmp_path, source, Options(), "CPUExecutionProvider")
    assert trial.original.parent == tmp_path
    assert trial.original.read_bytes() == source.model.SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(source.model.SerializeToString())
    source, _ = pipeline.take(path)
    assert Trial(tmp_path, source, Options(), "CPUExecutionProvider").original == path


def test_old_models_stay_old() -> None:
    """IR version 3 lists every weight among the inputs: new ones, too, and no caller need feed them."""
    text = (
        "(float[N,8] x) => (float[] y) { p0, p1 = Split<axis=1>(x) a0 = MatMul(p0, w0) "
        "a1 = MatMul(p1, w1) y = Concat<axis=1>(a0, a1) }"
    )
    weights = {"w0": numbers(4, 4), "w1": numbers(4, 4, seed=1)}
    model = with_ranks(name_nodes(net(text, weights, opset=7, ir=3)))
    new = onnx_sched.optimize(model, choose="always").proto
    listed = {v.name for v in new.graph.input}
    assert {t.name for t in new.graph.initializer} <= listed
    assert (new.ir_version, new.opset_import[0].version) == (3, 7)
    assert compare(model, new, {"N": 3}, {"N": 0}) == 2


def test_half_precision_is_batched_in_half_precision() -> None:
    """Element types are kept: float16 and float64 lanes come out as they were, weights too."""
    for kind, dtype in ((TensorProto.FLOAT16, np.float16), (TensorProto.DOUBLE, np.float64)):
        name = helper.tensor_dtype_to_string(kind).split(".")[-1].lower()
        text = (
            f"({name}[batch,8] x) => ({name}[] y) {{ p0, p1 = Split<axis=1>(x) a0 = MatMul(p0, w0) "
            "a1 = MatMul(p1, w1) b0 = Add(a0, c) b1 = Add(a1, d) y = Concat<axis=1>(b0, b1) }"
        )
        weights = {f"w{k}": numbers(4, 4, seed=k, dtype=dtype) for k in range(2)}
        weights |= {"c": numbers(4, dtype=dtype), "d": numbers(4, seed=3, dtype=dtype)}
        model = with_ranks(name_nodes(net(text, weights)))
        result = onnx_sched.optimize(model, choose="always")
        assert result.report.verdict in ("bitwise", "within_tolerance")
        made = {t.data_type for t in result.proto.graph.initializer if t.data_type != 7}
        assert made == {kind}
        assert compare(model, result.proto, {"batch": 3}, tolerance=4e-3) == 1


def test_names_that_are_nowhere_are_refused_before_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """--skip-op and --skip-node are looked up before anything is planned."""
    monkeypatch.setattr(pipeline, "modelled_plan", None)
    for flags in ({"skip_ops": ["Gemmm"]}, {"skip_nodes": ["nobody"]}):
        with pytest.raises(UsageError):
            onnx_sched.optimize(committed(SMALL), choose="always", **flags)  # type: ignore[arg-type]
