"""What `plan` says: every region with its members, its glue and its gain; reasons by code; no file."""

from __future__ import annotations

import doctest
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.cells import cell_len

import onnx_sched
from onnx_sched.analysis import Analysis, analyse
from onnx_sched.choose import Condition
from onnx_sched.cli import cli
from onnx_sched.cost import device
from onnx_sched.files import Source
from onnx_sched.judge.measure import Speedup
from onnx_sched.plan import Refusal
from onnx_sched.planner import Draft, modelled_plan, planned_bodies, with_bodies
from onnx_sched.report import plan_text, text
from onnx_sched.report.data import EstimateRow, GroupRow, RegionRow, Report
from onnx_sched.report.lineage import LAYOUT
from onnx_sched.report.region_rows import Expected, region_rows
from tests.nets import COMMITTED, committed, net
from tests.pages import HOSTILE, REPORT
from tests.test_bodies import branches, graph, plain

MODELS = Path(__file__).parent.parent / "models"
NAMED = ["grouped_mlp", "headlocal_transformer", "mmoe", "exported_transformer"]


def shown(report: Report, width: int = 120, *, verbose: bool = False) -> str:
    return text.plain(plan_text.render(report, verbose), width)


def drafted(name: str) -> tuple[Analysis, Draft]:
    """A committed model, and the plan that takes all that is legal."""
    analysis = analyse(Source(committed(name), None))
    return analysis, modelled_plan(analysis, lambda unit: False, None)


@pytest.fixture(scope="module", name="reports")
def _reports() -> Mapping[str, Report]:
    return {
        name: onnx_sched.optimize(MODELS / f"{name}.onnx", choose="always", check=False).report
        for name in COMMITTED
    }


# -- what the rows are -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMITTED)
def test_regions_account_for_all(name: str) -> None:
    """Every group is in one region; nodes before are those that are gone, nodes after those that are new."""
    analysis, draft = drafted(name)
    rows = region_rows(analysis, draft, Expected(device("cpu")))
    assert [r.number for r in rows] == list(range(1, len(rows) + 1))
    assert [r.groups for r in rows] == [
        count for _, count in sorted(Counter(g.region for g in draft.plan.groups).items())
    ]
    new = [m.proto for m in draft.rewritten.nodes] if draft.rewritten else analysis.graph.nodes
    old = {id(node) for node in analysis.graph.nodes}
    assert sum(r.after for r in rows) == sum(id(n) not in old for n in new)
    gone = old - {id(n) for n in new}
    nodes = [
        n for k, n in enumerate(analysis.graph.nodes) if id(n) in gone and analysis.graph.live[k]
    ]
    assert sum(r.before for r in rows) == sum(n.op_type != "Constant" for n in nodes)


@pytest.mark.parametrize("name", COMMITTED)
def test_glue(name: str, reports: Mapping[str, Report]) -> None:
    """Glue computes nothing, is part of what comes, and costs no more than all of it.

    All that stands at a border is glue.
    """
    _, draft = drafted(name)
    made = draft.rewritten.nodes if draft.rewritten else ()
    borders = sum(m.group is not None and not m.main and m.proto.op_type in LAYOUT for m in made)
    assert sum(n for region in reports[name].regions for _, n in region.glue) >= borders
    for region in reports[name].regions:
        assert {op for op, _ in region.glue} <= LAYOUT
        assert sum(count for _, count in region.glue) <= region.after
        assert region.estimates
        for row in region.estimates:
            assert 0 <= row.glue_us <= row.after_us
            assert row.before_us > 0
            assert (row.glue_us > 0) == bool(region.glue)


def test_the_named_models(reports: Mapping[str, Report]) -> None:
    """The grouped MLP is one region of four lanes; the transformer two alike ones, a block each."""
    (region,) = reports["grouped_mlp"].regions
    assert (region.lanes, region.groups) == (4, 24)
    first, second = reports["headlocal_transformer"].regions
    assert replace(first, number=2, estimates=()) == replace(second, estimates=())


def test_who_was_raced() -> None:
    """A race belongs to the region that holds the raced units; others have none."""
    analysis, draft = drafted("headlocal_transformer")
    unit = next(g for g in draft.plan.groups if g.region == 1).units[0]
    condition = Condition((("batch", 3),), {"x": np.zeros(1)}, 1)
    races = {unit.number: [(condition, Speedup(3.0, 2.0, 1.5, 1.4, 1.6, 40))]}
    rows = region_rows(analysis, draft, Expected(None, races))
    assert [len(r.latency) for r in rows] == [0, 1]
    assert (rows[1].latency[0].dims, rows[1].latency[0].speedup) == ({"batch": 3}, 1.5)
    assert [r.estimates for r in rows] == [(), ()]
    assert "raced alone 1.50x [1.40, 1.60] at batch=3, 1 thread" in plan_text.gains(rows[1])


