"""Refusal codes: each is documented, and the documentation is true."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import onnx_sched
from onnx_sched.cli import cli
from onnx_sched.errors import UsageError
from onnx_sched.report import codes
from onnx_sched.report.codes import CODES, FAMILIES, Code, looks_like_code, lookup
from tests.nets import net, numbers

SOURCES = Path(onnx_sched.__file__).parent
SHOWN = [code for code in CODES.values() if code.example]


def emitted() -> dict[str, list[str]]:
    """Every code that stands in the sources as a string, and the files in which it does."""
    found: dict[str, list[str]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        if path.name != "codes.py":
            for code in re.findall(r"""["'](S\d{3})["']""", path.read_text("utf-8")):
                found.setdefault(code, []).append(path.name)
    return found


def test_documented() -> None:
    """What the package can say is documented, and what is documented the package can say."""
    found = emitted()
    assert len(found) >= 10
    assert sorted(found) == sorted(CODES)


def test_order_and_families() -> None:
    """Codes ascend, and belong to a family."""
    assert list(CODES) == sorted(CODES)
    assert {code[1] for code in CODES} == set(FAMILIES)
    assert all(code.family == FAMILIES[name[1]] for name, code in CODES.items())


@pytest.mark.parametrize("code", CODES.values(), ids=str)
def test_words(code: Code) -> None:
    """A code has a short title, whole sentences for meaning and advice, and no blank to fill in."""
    assert 0 < len(code.title) <= 45
    assert not code.title.endswith(".")
    for text in (code.meaning, code.advice):
        assert text.endswith((".", ")"))
        assert len(text.split()) >= 3
        assert "  " not in text


def run(code: Code) -> Any:
    """What becomes of a code's example."""
    options: dict[str, Any] = {"choose": "always", "check": False}
    opset = 17
    if code.flags == "--choose model":
        options["choose"] = "model"
    elif code.flags == "--skip-op MatMul":
        options["skip_ops"] = ["MatMul"]
    elif code.flags == "--time-limit 0":
        options = {"choose": "measured", "time_limit": 0, "provider": "cpu"}
    elif code.flags == "--choose measured":
        options = {"choose": "measured", "provider": "cpu"}
    elif code.flags == "an opset of 6":
        opset = 6
    else:
        assert code.flags == ""
    weights = {name: numbers(*shape, seed=ord(name)) for name, shape in code.weights}
    return onnx_sched.optimize(net(code.example, weights, opset=opset), **options)


@pytest.mark.parametrize("code", SHOWN, ids=lambda code: code.code)
def test_example(code: Code) -> None:
    """The example of a code brings out this code, and none else."""
    assert {r.code for r in run(code).plan.refusals} == {code.code}


def test_most_codes_have_an_example() -> None:
    """Words must do only where a small model of random weights cannot show it."""
    silent = ["S304", "S305", "S306", "S402"]
    assert sorted(set(CODES) - {code.code for code in SHOWN}) == silent


@pytest.mark.parametrize("text", ["S103", "s103"])
def test_lookup(text: str) -> None:
    """Case does not matter."""
    assert lookup(text) is CODES["S103"]


@pytest.mark.parametrize(("text", "meant"), [("S1O3", "S103"), ("S130", "S103"), ("103", "S103")])
def test_did_you_mean(text: str, meant: str) -> None:
    """A misspelt code is an error that names the code that was meant."""
    assert looks_like_code(text)
    with pytest.raises(UsageError) as caught:
        lookup(text)
    assert meant in caught.value.hint


def test_nothing_like_a_code() -> None:
    """A code that is like none says where to find all."""
    with pytest.raises(UsageError) as caught:
        lookup("X999999")
    assert "Did you mean" not in caught.value.hint
    assert "onnx-sched explain" in caught.value.hint


@pytest.mark.parametrize("text", ["model.onnx", "S103.onnx", "./S103", "model"])
def test_no_code(text: str) -> None:
    """A file's name is not taken for a code."""
    assert not looks_like_code(text)


def test_command_lists_all() -> None:
    """`explain` alone lists every code with its title."""
    result = CliRunner().invoke(cli, ["explain"])
    assert result.exit_code == 0
    for code in CODES.values():
        assert re.search(rf"{code.code} +{re.escape(code.title)}", result.output)


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.code)
def test_command(code: Code) -> None:
    """`explain CODE` says all that is known, as text and as JSON."""
    result = CliRunner().invoke(cli, ["explain", code.code.lower()])
    assert result.exit_code == 0
    said = " ".join(result.output.split())
    for text in (code.code, code.title, code.family, code.meaning, code.advice, code.example):
        assert " ".join(text.split()) in said
    data = json.loads(CliRunner().invoke(cli, ["explain", code.code, "--json"]).output)
    assert data == [code.to_dict()]


def test_doctests() -> None:
    """The examples in the documentation of functions hold."""
    assert doctest.testmod(codes).failed == 0
