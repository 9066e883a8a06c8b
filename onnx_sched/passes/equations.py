"""Einsum: lanes are one letter more.

    Einsum("bi,ij->bj", x_i, W_i)  ==>  Einsum("gbi,gij->gbj", Stack(x), Stack(W))
    Einsum("bi,ij->bj", x_i, W)    ==>  Einsum("gbi,ij->gbj", Stack(x), W)

What all lanes share keeps its letters.  Without an ellipsis letters follow the axes as they lie, so that
nothing need be moved; with one, lanes go in front of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from string import ascii_letters

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.passes.operands import apart, apiece, choose, one
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.plan import Refused
from onnx_sched.stacking import LANE, Layout, lead

DOTS = "..."


@dataclass(frozen=True, slots=True)
class Equation:
    """What an Einsum says: a term for each operand, and one for the result."""

    terms: tuple[str, ...]
    result: str

    @property
    def text(self) -> str:
        """As ONNX spells it, the result always written out."""
        return f"{','.join(self.terms)}->{self.result}"

    @property
    def dots(self) -> bool:
        """Whether it leaves axes unnamed."""
        return any(DOTS in t for t in (*self.terms, self.result))

    @property
    def free(self) -> str:
        """Letters that it does not use, in order."""
        used = set("".join((*self.terms, self.result)))
        return "".join(c for c in ascii_letters if c not in used)


def parse(text: str) -> Equation | None:
    """Read an equation; None where its meaning depends on the runtime.

    Without an arrow the result has the letters that stand once, in alphabetical order; runtimes do not
    agree on how small and capital letters are ordered, nor which axes an ellipsis leaves then.

    >>> parse("ij, jk").text
    'ij,jk->ik'
    """
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = tuple(left.split(","))
    if arrow:
        return Equation(terms, right)
    letters = left.replace(",", "").replace(".", "")
    if DOTS in left or not (letters.islower() or letters.isupper()):
        return None
    once = sorted(c for c in set(letters) if letters.count(c) == 1)
    return Equation(terms, "".join(once))


def equation_of(unit: Unit) -> Equation | None:
    """The equation of an Einsum."""
    text = unit.attribute("equation", b"")
    return parse(text.decode() if isinstance(text, bytes) else str(text))


def check(unit: Unit, circuit: Circuit) -> str | None:
    """An equation with one meaning, letters to spare, and known shapes that fit its letters."""
    equation = equation_of(unit)
    if equation is None:
        return "its equation leaves the result to the runtime"
    shapes = [circuit.shape(o) for o in unit.operands]
    if None in shapes or circuit.values.shape(unit.outputs[0]) is None:
        return "the shape of an operand or of the result is not known"
    if not equation.free:
        return "its equation uses every letter there is"
    for term, shape in zip(equation.terms, shapes, strict=True):
        if shape is not None and DOTS not in term and len(term) != len(shape):
            return "its equation does not fit its operands"
    return None


def einsum(batch: Batch) -> None:
    """One Einsum with a letter for the lanes."""
    equation = equation_of(batch.unit)
    assert equation is not None
    lane = equation.free[0]
    terms, names = [], []
    for k, term in enumerate(equation.terms):
        shared = one(batch, k)
        if shared is not None:
            terms.append(term)
            names.append(shared)
            continue
        rank = len(batch.shape(k))
        layout = lead(rank)
        if not equation.dots:
            layout = choose(batch, [k], partial(_lettered, rank), layout)
        terms.append(_spelled(term, layout, lane))
        names.append(apiece(batch, k, layout))
    if all(lane not in t for t in terms):
        raise Refused(
            "S102", f"all lanes of {batch.circuit.label(batch.unit)} read the same values"
        )
    written = Equation(tuple(terms), lane + equation.result)
    out = batch.make("Einsum", names, **batch.attributes(equation=written.text))
    batch.put(lead(len(batch.out_bulk().shape)), out[0])


def _lettered(rank: int, layout: Layout) -> bool:
    """Whether each physical axis is the lanes or one axis, so that a letter names it."""
    return apart(layout, rank) and len(layout) == rank + 1


def _spelled(term: str, layout: Layout, lane: str) -> str:
    """A term in the order of the physical axes."""
    if layout == lead(len(layout) - 1):
        return lane + term
    return "".join(lane if atom == LANE else term[int(atom)] for (atom,) in layout)


RULES: Table = {"Einsum": Rule(einsum, check, heavy=True)}
