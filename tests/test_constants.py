"""Constants are recipes: the numbers come last, and equal keys promise equal numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from onnx_sched.constants import SMALL, Array, Const, concat, from_array, stack, value_key
from tests.nets import numbers

Change = tuple[str, Callable[[Const], Const], Callable[[Array], Array]]

CHANGES: list[Change] = [
    ("flat", lambda c: c.reshape((24,)), lambda a: a.reshape(24)),
    ("square", lambda c: c.reshape((4, 6)), lambda a: a.reshape(4, 6)),
    ("cube", lambda c: c.reshape((2, 3, 4)), lambda a: a.reshape(2, 3, 4)),
    ("same", lambda c: c.reshape(c.shape), lambda a: a),
    (
        "turn",
        lambda c: c.transpose(range(c.rank)[::-1]),
        lambda a: a.transpose(range(a.ndim)[::-1]),
    ),
    (
        "roll",
        lambda c: c.transpose([*range(1, c.rank), 0]),
        lambda a: a.transpose([*range(1, a.ndim), 0]),
    ),
    ("stay", lambda c: c.transpose(range(c.rank)), lambda a: a),
    ("one", lambda c: c.scale(1.0), lambda a: a),
    ("half", lambda c: c.scale(0.5), lambda a: a * a.dtype.type(0.5)),
    ("twice", lambda c: c.scale(2), lambda a: a * a.dtype.type(2)),
]

chains = st.lists(st.sampled_from(CHANGES), max_size=5)


def base(seed: int = 0) -> Const:
    return from_array(numbers(2, 12, seed=seed), TensorProto.FLOAT)


def made(chain: list[Change], start: Const) -> Const:
    for _, change, _ in chain:
        start = change(start)
    return start


def bits(array: Array) -> tuple[object, ...]:
    return array.dtype, array.shape, np.ascontiguousarray(array).tobytes()


@given(chains)
def test_a_recipe_gives_what_numpy_gives(chain: list[Change]) -> None:
    """Changing a constant, then loading it, is loading it, then changing the array."""
    expected = base().load()
    for _, _, change in chain:
        expected = change(expected)
    const = made(chain, base())
    assert bits(const.load()) == bits(expected)
    assert (const.shape, const.rank) == (expected.shape, expected.ndim)
    assert (const.dtype, const.nbytes) == (expected.dtype, expected.nbytes)


def test_equal_keys_promise_equal_numbers() -> None:
    """Of all recipes of up to three changes, on two constants, those of one key load the same bits."""
    found: dict[Hashable, object] = {}
    for length in range(4):
        for chain in itertools.product(CHANGES, repeat=length):
            for seed in (0, 1):
                const = made([*chain], base(seed))
                assert found.setdefault(const.key, bits(const.load())) == bits(const.load())
    assert len(found) > 100


@given(chains)
def test_the_same_recipe_twice_is_one_constant(chain: list[Change]) -> None:
    """Whatever is done to equal constants, the results are known to be equal."""
    assert made(chain, base()).key == made(chain, base()).key


@given(chains)
def test_no_number_is_read_before_it_is_asked_for(chain: list[Change]) -> None:
    """Reshaping, turning, scaling, stacking: nothing loads until `load`, and then just once each."""
    loads = []

    def load() -> Array:
        loads.append(1)
        return numbers(2, 12)

    start = Const((2, 12), TensorProto.FLOAT, np.dtype(np.float32), "w", load)
    const = made(chain, start)
    whole = concat([stack([const, const]), stack([const, const])], 0)
    assert not loads
    whole.load()
    assert len(loads) == 4


ARRAYS: list[Array] = [
    np.array([0.0], np.float32),
    np.array([-0.0], np.float32),
    np.array([np.nan], np.float32),
    np.array([-np.nan], np.float32),
    np.array([[0.0]], np.float32),
    np.array([0.0, 0.0], np.float32),
    np.array([0.0], np.float64),
    np.array([0], np.int32),
    np.array(0.0, np.float32),
    np.zeros((0, 2), np.float32),
    np.zeros((2, 0), np.float32),
    np.array([0.0], np.float16),
    np.array([0.0], ml_dtypes.bfloat16),
    np.array(["a", "b"], object),
    np.array(["a", "c"], object),
    np.array([["a", "b"]], object),
]


def test_value_keys_tell_bits_apart() -> None:
    """0.0 is not -0.0, [0] is not 0, float is not double; NaN equals itself if its bits do."""
    keys = [value_key(a, helper.np_dtype_to_tensor_dtype(a.dtype)) for a in ARRAYS]
    for (j, one), (k, other) in itertools.product(enumerate(keys), repeat=2):
        assert (one == other) == (j == k)
    again = [value_key(a.copy(), helper.np_dtype_to_tensor_dtype(a.dtype)) for a in ARRAYS]
    assert again == keys


def test_the_element_type_is_part_of_the_value() -> None:
    """The same bits under two ONNX types are two constants."""
    array = np.zeros(2, np.uint8)
    assert value_key(array, TensorProto.UINT8) != value_key(array, TensorProto.BOOL)


@pytest.mark.parametrize(("extra", "by_value"), [(0, True), (1, False)])
def test_small_constants_are_known_by_value_large_ones_by_name(extra: int, by_value: bool) -> None:
    """Up to SMALL bytes two names for the same numbers are one constant, above it they are two."""
    array = np.zeros(SMALL + extra, np.uint8)
    one = from_array(array, TensorProto.UINT8, "one")
    other = from_array(array.copy(), TensorProto.UINT8, "other")
    assert (one.key == other.key) == by_value
    assert from_array(array, TensorProto.UINT8).key == from_array(array, TensorProto.UINT8).key


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
    st.integers(1, 4),
    st.data(),
)
def test_stack_and_concat_are_those_of_numpy(
    shape: tuple[int, ...], count: int, data: st.DataObject
) -> None:
    """A stack of constants loads as np.stack of what they load, a row of them as np.concatenate."""
    parts = [from_array(numbers(*shape, seed=k), TensorProto.FLOAT) for k in range(count)]
    loaded = [p.load() for p in parts]
    axis = data.draw(st.integers(0, len(shape)))
    stacked = stack(parts, axis)
    assert bits(stacked.load()) == bits(np.stack(loaded, axis))
    assert stacked.shape == np.stack(loaded, axis).shape
    axis = data.draw(st.integers(0, len(shape) - 1))
    side_by_side = concat(parts, axis)
    assert bits(side_by_side.load()) == bits(np.concatenate(loaded, axis))
    assert side_by_side.shape == np.concatenate(loaded, axis).shape


def test_order_axis_and_kind_of_a_stack_are_in_its_key() -> None:
    """Stacks of the same constants differ by order, axis, and whether the axis is new."""
    a, b = (from_array(numbers(2, 2, seed=k), TensorProto.FLOAT) for k in range(2))
    keys = [
        stack([a, b]).key,
        stack([b, a]).key,
        stack([a, b], 1).key,
        stack([a, a]).key,
        stack([a]).key,
        concat([a, b], 0).key,
        concat([b, a], 0).key,
        concat([a, b], 1).key,
    ]
    assert len(set(keys)) == len(keys)
    assert stack([a, b]).key == stack([a, b]).key


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_scaling_keeps_the_type(dtype: str) -> None:
    """A factor that Python holds in double precision does not widen the constant."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    array = numbers(3).astype(kind)
    const = from_array(array, int(helper.np_dtype_to_tensor_dtype(kind))).scale(0.1)
    assert const.load().dtype == kind
    assert const.dtype == kind
    assert bits(const.load()) == bits(array * kind.type(0.1))
