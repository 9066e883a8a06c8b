"""Slices: axes that stay whole do not count, whichever way they are spelled."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from onnx import ModelProto

import onnx_sched
from onnx_sched.dims import is_own
from onnx_sched.slicing import WHOLE, Cut, cuts, sliced
from tests.nets import analysed, name_nodes, net, nodes_of, numbers
from tests.rule_examples import compare, with_ranks

BOUND = st.sampled_from([0, 1, 2, 5, -1, -2, -7, WHOLE, 2**63 - 1, -WHOLE])
RANGE = st.tuples(BOUND, BOUND, st.sampled_from([1, 1, 1, 2, -1]))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.data())
def test_the_axes_that_are_cut_give_what_the_slice_gives(
    shape: list[int], data: st.DataObject
) -> None:
    """Of known sizes: what does not count changes nothing, and what counts leaves something out."""
    given_ = data.draw(st.lists(RANGE, min_size=1, max_size=len(shape)))
    axes = data.draw(st.permutations(range(len(shape))))[: len(given_)]
    starts, ends, steps = zip(*given_, strict=True)
    found = cuts(tuple(shape), [starts, ends, tuple(axes), steps], {}, 17)
    assert found is not None
    x = np.arange(np.prod(shape)).reshape(shape)
    want, got = x, x
    for axis, (start, end, step) in zip(axes, given_, strict=True):
        want = _cut(want, axis, start, end, step)
    for cut in found:
        got = _cut(got, *cut)
        assert _cut(x, *cut).shape != x.shape or cut.step != 1
    np.testing.assert_array_equal(got, want)


def _cut(x: np.ndarray, axis: int, start: int, end: int, step: int) -> np.ndarray:
    """Some entries of an axis, as ONNX's reference counts them."""
    where = [slice(None)] * x.ndim
    where[axis] = slice(start, end, step)
    return x[tuple(where)]


@pytest.mark.parametrize(
    ("start", "end", "step", "whole"),
    [
        (0, WHOLE, 1, True),
        (0, 2**63 - 1, 1, True),
        (0, WHOLE - 1, 1, False),
        (1, WHOLE, 1, False),
        (0, WHOLE, 2, False),
        (-WHOLE, WHOLE, 1, False),
        (0, 8, 1, False),
    ],
)
def test_an_open_axis_stays_whole_only_for_sure(
    start: int, end: int, step: int, whole: bool
) -> None:
    """From the first entry to the largest number there is, one by one."""
    found = cuts(("N", 4), [(start,), (end,), (0,), (step,)], {}, 17)
    assert found == (() if whole else (Cut(0, start, end, step),))


def test_what_is_not_known_or_makes_no_sense_is_nothing() -> None:
    """Computed bounds, steps of 0, axes that are not there or stand twice, rows of unequal length."""
    for rows in (
        [None, (1,)],
        [(0,), ("M",)],
        [("N",), ("N",)],
        [(0,), (1,), (0,), (0,)],
        [(0,), (1,), (2,)],
        [(0, 0), (1, 1), (0, -2)],
        [(0, 0), (1,)],
        [(0,), (1,), None],
    ):
        assert cuts(("N", 4), rows, {}, 17) is None  # type: ignore[arg-type]
    assert cuts((4,), [], {"starts": (1,), "ends": (3,)}, 9) == (Cut(0, 1, 3, 1),)


@given(RANGE, RANGE)
def test_equal_sizes_mean_equal_cuts_of_one_axis(
    first: tuple[int, int, int], second: tuple[int, int, int]
) -> None:
    """An open size that is cut gets the same name for the same cut, and never that of another one."""
    shapes = []
    for start, end, step in (first, second):
        found = cuts(("N",), [(start,), (end,), (0,), (step,)], {}, 17)
        assert found is not None
        shapes.append(sliced(("N",), found, ("?",)))
    if first == second:
        assert shapes[0] == shapes[1]
    for n in range(9) if shapes[0] == shapes[1] else ():
        assert len(range(n)[slice(*first)]) == len(range(n)[slice(*second)])


