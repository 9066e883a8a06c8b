"""The comparison on a screen: it fits, hides nothing, and names out of a file do no harm."""

from __future__ import annotations

import doctest
import itertools
from dataclasses import replace
from pathlib import Path

import pytest

import onnx_sched.report.compare_text as text
from onnx_sched.judge import conditions
from onnx_sched.judge.compare import CompareOptions, compare
from onnx_sched.judge.comparison import Comparison
from onnx_sched.judge.gates import Gate, GateResult
from onnx_sched.judge.ortlib import CUDA
from onnx_sched.report import compare_parts
from onnx_sched.report.compare_parts import SPEEDS, time_text
from tests.comparisons import write_models


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of `write_models`."""
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def found(folder: Path) -> Comparison:
    """A comparison of a model with its longer twin."""
    options = CompareOptions("cpu", pairs=10, budget=0.1, threads=(1, 2))
    return compare(folder / "a.onnx", folder / "long.onnx", options)


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
        counted_at=(("[/]", 3),),
    )
    shown = text.to_text(named, width=width)
    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    for word in (nasty, "[red]y", "[link=x]note", "counted at [/]=3"):
        assert word in shown
    for line in lines:
        if "x [" in line:
            assert "pairs" in line
    assert sum("A/A   [" in line for line in lines) == len(found.latency)
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


def long_rows(found: Comparison) -> Comparison:
    """The same with conditions whose names alone take more than a line."""
    dims = tuple((f"a_rather_long_name_of_rows_{k}", 32) for k in range(4))
    timed = tuple(
        replace(row, dims=dims, cuda_graph=True, processes=3, verdict=word)
        for row, word in zip(found.latency, itertools.cycle(SPEEDS))
    )
    return replace(
        found, latency=timed, paths=tuple(replace(row, dims=dims) for row in found.paths)
    )


def test_a_long_condition_costs_no_number(found: Comparison) -> None:
    """However long the name of a condition, 80 columns show every percentile, ratio, interval and time."""
    shown = text.to_text(long_rows(found), width=80)
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    for row in found.latency:
        ratio = row.speedup
        assert f"{ratio.ratio:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]" in shown
        assert f"A/A   [{row.floor.low:.2f}, {row.floor.high:.2f}]" in shown
        for times in (row.before, row.after):
            assert " ".join(map(time_text, (times.p50_us, times.p95_us))) in " ".join(shown.split())
    for path in found.paths:
        assert time_text(path.before.critical_us) in shown
    assert "3 processes: SLOWER" in " ".join(shown.split())


def test_the_answer_comes_first(found: Comparison) -> None:
    """One line above all tables says whether outputs agree, and where it is faster or slower."""
    rows = [replace(found.latency[0], verdict=word) for word in SPEEDS]
    rows = [replace(row, dims=(("batch", place),)) for place, row in enumerate(rows, 1)]
    lines = text.to_text(replace(found, latency=tuple(rows)), width=400).splitlines()
    place = next(k for k, line in enumerate(lines) if line.startswith("outputs "))
    assert place < lines.index("")
    assert lines[place] == (
        "outputs bit for bit equal; faster at batch=1, 1 thread; SLOWER at batch=2, 1 thread; "
        "no significant difference in speed at batch=3, 1 thread"
    )
    slow = tuple(replace(row, verdict="slower") for row in found.latency)
    assert "; SLOWER at every condition" in text.to_text(replace(found, latency=slow))
    assert "; nothing was timed" in text.to_text(replace(found, latency=(), paths=()))


def test_a_hostile_name_reaches_no_terminal(found: Comparison) -> None:
    """Escapes in the names of files, sizes, outputs and nodes, and in reasons, come out as question marks."""
    evil = "a\x1b[2J\rb"
    assert found.placement_after is not None
    named = replace(
        found,
        provider=replace(found.provider, name=CUDA),
        before=replace(found.before, name=evil),
        agreement=replace(
            found.agreement,
            reason=evil,
            outputs=tuple(replace(o, name=evil) for o in found.agreement.outputs),
        ),
        placement_after=replace(found.placement_after, cpu_nodes=((evil, evil),)),
        latency=tuple(replace(row, dims=((evil, 1),)) for row in found.latency),
        paths=tuple(replace(row, dims=((evil, 1),)) for row in found.paths),
        counted_at=((evil, 1),),
        notes=(evil,),
    )
    gates = [GateResult(Gate("launches", 0.0), evil)]
    shown = text.to_text(named, gates, width=200)
    assert shown.count("a?[2J b") >= 12
    assert "\x1b" not in shown
    assert "\r" not in shown


def test_gates_share_a_line_unless_they_fail(found: Comparison) -> None:
    """What held is one line, each failure its own."""
    results = [
        GateResult(Gate(name, 0.0), said)
        for name, said in (("launches", ""), ("memory", "4 -> 5 bytes"), ("mismatch", ""))
    ]
    last = text.to_text(found, results).splitlines()[-2:]
    assert last == ["gate failed: memory: 4 -> 5 bytes", "gates held: launches, mismatch"]
    assert "gate" not in text.to_text(found, ())


def test_doctests() -> None:
    """The examples hold."""
    for module in (text, compare_parts, conditions):
        result = doctest.testmod(module)
        assert (result.failed, result.attempted > 0) == (0, True)
