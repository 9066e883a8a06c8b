"""The report: its JSON follows the schema that is shipped, its text tells it, and names are inert in it."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from importlib import resources
from typing import Any

import jsonschema
import pytest
from rich.console import Console

import onnx_sched
from onnx_sched.plan import Refusal
from onnx_sched.report.data import AgreementRow, Change, GroupRow, LatencyRow, Report
from onnx_sched.report.text import render, size, speed_words, to_text
from tests.nets import COMMITTED, FOLDER

SCHEMA: dict[str, Any] = json.loads(
    resources.files("onnx_sched.report").joinpath("schema.json").read_text("utf-8")
)

FULL = Report(
    status="optimized",
    provider="CPUExecutionProvider",
    provider_note="auto: no CUDA device",
    model="model.onnx",
    opset=17,
    ir_version=8,
    nodes=Change(146, 40),
    depth=Change(26, 28),
    lanes=4,
    dispatches=Change(98, 28),
    groups=(
        GroupRow("MatMul", 4, 1, "stacked", "a_x4", ("a0", "a1", "a2", "a3")),
        GroupRow("MatMul", 4, 3, "stacked", "b_x4", ("b0", "b1", "b2", "b3")),
        GroupRow("Conv", 2, 5, "wide_conv", "c_x2", ("c0", "c1"), "If/then_branch"),
    ),
    refusals=(
        Refusal("S101", "MatMul: each stands alone", ("p", "q")),
        Refusal("S204", "opset 3 is outside 7 to 28", ()),
    ),
    verdict="within_tolerance",
    verdict_reason="",
    outputs=(
        AgreementRow("y", 1.25e-7, 3e-6, 4, False),
        AgreementRow("z", None, None, None, True),
    ),
    checks=6,
    peak=Change(16384, 24576),
    peak_source="ONNX Runtime profile",
    seconds=1.25,
    latency=(
        LatencyRow({"batch": 1}, 1, 120.04, 80.0, 1.5, 1.45, 1.55, 40),
        LatencyRow({"batch": 32}, 0, 200.0, 200.0, 1.0, 0.97, 1.03, 160),
        LatencyRow({}, 4, 100.0, 125.0, 0.8, 0.78, 0.82, 40),
    ),
    notes=("one note",),
)
EMPTY = Report(
    status="unchanged",
    provider="",
    provider_note="",
    model="the model",
    opset=17,
    ir_version=8,
    nodes=Change(3, 3),
    depth=Change(2, 2),
    lanes=1,
    dispatches=Change(None, None),
    groups=(),
    refusals=(),
    verdict="bitwise",
    verdict_reason="the model is unchanged",
    outputs=(),
    checks=0,
    peak=Change(None, None),
    peak_source="not measured",
    seconds=0.01,
)


def validate(report: Report) -> None:
    """Hold a report's JSON against the schema, once it has been through JSON."""
    text = json.dumps(report.to_dict(), allow_nan=False)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(text))


