"""How far two values lie apart, and how far they may."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnx_sched.errors import UsageError
from onnx_sched.judge.agree import Tolerances, compare_arrays, parse_tolerances
from onnx_sched.judge.differences import compare_kinds, compare_values
from onnx_sched.judge.verdicts import OutputAgreement, merge

DEFAULT = Tolerances()


def floats(*values: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(values, dtype)


def compare(ref: Any, got: Any, tolerances: Tolerances = DEFAULT) -> OutputAgreement:
    return compare_values("y", ref, got, tolerances)


arrays = hnp.arrays(
    st.sampled_from(
        [np.float16, np.float32, np.float64, np.int64, np.uint8, np.bool_, np.complex64]
    ),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0),
)


@given(arrays)
def test_an_array_agrees_with_itself(array: np.ndarray) -> None:
    """Bitwise, with NaN and infinities, empty and without axes; all numbers are 0."""
    result = compare(array, array.copy())
    assert (result.verdict, result.bitwise, result.mismatched) == ("bitwise", True, 0)
    assert (result.max_abs, result.max_rel, result.max_ulp) == (0.0, 0.0, 0)


@given(arrays, arrays)
def test_comparing_never_warns_and_never_raises(ref: np.ndarray, got: np.ndarray) -> None:
    """Any two arrays get a verdict (warnings are errors here), and only equal bits are bitwise."""
    result = compare(ref, got)
    equal = ref.dtype == got.dtype and ref.shape == got.shape and ref.tobytes() == got.tobytes()
    assert result.bitwise == (result.verdict == "bitwise") == equal


def test_type_and_shape_must_be_equal() -> None:
    """Equal values of another type, or in another shape, are a mismatch that says so."""
    assert compare(floats(1), floats(1, dtype=np.float64)).note == "type float64 instead of float32"
    assert compare(floats(1, 2), floats(1, 2).reshape(2, 1)).note == "shape [2, 1] instead of [2]"
    assert compare(floats(1), floats(1, dtype=np.float16)).verdict == "mismatch"
    assert compare(floats(1), floats(1).reshape(1, 1)).verdict == "mismatch"


@pytest.mark.parametrize(
    ("ref", "got", "verdict"),
    [
        ((math.nan, 1), (math.nan, 1.000001), "within_tolerance"),
        ((math.nan, 1), (1, math.nan), "mismatch"),
        ((math.nan,), (0,), "mismatch"),
        ((0,), (math.nan,), "mismatch"),
        ((math.inf, 1), (math.inf, 1.000001), "within_tolerance"),
        ((math.inf,), (-math.inf,), "mismatch"),
        ((math.inf,), (3e38,), "mismatch"),
        ((math.inf,), (math.nan,), "mismatch"),
    ],
)
def test_nan_and_infinity_stand_in_the_same_places(
    ref: tuple[float, ...], got: tuple[float, ...], verdict: str
) -> None:
    """NaN for NaN and infinity for infinity of the same sign; anything else differs."""
    assert compare(floats(*ref), floats(*got)).verdict == verdict


def test_all_nan_proves_nothing() -> None:
    """An output that is NaN throughout was not compared, though its bits are equal."""
    result = compare(floats(math.nan, math.nan), floats(math.nan, math.nan))
    assert result.total == 0
    assert "NaN" in result.note


def test_the_numbers() -> None:
    """Largest absolute and relative difference, and how many elements lie outside."""
    result = compare_arrays("y", floats(1, -10, 0), floats(1, -11, 1e-6), rtol=0.01, atol=0.001)
    assert (result.verdict, result.mismatched, result.total) == ("mismatch", 1, 3)
    assert result.max_abs == 1.0
    assert result.max_rel == pytest.approx(0.1)
    assert result.note == "1 of 3 values outside 0.001 + 0.01*|ref|"
    assert compare_arrays("y", floats(1000), floats(1009), 0.01, 0).verdict == "within_tolerance"
    assert compare_arrays("y", floats(1), floats(1.02), 0.01, 0).verdict == "mismatch"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_ulp_counts_representable_numbers(dtype: Any) -> None:
    """The neighbour is 1 away, 0 and -0 are one number, and counting goes across 0."""
    one, tiny = dtype(1), np.finfo(dtype).smallest_subnormal
    pairs = [(one, np.nextafter(one, dtype(2)), 1), (dtype(0), dtype(-0.0), 0), (tiny, -tiny, 2)]
    for ref, got, steps in pairs:
        assert compare(np.array([ref]), np.array([got])).max_ulp == steps
    huge = np.finfo(dtype).max
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    span = compare(np.array([huge]), np.array([-huge])).max_ulp
    assert span == 2 * int(np.array(huge).view(bits))


def test_negative_zero_is_not_bitwise() -> None:
    """0 and -0 differ in a bit, and in nothing else."""
    result = compare(floats(0), floats(-0.0))
    assert (result.verdict, result.bitwise, result.max_abs) == ("within_tolerance", False, 0.0)


@pytest.mark.parametrize(
    ("ref", "got"),
    [
        (np.array([1, 2]), np.array([1, 3])),
        (np.array([True, False]), np.array([True, True])),
        (np.array(["a", "b"], object), np.array(["a", "c"], object)),
        (np.array([0, 200], np.uint8), np.array([0, 201], np.uint8)),
    ],
    ids=["int", "bool", "string", "uint8"],
)
def test_what_is_not_a_float_must_be_equal(ref: np.ndarray, got: np.ndarray) -> None:
    """Integers, booleans and strings differ or not; tolerances for all outputs are for floats."""
    result = compare(ref, got, Tolerances(rtol=10.0, atol=10.0))
    assert (result.verdict, result.mismatched, result.total) == ("mismatch", 1, 2)
    assert compare(ref, ref.copy()).verdict == "bitwise"


def test_integers_may_be_given_a_tolerance() -> None:
    """A tolerance for this very output holds for integers, too; differences are exact."""
    ref, got = np.array([5, -5]), np.array([6, -5])
    assert compare(ref, got, Tolerances(atol_of=(("y", 1.0),))).verdict == "within_tolerance"
    assert compare(ref, got, Tolerances(atol_of=(("z", 1.0),))).verdict == "mismatch"
    ends = np.iinfo(np.int64)
    assert compare(np.array([ends.min]), np.array([ends.max])).max_abs == float(2**64 - 1)


def test_sequences_maps_and_empty_optionals() -> None:
    """Compared element by element; another length, other keys or another kind is a mismatch."""
    ref = [floats(1), floats(2, 3)]
    assert compare(ref, [floats(1), floats(2, 3)]).verdict == "bitwise"
    assert compare(ref, [floats(1), floats(2, 4)]).verdict == "mismatch"
    assert compare(ref, [floats(1)]).note == "a sequence of 1 elements instead of 2"
    assert compare([], []).verdict == "bitwise"
    assert compare([{1: 0.5}], [{1: 0.5000001}]).verdict == "within_tolerance"
    assert compare([{1: 0.5}], [{2: 0.5}]).verdict == "mismatch"
    assert compare({"a": 1}, {"a": 2}).verdict == "mismatch"
    assert compare(None, None).verdict == "bitwise"
    assert compare(None, floats(1)).verdict == "mismatch"
    assert compare(object(), object()).verdict == "unvalidated"


def test_kinds_alone() -> None:
    """Only type and shape count, values do not."""
    assert compare_kinds("y", floats(1, 2), floats(3, 4), "why").note == "why"
    assert compare_kinds("y", np.array([True]), np.array([False]), "").verdict == "unvalidated"
    assert compare_kinds("y", floats(1, 2), floats(3), "").verdict == "mismatch"
    assert compare_kinds("y", floats(1), [floats(1)], "").verdict == "mismatch"


def test_merging_keeps_the_worst() -> None:
    """Of several comparisons the worst verdict and the largest numbers stay."""
    good = compare_arrays("y", floats(1, 2), floats(1, 2), 0, 0)
    near = compare_arrays("y", floats(1, 2), floats(1, 2.5), 0, 1)
    bad = compare_arrays("y", floats(1, 2), floats(1.25, 2), 0, 0.1)
    merged = merge([good, near, bad, bad])
    assert (merged.verdict, merged.bitwise, merged.mismatched, merged.total) == (
        "mismatch",
        False,
        2,
        8,
    )
    assert merged.max_abs == 0.5
    assert merged.note == bad.note
    assert merge([good, near]).verdict == "within_tolerance"
    assert merge([good, good]).bitwise


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_the_defaults_pass_reordering_and_catch_a_swapped_bias(name: str) -> None:
    """A sum of 2048 products in another order agrees; one with the neighbour's bias does not."""
    dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name, name))
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((8, 2048)), rng.standard_normal((2048, 4)) / np.sqrt(2048)
    left, right = x.astype(dtype), w.astype(dtype)
    work = dtype if name in ("float64", "float32") else np.dtype(np.float32)
    bias = np.array([0.1, -0.2, 0.05, 0.3])

    def layer(order: np.ndarray, shift: np.ndarray, blocks: int) -> np.ndarray:
        """Sums in the given order; halves are rounded after every block, as kernels do."""
        total = shift.astype(dtype)
        for block in np.split(order, blocks):
            part = np.zeros((8, 4), work)
            for k in block:
                part = part + left[:, k, None].astype(work) * right[None, k].astype(work)
            total = (total.astype(work) + part).astype(dtype)
        return total

    order = np.arange(2048)
    ref = layer(order, bias, 1)
    assert compare(ref, layer(rng.permutation(order), bias, 8)).verdict == "within_tolerance"
    assert compare(ref, layer(order, bias[[1, 0, 2, 3]], 1)).verdict == "mismatch"


