"""Comparing two models: what is said holds, what is not known is not said."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from onnx import numpy_helper

from onnx_sched.errors import ModelError, ProviderError, UsageError
from onnx_sched.judge.compare import CompareOptions, compare
from onnx_sched.judge.comparison import Comparison, Counted, Placement
from onnx_sched.judge.counts import Side
from onnx_sched.judge.critical_path import CriticalPath
from onnx_sched.judge.device_memory import device_peak
from onnx_sched.judge.feed_source import FeedSource, feed_sources
from onnx_sched.judge.inspection import Inspection, placement
from onnx_sched.judge.launches import KernelCount
from onnx_sched.judge.opening import Setup, open_for, provider_options
from onnx_sched.judge.ortlib import CPU, CUDA
from onnx_sched.judge.profiling import Profile
from onnx_sched.judge.provider import SelectedProvider, check_provider
from onnx_sched.judge.runtime import RuntimeRefused
from onnx_sched.judge.strictness import check_placement
from onnx_sched.judge.timing import Samples
from onnx_sched.judge.worker import Job, run_apart
from tests import stub_driver
from tests.comparisons import QUICK, SCHEMA, closed, net, write_models


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of `write_models`."""
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def found(folder: Path) -> Comparison:
    """A comparison of a model with its longer twin."""
    options = CompareOptions("cpu", pairs=10, budget=0.1, threads=(1, 2))
    return compare(folder / "a.onnx", folder / "long.onnx", options)


@pytest.fixture
def no_gpu() -> None:
    """Skip where CUDA works."""
    if check_provider("cuda").usable:
        pytest.skip("there is a CUDA device")


def test_a_comparison_holds_what_its_schema_says(found: Comparison) -> None:
    """The JSON fits the shipped schema, and the schema names every key of it."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    jsonschema.Draft202012Validator(closed(SCHEMA)).validate(data)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(closed(SCHEMA)).validate({**data, "more": 1})


def test_a_comparison_counts(found: Comparison) -> None:
    """Nodes, layers, dispatches and bytes of both models, every number with its source."""
    assert (found.before.nodes, found.after.nodes) == (3, 7)
    assert (found.before.depth, found.after.depth) == (3, 7)
    assert found.dispatches.known
    assert (found.dispatches.after or 0) > (found.dispatches.before or 0)
    assert found.peak_estimate.before == 2 * 4 * 12 * 32
    assert found.peak_profile.known
    assert "profile" in found.peak_profile.source
    for count in (found.kernels_before, found.kernels_after):
        assert (count.count, count.source) == (None, "not available: runs on the CPU")
    assert found.counted_at == (("batch", 32),)
    assert found.placement_after is not None
    assert found.placement_after.cpu_nodes == ()
    assert found.agreement.verdict == "bitwise"


def test_every_condition_is_timed_and_has_a_noise_floor(found: Comparison) -> None:
    """Two sizes and two thread counts make four rows; none without pairs, interval and A/A."""
    conditions = [(dict(row.dims)["batch"], row.threads) for row in found.latency]
    assert conditions == [(1, 1), (1, 2), (32, 1), (32, 2)]
    for row in found.latency:
        assert row.speedup.pairs == row.floor.pairs == 10
        assert row.speedup.low <= row.speedup.ratio <= row.speedup.high
        assert row.floor.low <= row.floor.ratio <= row.floor.high
        assert 0 < row.before.p50_us <= row.before.p95_us <= row.before.p99_us
        assert row.cold_before.repeats >= 1


def test_the_critical_path_is_that_of_the_fused_graph(found: Comparison) -> None:
    """Every timed node is found in ONNX Runtime's own graph; a chain takes as long as all its nodes."""
    assert [dict(row.dims)["batch"] for row in found.paths] == [1, 32]
    for row in found.paths:
        for path in (row.before, row.after):
            assert path.joined == path.nodes == path.layers
            assert path.critical_us == path.nodes_us
            assert "fusions" in path.source
        assert row.wall_before_us == next(
            r.before.p50_us for r in found.latency if (r.dims, r.threads) == (row.dims, 1)
        )


def test_the_ranking_of_scores_is_compared(found: Comparison) -> None:
    """Twelve classes are scores: the winner and the five best are the same in every row."""
    (rank,) = found.rankings
    assert (rank.name, rank.argmax, rank.top5) == ("y", 1.0, 1.0)
    assert rank.rows == 1 + 32 + 7


def test_sizes_asked_for_are_timed_and_default_ones_only_twice() -> None:
    """`--dim` names what is timed; without it batch 1 and 32 are, and the odd size is for checking."""
    nothing: dict[str, Any] = {"shapes": {}, "inputs": None, "seed": 0}
    sources, timed = feed_sources(net(), dims={}, **nothing)
    assert [dict(s.binding.dims)["batch"] for s in sources] == [1, 32, 7]
    assert timed == 2
    sources, timed = feed_sources(net(), dims={"batch": (4, 5, 6)}, **nothing)
    assert [dict(s.binding.dims)["batch"] for s in sources[:timed]] == [4, 5, 6]


