"""Fit a device profile to this machine: a few small models, each telling one number.

The numbers only rank the forms that are then raced, so each is taken from one plain situation:

    dispatch      a chain of nodes on one number
    streaming     a chain of additions on a megabyte
    moving        a Transpose of a few megabytes
    norms         a LayerNormalization of a megabyte
    runs          an addition that broadcasts along a middle axis
    leading       a sum along the first of two axes
    arithmetic    a square product
    weights       a product with one row
    repacking     a batched product with a few rows, less what the above explain
    lanes         a batched product of many tiny matrices
    rows          a grouped 1x1 convolution on images of one pixel
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from onnx_sched.constants import Array
from onnx_sched.cost import Device
from onnx_sched.judge.measure import runner

SECONDS = 0.4
"""How long each small model is run; the median counts."""


def calibrate(provider: str, name: str, threads: int = 1) -> Device:
    """Measure this machine.

    Args:
        provider: Execution provider.
        name: What the profile will be called.
        threads: Threads within a node.

    Returns:
        The profile; about ten seconds later.
    """
    return _Bench(provider, threads).device(name)


class _Bench:
    def __init__(self, provider: str, threads: int) -> None:
        self._provider = provider
        self._threads = threads

    def device(self, name: str) -> Device:
        chain = 64
        dispatch = self._time(_chain("Add", chain), {"c": _ones(1)}, (1,)) / chain
        size = 1 << 18
        added = self._time(_chain("Add", 16), {"c": _ones(1)}, (size,)) / 16 - dispatch
        stream = _rate(8 * size, added)
        node = helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0, 2])
        moved = self._time([node], {}, (64, 512, 16)) - dispatch
        move = _rate(8 * 64 * 512 * 16, moved)
        rows, width = 4096, 64
        scale = {"c": _ones(width)}
        normed = self._time(_chain("LayerNormalization", 4), scale, (rows, width)) / 4 - dispatch
        norm = _rate(8 * rows * width, normed)
        runs = self._time(_chain("Add", 4), {"c": _ones(8, 1, 16)}, (8, 512, 16)) / 4 - dispatch
        run_us = max(0.0, (runs - _us(8 * 8 * 512 * 16, stream)) / (8 * 512))
        node = helper.make_node("ReduceSum", ["x", "axis"], ["y"], keepdims=0)
        summed = self._time([node], {"axis": np.zeros(1, np.int64)}, (8, 1 << 15)) - dispatch
        lead = _rate(4 * 8 * (1 << 15), summed)
        square = self._time(_linear(), _linear_weights(512, 512), (512, 512)) - dispatch
        gflops = 2 * 512**3 / square / 1e3
        single = self._time(_linear(), _linear_weights(1024, 1024), (1, 1024)) - dispatch
        weights = _rate(4 * 1024 * 1024, single)
        lanes = self._time(_product(), {"w": _ones(256, 8, 8)}, (256, 1, 8)) - dispatch
        lane_us = max(0.0, lanes / 256 - _us(4 * 64, weights))
        rows, width = 4, 256
        batched = self._time(_product(), {"w": _ones(8, width, width)}, (8, rows, width)) - dispatch
        bytes_ = 4 * 8 * width * width
        explained = _us(bytes_, weights) + 2 * 8 * rows * width**2 / gflops / 1e3 + 8 * lane_us
        repack = _rate(bytes_, max(batched - explained, bytes_ / 1e6))
        images = 128
        convolved = self._conv(images, 4, 64) - dispatch
        few = self._conv(images, 4, 8) - dispatch
        image_us = max(0.0, few / (images * 4))
        flops = 2 * images * 4 * 64 * 64
        rows_gflops = flops / max(convolved - images * 4 * image_us, 0.05 * convolved) / 1e3
        return Device(
            name=name,
            dispatch_us=round(dispatch, 3),
            gflops=round(gflops, 1),
            weights_gb_s=round(weights, 2),
            repack_gb_s=round(repack, 2),
            lane_us=round(lane_us, 4),
            stream_gb_s=round(stream, 2),
            move_gb_s=round(move, 2),
            norm_gb_s=round(norm, 2),
            run_us=round(run_us, 5),
            lead_gb_s=round(lead, 2),
            rows_gflops=round(rows_gflops, 1),
            image_us=round(image_us, 4),
            fuses_linear=not self._provider.startswith("CUDA"),
            convolves=not self._provider.startswith("CUDA"),
        )

    def _conv(self, images: int, lanes: int, width: int) -> float:
        channels = lanes * width
        node = helper.make_node("Conv", ["x", "w"], ["y"], group=lanes)
        return self._time([node], {"w": _ones(channels, width, 1, 1)}, (images, channels, 1, 1))

    def _time(
        self, nodes: Sequence[NodeProto], weights: Mapping[str, Array], shape: tuple[int, ...]
    ) -> float:
        """Median microseconds of a run of a small model."""
        graph = helper.make_graph(
            nodes,
            "calibration",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        once = runner(model.SerializeToString(), {"x": x}, self._provider, self._threads)
        for _ in range(5):
            once()
        samples: list[float] = []
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or len(samples) < 5:
            begin = time.perf_counter_ns()
            once()
            samples.append((time.perf_counter_ns() - begin) / 1e3)
        return float(np.median(samples))


def _rate(size: float, microseconds: float) -> float:
    """Bytes in a time as GB/s."""
    return size / max(microseconds, 1e-3) / 1e3


def _us(size: float, rate: float) -> float:
    """Bytes at a rate in GB/s as microseconds."""
    return size / rate / 1e3


def _ones(*shape: int) -> Array:
    return np.full(shape, 0.01, np.float32)


def _chain(op_type: str, length: int) -> list[NodeProto]:
    names = ["x", *(f"t{k}" for k in range(1, length)), "y"]
    return [helper.make_node(op_type, [a, "c"], [b]) for a, b in pairwise(names)]


def _linear() -> list[NodeProto]:
    return [helper.make_node("Gemm", ["x", "w", "b"], ["y"])]


def _linear_weights(k: int, n: int) -> dict[str, Array]:
    return {"w": _ones(k, n), "b": _ones(n)}


def _product() -> list[NodeProto]:
    return [helper.make_node("MatMul", ["x", "w"], ["y"])]


def to_toml(device: Device, comment: str) -> str:
    """A profile as the text of a file."""
    lines = [f"# {line}" for line in comment.splitlines()]
    for key, value in asdict(device).items():
        text = f'"{value}"' if isinstance(value, str) else str(value).lower()
        lines.append(f"{key} = {text}")
    return "\n".join(lines) + "\n"
