"""Small models on which the optimizer failed once."""

from __future__ import annotations

import ast
import re
import zlib
from collections.abc import Callable
from functools import partial

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper

from tests.random_models.builder import Array

F32 = np.float32


def text(body: str, *, opset: int = 17, **weights: Array) -> ModelProto:
    """A model written in ONNX's text form.

    A line before it may say what its weights are: `w v = (4,3); low = -1.0` gives two of normal
    numbers by their shape, and one by its value.  Those of other types are given as arrays.
    """
    said, graph = ("", body) if body.startswith("(") else body.split("\n", 1)
    head = f'<ir_version: 8, opset_import: ["" : {opset}]> kept '
    model = onnx.parser.parse_model(head + graph)
    arrays: dict[str, Array] = {}
    for part in filter(None, said.split(";")):
        names, value = part.split("=")
        arrays |= {n: _weight(n, ast.literal_eval(value.strip())) for n in names.split()}
    arrays |= weights
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
    return model


def _weight(name: str, given: object) -> Array:
    """Normal numbers of a shape, or the numbers given: float32 or int64."""
    if isinstance(given, tuple):
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        return np.asarray(rng.standard_normal(given)).astype(F32)
    array = np.asarray(given)
    return array.astype(F32) if array.dtype.kind == "f" else array


