"""Norms of lanes: by channels, over columns, and in the layout that the reader of a sum wants."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from numpy.typing import ArrayLike, DTypeLike
from onnx import ModelProto

from onnx_sched.circuit import LINEAR
from onnx_sched.variants import forms
from tests.nets import analysed, numbers
from tests.rule_examples import Outcome, carried_out, compare
from tests.test_fold import build

NORM = "n@ = LayerNormalization<epsilon=0.01>(a@, g@, h@) "
READ = "y@ = Relu(n@)"

BODIES = {
    "scale and shift": (NORM + READ, 1, 1),
    "scale alone": (NORM.replace(", h@", "") + READ, 1, 1),
    "one number as shift": (NORM.replace(", h@", ", half") + READ, 1, 1),
    "a row of one number as shift": (NORM.replace(", h@", ", one") + READ, 1, 1),
    "shared scale": (NORM.replace("g@, h@", "g, h@") + READ, 1, 1),
    "behind it a map": (NORM + "y@ = MatMul(n@, u@)", 1, 0),
    "two in a row": (NORM + "y@ = LayerNormalization(n@, g@)", 2, 2),
    "no map before": ("b@ = Tanh(a@) " + NORM.replace("a@", "b@") + READ, 1, 1),
}


SHIFTS: dict[str, ArrayLike] = {"half": np.float32(0.5), "one": np.ones(1, np.float32)}


def kinds(model: ModelProto) -> Counter[str]:
    return Counter(n.op_type for n in model.graph.node)


def by_channels(model: ModelProto, form: str, *, nonempty: bool = False) -> Outcome:
    """Norms by channels, linear maps in a form of our choice."""
    return carried_out(model, form, kinds=(LINEAR,), nonempty=nonempty, norm="instance_norm")


@pytest.mark.parametrize("rows", ["float[N,12]", "float[N,5,12]", "float[3,12]"])
@pytest.mark.parametrize("form", ["stacked", "conv_t", "grouped_conv", "grouped_conv_1d"])
@pytest.mark.parametrize("what", BODIES)
@pytest.mark.parametrize("nonempty", [False, True])
def test_a_norm_by_channels_gives_what_the_norm_gives(
    what: str, form: str, rows: str, nonempty: bool
) -> None:
    """One InstanceNormalization for all lanes; scale and shift, unless a map takes them, are one node."""
    body, norms, scales = BODIES[what]
    model = build(body, rows=rows, more=SHIFTS)
    outcome = by_channels(model, form, nonempty=nonempty)
    assert not outcome.refusals
    found = kinds(outcome.model)
    assert found["LayerNormalization"] == 0
    assert found["InstanceNormalization"] == norms
    assert found["BatchNormalization"] == scales
    assert (found["Mul"], found["Add"]) == (0, int(form == "stacked") * (1 + ("u@" in body)))
    sizes = ({"N": 3}, {"N": 1}) if nonempty else ({"N": 3}, {"N": 1}, {"N": 0})
    assert compare(model, outcome.model, *sizes) == len(sizes)


def test_a_spare_pixel_goes_along_with_a_norm_by_channels() -> None:
    """Between two maps by convolution nothing is cut off and put on again: once at the end is enough."""
    body = NORM + "r@ = Relu(n@) y@ = MatMul(r@, u@)"
    outcome = by_channels(build(body), "conv_t")
    found = kinds(outcome.model)
    assert (found["InstanceNormalization"], found["Slice"], found["Pad"]) == (1, 1, 0)
    pads = [
        onnx.helper.get_node_attr_value(n, "pads")
        if any(a.name == "pads" for a in n.attribute)
        else []
        for n in outcome.model.graph.node
        if n.op_type == "Conv"
    ]
    assert pads == [[0, 0, 0, 1], []]


@pytest.mark.parametrize(("form", "axes"), [("grouped_conv", 4), ("grouped_conv_1d", 3)])
def test_between_convolutions_rows_stay_images(form: str, axes: int) -> None:
    """One change of shape before the norm and one before its scale; the next convolution needs none."""
    body = NORM + "r@ = Relu(n@) y@ = MatMul(r@, u@)"
    outcome = by_channels(build(body), form)
    order = [n.op_type for n in outcome.model.graph.node]
    start = order.index("Conv")
    assert order[start : start + 7] == [
        "Conv",
        "Reshape",
        "InstanceNormalization",
        "Reshape",
        "BatchNormalization",
        "Relu",
        "Conv",
    ]
    kernels = [t for t in outcome.model.graph.initializer if t.name.endswith("_weight")]
    assert {len(t.dims) for t in kernels} == {axes}


@pytest.mark.parametrize("nonempty", [False, True])
def test_scale_and_shift_over_columns_are_one_node(nonempty: bool) -> None:
    """With rows innermost, too; a scale alone stays a Mul."""
    shifted = [NORM.replace("h@", shift) + READ for shift in ("h@", "half", "one")]
    bodies = [(body, (1, 2)) for body in shifted]
    for body, after in (*bodies, (NORM.replace(", h@", "") + READ, (0, 3))):
        model = build(body, more=SHIFTS)
        outcome = carried_out(
            model, "conv_t", kinds=(LINEAR, "LayerNormalization"), nonempty=nonempty
        )
        found = kinds(outcome.model)
        assert (found["BatchNormalization"], found["Mul"]) == after
        sizes = ({"N": 3}, {"N": 1}) if nonempty else ({"N": 3}, {"N": 1}, {"N": 0})
        assert compare(model, outcome.model, *sizes) == len(sizes)


def test_norms_of_other_types_and_axes_stay_as_they_are() -> None:
    """Only float32 has the form: a runtime's norm by channels may know no other; and only the last axis."""
    model = build(NORM + READ)
    assert found_forms(model)["LayerNormalization"] == ("stacked", "conv_t", "instance_norm")
    assert found_forms(retyped(model, np.float64))["LayerNormalization"] == ("stacked",)
    assert found_forms(retyped(model, np.float16))["LayerNormalization"] == ("stacked", "conv_t")
    rms = build("n@ = RMSNormalization(a@, g@) " + READ, opset=23)
    assert found_forms(rms)["RMSNormalization"] == ("stacked", "conv_t")


