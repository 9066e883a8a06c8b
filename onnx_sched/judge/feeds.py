"""Inputs for a model when the user gives none: random, but seeded and legal."""

from __future__ import annotations

import zlib
from math import prod
from typing import Any

import numpy as np
from onnx import ModelProto

from onnx_sched.errors import UsageError
from onnx_sched.judge.feed_files import fit_feeds, load_feeds
from onnx_sched.judge.index_limits import index_limits
from onnx_sched.judge.inputs import InputSpec, input_specs, numpy_type
from onnx_sched.judge.sizes import Binding, parse_dims, parse_shape, plan_sizes

__all__ = [
    "Binding",
    "InputSpec",
    "fit_feeds",
    "input_specs",
    "load_feeds",
    "make_feeds",
    "parse_dims",
    "parse_shape",
    "plan_sizes",
]

Array = np.ndarray[Any, Any]

MOST = 2**31
"""Elements of a random input: with these sizes a model would not run anywhere."""

_SMALL_LIMIT = 4  # of integers that are not known to be an index
_WORDS = ("", "a", "head", "lane 7", "ä")


def make_feeds(model: ModelProto, binding: Binding, seed: int) -> dict[str, Array]:
    """Random inputs of the sizes of `binding`.

    Floats are standard normal. Whatever ends up as an index, floats too, are integers from 0 up to
    the number of rows of the table. Masks are 0 or 1, 8-bit integers use their whole range, other
    integers are small and not negative. Inputs with a default value are not fed. The numbers of an
    input depend on the seed, its name and its size alone.

    Raises:
        UsageError: An input is no tensor, its rank is open (only the user can give it), or it would be
            larger than anybody wants.
    """
    if seed < 0:
        raise UsageError(f"--seed {seed}: a seed is 0 or more")
    shapes = dict(binding.shapes)
    limits = index_limits(model)
    feeds = {}
    for spec in input_specs(model):
        if spec.kind != "tensor":
            raise UsageError(f"input {spec.name} is a {spec.kind}", "give it by --inputs")
        if spec.name not in shapes:
            hint = f"give it by --shape {spec.name}:SIZES or by --inputs"
            raise UsageError(f"input {spec.name} has no shape in the model", hint)
        if prod(shapes[spec.name]) > MOST:
            what = f"{'x'.join(map(str, shapes[spec.name]))} is more than random inputs are made of"
            raise UsageError(
                f"input {spec.name}: {what}", "Give smaller sizes to --dim or --shape."
            )
        rng = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
        feeds[spec.name] = _random(rng, spec, shapes[spec.name], limits.get(spec.name))
    return feeds


def _random(
    rng: np.random.Generator, spec: InputSpec, shape: tuple[int, ...], limit: int | None
) -> Array:
    if spec.dtype == "string":
        picked = np.array(_WORDS, dtype=object).take(rng.integers(0, len(_WORDS), shape))
        return np.asarray(picked, dtype=object).reshape(shape)
    dtype = numpy_type(spec)
    if dtype.kind in "iub" or limit is not None:
        low, high = _integer_range(spec, dtype, limit)
        return np.asarray(rng.integers(low, high, shape)).astype(dtype)
    numbers = rng.standard_normal(shape)
    if dtype.kind == "c":
        numbers = numbers + 1j * rng.standard_normal(shape)
    return np.asarray(numbers).astype(dtype)


def _integer_range(spec: InputSpec, dtype: np.dtype[Any], limit: int | None) -> tuple[int, int]:
    """The lowest integer, and the one after the highest."""
    if limit is not None:
        # No type counts further without gaps: int8 up to 127, bfloat16 up to 256.
        exact = {1: 128, 2: 257}.get(dtype.itemsize, limit)
        return 0, min(limit, exact)
    if dtype.kind in "iu" and dtype.itemsize == 1:
        info = np.iinfo(dtype)
        return int(info.min), int(info.max) + 1
    zero_or_one = dtype.kind == "b" or "mask" in spec.name.lower()
    return 0, 2 if zero_or_one else _SMALL_LIMIT
