"""A graph under construction: the few steps that all builders share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from numpy.typing import DTypeLike, NDArray

from models.weights import kernel, uniform

OPSET = 17
IR_VERSION = 8

Dim = int | str


@dataclass(frozen=True, slots=True)
class Net:
    """A graphsurgeon graph and the seed of its weights.

    Every node and tensor is named by its builder, so that a name says where in the model it stands.

    Attributes:
        graph: The graph that grows.
        seed: The seed of every weight.
    """

    graph: gs.Graph
    seed: int

    @classmethod
    def start(cls, name: str, *, seed: int, opset: int) -> Net:
        """Start an empty graph called `name` for the given opset."""
        return cls(gs.Graph(name=name, opset=opset), seed)

    def input(self, name: str, shape: Sequence[Dim], dtype: DTypeLike = np.float32) -> gs.Variable:
        """Add a graph input."""
        tensor = gs.Variable(name, dtype=np.dtype(dtype), shape=list(shape))
        self.graph.inputs.append(tensor)
        return tensor

    def output(self, tensor: gs.Variable, name: str, shape: Sequence[Dim]) -> None:
        """Make `tensor` a float32 graph output called `name`."""
        tensor.name, tensor.dtype, tensor.shape = name, np.dtype(np.float32), list(shape)
        self.graph.outputs.append(tensor)

    def op(self, op: str, *inputs: gs.Tensor, name: str, **attrs: object) -> gs.Variable:
        """Add a node with one output, called `name:0`."""
        return self._add(op, inputs, name, 1, attrs)[0]

    def ops(
        self, op: str, *inputs: gs.Tensor, name: str, count: int, **attrs: object
    ) -> list[gs.Variable]:
        """Add a node with `count` outputs, called `name:0`, `name:1` and so on."""
        return self._add(op, inputs, name, count, attrs)

    def _add(
        self,
        op: str,
        inputs: Sequence[gs.Tensor],
        name: str,
        count: int,
        attrs: Mapping[str, object],
    ) -> list[gs.Variable]:
        # Graph.layer would look for a fresh name among all tensors: quadratic in large models.
        results = [gs.Variable(f"{name}:{i}") for i in range(count)]
        node = gs.Node(op, name=name, attrs=dict(attrs), inputs=list(inputs), outputs=results)
        self.graph.nodes.append(node)
        return results

    def constant(self, name: str, values: NDArray[np.generic]) -> gs.Constant:
        """Make an initializer of the given values."""
        return gs.Constant(name, values)

    def ints(self, name: str, *values: int) -> gs.Constant:
        """Make an int64 vector: axes, sizes, bounds."""
        return gs.Constant(name, np.array(values, dtype=np.int64))

    def scalar(self, name: str, value: float) -> gs.Constant:
        """Make a float32 scalar of rank 0."""
        return gs.Constant(name, np.array(value, dtype=np.float32))

    def kernel(
        self, name: str, shape: tuple[int, ...], fan_in: int, gain: float = 1.0
    ) -> gs.Constant:
        """Make a weight; see `models.weights.kernel`."""
        return gs.Constant(name, kernel(name, shape, fan_in, gain=gain, seed=self.seed))

    def jitter(self, name: str, size: int, low: float, high: float) -> gs.Constant:
        """Make a vector of unequal numbers, so that two exchanged biases or scales are noticed."""
        return gs.Constant(name, uniform(name, (size,), low, high, seed=self.seed))

    def finish(self, *, ir_version: int) -> onnx.ModelProto:
        """Export the graph.

        Raises:
            OnnxGraphSurgeonException: Two tensors have one name.
        """
        self.graph.tensors(check_duplicates=True)
        model = gs.export_onnx(self.graph, ir_version=ir_version)
        # Versions of graphsurgeon differ in what they write here.
        model.producer_name, model.producer_version = "onnx-sched", ""
        model.ir_version = ir_version
        assert isinstance(model, onnx.ModelProto)
        return model
