"""Comparing two models: what is said holds, what is not known is not said, and the exit code tells."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import ModelProto, numpy_helper, parser

import onnx_sched.report.compare_text as text
from onnx_sched.cli import cli
from onnx_sched.errors import ModelError, ProviderError, UsageError
from onnx_sched.judge.compare import CompareOptions, compare
from onnx_sched.judge.comparison import Comparison
from onnx_sched.judge.critical_path import critical_path, depth, layers
from onnx_sched.judge.device_memory import device_peak
from onnx_sched.judge.feed_source import FeedSource, feed_sources
from onnx_sched.judge.latency import latency_row
from onnx_sched.judge.measure import Speedup
from onnx_sched.judge.opening import Setup, open_for, provider_options
from onnx_sched.judge.ortlib import CPU, CUDA
from onnx_sched.judge.profiling import NodeTime, Profile
from onnx_sched.judge.provider import check_provider
from onnx_sched.judge.ranking import count_alike, rankings
from onnx_sched.judge.runtime import RuntimeRefused
from onnx_sched.judge.significance import band, effect, noise, verdict
from onnx_sched.judge.static_memory import live_set
from onnx_sched.judge.timing import Samples, settle
from onnx_sched.judge.worker import Job, run_apart

SCHEMA = json.loads(
    (Path(text.__file__).parent / "compare_schema.json").read_text(encoding="utf-8")
)
QUICK = ["--pairs", "10", "--budget", "0.05", "--dim", "batch=2"]


def parse(body: str) -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {body}')


def net(repeat: int = 0, scale: float = 1.0) -> ModelProto:
    """A classifier of 12 classes; `repeat` puts that many needless nodes before the end."""
    steps = "".join(f"[n{k}] h{k + 1} = Neg(h{k}) " for k in range(repeat))
    model = parse(
        f"""g (float[batch,8] x) => (float[batch,12] y) {{
            [mm] m = MatMul(x, w) [act] h0 = Relu(m) {steps} [end] y = Softmax(h{repeat}) }}"""
    )
    weights = np.random.default_rng(0).standard_normal((8, 12)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights * np.float32(scale), "w"))
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """a.onnx, its copy, c.onnx of other weights, long.onnx of more nodes, other.onnx of other inputs."""
    place = tmp_path_factory.mktemp("models")
    other = parse("g (float[batch,8] z) => (float[batch,8] y) { y = Relu(z) }")
    for name, model in [
        ("a", net()),
        ("copy", net()),
        ("c", net(scale=1.5)),
        ("long", net(repeat=4)),
        ("other", other),
    ]:
        onnx.save(model, str(place / f"{name}.onnx"))
    return place


@pytest.fixture(scope="module")
def found(folder: Path) -> Comparison:
    """A comparison of a model with its longer twin."""
    options = CompareOptions("cpu", pairs=10, budget=0.1, threads=(1, 2))
    return compare(folder / "a.onnx", folder / "long.onnx", options)


def samples(rng: np.random.Generator, ratio: float, pairs: int = 60, drift: float = 0.3) -> Samples:
    """What a noisy machine would give: a common drift of each pair, and noise of each sample."""
    common = np.exp(drift * rng.standard_normal(pairs).cumsum() / np.sqrt(pairs))
    own = np.exp(0.05 * rng.standard_normal((3, pairs)))
    rows = [tuple(map(float, 10 * common * row)) for row in own]
    after = tuple(value / ratio for value in rows[2])
    one = (1.0, 2.0)
    return Samples(rows[0], rows[1], after, one, one, one, one, one, one, True)


@pytest.mark.parametrize("processes", [1, 3])
def test_a_model_against_itself_is_rarely_significant(processes: int) -> None:
    """Of 20 comparisons of equal models at most one may claim a difference."""
    claimed = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        taken = [samples(rng, 1.0) for _ in range(processes)]
        claimed += verdict(effect(taken), noise(taken)) != "not_significant"
    assert claimed <= 1


@pytest.mark.parametrize(("ratio", "word"), [(1.25, "faster"), (0.8, "slower")])
@pytest.mark.parametrize("processes", [1, 3])
def test_a_real_difference_is_found(ratio: float, word: str, processes: int) -> None:
    """A quarter is far outside the noise of these samples: always found, near its true size."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        taken = [samples(rng, ratio) for _ in range(processes)]
        said = effect(taken)
        assert verdict(said, noise(taken)) == word
        assert said.ratio == pytest.approx(ratio, rel=0.05)
        assert said.low < said.ratio < said.high
        assert said.pairs == 60 * processes


