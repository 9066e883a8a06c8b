"""How far two outputs may lie apart and still count as the same.

Batched nodes add up in another order, so floats differ in their last bits. The defaults let an honest
reordering of a few thousand terms pass and catch a swapped bias.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnx_sched.errors import UsageError

# Type -> (rtol, atol). Types that are not listed are compared exactly.
_DEFAULTS: dict[str, tuple[float, float]] = {
    "float64": (1e-7, 1e-9),
    "complex128": (1e-7, 1e-9),
    "float32": (1e-4, 1e-5),
    "complex64": (1e-4, 1e-5),
    "float16": (4e-3, 4e-3),
    "bfloat16": (3e-2, 3e-2),
    "float8_e4m3fn": (1.3e-1, 1.3e-1),
    "float8_e4m3fnuz": (1.3e-1, 1.3e-1),
    "float8_e5m2": (2.6e-1, 2.6e-1),
    "float8_e5m2fnuz": (2.6e-1, 2.6e-1),
}

PerOutput = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Tolerances:
    """What the user asked for; the defaults by type hold where nothing was asked.

    Attributes:
        rtol: For all floating-point outputs.
        atol: For all floating-point outputs.
        rtol_of: For single outputs, by name; also for integers.
        atol_of: For single outputs, by name; also for integers.
        computed_in: For single outputs, by name: the coarsest type in which the reference computes
            them, where that is known.
    """

    rtol: float | None = None
    atol: float | None = None
    rtol_of: PerOutput = ()
    atol_of: PerOutput = ()
    computed_in: tuple[tuple[str, str], ...] = ()

    def limits(self, name: str, reference: np.ndarray[Any, Any]) -> tuple[float, float]:
        """The (rtol, atol) for an output: |got - ref| <= atol + rtol * |ref|.

        The default atol grows with the root mean square of the reference, because the error of a
        sum grows with its terms, even where the sum itself happens to be near 0. Where a floating output
        is computed in a coarser type than its own, that one gives the defaults. What the user asked for
        is taken as it is.
        """
        own_rtol, own_atol = dict(self.rtol_of).get(name), dict(self.atol_of).get(name)
        if reference.dtype.name not in _DEFAULTS:
            return own_rtol or 0.0, own_atol or 0.0
        inside = dict(self.computed_in).get(name, "")
        rtol, atol = max(_DEFAULTS.get(kind, (0.0, 0.0)) for kind in (reference.dtype.name, inside))
        atol *= max(1.0, root_mean_square(reference))
        chosen_rtol = next(v for v in (own_rtol, self.rtol, rtol) if v is not None)
        chosen_atol = next(v for v in (own_atol, self.atol, atol) if v is not None)
        return chosen_rtol, chosen_atol


def root_mean_square(array: np.ndarray[Any, Any]) -> float:
    """Over the finite elements; 0 if there are none."""
    with np.errstate(over="ignore"):
        size = np.abs(array) if array.dtype.kind == "c" else array
        values = size.astype(np.float64)
        values = values[np.isfinite(values)]
        mean = float(np.mean(np.square(values))) if values.size else 0.0
    # The squares of huge doubles overflow: an infinite tolerance would let everything pass.
    return math.sqrt(mean) if math.isfinite(mean) else 1.0


def parse_tolerances(
    rtol: Iterable[str], atol: Iterable[str], outputs: Sequence[str]
) -> Tolerances:
    """The values of `--rtol` and `--atol`: `1e-4` for all outputs, `out:1e-3` for one.

    Args:
        rtol: As given, in order; the last one wins.
        atol: Likewise.
        outputs: The names of the outputs of the model.

    Raises:
        UsageError: Not a number, or an output that the model has not.
    """
    all_rtol, own_rtol = _parse("--rtol", rtol, outputs)
    all_atol, own_atol = _parse("--atol", atol, outputs)
    return Tolerances(all_rtol, all_atol, own_rtol, own_atol)


def _parse(
    flag: str, items: Iterable[str], outputs: Sequence[str]
) -> tuple[float | None, PerOutput]:
    common: float | None = None
    own: dict[str, float] = {}
    for item in items:
        name, colon, number = item.rpartition(":")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= 0):
            hint = "write a number, or OUTPUT:NUMBER, such as 1e-4"
            raise UsageError(f"{flag} {item}: not a tolerance", hint)
        if not colon:
            common = value
        elif name in outputs:
            own[name] = value
        else:
            close = difflib.get_close_matches(name, outputs, n=1)
            hint = f"did you mean {close[0]}?" if close else f"the model has {', '.join(outputs)}"
            raise UsageError(f"{flag} {item}: the model has no output {name}", hint)
    return common, tuple(own.items())
