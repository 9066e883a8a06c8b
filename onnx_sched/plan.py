"""What would be done to a model, and what not, and why: a value that can be printed and replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from onnx_sched.circuit import Unit
from onnx_sched.weighing import Factors, Place


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nodes were not batched: a stable code, a sentence, and the nodes at fault."""

    code: str
    reason: str
    nodes: tuple[str, ...]


def merged(refusals: Sequence[Refusal]) -> tuple[Refusal, ...]:
    """The refusals with equal reasons put together, in the order of their first."""
    found: dict[tuple[str, str], list[str]] = {}
    for refusal in refusals:
        nodes = found.setdefault((refusal.code, refusal.reason), [])
        nodes += [n for n in refusal.nodes if n not in nodes]
    return tuple(Refusal(code, reason, tuple(nodes)) for (code, reason), nodes in found.items())


class Refused(Exception):  # noqa: N818 - a signal between passes, never shown as an error
    """Raised inside the passes where a group turns out not to be possible; it becomes a `Refusal`."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Group:
    """Units that run as one batched node.

    Attributes:
        units: The members, in lane order.
        form: How the group is run: "stacked", "wide", "grouped_conv", ...
        level: Their common value of the plan's level function.
        region: Groups with one number follow each other along the same wires.
        segments: How many members make up each bundle of equal shapes, where one wide node serves
            several; empty if all members are one bundle.
        summed: Whether what adds up the lanes of its results is a matrix product.
    """

    units: tuple[Unit, ...]
    form: str
    level: int
    region: int = 0
    segments: tuple[int, ...] = ()
    summed: bool = False

    @property
    def kind(self) -> str:
        """What the members are."""
        return self.units[0].kind

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.units)

    def lanes(self, k: int) -> tuple[str, ...] | None:
        """Operand k of every member; None if it is constant, missing, or one value for all."""
        found = tuple(o for u in self.units if isinstance(o := u.operands[k], str))
        return found if len(found) == self.size and len(set(found)) > 1 else None

    def bundles(self, output: int) -> tuple[tuple[str, ...], ...]:
        """One output of every member, in lane order, cut into bundles of equal shapes."""
        names = tuple(u.outputs[output] for u in self.units)
        found, start = [], 0
        for length in self.segments or (self.size,):
            found.append(names[start : start + length])
            start += length
        return tuple(found)


COMPOSED = frozenset({"apart", "conv_t", "grouped_conv", "grouped_conv_1d"})
"""Forms of a group that runs, with what is before it, as a linear map; its own form is the other choice."""

ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Neg"})
VIEWS = frozenset({"Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose"})
MIXING = frozenset({"Gather", "GatherND", "Resize"})
AFFINE = ARITHMETIC | VIEWS | MIXING
"""Kinds of groups that may be part of such a map."""


def manner(kind: str, form: str, summed: bool = False) -> str:
    """A form in words: a norm is no convolution, it works on what convolutions left.

    Args:
        kind: Of the group, or the op type of its first node.
        form: Of the group.
        summed: Whether its lanes are added up by a product.

    >>> manner("MatMul", "conv_t"), manner("LayerNormalization", "conv_t")
    ('conv_t', "in conv_t's layout")
    >>> manner("Resize", "conv_t"), manner("Split", "conv_t")
    ('conv_t, a linear map with what is before', 'conv_t, products of their own')
    >>> manner("Mul", "stacked", summed=True)
    'stacked, lanes summed by a product'
    """
    words = form
    if kind.endswith("Normalization") and form == "conv_t":
        words = f"in {form}'s layout"
    elif kind in AFFINE and form in COMPOSED:
        words = f"{form}, a linear map with what is before"
    elif kind == "Split" and form in COMPOSED:
        words = f"{form}, products of their own"
    return f"{words}, lanes summed by a product" if summed else words


@dataclass(frozen=True, slots=True)
class Weighed:
    """Two operands that are multiplied before their product is summed over lanes.

    Attributes:
        bundles: The operands: the lanes of each, or one value; none where all terms count the same.
        factors: Their shapes, in each lane.
        place: Which of them hold lanes.
        inside: The product, where the unit that makes the sum makes it, too.
    """

    bundles: tuple[tuple[str, ...], tuple[str, ...]]
    factors: Factors
    place: Place
    inside: tuple[str, ...] = ()

    @property
    def side(self) -> int | None:
        """The axis of the lanes that is summed over, as they count it; None if it is the lanes alone."""
        slot, inner = self.place.slots[-1], self.factors.inner
        return None if inner is None else int(self.factors.own(slot, [inner])[0])


@dataclass(frozen=True, slots=True)
class Reduction:
    """A sum or mean over values that become lanes of one tensor.

    Attributes:
        units: The Add chain, or the one Sum or Mean, and the Muls that it alone reads; or a sum over the
            axis of a Concat, and that if it alone reads it.  The last one makes the result.
        mean: Whether the sum is divided by the number of terms.
        terms: What is summed, in the file's order, repeats kept.
        weighed: What is multiplied and then summed, if the sum takes in more than an addition.
        product: Whether a matrix product may be made of it.
        linear: Linear maps (or convolutions) whose results are the terms, or most of them: their sum is one
            map of what they read.
    """

    units: tuple[Unit, ...]
    mean: bool
    terms: tuple[str, ...]
    weighed: Weighed | None = None
    product: bool = False
    linear: Group | None = None

    @property
    def output(self) -> str:
        """The result's name."""
        return self.units[-1].outputs[0]

    @property
    def beside(self) -> tuple[str, ...]:
        """The terms that are no results of the linear maps that the sum takes in."""
        made = set() if self.linear is None else {u.outputs[0] for u in self.linear.units}
        return tuple(t for t in self.terms if t not in made)

    @property
    def values(self) -> tuple[str, ...]:
        """Every value that its nodes make, in no order; by these names a plan file knows it."""
        inside = () if self.weighed is None else self.weighed.inside
        return (*(o for u in self.units for o in u.outputs if o), *inside)


class Launches(NamedTuple):
    """How many launches a level function leaves if alike units of a level are one; heavy ones count first."""

    heavy: int
    light: int


@dataclass(frozen=True, slots=True)
class Optimum:
    """What an exact search for a level function came to.

    Attributes:
        before: What the best level function left that is found without it.
        cost: What the best one known leaves.
        bound: No level function leaves less.
        stopped: Why nothing is proven: "time", "clock" or "size"; empty if something is.
        taken: Whether the plan has its levels: only if they save more units, and leave no more nodes.
    """

    before: Launches
    cost: Launches
    bound: Launches
    stopped: str = ""
    taken: bool = False

    @property
    def proven(self) -> bool:
        """Whether no level function leaves fewer launches."""
        return self.cost == self.bound


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is decided about a model, or about a body in it.

    Attributes:
        groups: What runs as one.
        reductions: Sums and means over lanes.
        refusals: What is left alone, and why.
        bodies: What is decided about the bodies of If, Loop and Scan, by their label; only those in
            which something is done.
        inlined: Domain and name of the functions whose calls give way to their nodes first.
        cut: Results of products by block-diagonal weights that give way to their blocks then.
        optimum: What an exact search for the level function came to; None if none was asked for.
    """

    groups: tuple[Group, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    bodies: tuple[tuple[str, Plan], ...] = ()
    inlined: tuple[tuple[str, str], ...] = ()
    cut: tuple[str, ...] = ()
    optimum: Optimum | None = None
