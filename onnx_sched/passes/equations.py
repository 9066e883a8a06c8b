"""Einsum: a batched product where it is one, else lanes are one letter more.

    Einsum("bi,ij->bj", x_i, W_i)  ==>  MatMul(Stack(x), Stack(W))
    Einsum("bi,bj->b", x_i, y_i)   ==>  Einsum("gbi,gbj->gb", Stack(x), Stack(y))

What all lanes share keeps its letters.  Letters follow the axes as they lie, so that nothing need be moved.
Runtimes divide by the size of a letter: the second form is for sizes that are surely not 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from string import ascii_letters

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.dims import Shape, is_static
from onnx_sched.passes.operands import apart, apiece, choose, factor, one
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.plan import Refused
from onnx_sched.relayout import steps
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
    letters = left.replace(",", "")
    if DOTS in left or not (letters.islower() or letters.isupper()):
        return None
    return Equation(terms, "".join(sorted(c for c in set(letters) if letters.count(c) == 1)))


def spelled_out(equation: Equation, shapes: Sequence[Shape]) -> Equation | None:
    """The equation with letters for its dots; None if it does not fit, or the dots broadcast.

    >>> spelled_out(Equation(("...i", "ij"), "...j"), [("n", 3, 4), (4, 5)]).text
    'abi,ij->abj'
    """
    hidden = set()
    for term, shape in zip(equation.terms, shapes, strict=True):
        named = len(term.replace(DOTS, ""))
        if DOTS not in term and named != len(shape):
            return None
        if DOTS in term:
            start = term.index(DOTS)
            hidden.add(tuple(shape[start : start + len(shape) - named]))
    if not hidden:
        return equation
    dots = hidden.pop()
    letters = equation.free[: len(dots)]
    if hidden or len(letters) < len(dots) or DOTS not in equation.result:
        return None
    terms = tuple(t.replace(DOTS, letters) for t in equation.terms)
    return Equation(terms, equation.result.replace(DOTS, letters))


def equation_of(unit: Unit, circuit: Circuit) -> Equation | None:
    """The equation of an Einsum, a letter for every axis; None where that cannot be had."""
    shapes = [s for o in unit.operands if (s := circuit.shape(o)) is not None]
    text = unit.attribute("equation", b"")
    equation = parse(text.decode() if isinstance(text, bytes) else str(text))
    if equation is None or len(shapes) != len(equation.terms):
        return None
    return spelled_out(equation, shapes)


def check(unit: Unit, circuit: Circuit) -> str | None:
    """An equation with one meaning, a letter to spare, and known shapes."""
    if any(circuit.shape(o) is None for o in unit.operands):
        return "the shape of an operand is not known"
    if circuit.values.shape(unit.outputs[0]) is None:
        return "the shape of the result is not known"
    equation = equation_of(unit, circuit)
    if equation is None:
        return "its equation leaves axes or the result to the runtime"
    return None if equation.free else "its equation uses every letter there is"


@dataclass(frozen=True, slots=True)
class Product:
    """The letters of a matrix product: in all terms, in the first, in the second, summed over."""

    batches: str
    rows: str
    columns: str
    inner: str

    def left(self, term: str) -> Layout:
        """How the first factor must lie."""
        return self._lying(term, self.rows, self.inner)

    def right(self, term: str) -> Layout:
        """How the second factor must lie."""
        return self._lying(term, self.inner, self.columns)

    def whole(self, term: str) -> Layout:
        """How the product lies."""
        return self._lying(term, self.rows, self.columns)

    def _lying(self, term: str, *letters: str) -> Layout:
        axes = [(term.index(c),) for c in self.batches]
        return ((LANE,), *axes, *(tuple(term.index(c) for c in cs) for cs in letters))


def product_of(equation: Equation, shapes: Sequence[Shape]) -> Product | None:
    """The matrix product that an equation is, if it is one."""
    if len(equation.terms) != 2:
        return None
    (a, b), result = equation.terms, equation.result
    if any(len(set(t)) < len(t) for t in (a, b, result)):
        return None  # a diagonal
    both = [c for c in a if c in b]
    if any(shapes[0][a.index(c)] != shapes[1][b.index(c)] for c in both):
        return None  # a size of 1 that is repeated
    found = Product(
        "".join(c for c in result if c in a and c in b),
        "".join(c for c in result if c in a and c not in b),
        "".join(c for c in result if c in b and c not in a),
        "".join(c for c in both if c not in result),
    )
    everything = set(found.batches + found.rows + found.columns + found.inner)
    return found if found.inner and everything == set(a + b) else None


def einsum(batch: Batch) -> None:
    """One product, or one Einsum with a letter for the lanes."""
    equation = equation_of(batch.unit, batch.circuit)
    assert equation is not None
    shapes = [batch.shape(k) for k in range(batch.slots)]
    product = product_of(equation, shapes)
    if product is not None and _as_product(batch, equation, product):
        return
    if not (batch.circuit.nonempty or all(is_static(s) and 0 not in s for s in shapes)):
        raise Refused("S201", "on an empty batch runtimes divide by zero (--nonempty rules it out)")
    lane, terms, names = equation.free[0], [], []
    for k, term in enumerate(equation.terms):
        shared = one(batch, k)
        if shared is not None:
            terms.append(term)
            names.append(shared)
            continue
        rank = len(term)
        layout = choose(batch, [k], partial(_lettered, rank), lead(rank))
        terms.append("".join(lane if atom == LANE else term[int(atom)] for (atom,) in layout))
        names.append(apiece(batch, k, layout))
    written = Equation(tuple(terms), lane + equation.result)
    out = batch.make("Einsum", names, **batch.attributes(equation=written.text))
    batch.put(lead(len(equation.result)), out[0])


def _as_product(batch: Batch, equation: Equation, product: Product) -> bool:
    """Make a batched MatMul; False if sizes known only at run time stand in the way."""
    (a, b), result = equation.terms, equation.result
    layouts = product.left(a), product.right(b)
    whole = product.whole(result)
    for k, layout in enumerate(layouts):
        shape = batch.shape(k)
        if steps(batch.bulk(shape), lead(len(shape)), layout) is None:
            return False
    if steps(batch.out_bulk(), whole, lead(len(result))) is None:
        return False
    names = [factor(batch, k, layout) for k, layout in enumerate(layouts)]
    batch.put(whole, batch.make("MatMul", names)[0])
    return True


def _lettered(rank: int, layout: Layout) -> bool:
    """Whether each physical axis is the lanes or one axis, so that a letter names it."""
    return apart(layout, rank) and len(layout) == rank + 1


RULES: Table = {"Einsum": Rule(einsum, check, heavy=True)}
