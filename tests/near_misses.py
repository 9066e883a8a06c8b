"""Lanes that look alike and must not run as one node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tests.example_parts import MS, NEG, QUANTISED, WIDE, Q, codes, scale, zero
from tests.rule_examples import IMAGES, Example, Maker, floats, number, positive, reals, whole


@dataclass(frozen=True, slots=True)
class Near:
    """Lanes that look alike and must not run as one node.

    Attributes:
        example: The lanes.
        says: What the reason says; empty where they are not even compared.
        runs: Whether the runtime can run the original.
    """

    example: Example
    says: str = ""
    runs: bool = True


def by_lane(*values: ArrayLike) -> Maker:
    """A constant for each lane, as listed."""
    return lambda lane: np.asarray(values[lane])


def _near(row: str, body: str, weights: dict[str, Maker], says: str = "", **more: Any) -> Near:
    runs = more.pop("runs", True)
    given = {"ways": ("rows",), "opsets": (21,), **more}
    return Near(Example(row, body, weights, **given), says, runs)


OWN_LSTM = {"W@": floats(1, 12, 4), "R@": floats(1, 12, 3)}

NEAR: tuple[Near, ...] = (
    _near(
        "Pad", "r@ = Pad(a@, e@)" + NEG, {"e@": by_lane([0, 1, 0, 2], [0, 2, 0, 1], [0, 3, 0, 0])}
    ),
    _near("Pad", "r@ = Pad(a@, p, v@)" + NEG, {"p": whole(0, 1, 0, 2), "v@": floats()}),
    _near("Pad", "r@ = Pad(a@, p)" + NEG, {}, "computed", inputs="int64[4] p", runs=False),
    _near("Tile", "r@ = Tile(a@, n@)" + NEG, {"n@": by_lane([2, 1], [1, 2], [3, 1])}),
    _near("Tile", "r@ = Tile(a@, n)" + NEG, {}, "computed", inputs="int64[2] n"),
    _near("Gather", "r@ = Gather<axis=1>(a@, at@)" + NEG, {"at@": by_lane(0, 2, 1)}),
    _near(
        "Gather",
        "n@ = ArgMax<axis=-1>(b@) r@ = Gather<axis=-1>(a@, n@)" + NEG,
        {},
        "before opset 12",
        opsets=(11,),
    ),
    _near(
        "GatherMany",
        "r@ = Gather<axis=1>(a@, at@)" + NEG,
        {"at@": by_lane([0, 1], [2, 4], [1, 1])},
        "beyond the end",
        op_type="Gather",
        runs=False,
    ),
    _near(
        "OneHot",
        "n@ = ArgMax<axis=-1>(a@) y@ = OneHot(n@, d@, v)",
        {"d@": by_lane(4, 5, 6), "v": floats(2)},
    ),
    _near(
        "OneHot",
        "n@ = ArgMax<axis=-1>(a@) y@ = OneHot(n@, d, v)",
        {"v": floats(2)},
        "computed",
        inputs="int64[1] d",
    ),
    _near(
        "Resize",
        "r@ = Resize(a@, , s@)" + NEG,
        {"s@": by_lane(*(np.array([1, k], np.float32) for k in (2, 3, 4)))},
        joined=False,
    ),
    _near("Resize", "r@ = Resize(a@, , s)" + NEG, {}, "not known", inputs="float[2] s", runs=False),
    _near(
        "Resize",
        'i@ = Cast<to=6>(a@) r@ = Resize<mode="linear">(i@, , s) y@ = Cast<to=1>(r@)',
        {"s": reals(1, 1.5)},
        "whole numbers",
    ),
    _near(
        "Resize",
        'r@ = Resize<mode="linear", antialias=1>(a@, , s)' + NEG,
        {"s": reals(1, 0.5)},
        "smooths",
    ),
    _near(
        "Resize",
        'r@ = Resize<mode="linear", keep_aspect_ratio_policy="not_larger">(a@, , , to)' + NEG,
        {"to": whole(3, 7)},
        "not known",
        runs=False,
    ),
    _near(
        "Resize",
        'r@ = Resize<coordinate_transformation_mode="tf_crop_and_resize">(a@, roi, s)' + NEG,
        {"roi": reals(0, 0, 1, 1), "s": reals(1, 2)},
        "not known",
    ),
    _near(
        "ScatterND",
        "r@ = ScatterND(a@, k, u@)" + NEG,
        {"u@": floats(1, 4)},
        "only at run time",
        inputs="int64[1,J] k",
        runs=False,
    ),
    _near(
        "QuantizeLinear",
        "y@ = QuantizeLinear(a@, s@)",
        {"s@": scale()},
        "before opset 13",
        opsets=(11,),
        out="uint8",
    ),
    _near(
        "QuantizeLinear",
        "y@ = QuantizeLinear(a@, s)",
        {},
        "computed",
        inputs="float[1] s",
        out="uint8",
        runs=False,
    ),
    _near(
        "QuantizeLinear",
        "r@ = QuantizeLinear(a@, s@, z@) y@ = DequantizeLinear(r@, s@, z@)",
        {"s@": scale(), "z@": by_lane(np.int8(1), np.uint8(1), np.int16(1))},
    ),
    _near(
        "QuantizeLinear",
        "r@ = QuantizeLinear<output_dtype=22>(a@, s) y@ = DequantizeLinear(r@, s)",
        {"s": number(0.5)},
        "no whole bytes",
    ),
    _near(
        "DynamicQuantizeLinear",
        "r@, s@, z@ = DynamicQuantizeLinear(a@) y@ = DequantizeLinear(r@, s@, z@)",
        {},
        "range",
    ),
    _near(
        "MatMulInteger",
        "q@ = QuantizeLinear(a@, s, z@) y@ = MatMulInteger(q@, c@, z@)",
        {"s": scale(), "z@": zero(), "c@": codes(4, 3)},
        out="int32",
    ),
    _near(
        "MatMulInteger",
        "q@, s@, z@ = DynamicQuantizeLinear(a@) y@ = MatMulInteger(q@, c@, z@)",
        {"c@": codes(4, 3, dtype=np.uint8)},
        "one of each",
        out="int32",
    ),
    _near(
        "MatMulInteger",
        QUANTISED + "y@ = MatMulInteger(q@, c@, z, k)",
        {**Q, "c@": codes(4, 3)},
        "computed",
        inputs="int8[1] k",
        out="int32",
    ),
    _near(
        "QLinearMatMul",
        QUANTISED + "y@ = QLinearMatMul(q@, s, z, c@, e, z, t@, z)",
        {**Q, "c@": codes(4, 3), "e": scale(), "t@": scale()},
        out="int8",
    ),
    _near(
        "ConvInteger",
        "y@ = ConvInteger<group=3>(q, c@)",
        {"c@": codes(6, 1, 1, dtype=np.uint8)},
        "interleaved",
        inputs="uint8[N,3,7] q",
        out="int32",
    ),
    _near(
        "ConvInteger",
        "q@ = QuantizeLinear(a@, s, z) y@ = ConvInteger(q@, c@, z, d@)",
        {
            "s": scale(),
            "z": zero(dtype=np.uint8),
            "c@": codes(6, 4, 1, 1, dtype=np.uint8),
            "d@": zero(dtype=np.uint8),
        },
        ways=IMAGES,
        out="int32",
    ),
    _near(
        "QLinearConv",
        QUANTISED + "y@ = QLinearConv(q@, s, z, c@, e, z, t@, z)",
        {**Q, "c@": codes(6, 4, 2, 1), "e": scale(), "t@": scale()},
        ways=IMAGES,
        out="int8",
    ),
    _near("Einsum", 'y@ = Einsum<equation="bi,bj->bij">(a@, b@)', {}, "--nonempty"),
    _near(
        "Einsum",
        'y@ = Einsum<equation="bI,Ij">(a@, u@)',
        {"u@": floats(4, 3)},
        "to the runtime",
        ways=("nonempty",),
        runs=False,
    ),
    _near(
        "Einsum",
        'y@ = Einsum<equation="...i,...i->...i">(a@, u@)',
        {"u@": floats(1, 4)},
        "to the runtime",
        ways=("nonempty",),
    ),
    _near(
        "Gemm",
        "t@ = Cast<to=6>(a@) u@ = Cast<to=6>(b@) y@ = Gemm<transB=1>(t@, u@)",
        {},
        "floating-point",
        out="int32",
        runs=False,
    ),
    _near(f"{MS}.FusedMatMul", f"y@ = {MS}.FusedMatMul<transA=1>(a@, b@)", {}, "--nonempty"),
    _near(
        f"{MS}.FusedMatMul",
        f"y@ = {MS}.FusedMatMul<transBatchA=1>(a@, b@)",
        {},
        "batch axes",
        ways=("rows3",),
        runs=False,
    ),
    _near(f"{MS}.BiasGelu", f"y@ = {MS}.BiasGelu(a@, z)", {}, "computed", inputs="float[4] z"),
    _near(
        f"{MS}.SkipLayerNormalization",
        f"y@, m@ = {MS}.SkipLayerNormalization(a@, b@, g@)",
        {"g@": positive(4)},
        "read",
        runs=False,
    ),
    _near(
        f"{MS}.SkipLayerNormalization",
        f"y@ = {MS}.SkipLayerNormalization(a@, z, g@)",
        {"g@": positive(4)},
        "one shape",
        ways=("rows3",),
        inputs="float[S,4] z",
    ),
    _near(
        f"{MS}.SkipSimplifiedLayerNormalization",
        f"y@ = {MS}.SkipSimplifiedLayerNormalization(a@, b@, z)",
        {},
        "computed",
        inputs="float[4] z",
    ),
    _near(
        "SimplifiedLayerNormalization",
        "y@ = SimplifiedLayerNormalization<axis=-1, stash_type=1>(a@, z)",
        {},
        "computed",
        inputs="float[4] z",
    ),
    _near(
        f"{MS}.MatMulNBits",
        f"y@ = {MS}.MatMulNBits<K=4, N=4, bits=4, block_size=16>(a@, c@, s@)",
        {"c@": codes(4, 1, 8, dtype=np.uint8), "s@": scale(4)},
        "packed",
    ),
    _near(
        f"{MS}.MatMulNBits",
        f"r@ = {MS}.MatMulNBits<K=5, N=4, bits=4, block_size=16>(x, c@, s@, , o) y@ = Mul(r@, a@)",
        {
            "c@": codes(4, 1, 8, dtype=np.uint8),
            "s@": scale(4),
            "o": lambda lane: np.zeros(16, np.int32),
        },
        "order",
        ways=WIDE,
    ),
    _near(
        "LSTM",
        "t@ = Transpose<perm=[1,0,2]>(a@) r@ = LSTM<hidden_size=3>(t@, W@, R)" + NEG,
        {"W@": floats(1, 12, 4), "R": floats(1, 12, 3)},
        ways=("rows3",),
    ),
    _near(
        "LSTM",
        "t@ = Transpose<perm=[1,0,2]>(a@) r@ = LSTM<hidden_size=3>(t@, W@, R@)" + NEG,
        OWN_LSTM,
        "its own",
        ways=("rows3",),
    ),
    _near(
        "GRU",
        "r@ = GRU<hidden_size=3, layout=1>(a@, W, R)" + NEG,
        {"W": floats(1, 9, 4), "R": floats(1, 9, 3)},
        "batch comes first",
        ways=("rows3",),
        runs=False,
    ),
    _near(
        "RNN",
        "t@ = Transpose<perm=[1,0,2]>(a@) r@ = RNN<hidden_size=3>(t@, W, R)" + NEG,
        {},
        "computed",
        ways=("rows3",),
        inputs="float[1,3,4] W, float[1,3,3] R",
    ),
    _near(
        "GroupNormalization",
        "y@ = GroupNormalization<num_groups=2>(a@, z, z)",
        {},
        "computed",
        ways=IMAGES,
        inputs="float[4] z",
    ),
    _near(
        "InstanceNormalization",
        "y@ = InstanceNormalization(a@, z, z)",
        {},
        "computed",
        ways=IMAGES,
        inputs="float[4] z",
    ),
    _near(
        "ConvTranspose",
        "y@ = ConvTranspose<group=3>(q, u@)",
        {"u@": floats(3, 2, 2)},
        "interleaved",
        inputs="float[N,3,7] q",
    ),
    _near(
        "ConvTranspose",
        "y@ = ConvTranspose(a@, u)",
        {},
        "not constant",
        ways=IMAGES,
        inputs="float[4,3,2,2] u",
    ),
)
