"""Examples for the rules of windows, selects, scatters, quantized, equations, contrib, recurrences, and kin."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from tests.nets import Array, numbers
from tests.rule_examples import (
    FLAT,
    IMAGES,
    Example,
    Maker,
    array,
    entry,
    floats,
    number,
    positive,
    whole,
)

STACKED = ("rows", "conv_t", "nonempty", "grouped_conv")
DEEP = ("rows3", "wide3")
ROWS = FLAT + DEEP
EVERY = (*ROWS, "channels")


def indices(*shape: int, below: int, least: int = 0) -> Maker:
    """Int64 indices that differ by lane."""
    return lambda lane: np.random.default_rng([lane, *shape]).integers(least, below, shape)


def codes(*shape: int, dtype: DTypeLike = np.int8) -> Maker:
    """Quantised numbers that differ by lane."""
    info = np.iinfo(np.dtype(dtype))

    def make(lane: int) -> Array:
        rng = np.random.default_rng([lane, *shape])
        return rng.integers(max(info.min, -100), min(info.max, 100), shape).astype(dtype)

    return make


def scale(*shape: int) -> Maker:
    """Scales of quantisation that differ by lane."""
    return lambda lane: (
        (np.abs(numbers(*shape, seed=lane + 300)) + np.float32(0.5)) / np.float32(40)
    )


def zero(*shape: int, dtype: DTypeLike = np.int8) -> Maker:
    """Zero points that differ by lane."""
    return lambda lane: (
        (np.arange(np.prod(shape, dtype=int)) % 3 + lane).reshape(shape).astype(dtype)
    )


def same(make: Maker) -> Maker:
    """What lane 1 has, for all lanes."""
    return lambda lane: make(1)


def _quantise(axis: int | None, zero_type: DTypeLike = np.int8, size: int = 4) -> dict[str, Maker]:
    shape = () if axis is None else (size,)
    return {"s@": scale(*shape), "z@": zero(*shape, dtype=zero_type)}


NEG = " y@ = Neg(r@)"
INDEX = "h@ = Abs(a@) l@ = Clip(h@, , top) n@ = Cast<to=7>(l@) "
TOP = {"top": number(3.0)}
QUANTISED = "q@ = QuantizeLinear(a@, s, z) "
Q = {"s": scale(), "z": zero()}

WINDOWS = [
    Example("Pad", "r@ = Pad<pads=[0,1,0,2], value=0.5>(a@)" + NEG, {}, FLAT, (7, 9)),
    Example("Pad", "r@ = Pad(a@, p)" + NEG, {"p": whole(0, 2, 0, 1)}, FLAT, (11, 13, 18, 21)),
    Example("Pad", "r@ = Pad(a@, p)" + NEG, {"p": whole(1, 0, 2, 0)}, FLAT, (13, 21)),
    Example("Pad", "r@ = Pad(a@, p)" + NEG, {"p": whole(0, -1, 0, 1)}, FLAT, (13, 21)),
    Example(
        "Pad",
        "r@ = Pad(a@, p, v)" + NEG,
        {"p": whole(0, 1, 0, 0, 0, 2), "v": number(7.0)},
        DEEP,
        (11, 21),
    ),
    Example(
        "Pad",
        'r@ = Pad<mode="reflect">(a@, p)' + NEG,
        {"p": whole(0, 0, 1, 2, 0, 0, 2, 1)},
        IMAGES,
        (11, 21),
    ),
    Example(
        "Pad",
        'r@ = Pad<mode="edge">(a@, p, v, axes)' + NEG,
        {"p": whole(1, 2), "v": number(0.0), "axes": whole(-1)},
        EVERY,
        (18, 21),
    ),
    Example(
        "Pad",
        'r@ = Pad<mode="wrap">(a@, p, , axes)' + NEG,
        {"p": whole(1, 2), "axes": whole(1)},
        (*FLAT, *IMAGES),
        (20, 21),
    ),
    Example("Pad", "r@ = Pad(a@, p)" + NEG, {"p": whole(0, 0, 0, 0)}, FLAT, (13,)),
    Example("Tile", "r@ = Tile(a@, n)" + NEG, {"n": whole(1, 3)}, FLAT, (7, 13, 21)),
    Example("Tile", "r@ = Tile(a@, n)" + NEG, {"n": whole(2, 1)}, FLAT, (7, 13, 21)),
    Example("Tile", "r@ = Tile(a@, n)" + NEG, {"n": whole(1, 2, 3)}, DEEP, (7, 21)),
    Example("Tile", "r@ = Tile(a@, n)" + NEG, {"n": whole(1, 2, 1, 2)}, IMAGES, (7, 21)),
]

JOINS = [
    Example("Concat", "r@ = Concat<axis=1>(a@, b@)" + NEG, {}, EVERY, (7, 13, 21)),
    Example(
        "Concat", "r@ = Concat<axis=1>(a@, z, b@)" + NEG, {}, FLAT, (9, 21), inputs="float[N,2] z"
    ),
    Example(
        "Concat",
        "m@ = ReduceMax<axes=[0], keepdims=1>(a@) r@ = Concat<axis=1>(c@, m@)" + NEG,
        {"c@": floats(1, 2)},
        FLAT,
        (7, 13),
    ),
    Example(
        "Concat",
        "m@ = ReduceMax<axes=[0], keepdims=1>(a@) r@ = Concat<axis=-1>(m@, c)" + NEG,
        {"c": floats(1, 2)},
        FLAT,
        (11, 13),
    ),
    Example(
        "Concat",
        "m@ = ReduceMax<axes=[0,1], keepdims=1>(a@) r@ = Concat<axis=1>(c@, m@, c@)" + NEG,
        {"c@": floats(1, 2, 4)},
        DEEP,
        (11, 13),
    ),
    Example("Concat", "r@ = Concat<axis=0>(c, a@, a@)" + NEG, {"c": floats(1, 4)}, FLAT, (11, 21)),
    Example("Concat", "r@ = Concat<axis=0>(a@, c@)" + NEG, {"c@": floats(1, 4)}, FLAT, (11, 21)),
]

SELECTS = [
    Example("Gather", "r@ = Gather<axis=-1>(a@, at)" + NEG, {"at": whole(2, 0)}, EVERY, (7, 21)),
    Example("Gather", "r@ = Gather<axis=1>(a@, k)" + NEG, {}, FLAT, (7, 21), inputs="int64[J] k"),
    Example(
        "Gather",
        "o@ = Mul(k, o) r@ = Gather<axis=0>(a@, o@)" + NEG,
        {"o": array(lambda k: np.array(0, np.int32))},
        FLAT,
        (7, 21),
        inputs="int32[N,J] k",
    ),
    Example(
        "GatherMany",
        "r@ = Gather<axis=1>(a@, at@)" + NEG,
        {"at@": indices(3, below=4, least=-4)},
        (*FLAT, *IMAGES),
        (7, 13, 21),
        op_type="Gather",
    ),
    Example(
        "GatherMany",
        "r@ = Gather<axis=-1>(a@, at@)" + NEG,
        {"at@": indices(2, 2, below=4)},
        ROWS,
        (7, 21),
        op_type="Gather",
    ),
    Example(
        "GatherMany",
        "t@ = Transpose(a@) r@ = Gather(t@, at@)" + NEG,
        {"at@": indices(3, below=4)},
        FLAT,
        (7, 21),
        op_type="Gather",
    ),
    Example(
        "Gather",
        "t@ = Transpose(a@) n@ = ArgMax<axis=1>(b@) r@ = Gather(t@, n@)" + NEG,
        {},
        FLAT,
        (12, 21),
        op_type="GatherND",
    ),
    Example(
        "Gather",
        "n@ = ArgMax<axis=-1>(b@) r@ = Gather<axis=-1>(a@, n@)" + NEG,
        {},
        EVERY,
        (12, 21),
        op_type="GatherND",
    ),
    Example(
        "Gather",
        "n@ = ArgMax<axis=1>(b@) m@ = Cast<to=6>(n@) r@ = Gather<axis=1>(a@, m@)" + NEG,
        {},
        (*FLAT, *IMAGES),
        (13, 21),
        op_type="GatherND",
    ),
    Example(
        "Gather",
        "n@ = ArgMax<axis=-1>(a@) r@ = Gather<axis=1>(z, n@)" + NEG,
        {},
        FLAT,
        (7, 21),
        inputs="float[2,4] z",
    ),
    Example(
        "Gather",
        "n@ = ArgMax<axis=-1>(a@) r@ = Gather(t@, n@)" + NEG,
        {"t@": floats(4, 2, 3)},
        ROWS,
        (12, 21),
        op_type="GatherND",
    ),
    Example(
        "GatherND",
        "r@ = GatherND(a@, at)" + NEG,
        {"at": array(lambda k: np.array([[[0, 1]], [[0, 3]]]))},
        (*FLAT, *IMAGES),
        (11, 21),
    ),
    Example(
        "GatherND",
        "n@ = ArgMax<axis=-1>(b@) r@ = GatherND<batch_dims=1>(a@, n@)" + NEG,
        {},
        FLAT,
        (12, 21),
    ),
    Example(
        "GatherND",
        "n@ = ArgMax<axis=1>(b@) m@ = Mul(n@, o) r@ = GatherND(a@, m@)" + NEG,
        {"o": entry(0)},
        FLAT,
        (12, 21),
    ),
    Example(
        "GatherND",
        "n@ = ArgMax<axis=-1>(a@) r@ = GatherND(z, n@)" + NEG,
        {},
        FLAT,
        (11, 21),
        inputs="float[4,5] z",
    ),
    Example(
        "GatherElements",
        "n@ = ArgMax<axis=1>(b@) r@ = GatherElements<axis=1>(a@, n@)" + NEG,
        {},
        EVERY,
        (11, 13, 21),
    ),
    Example(
        "GatherElements",
        "n@ = ArgMax<axis=-1>(b@) r@ = GatherElements<axis=-1>(a@, n@)" + NEG,
        {},
        EVERY,
        (13, 21),
    ),
    Example(
        "GatherElements",
        "r@ = GatherElements<axis=-1>(a@, k)" + NEG,
        {},
        FLAT,
        (11, 21),
        inputs="int64[N,2] k",
    ),
    Example(
        "GatherElements",
        "m@ = ReduceMax<axes=[0]>(a@) r@ = GatherElements<axis=1>(m@, at@)" + NEG,
        {"at@": indices(1, 3, below=4, least=-4)},
        FLAT,
        (11, 13),
    ),
    Example(
        "OneHot",
        "n@ = ArgMax<axis=-1, keepdims=0>(a@) y@ = OneHot(n@, d, v)",
        {"d": entry(4), "v": floats(2)},
        EVERY,
        (11, 21),
    ),
    Example(
        "OneHot",
        "n@ = ArgMax<axis=-1, keepdims=0>(a@) y@ = OneHot<axis=0>(n@, d, v)",
        {"d": whole(4), "v": floats(2)},
        ROWS,
        (11, 21),
    ),
    Example(
        "OneHot",
        "n@ = ArgMax<axis=-1>(a@) y@ = OneHot<axis=1>(n@, d, v)",
        {"d": entry(3), "v": floats(2)},
        ROWS,
        (11, 21),
    ),
]

SCATTERS = [
    Example(
        "Scatter",
        "n@ = ArgMax<axis=1>(b@) r@ = Scatter<axis=1>(a@, n@, u@)".replace("u@)", "m@)").replace(
            "r@", "m@ = ReduceMin<axes=[1]>(b@) r@"
        )
        + NEG,
        {},
        EVERY,
        (9,),
    ),
    Example(
        "ScatterElements",
        "n@ = ArgMax<axis=1>(b@) m@ = ReduceMin<axes=[1]>(b@) r@ = ScatterElements<axis=1>(a@, n@, m@)"
        + NEG,
        {},
        EVERY,
        (11, 13),
    ),
    Example(
        "ScatterElements",
        'n@ = ArgMax<axis=-1>(b@) m@ = ReduceMin(b@, ax) r@ = ScatterElements<axis=-1, reduction="add">(a@, n@, m@)'
        + NEG,
        {"ax": whole(-1)},
        EVERY,
        (18, 21),
    ),
    Example(
        "ScatterElements",
        "m@ = ReduceMax<axes=[0]>(a@) r@ = ScatterElements<axis=1>(m@, at@, u@)" + NEG,
        {"at@": array(lambda k: np.array([[k, 3]])), "u@": floats(1, 2)},
        FLAT,
        (11, 13),
    ),
    Example(
        "ScatterElements",
        "m@ = ReduceMax<axes=[0]>(a@) r@ = ScatterElements<axis=1>(c, at, m@)" + NEG,
        {"at": array(lambda k: np.array([[4, 0, 2, 1]])), "c": floats(1, 5)},
        FLAT,
        (11, 13),
    ),
    Example(
        "ScatterND",
        "m@ = ReduceMax<axes=[0], keepdims=0>(b@) r@ = ScatterND(a@, at, m@)" + NEG,
        {"at": whole(0)},
        FLAT,
        (11, 13),
    ),
    Example(
        "ScatterND",
        't@ = Transpose(a@) r@ = ScatterND<reduction="add">(t@, at@, u@)' + NEG,
        {"at@": array(lambda k: np.array([[k, 0], [3, 0], [3, 0]])), "u@": floats(3)},
        FLAT,
        (18, 21),
    ),
    Example(
        "ScatterND",
        "c@ = Transpose(b@) u@ = Slice(c@, from, to, ax) t@ = Transpose(a@) r@ = ScatterND(t@, at@, u@)"
        + NEG,
        {
            "at@": array(lambda k: np.array([[k], [-1]])),
            "from": whole(0),
            "to": whole(2),
            "ax": whole(0),
        },
        FLAT,
        (11, 13, 21),
    ),
    Example(
        "ScatterND",
        'n@ = ArgMax<axis=1>(b@) t@ = Transpose(a@) u@ = MatMul(b@, t@) r@ = ScatterND<reduction="add">(t@, n@, u@)'
        + NEG,
        {},
        FLAT,
        (18, 21),
    ),
    Example(
        "ScatterND",
        't@ = Transpose(a@) u@ = MatMul(b@, t@) r@ = ScatterND<reduction="max">(t@, k, u@)' + NEG,
        {},
        FLAT,
        (18, 21),
        inputs="int64[N,1] k",
    ),
]

QUANTISATION = [
    Example(
        "QuantizeLinear",
        "y@ = QuantizeLinear(a@, s@, z@)",
        _quantise(None),
        EVERY,
        (13, 21),
        "int8",
    ),
    Example(
        "QuantizeLinear", "y@ = QuantizeLinear(a@, s@)", {"s@": scale()}, EVERY, (13, 21), "uint8"
    ),
    Example("QuantizeLinear", "y@ = QuantizeLinear(a@, s, z)", Q, EVERY, (11, 13, 21), "int8"),
    Example(
        "QuantizeLinear",
        "y@ = QuantizeLinear<axis=-1>(a@, s@, z@)",
        _quantise(-1, np.uint8),
        ROWS,
        (13, 21),
        "uint8",
    ),
    Example(
        "QuantizeLinear",
        "y@ = QuantizeLinear<axis=1>(a@, s@, z@)",
        _quantise(1),
        (*FLAT, *IMAGES),
        (13, 21),
        "int8",
    ),
    Example(
        "QuantizeLinear",
        "y@ = QuantizeLinear<axis=1>(a@, s, z)",
        {"s": scale(4), "z": zero(4)},
        (*FLAT, *IMAGES),
        (13, 21),
        "int8",
    ),
    Example(
        "QuantizeLinear",
        "y@ = QuantizeLinear<axis=-1>(a@, s@)",
        {"s@": scale(4)},
        IMAGES[:0] + ROWS,
        (13, 21),
        "uint8",
    ),
    Example(
        "DequantizeLinear",
        QUANTISED + "y@ = DequantizeLinear(q@, c@, d@)",
        {**Q, "c@": scale(), "d@": zero()},
        EVERY,
        (13, 21),
    ),
    Example(
        "DequantizeLinear",
        QUANTISED + "y@ = DequantizeLinear(q@, c@)",
        {**Q, "c@": scale(1)},
        EVERY,
        (13, 21),
    ),
    Example(
        "DequantizeLinear", QUANTISED + "y@ = DequantizeLinear(q@, s, z)", Q, EVERY, (11, 13, 21)
    ),
    Example(
        "DequantizeLinear",
        QUANTISED + "y@ = DequantizeLinear<axis=-1>(q@, c@, d@)",
        {**Q, "c@": scale(4), "d@": zero(4)},
        ROWS,
        (13, 21),
    ),
    Example(
        "DequantizeLinear",
        QUANTISED + "m@ = Transpose(q@) y@ = DequantizeLinear<axis=0>(m@, c@, d@)",
        {**Q, "c@": scale(4), "d@": zero(4)},
        FLAT,
        (13, 21),
    ),
    Example(
        "DequantizeLinear",
        "r@ = DequantizeLinear(c@, s@, z@) y@ = MatMul(a@, r@)",
        {"c@": codes(4, 3000), **_quantise(None)},
        ROWS,
        (13, 21),
    ),
    Example(
        "DequantizeLinear",
        "r@ = DequantizeLinear(c@, s@) y@ = MatMul(a@, r@)",
        {"c@": codes(4, 3000), "s@": scale(3000)},
        ROWS,
        (13, 21),
    ),
    Example(
        "DequantizeLinear",
        "r@ = DequantizeLinear<axis=0>(c@, s@, z@) y@ = MatMul(a@, r@)",
        {"c@": codes(4, 3000, dtype=np.uint8), **_quantise(0, np.uint8)},
        ROWS,
        (13, 21),
    ),
    Example(
        "DequantizeLinear",
        "r@ = DequantizeLinear<axis=0, block_size=2>(c@, s@, z@) y@ = MatMul(a@, r@)",
        {"c@": codes(4, 3000), "s@": scale(2, 3000), "z@": zero(2, 3000)},
        ROWS,
        (21,),
    ),
]

WIDE = ("wide", "wide3")

PRODUCTS = [
    Example(
        "MatMulInteger",
        QUANTISED + "y@ = MatMulInteger(q@, c@, z, d@)",
        {**Q, "c@": codes(4, 3), "d@": zero()},
        ROWS,
        (11, 13, 21),
        "int32",
    ),
    Example(
        "MatMulInteger",
        QUANTISED + "y@ = MatMulInteger(q@, c@, z, d@)",
        {**Q, "c@": codes(4, 3), "d@": zero(3)},
        ROWS,
        (11, 21),
        "int32",
    ),
    Example(
        "MatMulInteger",
        QUANTISED + "y@ = MatMulInteger(q@, c@)",
        {**Q, "c@": codes(4, 3)},
        ROWS,
        (11, 21),
        "int32",
    ),
    Example(
        "MatMulInteger",
        QUANTISED + "y@ = MatMulInteger(q@, c, z, d@)",
        {**Q, "c": codes(4, 3), "d@": zero()},
        ROWS,
        (11, 21),
        "int32",
    ),
    Example(
        "MatMulInteger",
        QUANTISED + "y@ = MatMulInteger(q@, c@, , d@)",
        {**Q, "c@": codes(2, 4, 3), "d@": zero(2, 1, 3)},
        FLAT,
        (11, 21),
        "int32",
    ),
    Example(
        "MatMulInteger",
        "q, s, z = DynamicQuantizeLinear(x) ".replace("q, s, z", "q@, s@, z@")
        + "r@ = MatMulInteger(q@, c@, z@, d@) f@ = Cast<to=1>(r@) y@ = Mul(f@, a@)",
        {"c@": codes(5, 4), "d@": zero()},
        ("wide",),
        (11, 21),
        "float",
    ),
    Example(
        "MatMulInteger",
        "q@, s@, z@ = DynamicQuantizeLinear(x) r@ = MatMulInteger(q@, c@, z@) f@ = Cast<to=1>(r@) y@ = Mul(f@, s@)",
        {"c@": codes(5, 4), "d@": zero()},
        ("wide3",),
        (11, 21),
        "float",
    ),
    Example(
        "QLinearMatMul",
        QUANTISED + "y@ = QLinearMatMul(q@, s, z, c@, e@, d@, t, z)",
        {**Q, "c@": codes(4, 3), "e@": scale(), "d@": zero(), "t": number(0.05)},
        ROWS,
        (11, 21),
        "int8",
    ),
    Example(
        "QLinearMatMul",
        QUANTISED + "y@ = QLinearMatMul(q@, s, z, c@, e@, d@, t, z)",
        {**Q, "c@": codes(4, 3), "e@": scale(3), "d@": zero(3), "t": number(0.05)},
        ROWS,
        (11, 21),
        "int8",
    ),
    Example(
        "QLinearMatMul",
        "q@ = QuantizeLinear(x, s, z) r@ = QLinearMatMul(q@, s, z, c@, e@, d@, t, z) f@ = DequantizeLinear(r@, t, z) y@ = Add(f@, a@)",
        {**Q, "c@": codes(5, 4), "e@": scale(), "d@": zero(), "t": number(0.05)},
        WIDE,
        (11, 21),
    ),
    Example(
        "ConvInteger",
        "q@ = QuantizeLinear(a@, s, z) y@ = ConvInteger<pads=[1,0,1,0]>(q@, c@, z, d)",
        {
            "s": scale(),
            "z": zero(dtype=np.uint8),
            "c@": codes(6, 4, 3, 1, dtype=np.uint8),
            "d": zero(dtype=np.uint8),
        },
        IMAGES,
        (11, 21),
        "int32",
    ),
    Example(
        "ConvInteger",
        "q@ = QuantizeLinear(a@, s, z) y@ = ConvInteger<group=2>(q@, c@, z)",
        {"s": scale(), "z": zero(dtype=np.uint8), "c@": codes(6, 2, 1, 1, dtype=np.uint8)},
        IMAGES,
        (11, 21),
        "int32",
    ),
    Example(
        "QLinearConv",
        QUANTISED + "y@ = QLinearConv<group=2, strides=[2,1]>(q@, s, z, c@, e@, z, t, z, g@)",
        {
            **Q,
            "c@": codes(6, 2, 2, 1),
            "e@": scale(6),
            "t": number(0.05),
            "g@": codes(6, dtype=np.int32),
        },
        IMAGES,
        (11, 21),
        "int8",
    ),
    Example(
        "QLinearConv",
        QUANTISED + "y@ = QLinearConv(q@, s, z, c@, e@, z, t, z)",
        {**Q, "c@": codes(6, 4, 2, 1), "e@": scale(), "t": number(0.05)},
        IMAGES,
        (11, 21),
        "int8",
    ),
]

GEMMS = [
    Example("Gemm", "r@ = DequantizeLinear<axis=0>(c@, s@) y@ = Gemm<transB=1>(a@, r@, h@)", {"c@": codes(3000, 4), "s@": scale(3000), "h@": floats(3000)}, FLAT, (13, 21), op_type="DequantizeLinear"),
    Example("Gemm", "t@ = Transpose(b@) y@ = Gemm<alpha=0.5, beta=2.0>(a@, t@, h@)", {"h@": floats(1)}, FLAT, (7, 13, 21), op_type="MatMul"),
    Example("Gemm", "y@ = Gemm<transB=1, alpha=0.25>(a@, b@)", {}, FLAT, (11, 21), op_type="MatMul"),
    Example("Gemm", "y@ = Gemm<transA=1, beta=0.0>(a@, b@, z)", {}, FLAT, (11, 21), op_type="MatMul", inputs="float[4] z"),
    Example("Gemm", "y@ = Gemm<transA=1, beta=0.5>(a@, b@, z)", {}, FLAT, (11, 21), op_type="MatMul", inputs="float[4] z"),
    Example("Gemm", "m@ = ReduceMax<axes=[0]>(a@) y@ = Gemm<transB=1, beta=0.5>(z, b@, c@)".replace("m@ = ReduceMax<axes=[0]>(a@) ", ""), {"c@": floats(2, 1)}, FLAT, (11, 21), op_type="MatMul", inputs="float[2,4] z"),
]

EQUATIONS = [
    Example("Einsum", 'y@ = Einsum<equation="bi,ij->bj">(a@, u@)', {"u@": floats(4, 3)}, FLAT, (12, 21), op_type="MatMul"),
    Example("Einsum", 'y@ = Einsum<equation="bi,ij->jb">(a@, u)', {"u": floats(4, 3)}, FLAT, (12, 21), op_type="MatMul"),
    Example("Einsum", 'y@ = Einsum<equation="ij,bj->bi">(u@, a@)', {"u@": floats(3, 4)}, FLAT, (12, 21), op_type="MatMul"),
    Example("Einsum", 'y@ = Einsum<equation="bsi, bti -> bst">(a@, b@)', {}, DEEP, (12, 21), op_type="MatMul"),
    Example("Einsum", 'y@ = Einsum<equation="bi,ij">(a@, u@)', {"u@": floats(4, 3)}, FLAT, (12, 21), op_type="MatMul"),
    Example("Einsum", 'y@ = Einsum<equation="...i,ij->...j">(a@, u@)', {"u@": floats(4, 3)}, FLAT, (12, 21), op_type="MatMul"),
    Example("Einsum", 'y@ = Einsum<equation="nchw,kc->nkhw">(a@, u@)', {"u@": floats(2, 4)}, IMAGES, (12, 21), op_type="MatMul"),
    Example("Einsum", 'y@ = Einsum<equation="nchw,nc->nhw">(a@, z)', {}, IMAGES, (12, 21), op_type="MatMul", inputs="float[N,4] z"),
    Example("Einsum", 'y@ = Einsum<equation="nchw,nchw->nc">(a@, b@)', {}, IMAGES, (12, 21), op_type="MatMul"),
    Example("Einsum", 'y@ = Einsum<equation="bi,kj,ij->bk">(a@, z, u@)', {"u@": floats(4, 3)}, ("nonempty",), (12, 21), inputs="float[2,3] z"),
    Example("Einsum", 'y@ = Einsum<equation="bi,bj->bij">(a@, b@)', {}, ("nonempty",), (12, 21)),
    Example("Einsum", 'y@ = Einsum<equation="bi->ib">(a@)', {}, ("nonempty",), (12, 21)),
    Example("Einsum", 'm@ = ReduceMax(u@) y@ = Einsum<equation="jj->j">(m@)'.replace("m@ = ReduceMax(u@) ", "h@ = Transpose(a@) m@ = MatMul(h@, b@) "), {}, FLAT, (12, 21)),
]

CHANNELS = [
    Example(
        "InstanceNormalization",
        "y@ = InstanceNormalization<epsilon=0.01>(a@, g@, h@)",
        {"g@": positive(4), "h@": floats(4)},
        IMAGES,
        (7, 21),
    ),
    Example(
        "InstanceNormalization",
        "y@ = InstanceNormalization(a@, g, h)",
        {"g": positive(4), "h": floats(4)},
        IMAGES,
        (7, 21),
    ),
    Example(
        "GroupNormalization",
        "y@ = GroupNormalization<num_groups=2, epsilon=0.01>(a@, g@, h@)",
        {"g@": positive(4), "h@": floats(4)},
        IMAGES,
        (21,),
    ),
    Example(
        "GroupNormalization",
        "y@ = GroupNormalization<num_groups=2>(a@, g@, h@)",
        {"g@": positive(2), "h@": floats(2)},
        IMAGES,
        (18, 20),
    ),
    Example(
        "ConvTranspose",
        "y@ = ConvTranspose<strides=[2,1], output_padding=[1,0]>(a@, u@, c@)",
        {"u@": floats(4, 3, 2, 2), "c@": floats(3)},
        IMAGES,
        (7, 11, 21),
    ),
    Example(
        "ConvTranspose",
        "y@ = ConvTranspose<group=2, pads=[1,0,0,1]>(a@, u@)",
        {"u@": floats(4, 3, 2, 2)},
        IMAGES,
        (11, 21),
    ),
    Example(
        "ConvTranspose",
        "y@ = ConvTranspose(q, u@, c@)",
        {"u@": floats(3, 2, 2), "c@": floats(2)},
        ("rows",),
        (11, 21),
        inputs="float[N,3,7] q",
    ),
]

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _recurrent(kind: str, more: str, read: str, weights: dict[str, Maker]) -> Example:
    """A recurrence over axis 1 of the lanes, all of them with the same weights."""
    gates = GATES[kind]
    own = {"W": floats(1, 3 * gates, 4), "R": floats(1, 3 * gates, 3), "B": floats(1, 6 * gates)}
    body = f"t@ = Transpose<perm=[1,0,2]>(a@) {more} {read}"
    inputs = ", ".join(
        t for n, t in {"k)": "int32[N] k", "z)": "float[1,N,3] z"}.items() if n in more
    )
    return Example(kind, body, {**own, **weights}, DEEP, (11, 21) if "Slice" in more else (7, 11, 21), inputs=inputs)


RECURRENT = [
    _recurrent("LSTM", "r@, h@, c@ = LSTM<hidden_size=3>(t@, W, R, B)", "y@ = Neg(r@)", {}),
    _recurrent(
        "LSTM",
        'r@, h@, c@ = LSTM<hidden_size=3, direction="reverse", clip=2.0>(t@, W, R, B, , , , P)',
        "y@ = Sub(h@, c@)",
        {"P": floats(1, 9)},
    ),
    _recurrent(
        "LSTM",
        "q@ = Slice(t@, from, to, ax, one) i@ = ReduceMax<axes=[0]>(q@) ".replace(
            "ReduceMax<axes=[0]>", "Identity"
        )
        + "r@, h@ = LSTM<hidden_size=3>(t@, W, R, B, , i@, z)",
        "y@ = Neg(h@)",
        {"from": whole(0, 0), "to": whole(1, 3), "ax": whole(0, 2), "one": whole(1, 1)},
    ),
    _recurrent(
        "GRU",
        "r@, h@ = GRU<hidden_size=3, linear_before_reset=1>(t@, W, R, B, k)",
        "y@ = Neg(r@)",
        {},
    ),
    _recurrent(
        "RNN", 'r@, h@ = RNN<hidden_size=3, activations=["Relu"]>(t@, W, R, B)', "y@ = Neg(h@)", {}
    ),
]

MS = "com.microsoft"

CONTRIB = [
    Example(f"{MS}.BiasGelu", f"y@ = {MS}.BiasGelu(a@, c@)", {"c@": floats(4)}, WIDE),
    Example(
        f"{MS}.BiasGelu",
        f"y@ = {MS}.BiasGelu(a@, c@)",
        {"c@": floats(4)},
        (*STACKED, "rows3"),
        op_type="Gelu",
    ),
    Example(f"{MS}.BiasGelu", f"y@ = {MS}.BiasGelu(a@, c)", {"c": floats(4)}, ROWS),
    Example(f"{MS}.FastGelu", f"y@ = {MS}.FastGelu(a@)", {}, EVERY),
    Example(f"{MS}.FastGelu", f"y@ = {MS}.FastGelu(a@, c@)", {"c@": floats(4)}, ROWS),
    Example(f"{MS}.FusedMatMul", f"y@ = {MS}.FusedMatMul<alpha=0.5, transB=1>(a@, b@)", {}, ROWS),
    Example(
        f"{MS}.FusedMatMul", f"y@ = {MS}.FusedMatMul<transB=1>(a@, u@)", {"u@": floats(3, 4)}, ROWS
    ),
    Example(f"{MS}.FusedMatMul", f"y@ = {MS}.FusedMatMul<transA=1>(a@, b@)", {}, ("nonempty",)),
    Example(
        f"{MS}.SkipLayerNormalization",
        f"y@ = {MS}.SkipLayerNormalization<epsilon=0.01>(a@, b@, g@, h@, c@)",
        {"g@": positive(4), "h@": floats(4), "c@": floats(4)},
        ROWS,
    ),
    Example(
        f"{MS}.SkipLayerNormalization",
        f"y@ = {MS}.SkipLayerNormalization(a@, b@, g, h, c)",
        {"g": positive(4), "h": floats(4), "c": floats(4)},
        ROWS,
    ),
    Example(
        f"{MS}.SkipLayerNormalization",
        f"y@ = {MS}.SkipLayerNormalization(a@, b@, g@)",
        {"g@": positive(4)},
        ROWS,
    ),
    Example(
        f"{MS}.SkipLayerNormalization",
        f"r@, , , s@ = {MS}.SkipLayerNormalization(a@, b@, g@, h@) y@ = Mul(r@, s@)",
        {"g@": positive(4), "h@": floats(4)},
        ROWS,
    ),
    Example(
        f"{MS}.SkipSimplifiedLayerNormalization",
        f"y@ = {MS}.SkipSimplifiedLayerNormalization(a@, b@, g@, c@)",
        {"g@": positive(4), "c@": floats(4)},
        ROWS,
    ),
    Example(
        f"{MS}.SkipSimplifiedLayerNormalization",
        f"r@, , , s@ = {MS}.SkipSimplifiedLayerNormalization<epsilon=0.01>(a@, b@, g, c) y@ = Mul(r@, s@)",
        {"g": positive(4), "c": floats(4)},
        ROWS,
    ),
    Example(
        f"{MS}.MatMulNBits",
        f"r@ = {MS}.MatMulNBits<K=5, N=4, bits=4, block_size=16>(x, c@, s@) y@ = Mul(r@, a@)",
        {"c@": codes(4, 1, 8, dtype=np.uint8), "s@": scale(4)},
        WIDE,
    ),
    Example(
        f"{MS}.MatMulNBits",
        f"r@ = {MS}.MatMulNBits<K=5, N=4, bits=4, block_size=16>(x, c@, s@, z@, , h@) y@ = Mul(r@, a@)",
        {
            "c@": codes(4, 1, 8, dtype=np.uint8),
            "s@": scale(4, 1),
            "z@": codes(4, 1, dtype=np.uint8),
            "h@": floats(4),
        },
        WIDE,
    ),
    Example(
        "SimplifiedLayerNormalization",
        "y@ = SimplifiedLayerNormalization<axis=-1, epsilon=0.01, stash_type=1>(a@, g@)",
        {"g@": positive(4)},
        ROWS,
        (13, 21),
    ),
]

EXAMPLES: tuple[Example, ...] = (
    *WINDOWS,
    *JOINS,
    *SELECTS,
    *SCATTERS,
    *QUANTISATION,
    *PRODUCTS,
    *GEMMS,
    *EQUATIONS,
    *CHANNELS,
    *RECURRENT,
    *CONTRIB,
)
