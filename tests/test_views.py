"""Every tensor that is said to hold a bundle holds it, lane by lane, in every run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from onnx import ModelProto

from onnx_sched.analysis import Analysis
from onnx_sched.stacking import LANE, Layout, at, packed
from onnx_sched.views import MOST, openings
from tests.nets import Array, analysed, every_value, feeds, ints, net
from tests.test_blocks import chains
from tests.zoo import MODELS, RANDOM, sightings, studied

Opening = tuple[tuple[str, ...], Layout, str]


def found(analysis: Analysis) -> list[Opening]:
    return list(openings(analysis.circuit))


def lane_of(tensor: Array, layout: Layout, lanes: int, lane: int) -> Array:
    """One lane, cut out of the tensor by the definition of the two layouts that openings may have."""
    axis = next(k for k, atoms in enumerate(layout) if LANE in atoms)
    if layout[axis] == (LANE,):
        return np.asarray(tensor.take(lane, axis))
    return np.split(tensor, lanes, axis)[lane]


def check(analysis: Analysis, runs: Sequence[dict[str, Array]]) -> list[Opening]:
    """Hold every opening of a model against runs."""
    opened = found(analysis)
    for bundle, layout, source in opened:
        assert len(bundle) > 1
        named = [name for name in bundle if "\0" not in name]
        assert len(named) > 1 or len(named) == len(bundle)
        assert layout in {
            *(at(len(layout) - 1, k) for k in range(len(layout))),
            *(packed(len(layout), k) for k in range(len(layout))),
        }
        for seen in runs:
            for k, lane in enumerate(bundle):
                if lane in named:
                    cut = lane_of(seen[source], layout, len(bundle), k)
                    np.testing.assert_array_equal(seen[lane], cut, err_msg=f"{lane} of {source}")
    return opened


@pytest.mark.parametrize("name", sorted({*MODELS} - RANDOM))
def test_openings_are_true_in_every_run(name: str) -> None:
    """Cut from the source as the layout says, lane k is the value that stands at place k."""
    check(studied(name), [seen for _, seen in sightings(name)])


@settings(max_examples=100, deadline=None)
@given(chains())
def test_openings_of_any_cuts_are_true(proto: ModelProto) -> None:
    """Aligned or not, of whatever was joined and moved about before."""
    check(analysed(proto), [every_value(proto, feeds(proto, N=n)) for n in (3, 4)])


BOUNDS: dict[str, Any] = {
    **{f"i{k}": ints(k) for k in (0, 1, 2, 4, 5, 6, 8, 10, 12)},
    "m1": ints(-1),
    "m4": ints(-4),
    "far": ints(2**63 - 1),
    "s444": ints(4, 4, 4),
    "s345": ints(3, 4, 5),
    "g0": np.array(0),
    "g1": np.array(1),
    "g2": np.array(2),
    "gm1": np.array(-1),
}

OPEN: dict[str, tuple[str, list[tuple[str, Layout]]]] = {
    "split": ("a, b, c = Split<axis=1>(x)", [("a b c", packed(2, 1))]),
    "split from the end": ("a, b, c = Split<axis=-1>(x, s444)", [("a b c", packed(2, 1))]),
    "split of rows": ("a, b = Split<axis=0>(x)", [("a b", packed(2, 0))]),
    "unequal split": ("a, b, c = Split<axis=1>(x, s345)", []),
    "slices": (
        "a = Slice(x, i0, i4, i1) b = Slice(x, i4, i8, i1) c = Slice(x, i8, far, i1)",
        [("a b c", packed(2, 1))],
    ),
    "slices in any order": (
        "c = Slice(x, m4, far, i1) a = Slice(x, i0, i4, i1) b = Slice(x, i4, i8, i1, i1)",
        [("a b c", packed(2, 1))],
    ),
    "a hole": ("a = Slice(x, i0, i4, i1) c = Slice(x, i8, i12, i1)", [("a - c", packed(2, 1))]),
    "one slice": ("a = Slice(x, i0, i4, i1)", []),
    "the same slice twice": (
        "a = Slice(x, i0, i4, i1) b = Slice(x, i0, i4, i1)",
        [],
    ),
    "shifted slices": ("a = Slice(x, i2, i6, i1) b = Slice(x, i6, i8, i1)", []),
    "slices between lanes": ("a = Slice(x, i2, i6, i1) b = Slice(x, i6, i10, i1)", []),
    "slices that leave a rest": ("a = Slice(x, i0, i5, i1) b = Slice(x, i5, i10, i1)", []),
    "short strided slices": (
        "a = Slice(x, i0, i4, i1, i2) b = Slice(x, i4, i8, i1, i2)",
        [],
    ),
    "slices of the last axis": (
        "a = Slice(x, i0, i4, m1) b = Slice(x, i4, i8, m1)",
        [("a b -", packed(2, 1))],
    ),
    "slices of two widths": (
        "a = Slice(x, i0, i4, i1) b = Slice(x, i4, i8, i1) c = Slice(x, i0, i6, i1)",
        [("a b -", packed(2, 1))],
    ),
    "slices of open rows": ("a = Slice(x, i0, i1, i0) b = Slice(x, i1, i2, i0)", []),
    "strided slices": (
        "a = Slice(x, i0, i12, i1, i2) b = Slice(x, i1, i12, i1, i2)",
        [],
    ),
    "gathers": (
        "a = Gather<axis=1>(x, g0) b = Gather<axis=1>(x, g1)",
        [("a b - - - - - - - - - -", at(1, 1))],
    ),
    "gathers of one row": (
        "a = Gather<axis=-1>(x, i0) b = Gather<axis=1>(x, i2)",
        [("a - b - - - - - - - - -", packed(2, 1))],
    ),
    "gathers of open rows": ("a = Gather<axis=0>(x, g0) b = Gather<axis=0>(x, g1)", []),
    "gathers from the end": (
        "a = Gather<axis=1>(x, gm1) b = Gather<axis=1>(x, g0)",
        [("b - - - - - - - - - - a", at(1, 1))],
    ),
    "other names": (
        "z = Identity(x) a = Slice(x, i0, i4, i1) b = Slice(z, i4, i8, i1)",
        [("a b -", packed(2, 1))],
    ),
    "computed bounds": ("a = Slice(x, n, far, i1) b = Slice(x, i0, n, i1)", []),
    "two sources": (
        "z = Relu(x) a = Slice(x, i0, i4, i1) b = Slice(z, i4, i8, i1)",
        [],
    ),
}


@pytest.mark.parametrize("kind", OPEN)
def test_cuts_open_the_lanes_that_they_cut(kind: str) -> None:
    """Equal parts of one known axis, in the order of the axis; parts that nobody cuts are holes."""
    text, expected = OPEN[kind]
    proto = net(
        f"(float[N,12] x, int64[1] n) => (float[] y{outputs(text)}) {{ {text} y = Add(x, x) }}",
        BOUNDS,
    )
    opened = check(
        analysed(proto), [every_value(proto, feeds(proto, N=n) | {"n": ints(4)}) for n in (2, 4)]
    )
    shown = [(" ".join("-" if "\0" in n else n for n in b), la) for b, la, _ in opened]
    assert shown == expected
    assert {source for _, _, source in opened} <= {"x"}


def outputs(text: str) -> str:
    """The cuts as further outputs of the graph, so that they are live."""
    return "".join(
        f", float[] {name}" for name in "abc" if f"{name} =" in text or f"{name}," in text
    )


def test_a_long_axis_is_no_row_of_lanes() -> None:
    """Two entries of a vocabulary, gathered, do not open thousands of lanes."""
    text = (
        "(float[N,{}] x) => (float[] y) "
        "{{ a = Gather<axis=1>(x, i) b = Gather<axis=1>(x, j) y = Add(a, b) }}"
    )
    for size, expected in ((MOST, 1), (MOST + 1, 0)):
        proto = net(text.format(size), {"i": np.array(0), "j": np.array(7)})
        assert len(found(analysed(proto))) == expected


def test_old_opsets_spell_slices_with_attributes() -> None:
    """Opset 9: starts, ends and axes are attributes, axes may be left out."""
    proto = net(
        "(float[4,N] x) => (float[] y) { a = Slice<starts=[0],ends=[2]>(x) "
        "b = Slice<starts=[2],ends=[9],axes=[0]>(x) y = Add(a, b) }",
        opset=9,
    )
    opened = check(analysed(proto), [every_value(proto, feeds(proto, N=3))])
    assert opened == [(("a", "b"), packed(2, 0), "x")]


def test_holes_have_names_that_no_model_can_have() -> None:
    """Two holes are two names, and none is a value of the model."""
    text, _ = OPEN["gathers"]
    proto = net(f"(float[N,12] x) => (float[] y{outputs(text)}) {{ {text} y = Add(x, x) }}", BOUNDS)
    ((bundle, _, _),) = found(analysed(proto))
    assert len(set(bundle)) == len(bundle) == 12
