"""The screen of `optimize`: every line fits, every group has one, and no name does harm."""

from __future__ import annotations

import doctest
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import onnx_sched
from onnx_sched.objections import GROWTH
from onnx_sched.plan import Refusal
from onnx_sched.report import fitted, text
from onnx_sched.report.data import Change, GroupRow, Report
from onnx_sched.report.harmless import harmless
from onnx_sched.report.text import to_text
from tests.pages import HOSTILE, REPORT, raced

MODELS = Path(__file__).parent.parent / "models"


@pytest.fixture(scope="module", name="report")
def _report() -> Report:
    found = onnx_sched.optimize(MODELS / "headlocal_transformer.onnx", choose="always", check=False)
    return replace(found.report, latency=raced((1.1, 1.2, 1.3)).latency)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_lines(report: Report, width: int) -> None:
    """No line is wider than it may be; every row of groups is one line; no line ends in blanks."""
    lines = to_text(report, width).split("\n")
    assert max(map(cell_len, lines)) <= width
    assert lines == [line.rstrip() for line in lines]
    kinds = {(g.op_type, g.size, g.form) for g in report.groups}
    assert sum(" -> 1 (" in line for line in lines) == len(kinds)
    assert any(line.startswith("batched") for line in lines)
    assert any(line.startswith("left alone") for line in lines)


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        (1024, 3635, True),
        (1024, 1024 + GROWTH, True),
        (1024, 1025 + GROWTH, False),
        (1024, 1024, False),
        (1024, 512, False),
    ],
)
def test_a_peak_that_grew_says_why_it_may(before: int, after: int, allowed: bool) -> None:
    """The allowance stands beside a growth that it covers, and nowhere else."""
    shown = to_text(replace(REPORT, peak=Change(before, after)))
    (row,) = [line for line in shown.split("\n") if line.startswith("peak activations")]
    assert ("16 MiB more are always allowed" in row) == allowed
    assert "ONNX Runtime profile" in row


@pytest.mark.parametrize(("ran", "adds"), [(7, False), (8, False), (9, True)])
def test_more_dispatches_than_nodes_are_accounted_for(ran: int, adds: bool) -> None:
    """Where more runs than the file holds, the runtime added it, and the row says so."""
    shown = to_text(replace(REPORT, dispatches=Change(18, ran)))
    (row,) = [line for line in shown.split("\n") if line.startswith("node dispatches")]
    assert "after ORT's own fusions" in row
    assert ("layout nodes it adds" in row) == adds


def test_a_ratio_of_pairs_is_called_so() -> None:
    """The median over pairs is not the quotient of the two medians beside it: the header tells."""
    assert "paired speed-up [95% interval]" in to_text(raced((1.1, 1.2, 1.3)))


def test_a_norm_is_no_convolution() -> None:
    """A norm between convolutions keeps their layout; a product in that form is one."""
    groups = [
        GroupRow(op, 4, 1, "conv_t", "n", ("a", "b")) for op in ("LayerNormalization", "Gemm")
    ]
    shown = to_text(replace(REPORT, groups=tuple(groups)))
    assert "4 LayerNormalization -> 1 (in conv_t's layout)" in shown
    assert "4 Gemm -> 1 (conv_t)" in shown


def test_the_way_on(report: Report) -> None:
    """Where something was left alone, the screen says how to learn more."""
    assert f"`onnx-sched explain {report.refusals[0].code}`" in to_text(report)
    assert "explain" not in to_text(REPORT)


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:12]))
def test_hostile_names(name: str) -> None:
    """Names from hell print in lines of their width, without control characters."""
    report = replace(
        REPORT,
        model=name,
        groups=(GroupRow(name, 2, 1, "stacked", name, (name, name)),),
        refusals=(Refusal("S103", f"because {name}", (name,)),),
        notes=(f"note {name}",),
    )
    shown = to_text(report, 100)
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert max(map(cell_len, shown.split("\n"))) <= 100


@given(st.lists(st.text(min_size=1, max_size=12), max_size=6), st.integers(16, 60))
def test_fitted(names: list[str], width: int) -> None:
    """A line of names is as wide as it may be at most, and accounts for every name."""
    line = fitted.fitted(names, width)
    assert cell_len(line) <= width
    if names:
        listed = line.split(" and ")[-1].split(" more")[0] if " more" in line else "0"
        assert listed.isdigit()
        assert len(names) - int(listed) in range(1, fitted.SHOWN + 1)
    else:
        assert line == ""


@given(st.text(max_size=40), st.integers(3, 30))
def test_ending(name: str, limit: int) -> None:
    """A name that is cut keeps its end: that is where names differ."""
    shown = fitted.ending(name, limit)
    whole = harmless(name, 200) or "?"
    assert cell_len(shown) <= limit
    assert shown == whole or (shown.startswith("…") and whole.endswith(shown[1:]))


def test_doctests() -> None:
    """The examples in the documentation of functions hold."""
    for module in (text, fitted):
        found = doctest.testmod(module)
        assert found.attempted
        assert not found.failed
