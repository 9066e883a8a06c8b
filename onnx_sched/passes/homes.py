"""Which bundles of lanes will be at hand, before any of them is made."""

from __future__ import annotations

from dataclasses import dataclass, field

from onnx_sched.stacking import Layout

Bundle = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class View:
    """A tensor of the model that is a bundle in some layout: `source` of Split, Slices, Gathers."""

    bundle: Bundle
    layout: Layout
    source: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of a bundle's lanes that come from one home; `home` is None for a single value."""

    lanes: Bundle
    home: Bundle | None


@dataclass
class Homes:
    """Which bundles will be at hand, before any of them is made.

    Attributes:
        groups: Bundles that batched nodes make.
        views: Bundles that tensors of the model hold, by bundle.
        wishes: The layouts in which bundles will be asked for, as far as that is known.
    """

    groups: list[Bundle] = field(default_factory=list)
    views: dict[Bundle, View] = field(default_factory=dict)
    wishes: dict[Bundle, Layout] = field(default_factory=dict)
    _of: dict[str, list[Bundle]] = field(default_factory=dict)
    _lane: dict[str, tuple[int, int]] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)

    def add_group(self, bundle: Bundle) -> None:
        """A batched node will make this bundle."""
        for lane, value in enumerate(bundle):
            self._lane.setdefault(value, (len(self.groups), lane))
        self.groups.append(bundle)
        for value in bundle:
            self._of.setdefault(value, []).append(bundle)
            self.made.add(value)

    def lane_order(self, value: str) -> tuple[int, int]:
        """Sorts the values of one group together, in lane order, and the rest after them."""
        return self._lane.get(value, (len(self.groups), 0))

    def add_view(self, view: View) -> None:
        """A tensor of the model holds this bundle."""
        if view.bundle not in self.views:
            self.views[view.bundle] = view
            for value in view.bundle:
                self._of.setdefault(value, []).append(view.bundle)

    def pieces(self, bundle: Bundle) -> list[Piece]:
        """Cut a bundle into the longest runs that come from one home each."""
        found: list[Piece] = []
        k = 0
        while k < len(bundle):
            best, end = None, k + 1
            for home in self._of.get(bundle[k], ()):
                members = set(home)
                j = k
                while j < len(bundle) and bundle[j] in members:
                    j += 1
                if best is None or j > end:
                    best, end = home, j
            found.append(Piece(bundle[k:end], best))
            k = end
        return found
