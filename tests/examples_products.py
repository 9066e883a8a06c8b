"""Examples of rules for products, channels, recurrences and the runtime's own ops."""

from __future__ import annotations

import numpy as np

from tests.example_parts import DEEP, EVERY, MS, ROWS, STACKED, WIDE, codes, scale
from tests.rule_examples import FLAT, IMAGES, Example, Maker, floats, positive, whole

GEMMS = [
    Example(
        "Gemm",
        "r@ = DequantizeLinear<axis=0>(c@, s@) y@ = Gemm<transB=1>(a@, r@, h@)",
        {"c@": codes(3000, 4), "s@": scale(3000), "h@": floats(3000)},
        FLAT,
        (13, 21),
        op_type="DequantizeLinear",
    ),
    Example(
        "Gemm",
        "t@ = Transpose(b@) y@ = Gemm<alpha=0.5, beta=2.0>(a@, t@, h@)",
        {"h@": floats(1)},
        FLAT,
        (7, 13, 21),
        op_type="MatMul",
    ),
    Example(
        "Gemm", "y@ = Gemm<transB=1, alpha=0.25>(a@, b@)", {}, FLAT, (11, 21), op_type="MatMul"
    ),
    Example(
        "Gemm",
        "y@ = Gemm<transA=1, beta=0.0>(a@, b@, z)",
        {},
        FLAT,
        (11, 21),
        op_type="MatMul",
        inputs="float[4] z",
    ),
    Example(
        "Gemm",
        "y@ = Gemm<transA=1, beta=0.5>(a@, b@, z)",
        {},
        FLAT,
        (11, 21),
        op_type="MatMul",
        inputs="float[4] z",
    ),
    Example(
        "Gemm",
        "y@ = Gemm<transB=1, beta=0.5>(z, b@, c@)",
        {"c@": floats(2, 1)},
        FLAT,
        (11, 21),
        op_type="MatMul",
        inputs="float[2,4] z",
    ),
]

