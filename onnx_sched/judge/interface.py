"""Whether two models can be given the same inputs: else there is nothing to compare."""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto

from onnx_sched.errors import UsageError
from onnx_sched.judge.inputs import InputSpec, input_specs, overridable_names


def check_inputs(before: Path, reference: ModelProto, after: Path, other: ModelProto) -> None:
    """Refuse two models that no inputs fit both.

    Open sizes fit any; whether they come out equal is for the runs to show.

    Args:
        before: What the reference is called.
        reference: The model that inputs are made for.
        after: What the other model is called.
        other: The model that has to take them, too.

    Raises:
        UsageError: It says which inputs differ, and how.
    """
    here = {spec.name: spec for spec in input_specs(reference)}
    there = {spec.name: spec for spec in input_specs(other)}
    optional = {*overridable_names(reference), *overridable_names(other)}
    names = [*here, *(name for name in there if name not in here)]
    wrong = [
        name for name in names if name not in optional and not _fit(here.get(name), there.get(name))
    ]
    if wrong:
        sides = [", ".join(_shown(n, side.get(n)) for n in wrong) for side in (here, there)]
        raise UsageError(
            f"the inputs differ: {before} takes {sides[0]}, but {after} takes {sides[1]}",
            "Only models that take the same inputs (names, types, sizes) can be compared.",
        )


def _fit(a: InputSpec | None, b: InputSpec | None) -> bool:
    """Whether one value may be given to both."""
    if a is None or b is None or (a.kind, a.dtype) != (b.kind, b.dtype):
        return False
    if a.shape is None or b.shape is None:
        return True
    return len(a.shape) == len(b.shape) and all(
        x == y or not (isinstance(x, int) and isinstance(y, int))
        for x, y in zip(a.shape, b.shape, strict=True)
    )


def _shown(name: str, spec: InputSpec | None) -> str:
    """An input in words."""
    if spec is None:
        return f"no {name}"
    kind = spec.dtype if spec.kind == "tensor" else f"{spec.kind} of {spec.dtype}"
    if spec.shape is None:
        return f"{name} ({kind})"
    sizes = ", ".join("?" if dim is None else str(dim) for dim in spec.shape)
    return f"{name} ({kind} [{sizes}])"
