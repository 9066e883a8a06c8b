"""Who ran a report's numbers, and on what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx_sched.judge.environment import environment
from onnx_sched.report.harmless import harmless


def machine(provider: str, note: str) -> list[tuple[str, str]]:
    """Who ran it, and on what: names and values."""
    found: Mapping[str, Any] = environment(provider)
    rows = [
        ("provider", f"{provider} ({note})" if note else provider or "none: nothing was run"),
        ("device", found.get("device") or ""),
        ("processor", f"{found.get('processor')}, {found.get('cores')} cores"),
        ("system", f"{found.get('platform')}, Python {found.get('python')}"),
        ("packages", ", ".join(f"{k} {v}" for k, v in found.get("packages", {}).items())),
    ]
    return [(name, harmless(str(value), 300)) for name, value in rows if value]
