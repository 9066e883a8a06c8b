"""A multi-gate mixture of experts, as recommenders export it."""

from __future__ import annotations

import onnx
import onnx_graphsurgeon as gs

from models.layers import RELU_GAIN, batch_norm, gemm, reduce_sum, stack, unsqueeze
from models.net import IR_VERSION, OPSET, Dim, Net


def mmoe(
    *,
    experts: int = 8,
    gates: int = 3,
    features: int = 16,
    hidden: int = 24,
    width: int = 12,
    tower: int = 8,
    norm: bool = False,
    batch: Dim = "batch",
    seed: int = 0,
    opset: int = OPSET,
    ir_version: int = IR_VERSION,
) -> onnx.ModelProto:
    """Mix experts by one gate per task, then run one tower per task.

    Experts: `(Gemm, [BatchNormalization], Relu) * 2`, stacked to `[batch, experts, width]`.
    Gates: `Gemm, Softmax, Unsqueeze`, then `Mul` with the stack and `ReduceSum` over the experts.
    Towers: `Gemm, [BatchNormalization], Relu, Gemm, Sigmoid`, one graph output each.

    Args:
        experts: Number of experts, each an MLP of two layers on the shared input.
        gates: Number of tasks: gates, towers and outputs `task_0`, `task_1`, ..
        features: `x` is `[batch, features]`.
        hidden: Width of an expert's first layer.
        width: Width of an expert's output.
        tower: Width of a tower's hidden layer.
        norm: Whether to put a BatchNormalization behind each Gemm that a Relu follows.
        batch: The size or name of the batch dimension.
        seed: The seed of the weights.
        opset: 13 and up.
        ir_version: Written as is.

    Returns:
        A model with `2 * experts + 3 * gates` Gemm; each output is `[batch, 1]`.
    """
    net = Net.start("mmoe", seed=seed, opset=opset)
    x = net.input("x", (batch, features))
    outputs = []
    for expert in range(experts):
        lane = _dense(net, x, f"experts.{expert}.0", features, hidden, norm)
        outputs.append(_dense(net, lane, f"experts.{expert}.1", hidden, width, norm))
    stacked = stack(net, outputs, "experts", 1)
    for gate in range(gates):
        name = f"gates.{gate}"
        # Louder gates choose between experts instead of averaging them.
        logits = gemm(net, x, name, features, experts, gain=2.0)
        weights = net.op("Softmax", logits, name=f"{name}/Softmax", axis=1)
        weighted = net.op("Mul", unsqueeze(net, weights, name, 2), stacked, name=f"{name}/Mul")
        pooled = reduce_sum(net, weighted, f"{name}.sum", 1)
        lane = _dense(net, pooled, f"towers.{gate}.0", width, tower, norm)
        score = gemm(net, lane, f"towers.{gate}.1", tower, 1)
        result = net.op("Sigmoid", score, name=f"towers.{gate}/Sigmoid")
        net.output(result, f"task_{gate}", (batch, 1))
    return net.finish(ir_version=ir_version)


def _dense(net: Net, x: gs.Tensor, name: str, n_in: int, n_out: int, norm: bool) -> gs.Variable:
    lane = gemm(net, x, name, n_in, n_out, gain=RELU_GAIN)
    if norm:
        lane = batch_norm(net, lane, f"{name}.norm", n_out)
    return net.op("Relu", lane, name=f"{name}/Relu")
