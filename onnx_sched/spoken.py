"""Shapes, constants and operands as a person calls them."""

from __future__ import annotations

from functools import cache

from onnx import defs

from onnx_sched.circuit import EMBEDDING, LINEAR, Circuit, Operand, Unit
from onnx_sched.constants import Const
from onnx_sched.dims import MADE, OWN, Shape, is_own

_WEIGHED = ("input", "weight", "bias")
_ROLES = {
    **dict.fromkeys((LINEAR, "Conv", "ConvTranspose"), _WEIGHED),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), ("input", "scale", "bias")),
    EMBEDDING: ("table", "indices"),
}
MANY = 4
"""Up to this many numbers of a constant are shown."""


def role(unit: Unit, k: int) -> str:
    """What an operand of a unit is called: as ONNX's operators name it, or by its number."""
    roles = _ROLES.get(unit.kind) or _inputs(unit.domain, unit.kind)
    return roles[k] if k < len(roles) else f"operand {k}"


@cache
def _inputs(domain: str, kind: str) -> tuple[str, ...]:
    """The names that ONNX gives the operands of an op, where there is a fixed number of them."""
    if not defs.has(kind, domain):
        return ()
    found = defs.get_schema(kind, domain).inputs
    variadic = defs.OpSchema.FormalParameterOption.Variadic
    # A name of one letter tells no more than a number.
    names = [p.name if len(p.name) > 1 else f"operand {k}" for k, p in enumerate(found)]
    return () if any(p.option == variadic for p in found) else tuple(names)


def in_words(value: object) -> str:
    """A shape, or an attribute's value, for people.

    >>> in_words((1, "N")), in_words(b"SAME"), in_words(0.5), in_words(None)
    ('[1, N]', 'SAME', '0.5', 'unknown')
    >>> in_words(("%.x.0", 4))
    '[size 0 of x, 4]'
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace") if len(value) < 40 else f"{len(value)} bytes"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(in_words, value)) + "]"
    if value is None:
        return "unknown"
    if isinstance(value, str) and is_own(value):
        name = value.removeprefix(MADE).removeprefix(OWN)
        owner, _, axis = name.rpartition(".")
        return f"size {axis} of {owner}" if axis.isdigit() else name
    return f"{value:g}" if isinstance(value, float) else str(value)


def told(*consts: Const) -> tuple[str, ...]:
    """The numbers of constants that differ; none where they are too many, or look the same."""
    if any(c.nbytes > MANY * c.dtype.itemsize for c in consts):
        return ()
    found = [c.load().ravel().tolist() for c in consts]
    shown = tuple(
        in_words(tuple(v) if c.rank else v[0]) for v, c in zip(found, consts, strict=True)
    )
    return shown if len(set(shown)) == len(shown) else ()


def same_but_for_names(circuit: Circuit, here: Shape | None, there: Shape | None) -> bool:
    """Whether two shapes would be equal if open sizes of inputs had one name, or a name at all.

    Sizes that are computed do not count: nobody can name them.
    """
    if here is None or there is None or len(here) != len(there):
        return False
    fed = {
        symbol
        for value in circuit.graph.proto.input
        for dim in circuit.shape(value.name) or ()
        for symbol in _symbols(dim)
    }
    pairs = [(x, y) for x, y in zip(here, there, strict=True) if x != y]
    return all(
        isinstance(x, str)
        and isinstance(y, str)
        and _coefficient(x) == _coefficient(y)
        and len(_symbols(x)) == len(_symbols(y))
        and fed.issuperset(_symbols(x) + _symbols(y))
        for x, y in pairs
    )


def _symbols(dim: int | str) -> list[str]:
    return [part for part in dim.split("*") if not part.isdigit()] if isinstance(dim, str) else []


def _coefficient(dim: str) -> str:
    first = dim.split("*")[0]
    return first if first.isdigit() else ""


def blind(circuit: Circuit, unit: Unit) -> str:
    """The op that tells nothing of what it makes, where a unit reads what comes from there; empty if none."""
    waiting, seen = [unit], {unit.number}
    while waiting:
        one = waiting.pop()
        unknown = [o for o in one.operands if _is_unknown(circuit, o)]
        makers = [circuit.maker[o] for o in unknown if isinstance(o, str) and o in circuit.maker]
        if one is not unit and not unknown:
            return one.kind
        fresh = [m for m in makers if m.number not in seen]
        seen.update(m.number for m in fresh)
        waiting += fresh
    return ""


def _is_unknown(circuit: Circuit, operand: Operand) -> bool:
    return operand is not None and circuit.shape(operand) is None
