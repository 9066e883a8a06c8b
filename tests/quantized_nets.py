"""Parts of models of quantised lanes, and what ONNX Runtime makes of them as people deploy them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import ArrayLike
from onnx import ModelProto

from onnx_sched.judge.runtime import RuntimeRefused, open_session
from onnx_sched.judge.runtime import run as optimized_run
from tests.nets import Array, feeds, ints, run

BYTES = pytest.mark.parametrize("dtype", [np.uint8, np.int8], ids=["uint8", "int8"])
LANES = 3


def lanes(body: str, join: str = "") -> str:
    """A body for each lane, @ being its number."""
    return " ".join(body.replace("@", str(k)) for k in range(LANES)) + " " + join


def fused(model: ModelProto, path: Path) -> Counter[str]:
    """How often each op is in what the runtime makes of a model."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(path)
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(path).graph.node)


def outputs(model: ModelProto, given: dict[str, Array]) -> dict[str, Array]:
    """What a model gives as people deploy it."""
    return optimized_run(open_session(model.SerializeToString(), "cpu"), given)


def needs_a_runtime(model: ModelProto) -> None:
    """Skip the test, for all to see, where ONNX Runtime does not load the original."""
    try:
        open_session(model.SerializeToString(), "cpu")
    except RuntimeRefused as refused:
        pytest.skip(f"ONNX Runtime refuses the original: {str(refused)[:60]}")


def agree(model: ModelProto, new: ModelProto, **sizes: int) -> None:
    """Both give the same as people deploy them, or the new one what the original gives as it is written."""
    given = feeds(model, **sizes)
    want, plain, got = outputs(model, given), run(model, given), outputs(new, given)
    for name, array in got.items():
        assert array.dtype == plain[name].dtype
        close = [np.allclose(array, w[name], rtol=1e-4, atol=1e-4) for w in (want, plain)]
        assert any(close), (name, np.abs(array.astype(float) - want[name]).max())


CUTS = ("Split", "Slice")


def cut(how: str, axis: int) -> tuple[str, dict[str, ArrayLike]]:
    """What takes three lanes out of one tensor, and its constants."""
    if how == "Split":
        return f"a0, a1, a2 = Split<axis={axis}>(x, sizes) ", {"sizes": ints(8, 8, 8)}
    weights: dict[str, ArrayLike] = {"axes": ints(axis)}
    for k in range(LANES):
        weights |= {f"from{k}": ints(8 * k), f"to{k}": ints(8 * k + 8)}
    return lanes("a@ = Slice(x, from@, to@, axes) "), weights