def test_processes_that_differ_widen_the_interval() -> None:
    """What a whole process has in common counts as one draw: three lucky processes are no 180 pairs."""
    rng = np.random.default_rng(0)
    taken = [samples(rng, ratio) for ratio in (0.8, 1.0, 1.25)]
    said = effect(taken)
    pooled = [
        tuple(itertools.chain.from_iterable(row))
        for row in zip(*((one.before, one.again, one.after) for one in taken), strict=True)
    ]
    naive = effect([replace(taken[0], before=pooled[0], again=pooled[1], after=pooled[2])])
    assert said.high - said.low > 2 * (naive.high - naive.low)
    assert said.low < 0.9 < 1.1 < said.high


def test_no_sample_is_thrown_away_and_groups_weigh_alike() -> None:
    """Groups may have had time for unequal numbers of pairs: all count, and none outvotes the others."""
    rng = np.random.default_rng(0)
    parts = [samples(rng, ratio, pairs) for ratio, pairs in ((1.5, 10), (1.0, 40), (1.5, 10))]
    said = effect(parts)
    assert said.pairs == 60
    assert said.ratio > 1.25


@pytest.mark.parametrize(
    ("low", "high", "floor", "word"),
    [
        (1.02, 1.05, (0.99, 1.01), "faster"),
        (0.90, 0.95, (0.99, 1.01), "slower"),
        (0.99, 1.30, (0.99, 1.01), "not_significant"),  # holds 1
        (0.90, 1.00, (0.99, 1.01), "not_significant"),  # ends at 1
        (1.01, 1.03, (0.95, 1.05), "not_significant"),  # within the A/A interval
        (1.01, 1.30, (0.95, 1.05), "not_significant"),  # reaches into it
        (
            1.02,
            1.04,
            (0.95, 0.98),
            "not_significant",
        ),  # A/A leans the other way: that is noise, too
    ],
)
def test_significance_needs_more_than_noise(
    low: float, high: float, floor: tuple[float, float], word: str
) -> None:
    """An interval that touches 1 or the noise floor, on either side, claims nothing."""
    aside = Speedup(1, 1, 1.0, *floor, 80)
    assert verdict(Speedup(1, 1, (low * high) ** 0.5, low, high, 80), aside) == word
    assert band(aside)[0] < 1 < band(aside)[1]


def test_percentiles_and_cold_start_come_from_their_own_samples() -> None:
    """Tails are those of single runs, never of the means that make a pair."""
    taken = replace(
        samples(np.random.default_rng(0), 1.0),
        single_before=(*[10.0] * 99, 1000.0),
        create_after=(3.0, 5.0, 4.0),
        first_after=(1.0, 1.0, 2.0),
    )
    row = latency_row((), Setup(CPU), [[taken]])
    assert row.before.p50_us == 10.0
    assert row.before.p99_us > 10.0
    assert row.before.runs == 100
    assert (row.cold_after.create_ms, row.cold_after.first_run_ms) == (4.0, 1.0)
    assert row.tf32 is None


