"""Parallel convolutions: one per block of channels, then several on one input."""

from __future__ import annotations

import onnx

from models.layers import conv, split
from models.net import IR_VERSION, OPSET, Dim, Net


def conv_towers(
    *,
    towers: int = 4,
    depth: int = 2,
    branches: int = 3,
    channels: int = 4,
    size: Dim = 8,
    batch: Dim = "batch",
    seed: int = 0,
    opset: int = OPSET,
    ir_version: int = IR_VERSION,
) -> onnx.ModelProto:
    """Run Conv towers on blocks of channels, then Conv branches on their join.

    `x -> Split -> (Conv 3x3, Relu) * depth per tower -> Concat -> (Conv 3x3, Relu) per branch ->
    Concat -> GlobalAveragePool -> Flatten -> y`.

    Args:
        towers: Number of towers.
        depth: Convolutions per tower.
        branches: Number of convolutions that read the joined towers.
        channels: Channels of one tower and of one branch; `x` is
            `[batch, towers * channels, size, size]`, `y` is `[batch, branches * channels]`.
        size: The size or name of height and width.
        batch: The size or name of the batch dimension.
        seed: The seed of the weights.
        opset: 13 and up.
        ir_version: Written as is.

    Returns:
        A model with `towers * depth + branches` Conv.
    """
    net = Net.start("conv_towers", seed=seed, opset=opset)
    x = net.input("x", (batch, towers * channels, size, size))
    lanes = []
    for tower, part in enumerate(split(net, x, "in", [channels] * towers, axis=1)):
        lane = part
        for layer in range(depth):
            name = f"towers.{tower}.{layer}"
            lane = net.op("Relu", conv(net, lane, name, channels, channels), name=f"{name}/Relu")
        lanes.append(lane)
    shared = net.op("Concat", *lanes, name="towers/Concat", axis=1)
    results = []
    for branch in range(branches):
        name = f"branches.{branch}"
        lane = conv(net, shared, name, towers * channels, channels)
        results.append(net.op("Relu", lane, name=f"{name}/Relu"))
    joined = net.op("Concat", *results, name="branches/Concat", axis=1)
    pooled = net.op("GlobalAveragePool", joined, name="out/GlobalAveragePool")
    flat = net.op("Flatten", pooled, name="out/Flatten", axis=1)
    net.output(flat, "y", (batch, branches * channels))
    return net.finish(ir_version=ir_version)
