"""Models to compare, and the schema that every comparison fits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper, parser

import onnx_sched.report.compare_text as text

SCHEMA = json.loads(
    (Path(text.__file__).parent / "compare_schema.json").read_text(encoding="utf-8")
)
"""What ships with the package."""

QUICK = ("--pairs", "10", "--budget", "0.05", "--dim", "batch=2")
"""For commands whose numbers do not matter."""


def parse(body: str) -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {body}')


def net(repeat: int = 0, scale: float = 1.0) -> ModelProto:
    """A classifier of 12 classes; `repeat` puts that many needless nodes before the end."""
    steps = "".join(f"[n{k}] h{k + 1} = Neg(h{k}) " for k in range(repeat))
    model = parse(
        f"""g (float[batch,8] x) => (float[batch,12] y) {{
            [mm] m = MatMul(x, w) [act] h0 = Relu(m) {steps} [end] y = Softmax(h{repeat}) }}"""
    )
    weights = np.random.default_rng(0).standard_normal((8, 12)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights * np.float32(scale), "w"))
    return model


def write_models(place: Path) -> Path:
    """a.onnx, its copy, c.onnx of other weights, long.onnx of more nodes, other.onnx of other inputs."""
    other = parse("g (float[batch,8] z) => (float[batch,8] y) { y = Relu(z) }")
    for name, model in [
        ("a", net()),
        ("copy", net()),
        ("c", net(scale=1.5)),
        ("long", net(repeat=4)),
        ("other", other),
    ]:
        onnx.save(model, str(place / f"{name}.onnx"))
    return place


def closed(schema: Any) -> Any:
    """The schema without room for keys that it does not name."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if "properties" in made and "required" in made:
        made["additionalProperties"] = False
    return made
