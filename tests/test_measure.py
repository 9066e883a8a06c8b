"""Runners: a model on fixed inputs, whatever their shapes and types, again and again."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from onnx_sched.judge.measure import runner
from onnx_sched.judge.runtime import RuntimeRefused, open_session, run
from tests.nets import net

CPU = "CPUExecutionProvider"


@pytest.mark.parametrize("shape", [(), (1,), (3,), (0,), (2, 1, 4)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_inputs_keep_their_shape(shape: tuple[int, ...], order: Any) -> None:
    """A scalar stays a scalar, an empty tensor stays empty: outputs are those of a plain run."""
    dims = ",".join(f"D{k}" for k in range(len(shape)))
    model = net(f"(float[{dims}] x) => (float[] y) {{ y = Neg(x) }}")
    if not shape:
        del model.graph.input[0].type.tensor_type.shape.dim[:]
        model.graph.input[0].type.tensor_type.shape.SetInParent()
    x = np.asarray(np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape), order=order)
    data = model.SerializeToString()
    values = runner(data, {"x": x}, CPU, 1)()
    assert isinstance(values, list)
    negated = values[-1].numpy()
    assert negated.shape == shape
    np.testing.assert_array_equal(negated, run(open_session(data, CPU), {"x": x})["y"])


def test_a_scalar_that_numpy_has_no_type_for() -> None:
    """A bfloat16 scalar goes in as one."""
    model = net("(bfloat16[] x) => (bfloat16[] y) { y = Identity(x) }")
    kind = model.graph.input[0].type.tensor_type
    assert kind.elem_type == TensorProto.BFLOAT16
    kind.shape.SetInParent()
    x = np.array(1.5, ml_dtypes.bfloat16)
    data = model.SerializeToString()
    (value,) = runner(data, {"x": x}, CPU, 1)()[-1:]  # type: ignore[index]
    assert value.shape() == []
    assert run(open_session(data, CPU), {"x": x})["y"].shape == ()


def test_a_model_that_does_not_run_is_refused() -> None:
    """What fails in the first run is a refusal, not an error of the runtime."""
    model = net("(int64[S] s, float[N] x) => (float[] y) { y = Reshape(x, s) }")
    feeds = {"s": np.array([2, 3]), "x": np.zeros(4, np.float32)}
    with pytest.raises(RuntimeRefused, match="does not run the model"):
        runner(model.SerializeToString(), feeds, CPU, 1)
