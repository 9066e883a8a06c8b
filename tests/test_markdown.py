"""The report as Markdown: whole tables, and names that stay names."""

from __future__ import annotations

import doctest
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

import onnx_sched
from onnx_sched.plan import Refusal
from onnx_sched.report import markdown, plan_text
from onnx_sched.report.codes import CODES
from onnx_sched.report.data import AgreementRow, GroupRow, RegionRow
from onnx_sched.report.harmless import harmless
from onnx_sched.report.headline import headline
from onnx_sched.report.markdown import code, table, to_markdown, words
from tests.pages import HOSTILE, REPORT, raced

MODELS = Path(__file__).parent.parent / "models"
OWN = {"<details>", "<summary>", "</summary>", "</details>"}


def tokens(text: str) -> list[Token]:
    """What a renderer makes of a text, as GitHub does: tables, and links without brackets."""
    reader = MarkdownIt("commonmark").enable("table")
    found: list[Token] = []
    for token in reader.parse(text):
        found += [token, *(token.children or [])]
    return found


def kinds(text: str) -> list[str]:
    return [t.type for t in tokens(text) if t.type not in ("text", "softbreak")]


def spans(text: str) -> list[str]:
    return [t.content for t in tokens(text) if t.type == "code_inline"]


def html(text: str) -> set[str]:
    """The tags that get through."""
    raw = [t.content for t in tokens(text) if t.type in ("html_block", "html_inline")]
    return {tag for content in raw for tag in re.findall("<[^>]*>", content)}


def rows(text: str) -> list[int]:
    """The number of cells of every row of every table."""
    counts: list[int] = []
    for token in tokens(text):
        if token.type == "tr_open":
            counts.append(0)
        elif token.type in ("td_open", "th_open"):
            counts[-1] += 1
    return counts


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:12]))
def test_a_name_is_one_code_span(name: str) -> None:
    """Whatever a node is called, it is one code span, alone and in a table, and reads as it is."""
    span = code(name)
    assert kinds(span) == kinds("`x`")
    shown = table(("a", "b"), [(span, "c"), (span, span)])
    assert kinds(shown) == kinds(table(("a", "b"), [("`x`", "c"), ("`x`", "`x`")]))
    assert spans(shown) == [harmless(name, markdown.NAME)] * 3


@given(st.text(max_size=30))
def test_any_name(name: str) -> None:
    """The same for any text."""
    shown = table(("a", "b"), [(code(name), "c")])
    assert kinds(shown) == kinds(table(("a", "b"), [("`x`", "c")]))


@pytest.mark.parametrize("text", HOSTILE, ids=lambda name: repr(name[:12]))
def test_words_are_words(text: str) -> None:
    """A sentence out of a model is neither a tag, nor a link, nor emphasis, nor a mention."""
    found = words(f"see {text}")
    assert set(kinds(found)) <= {"paragraph_open", "inline", "paragraph_close"}
    assert "@someone" not in found
    assert "://" not in found


def hostile(name: str) -> str:
    report = replace(
        REPORT,
        model=name,
        provider_note=name,
        groups=(GroupRow(name, 2, 1, "stacked", name, (name, name)),),
        regions=(RegionRow(1, name, 2, 1, 4, 2, ((name, 1),), "cpu", ()),),
        refusals=(Refusal("S103", f"because {name}", (name,)),),
        outputs=(AgreementRow(name, 1.0, None, 2, False),),
        notes=(f"note {name}",),
    )
    return to_markdown(report, f"onnx-sched {name}")


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:12]))
def test_names_change_nothing(name: str) -> None:
    """Names from hell change no structure: the same tables, the same cells, no tag but our own."""
    found, plain = hostile(name), hostile("n")
    assert kinds(found) == kinds(plain)
    assert rows(found) == rows(plain)
    assert html(found) == OWN


def test_all_is_there() -> None:
    """Verdict, numbers, races, groups, refusals with advice, agreement, environment and command."""
    report = onnx_sched.optimize(
        MODELS / "near_unequal_widths.onnx", choose="always", provider="cpu"
    ).report
    text = to_markdown(replace(report, latency=raced((1.1, 1.2, 1.3)).latency), "onnx-sched plan x")
    assert text.startswith("### ")
    for said in (
        headline(report).below.split(".", maxsplit=1)[0],
        f"| nodes | {report.nodes.before} | {report.nodes.after} |",
        "**1.20x** | 1.10 to 1.30 | faster",
        f"Batched: {len(report.groups)} groups",
        f"By region: {len(report.regions)}",
        words(plan_text.glue(report.regions[0])),
        words(plan_text.gains(report.regions[0])[0]),
        "`S103`",
        CODES["S103"].advice,
        "Agreement: within tolerance",
        "`onnx-sched plan x`",
    ):
        assert said in text
    assert html(text) == OWN
    assert set(rows(text)) == {4, 6, 5}


def test_long_tables_are_cut() -> None:
    """A table shows its first rows, and says how many more there are; none for no rows."""
    text = table(("a",), [(str(n),) for n in range(100)])
    assert rows(text) == [1] * (markdown.ROWS + 1)
    assert f"and {100 - markdown.ROWS} more rows" in text
    assert table(("a",), []) == ""


def test_doctests() -> None:
    """The examples in the documentation of functions hold."""
    assert doctest.testmod(markdown).failed == 0
