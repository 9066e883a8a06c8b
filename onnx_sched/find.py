"""Find what can run together: groups of alike, independent units, and the regions they form.

Superword-level parallelism, level by level.  Units of one level and one signature are candidates; those
whose operands come from the same place (lanes of one group, cuts of one tensor, one shared value, values
of their own) become a group.  Heavy units are worth it by themselves; light ones join where they carry
lanes on, forwards as the levels go up, backwards where a group asks for what they make.

All groups lie inside levels of one level function, so that any family of them may be contracted (T3).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.likeness import likeness, wide_key
from onnx_sched.passes.rules import rule_for
from onnx_sched.plan import Group
from onnx_sched.signature import Signature
from onnx_sched.views import openings

Skip = Callable[[Unit], bool]

PATH = 64
"""How many steps ahead members are compared to put alike ones side by side."""


@dataclass(slots=True)
class _Draft:
    """A group being found."""

    units: tuple[Unit, ...]
    level: int


@dataclass
class Finder:
    """Finds groups under one level function.

    Attributes:
        circuit: Where to look.
        levels: By unit: its level.
        skip: Units that must stay as they are.
    """

    circuit: Circuit
    levels: Sequence[int]
    skip: Skip
    _drafts: list[_Draft] = field(default_factory=list)
    _draft_of: dict[int, int] = field(default_factory=dict)
    _home: dict[str, tuple[Hashable, int]] = field(default_factory=dict)
    _bucket: dict[int, tuple[int, Signature]] = field(default_factory=dict)
    _paths: dict[int, tuple[Hashable, ...]] = field(default_factory=dict)

    def run(self) -> tuple[Group, ...]:
        """All groups, in the order of their levels; each with the number of its region."""
        for n, (bundle, _, _) in enumerate(openings(self.circuit)):
            for position, value in enumerate(bundle):
                self._home.setdefault(value, (("view", n), position))
        buckets: dict[tuple[int, Signature], list[Unit]] = {}
        for unit in self.circuit.units:
            sign = None if self.skip(unit) else likeness(self.circuit, unit)
            if sign is not None:
                key = (self.levels[unit.number], sign)
                self._bucket[unit.number] = key
                buckets.setdefault(key, []).append(unit)
        for key in sorted(buckets, key=lambda k: (k[0], buckets[k][0].number)):
            if len(buckets[key]) > 1:
                self._fill(key[0], buckets[key])
        groups = [Group(d.units, form_of(d.units), d.level) for d in self._drafts]
        groups = self._widened(groups)
        groups.sort(key=lambda g: (g.level, min(u.number for u in g.units)))
        return regions(groups)

    def _widened(self, groups: Sequence[Group]) -> list[Group]:
        """Put products of one value side by side although their widths differ."""
        found: dict[Hashable, list[tuple[Unit, ...]]] = {}
        rest: list[Group] = []
        for group in groups:
            key = self._wide_key(group.units[0]) if group.form in ("wide", "wide_conv") else None
            if key is None:
                rest.append(group)
            else:
                found.setdefault(key, []).append(group.units)
        for unit in self.circuit.units:
            if unit.number not in self._draft_of and unit.number in self._bucket:
                key = self._wide_key(unit)
                if key is not None:
                    found.setdefault(key, []).append((unit,))
        for parts in found.values():
            parts.sort(key=lambda p: (len(p) > 1, self._path(p[0]), p[0].number))
            units = tuple(u for p in parts for u in p)
            if len(units) > 1:
                level = self.levels[units[0].number]
                segments = tuple(map(len, parts)) if len(parts) > 1 else ()
                rest.append(Group(units, form_of(units), level, 0, segments))
        return rest

    def _wide_key(self, unit: Unit) -> Hashable:
        """What products must share to stand side by side, their level included; None if they cannot."""
        key = wide_key(unit)
        return None if key is None else (self.levels[unit.number], key)

    def _fill(self, level: int, units: Sequence[Unit]) -> None:
        """Cut one bucket into groups by where the members' operands come from."""
        free = [u for u in units if u.number not in self._draft_of]
        rule = rule_for(units[0])
        assert rule is not None
        counts: dict[tuple[int, str], int] = {}
        for unit in free:
            for k, operand in enumerate(unit.operands):
                if isinstance(operand, str):
                    counts[k, operand] = counts.get((k, operand), 0) + 1
        parts: dict[tuple[Hashable, ...], list[Unit]] = {}
        for unit in free:
            parts.setdefault(self._classes(unit, counts), []).append(unit)
        rest = [p[0] for p in parts.values() if len(p) == 1]
        for classes, part in parts.items():
            if len(part) > 1 and (rule.heavy or any(map(_is_lane, classes))):
                self._group(part, level)
        if rule.heavy and len(rest) > 1:
            self._group(rest, level)

    def _classes(self, unit: Unit, counts: Mapping[tuple[int, str], int]) -> tuple[Hashable, ...]:
        """Where each operand comes from: ("pack" or "view", which), ("shared", value) or a word."""
        found: list[Hashable] = []
        for k, operand in enumerate(unit.operands):
            if not isinstance(operand, str):
                found.append(None)
            elif counts[k, operand] > 1 and operand not in self._home:
                found.append(self._shared(k, operand, counts))
            elif operand in self._home:
                found.append(self._home[operand][0])
            else:
                found.append("single")
        return tuple(found)

    def _shared(self, k: int, operand: str, counts: Mapping[tuple[int, str], int]) -> Hashable:
        """The class of the readers of one value: their own, unless other values have as many readers each.

        Those are lanes as well, such as experts of which each makes a gate and what it gates of its input.
        """
        count = counts[k, operand]
        same = (o for (j, o), c in counts.items() if (j, c) == (k, count) and o not in self._home)
        return "several" if sum(1 for _ in same) > 1 else ("shared", operand)

    def _group(self, units: Sequence[Unit], level: int) -> None:
        """Make a group of units in their lane order, and of what its operands ask for."""
        ordered = self._ordered(units)
        self._add(_Draft(ordered, level))
        todo = [ordered]
        while todo:
            group = todo.pop()
            for k in range(len(group[0].operands)):
                for wanted in self._asked(group, k):
                    self._add(_Draft(wanted, self.levels[wanted[0].number]))
                    todo.append(wanted)

    def _add(self, draft: _Draft) -> None:
        number = len(self._drafts)
        self._drafts.append(draft)
        for position, unit in enumerate(draft.units):
            self._draft_of[unit.number] = number
            for j, output in enumerate(unit.outputs):
                if output:
                    self._home[output] = (("pack", number, j), position)

    def _asked(self, group: Sequence[Unit], k: int) -> list[tuple[Unit, ...]]:
        """Alike light units that make operand k of several lanes and are in no group yet."""
        found: dict[Hashable, dict[int, Unit]] = {}
        for unit in group:
            operand = unit.operands[k] if k < len(unit.operands) else None
            maker = self.circuit.maker.get(operand) if isinstance(operand, str) else None
            if maker is None or maker.number in self._draft_of or maker.number not in self._bucket:
                continue
            rule = rule_for(maker)
            if rule is None or rule.heavy:
                continue
            output = maker.outputs.index(operand) if operand in maker.outputs else -1
            key = (self._bucket[maker.number], output)
            found.setdefault(key, {}).setdefault(maker.number, maker)
        return [tuple(units.values()) for units in found.values() if len(units) > 1]

    def _ordered(self, units: Sequence[Unit]) -> tuple[Unit, ...]:
        """Lane order: by what lies ahead, then the places of the lanes that operands come from.

        Units that read the same lanes (a gate and its skip) are told apart by what lies ahead of them,
        so that what is read together stands together.
        """
        alike: dict[tuple[int, ...], list[Unit]] = {}
        for unit in units:
            alike.setdefault(self._places(unit), []).append(unit)
        found: list[tuple[int, tuple[int, ...], Unit]] = []
        for places, same in alike.items():
            if len(same) > 1:
                same.sort(key=lambda u: (self._path(u), u.number))
            found += [(turn, places, unit) for turn, unit in enumerate(same)]
        return tuple(unit for _, _, unit in sorted(found, key=lambda f: f[:2]))

    def _places(self, unit: Unit) -> tuple[int, ...]:
        """Where among their lanes the operands stand."""
        return tuple(
            self._home[o][1] for o in unit.operands if isinstance(o, str) and o in self._home
        )

    def _path(self, unit: Unit) -> tuple[Hashable, ...]:
        """What reads the result, and what reads that: alike members get alike paths."""
        if unit.number not in self._paths:
            found: list[tuple[str, int]] = []
            at: Unit | None = unit
            while at is not None and len(found) < PATH:
                users = self.circuit.users.get(at.outputs[0], ()) if at.outputs else ()
                users = tuple(u for u in users if not self._is_size(u[0]))
                if not users:
                    if at.outputs and at.outputs[0] in self.circuit.graph.output_set:
                        found.append(("", self.circuit.graph.outputs.index(at.outputs[0])))
                    break
                at, k = users[0]
                found.append((at.kind, k))
            self._paths[unit.number] = tuple(found)
        return self._paths[unit.number]

    def _is_size(self, unit: Unit) -> bool:
        """Whether a unit only asks how large a value is: of equal answers, one lane alone may give it."""
        return any(o in self.circuit.values.ints for o in unit.outputs)


