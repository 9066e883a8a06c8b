"""Examples of weighted sums: what is multiplied and summed over one axis is a matrix product."""

from __future__ import annotations

from tests.nets import ints
from tests.rule_examples import IMAGES, Example, Maker


def _axes(*axes: int) -> Maker:
    return lambda lane: ints(*axes)


ROWS_OF_FIVE = ("fixed3", "fixed_wide3", "conv_t3", "open3")
"""Ways to lanes of shape [N, 5, 4], the last one to [N, S, 4]."""

OWN = "s@ = ReduceMax<axes=[2]>(a@) c@ = Concat<axis=2>(a@, b@) m@ = Mul(s@, c@) "
"""A gate and something twice as wide, both of the lane: [N, 5, 1] and [N, 5, 8]."""


def _weighted(
    body: str, ways: tuple[str, ...], opsets: tuple[int, ...], inputs: str = ""
) -> Example:
    """One body; from opset 13 on the axes of the sum are an operand."""
    weights = {"ax": _axes(1)} if "ax)" in body else {}
    return Example("WeightedSum", body, weights, ways, opsets, op_type="ReduceSum", inputs=inputs)


WEIGHTED = (
    # The lane is what is weighted, by one gate for all; and the other way round.
    _weighted("m@ = Mul(a@, z) y@ = ReduceSum(m@, ax)", IMAGES, (13, 21), "float[N,4,1,1] z"),
    _weighted("m@ = Mul(z, a@) y@ = ReduceSum<axes=[-3]>(m@)", IMAGES, (9, 12), "float[N,4,1,1] z"),
    _weighted(
        "s@ = ReduceMax<axes=[2]>(a@) m@ = Mul(s@, z) y@ = ReduceSum<keepdims=0>(m@, ax)",
        ROWS_OF_FIVE[:-1],
        (13,),
        "float[N,5,8] z",
    ),
    # Both are of the lane.
    _weighted(
        "s@ = GlobalMaxPool(b@) m@ = Mul(s@, a@) y@ = ReduceSum<keepdims=0>(m@, ax)",
        IMAGES,
        (13, 21),
    ),
    _weighted(OWN + "y@ = ReduceSum(m@, ax)", ROWS_OF_FIVE, (13,)),
    _weighted(OWN + "y@ = ReduceSum<axes=[-2], keepdims=0>(m@)", ROWS_OF_FIVE, (11, 12)),
    # Of lower rank, and with an axis along which either broadcasts.
    _weighted("m@ = Mul(a@, z) y@ = ReduceSum(m@, ax)", IMAGES, (21,), "float[4,1,1] z"),
    _weighted(
        "g@ = GlobalMaxPool(a@) m@ = Mul(g@, z) y@ = ReduceSum(m@, ax)",
        IMAGES,
        (21,),
        "float[4,2,7] z",
    ),
)
