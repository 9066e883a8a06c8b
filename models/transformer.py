"""A transformer in which every head keeps to itself until the output projection."""

from __future__ import annotations

import math

import onnx
import onnx_graphsurgeon as gs

from models.layers import gelu, layer_norm, linear, matmul
from models.net import IR_VERSION, OPSET, Dim, Net


def headlocal_transformer(
    *,
    blocks: int = 2,
    heads: int = 4,
    model: int = 32,
    expansion: int = 4,
    seq: Dim = 8,
    batch: Dim = "batch",
    seed: int = 0,
    opset: int = OPSET,
    ir_version: int = IR_VERSION,
) -> onnx.ModelProto:
    """Run attention and feed-forward inside each head, then mix the heads.

    One block: `LayerNormalization(x)` feeds every head; the joined heads pass the output
    projection (MatMul, Add) and are added to `x`. The nodes stand head by head.

    Args:
        blocks: Number of blocks.
        heads: Heads per block; divides `model`.
        model: Features; `x` and `y` are `[batch, seq, model]`.
        expansion: The feed-forward widens `model / heads` features by this factor.
        seq: The size or name of the sequence dimension.
        batch: The size or name of the batch dimension.
        seed: The seed of the weights.
        opset: 17 and up.
        ir_version: Written as is.

    Returns:
        A model with `blocks * (7 * heads + 1)` MatMul.
    """
    net = Net.start("headlocal_transformer", seed=seed, opset=opset)
    x = net.input("x", (batch, seq, model))
    for block in range(blocks):
        name = f"blocks.{block}"
        shared = layer_norm(net, x, f"{name}.norm", model)
        lanes = [
            _head(net, shared, f"{name}.heads.{head}", model, model // heads, expansion)
            for head in range(heads)
        ]
        joined = net.op("Concat", *lanes, name=f"{name}/Concat", axis=-1)
        mixed = linear(net, joined, f"{name}.out", model, model)
        x = net.op("Add", x, mixed, name=f"{name}/Add")
    net.output(x, "y", (batch, seq, model))
    return net.finish(ir_version=ir_version)


def _head(
    net: Net, shared: gs.Tensor, name: str, model: int, size: int, expansion: int
) -> gs.Variable:
    """Attention and feed-forward of one head: `[batch, seq, model] -> [batch, seq, size]`."""
    # Larger queries and keys make the attention uneven; else exchanged weights would hardly show.
    query = matmul(net, shared, f"{name}.query", model, size, gain=1.5)
    key = matmul(net, shared, f"{name}.key", model, size, gain=1.5)
    value = matmul(net, shared, f"{name}.value", model, size)
    turned = net.op("Transpose", key, name=f"{name}/Transpose", perm=[0, 2, 1])
    scores = net.op("MatMul", query, turned, name=f"{name}/scores/MatMul")
    scale = net.scalar(f"{name}.scale", 1.0 / math.sqrt(size))
    scaled = net.op("Mul", scores, scale, name=f"{name}/scale/Mul")
    weights = net.op("Softmax", scaled, name=f"{name}/Softmax", axis=-1)
    mixed = net.op("MatMul", weights, value, name=f"{name}/mix/MatMul")
    normed = layer_norm(net, mixed, f"{name}.norm", size)
    wide = linear(net, normed, f"{name}.up", size, size * expansion)
    narrow = linear(net, gelu(net, wide, f"{name}.gelu"), f"{name}.down", size * expansion, size)
    return net.op("Add", mixed, narrow, name=f"{name}/Add")