def regions(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Number the regions: groups that hand on at least two lanes to each other share one."""
    maker = {o: n for n, g in enumerate(groups) for u in g.units for o in u.outputs if o}
    parent = list(range(len(groups)))

    def root(n: int) -> int:
        while parent[n] != n:
            parent[n] = parent[parent[n]]
            n = parent[n]
        return n

    for n, group in enumerate(groups):
        for k in range(len(group.units[0].operands)):
            met: dict[int, int] = {}
            for unit in group.units:
                operand = unit.operands[k]
                other = maker.get(operand) if isinstance(operand, str) else None
                if other is not None:
                    met[other] = met.get(other, 0) + 1
            for other, count in met.items():
                if count > 1:
                    a, b = sorted((root(n), root(other)))
                    parent[b] = a
    numbers: dict[int, int] = {}
    return tuple(
        replace(group, region=numbers.setdefault(root(n), len(numbers)))
        for n, group in enumerate(groups)
    )


def heavy_regions(groups: Sequence[Group]) -> set[int]:
    """The regions that hold a heavy group; only these are worth a boundary by themselves."""
    return {g.region for g in groups if is_heavy(g.units[0])}


def is_heavy(unit: Unit) -> bool:
    """Whether a unit is worth a group by itself."""
    rule = rule_for(unit)
    return rule is not None and rule.heavy


def _is_lane(origin: Hashable) -> bool:
    """Whether an operand comes from lanes that are together already."""
    return isinstance(origin, tuple) and origin[0] != "shared"


def form_of(units: Sequence[Unit]) -> str:
    """How a group will be run."""
    first = units[0].operands[0] if units[0].operands else None
    shared = isinstance(first, str) and all(u.operands[0] == first for u in units)
    if units[0].kind == "Conv":
        return "wide_conv" if shared else "grouped_conv"
    return "wide" if units[0].kind == "Linear" and shared else "stacked"
