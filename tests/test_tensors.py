"""Tensors: all of a model's are met, and they hold as many numbers as their shapes say, or it is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnx_sched.tensors import ELEMENT_BITS, every_tensor, misfit, tensor_bytes
from onnx_sched.writing import size_inline
from tests.nets import numbers
from tests.stored import layered

SIZES = {
    "FLOAT": 20,
    "INT64": 40,
    "BFLOAT16": 10,
    "FLOAT8E5M2": 5,
    "INT4": 3,
    "UINT4": 3,
    "BOOL": 5,
}


@pytest.mark.parametrize("kind", SIZES)
def test_the_bytes_of_a_tensor_are_those_of_its_raw_data(kind: str) -> None:
    """Five elements; types of 4 bits share bytes."""
    tensor = helper.make_tensor("t", TensorProto.DataType.Value(kind), [5], [1] * 5)
    array = numpy_helper.to_array(tensor)
    raw = numpy_helper.from_array(array, "t")
    assert tensor_bytes(tensor) == len(raw.raw_data) == SIZES[kind]


def test_every_tensor_is_met() -> None:
    """Initializers and attributes, in the main graph, in bodies and functions; sparse ones, too."""
    model = layered()
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(numpy_helper.from_array(numbers(1), "values"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([0]), "indices"))
    several = [numpy_helper.from_array(numbers(2), f"listed{k}") for k in range(2)]
    model.graph.node[-1].attribute.append(helper.make_attribute("several", several))
    model.graph.node[-1].attribute.append(helper.make_attribute("sparse", sparse))
    model.graph.node[-1].attribute.append(helper.make_attribute("sparser", [sparse, sparse]))
    step = model.training_info.add().algorithm
    step.initializer.append(numpy_helper.from_array(numbers(1), "rate"))
    found = list(every_tensor(model))
    names = {"w", "v", "", "inner", "values", "indices", "listed0", "listed1", "rate"}
    assert {t.name for t in found} == names
    assert len(found) == 16
    assert size_inline(model) == sum(len(t.raw_data) for t in found)


KINDS = {name: kind for name, kind in TensorProto.DataType.items() if kind in ELEMENT_BITS}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("count", [0, 1, 3, 8])
def test_tensors_that_onnx_makes_fit(name: str, count: int) -> None:
    """Of every type, raw or typed; with one number more or fewer they do not fit."""
    typed = helper.make_tensor("t", KINDS[name], [count], np.zeros(count))
    raw = numpy_helper.from_array(numpy_helper.to_array(typed), "t")
    assert raw.HasField("raw_data")
    assert not typed.HasField("raw_data")
    assert misfit(raw) == misfit(typed) == ""
    raw.raw_data += b"0"
    assert f"{tensor_bytes(raw)} bytes" in misfit(raw)
    assert f"holds {tensor_bytes(raw) + 1}" in misfit(raw)
    getattr(typed, helper.tensor_dtype_to_field(KINDS[name])).append(0)
    assert "elements" in misfit(typed)


FAULTS: dict[str, tuple[Callable[[TensorProto], Any], str]] = {
    "a negative size": (lambda t: t.dims.__setitem__(0, -1), "negative size"),
    "two negative sizes": (lambda t: t.dims.extend([-1, -2]), "negative size"),
    "another shape": (lambda t: t.dims.append(2), "takes 12 bytes, but it holds 6"),
    "no numbers": (lambda t: t.ClearField("raw_data"), "takes 3 elements, but it holds 0"),
    "an empty shape": (lambda t: t.dims.append(0), "takes 0 bytes"),
    "another type": (lambda t: setattr(t, "data_type", TensorProto.FLOAT), "takes 12 bytes"),
    "segments": (lambda t: t.segment.SetInParent(), "segments"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_tensor_that_does_not_fit_is_described(kind: str) -> None:
    """What its shape takes, and what is there."""
    tensor = numpy_helper.from_array(np.zeros(3, np.float16), "t")
    assert misfit(tensor) == ""
    change, words = FAULTS[kind]
    change(tensor)
    assert words in misfit(tensor)


def test_what_nobody_knows_is_not_judged() -> None:
    """Types that a later version of onnx adds, and none; of numbers elsewhere only the shape is looked at."""
    for kind in (0, 99):
        assert misfit(TensorProto(name="t", data_type=kind, dims=[3], raw_data=b"1")) == ""
    outside = TensorProto(name="t", data_type=1, dims=[3], data_location=TensorProto.EXTERNAL)
    assert misfit(outside) == ""
    outside.dims[0] = -3
    assert "negative size" in misfit(outside)


def test_words_are_counted() -> None:
    """Strings have no size of their own, but a number."""
    words = TensorProto(data_type=TensorProto.STRING, dims=[2], string_data=[b"a", b"bcd"])
    assert misfit(words) == ""
    assert tensor_bytes(words) >= 4
    words.string_data.append(b"e")
    assert "takes 2 elements, but it holds 3" in misfit(words)
    assert tensor_bytes(ModelProto().graph.initializer.add()) == 0