def test_inputs_of_the_user_are_what_is_compared_and_timed(folder: Path) -> None:
    """With --inputs nothing is made up."""
    path = folder / "x.npz"
    np.savez(path, x=np.ones((3, 8), np.float32))
    options = CompareOptions("cpu", inputs=path, pairs=10, budget=0.05)
    found = compare(folder / "a.onnx", folder / "copy.onnx", options)
    assert found.agreement.outputs[0].total == 2 * 3 * 12  # at both levels of optimization
    assert [row.dims for row in found.latency] == [()]


def test_every_set_of_inputs_is_a_condition_of_its_own(folder: Path) -> None:
    """Two sets of unlike sizes: two rows, told apart by their number, each beside its own wall time."""
    for place, rows in enumerate((1, 400)):
        one = folder / "sets" / f"test_data_set_{place}"
        one.mkdir(parents=True)
        array = numpy_helper.from_array(np.ones((rows, 8), np.float32), "x")
        (one / "input_0.pb").write_bytes(array.SerializeToString())
    options = CompareOptions("cpu", inputs=folder / "sets", pairs=10, budget=0.2)
    found = compare(folder / "a.onnx", folder / "copy.onnx", options)
    assert [row.label for row in found.latency] == [f"input set {k}, 1 thread" for k in (0, 1)]
    assert [row.label for row in found.paths] == [row.label for row in found.latency]
    for path, row in zip(found.paths, found.latency, strict=True):
        assert (path.wall_before_us, path.wall_after_us) == (row.before.p50_us, row.after.p50_us)
    data = json.loads(json.dumps(found.to_dict()))
    jsonschema.Draft202012Validator(closed(SCHEMA)).validate(data)
    assert [row["input_set"] for row in data["latency"]] == [0, 1]


def test_a_job_survives_the_way_to_another_process(folder: Path) -> None:
    """Another process times the same models on the same inputs with the same settings."""
    sources, _ = feed_sources(net(), dims={"batch": (3,)}, shapes={}, inputs=None, seed=7)
    a, c = folder / "a.onnx", folder / "c.onnx"
    job = Job(a, c, sources[0], Setup(CPU, 2), 10, 0.05, 3)
    assert Job.from_dict(json.loads(json.dumps(job.to_dict()))) == job
    again = FeedSource.from_dict(sources[0].to_dict()).load(net())
    np.testing.assert_array_equal(again["x"], sources[0].load(net())["x"])
    (taken,) = run_apart(job)
    assert len(taken.before) == len(taken.again) == len(taken.after) == 10
    assert Samples.from_dict(json.loads(json.dumps(taken.to_dict()))) == taken


def test_an_error_of_another_process_arrives_as_what_it_was(folder: Path) -> None:
    """A model that does not run is said not to run, wherever it was tried."""
    sources, _ = feed_sources(net(), dims={}, shapes={}, inputs=None, seed=0)
    job = Job(folder / "a.onnx", folder / "other.onnx", sources[0], Setup(CPU), 10, 0.05, 0)
    with pytest.raises(RuntimeRefused, match="ONNX Runtime does not run the model"):
        run_apart(job)


def test_another_process_sends_nothing_home_and_prints_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """ONNX Runtime's telemetry is off in it, whatever its parent has; what it prints ends there."""
    seen: list[dict[str, Any]] = []

    def run(*words: Any, **given: Any) -> subprocess.CompletedProcess[str]:
        seen.append(given)
        return real(*words, **given)

    real = subprocess.run
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    sources, _ = feed_sources(net(), dims={}, shapes={}, inputs=None, seed=0)
    run_apart(Job(folder / "a.onnx", folder / "a.onnx", sources[0], Setup(CPU), 10, 0.05, 0))
    assert seen[0]["env"]["ORT_DISABLE_TELEMETRY"] == "1"
    assert seen[0]["capture_output"]
    assert capfd.readouterr() == ("", "")


def test_the_device_peak_comes_from_the_arena(folder: Path) -> None:
    """What ONNX Runtime's arena says counts; on the CPU there is no device memory."""
    profile = Profile(1, None, "", {}, (), {CUDA: 12345})
    peak, source = device_peak(folder / "a.onnx", {}, Setup(CUDA), profile)
    assert (peak, "arena" in source) == (12345, True)
    assert device_peak(folder / "a.onnx", {}, Setup(CPU), profile)[0] is None


def test_cuda_options_are_set_only_where_asked_for() -> None:
    """TF32 is ONNX Runtime's default and stays it unless switched off; graphs are off unless asked for."""
    assert provider_options(Setup(CUDA)) == [CUDA, CPU]
    asked = provider_options(Setup(CUDA, cuda_graph=True, tf32=False))
    assert asked == [(CUDA, {"use_tf32": "0", "enable_cuda_graph": "1"}), CPU]
    assert provider_options(Setup(CPU, cuda_graph=True, tf32=False)) == [CPU]
    other = "OpenVINOExecutionProvider"
    assert provider_options(Setup(other, cuda_graph=True, tf32=False)) == [other, CPU]


