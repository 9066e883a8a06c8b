"""Models whose lanes look alike but must not, or not simply, be batched.

All but `dynamic_dims` have the frame `x -> Split -> one tower per lane -> Concat -> y` with
`x, y: [batch, lanes * width]`, and the tower `Linear -> Relu -> Linear` except for what the builder
changes. Opset 17, IR 8.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from models.layers import RELU_GAIN, layer_norm, linear, matmul, split
from models.net import IR_VERSION, OPSET, Net


def unequal_widths(
    *, lanes: int = 4, width: int = 8, narrow: int = 5, odd: int = 2, seed: int = 0
) -> onnx.ModelProto:
    """Give lane `odd` a hidden layer of `narrow` instead of `2 * width` features."""
    net, parts = _open("unequal_widths", lanes, width, seed)
    results = []
    for lane, part in enumerate(parts):
        hidden = narrow if lane == odd else 2 * width
        results.append(_tower(net, part, lane, width, hidden))
    return _close(net, results, lanes * width)


def activation_attribute(
    *,
    lanes: int = 4,
    width: int = 8,
    alpha: float = 0.01,
    odd_alpha: float = 0.2,
    odd: int = 1,
    seed: int = 0,
) -> onnx.ModelProto:
    """Give the LeakyRelu of lane `odd` the slope `odd_alpha`, all others `alpha`."""
    net, parts = _open("activation_attribute", lanes, width, seed)
    results = []
    for lane, part in enumerate(parts):
        first = linear(net, part, f"lanes.{lane}.0", width, width, gain=RELU_GAIN)
        slope = odd_alpha if lane == odd else alpha
        bent = net.op("LeakyRelu", first, name=f"lanes.{lane}/LeakyRelu", alpha=slope)
        results.append(linear(net, bent, f"lanes.{lane}.1", width, width))
    return _close(net, results, lanes * width)


def cross_dependency(*, lanes: int = 4, width: int = 8, seed: int = 0) -> onnx.ModelProto:
    """Let lane 1 read lane 0: its input is its slice plus the first activation of lane 0.

    The first MatMul of lane 1 then runs after that of lane 0, although both look the same.
    """
    net, parts = _open("cross_dependency", lanes, width, seed)
    hidden: list[gs.Variable] = []
    results = []
    for lane, part in enumerate(parts):
        name = f"lanes.{lane}"
        start = net.op("Add", part, hidden[0], name=f"{name}/mix/Add") if lane == 1 else part
        first = linear(net, start, f"{name}.0", width, width, gain=RELU_GAIN)
        hidden.append(net.op("Relu", first, name=f"{name}/Relu"))
        results.append(linear(net, hidden[lane], f"{name}.1", width, width))
    return _close(net, results, lanes * width)


def crossed_order(*, lanes: int = 4, width: int = 8, seed: int = 0) -> onnx.ModelProto:
    """Let even lanes run LayerNormalization then MatMul, odd lanes MatMul then LayerNormalization.

    Any two MatMul are independent and so are any two LayerNormalization; batching both sets whole
    would make a cycle.
    """
    net, parts = _open("crossed_order", lanes, width, seed)
    results = []
    for lane, part in enumerate(parts):
        name = f"lanes.{lane}"
        if lane % 2 == 0:
            normed = layer_norm(net, part, f"{name}.norm", width)
            results.append(matmul(net, normed, name, width, width))
        else:
            mixed = matmul(net, part, name, width, width)
            results.append(layer_norm(net, mixed, f"{name}.norm", width))
    return _close(net, results, lanes * width)


def dynamic_dims(*, lanes: int = 4, width: int = 8, seed: int = 0) -> onnx.ModelProto:
    """Give every lane an input, an output and a number of rows of its own.

    `x_i, y_i: [rows_i, width]`: nothing says that two lanes have equally many rows.
    """
    net = Net.start("dynamic_dims", seed=seed, opset=OPSET)
    for lane in range(lanes):
        x = net.input(f"x_{lane}", (f"rows_{lane}", width))
        y = _tower(net, x, lane, width, 2 * width)
        net.output(y, f"y_{lane}", (f"rows_{lane}", width))
    return net.finish(ir_version=IR_VERSION)


def weight_input(
    *, lanes: int = 4, width: int = 8, default: bool = False, odd: int = 1, seed: int = 0
) -> onnx.ModelProto:
    """Make the first weight of lane `odd` a graph input.

    Args:
        lanes: Number of lanes.
        width: Features of one lane.
        default: Whether the input has a default value: an initializer of the same name, which the
            caller may override.
        odd: The lane in question.
        seed: The seed of the weights.

    Returns:
        A model with the inputs `x` and `lanes.{odd}.0.weight`.
    """
    net, parts = _open("weight_input", lanes, width, seed)
    results = [_tower(net, part, lane, width, 2 * width) for lane, part in enumerate(parts)]
    name = f"lanes.{odd}.0.weight"
    constant = net.graph.tensors()[name]
    if default:
        net.graph.inputs.append(constant)
    else:
        weight = net.input(name, constant.shape)
        for node in list(constant.outputs):
            node.inputs = [weight if tensor is constant else tensor for tensor in node.inputs]
    return _close(net, results, lanes * width)


def training_dropout(
    *, lanes: int = 4, width: int = 8, ratio: float = 0.5, seed: int = 0
) -> onnx.ModelProto:
    """End every lane with a Dropout in training mode: random, hence never merged or moved."""
    net, parts = _open("training_dropout", lanes, width, seed)
    results = []
    for lane, part in enumerate(parts):
        name = f"lanes.{lane}"
        last = _tower(net, part, lane, width, 2 * width)
        training = net.constant(f"{name}.training", np.array(True))
        share = net.scalar(f"{name}.ratio", ratio)
        # Not 0: ONNX Runtime draws the same numbers for the seeds 0 and 1.
        results.append(
            net.op("Dropout", last, share, training, name=f"{name}/Dropout", seed=lane + 1)
        )
    return _close(net, results, lanes * width)


def tapped_lane(*, lanes: int = 4, width: int = 8, odd: int = 2, seed: int = 0) -> onnx.ModelProto:
    """Make the hidden activation of lane `odd` a second graph output, `tap: [batch, 2 * width]`."""
    net, parts = _open("tapped_lane", lanes, width, seed)
    results = [_tower(net, part, lane, width, 2 * width) for lane, part in enumerate(parts)]
    hidden = net.graph.tensors()[f"lanes.{odd}/Relu:0"]
    return _close(net, results, lanes * width, also={"tap": (hidden, 2 * width)})


def permuted_join(
    *, lanes: int = 4, width: int = 8, order: tuple[int, ...] = (2, 0, 3, 1, 0), seed: int = 0
) -> onnx.ModelProto:
    """Join the lanes in another order than they were split, and some of them twice.

    `y` is `[batch, len(order) * width]`.
    """
    net, parts = _open("permuted_join", lanes, width, seed)
    results = [_tower(net, part, lane, width, 2 * width) for lane, part in enumerate(parts)]
    return _close(net, [results[lane] for lane in order], len(order) * width)


def _open(name: str, lanes: int, width: int, seed: int) -> tuple[Net, list[gs.Variable]]:
    net = Net.start(name, seed=seed, opset=OPSET)
    x = net.input("x", ("batch", lanes * width))
    return net, split(net, x, "in", [width] * lanes, axis=1)


def _tower(net: Net, x: gs.Tensor, lane: int, width: int, hidden: int) -> gs.Variable:
    name = f"lanes.{lane}"
    first = linear(net, x, f"{name}.0", width, hidden, gain=RELU_GAIN)
    return linear(net, net.op("Relu", first, name=f"{name}/Relu"), f"{name}.1", hidden, width)


def _close(
    net: Net,
    lanes: list[gs.Variable],
    size: int,
    also: dict[str, tuple[gs.Variable, int]] | None = None,
) -> onnx.ModelProto:
    joined = net.op("Concat", *lanes, name="out/Concat", axis=1)
    net.output(joined, "y", ("batch", size))
    for name, (tensor, width) in (also or {}).items():
        net.output(tensor, name, ("batch", width))
    return net.finish(ir_version=IR_VERSION)
