"""Run independent, alike nodes of an ONNX model together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from onnx_sched.api import annotate, check_provider, optimize
    from onnx_sched.judge.compare import CompareOptions, compare
    from onnx_sched.judge.comparison import Comparison
    from onnx_sched.options import Options
    from onnx_sched.plan import Group, Plan, Refusal
    from onnx_sched.report.data import Report
    from onnx_sched.result import Result

__all__ = [
    "CompareOptions",
    "Comparison",
    "Group",
    "Options",
    "Plan",
    "Refusal",
    "Report",
    "Result",
    "__version__",
    "annotate",
    "check_provider",
    "compare",
    "optimize",
]

_WHERE = {
    "annotate": "api",
    "check_provider": "api",
    "compare": "judge.compare",
    "optimize": "api",
    "CompareOptions": "judge.compare",
    "Comparison": "judge.comparison",
    "Options": "options",
    "Group": "plan",
    "Plan": "plan",
    "Refusal": "plan",
    "Report": "report.data",
    "Result": "result",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for when it is asked for: `--help` must not wait for onnx."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    """Also the names that are not loaded yet."""
    return sorted({*globals(), *__all__})
