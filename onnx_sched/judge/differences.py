"""How far two values lie apart: tensors, sequences, maps and empty optionals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from onnx_sched.judge.tolerances import Tolerances
from onnx_sched.judge.verdicts import OutputAgreement, differs, merge, same

Array = np.ndarray[Any, Any]

_TENSORS = (np.ndarray, np.generic, int, float, str)


def compare_values(name: str, ref: Any, got: Any, tolerances: Tolerances) -> OutputAgreement:
    """Compare two values of any type: tensor, sequence, map, or an empty optional."""
    if isinstance(ref, list) and isinstance(got, list):
        if len(ref) != len(got):
            return differs(name, f"a sequence of {len(got)} elements instead of {len(ref)}")
        pairs = list(zip(ref, got, strict=True))
    elif isinstance(ref, Mapping) and isinstance(got, Mapping):
        if list(ref) != list(got):
            return differs(name, "other keys in a map")
        pairs = [(ref[key], got[key]) for key in ref]
    elif ref is None and got is None:
        return same(name, 0)
    elif isinstance(ref, _TENSORS) and isinstance(got, _TENSORS):
        left, right = _as_array(ref), _as_array(got)
        return compare_arrays(name, left, right, *tolerances.limits(name, left))
    elif type(ref) is type(got):
        note = f"values of type {type(ref).__name__} cannot be compared"
        return OutputAgreement(name, "unvalidated", False, None, None, None, 0, 0, note)
    else:
        return differs(name, f"{type(got).__name__} instead of {type(ref).__name__}")
    parts = [compare_values(name, left, right, tolerances) for left, right in pairs]
    return merge(parts) if parts else same(name, 0)


def compare_kinds(name: str, ref: Any, got: Any, note: str) -> OutputAgreement:
    """Compare type and shape alone; `unvalidated` with the note if they are equal."""
    if isinstance(ref, np.ndarray) and isinstance(got, np.ndarray):
        part = _compare_types(name, ref, got)
    else:
        other = f"{type(got).__name__} instead of {type(ref).__name__}"
        part = None if type(ref) is type(got) else differs(name, other)
    return part or OutputAgreement(name, "unvalidated", False, None, None, None, 0, 0, note)


def _compare_types(name: str, ref: Array, got: Array) -> OutputAgreement | None:
    if ref.dtype != got.dtype:
        return differs(name, f"type {got.dtype.name} instead of {ref.dtype.name}")
    if ref.shape != got.shape:
        return differs(name, f"shape {list(got.shape)} instead of {list(ref.shape)}")
    return None


def _as_array(value: Any) -> Array:
    # The floats inside the maps of ONNX are single precision, whatever Python makes of them.
    return np.asarray(value, np.float32) if isinstance(value, float) else np.asarray(value)


def compare_arrays(name: str, ref: Array, got: Array, rtol: float, atol: float) -> OutputAgreement:
    """Compare two arrays: same type, same shape, |got - ref| <= atol + rtol * |ref| everywhere.

    NaN must stand in the same places, infinities too, with the same sign. Booleans and strings must be
    equal; so must integers, unless a tolerance is given.
    """
    other = _compare_types(name, ref, got)
    if other is not None:
        return other
    total = int(ref.size)
    if _same_bits(ref, got):
        if _all_nan(ref):
            return same(name, 0, "all values are NaN: nothing was compared")
        return same(name, total)
    ref, got = ref.reshape(-1), got.reshape(-1)
    if ref.dtype.kind in "OUSb":
        wrong = int(np.count_nonzero(ref != got))
        return replace(differs(name, "values differ", total), mismatched=wrong)
    if ref.dtype.kind in "iu":
        return _compare_integers(name, ref, got, rtol, atol)
    return _compare_floats(name, ref, got, rtol, atol)


def _same_bits(ref: Array, got: Array) -> bool:
    if ref.dtype.kind in "OUS":
        return bool(np.array_equal(ref, got))
    return np.ascontiguousarray(ref).tobytes() == np.ascontiguousarray(got).tobytes()


def _all_nan(array: Array) -> bool:
    if array.size == 0 or array.dtype.kind in "OUSbiu":
        return False
    values = array if array.dtype.kind == "c" else array.astype(np.float64)
    return bool(np.isnan(values).all())


def _compare_integers(
    name: str, ref: Array, got: Array, rtol: float, atol: float
) -> OutputAgreement:
    bits = f"u{ref.dtype.itemsize}"
    # Unsigned wrap-around keeps the difference exact, also between the ends of int64.
    apart = np.maximum(ref, got).view(bits) - np.minimum(ref, got).view(bits)
    size = np.abs(ref.astype(np.float64))
    wrong = int(np.count_nonzero(apart.astype(np.float64) > atol + rtol * size))
    return OutputAgreement(
        name,
        "mismatch" if wrong else "within_tolerance",
        False,
        float(apart.max()),
        _relative(apart, size, atol),
        None,
        wrong,
        int(ref.size),
        "values differ" if wrong else "",
    )


def _compare_floats(name: str, ref: Array, got: Array, rtol: float, atol: float) -> OutputAgreement:
    if ref.dtype.kind == "c":
        part = f"f{ref.dtype.itemsize // 2}"
        ref, got = np.ascontiguousarray(ref).view(part), np.ascontiguousarray(got).view(part)
    left, right = ref.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(left) & np.isfinite(right)
    # inf == inf holds for equal signs only; NaN is equal to nothing.
    special = ~finite & ~((left == right) | (np.isnan(left) & np.isnan(right)))
    with np.errstate(over="ignore"):
        apart = np.abs(right[finite] - left[finite])
        size = np.abs(left[finite])
        outside = int(np.count_nonzero(apart > atol + rtol * size))
    wrong = outside + int(np.count_nonzero(special))
    notes = []
    if special.any():
        notes.append(f"{int(np.count_nonzero(special))} NaN or infinity in other places")
    if outside:
        notes.append(f"{outside} of {ref.size} values outside {atol:.3g} + {rtol:.3g}*|ref|")
    return OutputAgreement(
        name,
        "mismatch" if wrong else "within_tolerance",
        False,
        float(apart.max(initial=0.0)),
        _relative(apart, size, atol),
        _max_ulp(ref[finite], got[finite]),
        wrong,
        int(ref.size),
        "; ".join(notes),
    )


def _relative(apart: Array, size: Array, atol: float) -> float:
    """The largest relative difference; numbers that are all but 0 have none."""
    large = size > atol
    with np.errstate(over="ignore"):
        return float(np.max(apart[large] / size[large], initial=0.0))


def _max_ulp(ref: Array, got: Array) -> int:
    """The largest number of representable numbers between two elements; 0 and -0 are one number."""
    bits = np.dtype(f"u{ref.dtype.itemsize}")
    sign = bits.type(1 << (8 * bits.itemsize - 1))

    def order(array: Array) -> Array:
        raw = np.ascontiguousarray(array).view(bits)
        size = raw & ~sign
        placed: Array = np.where(raw & sign, sign - size, sign + size)
        return placed

    left, right = order(ref), order(got)
    apart = np.maximum(left, right) - np.minimum(left, right)
    return int(apart.max(initial=0))
