"""Nodes by their names: hints name nodes that there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_sched.errors import UsageError
from onnx_sched.naming import FEW, check_patterns, close_to
from tests.nets import name_nodes, net

NAMES = st.lists(st.text("ab/0", max_size=6), max_size=6)


@given(st.text("ab/0*z", max_size=6), NAMES)
def test_a_hint_lists_names_that_there_are(pattern: str, names: list[str]) -> None:
    """Between one and a few names of the model, whatever was given; or that none has a name."""
    hint = close_to(pattern, names)
    told = [n for n in set(names) if n and repr(n) in hint]
    assert len(told) in (range(1, FEW + 1) if any(names) else [0])
    assert ("None of its nodes has a name" in hint) == (not any(names))


def test_a_part_of_a_name_finds_it() -> None:
    """A pattern that lacks what stands before or behind is answered with what it would have matched."""
    names = ["/model/decoder/attn/MatMul", "/model/head/MatMul"]
    assert close_to("decoder/*", names) == "Did you mean '/model/decoder/attn/MatMul'?"


def test_patterns_are_held_against_all_nodes() -> None:
    """A pattern may fit a node of a body only; one that fits none is an error with names."""
    model = name_nodes(
        net(
            """(float[N] x, bool c) => (float[] y) {
            y = If (c) <
                then_branch = t () => (float[] s) { s = Relu(x) },
                else_branch = e () => (float[] s2) { s2 = Tanh(x) }
            > }"""
        )
    )
    model.graph.node[0].attribute[0].g.node[0].name = "inner"
    check_patterns(["inn*", "y"], model)
    with pytest.raises(UsageError, match=r"--skip-node zz\*: no such node") as caught:
        check_patterns(["y", "zz*"], model)
    assert "'inner'" in caught.value.hint
    assert "'y'" in caught.value.hint
