"""The drawing of a circuit as data: wires are rows, parallel layers are columns, ops are boxes.

A `Picture` says what is to be seen, a `Layout` where: in whole units of whoever draws, cells of a
terminal or pixels.  `layout.lay_out` makes one from the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from onnx_sched.errors import SchedError

Kind = Literal["op", "join", "batched", "view"]


@dataclass(frozen=True, slots=True)
class Box:
    """One node.

    Attributes:
        label: Its op type.
        wires: The wires that it touches, ascending, at least one.
        layer: Its column.
        kind: "op" on one wire, "join" on several, "batched" for many nodes in one, "view" for no work.
        lanes: How many a batched node stands for; 1 for others.
        names: Names of the nodes behind it.

    Raises:
        SchedError: If the wires are none, negative or not ascending, the layer is negative, or the
            lanes are fewer than 1.
    """

    label: str
    wires: tuple[int, ...]
    layer: int
    kind: Kind = "op"
    lanes: int = 1
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.wires or self.wires[0] < 0 or list(self.wires) != sorted(set(self.wires)):
            raise SchedError(
                f"box {self.label!r}: wires {self.wires} are not one or more, ascending"
            )
        if self.layer < 0 or self.lanes < 1:
            raise SchedError(f"box {self.label!r}: layer {self.layer}, {self.lanes} lanes")


@dataclass(frozen=True, slots=True)
class Picture:
    """What is to be drawn.

    Attributes:
        wires: Number of wires.
        layers: Number of layers, that is columns.
        boxes: In any order; boxes of one layer touch no common wire.
        title: A line about the whole.
        headings: What stands above each layer; L0, L1, ... if empty.

    Raises:
        SchedError: If a box lies outside, two of one layer share a wire, or headings are missing.
    """

    wires: int
    layers: int
    boxes: tuple[Box, ...]
    title: str = ""
    headings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.headings and len(self.headings) != self.layers:
            raise SchedError(f"{len(self.headings)} headings for {self.layers} layers")
        owner: dict[tuple[int, int], Box] = {}
        for box in self.boxes:
            if box.layer >= self.layers or box.wires[-1] >= self.wires:
                raise SchedError(
                    f"box {box.label!r} in layer {box.layer} on wires {box.wires} lies outside "
                    f"{self.layers} layers and {self.wires} wires"
                )
            for wire in box.wires:
                other = owner.setdefault((box.layer, wire), box)
                if other is not box:
                    raise SchedError(
                        f"boxes {other.label!r} and {box.label!r} of layer {box.layer} share wire {wire}"
                    )

    def heading(self, layer: int) -> str:
        """What stands above a layer."""
        return self.headings[layer] if self.headings else f"L{layer}"


@dataclass(frozen=True, slots=True)
class Metrics:
    """Sizes that only the one who draws knows.

    Attributes:
        box: Width of a box around its label.
        text: Width of a heading.
        gutter: Between neighbours in a row.
        frame: Width of an edge of the frame around repeats.
        margin: Left and right of everything.
    """

    box: Callable[[Box], int]
    text: Callable[[str], int]
    gutter: int
    frame: int
    margin: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A box in its place: `rows` ascending, `x` to `x + width`; `cut` if it has wires left out."""

    box: Box
    rows: tuple[int, ...]
    x: int
    width: int
    cut: bool

    @property
    def several(self) -> bool:
        """Whether it stands on several wires, shown or not."""
        return len(self.box.wires) > 1

    @property
    def top(self) -> int:
        """Its first row."""
        return self.rows[0]

    @property
    def bottom(self) -> int:
        """Its last row; rows between that are not in `rows` belong to wires that pass."""
        return self.rows[-1]


@dataclass(frozen=True, slots=True)
class Segment:
    """A wire in use from `start` to `stop`; it may come from the band before or go on in the next."""

    row: int
    start: int
    stop: int
    comes: bool
    goes: bool


@dataclass(frozen=True, slots=True)
class Heading:
    """What stands above a layer; `wide` where the layer takes several columns."""

    text: str
    x: int
    width: int
    wide: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """Repeats drawn once, from `x` to `x + width`; an edge is missing where a band ends inside."""

    text: str
    times: int
    x: int
    width: int
    opens: bool
    closes: bool


@dataclass(frozen=True, slots=True)
class Band:
    """As many columns as fit beside each other."""

    label: str
    width: int
    boxes: tuple[Placed, ...]
    segments: tuple[Segment, ...]
    headings: tuple[Heading, ...]
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole drawing: the wire of each row, bands one below the other, and what is not shown."""

    rows: tuple[int, ...]
    bands: tuple[Band, ...]
    left_out: tuple[str, ...]
