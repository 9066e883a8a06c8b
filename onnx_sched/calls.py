"""Calls of model functions: a call hides its nodes, so those that hide groups are replaced by their nodes.

ONNX Runtime replaces every call when it loads a model, so that doing it here costs nothing.  Functions
that hide no group stay functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onnx import ModelProto, inliner

from onnx_sched import files
from onnx_sched.analysis import Analysis, analyse
from onnx_sched.circuit import Circuit
from onnx_sched.errors import UsageError
from onnx_sched.graph import DEFAULT_DOMAINS, every_node
from onnx_sched.planner import Skip, best_groups, saved

FEW = 8
"""Up to so many functions are tried one by one: each that hides nothing stays a function."""

Function = tuple[str, str]
"""Domain and name."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A model, as it is or with some calls replaced.

    Attributes:
        analysis: All that is known about it.
        functions: Whose calls were replaced.
    """

    analysis: Analysis
    functions: tuple[Function, ...] = ()


def called(model: ModelProto) -> tuple[Function, ...]:
    """The functions of a model that are called somewhere, sorted."""
    there = {(f.domain, f.name) for f in model.functions}
    return tuple(sorted(there & {(n.domain, n.op_type) for n in every_node(model)}))


def opened(analysis: Analysis, skips: Callable[[Circuit], Skip]) -> Opened:
    """The model with those calls replaced that hide groups; as it is if none does.

    Args:
        analysis: The model as it is.
        skips: Which units must stay as they are.
    """

    def worth(tried: Analysis) -> tuple[int, int]:
        return saved(best_groups(tried.circuit, skips(tried.circuit))[1])

    functions = called(analysis.source.model) if analysis.source.model.functions else ()
    if not functions:
        return Opened(analysis)
    best = with_calls_replaced(analysis, functions)
    most = worth(best)
    if most <= worth(analysis):
        return Opened(analysis)
    kept = functions
    for function in functions if len(functions) <= FEW else ():
        fewer = tuple(f for f in kept if f != function)
        tried = with_calls_replaced(analysis, fewer) if fewer else analysis
        if worth(tried) >= most:
            kept, best = fewer, tried
    return Opened(best, kept)


def with_calls_replaced(analysis: Analysis, functions: Sequence[Function]) -> Analysis:
    """The model with the nodes of some functions in place of their calls."""
    source = analysis.source
    model = inliner.inline_selected_functions(source.model, list(functions))
    return analyse(files.Source(model, source.path), nonempty=analysis.circuit.nonempty)


def replayed(analysis: Analysis, functions: Sequence[Function]) -> Opened:
    """The model with the calls replaced that a plan names.

    Raises:
        UsageError: If it has no such function.
    """
    if not functions:
        return Opened(analysis)
    missing = sorted(set(functions) - set(called(analysis.source.model)))
    if missing:
        domain, name = missing[0]
        shown = name if domain in DEFAULT_DOMAINS else f"{domain}::{name}"
        raise UsageError(f"the plan asks for function {shown}, which this model does not call")
    return Opened(with_calls_replaced(analysis, functions), tuple(functions))
