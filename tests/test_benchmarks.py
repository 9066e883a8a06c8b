"""Benchmarks of forms and peers on something tiny: they run, say what they must, and fail when they must."""

from __future__ import annotations

import doctest
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from models.mlp import grouped_mlp
from onnx_sched.judge import measure
from onnx_sched.judge.agree import validate
from onnx_sched.judge.measure import Runner, Speedup
from onnx_sched.judge.runtime import RuntimeRefused, open_session, run
from scripts import bench_forms, bench_peers, peers
from scripts.contest import AGAIN, ORIGINAL, Contest
from scripts.table_forms import EMPTY, PLANNED, Size, by_hand, planned

QUICK = ["--pairs", "10", "--openings", "2"]
EVEN = Speedup(10.0, 10.0, 1.0, 0.99, 1.01, 60)
LOSS = Speedup(10.0, 20.0, 0.5, 0.49, 0.51, 60)


# -- contests ------------------------------------------------------------------------------------------


class Worker:
    """Runners that take as long as they are told, and how often they were opened."""

    def __init__(self) -> None:
        self.opened: Counter[str] = Counter()

    def maker(self, name: str, microseconds: int) -> Callable[[], Runner]:
        """Opens what keeps the processor busy for some time."""

        def once() -> object:
            until = time.perf_counter_ns() + 1000 * microseconds
            while time.perf_counter_ns() < until:
                pass
            return None

        def make() -> Runner:
            self.opened[name] += 1
            return once

        return make


def test_a_contest_opens_everything_anew_and_sees_who_is_faster() -> None:
    """Every opening opens each entrant once; all have the same number of samples; more can be taken."""
    worker = Worker()
    takes = {ORIGINAL: 200, AGAIN: 200, "small": 20}
    held = Contest({name: worker.maker(name, us) for name, us in takes.items()})
    held.run(pairs=12, openings=3)
    assert worker.opened == dict.fromkeys(takes, 3)
    assert held.gain("small").pairs == held.floor.pairs == 12
    held.run(pairs=12, openings=3)
    assert worker.opened == dict.fromkeys(takes, 6)
    assert held.gain("small").pairs == 24
    assert held.gain("small").low > 2
    assert held.verdict(ORIGINAL, "small") == "faster"
    assert held.verdict("small", ORIGINAL) == "slower"


def test_times_are_those_of_one_run() -> None:
    """However many runs make a turn."""
    held = Contest({ORIGINAL: Worker().maker(ORIGINAL, 200)})
    held.run(pairs=12, openings=1)
    (taken,) = held._taken
    assert len(taken[ORIGINAL]) == 12
    assert 200 <= min(taken[ORIGINAL]) < 300


def test_doctests() -> None:
    """The examples of what benchmarks print hold."""
    found = doctest.testmod(measure)
    assert found.attempted
    assert found.failed == 0


# -- forms ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [Size(2, 3, 5), Size(3, 2, 16)])
def test_forms_by_hand_give_the_same(size: Size) -> None:
    """Every form of the table agrees with the original; those said to take an empty batch do."""
    model = grouped_mlp(layers=size.layers, groups=size.groups, width=size.width)
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.standard_normal((n, size.features)).astype(np.float32)} for n in (1, 4)]
    empty = {"x": np.zeros((0, size.features), np.float32)}
    for name, made in by_hand(model, size).items():
        onnx.checker.check_model(made, full_check=True)
        found = validate(model.SerializeToString(), made.SerializeToString(), feeds, "cpu")
        assert found.verdict in ("bitwise", "within_tolerance"), (name, found.reason)
        session = open_session(made.SerializeToString(), "cpu")
        if name in EMPTY:
            assert run(session, empty)["y"].shape == (0, size.features)
        elif name != "stacked":  # that would end this process
            with pytest.raises(RuntimeRefused):
                run(session, empty)


@pytest.mark.parametrize("form", PLANNED)
def test_a_planned_form_is_the_one_that_was_asked_for(form: str) -> None:
    """One product a layer: batched products, or grouped convolutions."""
    made = planned(grouped_mlp(layers=3, groups=4, width=4), form, "cpu")
    counts = Counter(n.op_type for n in made.graph.node)
    heavy = "MatMul" if form == "stacked" else "Conv"
    assert counts[heavy] == 3
    assert counts["MatMul"] + counts["Conv"] + counts["Gemm"] == 3