class Clock:
    """A clock that only a run moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, runs: Sequence[float]) -> None:
        self.now = 0.0
        self.runs = itertools.chain(runs, itertools.repeat(runs[-1]))
        self.count = 0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "perf_counter_ns", lambda: int(self.now * 1e9))

    def __call__(self) -> None:
        self.now += next(self.runs)
        self.count += 1


def test_warm_up_ends_when_times_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a run becomes faster and faster, it goes on; then it ends, and says that it settled."""
    falling = [0.01 * 0.98**k for k in range(100)]
    once = Clock(monkeypatch, falling)
    assert settle(once, most_seconds=10.0)
    assert once.count > 100


def test_warm_up_gives_up_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that never stands still is not waited for: it ends in time and says so."""
    restless = [0.001 * (1 + k % 40) for k in range(2000)]
    restless = [value * 1.004**k for k, value in enumerate(restless)]
    once = Clock(monkeypatch, restless)
    assert not settle(once, most_seconds=1.0)
    assert once.now < 1.2


def test_a_slow_model_is_not_run_ten_times_to_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds a run: two runs, then on."""
    once = Clock(monkeypatch, [5.0])
    assert not settle(once, most_seconds=1.0)
    assert once.count == 2


def test_a_comparison_holds_what_its_schema_says(found: Comparison) -> None:
    """The JSON fits the shipped schema, and the schema names every key of it."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    jsonschema.Draft202012Validator(closed(SCHEMA)).validate(data)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(closed(SCHEMA)).validate({**data, "more": 1})


def closed(schema: Any) -> Any:
    """The schema without room for keys that it does not name."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if "properties" in made and "required" in made:
        made["additionalProperties"] = False
    return made


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


def test_layers_are_the_longest_chain() -> None:
    """A node is one below the deepest that it reads; constants and what they alone feed have no layer."""
    model = parse(
        """g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
            c = Constant<value = float[2] {3, 4}>()
            folded = Add(w, c)
            a = Neg(x)  b = Exp(a)  d = Sqrt(x)
            e = Add(b, d)  y = Mul(e, folded) }"""
    )
    assert layers(model.graph) == {2: 1, 3: 2, 4: 1, 5: 3, 6: 4}
    assert depth(model) == 4


def test_what_a_body_captures_counts_as_read() -> None:
    """An If is below whatever its branches read from outside, however deep they hide it."""
    inner = "{ g2 () => (float[2] p) { p = Neg(late) } }"
    model = parse(
        f"""g (float[2] x, bool c) => (float[2] y) {{
            a = Neg(x)  late = Exp(a)
            y = If (c) <
              then_branch = g1 () => (float[2] q) {{
                q = If (c) < then_branch = {inner[2:-2]}, else_branch = {inner[2:-2]} > }},
              else_branch = g3 () => (float[2] r) {{ r = Neg(x) }} > }}"""
    )
    assert layers(model.graph) == {0: 1, 1: 2, 2: 3}


def test_a_random_node_is_no_constant() -> None:
    """It reads nothing, or constants alone, but runs every time; nor is a source of data a constant."""
    model = parse(
        """g () => (float[2] y, float[2] z, float[2] q) <float[2] w = {0.5, 0.5}> {
            r = RandomNormal<shape = [2]>() y = Neg(r) z = Bernoulli(w) q = own.Source() }"""
    )
    assert layers(model.graph) == {0: 1, 1: 2, 2: 1, 3: 1}


def test_the_critical_path_takes_the_slowest_node_of_each_layer() -> None:
    """Layer by layer the slowest counts; nodes that nobody timed take nothing, strangers are left out."""
    model = parse(
        """g (float[2] x) => (float[2] y) {
            [a] a = Neg(x) [b] b = Exp(x) [c] c = Sqrt(b) [y] y = Add(a, c) }"""
    )
    times = [
        NodeTime(name, "", CPU, took, 1)
        for name, took in (("a", 5.0), ("b", 2.0), ("c", 7.0), ("inside a body", 50.0))
    ]
    path = critical_path(model.graph, times, "test")
    assert (path.critical_us, path.nodes_us) == (5.0 + 7.0, 5.0 + 2.0 + 7.0)
    assert (path.layers, path.joined, path.nodes) == (3, 3, 4)


