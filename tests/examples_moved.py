"""Examples of rules that move numbers: windows, joins, entries that are chosen or written."""

from __future__ import annotations

import numpy as np

from tests.example_parts import DEEP, EARLY, EVERY, NEG, ROWS, indices
from tests.rule_examples import FLAT, IMAGES, Example, array, entry, floats, number, reals, whole

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
        (18, 21),
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
    Example("Tile", "r@ = Tile(a@, n)" + NEG, {"n": whole(1, 2, 3)}, DEEP, (18, 21)),
    Example("Tile", "r@ = Tile(a@, n)" + NEG, {"n": whole(1, 2, 1, 2)}, IMAGES, (7, 21)),
]

RESIZED = [
    Example("Resize", f"r@ = Resize<{how}>(a@, , s)" + NEG, {"s": reals(1, 2)}, FLAT, (13, 18, 21))
    for how in (
        'mode="linear"',
        'mode="linear", coordinate_transformation_mode="align_corners"',
        'mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"',
    )
]
RESIZED += [
    Example(
        "Resize",
        'r@ = Resize<mode="linear">(a@, roi, s)' + NEG,
        {"roi": reals(), "s": reals(1, 1.5)},
        FLAT,
        (11,),
    ),
    Example(
        "Resize",
        "r@ = Resize(a@, , s)" + NEG,
        {"s": reals(1, 2, 0.5)},
        ("fixed3", "fixed_wide3"),
        (13, 21),
    ),
    Example(
        "Resize",
        'r@ = Resize<mode="linear">(a@, , s)' + NEG,
        {"s": reals(1, 2, 0.5)},
        ("fixed3", "fixed_wide3"),
    ),
    Example(
        "Resize", 'r@ = Resize<mode="linear">(a@, , s)' + NEG, {"s": reals(1, 1, 2, 3)}, IMAGES
    ),
    Example(
        "Resize", 'r@ = Resize<mode="cubic">(a@, , s)' + NEG, {"s": reals(1, 1, 2, 1.5)}, IMAGES
    ),
    Example(
        "Resize",
        'r@ = Resize<mode="linear", axes=[-1, 2]>(a@, , , to)' + NEG,
        {"to": whole(6, 2)},
        IMAGES,
        (18, 21),
    ),
    Example(
        "Resize",
        "h@ = Shape<start=0, end=1>(a@) z@ = Concat<axis=0>(h@, seven) "
        'r@ = Resize<mode="linear">(a@, , , z@)' + NEG,
        {"seven": whole(7)},
        FLAT,
        (18, 21),
    ),
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
        ("wide3",),
        (11, 13),
    ),
    Example("Concat", "r@ = Concat<axis=0>(c, a@, a@)" + NEG, {"c": floats(1, 4)}, FLAT, (11, 21)),
    Example("Concat", "r@ = Concat<axis=0>(a@, c@)" + NEG, {"c@": floats(1, 4)}, FLAT, (11, 21)),
]

SELECTS = [
    Example("Gather", "r@ = Gather<axis=-1>(a@, at)" + NEG, {"at": whole(2, 0)}, EVERY, (7, 21)),
    Example("Gather", "r@ = Gather<axis=1>(a@, k)" + NEG, {}, FLAT, (7, 21), inputs="int64[J] k"),
    Example(
        "Gather", "r@ = Gather<axis=1>(a@, k)" + NEG, {}, IMAGES, (7, 21), inputs="int64[J,2] k"
    ),
    Example(
        "GatherND",
        "r@ = GatherND<batch_dims=1>(a@, k)" + NEG,
        {},
        FLAT,
        (12, 21),
        inputs="int64[N,1] k",
    ),
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
        "GatherMany",
        "r@ = Gather<axis=1>(x, at@) y@ = Mul(r@, a@)",
        {"at@": indices(4, below=5, least=-5)},
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
        "n@ = ArgMax<axis=1>(b@) m@ = ReduceMin<axes=[1]>(b@) r@ = Scatter<axis=1>(a@, n@, m@)"
        + NEG,
        {},
        EARLY,
        (9,),
    ),
    Example(
        "ScatterElements",
        "n@ = ArgMax<axis=1>(b@) m@ = ReduceMin<axes=[1]>(b@) r@ = ScatterElements<axis=1>(a@, n@, m@)"
        + NEG,
        {},
        EARLY,
        (11, 13),
    ),
    Example(
        "ScatterElements",
        "n@ = ArgMax<axis=-1>(b@) m@ = ReduceMin(b@, ax) "
        'r@ = ScatterElements<axis=-1, reduction="add">(a@, n@, m@)' + NEG,
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
        "n@ = ArgMax<axis=1>(b@) t@ = Transpose(a@) u@ = MatMul(b@, t@) "
        'r@ = ScatterND<reduction="add">(t@, n@, u@)' + NEG,
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

MOVED = (*WINDOWS, *RESIZED, *JOINS, *SELECTS, *SCATTERS)