def test_bodies() -> None:
    """Regions of bodies are counted on after those of the main graph, and say where they are."""
    model = branches(plain(), graph("() => (float[N,4] z) { z = Identity(x) }"))
    lanes = net(
        "(float[N,4] x) => (float[N,4] q) { a = MatMul(x, w0) b = MatMul(x, w1) q = Add(a, b) }"
    )
    model.graph.node.extend(lanes.graph.node)
    model.graph.output.extend(lanes.graph.output)
    report = onnx_sched.optimize(model, choose="always", check=False).report
    assert [(r.number, r.body) for r in report.regions] == [(1, ""), (2, "choice/then_branch")]
    assert {(g.region, g.body) for g in report.groups} == {(1, ""), (2, "choice/then_branch")}
    assert "region 2   up to 2 lanes" in shown(report)
    assert "in the body choice/then_branch" in shown(report)


def test_a_body_is_never_raced_by_itself() -> None:
    """Races are of the main graph's units: those of a body have numbers of their own."""
    model = branches(plain(), graph("() => (float[N,4] z) { z = Identity(x) }"))
    analysis = analyse(Source(model, None))
    inner = planned_bodies(analysis, lambda circuit: lambda unit: False, None)
    draft = with_bodies(analysis, modelled_plan(analysis, lambda unit: False, None), inner)
    condition = Condition((), {}, 1)
    races = {n: [(condition, Speedup(3.0, 2.0, 1.5, 1.4, 1.6, 40))] for n in range(99)}
    (row,) = region_rows(analysis, draft, Expected(device("cpu"), races))
    assert row.body
    assert row.latency == ()


def test_fixed_sizes() -> None:
    """Where no size is open there is one estimate, and no size is named."""
    wide = {name: np.eye(64, dtype=np.float32) + k for k, name in enumerate("vw")}
    model = net(
        "(float[2,64] x) => (float[2,64] y) { a = MatMul(x, v) b = MatMul(x, w) y = Add(a, b) }",
        wide,
    )
    report = onnx_sched.optimize(model, choose="always", check=False).report
    (region,) = report.regions
    assert len(region.estimates) == 1
    assert " at size" not in plan_text.estimated(region)
    assert " at size" not in plan_text.glue(region)


# -- what is shown ---------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 120, 160])
@pytest.mark.parametrize("name", NAMED)
def test_lines(name: str, width: int, reports: Mapping[str, Report]) -> None:
    """No line is too wide or ends in blanks; every kind of group of a block has one line."""
    lines = shown(reports[name], width).split("\n")
    assert max(map(cell_len, lines)) <= width
    assert lines == [line.rstrip() for line in lines]
    blocks = plan_text.alike(reports[name])
    kinds = [len({(g.op_type, g.size, g.form) for g in block.groups}) for block in blocks]
    assert sum(" -> 1 (" in line for line in lines) == sum(kinds)
    assert sum(line.strip().startswith("glue ") for line in lines) == len(blocks)
    assert sum(line.strip().startswith("expected gain ") for line in lines) == len(blocks)


@pytest.mark.parametrize("name", COMMITTED)
def test_blocks(name: str, reports: Mapping[str, Report]) -> None:
    """Every region stands in one block, beside regions with the same groups."""
    report = reports[name]
    found = [r for block in plan_text.alike(report) for r in block.regions]
    assert sorted(found, key=lambda r: r.number) == list(report.regions)
    for block in plan_text.alike(report):
        assert {r.groups for r in block.regions} == {len(block.groups)}
        assert {g.region for g in block.groups} == {block.regions[0].number}


def test_reasons_by_code() -> None:
    """Reasons of one code stand together, under what the code means, most of them on request."""
    refusals = [Refusal("S103", f"shape {n}", (f"a{n}", f"b{n}")) for n in range(20)]
    refusals.insert(1, Refusal("S101", "alone", ("c",)))
    report = replace(REPORT, status="unchanged", refusals=tuple(refusals))
    said = shown(report)
    assert said.count("S103  shapes differ") == 1
    assert said.index("shape 0") < said.index("shape 1") < said.index("S101  not at one level")
    assert said.count("2 nodes, shape") == text.REASONS
    assert f"and {20 - text.REASONS} more reasons; -v shows all" in said
    assert shown(report, verbose=True).count("2 nodes, shape") == 20
    assert "`onnx-sched explain S103`" in said
    assert "`onnx-sched explain m.onnx --node a0` asks about one node" in said


