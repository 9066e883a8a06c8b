"""Small models that have something to say about shapes, sizes, equal values or lanes.

Each has at least one open size or a value that depends on data.  `sightings` runs one, or a committed
model, at two or three sizes, and shows every value.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import ModelProto

from onnx_sched.analysis import Analysis
from tests.nets import (
    COMMITTED,
    Array,
    analysed,
    bindings,
    committed,
    every_value,
    feeds,
    ints,
    net,
    numbers,
)
from tests.nets import symbols as open_sizes

Sizes = dict[str, int]

W44, W46, W64 = numbers(4, 4, seed=1), numbers(4, 6, seed=2), numbers(6, 4, seed=3)
ROW4, ROW6 = numbers(4, seed=4), numbers(6, seed=5)

_TEXTS: Mapping[str, tuple[str, dict[str, Any], int]] = {
    "elementwise": (
        "(float[N,4] x, float[N,1] c, float[4] r) => (float[] y) "
        "{ a = Add(x, c) b = Mul(a, r) d = Sub(c, r) e = Sum(a, b, d) y = Where(m, e, x) m = Less(a, d) }",
        {},
        17,
    ),
    "two names": (
        "(float[N,4] x, float[M,4] z) => (float[] y, float[] w) "
        "{ y = Relu(x) w = Relu(z) a = Concat<axis=0>(x, z) b = MatMul(x, t) t = Transpose(z) }",
        {},
        17,
    ),
    "linear": (
        "(float[N,4] x) => (float[] y) "
        "{ a = Gemm<transB=1>(x, w, b) d = MatMul(a, v) y = Softmax(d) e = ReduceMean<axes=[1]>(d) "
        "f = ReduceSum<keepdims=0>(d, one) }",
        {"w": W64, "b": ROW6, "v": W64, "one": ints(-1)},
        17,
    ),
    "batched product": (
        "(float[B,S,4] x, float[B,1,4,S] z) => (float[] y) "
        "{ a = MatMul(x, w) b = Transpose<perm=[0,2,1]>(a) c = MatMul(a, b) y = Softmax<axis=-1>(c) "
        'd = MatMul(z, x) e = Einsum<equation="bsk,btk->bst">(x, a) }',
        {"w": W44},
        17,
    ),
    "reshape by numbers": (
        "(float[B,S,12] x) => (float[] y) "
        "{ a = Reshape(x, h) b = Transpose<perm=[0,2,1,3]>(a) c = Reshape(b, r) d = Reshape(c, m) "
        "e = Flatten<axis=2>(b) f = Flatten<axis=-1>(b) y = Identity(d) }",
        {"h": ints(0, 0, 4, 3), "r": ints(0, 4, -1), "m": ints(-1, 12)},
        17,
    ),
    "reshape by sizes": (
        """(float[B,S,12] x) => (float[] y)
        {
            s = Shape(x)
            b = Gather<axis=0>(s, zero)
            t = Gather<axis=0>(s, one)
            b1 = Unsqueeze(b, ax)
            t1 = Unsqueeze(t, ax)
            to = Concat<axis=0>(b1, t1, heads)
            a = Reshape(x, to)
            front = Slice(s, i0, i2)
            back = Concat<axis=0>(front, minus)
            y = Reshape(a, back)
            tail = Shape<start=1>(x)
            last = Shape<start=-1,end=3>(x)
            flat = Concat<axis=0>(minus, last)
            z = Reshape(a, flat)
            n = Size(x)
        }""",
        {
            "zero": np.int64(0),
            "one": np.int64(1),
            "ax": ints(0),
            "heads": ints(4, 3),
            "i0": ints(0),
            "i2": ints(2),
            "minus": ints(-1),
        },
        17,
    ),
    "two computed targets": (
        """(float[B,S,12] x, float[B,S,12] z) => (float[] y, float[] w)
        {
            s = Shape(x) b = Slice(s, i0, i1) t = Concat<axis=0>(b, minus, six)
            u = Concat<axis=0>(b, minus, four) y = Reshape(x, t) w = Reshape(z, u)
        }""",
        {"i0": ints(0), "i1": ints(1), "minus": ints(-1), "six": ints(6), "four": ints(4)},
        17,
    ),
    "size arithmetic": (
        """(float[N,6] x) => (float[] y)
        {
            s = Shape(x)
            n = Gather(s, zero)
            k = Gather(s, one)
            half = Div(k, two)
            n1 = Unsqueeze(n, ax)
            h1 = Unsqueeze(half, ax)
            twice = Mul(n, two)
            t1 = Unsqueeze(twice, ax)
            a = Slice(x, ax, h1, e1)
            to = Concat<axis=0>(t1, h1)
            y = Reshape(x, to)
            f = Cast<to=6>(n1)
            g = Cast<to=7>(f)
            z = ConstantOfShape(g)
            full = Expand(n1, s)
            real = Cast<to=1>(n1)
            s32 = Cast<to=6>(s)
            k32 = Gather(s32, one)
            rows = Unsqueeze(s, ax)
            row = Gather<axis=0>(rows, zero)
            back = Gather(s, last)
        }""",
        {
            "zero": np.int64(0),
            "one": np.int64(1),
            "two": np.int64(2),
            "last": np.int64(-1),
            "ax": ints(0),
            "e1": ints(1),
        },
        17,
    ),
    "expand and tile": (
        """(float[N,1] x, float[M] z) => (float[] y)
        {
            a = Expand(x, to) b = Tile(x, rep) s = Shape(z) c = Expand(x, s) d = Tile(z, two)
            e = ConstantOfShape(s) f = Add(c, e) y = Concat<axis=1>(a, b)
        }""",
        {"to": ints(1, 5), "rep": ints(1, 3), "two": ints(2)},
        17,
    ),
    "cuts": (
        """(float[N,12] x) => (float[] y)
        {
            a, b, c = Split<axis=1>(x) d, e = Split<axis=-1>(x, sizes) f = Slice(x, i0, i4, i1)
            g = Slice(x, i4, far, i1) h = Slice(x, m4, far, i1) i = Slice(x, i1, far, i0)
            j = Slice(x, i0, m1, i0) k = Gather<axis=1>(x, g2) l = Gather<axis=1>(x, g12)
            y = Concat<axis=1>(a, b, c)
        }""",
        {
            "sizes": ints(5, 7),
            "i0": ints(0),
            "i1": ints(1),
            "i4": ints(4),
            "m4": ints(-4),
            "m1": ints(-1),
            "far": ints(2**63 - 1),
            "g2": np.int64(2),
            "g12": ints(1, 2),
        },
        17,
    ),
    "old cuts": (
        "(float[N,12] x) => (float[] y) "
        "{ a, b = Split<axis=1,split=[5,7]>(x) c = Slice<axes=[1],starts=[0],ends=[4]>(x) "
        "d = Slice<axes=[0],starts=[1],ends=[-1]>(x) e = Unsqueeze<axes=[1]>(c) "
        "f = Squeeze<axes=[1]>(e) y = ReduceSum<axes=[1],keepdims=0>(f) g = Softmax(x) }",
        {},
        9,
    ),
    "even cuts": (
        "(float[N,12] x, float[5,M] z) => (float[] y, float[] w) "
        "{ a, b, c = Split<axis=1,num_outputs=3>(x) d, e = Split<axis=0,num_outputs=2>(z) "
        "y = Add(a, b) w = ReduceMax(z, k) f = Gelu(x) }",
        {"k": ints(0)},
        20,
    ),
    "same cuts": (
        "(float[N,8] x, float[N,8] z) => (float[] y, float[] w) "
        "{ y = Slice(x, s, e, ax, st) w = Slice(z, s, e, ax, st) a = Add(y, w) b = Slice(x, s, e) }",
        {"s": ints(1), "e": ints(-1), "ax": ints(0), "st": ints(2)},
        17,
    ),
    "images": (
        """(float[N,3,H,W] x) => (float[] y)
        {
            a = Conv<pads=[1,1,1,1]>(x, k) b = Conv<strides=[2,2]>(x, k) c = Conv<strides=[2,2]>(x, m)
            d = Add(b, c) e = MaxPool<kernel_shape=[2,2],strides=[2,2]>(a)
            f = GlobalAveragePool(e) g = Flatten(f) h = AveragePool<kernel_shape=[3,3],ceil_mode=1>(x)
            i = Resize(x, , two) j = ConvTranspose<strides=[2,2]>(d, t) l = Pad(x, p)
            n = BatchNormalization(d, s, s, s, s) o = Flatten<axis=0>(d) y = MatMul(g, v)
            q = Conv<auto_pad="SAME_UPPER",strides=[2,2]>(x, k)
        }""",
        {
            "k": numbers(4, 3, 3, 3, seed=1),
            "m": numbers(4, 3, 3, 3, seed=2),
            "two": np.array([1, 1, 2, 2], np.float32),
            "t": numbers(4, 2, 2, 2),
            "p": ints(0, 0, 1, 2, 0, 0, 0, 1),
            "s": np.abs(numbers(4)),
            "v": W44,
        },
        17,
    ),
    "recurrent": (
        "(float[S,B,4] x) => (float[] y) { y, h, c = LSTM<hidden_size=3>(x, w, r) }",
        {"w": numbers(1, 12, 4), "r": numbers(1, 12, 3)},
        17,
    ),
    "norms": (
        "(float[N,S,4] x) => (float[] y) { a = LayerNormalization(x, g, g) "
        "b, m, v = LayerNormalization<axis=1>(x, w) y = Add(a, b) c, d = Dropout(y) }",
        {"g": ROW4, "w": ROW4},
        17,
    ),
    "by data": (
        """(float[N,4] x, float[N,4] z, bool[N] p, bool[N] q) => (float[] y, float[] w)
        {
            a = NonZero(x) b = NonZero(z) y = Compress<axis=0>(x, p) w = Compress<axis=0>(x, q)
            c, i, j, k = Unique<sorted=1>(x) d, l, m, n = Unique<sorted=1>(z) e = NonZero(x)
            f = Compress<axis=0>(z, p)
        }""",
        {},
        17,
    ),
    "by inputs": (
        """(float[N,4] x, float[N,4] z, int64[2] s, int64[2] t, int64[2] e, int64[2] f,
            int64[1] i, int64[1] j, int64 k, int64 l) => (float[] y, float[] w)
        {
            y = Reshape(x, s) w = Reshape(x, t) a = Expand(u, e) b = Expand(u, f) c = Tile(x, e)
            d = Slice(x, i, far) g = Slice(x, j, far) h = Range(nought, k, one)
            m = Range(nought, l, one) n = ConstantOfShape(e) p = ConstantOfShape(f)
            q = OneHot(o, i, v) r = OneHot(o, j, v) aa, ab = TopK(x, i) ac, ad = TopK(x, j)
            ae = Slice(z, i, far) af = Reshape(z, s)
        }""",
        {
            "u": np.ones((1, 1), np.float32),
            "far": ints(99),
            "nought": np.int64(0),
            "one": np.int64(1),
            "o": ints(0, 1),
            "v": np.array([0, 1], np.float32),
        },
        17,
    ),
    "names twice": (
        """(float[N,4] x) => (float[] y)
        {
            a = Identity(x) b = Relu(a) c = Relu(x) d = Cast<to=1>(b) e = Transpose<perm=[0,1]>(d)
            f = Dropout(e) g = Add(f, c) h = Add(b, b) i = LeakyRelu<alpha=0.1>(x)
            aa = Concat<axis=1>(x) ab = Sum(x) ac = Mean(x) ad = Max(c) ae = Min(x)
            j = LeakyRelu<alpha=0.2>(x) k = LeakyRelu<alpha=0.1>(a) l = Cast<to=11>(x)
            m = Cast<to=1>(l) n = Clip(x, lo) o = Clip(x, , lo) p = Sub(x, c) q = Sub(c, x)
            y = Sum(g, h, i, j, k, m, n, o, p, q)
        }""",
        {"lo": np.float32(0)},
        17,
    ),
    "draws": (
        """(float[N,4] x) => (float[] y)
        {
            a = RandomNormalLike(x) b = RandomNormalLike(x) c = RandomUniform<shape=[4]>()
            d = RandomUniform<shape=[4]>() e = Bernoulli(half) f = Bernoulli(half)
            g, gm = Dropout(x, ratio, yes) h, hm = Dropout(x, ratio, yes) i = Dropout(x, ratio)
            j = Dropout(x, ratio) k = Multinomial<sample_size=3>(x) l = Multinomial<sample_size=3>(x)
            half = Mul(x, zero) y = Sum(a, b, c, d, e, f, g, h, i, j)
        }""",
        {"ratio": np.float32(0.5), "yes": np.array(True), "zero": np.float32(0)},
        17,
    ),
    "bodies": (
        """(float[N,4] x, bool p) => (float[] y)
        {
            a = If (p) <then_branch = t () => (float[] r) { r = Relu(x) },
                        else_branch = e () => (float[] s) { s = Neg(x) }>
            b = If (p) <then_branch = t () => (float[] r) { r = Neg(x) },
                        else_branch = e () => (float[] s) { s = Relu(x) }>
            y = Add(a, b) c = Relu(a) d = Relu(b)
        }""",
        {},
        17,
    ),
    "functions": (
        """(float[N,4] x) => (float[] y) { a = f.Twice(x) b = f.Twice(x) y = Add(a, b) }
        <domain: "f", opset_import: ["" : 17]> Twice (u) => (v) { v = Add(u, u) }""",
        {},
        17,
    ),
    "contrib": (
        "(float[N,4] x) => (float[] y) { a = com.microsoft.Gelu(x) b = com.microsoft.Gelu(x) "
        "c = com.microsoft.BiasGelu(x, r) y = Sum(a, b, c) }",
        {"r": ROW4},
        17,
    ),
    "old softmax": (
        "(float[N,3,4] x) => (float[] y) "
        "{ p = Softmax(w) q = LogSoftmax(w) r = Hardmax(w) s = Add(p, q) t = Mul(s, r) y = Mul(x, t) }",
        {"w": numbers(2, 3, 4)[:1]},
        11,
    ),
    "folding": (
        """(float[N,4] x) => (float[] y)
        {
            a = Mul(w, two) b = Transpose(a) c = Softmax(b) d = Cast<to=10>(c) e = Cast<to=1>(d)
            f = ReduceMean<axes=[0]>(e) g = Sqrt(sq) sq = Mul(f, f) h = Tanh(g) i = Div(m, n)
            j = Mod(m, n) k = Cast<to=1>(i) l = Concat<axis=0>(h, f) o = Slice(l, i0, i1)
            p = Gemm<alpha=0.5,transB=1>(w, w) q = Erf(w) r = Round(w) s = CumSum(w, ax)
            t = Pad(w, pads) u = Clip(w, lo, two) v = Reshape(w, flat) aa = Squeeze(f, i0)
            ab = Where(ac, f, h) ac = Less(f, h) ad = ArgMax(w) ae = Expand(two, i4) af = Exp(w)
            ag = Sigmoid(w) ah = LayerNormalization(w, row) ai = Pow(w, two) aj = Gather(w, ad)
            y = Add(x, ab)
        }""",
        {
            "w": W44,
            "two": np.float32(2),
            "m": ints(-7, 7, -7, 7),
            "n": ints(2, 2, -2, -3),
            "i0": ints(0),
            "i1": ints(1),
            "pads": ints(1, 0, 0, 2),
            "lo": np.float32(-0.5),
            "flat": ints(2, -1),
            "i4": ints(4),
            "ax": np.int64(1),
            "row": ROW4,
        },
        17,
    ),
    "undone": (
        """(float[N,4] p, float[N,4] q, float[N,4] r) => (float[] y)
        {
            c = Concat<axis=1>(p, q, r) a, b, d = Split<axis=1>(c) e = Slice(c, i4, i8, i1)
            f = Reshape(c, to) g = Transpose<perm=[1,0,2]>(f) h = Gather<axis=0>(g, two)
            y = Sum(a, b, d, e, h)
        }""",
        {
            "i1": ints(1),
            "i4": ints(4),
            "i8": ints(8),
            "to": ints(0, 3, 4),
            "two": np.int64(2),
        },
        17,
    ),
    "empty corners": (
        "(float[N,0] x, float[N] z, float s) => (float[] y) "
        "{ a = Concat<axis=1>(x, b) b = Unsqueeze(z, one) y = Mul(a, s) c = Shape(s) d = Reshape(s, c) "
        "e = Squeeze(b, one) f = ReduceSum(x, one) }",
        {"one": ints(1)},
        17,
    ),
}

DOMAINS = {"f": 1, "com.microsoft": 1}

ZOO = tuple(_TEXTS)
MODELS = (*ZOO, *COMMITTED)
RANDOM = frozenset({"draws", "near_training_dropout"})
"""Models of which two runs differ."""

_FED: Mapping[str, tuple[dict[str, Array], ...]] = MappingProxyType(
    {
        "by inputs": (
            {"s": ints(2, -1), "t": ints(4, -1), "e": ints(2, 3), "f": ints(3, 2)}
            | {"i": ints(1), "j": ints(2), "k": np.array(3), "l": np.array(5)},
        ),
    }
)


@cache
def model(name: str) -> ModelProto:
    """A model of the zoo or of the repository; nobody may change it."""
    if name in COMMITTED:
        return committed(name)
    text, weights, opset = _TEXTS[name]
    return net(text, weights, opset=opset, domains=DOMAINS)


@cache
def studied(name: str) -> Analysis:
    """What is known about a model; nobody may change it."""
    return analysed(model(name))


@cache
def sightings(name: str) -> tuple[tuple[Sizes, dict[str, Array]], ...]:
    """The sizes of the inputs and all values of a model, for several runs."""
    proto = model(name)
    found: list[tuple[Sizes, dict[str, Array]]] = []
    for sizes in bindings(open_sizes(proto), (2, 5, 7), (6, 4, 9), (8, 8, 8)):
        fed = feeds(proto, seed=len(found), **sizes)
        for extra in _FED.get(name, ()):
            fed |= extra
        found.append((sizes, every_value(proto, fed)))
    return tuple(found)
