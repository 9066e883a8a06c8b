"""What the main models compute, written down a second time: numpy, all members in one batch.

Each oracle takes the initializers and the inputs of a committed file by name and gives its outputs.
It shares nothing with the builder but the names of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = Mapping[str, Array]


def _pick(w: Arrays, name: str, members: int) -> Array:
    """Stack a parameter over its members: `{}` in `name` stands for the member's number."""
    return np.stack([w[name.format(member)] for member in range(members)])


def _raised(w: Arrays, name: str, members: int) -> Array:
    """Stack weights to `[members, 1, n_in, n_out]` and vectors to `[members, 1, 1, n]`."""
    values = _pick(w, name, members)
    return values.reshape(members, 1, -1, values.shape[-1])


def _gemm(w: Arrays, x: Array, name: str, members: int) -> Array:
    """Apply one transposed weight and one bias per member."""
    product = x @ _pick(w, f"{name}.weight", members).swapaxes(-1, -2)
    return product + _pick(w, f"{name}.bias", members)[:, None]


def _relu(x: Array) -> Array:
    return np.maximum(x, np.float32(0))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _softmax(x: Array) -> Array:
    raised = np.exp(x - x.max(axis=-1, keepdims=True))
    share: Array = raised / raised.sum(axis=-1, keepdims=True)
    return share


def _normal(x: Array, scale: Array, offset: Array) -> Array:
    mean, var = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    result: Array = (x - mean) / np.sqrt(var + 1e-5) * scale + offset
    return result


def grouped_mlp(w: Arrays, x: Arrays) -> list[Array]:
    """12 layers on 4 groups of 16 features."""
    lanes = x["x"].reshape(-1, 4, 16).swapaxes(0, 1)
    for layer in range(12):
        name = f"layers.{layer}.groups.{{}}"
        offset = _pick(w, f"{name}.bias", 4)[:, None]
        lanes = _relu(lanes @ _pick(w, f"{name}.weight", 4) + offset)
    return [lanes.swapaxes(0, 1).reshape(-1, 64)]


def headlocal_transformer(w: Arrays, x: Arrays) -> list[Array]:
    """2 blocks of 4 heads with 8 features each."""
    y, erf = x["x"], np.vectorize(math.erf, otypes=[np.float32])
    for block in range(2):
        name = f"blocks.{block}"
        p = {
            f"{part}.{kind}": _raised(w, f"{name}.heads.{{}}.{part}.{kind}", 4)
            for part in ("query", "key", "value", "norm", "up", "down")
            for kind in ("weight", "bias")
            if kind == "weight" or part in ("norm", "up", "down")
        }
        shared = _normal(y, w[f"{name}.norm.weight"], w[f"{name}.norm.bias"])
        q, k, v = (shared @ p[f"{part}.weight"] for part in ("query", "key", "value"))
        mixed = _softmax(q @ k.swapaxes(-1, -2) / math.sqrt(8)) @ v
        wide = _normal(mixed, p["norm.weight"], p["norm.bias"]) @ p["up.weight"] + p["up.bias"]
        wide = wide * (1 + erf(wide / math.sqrt(2))) / 2
        lanes = mixed + wide @ p["down.weight"] + p["down.bias"]
        joined = lanes.transpose(1, 2, 0, 3).reshape(y.shape)
        y = y + joined @ w[f"{name}.out.weight"] + w[f"{name}.out.bias"]
    return [y]


def mmoe(w: Arrays, x: Arrays) -> list[Array]:
    """8 experts, 3 gates and towers."""
    hidden = _relu(_gemm(w, x["x"], "experts.{}.0", 8))
    experts = _relu(_gemm(w, hidden, "experts.{}.1", 8))
    gates = _softmax(_gemm(w, x["x"], "gates.{}", 3))
    lanes = np.einsum("gbe,ebw->gbw", gates, experts)
    return list(_sigmoid(_gemm(w, _relu(_gemm(w, lanes, "towers.{}.0", 3)), "towers.{}.1", 3)))


def per_feature(w: Arrays, x: Arrays) -> list[Array]:
    """10 columns, networks of width 8."""

    def dense(lanes: Array, name: str) -> Array:
        weight = _raised(w, f"columns.{{}}.{name}.weight", 10)
        return lanes @ weight + _raised(w, f"columns.{{}}.{name}.bias", 10)

    lanes = x["x"].transpose(2, 0, 1)[..., None]
    first = dense(lanes, "fc1")
    second = dense(np.where(first > 0, first, np.expm1(first)), "fc2")
    total = second[..., :8] * _sigmoid(second[..., 8:]) + dense(lanes, "skip")
    scale, offset = (_raised(w, f"columns.{{}}.norm.{kind}", 10) for kind in ("weight", "bias"))
    weight = _softmax(x["x"] @ w["select.weight"] + w["select.bias"])
    return [np.einsum("cbth,btc->bth", _normal(total, scale, offset), weight)]


def critic_ensemble(w: Arrays, x: Arrays) -> list[Array]:
    """10 members with two hidden layers."""
    lanes = np.concatenate([x["obs"], x["act"]], axis=1)
    for layer in range(2):
        lanes = _relu(_gemm(w, lanes, f"q.{{}}.{layer}", 10))
    return [_gemm(w, lanes, "q.{}.2", 10)[..., 0].T]


def conv_towers(w: Arrays, x: Arrays) -> list[Array]:
    """4 towers of two convolutions on 4 channels, 3 branches, images of 8 x 8."""

    def conv(lanes: Array, name: str, members: int) -> Array:
        padded = np.pad(lanes, [(0, 0), (0, 0), (0, 0), (1, 1), (1, 1)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(-2, -1))
        summed = np.einsum("gbcxyij,gocij->gboxy", windows, _pick(w, f"{name}.weight", members))
        return _relu(summed + _pick(w, f"{name}.bias", members)[:, None, :, None, None])

    lanes = x["x"].reshape(-1, 4, 4, 8, 8).swapaxes(0, 1)
    lanes = conv(conv(lanes, "towers.{}.0", 4), "towers.{}.1", 4)
    shared = lanes.swapaxes(0, 1).reshape(1, -1, 16, 8, 8).repeat(3, axis=0)
    pooled = conv(shared, "branches.{}", 3).mean(axis=(-2, -1))
    return [pooled.swapaxes(0, 1).reshape(-1, 12)]


ORACLES: Mapping[str, Callable[[Arrays, Arrays], list[Array]]] = MappingProxyType(
    {
        "grouped_mlp": grouped_mlp,
        "headlocal_transformer": headlocal_transformer,
        "mmoe": mmoe,
        "per_feature": per_feature,
        "critic_ensemble": critic_ensemble,
        "conv_towers": conv_towers,
    }
)
"""Name of a committed file -> `oracle(weights, inputs) -> outputs`."""
