"""Benchmarks of a corpus and of the cost model on something tiny: what they say, and when they fail."""

from __future__ import annotations

import doctest
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from models.mlp import grouped_mlp
from onnx_sched.judge.measure import Speedup
from scripts import bench_corpus, bench_cost, bounds

QUICK = ["--pairs", "10", "--openings", "2"]
EVEN = Speedup(10.0, 10.0, 1.0, 0.99, 1.01, 60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small model with lanes, and one without."""
    models = tmp_path / "models"
    models.mkdir()
    onnx.save(grouped_mlp(layers=2, groups=3, width=4), str(models / "lanes.onnx"))
    onnx.save(grouped_mlp(layers=2, groups=1, width=4), str(models / "single.onnx"))
    return models


# -- corpus --------------------------------------------------------------------------------------------


def test_bench_corpus_tells_speed_and_bound_of_every_model(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row for every condition; what is unchanged is a copy; a broken file costs no other."""
    (folder / "broken.onnx").write_bytes(b"no model")
    out = tmp_path / "corpus.json"
    given = [str(folder), "--choose", "always", "--batch", "1", "3", "--threads", "1"]
    code = bench_corpus.main([*given, *QUICK, "--target", "cpu", "--json", str(out)])
    assert code == 1
    assert "broken.onnx is not an ONNX model" in capsys.readouterr().err
    data = json.loads(out.read_text())
    assert [(r["model"], r["batch"], r["changed"]) for r in data["rows"]] == [
        ("lanes", 1, True),
        ("lanes", 3, True),
        ("single", 1, False),
        ("single", 3, False),
    ]
    for row in data["rows"]:
        limit = row["bound"]
        parts = limit["weights_us"] + limit["dispatches_us"] + limit["kernels_us"]
        assert parts >= row["speedup"]["after_us"] - 0.1
        assert limit["dispatches"] > 0
        assert row["bound_by"] in ("weights read", "dispatches", "ORT kernels")
    assert not any(row["slower"] for row in data["rows"] if not row["changed"])
    assert [(s["batch"], s["models"], s["changed"]) for s in data["summary"]] == [
        (1, 2, 1),
        (3, 2, 1),
    ]
    assert [f["model"] for f in data["failed"]] == ["broken"]


def row(
    ratio: float, low: float, changed: bool = True, opportunity: bool = True
) -> bench_corpus.Row:
    """A row of which only the speed matters."""
    speed = Speedup(10.0, 10.0 / ratio, ratio, low, ratio + 0.05, 60)
    limit = bounds.Bound(1.0, 2.0, 3.0, 100, 4, (("Conv", 0.9),))
    name = f"{ratio}{low}{changed}"
    return bench_corpus.Row(name, 1, 1, 9, 5, changed, opportunity, speed, EVEN, limit)


def test_the_summary_counts_the_slower_and_takes_means() -> None:
    """An interval that reaches below 0.98 is slower; an unchanged model is 1, whatever was measured."""
    rows = [row(4.0, 3.9), row(1.0, 0.97), row(1.3, 1.2, False), row(1.2, 0.9, False, False)]
    (found,) = bench_corpus.summary(rows)
    assert found["slower"] == [rows[1].model]
    assert found["number_slower"] == 1
    assert (found["models"], found["opportunity"], found["changed"]) == (4, 3, 2)
    assert found["geometric_mean"] == pytest.approx(4 ** (1 / 4), abs=1e-3)
    assert found["geometric_mean_opportunity"] == pytest.approx(4 ** (1 / 3), abs=1e-3)
    assert found["geometric_mean_changed"] == pytest.approx(2.0)
    assert "slower: 1" in bench_corpus.told(found)


def test_the_bound_is_the_largest_part() -> None:
    """Weights, dispatches, or what is left."""
    limit = row(2.0, 1.9).bound
    assert limit.name == "ORT kernels"
    assert replace(limit, weights_us=9.0).name == "weights read"
    assert replace(limit, dispatches_us=9.0).name == "dispatches"
    assert "kernels 50%" in limit.words()
    assert "Conv 90%" in limit.words()


def test_weights_are_counted_once_and_tables_not_at_all() -> None:
    """Bytes of what is read from end to end: not of a table, of which a lookup reads some rows."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (int64[N] i, float[N,4] z) => (float[N,4] y)
    { x = Gather(table, i) a = MatMul(x, w) b = MatMul(z, w)
      c = Constant<value = float[4] {1.0, 2.0, 3.0, 4.0}>() d = Add(a, b) y = Mul(d, c) }"""
    model = onnx.parser.parse_model(text)
    for name, shape in {"table": (100, 4), "w": (4, 4), "unused": (9,)}.items():
        tensor = onnx.numpy_helper.from_array(np.zeros(shape, np.float32), name)
        model.graph.initializer.append(tensor)
    assert bounds.weight_bytes(model) == 4 * (16 + 4)


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_plot_shows_what_changed(suffix: str, tmp_path: Path) -> None:
    """A picture with the models' names; the same numbers give the same file."""
    pytest.importorskip("matplotlib")
    from scripts.corpus_plot import plot

    rows = [replace(row(2.0, 1.9), model="wide"), replace(row(1.0, 0.9, False), model="plain")]
    paths = [tmp_path / f"{n}.{suffix}" for n in range(2)]
    for path in paths:
        plot(rows, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    if suffix == "svg":
        text = paths[0].read_text()
        assert "<!-- wide -->" in text
        assert "<!-- plain -->" not in text


# -- cost ----------------------------------------------------------------------------------------------


def test_bench_cost_compares_times_of_regions(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Estimated and measured times of every variant at every size, and their rank correlation."""
    out = tmp_path / "cost.json"
    assert bench_cost.main([str(folder), *QUICK, "--json", str(out)]) == 0
    data = json.loads(out.read_text())
    assert {row["model"] for row in data["rows"]} == {"lanes"}
    assert {row["size"] for row in data["rows"]} == {1, 32}
    assert all(min(*row["before"], *row["after"]) > 0 for row in data["rows"])
    assert data["variants"] == len(data["rows"]) > 4
    assert -1 <= data["times"] <= 1
    assert f"rank correlation of times {data['times']}" in capsys.readouterr().out


def cost(estimated: float, measured: float, region: int = 0) -> bench_cost.Row:
    """A variant with some times of a region that takes 50."""
    sides = ((50.0, 50.0), (estimated, measured))
    return bench_cost.Row("m", region, 0, 1, ("stacked",), *sides)


def test_rank_correlations() -> None:
    """1 where the order is right, -1 where it is reversed, nothing where there is nothing to rank."""
    right = [cost(10, 11), cost(20, 30), cost(90, 70)]
    assert bench_cost.correlations(right)["within_regions"] == 1.0
    assert bench_cost.correlations(right)["times"] == 1.0
    assert bench_cost.correlations(right)["speedups"] == 1.0
    reversed_ = [cost(10, 70, 1), cost(20, 30, 1), cost(90, 11, 1)]
    assert bench_cost.correlations(reversed_)["within_regions"] == -1.0
    assert bench_cost.correlations([*right, *reversed_])["within_regions"] == 0.0
    assert bench_cost.correlations([])["times"] is None


def test_doctests() -> None:
    """The examples in the docstrings hold."""
    found = doctest.testmod(bench_cost)
    assert found.attempted
    assert found.failed == 0
