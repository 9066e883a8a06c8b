"""Forms of options: what a caller gives, checked and brought into one form, before any work is done.

Each form takes the argument's name and what was given, and returns what the options hold.  Where several
are allowed, a single one may stand for itself.  The bounds are those of the command line's flags.
"""

from __future__ import annotations

import difflib
import math
import operator
import os
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from onnx_sched.errors import SchedError, UsageError

Form = Callable[[str, Any], Any]

MOST_THREADS = 4096

FLAGS = {
    "choose": "choose",
    "provider": "provider",
    "dim": "dims",
    "shape": "shapes",
    "inputs": "inputs",
    "seed": "seed",
    "atol": "atol",
    "rtol": "rtol",
    "no-check": "check=False",
    "nonempty": "nonempty",
    "assume-finite": "assume_finite",
    "skip-op": "skip_ops",
    "skip-node": "skip_nodes",
    "skip-pass": "skip_passes",
    "threads": "threads",
    "time-limit": "time_limit",
    "max-activation": "max_activation",
    "exact": "exact",
    "plan": "plan",
    "save-plan": "Result.save_plan",
    "target": "target",
}
"""What a flag of `optimize` is called in Python."""

_FLAG = re.compile(rf"(?<![\w./-])--({'|'.join(FLAGS)})(?![\w-])")


@contextmanager
def in_arguments() -> Iterator[None]:
    """Let errors name arguments instead of flags: who calls from Python has given no flags."""
    try:
        yield
    except SchedError as error:
        error.args = (_in_arguments(str(error)),)
        error.hint = _in_arguments(error.hint)
        raise


def _in_arguments(text: str) -> str:
    return _FLAG.sub(lambda found: FLAGS[found[1]], text)


def put_in_form(options: object, forms: Mapping[str, Form]) -> None:
    """Check the fields of a frozen dataclass, and put each into its form.

    Raises:
        UsageError: It names the first argument that is wrong, what was given, and what is allowed.
    """
    for name, form in forms.items():
        object.__setattr__(options, name, form(name, getattr(options, name)))


def one_of(name: str, given: Any, allowed: Sequence[str]) -> str:
    """One of some words."""
    if isinstance(given, str) and given in allowed:
        return given
    words = ", ".join(map(repr, allowed))
    close = difflib.get_close_matches(given.lower(), allowed, n=1) if isinstance(given, str) else ()
    hint = f"Did you mean {close[0]!r}?" if close else ""
    raise UsageError(f"{name}: {shown(given)} is none of {words}", hint)


def flag(name: str, given: Any) -> bool:
    """True or False; no other value is taken for one of them, for a promise hangs on it."""
    if not isinstance(given, bool | np.bool_):
        raise _wrong(name, given, "neither True nor False")
    return bool(given)


def whole(name: str, given: Any, least: int, most: int | None = None) -> int:
    """A whole number."""
    number = _index(given)
    if number is None or number < least or (most is not None and number > most):
        raise _wrong(name, given, f"no {_whole(least, most)}")
    return number


def wholes(name: str, given: Any, least: int, most: int | None = None) -> tuple[int, ...]:
    """At least one whole number."""
    if _index(given) is not None:
        return (whole(name, given, least, most),)
    numbers = _several(name, given, _whole(least, most))
    if not numbers:
        raise UsageError(f"{name}: nothing is given", f"Give a {_whole(least, most)}, or several.")
    return tuple(whole(name, number, least, most) for number in numbers)


def amount(name: str, given: Any, least: float, *, above: bool = False) -> float:
    """A number from a bound on, or above it; nan is none."""
    number = _real(given)
    if number < least or (above and number == least) or math.isnan(number):
        allowed = f"above {least:g}" if above else f"of {least:g} or more"
        raise _wrong(name, given, f"no number {allowed}")
    return number


def text(name: str, given: Any) -> str:
    """A text."""
    if not isinstance(given, str):
        raise _wrong(name, given, "no text")
    return given


def texts(name: str, given: Any) -> tuple[str, ...]:
    """Any number of texts."""
    if isinstance(given, str):
        return (given,)
    return tuple(text(name, entry) for entry in _several(name, given, "text"))


