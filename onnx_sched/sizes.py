"""How the sizes of an op's output follow from those of its inputs, where ONNX's inference says too little."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import NodeProto

from onnx_sched.dims import Dim, Shape, product, quotient, vanishes_with
from onnx_sched.size_arithmetic import divided

# Ops whose output sizes follow from the shapes of the inputs, the attributes, and the values of the
# operands listed here.  For any other op a size that inference leaves open may depend on data.
SIZED_BY: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(
        "Conv ConvTranspose MaxPool AveragePool LpPool GlobalAveragePool GlobalMaxPool Concat "
        "Flatten "
        "Gather GatherElements GatherND MatMul Gemm Einsum Transpose Add Sub Mul Div Pow Mod Where "
        "And Or Xor Equal Less Greater LessOrEqual GreaterOrEqual Min Max Sum Mean PRelu "
        "BatchNormalization InstanceNormalization LayerNormalization GroupNormalization "
        "RMSNormalization DepthToSpace SpaceToDepth ArgMax ArgMin Softmax LogSoftmax MatMulInteger "
        "ConvInteger QLinearMatMul QLinearConv DequantizeLinear QuantizeLinear ScatterND ScatterElements "
        "LSTM GRU RNN BitShift LRN".split(),
        (),
    ),
    "Reshape": (1,),
    "Expand": (1,),
    "Tile": (1,),
    "Pad": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Unsqueeze": (1,),
    "TopK": (1,),
    "OneHot": (1,),
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "ConstantOfShape": (0,),
    "Range": (0, 1, 2),
    **dict.fromkeys(
        (f"Reduce{k}" for k in "Sum Mean Max Min Prod L1 L2 SumSquare LogSum LogSumExp".split()),
        (1,),
    ),
}

POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})


def reshaped(
    shape: Shape | None, target: Sequence[Dim], zero_copies: bool, nonempty: bool = False
) -> Shape | None:
    """The shape that Reshape gives; None where a size stays open.

    A size of the target that turns out to be 0 copies one, too: what is left for the -1 is then another.
    That cannot be where nothing is empty.

    >>> reshaped(("n", 6), (0, 2, -1), True), reshaped(("n", "m", 6), ("m*n", -1), True)
    (('n', 2, 3), None)
    """
    out: list[Dim] = []
    for axis, dim in enumerate(target):
        if dim == 0 and zero_copies:
            if shape is None or axis >= len(shape):
                return None
            out.append(shape[axis])
        else:
            out.append(dim)
    if -1 in out:
        hole = out.index(-1)
        if shape is None or out.count(-1) > 1:
            return None
        if zero_copies and not nonempty and any(map(_copies, target, (*shape, *[1] * len(target)))):
            return None
        rest = quotient(product(shape), product(out[:hole] + out[hole + 1 :]))
        if rest is None:
            return None
        out[hole] = rest
    return tuple(out)


def _copies(dim: Dim, size: Dim) -> bool:
    """Whether a size of a target may turn out to be 0, and then stand for another size of the input."""
    return isinstance(dim, str) and not vanishes_with(size, dim)


def expanded(shape: Shape, target: Sequence[Dim]) -> Shape | None:
    """The shape that Expand gives; None where a size stays open."""
    rank = max(len(shape), len(target))
    a = (1,) * (rank - len(shape)) + tuple(shape)
    b = (1,) * (rank - len(target)) + tuple(target)
    out: list[Dim] = []
    for x, y in zip(a, b, strict=True):
        if x != y and 1 not in (x, y):
            return None
        out.append(x if y == 1 else y)
    return tuple(out)


def evenly(node: NodeProto, shape: Shape) -> tuple[Dim, ...] | None:
    """The sizes of the parts of a Split that is told neither them nor their number: they are equal."""
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    told = any(a.name in ("split", "num_outputs") for a in node.attribute)
    part = divided(shape[axis % len(shape)], len(node.output))
    return None if told or part is None else (part,) * len(node.output)


def cut_off(node: NodeProto, known: Shape, parts: Sequence[Dim] | None, output: int) -> Shape:
    """The shape of one part of a Split, its size from the sizes of all parts if inference left it open."""
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0) % max(1, len(known))
    if parts is None or len(parts) != len(node.output) or isinstance(known[axis], int):
        return known
    return (*known[:axis], parts[output], *known[axis + 1 :])


def overhangs(node: NodeProto, data: Shape | None, made: Shape | None) -> bool:
    """Whether the last window of a pool that rounds up might begin in the padding.

    ONNX's inference counts such a window and ONNX Runtime does not, so that its size is not known.
    """
    given = {a.name: a for a in node.attribute}
    if "ceil_mode" not in given or not given["ceil_mode"].i:
        return False
    if data is None or made is None:
        return True
    spatial, out = data[2:], made[2:]
    strides = list(given["strides"].ints) if "strides" in given else [1] * len(spatial)
    pads = list(given["pads"].ints) if "pads" in given else [0] * (2 * len(spatial))
    return any(
        not isinstance(size, int) or not isinstance(last, int) or (last - 1) * stride >= size + pad
        for size, last, stride, pad in zip(spatial, out, strides, pads, strict=False)
    )
