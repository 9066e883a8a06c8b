"""Which sizes are tried, and the words of `--dim` and `--shape`."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_sched.errors import UsageError
from onnx_sched.judge.feeds import InputSpec, parse_dims, parse_shape, plan_sizes
from onnx_sched.judge.inputs import Dim


def spec(name: str, *shape: Dim) -> InputSpec:
    return InputSpec(name, "float32", shape)


def sizes(specs: list[InputSpec], **asked: tuple[int, ...]) -> list[dict[str, int]]:
    return [dict(binding.dims) for binding in plan_sizes(specs, asked)]


def test_parse_dims() -> None:
    """One name may have several sizes, in one item or in several; 0 is a size, too."""
    assert parse_dims(["batch=1,32", "x[2]=7", "batch=32, 0"]) == {
        "batch": (1, 32, 0),
        "x[2]": (7,),
    }


@pytest.mark.parametrize("item", ["batch", "batch=", "=3", "batch=-1", "batch=1,,2", "batch=a"])
def test_parse_dims_refuses(item: str) -> None:
    """What is no size names the flag and the item."""
    with pytest.raises(UsageError, match="--dim") as caught:
        parse_dims([item])
    assert item in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("x:1,3,224,224", ("x", (1, 3, 224, 224))),
        ("x:1x3x224x224", ("x", (1, 3, 224, 224))),
        ("x:[1, 3, 224, 224]", ("x", (1, 3, 224, 224))),
        ("serving:0:7", ("serving:0", (7,))),
        ("a/b:1:2:3,4", ("a/b:1:2", (3, 4))),
        ("x:[]", ("x", ())),
    ],
)
def test_parse_shape(item: str, expected: tuple[str, tuple[int, ...]]) -> None:
    """Three spellings; the name ends at the last colon in front of the numbers."""
    assert parse_shape(item) == expected


@pytest.mark.parametrize("item", ["x", "x:", ":1,2", "x:-1,2", "x:1,,2", "x:1 2", "x:[1,2"])
def test_parse_shape_refuses(item: str) -> None:
    """What is no shape names the flag and the item."""
    with pytest.raises(UsageError, match="--shape") as caught:
        parse_shape(item)
    assert item in str(caught.value)


def test_a_fixed_model_has_one_binding() -> None:
    """Nothing to choose: one binding, without a label."""
    bindings = plan_sizes([spec("x", 2, 3), spec("y")])
    assert [b.shapes for b in bindings] == [(("x", (2, 3)), ("y", ()))]
    assert bindings[0].label == ""


def test_an_open_batch_is_tried_single_large_and_odd() -> None:
    """The sizes that find faults: 1, 32 and 7."""
    bindings = plan_sizes([spec("x", "N", 64)])
    assert [b.label for b in bindings] == ["N=1", "N=32", "N=7"]
    assert bindings[1].shapes == (("x", (32, 64)),)


def test_unnamed_leading_axes_are_one_batch() -> None:
    """Inputs without names for their leading axes get the same size, and it is called batch."""
    bindings = plan_sizes([spec("x", None, 4), spec("y", None, 5)])
    assert [[shape[0] for _, shape in b.shapes] for b in bindings] == [[1, 1], [32, 32], [7, 7]]
    assert sizes([spec("x", None, 4)], batch=(3,)) == [{"batch": 3}]


def test_other_open_axes_are_small_and_odd_once() -> None:
    """Inner axes get 8, and an odd size where the batch is odd; images are larger."""
    assert sizes([spec("x", "N", "seq")]) == [
        {"N": 1, "seq": 8},
        {"N": 32, "seq": 8},
        {"N": 7, "seq": 5},
    ]
    assert sizes([spec("x", 1, 3, "h", None)])[0] == {"h": 64, "x[3]": 64}


dims = st.one_of(st.sampled_from(["N", "M", "seq", "len", "h"]), st.none(), st.just(4))
specs = st.lists(st.lists(dims, max_size=5), min_size=1, max_size=4).map(
    lambda shapes: [InputSpec(f"x{i}", "float32", tuple(s)) for i, s in enumerate(shapes)]
)


@given(specs)
def test_some_binding_tells_all_open_axes_apart(inputs: list[InputSpec]) -> None:
    """Two swapped axes are noticed: one binding gives every name a size of its own."""
    bindings = plan_sizes(inputs)
    assert any(len(set(dict(b.dims).values())) == len(b.dims) for b in bindings)


@given(specs)
def test_bindings_fit_the_inputs(inputs: list[InputSpec]) -> None:
    """Fixed sizes stay, one name has one size, at most eight bindings, no two alike."""
    bindings = plan_sizes(inputs)
    assert 1 <= len(bindings) <= 8
    assert len(set(bindings)) == len(bindings)
    for binding in bindings:
        names, shapes = dict(binding.dims), dict(binding.shapes)
        for one in inputs:
            for dim, size in zip(one.shape or (), shapes[one.name], strict=True):
                assert size == (
                    names[dim] if isinstance(dim, str) else size if dim is None else dim
                )


def test_asked_sizes_replace_the_defaults() -> None:
    """`--dim` decides for its name alone; the others keep their defaults."""
    inputs = [spec("x", "N", "seq")]
    assert {row["N"] for row in sizes(inputs, N=(1, 64))} == {1, 64}
    assert sizes(inputs, N=(1, 64))[:2] == [{"N": 1, "seq": 8}, {"N": 64, "seq": 8}]
    assert sizes(inputs, N=(2,), seq=(3,)) == [{"N": 2, "seq": 3}]


def test_combinations_are_capped_but_hold_every_value() -> None:
    """Of 5 x 5 combinations eight are tried, and no value that was asked for is left out."""
    rows = sizes([spec("x", "N", "seq")], N=(1, 2, 3, 4, 5), seq=(6, 7, 8, 9, 10))
    assert len(rows) == 8
    assert {row["N"] for row in rows} == {1, 2, 3, 4, 5}
    assert {row["seq"] for row in rows} == {6, 7, 8, 9, 10}
    with pytest.raises(UsageError, match="--dim N: more than 8"):
        sizes([spec("x", "N")], N=tuple(range(9)))


def test_a_shape_fixes_its_input_and_the_names_in_it() -> None:
    """`--shape x:...` gives its sizes to the other inputs that share a name."""
    inputs = [spec("x", "N", 3, "h"), spec("y", "N"), InputSpec("z", "float32", None)]
    bindings = plan_sizes(inputs, {}, {"x": (5, 3, 9), "z": (1, 2)})
    assert [dict(b.shapes) for b in bindings] == [{"x": (5, 3, 9), "y": (5,), "z": (1, 2)}]


@pytest.mark.parametrize("shape", [(1, 3), (1, 4, 9), ()])
def test_a_shape_that_does_not_fit_is_refused(shape: tuple[int, ...]) -> None:
    """Another rank or another fixed size: the message says what the model has."""
    with pytest.raises(UsageError, match=r"--shape x: .* does not fit, the model says Nx3xh"):
        plan_sizes([spec("x", "N", 3, "h")], {}, {"x": shape})


def test_typos_get_a_suggestion() -> None:
    """An unknown dimension or input names the flag and the nearest name, or all there are."""
    inputs = [spec("input_ids", "batch", "sequence")]
    with pytest.raises(UsageError, match="--dim bach") as caught:
        plan_sizes(inputs, {"bach": (1,)})
    assert caught.value.hint == "did you mean batch?"
    with pytest.raises(UsageError, match="--dim zzz") as caught:
        plan_sizes(inputs, {"zzz": (1,)})
    assert caught.value.hint == "the model has batch, sequence"
    with pytest.raises(UsageError, match="--shape inputs_id") as caught:
        plan_sizes(inputs, {}, {"inputs_id": (1, 2)})
    assert caught.value.hint == "did you mean input_ids?"


def test_contradictions_are_refused() -> None:
    """`--shape` and `--dim` must not give one name two sizes."""
    with pytest.raises(UsageError, match="contradict"):
        plan_sizes([spec("x", "N")], {"N": (1,)}, {"x": (2,)})
    assert plan_sizes([spec("x", "N")], {"N": (2,)}, {"x": (2,)})[0].label == "N=2"


def test_formulas_are_computed() -> None:
    """`past + seq` follows from its parts; what only looks like a formula is a plain name."""
    inputs = [
        spec("ids", "batch", "seq"),
        spec("cache", "batch", "past"),
        spec("mask", "batch", "past + seq", "2*(seq-1)//2", "seq-length", "seq-40"),
    ]
    for binding in plan_sizes(inputs):
        names, shapes = dict(binding.dims), dict(binding.shapes)
        assert list(names) == ["batch", "seq", "past", "seq-length"]
        batch, total, computed, plain, below = shapes["mask"]
        assert batch == names["batch"]
        assert total == names["past"] + names["seq"]
        assert computed == 2 * (names["seq"] - 1) // 2
        assert plain == names["seq-length"]
        assert below == 0


odd_names = st.one_of(st.text(max_size=20), st.text("ab1 +-*/()", max_size=9))


@given(odd_names, odd_names)
def test_any_name_is_a_name(first: str, second: str) -> None:
    """Whatever an exporter calls a dimension, it gets a size."""
    for binding in plan_sizes([spec("x", first or None, second or None)]):
        assert all(size >= 0 and math.isfinite(size) for size in dict(binding.shapes)["x"])