# -- models -----------------------------------------------------------------------------------------

BIG, FAR = str(WHOLE), str(2**63 - 1)
SPELLINGS = {
    "one axis": (17, "int64", "{a}", "{b}", "1"),
    "every axis": (17, "int64", "0,{a}", f"{BIG},{{b}}", "0,1"),
    "no axes": (17, "int64", "0,{a}", f"{FAR},{{b}}", ""),
    "int32": (17, "int32", "0,{a}", f"{BIG},{{b}}", "0,1"),
    "int32 of one axis": (17, "int32", "{a}", "{b}", "1"),
    "backwards": (13, "int64", "{a},0", f"{{b}},{BIG}", "-1,0"),
    "old": (9, "", "0,{a}", f"{BIG},{{b}}", "0,1"),
    "old without axes": (9, "", "0,{a}", f"{BIG},{{b}}", ""),
}


def towers(spelling: str) -> ModelProto:
    """Three linear maps, each of some columns of one value, then sliced once more."""
    opset, dtype, starts, ends, axes = SPELLINGS[spelling]
    weights: dict[str, ArrayLike] = {}
    lines = []

    def taken(out: str, x: str, a: int, b: int) -> str:
        rows = [r.format(a=a, b=b) for r in (starts, ends, axes) if r]
        if not dtype:
            named = [f"{n}=[{r}]" for n, r in zip(("starts", "ends", "axes"), rows, strict=False)]
            return f"{out} = Slice<{', '.join(named)}>({x})"
        names = []
        for k, row in enumerate(rows):
            names.append(f"{out}_{k}")
            weights[names[-1]] = np.array([int(n) for n in row.split(",")], dtype)
        return f"{out} = Slice({x}, {', '.join(names)})"

    for k in range(3):
        weights[f"w{k}"] = numbers(4, 6, seed=k)
        lines += [taken(f"p{k}", "x", 4 * k, 4 * k + 4), f"h{k} = MatMul(p{k}, w{k})"]
        lines += [taken(f"y{k}", f"h{k}", 2, 6)]
    text = f"(float[N,12] x) => (float[] y) {{ {' '.join(lines)} y = Concat<axis=1>(y0, y1, y2) }}"
    return with_ranks(name_nodes(net(text, weights, opset=opset, ir=8 if opset > 9 else 4)))


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_towers_are_one_however_their_slices_are_spelled(spelling: str) -> None:
    """The columns come in without one Slice a lane, and what each lane slices is one Slice."""
    model = towers(spelling)
    new = onnx_sched.optimize(model, choose="always", check=False).proto
    onnx.checker.check_model(new, full_check=True)
    assert (len(nodes_of(new, "MatMul")), len(nodes_of(new, "Slice"))) == (1, 1)
    assert compare(model, new, *({"N": n} for n in (1, 3, 0))) == 3


def test_a_slice_of_everything_is_no_slice() -> None:
    """`x[...]`, as Keras adds an axis behind it."""
    text = "(float[N,4] x) => (float[] y) { a = Slice(x, z, f, i) y = Relu(a) }"
    rows = {"z": [0, 0], "f": [WHOLE, WHOLE], "i": [0, 1]}
    model = net(text, {k: np.array(v, np.int32) for k, v in rows.items()}, opset=17)
    assert analysed(model).values.first("a") == "x"


def test_open_sizes_that_are_cut_are_named_alike() -> None:
    """And stand for the sizes that there are."""
    text = (
        "(float[N,4] x, float[N,4] z) => (float[] y) { a = Slice(x, one, big, zero) "
        "b = Slice(z, one, big, zero) y = Add(a, b) }"
    )
    bounds = {"one": [1], "big": [WHOLE], "zero": [0]}
    values = analysed(net(text, {k: np.array(v) for k, v in bounds.items()})).values
    assert values.shape("a") == values.shape("b") == values.shape("y")
    assert [d == 4 or is_own(d) for d in values.shape("a") or ()] == [True, True]
