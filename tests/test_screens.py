"""Screens are as they were looked at and found right."""

from __future__ import annotations

import re

import pytest

from tests.screens import FOLDER, SCREENS, masked, screen


@pytest.mark.parametrize("name", SCREENS)
def test_golden(name: str) -> None:
    """Every screen is as it was; `python -m tests.screens` renews them."""
    shown = (FOLDER / f"{name}.txt").read_text("utf-8")
    assert shown == f"$ onnx-sched {SCREENS[name]}\n{screen(SCREENS[name])}"


def test_golden_files() -> None:
    """There is one file for each screen, and no other."""
    assert sorted(p.stem for p in FOLDER.glob("*.txt")) == sorted(SCREENS)


@pytest.mark.parametrize("name", SCREENS)
def test_what_every_screen_keeps(name: str) -> None:
    """No line is wider than asked or ends in blanks, and an error says what to do."""
    _, *lines = (FOLDER / f"{name}.txt").read_text("utf-8").split("\n")
    assert max(map(len, lines)) <= (270 if name.startswith("error") else 160)
    assert lines == [line.rstrip() for line in lines]
    if name.startswith("error"):
        assert [line.split(":")[0] for line in lines if line] == ["error", "hint"]


def test_masks() -> None:
    """Times, and counts of the runtime, are placeholders; other numbers stay."""
    text = "12.5 us\nwrote a (1.2 s)\npeak activations  1 KiB  2 KiB\n3 nodes, 2 usages, S103"
    assert masked(text) == "# us\nwrote a (# s)\npeak activations  #\n3 nodes, 2 usages, S103"
    assert not re.search(r"\d", masked("about 1.0 of 2.0 us, max abs 1.2e-07"))