@pytest.mark.usefixtures("no_gpu")
def test_cuda_never_means_the_cpu(folder: Path) -> None:
    """A session, a comparison and CUDA graphs that would run on the CPU are errors of exit code 5."""
    a = folder / "a.onnx"
    for attempt in (
        lambda: open_for(a, Setup(CUDA)),
        lambda: compare(a, a, CompareOptions("cuda")),
        lambda: compare(a, a, CompareOptions("auto", cuda_graph=True)),
    ):
        with pytest.raises(ProviderError) as caught:
            attempt()
        assert caught.value.exit_code == 5
        assert caught.value.hint


def side(name: str, nodes: dict[str, int]) -> Side:
    """A model of which so many nodes ran on each provider."""
    profile = Profile(sum(nodes.values()), None, "", nodes, ())
    path = CriticalPath(1, 1.0, 1.0, 1, 1, "")
    return Side(Path(name), net(), [Inspection(profile, path, placement(profile, CUDA))])


def test_a_model_of_which_nothing_runs_on_the_provider_is_refused() -> None:
    """A session on CUDA whose nodes all landed on the CPU is no comparison on CUDA."""
    sides = [side("a.onnx", {CUDA: 3, CPU: 1}), side("b.onnx", {CPU: 4})]
    with pytest.raises(ProviderError) as caught:
        check_placement(sides, SelectedProvider(CUDA, "cuda", ""))
    assert str(caught.value) == (
        "b.onnx: no node runs on CUDAExecutionProvider: all 4 run on the CPU"
    )
    assert (caught.value.exit_code, bool(caught.value.hint)) == (5, True)
    (note,) = check_placement(sides, SelectedProvider(CUDA, "auto", "auto: usable"))
    assert note == str(caught.value)
    for fine in (
        sides[:1],
        [side("nothing left to run.onnx", {})],
        [replace(sides[0], seen=["x"])],
    ):
        assert check_placement(fine, SelectedProvider(CUDA, "cuda", "")) == []
    assert check_placement(sides, SelectedProvider(CPU, "cpu", "")) == []


def test_a_comparison_on_cuda_fits_the_schema(found: Comparison) -> None:
    """What only CUDA fills in: kernels by name, device bytes, strays and copies, TF32, CUDA graphs."""
    on_cuda = replace(
        found,
        provider=SelectedProvider(CUDA, "cuda", ""),
        settings={**found.settings, "tf32_latency": True, "tf32_agreement": False},
        environment={**found.environment, "device": "Some GPU", "driver_cuda": "13.0"},
        kernels_before=KernelCount(12, (("gemm", 12),), "CUPTI, kernel activities"),
        peak_device=Counted(4096, 2048, "ONNX Runtime's CUDA arena"),
        placement_after=Placement({CUDA: 4, CPU: 1}, (("n", "Shape"),), 2),
        latency=tuple(replace(row, tf32=True, cuda_graph=True) for row in found.latency),
    )
    data = json.loads(json.dumps(on_cuda.to_dict(), allow_nan=False))
    jsonschema.Draft202012Validator(closed(SCHEMA)).validate(data)
    assert data["kernel_launches"]["before"]["by_name"] == [{"name": "gemm", "count": 12}]
    assert data["latency"][0]["cuda_graph"] is True


@pytest.mark.parametrize("provider", ["cuda", "auto"])
def test_what_onnxruntime_prints_stays_out_of_the_report(
    folder: Path, tmp_path: Path, provider: str
) -> None:
    """A driver without CUDA's libraries: ONNX Runtime prints and falls back; we say 5, or JSON alone."""
    stub = stub_driver.driver(tmp_path, init=0, version=13000)
    pair = (str(folder / "a.onnx"), str(folder / "copy.onnx"))
    words = ("--provider", provider, "--json", *QUICK)
    ran = stub_driver.run("compare", *pair, *words, libraries=stub)
    if provider == "cuda":
        assert (ran.returncode, ran.stdout) == (5, "")
        first, second = ran.stderr.splitlines()
        assert first.startswith("error: CUDAExecutionProvider cannot run here: ")
        assert second.startswith("hint: ")
    else:
        assert (ran.returncode, ran.stderr) == (0, "")
        assert json.loads(ran.stdout)["provider"]["name"] == CPU


def test_what_is_no_model_is_named(folder: Path) -> None:
    """A missing file, a file of something else and a size that the model lacks are told apart."""
    a, junk = folder / "a.onnx", folder / "junk.onnx"
    junk.write_bytes(b"not a model at all")
    with pytest.raises(ModelError, match=r"nowhere\.onnx: no such file"):
        compare(folder / "nowhere.onnx", a)
    with pytest.raises(ModelError, match=r"junk\.onnx is not an ONNX model"):
        compare(a, junk)
    with pytest.raises(UsageError, match="--dim bach"):
        compare(a, a, CompareOptions("cpu", dims={"bach": (1,)}))