def large_constants() -> ModelProto:
    """Weights of Constant nodes, which have no names of their own, above the size compared by value."""
    rng = np.random.default_rng(3)
    nodes = []
    for lane in "ab":
        tensor = numpy_helper.from_array(rng.standard_normal((32, 16)).astype(np.float32))
        nodes.append(helper.make_node("Constant", [], [f"w{lane}"], value=tensor))
        nodes.append(helper.make_node("MatMul", [f"x{lane}", f"w{lane}"], [f"y{lane}"]))
    nodes.append(helper.make_node("Add", ["ya", "yb"], ["y"]))
    inputs = [helper.make_tensor_value_info(f"x{lane}", 1, ["N", 32]) for lane in "ab"]
    outputs = [helper.make_tensor_value_info("y", 1, ["N", 16])]
    graph = helper.make_graph(nodes, "kept", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def spelled_norm(low_a: object, low_b: object, centred: bool = True) -> ModelProto:
    """Two lanes of LayerNormalization (or of its root mean square) in plain ops, each with its epsilon."""
    lanes = "".join(
        f"""h{k} = MatMul(x{k}, w{k})  m{k} = ReduceMean<axes=[-1]>(h{k})  c{k} = Sub(h{k}, m{k})
        p{k} = Pow(c{k}, two)  v{k} = ReduceMean<axes=[-1]>(p{k})  e{k} = Add(v{k}, low{k})
        s{k} = Sqrt(e{k})  n{k} = Div(c{k}, s{k})  y{k} = Mul(n{k}, g)
        """
        for k in "ab"
    )
    if not centred:
        lanes = re.sub(r"m\w = ReduceMean\S+  c(\w) = Sub\(h\w, m\w\)", r"c\1 = Neg(h\1)", lanes)
    return text(
        f"""wa wb = (4,4); two = 2.0; g = (4,); lowa = {low_a}; lowb = {low_b}
        (float[N,4] xa, float[N,4] xb) => (float[N,4] ya, float[N,4] yb) {{ {lanes} }}"""
    )


TEXTS = {
    "a bias in the first of two convolutions": """w v = (2,1,1); c = (2,)
        (float[N,2,2] x) => (float[N,2,2] y) { a = Conv<group=2, kernel_shape=[1]>(x, w)
        b = Conv<group=2, kernel_shape=[1]>(x, v, c)  y = Add(b, a) }""",
    "the same product twice, a bias behind one of them": """w = (4,8); bias = (8,); p q = (8,2); r s = (2,3)
        (float[N,4] x) => (float[N,3] y) { a = MatMul(x, w)  b = MatMul(x, w)  c = MatMul(b, p)
        d = Add(a, bias)  e = MatMul(d, q)  f = MatMul(c, r)  g = MatMul(e, s)  y = Add(f, g) }""",
    "the same sum of lanes twice, one of them added up further": """w v = (4,4)
        (float[N,4] xa, float[N,4] xb) => (float[N,4] y, float[N,4] z) { a = MatMul(xa, w)
        b = MatMul(xb, v)  s = Add(a, b)  t = Add(a, b)  u = Add(s, xa)  c = MatMul(t, w)
        d = MatMul(u, v)  y = Add(c, d)  z = Neg(t) }""",
    "lanes in which nothing differs: products": """w v = [[2.0, 0, 0], [0, 2.0, 0], [0, 0, 2.0]]
        (float[3,4] x) => (float[3,4] y) { a = MatMul(w, x)  b = MatMul(v, x)  c = Relu(a)
        d = Tanh(b)  y = Add(c, d) }""",
    "lanes in which nothing differs: bounds": """turn = [2, 0, 1]; low lower = -1.0; w v = (3,4)
        (float[3,3] x, float[3,3] z) => (float[3,4] y) { a = MatMul(x, z)  b = Clip(a, low)
        c = Clip(a, lower)  f = Gather<axis=1>(b, turn)  g = Gather<axis=1>(c, turn)
        d = MatMul(f, w)  e = MatMul(g, v)  y = Sub(d, e) }""",
    "lanes in which nothing differs: a default written out": """turn = [2, 0, 1]; w v = (3,4)
        (float[N,3] x) => (float[N,4] y) { b = LeakyRelu(x)  c = LeakyRelu<alpha=0.01>(x)
        f = Gather<axis=1>(b, turn)  g = Gather<axis=1>(c, turn)  d = MatMul(f, w)
        e = MatMul(g, v)  y = Sub(d, e) }""",
    "the axis of CumSum is an input": """w v = (4,3)
        (float[N,4] x, float[N,4] z, int64 index) => (float[N,3] y) { a = CumSum(x, index)
        b = CumSum(z, index)  c = MatMul(a, w)  d = MatMul(b, v)  y = Sub(c, d) }""",
    "the count of TopK is an input": """w v = (4,3)
        (float[N,4] x, int64[1] index) => (float[N,k] y) { a = MatMul(x, w)  b = MatMul(x, v)
        c, ci = TopK(a, index)  d, di = TopK(b, index)  y = Sub(c, d) }""",
    "a lane brought out once and once again": """w v u = (3,2)
        (float[N,3] xa, float[N,3] xb, float[N,3] xc, float[N,2] z) => (float[N,2] c, float[N,8] y) {
        a = MatMul(xa, w)  b = MatMul(xb, v)  c = MatMul(xc, u)  y = Concat<axis=1>(a, z, b, c) }""",
    "a Concat of lanes and one piece of a Split": """w = [[2.0]]; v = [[3.0]]
        (float[N,3,8] x) => (float[N,3,8] y) { a, b, c = Split<axis=1>(x)  d = MatMul(w, b)
        e = MatMul(v, c)  y = Concat<axis=1>(a, d, e) }""",
    "a sum of lanes and one piece of a Split": """w v = (4,4)
        (float[N,12] x) => (float[N,4] y) { a, b, c = Split<axis=1>(x)  d = MatMul(b, w)
        e = MatMul(c, v)  s = Add(d, e)  y = Add(s, a) }""",
    "LayerNormalization over more than the last axis, lanes in between": """g h = (2,1); w v = (1,2)
        (float[N,2,2] x) => (float[N,2,2] y) { a, b = Split<axis=2>(x)
        c = LayerNormalization<axis=-2>(a, g)  d = LayerNormalization<axis=-2>(b, h)
        e = MatMul(c, w)  f = MatMul(d, v)  y = Add(e, f) }""",
    "LayerNormalization over all axes": """w v = (4,1); g h = (3,1,8,1)
        (float[3,1,8,4] x) => (float[3,1,8,1] y, float[3,1,8,1] z) { a = MatMul(x, w)
        b = MatMul(x, v)  y = LayerNormalization<axis=0>(a, g)
        z = LayerNormalization<axis=0>(b, h) }""",
    "rows on one axis meet an operand that broadcasts over some of them": """w v = (4,5)
        (float[4,3,4] x, float[4,3,4] z, float[1,3,5] p, float[1,3,5] q) => (float[4,3,5] y) {
        a = MatMul(x, w)  b = MatMul(z, v)  c = Add(a, p)  d = Add(b, q)  y = Sub(c, d) }""",
    "rows with a spare one meet an operand that all rows share": """w v = (4,5)
        (float[N,4] x, float[N,4] z, float[1,5] p, float[1,5] q) => (float[N,5] y) {
        a = MatMul(x, w)  b = MatMul(z, v)  c = Mul(a, p)  d = Mul(b, q)  y = Sub(c, d) }""",
    "bounds of Clip of shape [1]": """w v = (2,8); low = [-1.0]
        (float[N,3,2] x) => (float[N,3,8] y) { a = MatMul(x, w)  b = MatMul(x, v)
        c = Clip(a, low)  d = Clip(b, low)  y = Add(c, d) }""",
    "PRelu of one value with a slope of each lane": """w v = (4,3,1)
        (float[N,3,2] x, float[N,1,2] p, float[N,1,2] q) => (float[N,4,2] y) { a = PRelu(x, p)
        b = PRelu(x, q)  c = Conv<kernel_shape=[1]>(a, w)  d = Conv<kernel_shape=[1]>(b, v)
        y = Sub(c, d) }""",
    "an empty batch of two axes": """w v = (4,4)
        (float[N,8] x) => (float[N,8] y) { a, b = Split<axis=1>(x)  c = MatMul(a, w)
        d = MatMul(b, v)  e = Relu(c)  f = Relu(d)  y = Concat<axis=1>(e, f) }""",
    "an empty batch and an open length": """one = [1]; w v = (8,8)
        (float[N,1,S,8] x, float[N,S,8] p, float[N,S,8] q) => (float[N,3,S,8] y) {
        a = Unsqueeze(p, one)  b = Unsqueeze(q, one)  c = MatMul(a, w)  d = MatMul(b, v)
        y = Concat<axis=1>(x, c, d) }""",
    "a batch that is always empty": """w v = (8,2)
        (float[0,4,8] p, float[0,4,8] q) => (float[0,4,2] y) { c = MatMul(p, w)  d = MatMul(q, v)
        y = Add(c, d) }""",
    "parts of what is always empty": """w v = (4,4)
        (float[0,4] x, float[4,0] p, float[0,0] q) => (float[0,0] y) { a = MatMul(x, w)
        b = MatMul(a, p)  c = Softmax<axis=1>(b)  d = MatMul(x, v)  e = Transpose<perm=[1,0]>(d)
        f = MatMul(x, e)  g = Softmax<axis=1>(f)  h = Pow(c, q)  i = Pow(g, q)
        y = Concat<axis=1>(q, q, h, i) }""",
    "a window that begins in the padding": """one = 1; w v = (2,4)
        (float[N,2,2] x, float[N,2,4] z) => (float[N,4] y) {
        p = AveragePool<ceil_mode=1, kernel_shape=[1], strides=[2]>(x)  c = Concat<axis=-1>(x, p)
        a = Gather<axis=2>(z, one)  b = Gather<axis=2>(c, one)  d = MatMul(a, w)  e = MatMul(b, v)
        y = Add(d, e) }""",
    "norms of what is joined and split again": """w v = (4,4); g h = (4,)
        (float[N,4] x, float[N,4] z) => (float[N,8] c, float[N,4] y, float[N,4] t) {
        a = MatMul(x, w)  b = MatMul(z, v)  c = Concat<axis=1>(a, b)  d, e = Split<axis=1>(c)
        y = LayerNormalization(d, g)  t = LayerNormalization(e, h) }""",
    "parts that overlap of products cut into parts": """w v u t = (4,4)
        (float[N,4] x) => (float[N,4] y, float[N,4] z, float[N,4] o) {
        a = MatMul(x, w)  b = MatMul(x, v)  c = MatMul(x, u)  d = MatMul(x, t)
        e = Relu(a)  f = Relu(b)  g = Tanh(c)  h = Tanh(d)  i = Neg(b)  j = Neg(c)
        y = Add(e, f)  z = Add(g, h)  o = Sub(i, j) }""",
    "parts of one Split, turned round": """o0 = [0]; o3 = [3]; o6 = [6]; o9 = [9]; ax = [1]; w v = (3,1)
        (float[N,12] x) => (float[N,1] y, float[N,1] z, float[N,3] o) {
        p = Slice(x, o0, o3, ax)  q = Slice(x, o3, o6, ax)  r = Slice(x, o6, o9, ax)
        a, b, c = Split<axis=1>(p)  d, e, f = Split<axis=1>(q)  g, h, i = Split<axis=1>(r)
        k = Concat<axis=1>(c, b, a)  l = Concat<axis=1>(f, e, d)  o = Concat<axis=-1>(i, h, g)
        y = MatMul(k, w)  z = MatMul(l, v) }""",
}
"""Models by what was wrong."""

REGRESSIONS: dict[str, Callable[[], ModelProto]] = {
    **{name: partial(text, body) for name, body in TEXTS.items()},
    "an empty batch of lanes that are outputs": partial(
        text,
        """w v u = (8,8)
        (float[N,3,8] x, float[N,3,8] z, float[N,3,8] q) =>
        (float[N,3,8] a, float[N,3,8] b, float[N,3,8] c) {
        a = MatMul(x, w)  b = MatMul(z, v)  c = MatMul(q, u) }""",
        opset=21,
    ),
    "equal numbers of other shapes, added to one value": lambda: text(
        """(float[N,4] x) => (float[N,3] y) { s = Tanh(x)
        a = Add(s, p)  b = Add(s, q)  c = MatMul(a, w)  d = MatMul(b, v)  y = Sub(c, d) }""",
        p=np.array(0.5, np.float32),
        q=np.full(1, 0.5, np.float32),
        w=np.linspace(-1, 1, 12).reshape(4, 3).astype(np.float32),
        v=np.linspace(-2, 1, 12).reshape(4, 3).astype(np.float32),
    ),
    "double precision": lambda: text(
        """(double[N,4] x, double[N,4] z) => (double[N,5] y) {
        a = MatMul(x, w)  b = MatMul(z, v)  y = Sub(a, b) }""",
        w=np.linspace(-1, 1, 20).reshape(4, 5),
        v=np.linspace(-2, 1, 20).reshape(4, 5),
    ),
    "half precision and a weight that all lanes share": lambda: text(
        """(float16[N,6] x) => (float16[N,4] y) {
        a, b = Split<axis=1>(x, split)  c = MatMul(a, w)  d = MatMul(b, w)  e = Tanh(c)  f = Tanh(d)
        y = Add(e, f) }""",
        w=np.linspace(-1, 1, 12).reshape(3, 4).astype(np.float16),
        split=np.array([3, 3]),
    ),
    "large weights of Constant nodes": large_constants,
    "equal epsilons of different shapes": partial(spelled_norm, 0.01, [0.01]),
    "different epsilons": partial(spelled_norm, 0.01, 0.1),
    "different epsilons of a root mean square": partial(spelled_norm, 0.01, 0.1, centred=False),
    "equal epsilons of a root mean square": partial(spelled_norm, 0.01, [0.01], centred=False),
}
"""Small models on which the optimizer failed once, by what was wrong."""
