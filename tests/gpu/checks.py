"""What must hold for a model and its optimised form, on any provider: thus tried on the CPU, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnx_sched
from models.catalog import CATALOG, EXPORTED
from onnx_sched.judge.agree import Agreement, validate
from onnx_sched.judge.comparison import Placement
from onnx_sched.judge.feeds import input_specs, make_feeds, plan_sizes
from onnx_sched.judge.inspection import inspect
from onnx_sched.judge.measure import bind
from onnx_sched.judge.opening import Setup, open_for
from onnx_sched.judge.runtime import open_session, run

FOLDER = Path(__file__).resolve().parents[2] / "models"
MODELS = (*CATALOG, *EXPORTED)
RANDOM = ("near_training_dropout",)
"""Their outputs are random: values cannot be compared."""


def committed(name: str) -> Path:
    """The file of a committed model."""
    return FOLDER / f"{name}.onnx"


def optimised(path: Path, folder: Path) -> Path:
    """All that is legal, rewritten; not checked, for that is what the tests do."""
    out = folder / "optimised.onnx"
    onnx_sched.optimize(path, choose="always", provider="cpu", check=False).save(out)
    return out


def inputs(path: Path) -> list[dict[str, Any]]:
    """Inputs at batch 1, 32 and 7."""
    model = onnx.load(str(path))
    return [make_feeds(model, binding, 0) for binding in plan_sizes(input_specs(model))]


def agreement(before: Path, after: Path, provider: str) -> Agreement:
    """How the outputs compare, TF32 off."""
    return validate(before, after, inputs(before), provider)


def placed(path: Path, provider: str) -> Placement:
    """Where the nodes run."""
    return inspect(path, inputs(path)[1], Setup(provider)).placement


def replayed(path: Path, setup: Setup, feeds: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs of the third run of a session, inputs and outputs bound: with CUDA graphs, of a replay."""
    session = open_for(path, setup)
    once = bind(session, feeds, setup.provider)
    once()
    held: Any = once()
    names = [output.name for output in session.get_outputs()]
    return {n: v.numpy() for n, v in zip(names, held[-len(names) :], strict=True)}


def plain(path: Path, setup: Setup, feeds: dict[str, Any]) -> dict[str, Any]:
    """The outputs of one run without anything bound, TF32 off."""
    return run(open_session(path, setup.provider, exact=True), feeds)


def narrowed(model: ModelProto, elem_type: int) -> ModelProto:
    """The model with all its float32 as another type of float."""
    small = ModelProto()
    small.CopyFrom(model)
    dtype = helper.tensor_dtype_to_np_dtype(elem_type)

    def narrow(tensor: TensorProto) -> None:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(dtype)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))

    for tensor in small.graph.initializer:
        narrow(tensor)
    for node in small.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                narrow(attribute.t)
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                attribute.i = elem_type
    for value in (*small.graph.input, *small.graph.output, *small.graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = elem_type
    return small
