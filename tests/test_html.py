"""The page: complete, harmless, small, and true."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto

import onnx_sched
from onnx_sched.analysis import analyse
from onnx_sched.cli import cli
from onnx_sched.errors import UsageError
from onnx_sched.files import Source
from onnx_sched.plan import Refusal
from onnx_sched.report import charts, circuit_view, plan_text, saving
from onnx_sched.report.codes import CODES
from onnx_sched.report.data import Change, LatencyRow, Report
from onnx_sched.report.draw_svg import to_svg
from onnx_sched.report.headline import headline
from onnx_sched.report.html import small, to_html
from onnx_sched.report.layer_table import layer_rows
from onnx_sched.report.scene import Scene
from onnx_sched.report.text import to_text
from tests.nets import committed
from tests.pages import HOSTILE, REPORT, VOID, Page, raced, towers

MODELS = Path(__file__).parent.parent / "models"
LIMIT = 300_000


def scene(model: ModelProto | Path) -> Scene:
    return onnx_sched.optimize(model, choose="always", check=False).scene()


@pytest.fixture(scope="module")
def plain() -> Scene:
    return scene(towers(4, 3, odd=True))


@pytest.fixture(scope="module")
def mmoe() -> Scene:
    return onnx_sched.optimize(MODELS / "mmoe.onnx", choose="always", provider="cpu").scene()


def test_well_formed(mmoe: Scene) -> None:
    """Every tag is closed, in order, and no name is used twice."""
    page = Page(to_html(mmoe, "onnx-sched plan"))
    assert page.open == []
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids)) > 4
    assert {a["href"][1:] for t, a in page.tags if t == "a"} <= set(ids)


def test_asks_nobody(mmoe: Scene) -> None:
    """No script, no request: nothing in the page refers to anything outside of it."""
    html = to_html(mmoe)
    page = Page(html)
    assert not {"script", "iframe", "object", "embed", "img", "form", "base"} & {
        tag for tag, _ in page.tags
    }
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "xlink:href", "action", "data"):
            value = attributes.get(name, "#")
            assert value.startswith("#") or (tag, value) == ("link", "data:,")
    assert "url(" not in html
    assert "@import" not in html
    assert set(re.findall(r"\w+://[^\"' <]*", html)) <= {"http://www.w3.org/2000/svg"}
    policy = next(a["content"] for t, a in page.tags if "http-equiv" in a)
    assert policy.startswith("default-src 'none'")


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:12]))
def test_names_are_words(plain: Scene, name: str) -> None:
    """Whatever nodes are called, the page is the same but for words."""
    page = Page(to_html(scene(towers(4, 3, [name], odd=True)), name))
    assert page.skeleton == Page(to_html(plain, "n")).skeleton
    assert page.open == []
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", page.text)


def test_names_can_be_read(plain: Scene) -> None:
    """A hostile name is shown, not hidden: the reader sees what the model says."""
    page = Page(to_html(scene(towers(4, 3, [HOSTILE[0]], odd=True))))
    assert f"{HOSTILE[0]}0.0" in page.text


@pytest.mark.parametrize(("lanes", "depth"), [(10, 100), (100, 10)])
def test_size(lanes: int, depth: int) -> None:
    """The page of a model of 2,000 nodes with long, hostile names stays below 300 KB."""
    model = towers(lanes, depth, [name[:200] for name in HOSTILE], odd=True)
    assert len(model.graph.node) == 2001
    html = to_html(scene(model))
    assert len(html.encode()) < LIMIT
    assert "not drawn" in html or re.search(r">x\d+: L", html)  # left out, or folded


@pytest.mark.parametrize("most", [28_000, 34_000, 1_000_000])
def test_circuits_are_small(most: int) -> None:
    """A drawing is as large as it may be at most, as whole as it can be, and says what it leaves out."""
    picture = circuit_view.before(analyse(Source(committed("headlocal_transformer"), None)))
    svg = small(picture, most)
    assert len(svg.encode()) <= most
    assert ("not drawn" in svg) == (most < len(to_svg(picture, width=1010).encode()))


def test_all_is_there(mmoe: Scene) -> None:
    """Verdict, numbers, both circuits, agreement, groups, layers, memory, environment, command."""
    page = Page(to_html(mmoe, "onnx-sched optimize 'a b.onnx'"))
    report = mmoe.report
    said = (
        headline(report).line,
        f"{report.nodes.before} \N{RIGHTWARDS ARROW} {report.nodes.after}",
        "Before",
        "After",
        "within tolerance",
        *(o.name for o in report.outputs),
        *(f"{g.size} {g.op_type} \N{RIGHTWARDS ARROW} 1" for g in report.groups),
        *(w for r in report.regions for w in (plan_text.glue(r), *plan_text.gains(r))),
        "Layer by layer",
        "Memory over the schedule",
        "CPUExecutionProvider",
        "onnx-sched optimize 'a b.onnx'",
    )
    for words in said:
        assert words in page.text
    assert sum(tag == "svg" for tag, _ in page.tags) == 1 + 2 + 2


def test_left_alone(plain: Scene) -> None:
    """What was left alone stands there with its code, reason, nodes and advice."""
    assert plain.report.refusals
    page = Page(to_html(plain))
    for refusal in plain.report.refusals:
        known = CODES[refusal.code]
        for words in (refusal.code, known.title, known.advice, refusal.reason, *refusal.nodes[:3]):
            assert words in page.text


def test_unchanged() -> None:
    """A model that is left as it is shows itself once, and why."""
    page = Page(to_html(scene(MODELS / "near_dynamic_dims.onnx")))
    assert "Left as it is" in page.text
    assert "As it is" in page.text
    assert "After" not in page.text
    assert "S103 (shapes differ)" in page.text


def test_no_time_of_day(mmoe: Scene) -> None:
    """No date and no time of day, so that equal runs give equal pages."""
    html = to_html(mmoe)
    body = html.split('id="environment"')[0]
    assert not re.search(r"\b\d{4}-\d\d-\d\d\b|\b\d\d:\d\d(:\d\d)?\b|20[2-9]\d", body)
    assert html == to_html(mmoe)


def test_notes() -> None:
    """Notes stand there as words."""
    base = scene(towers(2, 1))
    noted = replace(base, report=replace(base.report, notes=("mind <this>",)))
    assert "mind <this>" in Page(to_html(noted)).text


RATIOS = st.floats(0.2, 9).map(lambda x: round(x, 3))


@given(st.lists(st.tuples(RATIOS, RATIOS, RATIOS), min_size=1, max_size=4))
def test_bars(drawn: list[tuple[float, float, float]]) -> None:
    """Bars are in the ratio of the times, whiskers end at the interval, and nothing sticks out."""
    triples = [tuple(sorted(t)) for t in drawn]
    rows = [LatencyRow({}, 1, 1, 1, ratio, low, high, 9) for low, ratio, high in triples]
    longest = charts.reach(rows)
    for row in rows:
        svg = charts.bars(row, longest)
        before, after = map(float, re.findall(r'rect [^>]* width="([\d.]+)"', svg))
        left, right = map(float, re.findall(r'd="M([\d.]+) \d+H([\d.]+)', svg)[0])
        assert after / before == pytest.approx(1 / row.speedup, abs=2e-3)
        assert left / before == pytest.approx(1 / row.ci_high, abs=2e-3)
        assert right / before == pytest.approx(1 / row.ci_low, abs=2e-3)
        assert max(before, after, right) <= charts.WIDE


@pytest.mark.parametrize(
    ("report", "tone", "line"),
    [
        (raced((1.1, 1.2, 1.3)), "good", "1.20x faster"),
        (raced((1.1, 1.2, 1.3), (1.8, 2.0, 2.2)), "good", "1.20x to 2.00x faster"),
        (
            raced((0.9, 1.0, 1.3), (1.8, 2.0, 2.2)),
            "good",
            "Up to 2.00x faster, in 1 of 2 conditions; slower in none",
        ),
        (raced((0.9, 1.05, 1.1)), "plain", "No measurable difference"),
        (raced((1.1, 1.2, 1.3), (0.7, 0.8, 0.9)), "bad", "Slower: 0.80x at batch=2, 1 thread"),
        (REPORT, "plain", "20 nodes became 8"),
        (replace(REPORT, status="unchanged"), "plain", "Left as it is"),
    ],
)
def test_headline(report: Report, tone: str, line: str) -> None:
    """The verdict says what the intervals say, and nothing more."""
    assert (headline(report).tone, headline(report).line) == (tone, line)


def test_headline_of_the_outputs() -> None:
    """The sentence below says how the outputs compare."""
    assert "agree within tolerance in 6 runs (largest difference 1.5e-06)" in headline(REPORT).below
    assert "DISAGREE" in headline(replace(REPORT, verdict="mismatch")).below
    same = replace(REPORT, verdict="bitwise")
    assert "equal bit for bit in 6 runs" in headline(same).below
    blind = replace(REPORT, verdict="unvalidated", verdict_reason="it was forbidden")
    assert "not compared: it was forbidden" in headline(blind).below
    left = replace(REPORT, status="unchanged", refusals=(Refusal("S103", "r", ("a", "b")),))
    assert headline(left).below == "Why: 2 nodes S103 (shapes differ)."


@pytest.mark.parametrize("name", ["grouped_mlp", "mmoe", "headlocal_transformer"])
def test_layers_add_up(name: str) -> None:
    """The rows of the layer table stand for every layer and every node once."""
    made = scene(MODELS / f"{name}.onnx")
    rows = layer_rows(made)
    notes = made.before.annotation
    assert sum(r.times for r in rows) == notes.depth
    assert sum(r.times * r.nodes for r in rows) == len(notes.ops)
    assert {n for r in rows for n in re.findall(r"L\d+", r.label)} <= {
        f"L{n}" for n in range(notes.depth)
    }


# -- files ----------------------------------------------------------------------------------------


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(cli, [*map(str, arguments)])


def test_command(tmp_path: Path) -> None:
    """`--report` writes every form, with the exact command; JSON is that of `--json`."""
    files = [tmp_path / f"r.{suffix}" for suffix in ("html", "md", "json", "TXT")]
    flags = [w for file in files for w in ("--report", str(file))]
    model = MODELS / "mmoe.onnx"
    result = run("plan", model, "--choose", "always", "--no-check", "--json", *flags)
    assert result.exit_code == 0, result.output
    html, markdown, data, text = (file.read_text("utf-8") for file in files)
    command = f"onnx-sched plan {model} --choose always --no-check --json"
    assert command in Page(html).text
    assert command in markdown
    assert json.loads(data) == json.loads(result.stdout)
    assert text.startswith(f"{model}   opset 17")


def test_txt_is_the_screen(mmoe: Scene, tmp_path: Path) -> None:
    """The text form is what the terminal shows."""
    saving.save(mmoe, tmp_path / "r.txt")
    assert (tmp_path / "r.txt").read_text("utf-8") == to_text(mmoe.report)


@pytest.mark.parametrize("command", ["plan", "optimize", "merge"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("r.pdf", "ends in .pdf"),
        ("r", "has no suffix"),
        ("no/such/r.html", "no folder"),
        ("folder.html", "is a directory"),
        ("model.html", "another file of this run"),
    ],
)
def test_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str, said: str
) -> None:
    """A report that cannot be written is refused before any work is done, with advice."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "model.html").write_bytes((MODELS / "mmoe.onnx").read_bytes())
    there = sorted(tmp_path.iterdir())
    models = {"plan": ["model.html"], "optimize": ["model.html", "-o", "out.onnx"]}
    output = "model.html" if name == "model.html" else "out.onnx"
    merged = ["a.onnx", "b.onnx", "-o", output]
    if command == "merge":
        for model in merged[:2]:
            (tmp_path / model).write_bytes((MODELS / "mmoe.onnx").read_bytes())
        there = sorted(tmp_path.iterdir())
    result = run(command, *models.get(command, merged), "--report", name)
    assert result.exit_code == 2
    assert said in result.output
    assert "hint: " in result.output
    assert sorted(tmp_path.iterdir()) == there


def test_same_file_twice(tmp_path: Path) -> None:
    """Two reports in one file are a mistake."""
    with pytest.raises(UsageError):
        saving.check([tmp_path / "r.md", tmp_path / "r.md"], "--report", [], saving.SUFFIXES)


def test_void_tags() -> None:
    """The kit that takes pages apart sees what is not closed and what is closed twice."""
    assert Page("<p><b>x</b>").open == ["p"]
    with pytest.raises(AssertionError):
        Page("<p></b></p>")
    assert "br" in VOID


def test_tiles_without_numbers(plain: Scene) -> None:
    """What was not measured is not shown."""
    page = Page(to_html(plain))
    assert "Peak memory" not in page.text
    full = replace(plain, report=replace(plain.report, peak=Change(1024, 1024)))
    assert "Peak memory 1.0 KiB same" in Page(to_html(full)).text


@settings(max_examples=8, deadline=None)
@given(text=st.text(max_size=40))
def test_any_command(plain: Scene, text: str) -> None:
    """Whatever the command line held, it is words."""
    page = Page(to_html(plain, "x" + text))
    assert page.skeleton == Page(to_html(plain, "x")).skeleton