def test_the_schema_is_one() -> None:
    """The shipped schema is valid by its own draft, and says which."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("report", [FULL, EMPTY], ids=["full", "empty"])
def test_reports_follow_the_schema(report: Report) -> None:
    """All there is to tell, and next to nothing: both are valid, and no key is unknown to the schema."""
    validate(report)
    assert set(report.to_dict()) == set(SCHEMA["properties"])


@pytest.mark.parametrize("name", COMMITTED)
def test_reports_of_real_runs_follow_the_schema(name: str) -> None:
    """A checked run of every committed model gives a valid report."""
    result = onnx_sched.optimize(FOLDER / f"{name}.onnx", choose="always", dims={}, seed=1)
    validate(result.report)


def _deepest(schema: dict[str, Any], path: str = "") -> list[tuple[str, set[str], set[str]]]:
    """Every object of a schema: where it is, what it requires, and what it knows."""
    found = []
    if "properties" in schema:
        found.append((path, set(schema.get("required", ())), set(schema["properties"])))
    for key, value in schema.items():
        if isinstance(value, dict):
            found += _deepest(value, f"{path}/{key}")
    return found


def test_the_schema_requires_what_it_knows() -> None:
    """Scripts may rely on every key; only what came later may be missing."""
    for path, required, known in _deepest(SCHEMA):
        assert required <= known | {"before", "after"}, path
        assert known - required <= {"body"}, path


BROKEN: dict[str, dict[str, Any]] = {
    "no status": {"status": None},
    "another version": {"schema_version": "2"},
    "another status": {"status": "faster"},
    "a verdict of its own": {"agreement": {**FULL.to_dict()["agreement"], "verdict": "fine"}},
    "a group of one": {"groups": [{**FULL.to_dict()["groups"][0], "size": 1}]},
    "a code of its own": {"refusals": [{"code": "X1", "reason": "because", "nodes": []}]},
    "a count that is text": {"nodes": {"before": "3", "after": 3}},
    "a latency without interval": {"latency": [{"dims": {}, "speedup": 1.0}]},
    "a peak without source": {"peak_activation_bytes": {"before": 1, "after": 1}},
}


@pytest.mark.parametrize("what", BROKEN)
def test_the_schema_refuses_what_is_no_report(what: str) -> None:
    """A value out of place, or a key that is missing, is noticed."""
    broken = {**FULL.to_dict(), **BROKEN[what]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(broken)


# -- text ----------------------------------------------------------------------------------------------

TOLD = (
    r"model\.onnx +opset 17, IR 8, 146 nodes, 4 wires",
    r"provider CPUExecutionProvider \(auto: no CUDA device\)",
    r"nodes +146 +40 +-73%",
    r"parallel layers +26 +28 +\+8%",
    r"node dispatches per run +98 +28 +-71%",
    r"peak activations +16\.0 KiB +24\.0 KiB +\+50% +16 MiB more are always allowed; ONNX Runtime profile",
    r"batch=1, 1 thread +120\.0 us +80\.0 us +1\.50x \[1\.45, 1\.55\] faster",
    r"batch=32, all threads +200\.0 us +200\.0 us +1\.00x \[0\.97, 1\.03\] not significant",
    r"as declared, 4 threads +100\.0 us +125\.0 us +0\.80x \[0\.78, 0\.82\] SLOWER",
    r"agreement +within tolerance, max abs 1\.2e-07, 2 output\(s\), 6 runs compared",
    r"batched +2 x +4 MatMul -> 1 \(stacked\) +a0, a1",
    r"2 Conv -> 1 \(wide_conv\) +c0, c1",
    r"left alone +S101 +2 nodes, MatMul: each stands alone +p, q",
    r"S204 +opset 3 is outside 7 to 28",
    r"one note",
)
"""What the text says, each once."""


def test_the_text_tells_everything_once() -> None:
    """Numbers before and after, latencies with their intervals, the verdict, groups folded, reasons."""
    text = to_text(FULL)
    for told in TOLD:
        assert len(re.findall(told, text)) == 1, told
    places = [re.search(told, text) for told in TOLD]
    begins = [place.start() for place in places if place is not None]
    assert begins == sorted(begins)


def test_what_was_not_taken_is_not_shown() -> None:
    """No provider, no dispatches, no latency, no groups: their lines are left out."""
    text = to_text(EMPTY)
    for word in ("provider", "dispatches", "latency", "batched", "left alone", "peak"):
        assert word not in text
    assert "bit for bit equal (the model is unchanged)" in text


NASTY = {
    "markup": "[bold red]x[/bold red][/]",
    "a link": "[link=file:///etc/passwd]x[/link]",
    "an escape": "\x1b[31mred\x1b[0m",
    "a title": "\x1b]0;owned\x07",
    "8-bit escapes": "\x9b31m\x9d0;owned\x9c",
    "a carriage return": "ok\rnot ok",
    "backspaces": "x\b\b\b\bfine",
    "a line break": "one\ntwo",
    "ten kilobytes": "n" * 10_240,
    "braces": "{0} {name} %s",
    "right to left": "a\u202egnp.exe",
}


def with_names(name: str) -> Report:
    """A report in which everything that comes from a model has one name."""
    return replace(
        FULL,
        model=name,
        provider_note=name,
        groups=(GroupRow(name, 2, 1, "stacked", name, (name, name), name),),
        refusals=(Refusal("S101", f"MatMul: {name}", (name,) * 5),),
        outputs=(AgreementRow(name, 1e-7, 1e-6, 2, False),),
        verdict_reason=name,
        latency=(LatencyRow({name: 3}, 1, 2.0, 1.0, 2.0, 1.9, 2.1, 40),),
        notes=(name,),
    )


CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


@pytest.mark.parametrize("what", NASTY)
@pytest.mark.parametrize("color", [False, True], ids=["plain", "colour"])
def test_names_of_a_model_are_inert(what: str, color: bool) -> None:
    """No name moves the cursor, changes a colour or is taken for markup; no name breaks the rendering."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=120,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
    )
    console.print(render(with_names(NASTY[what])))
    text = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()) if color else stream.getvalue()
    if color:  # the styles of the report itself, and none that a name asks for
        assert "\x1b[31m" not in stream.getvalue().replace("\x1b[0m", "")
        assert "\x1b]8" not in stream.getvalue()
    assert not CONTROL.search(text)
    if what in ("markup", "a link", "braces"):
        whole = "".join(line.strip() for line in text.splitlines())
        assert whole.replace(" ", "").count(NASTY[what].replace(" ", "")) >= 6


@pytest.mark.parametrize("what", NASTY)
def test_json_keeps_names_as_they_are(what: str) -> None:
    """In JSON a name is data: it comes back as it was."""
    report = with_names(NASTY[what])
    validate(report)
    back = json.loads(json.dumps(report.to_dict()))
    assert back["groups"][0]["members"] == [NASTY[what]] * 2
    assert list(back["latency"][0]["dims"]) == [NASTY[what]]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3 << 20, "3.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (7 << 40, "7168.0 GiB"),
    ],
)
def test_bytes_have_units(count: int, text: str) -> None:
    """Bytes are told in the largest unit that leaves a number above one."""
    assert size(count) == text


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (1.01, 1.2, "faster"),
        (0.8, 0.99, "SLOWER"),
        (0.99, 1.2, "not significant"),
        (1.0, 1.0, "not significant"),
    ],
)
def test_a_speed_up_is_named_only_if_the_interval_leaves_one_out(
    low: float, high: float, word: str
) -> None:
    """Faster or slower is said where the whole interval says so."""
    row = LatencyRow({}, 1, 1.0, 1.0, (low + high) / 2, low, high, 40)
    assert speed_words(row)[1] == word


@pytest.mark.parametrize("width", [60, 80, 200])
def test_any_width_will_do(width: int) -> None:
    """Narrow terminals wrap; no line is wider than asked, and no number is lost."""
    text = to_text(FULL, width)
    assert max(map(len, text.splitlines())) <= width
    for number in ("146", "1.50x", "[0.78,", "S204"):
        assert number in text
