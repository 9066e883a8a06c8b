"""Groups of plain MLPs: one network per slice, or one per member on a shared input."""

from __future__ import annotations

import onnx

from models.layers import GAINS, RELU_GAIN, gemm, layer_norm, linear, split
from models.net import IR_VERSION, OPSET, Dim, Net


def grouped_mlp(
    *,
    layers: int = 12,
    groups: int = 4,
    width: int = 16,
    norm: bool = False,
    activation: str = "Relu",
    batch: Dim = "batch",
    seed: int = 0,
    opset: int = OPSET,
    ir_version: int = IR_VERSION,
) -> onnx.ModelProto:
    """Split the features into groups, run one MLP on each, join.

    `x -> Split -> (MatMul, Add, [LayerNormalization], activation) * layers -> Concat -> y`. The
    nodes stand layer by layer, as a loop over groups inside a loop over layers exports them.

    Args:
        layers: Layers per group.
        groups: Number of groups.
        width: Features of one group; `x` and `y` are `[batch, groups * width]`.
        norm: Whether each layer normalises before its activation (opset 17 and up).
        activation: An ONNX op with one input and no required attribute.
        batch: The size or name of the batch dimension.
        seed: The seed of the weights.
        opset: 13 and up.
        ir_version: Written as is.

    Returns:
        A model with `layers * groups` MatMul.
    """
    net = Net.start("grouped_mlp", seed=seed, opset=opset)
    gain = GAINS.get(activation, 1.0)
    x = net.input("x", (batch, groups * width))
    lanes = split(net, x, "in", [width] * groups, axis=1)
    for layer in range(layers):
        for group in range(groups):
            name = f"layers.{layer}.groups.{group}"
            lane = linear(net, lanes[group], name, width, width, gain=gain)
            if norm:
                lane = layer_norm(net, lane, f"{name}.norm", width)
            lanes[group] = net.op(activation, lane, name=f"{name}/{activation}")
    net.output(net.op("Concat", *lanes, name="out/Concat", axis=1), "y", (batch, groups * width))
    return net.finish(ir_version=ir_version)


def critic_ensemble(
    *,
    members: int = 10,
    observation: int = 12,
    action: int = 4,
    hidden: int = 24,
    depth: int = 2,
    batch: Dim = "batch",
    seed: int = 0,
    opset: int = OPSET,
    ir_version: int = IR_VERSION,
) -> onnx.ModelProto:
    """Judge one action by many Q networks that read the same input.

    `Concat(obs, act) -> ((Gemm, Relu) * depth, Gemm) per member -> Concat -> q`. The nodes stand
    member by member.

    Args:
        members: Number of Q networks.
        observation: `obs` is `[batch, observation]`.
        action: `act` is `[batch, action]`.
        hidden: Width of the hidden layers.
        depth: Hidden layers per member.
        batch: The size or name of the batch dimension.
        seed: The seed of the weights.
        opset: 13 and up.
        ir_version: Written as is.

    Returns:
        A model with `members * (depth + 1)` Gemm; `q` is `[batch, members]`.
    """
    net = Net.start("critic_ensemble", seed=seed, opset=opset)
    sources = (net.input("obs", (batch, observation)), net.input("act", (batch, action)))
    shared = net.op("Concat", *sources, name="in/Concat", axis=1)
    values = []
    for member in range(members):
        lane, size = shared, observation + action
        for layer in range(depth):
            name = f"q.{member}.{layer}"
            lane = gemm(net, lane, name, size, hidden, gain=RELU_GAIN)
            lane, size = net.op("Relu", lane, name=f"{name}/Relu"), hidden
        values.append(gemm(net, lane, f"q.{member}.{depth}", size, 1))
    net.output(net.op("Concat", *values, name="out/Concat", axis=1), "q", (batch, members))
    return net.finish(ir_version=ir_version)
