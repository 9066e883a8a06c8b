"""Examples of rules for quantised numbers."""

from __future__ import annotations

import numpy as np

from tests.example_parts import EVERY, QUANTISED, ROWS, WIDE, Q, codes, quantise, scale, zero
from tests.rule_examples import FLAT, IMAGES, Example, number

QUANTISATION = [
    Example(
        "QuantizeLinear",
        "y@ = QuantizeLinear(a@, s@, z@)",
        quantise(None),
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
        quantise(-1, np.uint8),
        ROWS,
        (13, 21),
        "uint8",
    ),
    Example(
        "QuantizeLinear",
        "y@ = QuantizeLinear<axis=1>(a@, s@, z@)",
        quantise(1),
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
        ROWS,
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
        {"c@": codes(4, 3000), **quantise(None)},
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
        {"c@": codes(4, 3000, dtype=np.uint8), **quantise(0, np.uint8)},
        ROWS,
        (13, 21),
    ),
    Example(
        "DequantizeLinear",
        "r@ = DequantizeLinear<axis=1, block_size=1500>(c@, s@) y@ = MatMul(a@, r@)",
        {"c@": codes(4, 3000), "s@": scale(4, 2)},
        ROWS,
        (21,),
    ),
    Example(
        "DequantizeLinear",
        "r@ = DequantizeLinear<axis=0, block_size=2>(c@, s@, z@) y@ = MatMul(a@, r@)",
        {"c@": codes(4, 3000), "s@": scale(2, 3000), "z@": zero(2, 3000)},
        ROWS,
        (21,),
    ),
]


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
        "q@, s@, z@ = DynamicQuantizeLinear(x) "
        "r@ = MatMulInteger(q@, c@, z@, d@) f@ = Cast<to=1>(r@) y@ = Mul(f@, a@)",
        {"c@": codes(5, 4), "d@": zero()},
        ("wide",),
        (11, 21),
        "float",
    ),
    Example(
        "MatMulInteger",
        "q@, s@, z@ = DynamicQuantizeLinear(x) r@ = MatMulInteger(q@, c@, z@) "
        "f@ = Cast<to=1>(r@) y@ = Mul(f@, s@)",
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
        "q@ = QuantizeLinear(x, s, z) r@ = QLinearMatMul(q@, s, z, c@, e@, d@, t, z) "
        "f@ = DequantizeLinear(r@, t, z) y@ = Add(f@, a@)",
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

QUANTIZED = (*QUANTISATION, *PRODUCTS)