def test_the_live_set_is_exact_for_a_chain() -> None:
    """Two values are alive while a node runs, whatever the length of the chain; views take nothing."""
    model = parse(
        """g (float[N,4] x) => (float[M,2] y) <int64[2] s = {-1, 2}> {
            a = Neg(x) b = Exp(a) c = Sqrt(b) y = Reshape(c, s) }"""
    )
    found = live_set(model, {"x": (100, 4)})
    assert (found.peak_bytes, found.unknown, found.values) == (2 * 4 * 400, 0, 3)


def test_the_live_set_of_a_fan_holds_all_arms() -> None:
    """Four arms are alive together with their sum, and outputs stay to the end."""
    model = parse(
        """g (float[N] x) => (float[N] a, float[N] y) {
            a = Neg(x) b = Exp(x) c = Sqrt(x) d = Abs(x) s = Sum(a, b, c, d) y = Neg(s) }"""
    )
    assert live_set(model, {"x": (10,)}).peak_bytes == 5 * 40
    early = parse("g (float[N] x) => (float[N] a, float[N] y) { a = Neg(x) b = Exp(x) y = Neg(b) }")
    assert live_set(early, {"x": (10,)}).peak_bytes == 3 * 40
    narrow = parse("g (float[N] x) => (float[N] y) { a = Neg(x) y = Neg(a) }")
    narrow.graph.output.append(narrow.graph.input[0])
    assert live_set(narrow, {"x": (10,)}).peak_bytes == 2 * 40


def test_the_live_set_says_what_it_does_not_know() -> None:
    """Sizes that depend on data count as empty and are counted; if all are such, there is no number."""
    model = parse(
        """g (float[N] x) => (float[K] y) { a = Neg(x) i = NonZero(a) j = Squeeze(i)
           y = Gather(a, j) }"""
    )
    found = live_set(model, {"x": (10,)})
    assert (found.peak_bytes, found.unknown, found.values) == (40, 2, 3)
    assert "2 of 3 sizes unknown" in found.source
    alien = parse("g (float[N] x) => (float[N] y) { y = Neg(x) }")
    alien.graph.node[0].domain = "nobody"
    nothing = live_set(alien, {"x": (10,)})
    assert nothing.peak_bytes is None
    assert nothing.source.startswith("not available")


def test_only_scores_are_ranked() -> None:
    """Integers, single numbers, other shapes and infinities have no ranking."""
    scores = np.zeros((2, 3), np.float32)
    assert count_alike(scores, scores) == (2, 2, 0, 0)
    assert count_alike(scores.astype(np.int64), scores) is None
    assert count_alike(scores[:, :1], scores[:, :1]) is None
    assert count_alike(scores, scores[:1]) is None
    assert count_alike(scores, np.full_like(scores, np.inf)) is None
    assert count_alike([scores], scores) is None


def test_a_tie_is_no_disagreement() -> None:
    """Of two equal scores either may win; of two unequal ones only the larger."""
    ref = np.array([[1.0, 1.0, 0.0]], np.float32)
    assert count_alike(ref, np.array([[0.9, 1.1, 0.0]], np.float32)) == (1, 1, 0, 0)
    assert count_alike(ref, np.array([[0.9, 1.0, 1.1]], np.float32)) == (1, 0, 0, 0)
    long = np.array([[9, 8, 7, 6, 5, 5, 1, 0]], np.float32)
    other = np.array([[9, 8, 7, 6, 0, 5, 1, 0]], np.float32)
    assert count_alike(long, other) == (1, 1, 5, 5)
    assert count_alike(long, other[:, ::-1].copy()) == (1, 0, 5, 3)


