"""Arithmetic with sizes: what is told of vectors of symbols holds for every size that there can be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from onnx import ModelProto, TensorProto, helper

import onnx_sched
from onnx_sched.dims import Dim, is_own, own
from onnx_sched.size_arithmetic import PAIRS, told
from tests.nets import analysed, evaluate, ints, name_nodes, net, nodes_of, numbers
from tests.rule_examples import compare, with_ranks

DIMS: st.SearchStrategy[Dim] = st.sampled_from(["n", "m", "2*n", "m*n", 0, 1, 2, 3, -1])
VECTORS = st.lists(DIMS, min_size=1, max_size=3).map(tuple)
COMPUTED = {
    "Add": np.add,
    "Mul": np.multiply,
    "Div": np.floor_divide,
    "Equal": np.equal,
    "Max": np.maximum,
    "Min": np.minimum,
}


def values(vector: Sequence[Dim], **sizes: int) -> list[int]:
    return [d if isinstance(d, int) else evaluate(d, sizes) for d in vector]


@given(st.sampled_from(sorted(PAIRS)), VECTORS, VECTORS)
def test_what_is_told_of_two_vectors_holds_at_every_size(
    op_type: str, first: tuple[Dim, ...], second: tuple[Dim, ...]
) -> None:
    """Each number that is no new symbol is what the op computes, whatever the sizes are."""
    found = told(helper.make_node(op_type, ["a", "b"], ["c"]), [first, second], TensorProto.INT64)
    if found is None:
        return
    for n, m in ((0, 0), (1, 1), (2, 5), (7, 3)):
        want = COMPUTED[op_type](values(first, n=n, m=m), values(second, n=n, m=m))
        for told_, computed in zip(found, want, strict=True):
            if not (isinstance(told_, str) and is_own(told_)):
                assert values([told_], n=n, m=m) == [computed]


@given(DIMS, DIMS, DIMS, DIMS)
def test_new_symbols_are_equal_only_for_equal_sums(a: Dim, b: Dim, c: Dim, d: Dim) -> None:
    """Two sums, or quotients, of one name are equal at every size."""
    for op_type in ("Add", "Div"):
        first, second = PAIRS[op_type](a, b), PAIRS[op_type](c, d)
        if first is None or first != second:
            continue
        for n, m in ((1, 1), (2, 5), (7, 3)):
            x, y, z, w = values([a, b, c, d], n=n, m=m)
            assert COMPUTED[op_type](x, y) == COMPUTED[op_type](z, w)


def test_names_with_signs_in_them_are_not_taken_for_sums() -> None:
    """Newer exporters name sizes `s0 + 1`."""
    assert PAIRS["Add"]("a", "b+c") != PAIRS["Add"]("a+b", "c")
    assert PAIRS["Add"]("a", "b") == PAIRS["Add"]("b", "a")


def test_other_vectors_are_told_by_their_ops() -> None:
    """Products of all, choices by what is known, and nothing where something is open."""
    where = helper.make_node("Where", ["c", "x", "y"], ["z"])
    assert told(where, [(0, 1), (7, 8), ("n", "m")], TensorProto.BOOL) == ("n", 8)
    assert told(where, [(1,), ("n", 3), (1, 1)], TensorProto.BOOL) == ("n", 3)
    assert told(where, [("n", 1), (7, 8), ("n", "m")], TensorProto.BOOL) is None
    whole = helper.make_node("ReduceProd", ["x"], ["y"])
    assert told(whole, [("n", 3, "n")], TensorProto.INT64) == ("3*n*n",)
    assert told(whole, [("n", -1)], TensorProto.INT64) is None
    add = helper.make_node("Add", ["x", "y"], ["z"])
    assert told(add, [(1, 2), (1, 2, 3)], TensorProto.INT64) is None
    assert told(add, [(1,), (2,)], TensorProto.FLOAT) is None
    assert told(add, [("n",), (-1,)], TensorProto.INT64) is None


# -- models -----------------------------------------------------------------------------------------

HEADS = 3
SIZES = {
    "times heads": "k@ = Mul(n@, two)",
    "shared": "k@ = Mul(n, two)",
    "in half": "q@ = Div(n@, two) d@ = Mul(q@, zero) f@ = Add(d@, n@) k@ = Mul(f@, two)",
    "the larger": "l@ = Max(n@, n) k@ = Mul(l@, two)",
    "of all": "q@ = Concat<axis=0>(n@, two) k@ = ReduceProd(q@)",
    "where not -1": "q@ = Equal(n@, minus) z@ = Where(q@, one, n@) k@ = Mul(z@, two)",
}


def lanes(spelling: str) -> ModelProto:
    """Three lanes that make two rows of each, to sizes that they compute."""
    body = SIZES[spelling]
    weights: dict[str, ArrayLike] = {
        **{f"w{k}": numbers(4, 6, seed=k) for k in range(HEADS)},
        **{f"v{k}": numbers(3, 3, seed=9 + k) for k in range(HEADS)},
        "two": ints(2),
        "one": ints(1),
        "zero": ints(0),
        "minus": ints(-1),
        "three": ints(3),
        "axis": np.array([0]),
        "parts": ints(4, 4, 4),
    }
    lines = ["p0, p1, p2 = Split<axis=1>(x, parts)"]
    lines += ["s = Shape(x) n = Gather(s, axis)"] if "n," in body or "n)" in body else []
    own_size = "s@ = Shape(h@) n@ = Gather(s@, axis)" if "n@" in body else ""
    for k in range(HEADS):
        lane = f"h@ = MatMul(p@, w@) {own_size} {body} "
        lane += "t@ = Concat<axis=0>(k@, three) r@ = Reshape(h@, t@) y@ = MatMul(r@, v@)"
        lines.append(lane.replace("@", str(k)))
    lines.append("y = Concat<axis=1>(y0, y1, y2)")
    return name_nodes(net(f"(float[N,12] x) => (float[R,9] y) {{ {' '.join(lines)} }}", weights))


@pytest.mark.parametrize("spelling", SIZES)
def test_lanes_with_computed_sizes_are_one(spelling: str) -> None:
    """Reshapes to sizes that lanes compute each for itself do not keep them apart, nor do they stay."""
    model = lanes(spelling)
    new = onnx_sched.optimize(model, choose="always", check=False).proto
    assert len(nodes_of(new, "MatMul")) == 2
    assert not nodes_of(new, "Shape")
    assert compare(model, new, {"N": 1}, {"N": 3}, {"N": 0}) == 3


def test_equal_vectors_of_sizes_are_one_value() -> None:
    """The first of them stands for all."""
    text = (
        "(float[N,4] x, float[N,4] z) => (int64[] y, int64[] w) { a = Shape(x) b = Shape(z) "
        "c = Relu(x) d = Shape(c) y = Add(a, b) w = Add(a, d) }"
    )
    found = analysed(net(text)).values
    assert [found.first(n) for n in "abd"] == ["a", "a", "a"]


def test_a_size_does_not_wait_for_an_equal_one() -> None:
    """What is known early is not taken from what comes late, though it stands before it in the file."""
    text = (
        "(float[N,4] x, float[N,4] z) => (int64[] y, int64[] w) { c = Relu(x) d = Tanh(c) e = Exp(d) "
        "y = Shape(e) b = Shape(z) w = Add(b, b) }"
    )
    found = analysed(net(text)).values
    assert (found.first("y"), found.first("b")) == ("y", "b")


def test_lanes_stay_in_order_where_one_of_them_is_asked_for_the_size_of_all() -> None:
    """The first lane alone is read by a Shape: it is no other lane for that."""
    model = lanes("times heads")
    new = onnx_sched.optimize(model, choose="always", check=False).proto
    assert not nodes_of(new, "Gather")


def test_a_truth_about_sizes_is_a_constant() -> None:
    """No size is -1; whether two open ones are equal is not known."""
    text = (
        "(float[N,M] x) => (bool[] y, bool[] z) { s = Shape(x) y = Equal(s, m) "
        "a = Gather(s, i) b = Gather(s, j) z = Equal(a, b) }"
    )
    found = analysed(net(text, {"m": ints(-1, -1), "i": ints(0), "j": ints(1)})).values
    known = found.constants["y"]
    assert (known.elem_type, known.load().tolist()) == (TensorProto.BOOL, [False, False])
    assert "z" not in found.constants
    assert own("x") != "x"


# -- a CastLike of known type -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["float", "float16", "double"])
def test_a_cast_like_something_is_a_cast(kind: str) -> None:
    """Constants are cast to the type of a value, and lanes that are cast so run as one."""
    width = {"float": np.float32, "float16": np.float16, "double": np.float64}[kind]
    weights: dict[str, ArrayLike] = {"half": np.float64(0.5), "parts": ints(4, 4, 4)}
    lines = ["p0, p1, p2 = Split<axis=1>(x, parts)"]
    for k in range(HEADS):
        weights |= {f"w{k}": numbers(4, 4, seed=k).astype(width), f"b{k}": numbers(4, seed=k)}
        lane = "h@ = MatMul(p@, w@) c@ = CastLike(b@, h@) s@ = Add(h@, c@) "
        lane += "f@ = CastLike(half, s@) m@ = Mul(s@, f@) y@ = CastLike(m@, z)"
        lines.append(lane.replace("@", str(k)))
    lines.append("y = Concat<axis=1>(y0, y1, y2)")
    text = f"({kind}[N,12] x, double[1] z) => (double[] y) {{ {' '.join(lines)} }}"
    model = with_ranks(name_nodes(net(text, weights, opset=21, ir=10)))
    new = onnx_sched.optimize(model, choose="always", check=False).proto
    assert (len(nodes_of(new, "MatMul")), len(nodes_of(new, "CastLike"))) == (1, 0)
    assert len(nodes_of(new, "Cast")) == (kind != "double")
    near = 2e-3 if kind == "float16" else 2e-5
    assert compare(model, new, {"N": 1}, {"N": 3}, tolerance=near) == 2