def test_bench_forms_races_all_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every form and every choice has a ratio with an interval; the exit code is what the duels say."""
    out = tmp_path / "forms.json"
    size = ["--widths", "4", "--batches", "2", "--layers", "2", "--groups", "3"]
    code = bench_forms.main([*size, *QUICK, "--time-limit", "1", "--json", str(out)])
    (cell,) = json.loads(out.read_text())["cells"]
    hand = {"stacked", "grouped_conv", "conv_t", "conv_t_1d", "conv_t_padded"}
    ours = {"ours", "ours, not empty", "ours, all sizes"}
    assert set(cell["gains"]) == hand | {f"plan: {form}" for form in PLANNED} | ours
    assert all(g["low"] <= g["ratio"] <= g["high"] for g in cell["gains"].values())
    duels = cell["duels"]
    assert [d["ours"] for d in duels] == ["ours", "ours, not empty"]
    assert duels[0]["best"] not in hand - set(EMPTY)
    assert code == int(any(d["verdict"] == "slower" and not d["same"] for d in duels))
    said = capsys.readouterr().out
    assert "| width, batch | stacked |" in said
    assert "duels" in said


def test_the_best_form_is_the_fastest_that_keeps_the_promise() -> None:
    """Without it, forms that an empty batch breaks do not count; nor does who loses to the original."""
    fast = replace(EVEN, ratio=3.0)
    gains = {"stacked": fast, "conv_t": fast, "grouped_conv": EVEN, "plan: conv_t": LOSS}
    found = bench_forms.rivals([ORIGINAL, *gains])
    assert found == [ORIGINAL, "grouped_conv", "plan: conv_t"]
    assert bench_forms.best_of([ORIGINAL, "plan: conv_t"], gains) == ORIGINAL
    assert bench_forms.best_of([ORIGINAL, "plan: conv_t", "conv_t"], gains) == "conv_t"


@pytest.mark.parametrize(("same", "code"), [(False, 1), (True, 0)])
def test_bench_forms_fails_where_the_choice_is_slower(
    same: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A duel that is lost costs the run, but one model cannot be slower than itself."""
    duel = bench_forms.Duel("ours", "conv_t", same, LOSS, EVEN, "slower")
    cell = bench_forms.Cell(4, 2, EVEN, {"conv_t": EVEN}, (duel,))
    monkeypatch.setattr(bench_forms.Bench, "cell", lambda self, batch: cell)
    assert bench_forms.main(["--widths", "4", "--batches", "2", "--layers", "1"]) == code
    assert ("slower: ours than conv_t" in capsys.readouterr().out) == (not same)


# -- peers ---------------------------------------------------------------------------------------------

SMALL = ["--branches", "3", "--layers", "2", "--width", "4", "--batch", "2", "--time-limit", "1"]


def wrong(given: peers.Setting) -> peers.Opened:
    """A peer that gives zeros."""
    return peers.Opened(lambda: None, lambda: np.zeros_like(given.x))


def test_bench_peers_lists_who_is_missing_or_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither is raced, and neither is dropped."""
    own = {name: peers.PEERS[name] for name in (ORIGINAL, AGAIN, peers.OURS)}
    others = {
        "absent": peers.Peer(("no_module_of_this_name",), wrong),
        "wrong": peers.Peer((), wrong),
    }
    monkeypatch.setattr(bench_peers, "PEERS", {**own, **others})
    out = tmp_path / "peers.json"
    code = bench_peers.main([*SMALL, *QUICK, "--json", str(out)])
    data = json.loads(out.read_text())
    rows = {row["peer"]: row for row in data["peers"]}
    assert set(rows) == {ORIGINAL, "absent", "wrong"}
    assert rows["absent"]["note"] == "not installed: no_module_of_this_name"
    assert rows["wrong"]["note"].startswith("other outputs: they differ by")
    assert rows["absent"]["ours"] is rows["wrong"]["ours"] is None
    assert code == int(rows[ORIGINAL]["verdict"] != "faster")
    said = capsys.readouterr().out
    assert "absent" in said
    assert "wrong" in said
    assert "of 1 peers that were raced; 2 were not" in said


def setting(tmp_path: Path, norm_groups: int = 3) -> peers.Setting:
    """The peers' model, small."""
    size = Size(2, norm_groups, 4)
    path = tmp_path / "original.onnx"
    model = grouped_mlp(layers=2, groups=norm_groups, width=4, norm=True, batch=2)
    onnx.save(model, str(path))
    x = np.random.default_rng(0).standard_normal((2, size.features)).astype(np.float32)
    return peers.Setting(path, path, size, x, 1)


@pytest.mark.parametrize("name", [n for n in peers.PEERS if n != "torch.compile"])
def test_a_peer_that_is_installed_gives_the_same(name: str, tmp_path: Path) -> None:
    """Its output is the original's, also after it ran many times."""
    peer = peers.PEERS[name]
    if peer.missing:
        pytest.skip(f"not installed: {', '.join(peer.missing)}")
    given = setting(tmp_path)
    opened = peer.open(given)
    for _ in range(3):
        opened.once()
    wanted = peers.PEERS[ORIGINAL].open(given).output()
    np.testing.assert_allclose(opened.output(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.export
def test_the_module_for_torch_has_the_same_weights(tmp_path: Path) -> None:
    """Run eagerly, it gives the original's output (compiling takes too long for a test)."""
    torch = pytest.importorskip("torch")
    given = setting(tmp_path)
    with torch.no_grad():
        found = peers._module(given.original, given.size)(torch.from_numpy(given.x))
    wanted = peers.PEERS[ORIGINAL].open(given).output()
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-5)