def tolerances(name: str, given: Any) -> tuple[str, ...]:
    """Any number of tolerances: numbers for all outputs, or texts "output:number"; None for none."""
    if given is None:
        return ()
    alone = isinstance(given, str | Real)
    entries = (given,) if alone else _several(name, given, "number or text")
    return tuple(e if isinstance(e, str) else str(amount(name, e, 0)) for e in entries)


def sizes(name: str, given: Any) -> dict[str, tuple[int, ...]]:
    """Sizes by the name of a dimension; None for none."""
    rows = _rows(name, given, "sizes by dimension", "{'batch': (1, 32)}")
    return {key: wholes(f"{name}[{key!r}]", value, 0) for key, value in rows.items()}


def shapes(name: str, given: Any) -> dict[str, tuple[int, ...]]:
    """Shapes by the name of an input; None for none."""
    found = {}
    for key, value in _rows(name, given, "shapes by input", "{'x': (1, 3, 224, 224)}").items():
        place = f"{name}[{key!r}]"
        entries = _several(place, value, _whole(0, None), alone=False)
        found[key] = tuple(whole(place, size, 0) for size in entries)
    return found


def feeds(name: str, given: Any) -> Path | tuple[dict[str, Any], ...] | None:
    """Where inputs lie, or the inputs: a set of them by name, or several sets; None for none."""
    if given is None or isinstance(given, str | os.PathLike):
        return path_or_none(name, given)
    if isinstance(given, Mapping):
        return (_rows(name, given, "values by input", "{'x': array}"),)
    sets = _several(name, given, "path or mapping of input names to arrays")
    if not sets:
        raise UsageError(f"{name}: no set is given", "Leave it out for random inputs.")
    return tuple(_rows(name, fed, "values by input", "{'x': array}") for fed in sets)


def path(name: str, given: Any) -> Path:
    """A path."""
    if not isinstance(given, str | os.PathLike) or not isinstance(os.fspath(given), str):
        raise _wrong(name, given, "no path")
    return Path(given)


def path_or_none(name: str, given: Any) -> Path | None:
    """A path; None for none."""
    return None if given is None else path(name, given)


def word_or_path(name: str, given: Any) -> str | None:
    """A name, or a path as a text; None for none."""
    return given if given is None or isinstance(given, str) else str(path(name, given))


def listener(name: str, given: Any, nobody: Callable[..., None]) -> Callable[..., None]:
    """A function that is told something; None for nobody."""
    if given is None:
        return nobody
    if not callable(given):
        raise _wrong(name, given, "no function")
    told: Callable[..., None] = given
    return told


def shown(given: Any) -> str:
    """What was given, in one short line."""
    return " ".join(reprlib.repr(given).split())


def _wrong(name: str, given: Any, what: str) -> UsageError:
    return UsageError(f"{name}: {shown(given)} is {what}")


def _whole(least: int, most: int | None) -> str:
    return f"whole number {f'of {least} or more' if most is None else f'from {least} to {most}'}"


def _index(given: Any) -> int | None:
    """A whole number as Python's own; None if it is none (True is none here)."""
    if isinstance(given, bool):
        return None
    try:
        return operator.index(given)
    except TypeError:
        return None


def _real(given: Any) -> float:
    """A number as Python's own; nan if it is none."""
    if isinstance(given, bool) or not issubclass(type(given), Real):
        return math.nan
    try:
        return float(given)
    except OverflowError:
        return math.inf if given > 0 else -math.inf


def _several(name: str, given: Any, what: str, *, alone: bool = True) -> tuple[Any, ...]:
    """The entries of a list; a text is none, its letters are nobody's wish."""
    wanted = f"no {what}, and no list of such" if alone else f"no list whose entries are a {what}"
    if isinstance(given, str | bytes | Mapping):
        raise _wrong(name, given, wanted)
    try:
        entries = iter(given)
    except TypeError:
        raise _wrong(name, given, wanted) from None
    return tuple(entries)


def _rows(name: str, given: Any, what: str, example: str) -> dict[str, Any]:
    """A mapping by names."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise UsageError(
            f"{name}: {shown(given)} is no mapping of {what}", f"Write {name}={example}."
        )
    return {text(f"a key of {name}", key): value for key, value in given.items()}


WHOLE_THREADS = partial(wholes, least=0, most=MOST_THREADS)
"""Numbers of threads within a node; 0 is the runtime's choice."""

SEED = partial(whole, least=0)