def test_a_command_that_cannot_be_typed_is_not_shown() -> None:
    """Neither a node with control characters, nor a model that is in no file, is put into a command."""
    odd = replace(REPORT, refusals=(Refusal("S101", "alone", ("a\x1b[31m",)),))
    unnamed = replace(REPORT, model="the model", refusals=(Refusal("S101", "alone", ("a",)),))
    for report in (odd, unnamed):
        assert "--node" not in shown(report)
        assert "`onnx-sched explain S101`" in shown(report)
    spaced = replace(REPORT, refusals=(Refusal("S101", "alone", ("a b",)),))
    assert "--node 'a b'" in shown(spaced)


def region(number: int, glue: tuple[tuple[str, int], ...] = ()) -> RegionRow:
    rows = (EstimateRow(1, 8.0, 4.0, 1.0), EstimateRow(32, 9.0, 6.0, 2.0))
    return RegionRow(number, "", 2, 1, 4, 2, glue, "cpu", rows)


def test_words() -> None:
    """Glue and gain in words, and which regions are meant."""
    assert plan_text.glue(region(1, (("Reshape", 2), ("Concat", 1)))) == (
        "2 Reshape, 1 Concat: about 2.0 of 6.0 us at size 32"
    )
    assert plan_text.gains(region(1)) == ["estimated 2.0x at size 1, 1.5x at size 32 (profile cpu)"]
    for numbers, words in (
        ((3,), "region 3"),
        ((1, 4), "regions 1 and 4, alike"),
        ((2, 3, 4), "regions 2 to 4, alike"),
        ((1, 3, 5), "regions 1, 3, 5, alike"),
        (range(1, 20, 2), "regions 1, 3, 5, 7, 9, 11 and 4 more, alike"),
    ):
        assert plan_text.numbers([region(n) for n in numbers]) == words


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:12]))
def test_hostile_names(name: str) -> None:
    """Names from hell print in lines of their width, without control characters."""
    report = replace(
        REPORT,
        model=name,
        groups=(GroupRow(name, 2, 1, "stacked", name, (name, name)),),
        regions=(replace(region(1, ((name, 2),)), body=name, profile="cpu"),),
        refusals=(Refusal("S103", f"because {name}", (name,)),),
        notes=(name,),
    )
    found = shown(report, 100)
    assert all(c.isprintable() or c == "\n" for c in found)
    assert max(map(cell_len, found.split("\n"))) <= 100


def test_many_regions() -> None:
    """A long plan is cut where nobody would read on, and says so."""
    groups = tuple(GroupRow(f"Op{n}", 2, n, "stacked", "", ("a", "b"), "", n) for n in range(1, 31))
    report = replace(REPORT, groups=groups, regions=tuple(region(n) for n in range(1, 31)))
    assert f"and {30 - plan_text.BLOCKS} more regions; -v shows all" in shown(report)
    assert "Op30" not in shown(report)
    assert "Op30" in shown(report, verbose=True)


# -- the command -----------------------------------------------------------------------------------


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(cli, [*map(str, arguments)])


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`plan` speaks of what would become, shows regions, and writes nothing."""
    monkeypatch.chdir(tmp_path)
    result = run("plan", MODELS / "mmoe.onnx", "--choose", "always", "--provider", "cpu")
    assert result.exit_code == 0, result.output
    assert "68 nodes would become " in result.stdout
    assert "region 1 " in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_verbose(tmp_path: Path) -> None:
    """Without -v the first reasons are there, with it all, in `plan` and in `optimize`."""
    sizes = {"a": range(2, 15), "b": range(20, 33)}  # two chains; at each level two shapes differ
    nodes = " ".join(f"{c}{n + 1} = MatMul({c}{n}, {c}w{n})" for c in sizes for n in range(12))
    weights = {
        f"{c}w{n}": np.ones((k, k + 1), np.float32)
        for c, widths in sizes.items()
        for n, k in enumerate(widths[:12])
    }
    model = net(
        f"(float[N,2] a0, float[N,20] b0) => (float[] a12, float[] b12) {{ {nodes} }}", weights
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    for command in (["plan"], ["optimize", "-o", tmp_path / "out.onnx"]):
        few, many = (run(*command, path, "--no-check", *flags) for flags in ((), ("-v",)))
        assert few.stdout.count("shapes differ, ") == text.REASONS
        assert many.stdout.count("shapes differ, ") == 12
        assert "; -v shows all" in few.stdout
        assert "; -v shows all" not in many.stdout


def test_doctests() -> None:
    """The examples in the documentation of functions hold."""
    assert doctest.testmod(plan_text).failed == 0
