"""What is counted without a clock: layers, critical path, live bytes, winners."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnx_sched.judge.critical_path import critical_path, depth, layers
from onnx_sched.judge.ortlib import CPU
from onnx_sched.judge.profiling import NodeTime
from onnx_sched.judge.ranking import count_alike, rankings
from onnx_sched.judge.static_memory import live_set
from tests.comparisons import parse, write_models


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of `write_models`."""
    return write_models(tmp_path_factory.mktemp("models"))


def test_layers_are_the_longest_chain() -> None:
    """A node is one below the deepest that it reads; constants and what they alone feed have no layer."""
    model = parse(
        """g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
            c = Constant<value = float[2] {3, 4}>()
            folded = Add(w, c)
            a = Neg(x)  b = Exp(a)  d = Sqrt(x)
            e = Add(b, d)  y = Mul(e, folded) }"""
    )
    assert layers(model.graph) == {2: 1, 3: 2, 4: 1, 5: 3, 6: 4}
    assert depth(model) == 4


def test_what_a_body_captures_counts_as_read() -> None:
    """An If is below whatever its branches read from outside, however deep they hide it."""
    inner = "{ g2 () => (float[2] p) { p = Neg(late) } }"
    model = parse(
        f"""g (float[2] x, bool c) => (float[2] y) {{
            a = Neg(x)  late = Exp(a)
            y = If (c) <
              then_branch = g1 () => (float[2] q) {{
                q = If (c) < then_branch = {inner[2:-2]}, else_branch = {inner[2:-2]} > }},
              else_branch = g3 () => (float[2] r) {{ r = Neg(x) }} > }}"""
    )
    assert layers(model.graph) == {0: 1, 1: 2, 2: 3}


def test_a_random_node_is_no_constant() -> None:
    """It reads nothing, or constants alone, but runs every time; nor is a source of data a constant."""
    model = parse(
        """g () => (float[2] y, float[2] z, float[2] q) <float[2] w = {0.5, 0.5}> {
            r = RandomNormal<shape = [2]>() y = Neg(r) z = Bernoulli(w) q = own.Source() }"""
    )
    assert layers(model.graph) == {0: 1, 1: 2, 2: 1, 3: 1}


def test_the_critical_path_takes_the_slowest_node_of_each_layer() -> None:
    """Layer by layer the slowest counts; nodes that nobody timed take nothing, strangers are left out."""
    model = parse(
        """g (float[2] x) => (float[2] y) {
            [a] a = Neg(x) [b] b = Exp(x) [c] c = Sqrt(b) [y] y = Add(a, c) }"""
    )
    times = [
        NodeTime(name, "", CPU, took, 1)
        for name, took in (("a", 5.0), ("b", 2.0), ("c", 7.0), ("inside a body", 50.0))
    ]
    path = critical_path(model.graph, times, "test")
    assert (path.critical_us, path.nodes_us) == (5.0 + 7.0, 5.0 + 2.0 + 7.0)
    assert (path.layers, path.joined, path.nodes) == (3, 3, 4)


def test_the_live_set_is_exact_for_a_chain() -> None:
    """Two values are alive while a node runs, whatever the length of the chain; views take nothing."""
    model = parse(
        """g (float[N,4] x) => (float[M,2] y) <int64[2] s = {-1, 2}> {
            a = Neg(x) b = Exp(a) c = Sqrt(b) y = Reshape(c, s) }"""
    )
    found = live_set(model, {"x": (100, 4)})
    assert (found.peak_bytes, found.unknown, found.values) == (2 * 4 * 400, 0, 3)


def test_the_live_set_of_a_fan_holds_all_arms() -> None:
    """Four arms are alive together with their sum, and outputs stay to the end."""
    model = parse(
        """g (float[N] x) => (float[N] a, float[N] y) {
            a = Neg(x) b = Exp(x) c = Sqrt(x) d = Abs(x) s = Sum(a, b, c, d) y = Neg(s) }"""
    )
    assert live_set(model, {"x": (10,)}).peak_bytes == 5 * 40
    early = parse("g (float[N] x) => (float[N] a, float[N] y) { a = Neg(x) b = Exp(x) y = Neg(b) }")
    assert live_set(early, {"x": (10,)}).peak_bytes == 3 * 40
    narrow = parse("g (float[N] x) => (float[N] y) { a = Neg(x) y = Neg(a) }")
    narrow.graph.output.append(narrow.graph.input[0])
    assert live_set(narrow, {"x": (10,)}).peak_bytes == 2 * 40


def test_the_live_set_says_what_it_does_not_know() -> None:
    """Sizes that depend on data count as empty and are counted; if all are such, there is no number."""
    model = parse(
        """g (float[N] x) => (float[K] y) { a = Neg(x) i = NonZero(a) j = Squeeze(i)
           y = Gather(a, j) }"""
    )
    found = live_set(model, {"x": (10,)})
    assert (found.peak_bytes, found.unknown, found.values) == (40, 2, 3)
    assert "2 of 3 sizes unknown" in found.source
    alien = parse("g (float[N] x) => (float[N] y) { y = Neg(x) }")
    alien.graph.node[0].domain = "nobody"
    nothing = live_set(alien, {"x": (10,)})
    assert nothing.peak_bytes is None
    assert nothing.source.startswith("not available")


def test_only_scores_are_ranked() -> None:
    """Integers, single numbers, other shapes and infinities have no ranking."""
    scores = np.zeros((2, 3), np.float32)
    assert count_alike(scores, scores) == (2, 2, 0, 0)
    assert count_alike(scores.astype(np.int64), scores) is None
    assert count_alike(scores[:, :1], scores[:, :1]) is None
    assert count_alike(scores, scores[:1]) is None
    assert count_alike(scores, np.full_like(scores, np.inf)) is None
    assert count_alike([scores], scores) is None


def test_a_tie_is_no_disagreement() -> None:
    """Of two equal scores either may win; of two unequal ones only the larger."""
    ref = np.array([[1.0, 1.0, 0.0]], np.float32)
    assert count_alike(ref, np.array([[0.9, 1.1, 0.0]], np.float32)) == (1, 1, 0, 0)
    assert count_alike(ref, np.array([[0.9, 1.0, 1.1]], np.float32)) == (1, 0, 0, 0)
    long = np.array([[9, 8, 7, 6, 5, 5, 1, 0]], np.float32)
    other = np.array([[9, 8, 7, 6, 0, 5, 1, 0]], np.float32)
    assert count_alike(long, other) == (1, 1, 5, 5)
    assert count_alike(long, other[:, ::-1].copy()) == (1, 0, 5, 3)


def test_random_outputs_are_not_ranked(folder: Path) -> None:
    """Outputs to skip are skipped; models that do not run have no ranking."""
    feeds = [{"x": np.ones((2, 8), np.float32)}, {"x": np.ones((2, 7), np.float32)}]
    a, other = folder / "a.onnx", folder / "other.onnx"
    assert [(r.name, r.rows) for r in rankings(a, a, feeds, CPU)] == [("y", 2)]
    assert rankings(a, a, feeds, CPU, skip=("y",)) == ()
    assert rankings(a, other, feeds, CPU) == ()
