"""Memory over the schedule: what must be alive, no more and no less."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import ModelProto

import onnx_sched
from onnx_sched.analysis import Analysis, analyse
from onnx_sched.files import Source
from onnx_sched.judge import profiling
from onnx_sched.report import charts, curve
from onnx_sched.report.curve import Curve
from onnx_sched.report.scene import Scene
from tests.nets import net, numbers

MODELS = Path(__file__).parent.parent / "models"


def curve_of(model: ModelProto, **sizes: int) -> Curve:
    return curve.curve(analyse(Source(model, None)), sizes, 1)


def test_a_chain() -> None:
    """In a chain two values are alive at each node, the input not counted, the output to the end."""
    model = net("(float[N,4] x) => (float[] y) { a = Relu(x) b = Neg(a) y = Abs(b) }")
    found = curve_of(model, N=2)
    assert found.live == (32, 64, 64)
    assert (found.peak, found.at, found.unknown) == (64, 1, 0)
    assert len(found.names) == 3


def test_what_is_read_late_stays() -> None:
    """A value lives to its last reader, whatever runs between."""
    model = net("(float[N,4] x) => (float[] y) { a = Relu(x) b = Neg(x) c = Abs(b) y = Add(a, c) }")
    assert curve_of(model, N=1).live == (16, 32, 48, 48)


def test_outputs_stay() -> None:
    """An output lives to the end though nobody reads it."""
    model = net("(float[N,4] x) => (float[] a, float[] c) { a = Relu(x) b = Neg(x) c = Abs(b) }")
    assert curve_of(model, N=1).live == (16, 32, 48)


def test_views_share() -> None:
    """A Reshape takes no memory of its own, and keeps what it reads alive."""
    text = "(float[N,4] x) => (float[] y) { a = Relu(x) b = Reshape(a, s) c = Neg(x) y = MatMul(c, b) }"
    model = net(text, {"s": np.array([4, -1])})
    assert curve_of(model, N=4).live == (64, 64, 128, 192)


def test_weights_and_constants_are_not_counted() -> None:
    """Weights, and what follows from them alone, are there before anything runs."""
    model = net(
        "(float[N,4] x) => (float[] y) { v = Transpose(w) y = MatMul(x, v) }", {"w": numbers(8, 4)}
    )
    assert curve_of(model, N=1).live == (32,)


def test_unknown_sizes() -> None:
    """A value of unknown shape counts as nothing, and is told of."""
    found = curve_of(net("(float[] x) => (float[] y) { a = Relu(x) y = Neg(a) }"))
    assert found.live == (0, 0)
    assert found.unknown == 2


def brute(analysis: Analysis, sizes: dict[str, int]) -> int:
    """The peak, by asking of every value at every node whether it is needed there or later."""
    graph = analysis.graph
    bare = [n.op_type not in ("Reshape", "Identity") for n in graph.nodes]
    assert all(bare)
    peak = 0
    for now in range(len(graph.nodes)):
        alive = 0
        for k, node in enumerate(graph.nodes[: now + 1]):
            for name in node.output:
                later = any(r >= now for r in graph.readers.get(name, ()))
                if later or k == now or name in graph.output_set:
                    size = curve.bytes_of(analysis, name, sizes, 1)
                    assert size is not None
                    alive += size
        peak = max(peak, alive)
    return peak


@st.composite
def nets(draw: st.DrawFn) -> ModelProto:
    """Elementwise nodes, each on one or two values before it."""
    lines, names = [], ["x"]
    for n in range(draw(st.integers(1, 9))):
        a, b = (draw(st.sampled_from(names)) for _ in range(2))
        op = draw(st.sampled_from([f"Relu({a})", f"Add({a}, {b})", f"Concat<axis=1>({a}, {b})"]))
        lines.append(f"v{n} = {op}")
        names.append(f"v{n}")
    used = [*draw(st.lists(st.sampled_from(names[1:]), unique=True)), names[-1]]
    outputs = ", ".join(f"float[] {n}" for n in dict.fromkeys(used))
    widths = {"x": 1}
    for n, line in enumerate(lines):  # Add only what is equally wide
        operands = line.split("(")[1].rstrip(")").split(", ")
        if "Concat" in line:
            widths[f"v{n}"] = sum(widths[o] for o in operands)
        else:
            if "Add" in line and widths[operands[0]] != widths[operands[1]]:
                lines[n] = f"v{n} = Relu({operands[0]})"
            widths[f"v{n}"] = widths[operands[0]]
    return net(f"(float[N,1] x) => ({outputs}) {{ {' '.join(lines)} }}")


@settings(max_examples=40, deadline=None)
@given(nets(), st.integers(1, 5))
def test_against_brute_force(model: ModelProto, size: int) -> None:
    """The peak is that of a count that looks at every value at every node."""
    analysis = analyse(Source(model, None))
    assume(all(analysis.graph.live))
    assert curve.curve(analysis, {"N": size}, 1).peak == brute(analysis, {"N": size})


@pytest.mark.parametrize("name", ["grouped_mlp", "per_feature", "mmoe", "critic_ensemble"])
def test_against_the_runtime(name: str) -> None:
    """ONNX Runtime's own peak is near: it fuses nodes, and takes another order."""
    model = MODELS / f"{name}.onnx"
    analysis = onnx_sched.optimize(model, choose="always", check=False).scene().before
    size = 16
    shape = analysis.values.shape(analysis.graph.proto.input[0].name)
    assert shape is not None
    symbol = next(d for d in shape if isinstance(d, str))
    feeds = {
        v.name: numbers(*(d if isinstance(d, int) else size for d in known))
        for v in analysis.graph.proto.input
        if (known := analysis.values.shape(v.name)) is not None
    }
    measured = profiling.profile(model, feeds, "cpu").peak_activation_bytes
    if measured is not None:  # older versions do not tell
        assert 0.5 < curve.curve(analysis, {symbol: size}, 1).peak / measured < 1.5


def test_scene_sizes() -> None:
    """The open sizes of a scene are those of the inputs that were run; without them none are known."""
    made = onnx_sched.optimize(
        MODELS / "mmoe.onnx", choose="always", provider="cpu", dims={"batch": (5,)}
    ).scene()
    assert made.sizes() == {"batch": 5}
    blind = Scene(made.report, made.plan, made.before, made.after)
    assert blind.sizes() == {}


@given(st.lists(st.integers(0, 99), min_size=1, max_size=50), st.integers(1, 20))
def test_thinned(live: list[int], points: int) -> None:
    """A thinned curve has at most so many points, and still its peak."""
    found = charts.thinned(live, points)
    assert len(found) <= max(points, 1)
    assert max(found) == max(live)


def test_doctests() -> None:
    """The examples in the documentation of functions hold."""
    assert doctest.testmod(curve).failed == doctest.testmod(charts).failed == 0
