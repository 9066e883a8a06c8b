"""One gated residual network per input column, as temporal fusion transformers have them."""

from __future__ import annotations

import onnx
import onnx_graphsurgeon as gs

from models.layers import layer_norm, linear, reduce_sum, split, stack, unsqueeze
from models.net import IR_VERSION, OPSET, Dim, Net


def per_feature(
    *,
    features: int = 10,
    hidden: int = 8,
    time: Dim = 5,
    batch: Dim = "batch",
    seed: int = 0,
    opset: int = OPSET,
    ir_version: int = IR_VERSION,
) -> onnx.ModelProto:
    """Embed each column by a network of its own and select between columns by a softmax.

    Per column: `Slice -> Linear -> Elu -> Linear -> Split, Sigmoid, Mul`, plus a linear skip, then
    LayerNormalization. The columns are stacked on a new last axis, multiplied by
    `Softmax(Linear(x))` and summed.

    Args:
        features: Columns; `x` is `[batch, time, features]`.
        hidden: Width of each network; `y` is `[batch, time, hidden]`.
        time: The size or name of the time dimension.
        batch: The size or name of the batch dimension.
        seed: The seed of the weights.
        opset: 17 and up.
        ir_version: Written as is.

    Returns:
        A model with `3 * features + 1` MatMul.
    """
    net = Net.start("per_feature", seed=seed, opset=opset)
    x = net.input("x", (batch, time, features))
    lanes = [_gated(net, x, f"columns.{column}", column, hidden) for column in range(features)]
    stacked = stack(net, lanes, "columns", -1)
    logits = linear(net, x, "select", features, features)
    weights = net.op("Softmax", logits, name="select/Softmax", axis=-1)
    weighted = net.op("Mul", stacked, unsqueeze(net, weights, "select", -2), name="select/Mul")
    net.output(reduce_sum(net, weighted, "out", -1), "y", (batch, time, hidden))
    return net.finish(ir_version=ir_version)


def _gated(net: Net, x: gs.Tensor, name: str, column: int, hidden: int) -> gs.Variable:
    """The gated residual network of one column: `[batch, time, features] -> [.., hidden]`."""
    bounds = (
        net.ints(f"{name}.{key}", value)
        for key, value in (("starts", column), ("ends", column + 1), ("axes", 2), ("steps", 1))
    )
    one = net.op("Slice", x, *bounds, name=f"{name}/Slice")
    first = linear(net, one, f"{name}.fc1", 1, hidden)
    bent = net.op("Elu", first, name=f"{name}/Elu", alpha=1.0)
    second = linear(net, bent, f"{name}.fc2", hidden, 2 * hidden)
    value, gate = split(net, second, f"{name}.glu", [hidden, hidden], axis=-1)
    opened = net.op(
        "Mul", value, net.op("Sigmoid", gate, name=f"{name}/Sigmoid"), name=f"{name}/Mul"
    )
    skip = linear(net, one, f"{name}.skip", 1, hidden)
    total = net.op("Add", opened, skip, name=f"{name}/Add")
    return layer_norm(net, total, f"{name}.norm", hidden)