def retyped(model: ModelProto, dtype: DTypeLike) -> ModelProto:
    """A model of float32 in another type."""
    new = ModelProto()
    new.CopyFrom(model)
    for tensor in new.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            array = onnx.numpy_helper.to_array(tensor).astype(dtype)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    for value in (*new.graph.input, *new.graph.output):
        value.type.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return new


def found_forms(model: ModelProto) -> dict[str, tuple[str, ...]]:
    """The forms that groups can have, by kind."""
    circuit = analysed(model).circuit
    return {g.kind: forms(g, circuit) for g in carried_out(model).groups}


def test_a_norm_over_two_axes_is_not_made_by_channels() -> None:
    """Channels are normalised one by one, over what follows them: that is the last axis alone."""
    two = "n@ = LayerNormalization<axis=-2>(a@, k, k) y@ = Relu(n@)"
    model = build(two, rows="float[N,5,12]", more={"k": np.abs(numbers(5, 4)) + 0.5})
    outcome = by_channels(model, "conv_t")
    assert {r.code for r in outcome.refusals} == {"S102"}
    assert kinds(outcome.model)["LayerNormalization"] == 3


def test_a_sum_comes_to_lie_where_its_reader_wants_it() -> None:
    """Lanes in front plus lanes by convolution, read by a Concat: one of the two moves, not the result."""
    body = (
        "t@ = Transpose<perm=[0,2,1]>(a@) s@ = MatMul(a@, t@) z@ = MatMul(s@, a@) "
        + NORM.replace("a@", "z@")
        + "r@ = MatMul(n@, w@) y@ = Add(z@, r@)"
    )
    model = build(body, rows="float[N,5,12]")
    outcome = by_channels(model, "conv_t")
    assert compare(model, outcome.model, {"N": 3}, {"N": 1}, {"N": 0}) == 3
    order = [n.op_type for n in outcome.model.graph.node]
    assert order[order.index("Add") :] == ["Add", "Reshape"]


def test_an_activation_stays_behind_its_convolution() -> None:
    """Where a bundle has to move anyway, it moves behind what a convolution can take in."""
    model = build("y@ = Relu(a@)")
    outcome = by_channels(model, "conv_t")
    order = [n.op_type for n in outcome.model.graph.node]
    assert order[order.index("Conv") + 1] == "Relu"
    assert compare(model, outcome.model, {"N": 3}, {"N": 1}, {"N": 0}) == 3
