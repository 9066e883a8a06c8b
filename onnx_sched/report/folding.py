"""How a drawing is arranged before it has any size: repeats folded, rows sorted, overlaps moved apart.

Pure functions of numbers: a column is a number that says what it looks like, a box the rows it spans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

LONGEST = 256
"""The longest block, in columns, whose repeats are looked for: keeps the search linear."""

_FRAME = 1
"""What a frame costs in columns: two equal columns side by side are clearer without one."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Columns `start` to `start + period - 1`, which stand there `times` times in a row."""

    start: int
    period: int
    times: int

    @property
    def stop(self) -> int:
        """The column after the last repeat."""
        return self.start + self.period * self.times


def folds(looks: Sequence[int]) -> tuple[Fold, ...]:
    """The repeats to fold so that the fewest columns are left, leftmost first.

    With cost(i) the columns needed to draw the columns from i on:
    cost(i) = min(1 + cost(i+1), min over periods p of p + 1 + cost(i + p*k)), k repeats from i on.

    >>> folds([0, 1, 2, 3, 1, 2, 3, 1, 2, 3, 4])
    (Fold(start=1, period=3, times=3),)
    >>> folds([0, 0, 1, 2])
    ()

    Args:
        looks: For each column a number that says what it looks like.
    """
    count = len(looks)
    cost = [0] * (count + 1)
    choice: list[Fold | None] = [None] * count
    equal = [0] * (LONGEST + 1)  # by period p: columns from i on that look like the one p further
    for i in range(count - 1, -1, -1):
        cost[i] = 1 + cost[i + 1]
        for p in range(1, min(LONGEST, count - i - 1) + 1):
            equal[p] = equal[p] + 1 if looks[i] == looks[i + p] else 0
            times = 1 + equal[p] // p
            if times > 1 and (folded := p + _FRAME + cost[i + p * times]) < cost[i]:
                cost[i], choice[i] = folded, Fold(i, p, times)
    found: list[Fold] = []
    i = 0
    while i < count:
        fold = choice[i]
        if fold is not None:
            found.append(fold)
        i = fold.stop if fold is not None else i + 1
    return tuple(found)


def row_order(wires: Sequence[int], supports: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """An order of the wires in which boxes pass over fewer wires that are not theirs.

    Supports are taken smallest first, and each puts the blocks of rows that it touches one below the
    other; for supports of which any two are nested or disjoint nothing is passed over any more.  The
    numbers' own order is kept where that does not help.

    >>> row_order(range(6), [(0, 4), (1, 5), (2, 3)])
    (0, 4, 1, 5, 2, 3)

    Args:
        wires: The wires that are drawn, ascending.
        supports: For each box its wires among them, ascending.
    """
    counts = Counter(s for s in supports if len(s) > 1)
    if not _passed(wires, counts):
        return tuple(wires)
    block = {w: [w] for w in wires}
    for support in sorted(counts, key=lambda s: (len(s), -counts[s], s)):
        parts = {block[w][0]: block[w] for w in support}
        joined = [w for first in sorted(parts) for w in parts[first]]
        block.update(dict.fromkeys(joined, joined))
    found = tuple(w for first in wires if block[first][0] == first for w in block[first])
    return found if _passed(found, counts) < _passed(wires, counts) else tuple(wires)


def _passed(order: Sequence[int], counts: Counter[tuple[int, ...]]) -> int:
    """Rows that boxes pass over, over all boxes."""
    place = {w: n for n, w in enumerate(order)}
    total = 0
    for support, count in counts.items():
        rows = [place[w] for w in support]
        total += count * (max(rows) - min(rows) + 1 - len(rows))
    return total


def slots(spans: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """For each span of rows (first, last) of one layer the column that it gets; overlaps part.

    >>> slots([(0, 1), (2, 5), (4, 7)])
    (0, 0, 1)
    """
    found = [0] * len(spans)
    last: list[int] = []  # by column: the last row in use
    for k in sorted(range(len(spans)), key=lambda k: spans[k]):
        top, bottom = spans[k]
        slot = next((n for n, row in enumerate(last) if row < top), len(last))
        last[slot : slot + 1] = [bottom]
        found[k] = slot
    return tuple(found)
