"""What differs between two models, by name: interface, nodes, initializers, functions, metadata.

Weights are compared by their numbers, wherever and however they are stored.  The order of nodes and
weights in the file is no difference: it says nothing about what a model computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from onnx_sched import files
from onnx_sched.diff_parts import Entry, functions, interface, metadata, nodes, weights
from onnx_sched.diff_values import difference

VERSION = "1"

Title = Literal["interface", "nodes", "initializers", "functions", "metadata"]


@dataclass(frozen=True, slots=True)
class Item:
    """Something that stands in one model only.

    Attributes:
        name: What it is called.
        what: What it is: an op type, a type and shape.
        members: The nodes that it replaced, if it notes some.
    """

    name: str
    what: str
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Aspect:
    """One thing about a changed item: how it is in the one model and in the other; "" for not at all."""

    what: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Changed:
    """Something that stands in both models, but differs."""

    name: str
    what: str
    aspects: tuple[Aspect, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a model.

    Attributes:
        title: Which part.
        before, after: Numbers of items.
        removed, added: What only the one or the other has.
        changed: What both have, but differently.
    """

    title: Title
    before: int
    after: int
    removed: tuple[Item, ...]
    added: tuple[Item, ...]
    changed: tuple[Changed, ...]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.removed or self.added or self.changed)


@dataclass(frozen=True, slots=True)
class Difference:
    """All that differs between two models."""

    sections: tuple[Section, ...]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return all(s.same for s in self.sections)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "schema_version": VERSION,
            "same": self.same,
            "sections": {s.title: asdict(s) for s in self.sections},
        }


def diff(before: files.Source, after: files.Source) -> Difference:
    """Compare two models.

    Raises:
        ModelError: If external data cannot be read.
    """
    a, b = before.model, after.model
    return Difference(
        (
            _section("interface", interface(a.graph), interface(b.graph)),
            _section("nodes", nodes(a.graph), nodes(b.graph)),
            _section("initializers", weights(before), weights(after)),
            _section("functions", functions(a), functions(b)),
            _section("metadata", metadata(a), metadata(b)),
        )
    )


def _section(title: Title, before: Mapping[str, Entry], after: Mapping[str, Entry]) -> Section:
    changed = []
    for name, entry in before.items():
        aspects = _aspects(entry, after[name]) if name in after else ()
        if aspects:
            changed.append(Changed(name, after[name].what, aspects))
    return Section(
        title,
        len(before),
        len(after),
        tuple(Item(n, e.what, e.members) for n, e in before.items() if n not in after),
        tuple(Item(n, e.what, e.members) for n, e in after.items() if n not in before),
        tuple(changed),
    )


def _aspects(a: Entry, b: Entry) -> tuple[Aspect, ...]:
    """In what two entries differ."""
    x, y = a.facts(), b.facts()
    names = dict.fromkeys([*x, *y])
    found = [Aspect(n, x.get(n, ""), y.get(n, "")) for n in names if x.get(n, "") != y.get(n, "")]
    if a.tensor is not None and b.tensor is not None and a.what == b.what:
        words = difference(a.tensor, b.tensor)
        if words:
            found.append(Aspect("numbers", "", words))
    return tuple(found)