def test_random_outputs_are_not_ranked(folder: Path) -> None:
    """Outputs to skip are skipped; models that do not run have no ranking."""
    feeds = [{"x": np.ones((2, 8), np.float32)}, {"x": np.ones((2, 7), np.float32)}]
    a, other = folder / "a.onnx", folder / "other.onnx"
    assert [(r.name, r.rows) for r in rankings(a, a, feeds, CPU)] == [("y", 2)]
    assert rankings(a, a, feeds, CPU, skip=("y",)) == ()
    assert rankings(a, other, feeds, CPU) == ()


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


@pytest.fixture
def no_gpu() -> None:
    """Skip where CUDA works."""
    if check_provider("cuda").usable:
        pytest.skip("there is a CUDA device")


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


def test_what_is_no_model_is_named(folder: Path) -> None:
    """A missing file, a file of something else and a size that the model lacks are told apart."""
    a, junk = folder / "a.onnx", folder / "junk.onnx"
    junk.write_bytes(b"not a model at all")
    with pytest.raises(ModelError, match=r"nowhere\.onnx cannot be read: No such file"):
        compare(folder / "nowhere.onnx", a)
    with pytest.raises(ModelError, match=r"junk\.onnx"):
        compare(a, junk)
    with pytest.raises(UsageError, match="--dim bach"):
        compare(a, a, CompareOptions("cpu", dims={"bach": (1,)}))


def command(*words: str) -> Result:
    """Run `onnx-sched compare`."""
    return CliRunner().invoke(cli, ["compare", *words, *QUICK])


def pair(folder: Path, before: str, after: str) -> tuple[str, str]:
    return str(folder / f"{before}.onnx"), str(folder / f"{after}.onnx")


def test_equal_models_exit_with_0(folder: Path) -> None:
    """Agreement and gates that hold: 0, the JSON is all of stdout, and it fits the schema."""
    gates = ["--fail-on", "launches,memory,mismatch"]
    ran = command(*pair(folder, "a", "copy"), "--provider", "cpu", "--json", *gates)
    assert ran.exit_code == 0, ran.output
    data = json.loads(ran.stdout)
    jsonschema.Draft202012Validator(closed(SCHEMA)).validate(data)
    assert data["agreement"]["verdict"] == "bitwise"
    assert [row["failed"] for row in data["gates"]] == [False] * 3
    assert ran.stderr == ""


def test_disagreement_exits_with_3(folder: Path) -> None:
    """Other numbers: the report is printed in full, an error says what differs, exit 3."""
    ran = command(*pair(folder, "a", "c"))
    assert ran.exit_code == 3
    assert "MISMATCH" in ran.stdout
    assert "error: the outputs disagree: y: " in ran.stderr
    assert "different computations" in ran.stdout


@pytest.mark.parametrize(
    ("after", "gates", "message"),
    [
        ("c", "mismatch", "gate failed: mismatch: the outputs disagree: y: "),
        ("long", "launches", "node dispatches (kernel launches are not available)"),
        ("copy", "cpu-nodes", "gate failed: cpu-nodes: all nodes run on the CPU"),
    ],
)
@pytest.mark.usefixtures("no_gpu")
def test_a_failed_gate_exits_with_4(folder: Path, after: str, gates: str, message: str) -> None:
    """The line that names the gate goes to stderr, also with -q; stdout then stays empty."""
    ran = command(*pair(folder, "a", after), "--fail-on", gates, "-q")
    assert ran.exit_code == 4
    assert ran.stdout == ""
    assert message in ran.stderr


def test_disagreement_outweighs_a_failed_gate(folder: Path) -> None:
    """Without the gate `mismatch`, disagreement is 3 whatever else failed; both are said."""
    ran = command(*pair(folder, "c", "long"), "--fail-on", "launches", "-q")
    assert ran.exit_code == 3
    assert "gate failed: launches" in ran.stderr


def test_a_typo_exits_with_2(folder: Path) -> None:
    """Gates, sizes and providers that do not exist are usage errors with a suggestion."""
    a = pair(folder, "a", "copy")
    for words, hint in (
        (["--fail-on", "slowr"], "did you mean slower?"),
        (["--provider", "cudda"], "did you mean cuda?"),
        (["--atol", "z:1"], "the model has y"),
    ):
        ran = command(*a, *words)
        assert ran.exit_code == 2
        assert hint in ran.stderr
    assert CliRunner().invoke(cli, ["compare", *a, "--pairs", "many"]).exit_code == 2


