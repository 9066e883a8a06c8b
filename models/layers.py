"""Layers as exporters spell them, for the builders."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_graphsurgeon as gs

from models.net import Net

RELU_GAIN = math.sqrt(2.0)
GAINS = {"Relu": RELU_GAIN, "LeakyRelu": RELU_GAIN, "Elu": 1.25, "Tanh": 5.0 / 3.0}


def linear(
    net: Net, x: gs.Tensor, name: str, n_in: int, n_out: int, *, gain: float = 1.0
) -> gs.Variable:
    """Apply `Add(MatMul(x, W), b)`: `[.., n_in] -> [.., n_out]`, as exported for rank 3."""
    return bias(net, matmul(net, x, name, n_in, n_out, gain=gain), name, n_out)


def matmul(
    net: Net, x: gs.Tensor, name: str, n_in: int, n_out: int, *, gain: float = 1.0
) -> gs.Variable:
    """Apply `MatMul(x, W)`: `[.., n_in] -> [.., n_out]`."""
    weight = net.kernel(f"{name}.weight", (n_in, n_out), n_in, gain)
    return net.op("MatMul", x, weight, name=f"{name}/MatMul")


def bias(net: Net, x: gs.Tensor, name: str, size: int) -> gs.Variable:
    """Apply `Add(x, b)` with `b: [size]`."""
    return net.op("Add", x, net.jitter(f"{name}.bias", size, -0.3, 0.3), name=f"{name}/Add")


def gemm(
    net: Net, x: gs.Tensor, name: str, n_in: int, n_out: int, *, gain: float = 1.0
) -> gs.Variable:
    """Apply `Gemm(x, W, b, transB=1)`: `[rows, n_in] -> [rows, n_out]`, as exported for rank 2."""
    weight = net.kernel(f"{name}.weight", (n_out, n_in), n_in, gain)
    offset = net.jitter(f"{name}.bias", n_out, -0.3, 0.3)
    return net.op("Gemm", x, weight, offset, name=f"{name}/Gemm", alpha=1.0, beta=1.0, transB=1)


def layer_norm(net: Net, x: gs.Tensor, name: str, size: int) -> gs.Variable:
    """Normalise the last axis; opset 17 and up."""
    scale = net.jitter(f"{name}.weight", size, 0.5, 1.5)
    offset = net.jitter(f"{name}.bias", size, -0.3, 0.3)
    return net.op(
        "LayerNormalization",
        *(x, scale, offset),
        name=f"{name}/LayerNormalization",
        axis=-1,
        epsilon=1e-5,
    )


def batch_norm(net: Net, x: gs.Tensor, name: str, size: int) -> gs.Variable:
    """Normalise axis 1 with stored statistics (inference mode)."""
    scale = net.jitter(f"{name}.weight", size, 0.5, 1.5)
    offset = net.jitter(f"{name}.bias", size, -0.3, 0.3)
    mean = net.jitter(f"{name}.running_mean", size, -0.3, 0.3)
    var = net.jitter(f"{name}.running_var", size, 0.5, 1.5)
    return net.op(
        "BatchNormalization",
        *(x, scale, offset, mean, var),
        name=f"{name}/BatchNormalization",
        epsilon=1e-5,
    )


def gelu(net: Net, x: gs.Tensor, name: str) -> gs.Variable:
    """Apply Gelu spelled out: `x * (1 + erf(x / sqrt 2)) * 0.5`, five nodes."""
    root = net.scalar(f"{name}.sqrt2", math.sqrt(2.0))
    erf = net.op("Erf", net.op("Div", x, root, name=f"{name}/Div"), name=f"{name}/Erf")
    one = net.op("Add", erf, net.scalar(f"{name}.one", 1.0), name=f"{name}/Add")
    twice = net.op("Mul", x, one, name=f"{name}/Mul")
    return net.op("Mul", twice, net.scalar(f"{name}.half", 0.5), name=f"{name}/Mul_1")


def conv(net: Net, x: gs.Tensor, name: str, n_in: int, n_out: int, size: int = 3) -> gs.Variable:
    """Apply a `size` x `size` Conv with bias that keeps height and width (odd sizes)."""
    weight = net.kernel(f"{name}.weight", (n_out, n_in, size, size), n_in * size**2, RELU_GAIN)
    offset = net.jitter(f"{name}.bias", n_out, -0.3, 0.3)
    return net.op(
        "Conv",
        *(x, weight, offset),
        name=f"{name}/Conv",
        dilations=[1, 1],
        group=1,
        kernel_shape=[size, size],
        pads=[size // 2] * 4,
        strides=[1, 1],
    )


def split(
    net: Net, x: gs.Tensor, name: str, sizes: Sequence[int], *, axis: int
) -> list[gs.Variable]:
    """Cut `x` along `axis` into parts of the given sizes."""
    lengths = net.ints(f"{name}.sizes", *sizes)
    return net.ops("Split", x, lengths, name=f"{name}/Split", count=len(sizes), axis=axis)


def unsqueeze(net: Net, x: gs.Tensor, name: str, axis: int) -> gs.Variable:
    """Insert an axis of size 1."""
    return net.op("Unsqueeze", x, net.ints(f"{name}.axes", axis), name=f"{name}/Unsqueeze")


def stack(net: Net, parts: Sequence[gs.Tensor], name: str, axis: int) -> gs.Variable:
    """Join equal shapes along a new axis: Unsqueeze each, then Concat, as `torch.stack` exports."""
    raised = [unsqueeze(net, part, f"{name}.stack.{i}", axis) for i, part in enumerate(parts)]
    return net.op("Concat", *raised, name=f"{name}/Concat", axis=axis)


def reduce_sum(net: Net, x: gs.Tensor, name: str, axis: int) -> gs.Variable:
    """Sum over `axis` and drop it."""
    axes = net.ints(f"{name}.axes", axis)
    return net.op("ReduceSum", x, axes, name=f"{name}/ReduceSum", keepdims=0)
