"""Whether ONNX Runtime takes a model at all, and the inputs on which it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx_sched.judge.runtime import RuntimeRefused, open_session, run


def refusals(
    model: bytes | Path, feeds: Sequence[Mapping[str, Any]], provider: str
) -> tuple[str, ...]:
    """By feed: why ONNX Runtime does not run the model on it, optimized as when deployed; empty if it does.

    Raises:
        ProviderError: The model would run elsewhere than on `provider`.
    """
    try:
        session = open_session(model, provider)
    except RuntimeRefused as error:
        return (str(error),) * len(feeds)
    found = []
    for feed in feeds:
        try:
            run(session, feed)
            found.append("")
        except RuntimeRefused as error:
            found.append(str(error))
    return tuple(found)


def load_refusal(model: bytes | Path, provider: str) -> str:
    """Why ONNX Runtime does not load the model; empty if it does.

    Raises:
        ProviderError: The model would run elsewhere than on `provider`.
    """
    try:
        open_session(model, provider)
    except RuntimeRefused as error:
        return str(error)
    return ""
