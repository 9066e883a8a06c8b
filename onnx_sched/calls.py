"""Calls of model functions: a call hides its nodes, so those that hide groups are replaced by their nodes.

ONNX Runtime replaces every call when it loads a model, so that doing it here costs nothing.  Functions
that hide no group stay functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import ModelProto, inliner

from onnx_sched import files
from onnx_sched.analysis import Analysis, analyse
from onnx_sched.circuit import Circuit
from onnx_sched.errors import ModelError, UsageError
from onnx_sched.graph import every_node
from onnx_sched.levelling import Skip, best_groups, saved
from onnx_sched.nodes import DEFAULT_DOMAINS
from onnx_sched.plan_rows import AGAIN

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
        cut: Results of the products that were replaced by products of their blocks.
    """

    analysis: Analysis
    functions: tuple[Function, ...] = ()
    cut: tuple[str, ...] = ()


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
    try:
        best = with_calls_replaced(analysis, functions)
    except ModelError:
        return Opened(analysis)  # they stay functions
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
    try:
        model = inliner.inline_selected_functions(source.model, list(functions))
    except (RuntimeError, onnx.checker.ValidationError) as error:
        raise ModelError(
            f"{source.name}: its functions cannot be replaced by their nodes: {error}"
        ) from None
    asked = analysis.circuit
    return analyse(
        files.Source(model, source.path), nonempty=asked.nonempty, unsummed=asked.unsummed
    )


def replayed(analysis: Analysis, functions: Sequence[Function], path: Path) -> Opened:
    """The model with the calls replaced that a plan names.

    Args:
        analysis: The model as it is.
        functions: Whose calls to replace.
        path: The plan's file, for messages.

    Raises:
        UsageError: If it has no such function.
    """
    if not functions:
        return Opened(analysis)
    missing = sorted(set(functions) - set(called(analysis.source.model)))
    if missing:
        domain, name = missing[0]
        shown = name if domain in DEFAULT_DOMAINS else f"{domain}::{name}"
        raise UsageError(
            f"--plan {path} asks for function {shown}, which this model does not call", AGAIN
        )
    return Opened(with_calls_replaced(analysis, functions), tuple(functions))
