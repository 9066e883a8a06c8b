"""The names of execution providers, and the choice of one.

`auto` says what it took and why; a provider that was named is never replaced in silence.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from onnx_sched.errors import ProviderError, UsageError
from onnx_sched.judge.ortlib import CPU, CUDA, import_ort
from onnx_sched.judge.probe import ProviderStatus, probe

__all__ = ["ProviderStatus", "SelectedProvider", "check_provider", "full_name", "select_provider"]

_SUFFIX = "ExecutionProvider"


@dataclass(frozen=True, slots=True)
class SelectedProvider:
    """The provider that will run the model.

    Attributes:
        name: Full name, as ONNX Runtime spells it.
        requested: The word that was asked for, such as `auto`.
        note: What `auto` took and why; empty if the provider was named.
    """

    name: str
    requested: str
    note: str


def full_name(name: str) -> str:
    """The full name of a provider: `cuda` gives `CUDAExecutionProvider`; full names stay.

    Raises:
        UsageError: No provider has this name.
    """
    known = {full.removesuffix(_SUFFIX).lower(): full for full in _known_providers()}
    full = known.get(name.lower().removesuffix(_SUFFIX.lower()))
    if full is not None:
        return full
    close = difflib.get_close_matches(name.lower(), [*known, "auto"], n=1)
    hint = f"did you mean {close[0]}?" if close else "auto, cpu and cuda are the usual ones"
    raise UsageError(f"--provider {name}: there is no such execution provider", hint)


def check_provider(name: str) -> ProviderStatus:
    """Try the provider `name` (`cpu`, `cuda`, a full name) on a model of one node.

    Never raises and never prints: what is wrong is in the code, the reason and the hint.
    """
    try:
        full = full_name(name)
    except UsageError as error:
        return ProviderStatus(name, False, "unknown", str(error), error.hint)
    return probe(full)


def select_provider(name: str) -> SelectedProvider:
    """The provider to run on.

    Args:
        name: `auto` (CUDA if it is usable, else the CPU), `cpu`, `cuda` or a full name.

    Raises:
        UsageError: No provider has this name.
        ProviderError: The provider that was named cannot run here. It is never replaced in silence.
    """
    if name.lower() == "auto":
        status = check_provider(CUDA)
        if status.usable:
            return SelectedProvider(CUDA, name, "auto: a CUDA device is usable")
        if status.code in ("no-ort", "broken-ort"):
            raise ProviderError(f"nothing can run here: {status.reason}", status.hint)
        note = f"auto: {status.reason}; `onnx-sched doctor` tells more"
        return SelectedProvider(CPU, name, note)
    status = check_provider(full_name(name))
    if not status.usable:
        raise ProviderError(f"{status.name} cannot run here: {status.reason}", status.hint)
    return SelectedProvider(status.name, name, "")


def _known_providers() -> tuple[str, ...]:
    try:
        return tuple(import_ort().get_all_providers())
    except (ImportError, AttributeError):
        return (CUDA, CPU)
