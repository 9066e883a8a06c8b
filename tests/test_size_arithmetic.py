"""Arithmetic with sizes: what is told of vectors of symbols holds for every size that there can be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from onnx import ModelProto, TensorProto, helper

import onnx_sched
from onnx_sched.analysis import analyse
from onnx_sched.dims import Dim, is_own, own, symbol
from onnx_sched.files import Source
from onnx_sched.size_arithmetic import PAIRS, told
from onnx_sched.spoken import in_words
from tests.nets import analysed, evaluate, ints, name_nodes, net, nodes_of, numbers, run
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


FOLLOWED = {
    "a product along an axis of a matrix": (
        "u = Unsqueeze(s, one) t = ReduceProd<axes=[1], keepdims=0>(u)",
        17,
    ),
    "a product of a matrix": ("u = Unsqueeze(s, one) t = ReduceProd<keepdims=0>(u)", 17),
    "a product along an axis of a column": (
        "u = Reshape(s, column) t = ReduceProd<axes=[1], keepdims=0>(u)",
        17,
    ),
    "a product over no axes": ("t = ReduceProd<noop_with_empty_axes=1>(s)", 18),
    "a product over all axes": ("t = ReduceProd<keepdims=0>(s)", 18),
    "a sum of a matrix and a vector": (
        "u = Unsqueeze(s, one) v = Add(u, s) t = Reshape(v, minus)",
        17,
    ),
    "a matrix of one row": ("u = Unsqueeze(s, zero) v = Concat<axis=0>(u, u) t = Flatten(v)", 17),
    "beyond 64 bits": ("q = Concat<axis=0>(s, far) t = Add(q, q)", 17),
    "beyond 32 bits": (
        "q = Concat<axis=0>(s, far) c = Cast<to=6>(q) d = Cast<to=7>(c) t = Identity(d)",
        17,
    ),
    "a product beyond 32 bits": (
        "c = Cast<to=6>(s) q = Concat<axis=0>(c, most) d = Mul(q, q) t = Cast<to=7>(d)",
        17,
    ),
}


@pytest.mark.parametrize("kind", FOLLOWED)
def test_sizes_are_followed_as_the_runtime_computes_them(kind: str) -> None:
    """Or not at all: matrices, ops that do nothing, and numbers that do not fit included."""
    text, opset = FOLLOWED[kind]
    weights: dict[str, ArrayLike] = {
        "one": ints(1),
        "zero": ints(0),
        "minus": ints(-1),
        "column": ints(-1, 1),
        "far": ints(2**63 - 1),
        "most": np.array([2**31 - 1], np.int32),
    }
    read = {n: w for n, w in weights.items() if f" {n})" in text}
    graph = f"(float[N,4] x) => (int64[] t) {{ s = Shape(x) {text} }}"
    model = with_ranks(net(graph, read, opset=opset))
    told_ = analysed(model).values.ints.get("t")
    for n in (1, 3, 5):
        (got,) = run(model, {"x": numbers(n, 4)}).values()
        if told_ is not None:
            assert values(told_, N=n) == got.ravel().tolist()


def test_a_size_that_turns_out_to_be_0_copies_another_one() -> None:
    """A Reshape to [n*m, -1] of [n, m, 12] is one of [n, -1] where m is 0, unless it is never."""
    weights: dict[str, ArrayLike] = {"one": ints(1), "minus": ints(-1), "zero": ints(0)}
    lines = ["a0, a1, a2 = Split<axis=2>(x, parts)"]
    weights["parts"] = ints(4, 4, 4)
    for k in range(HEADS):
        weights[f"w{k}"] = numbers(1, seed=k)
        lines.append(
            f"s{k} = Shape(a{k}) p{k} = Gather(s{k}, zero) q{k} = Gather(s{k}, one) "
            f"r{k} = Mul(p{k}, q{k}) t{k} = Concat<axis=0>(r{k}, minus) k{k} = Reshape(a{k}, t{k}) "
            f"d{k} = Mul(k{k}, w{k}) y{k} = Relu(d{k})"
        )
    text = f"(float[N,M,12] x) => (float[] y0, float[] y1, float[] y2) {{ {' '.join(lines)} }}"
    model = with_ranks(name_nodes(net(text, weights)))
    new = onnx_sched.optimize(model, choose="always", check=False).proto
    sizes = [{"N": n, "M": m} for n in (1, 3) for m in (0, 2)]
    assert compare(model, new, *sizes) == len(sizes)
    assert analysed(model).values.shape("k0") != ("M*N", 4)
    shapes = analyse(Source(model, Path("m")), nonempty=True).values
    assert shapes.shape("k0") == ("M*N", 4)


@pytest.mark.parametrize("name", ["Compress.0.0", "%.Compress.0.0", "1:A+B", "%.1:A+B"])
def test_a_value_may_be_called_what_a_size_is(name: str) -> None:
    """An input whose size has no name is not as large as what happens to be called so."""
    text = (
        "(float[A,4] x, float[B,4] z, bool[A] c, float[P,4] q) => (float[] y0, float[] y1, float[] y2) "
        "{ y0 = Compress<axis=0>(x, c) s = Shape(x) t = Shape(z) a = Gather(s, zero) "
        "b = Gather(t, zero) n = Add(a, b) r = Concat<axis=0>(n, four) k = Concat<axis=0>(x, z) "
        "y1 = Reshape(k, r) y2 = Relu(q) }"
    )
    model = net(text, {"zero": ints(0), "four": ints(4)})
    model.graph.input[3].name = model.graph.node[-1].input[0] = name
    model.graph.input[3].type.tensor_type.shape.dim[0].Clear()
    found = analysed(model).values
    shapes = [found.shape(v) for v in ("y0", "y1", name)]
    assert len({s and s[0] for s in shapes}) == len(shapes)
    assert in_words(found.shape(name)) == f"[size 0 of {symbol(name)}, 4]"


@pytest.mark.parametrize("opset", [13, 17, 18])
@pytest.mark.parametrize("told_", [False, True])
def test_parts_of_an_open_axis_are_equal_where_a_split_says_so(told_: bool, opset: int) -> None:
    """Without sizes before opset 18, or by sizes that are one."""
    parts = "h = Div(n, three) p = Concat<axis=0>(h, h, h) " if told_ else ""
    weights = {"zero": ints(0), "three": ints(3)} if told_ else {}
    weights |= {f"w{k}": numbers(4, 4, seed=k) for k in range(HEADS)}
    lines = " ".join(f"b{k} = MatMul(a{k}, w{k}) y{k} = Relu(b{k})" for k in range(HEADS))
    split = (
        "<axis=0, num_outputs=3>(x)" if opset >= 18 and not told_ else "<axis=0>(x" + ", p)" * told_
    )
    split += ")" * (not told_ and opset < 18)
    shape = "s = Shape(x) n = Gather(s, zero) " if told_ else ""
    text = (
        f"(float[N,4] x) => (float[] y) {{ {shape}{parts}a0, a1, a2 = Split{split} {lines} "
        "y = Concat<axis=0>(y0, y1, y2) }"
    )
    model = with_ranks(name_nodes(net(text, weights, opset=opset)))
    new = onnx_sched.optimize(model, choose="always", check=False).proto
    assert len(nodes_of(new, "MatMul")) == (3 if opset >= 18 and not told_ else 1)
    assert compare(model, new, {"N": 3}, {"N": 6}, {"N": 9}) == 3