@pytest.mark.usefixtures("no_gpu")
def test_an_unusable_provider_exits_with_5(folder: Path) -> None:
    """`--provider cuda` without a device: cause and fix, nothing on stdout, no run on the CPU."""
    ran = command(*pair(folder, "a", "copy"), "--provider", "cuda", "--json")
    assert ran.exit_code == 5
    assert ran.stdout == ""
    assert "CUDAExecutionProvider cannot run here" in ran.stderr
    assert "hint: " in ran.stderr


def test_a_model_that_does_not_run_is_no_number(folder: Path) -> None:
    """Other inputs: a mismatch with the reason, nothing timed, nothing counted, and no crash."""
    ran = command(*pair(folder, "a", "other"), "--json")
    assert ran.exit_code == 3
    data = json.loads(ran.stdout)
    jsonschema.Draft202012Validator(closed(SCHEMA)).validate(data)
    assert data["latency"] == data["critical_path"] == []
    assert data["dispatches"]["before"] == 3
    assert data["dispatches"]["after"] is None
    assert data["dispatches"]["source"] == "not available: other.onnx does not run"
    assert any("not timed" in note for note in data["notes"])


@pytest.mark.parametrize("width", [80, 120])
def test_the_text_fits_and_takes_names_as_they_are(found: Comparison, width: int) -> None:
    """No line is wider than the screen, no name is read as markup, no ratio stands without interval."""
    nasty = "[bold]x[/bold][/nonsense].onnx"
    named = replace(
        found,
        before=replace(found.before, name=nasty),
        agreement=replace(
            found.agreement,
            outputs=tuple(replace(o, name="[red]y") for o in found.agreement.outputs),
        ),
        notes=("[link=x]note",),
    )
    shown = text.to_text(named, width=width)
    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    for word in (nasty, "[red]y", "[link=x]note"):
        assert word in shown
    for line in lines:
        if "x [" in line:
            assert "pairs" in line
    assert sum("A/A" in line for line in lines) == len(found.latency)
    start = next(place for place, line in enumerate(lines) if "counted at" in line)
    assert lines.index("", start) == start + 8  # a row a line: nothing wraps


def test_the_text_on_cuda_says_where_nodes_ran_and_what_tf32_did(found: Comparison) -> None:
    """Nodes on the CPU are listed by name; TF32 is stated for latency and for agreement."""
    assert found.placement_after is not None
    strays = tuple((f"shape {k}", "Shape") for k in range(7))
    on_cuda = replace(
        found,
        provider=replace(found.provider, name=CUDA),
        environment={**found.environment, "device": "Some GPU"},
        settings={**found.settings, "tf32_latency": True},
        placement_after=replace(found.placement_after, cpu_nodes=strays, copies=2),
    )
    shown = text.to_text(on_cuda, width=400)
    assert "Some GPU; TF32: latency on, ONNX Runtime's default; agreement off" in shown
    assert "on the CPU: shape 0 (Shape)" in shown
    assert "and 2 more" in shown
    assert "2 copies between devices" in shown


def test_the_slower_copy_of_the_check_by_hand_is_slower_and_nothing_else(folder: Path) -> None:
    """`scripts/check_compare.py` adds nodes that ONNX Runtime keeps and that change no bit."""
    from scripts.check_compare import repeated

    slow = folder / "slow.onnx"
    onnx.save(repeated(net(), 50), str(slow))
    options = CompareOptions("cpu", pairs=10, budget=0.01, dims={"batch": (2,)})
    found = compare(folder / "a.onnx", slow, options)
    assert found.agreement.verdict == "bitwise"
    assert (found.dispatches.after or 0) - (found.dispatches.before or 0) == 50