EQUATIONS = [
    Example(
        "Einsum",
        'y@ = Einsum<equation="bi,ij->bj">(a@, u@)',
        {"u@": floats(4, 3)},
        FLAT,
        (12, 21),
        op_type="MatMul",
    ),
    Example(
        "Einsum",
        'y@ = Einsum<equation="bi,ij->jb">(a@, u)',
        {"u": floats(4, 3)},
        FLAT,
        (12, 21),
        op_type="MatMul",
    ),
    Example(
        "Einsum",
        'y@ = Einsum<equation="ij,bj->bi">(u@, a@)',
        {"u@": floats(3, 4)},
        FLAT,
        (12, 21),
        op_type="MatMul",
    ),
    Example(
        "Einsum",
        'y@ = Einsum<equation="bsi, bti -> bst">(a@, b@)',
        {},
        DEEP,
        (12, 21),
        op_type="MatMul",
    ),
    Example(
        "Einsum",
        'y@ = Einsum<equation="bi,ij">(a@, u@)',
        {"u@": floats(4, 3)},
        FLAT,
        (12, 21),
        op_type="MatMul",
    ),
    Example(
        "Einsum",
        'y@ = Einsum<equation="...i,ij->...j">(a@, u@)',
        {"u@": floats(4, 3)},
        FLAT,
        (12, 21),
        op_type="MatMul",
    ),
    Example(
        "Einsum",
        'y@ = Einsum<equation="nchw,kc->nkhw">(a@, u@)',
        {"u@": floats(2, 4)},
        IMAGES,
        (12, 21),
        op_type="MatMul",
    ),
    Example(
        "Einsum",
        'y@ = Einsum<equation="nchw,nc->nhw">(a@, z)',
        {},
        IMAGES,
        (12, 21),
        op_type="MatMul",
        inputs="float[N,4] z",
    ),
    Example(
        "Einsum",
        'y@ = Einsum<equation="nchw,nchw->nc">(a@, b@)',
        {},
        IMAGES,
        (12, 21),
        op_type="MatMul",
    ),
    Example(
        "Einsum",
        'y@ = Einsum<equation="bi,kj,ij->bk">(a@, z, u@)',
        {"u@": floats(4, 3)},
        ("nonempty",),
        (12, 21),
        inputs="float[2,3] z",
    ),
    Example("Einsum", 'y@ = Einsum<equation="bi,bj->bij">(a@, b@)', {}, ("nonempty",), (12, 21)),
    Example("Einsum", 'y@ = Einsum<equation="bi->ib">(a@)', {}, ("nonempty",), (12, 21)),
    Example(
        "Einsum",
        'y@ = Einsum<equation="bi,ij->b">(a@, u@)',
        {"u@": floats(4, 3)},
        ("nonempty",),
        (12, 21),
    ),
    Example(
        "Einsum",
        'y@ = Einsum<equation="ii,bi->b">(u@, a@)',
        {"u@": floats(4, 4)},
        ("nonempty",),
        (12, 21),
    ),
    Example(
        "Einsum",
        'h@ = Transpose(a@) m@ = MatMul(h@, b@) y@ = Einsum<equation="jj->j">(m@)',
        {},
        FLAT,
        (12, 21),
    ),
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
    """A recurrence of two steps of two numbers each, all lanes with the same weights."""
    gates = GATES[kind]
    own = {"W": floats(1, 3 * gates, 2), "R": floats(1, 3 * gates, 3), "B": floats(1, 6 * gates)}
    body = f"q@ = Reshape(a@, to) t@ = Transpose<perm=[1,0,2]>(q@) {more} {read}"
    given = {"k)": "int32[N] k", "z)": "float[1,N,3] z"}
    inputs = ", ".join(text for end, text in given.items() if end in more)
    opsets = (11, 21) if "Slice" in more else (7, 11, 21)
    made = {**own, "to": whole(0, 2, 2), **weights}
    return Example(kind, body, made, FLAT, opsets, inputs=inputs)


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
        "e@ = Slice(b@, from, end, ax) i@ = Reshape(e@, up) "
        "r@, h@ = LSTM<hidden_size=3>(t@, W, R, B, , i@, z)",
        "y@ = Neg(h@)",
        {"from": whole(0), "end": whole(3), "ax": whole(1), "up": whole(1, -1, 3)},
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


def _skip(kind: str, call: str, made: str = "r@") -> tuple[Example, Example]:
    """A norm of a sum: by itself, and of lanes with sizes that stand in the way of one axis for all rows."""
    given = {"g": positive(4), "h": floats(4), "c": floats(4)}
    names = call.partition("(")[2].rstrip(")").split(", ")
    weights = {n: given[n[0]] for n in names if n[:1] in given}
    last = f"y@ = {'Neg(r@)' if made == 'r@' else 'Mul(r@, s@)'}"
    body = f"{made} = {MS}.{kind}{call} {last}"
    longer = "i@ = Pad(a@, by) j@ = Pad(b@, by) " + body.replace("a@", "i@").replace("b@", "j@")
    pads = {"by": whole(1, 0, 0, 0, 2, 0)}
    return (
        Example(f"{MS}.{kind}", body, weights, ROWS),
        Example(f"{MS}.{kind}", longer, {**weights, **pads}, DEEP, op_type=kind[4:]),
    )


CONTRIB = [
    Example(f"{MS}.BiasGelu", f"y@ = {MS}.BiasGelu(a@, c@)", {"c@": floats(4)}, WIDE),
    Example(
        f"{MS}.BiasGelu",
        f"y@ = {MS}.BiasGelu(a@, c@)",
        {"c@": floats(4)},
        STACKED,
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
    *_skip("SkipLayerNormalization", "<epsilon=0.01>(a@, b@, g@, h@, c@)"),
    *_skip("SkipLayerNormalization", "(a@, b@, g, h, c)"),
    *_skip("SkipLayerNormalization", "(a@, b@, g, h@)"),
    *_skip("SkipLayerNormalization", "(a@, b@, g@)"),
    *_skip("SkipLayerNormalization", "(a@, b@, g@, h@)", "r@, , , s@"),
    *_skip("SkipLayerNormalization", "(a@, b@, g@, , c)", "r@, , , s@"),
    *_skip("SkipSimplifiedLayerNormalization", "(a@, b@, g@, c@)"),
    *_skip("SkipSimplifiedLayerNormalization", "<epsilon=0.01>(a@, b@, g, c)", "r@, , , s@"),
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

PRODUCTS = (*GEMMS, *EQUATIONS, *CHANNELS, *RECURRENT, *CONTRIB)