def test_the_default_atol_grows_with_the_output() -> None:
    """Near 0 within large outputs, the error of a sum is that of its terms; alone it is not."""
    large = floats(0, 1000, -1000)
    assert compare(large, large + floats(0.005, 0, 0)).verdict == "within_tolerance"
    nan = floats(math.nan, math.inf)
    left, right = (np.concatenate([a, nan]) for a in (large, large + floats(0.005, 0, 0)))
    assert compare(left, right).verdict == "within_tolerance"
    assert compare(floats(0, 1), floats(0.005, 1)).verdict == "mismatch"
    exact = Tolerances(atol=1e-5)
    assert compare(large, large + floats(0.005, 0, 0), exact).verdict == "mismatch"


def test_huge_values_do_not_open_the_gate() -> None:
    """Where the squares overflow, the tolerance stays finite."""
    ref = np.array([1e300, 1.0])
    assert compare(ref, np.array([1e300, 2.0])).verdict == "mismatch"
    with_nan = floats(math.nan, math.inf, 1)
    assert compare(with_nan, floats(math.nan, math.inf, 2)).verdict == "mismatch"


def test_parse_tolerances() -> None:
    """A bare number is for all outputs, NAME:NUMBER for one; names may hold colons; the last wins."""
    parsed = parse_tolerances(["1e-3", "y:0:1e-2"], ["1", "2"], ["x", "y:0"])
    assert parsed == Tolerances(rtol=1e-3, atol=2.0, rtol_of=(("y:0", 1e-2),))
    assert parsed.limits("y:0", floats(1)) == (1e-2, 2.0)
    assert parsed.limits("x", floats(1)) == (1e-3, 2.0)
    assert parse_tolerances(["y:0"], [], ["y"]).limits("y", floats(1000))[0] == 0.0


@pytest.mark.parametrize("item", ["", "x", "y:", "y:a", "-1", "nan", "inf", "y:-1"])
def test_parse_tolerances_refuses(item: str) -> None:
    """What is no tolerance names the flag and the item."""
    with pytest.raises(UsageError, match="--atol") as caught:
        parse_tolerances([], [item], ["y"])
    assert item in str(caught.value)


def test_an_unknown_output_gets_a_suggestion() -> None:
    """A typo in the name of an output names the nearest one."""
    with pytest.raises(UsageError, match="--rtol logit:1") as caught:
        parse_tolerances(["logit:1"], [], ["logits", "hidden"])
    assert caught.value.hint == "did you mean logits?"
