"""Names for the open dimensions of the inputs, also for those that the model does not name."""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from onnx_sched.judge.inputs import InputSpec

BATCH = "batch"  # the name of a leading axis that the model leaves open without a name

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda left, right: left // max(right, 1),
}
_LONGEST_FORMULA = 200
_IMAGE_RANK, _FIRST_SPATIAL_AXIS = 4, 2


@dataclass(frozen=True, slots=True)
class DimNames:
    """The open dimensions of a model.

    Sums, differences and products of other names (`past + 1`) are computed, not chosen.

    Attributes:
        free: Names of the sizes that can be chosen, leading ones first, each in order of the file.
        leading: Those that are the leading axis of some input.
        spatial: Those that look like height or width of an image.
    """

    free: tuple[str, ...]
    leading: tuple[str, ...]
    spatial: tuple[str, ...]

    def of(self, spec: InputSpec) -> tuple[str | int, ...]:
        """One name (or fixed size) for each axis of an input of known rank."""
        return tuple(_name(spec, axis) for axis in range(len(spec.shape or ())))

    def shape(self, spec: InputSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of an input of known rank, once sizes are chosen for all names in `free`."""
        return tuple(
            dim if isinstance(dim, int) else sizes[dim] if dim in sizes else _evaluate(dim, sizes)
            for dim in self.of(spec)
        )


def dim_names(specs: Sequence[InputSpec]) -> DimNames:
    """Name all open dimensions of the inputs.

    Open leading axes without a name share the name `batch`: they nearly always are one batch. Any
    other is named after its place: `x[2]`.
    """
    places: dict[str, list[tuple[int, int]]] = {}  # name -> (axis, rank) of each use
    for spec in specs:
        rank = len(spec.shape or ())
        for axis in range(rank):
            name = _name(spec, axis)
            if isinstance(name, str):
                places.setdefault(name, []).append((axis, rank))
    inside = {name: _symbols(name) for name in places}
    plain = {name for name, symbols in inside.items() if not symbols}
    # `batch-size` is a plain name, unless the model has both a `batch` and a `size`.
    derived = {name for name, symbols in inside.items() if symbols and plain.issuperset(symbols)}
    free = [name for name in places if name not in derived]
    leading = tuple(name for name in free if any(axis == 0 for axis, _ in places[name]))
    spatial = tuple(
        name
        for name in free
        if all(rank >= _IMAGE_RANK and axis >= _FIRST_SPATIAL_AXIS for axis, rank in places[name])
    )
    rest = [name for name in free if name not in leading]
    return DimNames((*leading, *rest), leading, spatial)


def _name(spec: InputSpec, axis: int) -> str | int:
    dim = (spec.shape or ())[axis]
    if dim is None:
        return BATCH if axis == 0 else f"{spec.name}[{axis}]"
    return dim


def _symbols(name: str) -> tuple[str, ...]:
    """The names inside a formula such as `past + 1`; none if it is not a formula."""
    formula = _formula(name)
    parts = () if formula is None else tuple(ast.walk(formula))
    return tuple(part.id for part in parts if isinstance(part, ast.Name))


def _formula(name: str) -> ast.BinOp | None:
    """The name as a formula over names and numbers, if it is one."""
    if len(name) > _LONGEST_FORMULA or not re.fullmatch(r"[\w\s()]*[-+*/][-+*/\w\s()]*", name):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python has opinions on `1if`
            tree = ast.parse(name.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    legal = all(
        isinstance(part, ast.BinOp | ast.Name | ast.operator | ast.expr_context)
        or (isinstance(part, ast.Constant) and isinstance(part.value, int))
        for part in ast.walk(tree)
    )
    known = all(
        type(part.op) in _OPERATORS for part in ast.walk(tree) if isinstance(part, ast.BinOp)
    )
    return tree if isinstance(tree, ast.BinOp) and legal and known else None


def _evaluate(name: str, sizes: Mapping[str, int]) -> int:
    """The value of a formula over chosen sizes; not below 0."""

    def value(node: ast.AST | None) -> int:
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Name):
            return sizes[node.id]
        return int(getattr(node, "value", 0))

    return max(value(_formula(name)), 0)
