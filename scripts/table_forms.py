"""Single forms of a grouped MLP with Linear and Relu, written by hand as one would who knows the best.

    stacked        MatMul, Add, Relu on [G, N, K]
    grouped_conv   Conv(group=G), Relu on [N, G*K, 1, 1]
    conv_t_1d      Conv(group=G), Relu on [1, G*K, N]
    conv_t         the same on [1, G*K, 1, N]
    conv_t_padded  the same, each lane's channels padded with zeros to whole blocks of the runtime

Only grouped_conv takes an empty batch: ONNX Runtime's Conv refuses images without pixels (the last three),
and its product that has taken in a Transpose divides by zero, which ends the process (stacked).
`planned` makes a form as the engine does, from a plan that asks for it.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from numpy.typing import NDArray
from onnx import numpy_helper

import onnx_sched
from models.net import IR_VERSION, OPSET, Net
from onnx_sched import pipeline
from onnx_sched.circuit import LINEAR
from onnx_sched.options import Options

BLOCK = 16
"""Channels that ONNX Runtime's blocked convolutions take at a time, with AVX-512."""

PLANNED = ("stacked", "grouped_conv", "grouped_conv_1d", "conv_t")
"""What a plan can ask for."""

EMPTY = ("grouped_conv",)
"""Forms by hand that take an empty batch."""


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a grouped MLP: layers, lanes, features of a lane."""

    layers: int
    groups: int
    width: int

    @property
    def features(self) -> int:
        """Of all lanes together."""
        return self.groups * self.width


def planned(model: onnx.ModelProto, form: str, provider: str) -> onnx.ModelProto:
    """The model as the engine rewrites it when a plan says which form every product has.

    Raises:
        SchedError: The outputs differ, or no product can have that form.
    """
    with tempfile.TemporaryDirectory(prefix="onnx-sched-") as folder:
        path = Path(folder) / "plan.json"
        onnx_sched.optimize(model, choose="always", provider=provider).save_plan(path)
        plan = json.loads(path.read_text("utf-8"))
        for group in plan["groups"]:
            if group["kind"] == LINEAR:
                group["form"] = form
        path.write_text(json.dumps(plan), "utf-8")
        return pipeline.optimize(model, Options(provider=provider, plan=path)).proto


def by_hand(model: onnx.ModelProto, size: Size) -> dict[str, onnx.ModelProto]:
    """Every form of a model that `models.mlp.grouped_mlp` built."""
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    made = {}
    for name, layout in _LAYOUTS.items():
        net = Net.start(name, seed=0, opset=OPSET)
        x = net.input("x", ("batch", size.features))
        hand = _Hand(net, size, weights)
        net.output(layout(hand, x), "y", ("batch", size.features))
        made[name] = net.finish(ir_version=IR_VERSION)
    return made


@dataclass(frozen=True, slots=True)
class _Hand:
    """A form under construction."""

    net: Net
    size: Size
    weights: dict[str, NDArray[np.float32]]

    def stacked(self, x: gs.Variable) -> gs.Variable:
        net, size = self.net, self.size
        shape = net.ints("lanes", 0, size.groups, size.width)
        lanes = net.op("Reshape", x, shape, name="in/Reshape")
        lanes = net.op("Transpose", lanes, name="in/Transpose", perm=[1, 0, 2])
        for layer in range(size.layers):
            kernel, bias = self._layer(layer, size.width)
            weight = net.constant(f"{layer}.weight", kernel.transpose(0, 2, 1))
            lanes = net.op("MatMul", lanes, weight, name=f"{layer}/MatMul")
            offset = net.constant(f"{layer}.bias", bias[:, None, :])
            lanes = net.op("Add", lanes, offset, name=f"{layer}/Add")
            lanes = net.op("Relu", lanes, name=f"{layer}/Relu")
        rows = net.op("Transpose", lanes, name="out/Transpose", perm=[1, 0, 2])
        return net.op("Reshape", rows, net.ints("rows", 0, size.features), name="out/Reshape")

    def grouped_conv(self, x: gs.Variable) -> gs.Variable:
        net, size = self.net, self.size
        shape = net.ints("pixels", 0, size.features, 1, 1)
        image = net.op("Reshape", x, shape, name="in/Reshape")
        image = self._convolutions(image, size.width, 2)
        return net.op("Reshape", image, net.ints("rows", 0, size.features), name="out/Reshape")

    def conv_t_1d(self, x: gs.Variable) -> gs.Variable:
        return self._channels_first(x, 0)

    def conv_t(self, x: gs.Variable) -> gs.Variable:
        return self._channels_first(x, 0, 2)

    def _channels_first(self, x: gs.Variable, *axes: int) -> gs.Variable:
        net = self.net
        places = net.ints("axes", *axes)
        turned = net.op("Transpose", x, name="in/Transpose", perm=[1, 0])
        image = net.op("Unsqueeze", turned, places, name="in/Unsqueeze")
        image = self._convolutions(image, self.size.width, len(axes))
        flat = net.op("Squeeze", image, places, name="out/Squeeze")
        return net.op("Transpose", flat, name="out/Transpose", perm=[1, 0])

    def conv_t_padded(self, x: gs.Variable) -> gs.Variable:
        net, size = self.net, self.size
        padded = -(-size.width // BLOCK) * BLOCK
        shape = net.ints("lanes", 0, size.groups, size.width)
        lanes = net.op("Reshape", x, shape, name="in/lanes")
        pads = net.ints("pads", 0, 0, 0, 0, 0, padded - size.width)
        lanes = net.op("Pad", lanes, pads, name="in/Pad")
        turned = net.op("Transpose", lanes, name="in/Transpose", perm=[1, 2, 0])
        shape = net.ints("image", 1, size.groups * padded, 1, -1)
        image = net.op("Reshape", turned, shape, name="in/image")
        image = self._convolutions(image, padded, 2)
        shape = net.ints("back", size.groups, padded, -1)
        back = net.op("Reshape", image, shape, name="out/back")
        cut = (net.ints("from", 0), net.ints("to", size.width), net.ints("axis", 1))
        back = net.op("Slice", back, *cut, name="out/Slice")
        turned = net.op("Transpose", back, name="out/Transpose", perm=[2, 0, 1])
        return net.op("Reshape", turned, net.ints("rows", 0, size.features), name="out/rows")

    def _convolutions(self, image: gs.Variable, width: int, spatial: int) -> gs.Variable:
        net = self.net
        for layer in range(self.size.layers):
            kernel, bias = self._layer(layer, width)
            weight = net.constant(f"{layer}.weight", kernel.reshape(-1, width, *[1] * spatial))
            offset = net.constant(f"{layer}.bias", bias.reshape(-1))
            name = f"{layer}/Conv"
            image = net.op("Conv", image, weight, offset, name=name, group=self.size.groups)
            image = net.op("Relu", image, name=f"{layer}/Relu")
        return image

    def _layer(self, layer: int, width: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Weights [G, K', K'] (out, in) and biases [G, K'] of a layer, padded with zeros."""
        groups, own = self.size.groups, self.size.width
        kernel = np.zeros((groups, width, width), np.float32)
        bias = np.zeros((groups, width), np.float32)
        for group in range(groups):
            name = f"layers.{layer}.groups.{group}"
            kernel[group, :own, :own] = self.weights[f"{name}.weight"].T
            bias[group, :own] = self.weights[f"{name}.bias"]
        return kernel, bias


_LAYOUTS = {
    "stacked": _Hand.stacked,
    "grouped_conv": _Hand.grouped_conv,
    "conv_t_1d": _Hand.conv_t_1d,
    "conv_t": _Hand.conv_t,
    "conv_t_padded": _Hand.conv_t_padded,
}
