"""Where lanes begin, end, and change places: one store of bundles in layouts.

Every boundary is the same request, a bundle in a layout, answered by the cheapest of:

    it lies there already                         nothing
    it lies there in another layout               Reshape, Transpose          (Split, torch.stack, Concat)
    it is part of a bundle that is there          Slice, Split, or Gather     (Q, K, V of one wide node)
    its lanes come from several places            those pieces and a Concat
    one lane is read by itself                    one Slice, Gather, or Split (a tap, original name kept)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onnx_sched.circuit import Circuit
from onnx_sched.passes.emit import Emitter
from onnx_sched.passes.homes import Bundle, Homes, Piece
from onnx_sched.plan import Refused
from onnx_sched.relayout import Step, effort, steps
from onnx_sched.stacking import (
    LANE,
    Bulk,
    Layout,
    in_blocks,
    is_packed,
    lane_axis,
    lead,
    packed,
    plain,
)


class Store:
    """Bundles as they come to lie in the new graph, made on request and remembered."""

    def __init__(
        self, circuit: Circuit, emitter: Emitter, homes: Homes, wanted: set[str], asked: set[Bundle]
    ) -> None:
        self._circuit = circuit
        self._emit = emitter
        self._homes = homes
        self._wanted = wanted
        self._asked = asked
        self._placed: dict[Bundle, dict[Layout, str]] = {}
        self._tapped: dict[str, str] = {}

    def bulk(self, bundle: Bundle) -> Bulk:
        """Number of lanes and their shape."""
        shapes = (self._circuit.values.shape(name) for name in bundle)  # a hole has none
        shape = next((s for s in shapes if s is not None), None)
        if shape is None:
            raise Refused("S202", f"the shape of {bundle[0]!r} is not known")
        return self._circuit.bulk(len(bundle), shape)

    def wish(self, bundle: Bundle) -> Layout | None:
        """The layout in which a bundle will be asked for, if that is known."""
        return self._homes.wishes.get(bundle)

    def put(self, bundle: Bundle, layout: Layout, name: str) -> None:
        """Note that a tensor holds a bundle."""
        self._placed.setdefault(bundle, {}).setdefault(layout, name)

    def placed(self, bundle: Bundle) -> Mapping[Layout, str]:
        """The layouts in which a bundle lies already; a view of the model counts."""
        view = self._homes.views.get(bundle)
        if view is not None and view.layout not in self._placed.get(bundle, {}):
            self.put(bundle, view.layout, self.value(view.source))
        return self._placed.get(bundle, {})

    def get(self, bundle: Bundle, layout: Layout, out: str | None = None) -> str:
        """The tensor that holds a bundle in a layout; its last node makes `out` if that is given.

        Raises:
            Refused: If run-time sizes would be needed to bring it there.
        """
        there = self.placed(bundle)
        if layout in there and out is None:
            return there[layout]
        if layout in there:
            return self._emit.node("Identity", [there[layout]], f"{out}_copy", [out or ""])[0]
        if there:
            source, route = self._nearest(there, self.bulk(bundle), layout)
            if source is not None and route is not None:
                return self._walk(bundle, there[source], route, layout, out)
        pieces = self._homes.pieces(bundle)
        if len(pieces) == 1 and pieces[0].home is not None and pieces[0].home != bundle:
            return self._part(bundle, pieces[0].home, layout, out)
        if len(pieces) == 1 and len(bundle) == 1 and pieces[0].home is None:
            return self._alone(bundle, layout, out)
        if len(pieces) == 1:
            raise Refused("S201", "sizes known only at run time stand in the way of a Reshape")
        return self._join(bundle, pieces, layout, out)

    def _nearest(
        self, there: Iterable[Layout], bulk: Bulk, layout: Layout
    ) -> tuple[Layout | None, tuple[Step, ...] | None]:
        """The layout at hand from which the fewest nodes lead to the one asked for."""
        best: tuple[Layout | None, tuple[Step, ...] | None] = (None, None)
        for source in there:
            route = steps(bulk, source, layout)
            if route is not None and (best[1] is None or effort(route) < effort(best[1])):
                best = (source, route)
        return best

    def _walk(
        self, bundle: Bundle, name: str, route: tuple[Step, ...], layout: Layout, out: str | None
    ) -> str:
        """Emit the steps of a change of layout."""
        hint = f"{bundle[0]}_x{len(bundle)}"
        if not route and out is not None:
            name = self._emit.node("Identity", [name], f"{out}_copy", [out])[0]
        for k, step in enumerate(route):
            last = k == len(route) - 1
            name = self._emit.step(name, step, hint, out if last else None)
        self.put(bundle, layout, name)
        return name

    def _alone(self, bundle: Bundle, layout: Layout, out: str | None) -> str:
        """One value, seen as a bundle of one lane."""
        bulk = self.bulk(bundle)
        route = steps(bulk, plain(len(bulk.shape)), layout)
        if route is None:
            raise Refused("S201", f"{bundle[0]!r} has sizes known only at run time")
        return self._walk(bundle, self.value(bundle[0]), route, layout, out)

    def _part(self, bundle: Bundle, home: Bundle, layout: Layout, out: str | None) -> str:
        """Some lanes of a bundle, in any order: Slice, Split or Gather along the lane axis."""
        where = [home.index(v) for v in bundle]
        straight = where == list(range(where[0], where[0] + len(where)))
        hint = f"{bundle[0]}_x{len(bundle)}"
        if straight and self._split_all(home, len(bundle), layout):
            return self.get(bundle, layout, out)
        source = next(iter(self.placed(home)))
        if len(self._asked_parts(home)) > 1 or not (straight or not is_packed(source)):
            source = layout
        if not straight and is_packed(source):
            source = lead(len(self.bulk(home).shape))
        if not in_blocks(source):
            source = layout if in_blocks(layout) else lead(len(self.bulk(home).shape))
        whole = self.get(home, source)
        axis = lane_axis(source)
        bulk = self.bulk(home)
        unit = 1
        for atom in source[axis]:
            dim = 1 if atom == LANE else bulk.dim(atom)
            if not isinstance(dim, int):
                raise Refused("S201", "lanes lie side by side on an axis of unknown size")
            unit *= dim
        final = out if source == layout else None
        if straight:
            name = self._emit.slice(
                whole, axis, where[0] * unit, (where[-1] + 1) * unit, hint, final
            )
        else:
            name = self._emit.gather(whole, axis, where, hint, final)
        self.put(bundle, source, name)
        if steps(self.bulk(bundle), source, layout) is None:
            raise Refused("S201", "sizes known only at run time stand in the way of a Reshape")
        return name if source == layout else self.get(bundle, layout, out)

    def _asked_parts(self, home: Bundle) -> list[Bundle]:
        """The bundles that groups ask for and that are parts of `home`."""
        members = set(home)
        return [b for b in self._asked if b != home and b[0] in members]

    def tiles(self, home: Bundle) -> list[tuple[int, int]]:
        """The ranges of a bundle that groups ask for, if nobody asks for anything else; else all of it."""
        parts = self._asked_parts(home)
        starts = {p[0]: p for p in parts if p == home[home.index(p[0]) :][: len(p)]}
        found, k = [], 0
        while k < len(home) and home[k] in starts:
            found.append((k, k + len(starts[home[k]])))
            k = found[-1][1]
        tiled = k == len(home) and {home[a:b] for a, b in found} == set(parts)
        return found if tiled and self._wanted.isdisjoint(home) else [(0, len(home))]

    def _split_all(self, home: Bundle, length: int, layout: Layout) -> bool:
        """Cut a bundle into all its equal parts with one Split, if most of them are asked for."""
        count, rest = divmod(len(home), length)
        parts = [home[k * length : (k + 1) * length] for k in range(count)]
        if rest or count < 2 or sum(p in self._asked for p in parts) < 2 or not in_blocks(layout):
            return False
        if any(layout in self._placed.get(p, {}) for p in parts):
            return False
        whole = self.get(home, layout)
        axis = lane_axis(layout)
        size = self.bulk(home).physical(layout)[axis]
        if not isinstance(size, int) and not self._circuit.nonempty:
            return False  # nothing cannot be split
        hint = f"{home[0]}_x{len(home)}_parts"
        outputs = [self._emit.name(f"{p[0]}_x{length}") for p in parts]
        if isinstance(size, int):
            self._emit.split(whole, axis, [size // count] * count, hint, outputs)
        else:
            self._emit.split_evenly(whole, axis, outputs, hint)
        for part, name in zip(parts, outputs, strict=True):
            self.put(part, layout, name)
        return True

    def _join(self, bundle: Bundle, pieces: list[Piece], layout: Layout, out: str | None) -> str:
        """Pieces from several places, side by side along the lane axis."""
        bulk = self.bulk(bundle)
        rank = len(bulk.shape)
        options = [layout, *(packed(rank, a) for a in range(rank)), lead(rank)]
        best: tuple[int, Layout, tuple[Step, ...]] | None = None
        for option in filter(in_blocks, options):
            route = steps(bulk, option, layout)
            if route is None:
                continue
            cost = effort(route) + sum(self._price(p, option) for p in pieces)
            if best is None or cost < best[0]:
                best = (cost, option, route)
        if best is None or best[0] >= _NEVER:
            raise Refused("S201", "lanes with sizes known only at run time cannot be put together")
        _, option, route = best
        names = [self.get(p.lanes, option) for p in pieces]
        hint = f"{bundle[0]}_x{len(bundle)}_concat"
        final = out if not route else None
        name = self._emit.node(
            "Concat", names, hint, 1 if final is None else [final], axis=lane_axis(option)
        )[0]
        self.put(bundle, option, name)
        return self._walk(bundle, name, route, layout, out) if route else name

    def _price(self, piece: Piece, layout: Layout) -> int:
        """Nodes that bring a piece into a layout, roughly: taps and parts count one more."""
        bulk = self.bulk(piece.lanes)
        there = self._placed.get(piece.lanes) or self._placed.get(piece.home or ())
        extra = 0 if piece.lanes in self._placed or piece.home is None else 1
        sources = there or [
            plain(len(bulk.shape)) if len(piece.lanes) == 1 else lead(len(bulk.shape))
        ]
        lengths = [effort(r) for s in sources if (r := steps(bulk, s, layout)) is not None]
        return min(lengths) + extra if lengths else _NEVER

    def value(self, name: str) -> str:
        """A single value by itself; lanes of a batched node are tapped under their own names."""
        if name not in self._homes.made:
            return name
        if name not in self._tapped:
            home = next(b for b in self._homes.groups if name in b)
            self._tap(home, name)
        return self._tapped[name]

    def _tap(self, home: Bundle, name: str) -> None:
        """Bring out the lanes of a bundle that are read by themselves, all at once if that is cheaper."""
        wanted = [
            v
            for v in dict.fromkeys(home)
            if v not in self._tapped and (v in self._wanted or v == name)
        ]
        if len(wanted) == len(home) > 1 and self._tap_all(home):
            return
        for value in wanted:
            self._tapped[value] = self._tap_one(home, value)

    def _tap_all(self, home: Bundle) -> bool:
        """One Split of the lanes side by side, if that takes fewer nodes than one tap a lane."""
        bulk = self.bulk(home)
        rank = len(bulk.shape)
        best: tuple[int, int] | None = None
        for axis in range(rank):
            _, route = self._nearest(self.placed(home), bulk, packed(rank, axis))
            if not isinstance(bulk.shape[axis], int) and not bulk.nonempty:
                continue  # nothing cannot be split
            if route is not None and (best is None or effort(route) < best[0]):
                best = (effort(route), axis)
        if best is None or best[0] + 1 >= len(home):
            return False
        axis = best[1]
        whole = self.get(home, packed(rank, axis))
        size, hint = bulk.shape[axis], f"{home[0]}_x{len(home)}_taps"
        if isinstance(size, int):
            self._emit.split(whole, axis, [size] * len(home), hint, list(home))
        else:
            self._emit.split_evenly(whole, axis, list(home), hint)
        self._tapped.update({v: v for v in home})
        return True

    def _tap_one(self, home: Bundle, value: str) -> str:
        bulk = self.bulk(home)
        rank, where = len(bulk.shape), home.index(value)
        hint = f"{value}_tap"
        for layout, name in self.placed(home).items():
            axis = lane_axis(layout)
            if layout[:axis] + layout[axis + 1 :] == plain(rank) and not is_packed(layout):
                return self._emit.gather(name, axis, where, hint, value)
            size = bulk.shape[axis] if axis < rank else None
            if axis < rank and layout == packed(rank, axis) and isinstance(size, int):
                return self._emit.slice(name, axis, where * size, (where + 1) * size, hint, value)
        return self._emit.gather(self.get(home, lead(rank)), 0, where, hint, value)


_NEVER = 1000
