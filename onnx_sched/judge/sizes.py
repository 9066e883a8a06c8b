"""Which sizes to try: the words of `--dim` and `--shape`, and good defaults for open dimensions.

A batched node that is right at batch 1 may be wrong at batch 7, and two axes of equal size may have
been swapped unseen. So the plan holds a single, a large and an odd batch, and if several sizes are
open, one binding in which they all differ.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from onnx_sched.errors import UsageError
from onnx_sched.judge.dim_names import DimNames, dim_names
from onnx_sched.judge.inputs import InputSpec

_MOST_BINDINGS = 8
_BATCHES = (1, 32, 7)  # single, large, odd
_SMALL, _SMALL_ODD = 8, 5
_SPATIAL, _SPATIAL_ODD = 64, 65  # networks on images shrink them several times


@dataclass(frozen=True, slots=True)
class Binding:
    """Sizes for every open dimension of a model.

    Attributes:
        dims: (name, size) of the named dimensions; an open leading axis is named `batch`, any other
            `input[axis]`.
        shapes: (input, shape) of every tensor input whose rank is known.
    """

    dims: tuple[tuple[str, int], ...]
    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def label(self) -> str:
        """For people: `batch=32, seq=8`; empty if nothing is open."""
        return ", ".join(f"{name}={size}" for name, size in self.dims)


def parse_dims(items: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The values of `--dim`: `["batch=1,32"]` gives `{"batch": (1, 32)}`.

    Raises:
        UsageError: An item is not NAME=SIZE[,SIZE...].
    """
    found: dict[str, tuple[int, ...]] = {}
    for item in items:
        match = re.fullmatch(r"(.+)=\s*(\d+(?:\s*,\s*\d+)*)\s*", item)
        if match is None:
            raise UsageError(f"--dim {item}: not a size", "write NAME=SIZE, such as batch=1,32")
        sizes = tuple(int(size) for size in match[2].split(","))
        name = match[1].strip()
        found[name] = tuple(dict.fromkeys(found.get(name, ()) + sizes))
    return found


def parse_shape(item: str) -> tuple[str, tuple[int, ...]]:
    """The value of `--shape`: `x:1,3,224,224`, `x:1x3x224x224` or `x:[1, 3, 224, 224]`.

    The name may hold colons: it ends at the last one.

    Raises:
        UsageError: The item is none of these.
    """
    sizes = r"\d+(?:\s*[,x]\s*\d+)*"
    match = re.fullmatch(rf"(.+):\s*(?:({sizes})|\[\s*({sizes})?\s*\])\s*", item)
    if match is None:
        hint = "write NAME:SIZES, such as x:1,3,224,224"
        raise UsageError(f"--shape {item}: not a shape", hint)
    return match[1], tuple(int(size) for size in re.findall(r"\d+", match[2] or match[3] or ""))


def plan_sizes(
    specs: Sequence[InputSpec],
    dims: Mapping[str, Sequence[int]] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> tuple[Binding, ...]:
    """The sizes at which a model is to be checked, at most eight; one binding if all are fixed.

    Args:
        specs: The inputs, from `input_specs`.
        dims: From `--dim`; every value, in all combinations as far as eight bindings go.
        shapes: From `--shape`; fixes the whole shape of an input.

    Raises:
        UsageError: A name that the model has not, a shape that does not fit, or more than eight
            values for one name.
    """
    shapes = shapes or {}
    names = dim_names(specs)
    asked = {name: tuple(sizes) for name, sizes in (dims or {}).items()}
    for name in asked:
        _must_exist("--dim", name, names.free, "dimension")
    for name, shape in shapes.items():
        _must_exist("--shape", name, [spec.name for spec in specs], "input")
        spec = next(spec for spec in specs if spec.name == name)
        for dim, size in _fit(spec, tuple(shape), names):
            if asked.setdefault(dim, (size,)) != (size,) and dim in (dims or {}):
                raise UsageError(f"--shape {name} and --dim {dim} contradict each other")
    bindings = [
        _bind(specs, names, {**defaults, **chosen}, shapes)
        for defaults in _default_sizes(names)
        for chosen in _combinations(asked)
    ]
    return tuple(dict.fromkeys(bindings))[:_MOST_BINDINGS]


def _must_exist(flag: str, name: str, known: Sequence[str], what: str) -> None:
    if name in known:
        return
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        hint = f"did you mean {close[0]}?"
    else:
        hint = f"the model has {', '.join(known)}" if known else f"the model has no open {what}"
    raise UsageError(f"{flag} {name}: the model has no such {what}", hint)


def _fit(spec: InputSpec, shape: tuple[int, ...], names: DimNames) -> list[tuple[str, int]]:
    """The sizes that a shape gives to named dimensions."""
    if spec.shape is None:
        return []
    own = "x".join("?" if dim is None else str(dim) for dim in spec.shape) or "a scalar"
    fixed = zip(spec.shape, shape, strict=False)
    if len(shape) != len(spec.shape) or any(isinstance(d, int) and d != s for d, s in fixed):
        given = "x".join(map(str, shape)) or "a scalar"
        raise UsageError(f"--shape {spec.name}: {given} does not fit, the model says {own}")
    keys = names.of(spec)
    return [(key, size) for key, size in zip(keys, shape, strict=True) if key in names.free]


def _default_sizes(names: DimNames) -> list[dict[str, int]]:
    """Sizes for all open dimensions: single, large, odd; if several are open, all different."""
    others = [name for name in names.free if name not in names.leading]
    plain = {name: _SPATIAL if name in names.spatial else _SMALL for name in others}
    odd = {name: _SPATIAL_ODD if name in names.spatial else _SMALL_ODD for name in others}
    single, large, uneven = (dict.fromkeys(names.leading, batch) for batch in _BATCHES)
    sizes = [{**single, **plain}, {**large, **plain}, {**uneven, **odd}]
    if max(len(names.leading), len(others)) > 1:
        # Even sizes for the spatial ones and odd sizes for the rest: no two can be equal.
        first = {name: _SPATIAL if name in names.spatial else _BATCHES[-1] for name in names.free}
        sizes.append({name: first[name] + 2 * step for step, name in enumerate(names.free)})
    return sizes


def _combinations(asked: Mapping[str, tuple[int, ...]]) -> list[dict[str, int]]:
    """All combinations, those first that together hold every value once."""
    longest = max((len(sizes) for sizes in asked.values()), default=1)
    for name, sizes in asked.items():
        if len(sizes) > _MOST_BINDINGS:
            raise UsageError(f"--dim {name}: more than {_MOST_BINDINGS} sizes")
    diagonal = [
        tuple(sizes[step % len(sizes)] for sizes in asked.values()) for step in range(longest)
    ]
    every = itertools.islice(itertools.product(*asked.values()), _MOST_BINDINGS)
    return [dict(zip(asked, row, strict=True)) for row in dict.fromkeys([*diagonal, *every])]


def _bind(
    specs: Sequence[InputSpec],
    names: DimNames,
    sizes: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
) -> Binding:
    bound = []
    for spec in specs:
        if spec.name in shapes:
            bound.append((spec.name, tuple(shapes[spec.name])))
        elif spec.shape is not None:
            bound.append((spec.name, names.shape(spec, sizes)))
    return Binding(tuple((name, sizes[name]) for name in names.free), tuple(bound))
