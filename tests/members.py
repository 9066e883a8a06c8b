"""A small kit for tests of merging: models of one architecture, in files, and what they give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, parser

from models.mlp import critic_ensemble
from onnx_sched.judge.runtime import open_session, run

FEEDS = {
    "obs": np.linspace(-1, 1, 36, dtype=np.float32).reshape(3, 12),
    "act": np.linspace(1, -1, 12, dtype=np.float32).reshape(3, 4),
}


def critics(folder: Path) -> list[Path]:
    """Three models of one architecture with different weights, a file each; all take `FEEDS`."""
    paths = []
    for k in range(3):
        paths.append(folder / f"member{k}.onnx")
        onnx.save(critic_ensemble(members=1, seed=k), str(paths[-1]))
    return paths


def written(folder: Path, *bodies: str, y: str = "float[N, 4]") -> list[Path]:
    """Models `x -> y`, a file each."""
    paths = []
    for k, body in enumerate(bodies):
        paths.append(folder / f"model{k}.onnx")
        head = '<ir_version: 8, opset_import: ["" : 17]>'
        text = f"{head} g (float[N, 4] x) => ({y} y) {{ {body} }}"
        onnx.save(parser.parse_model(text), paths[-1])
    return paths


def results(model: ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    """What a model gives, without the runtime's optimizations."""
    return run(open_session(model.SerializeToString(), "cpu", optimize=False), feeds)


def alone(paths: list[Path], feeds: dict[str, Any] = FEEDS) -> list[Any]:
    """What each critic gives, run by itself."""
    return [results(onnx.load(str(p)), feeds)["q"] for p in paths]
