"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import onnx_sched

MODULES = sorted(m.name for m in pkgutil.walk_packages(onnx_sched.__path__, "onnx_sched."))


@pytest.mark.parametrize("name", [m for m in MODULES if not m.endswith("__main__")])
def test_examples(name: str) -> None:
    """Each module's examples give what they say."""
    assert not doctest.testmod(import_module(name)).failed


def test_there_are_examples() -> None:
    """The search finds them: a module that is known to have some."""
    assert doctest.testmod(import_module("onnx_sched.dims")).attempted > 5
