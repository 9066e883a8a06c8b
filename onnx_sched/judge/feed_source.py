"""Where the inputs of one condition come from: described, so that another process can make them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import ModelProto

from onnx_sched.judge.feeds import Binding, input_specs, load_feeds, make_feeds, plan_sizes

TIMED = 2
"""How many of the default sizes are timed: batch 1 and 32; the odd one is for checking only."""


@dataclass(frozen=True, slots=True)
class FeedSource:
    """One set of inputs.

    Attributes:
        binding: The sizes to make them for; without any where the user gave the inputs.
        seed: Of their numbers.
        inputs: The file or folder that the user gave.
        index: Which of the sets in it.
    """

    binding: Binding
    seed: int = 0
    inputs: Path | None = None
    index: int = 0

    @property
    def input_set(self) -> int | None:
        """Which of the sets that the user gave; None where the inputs are made up."""
        return None if self.inputs is None else self.index

    def load(self, model: ModelProto) -> dict[str, Any]:
        """The inputs by name.

        Raises:
            UsageError: They do not fit the model, or cannot be made.
        """
        if self.inputs is not None:
            return load_feeds(self.inputs, model)[self.index]
        return make_feeds(model, self.binding, self.seed)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "dims": [list(pair) for pair in self.binding.dims],
            "shapes": [[name, list(shape)] for name, shape in self.binding.shapes],
            "seed": self.seed,
            "inputs": None if self.inputs is None else str(self.inputs),
            "index": self.index,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FeedSource:
        """From JSON."""
        dims = tuple((name, size) for name, size in data["dims"])
        shapes = tuple((name, tuple(shape)) for name, shape in data["shapes"])
        inputs = None if data["inputs"] is None else Path(data["inputs"])
        return cls(Binding(dims, shapes), data["seed"], inputs, data["index"])


def feed_sources(
    model: ModelProto,
    *,
    dims: Mapping[str, Sequence[int]],
    shapes: Mapping[str, Sequence[int]],
    inputs: Path | None,
    seed: int,
) -> tuple[tuple[FeedSource, ...], int]:
    """All sets of inputs to check with, and how many of them, from the first on, to time.

    Raises:
        UsageError: A name, a size or a file does not fit the model.
    """
    if inputs is not None:
        count = len(load_feeds(inputs, model))
        none = Binding((), ())
        return tuple(FeedSource(none, seed, inputs, place) for place in range(count)), count
    bindings = plan_sizes(input_specs(model), dims, shapes)
    asked = 1
    for sizes in dims.values():
        asked *= len(sizes)
    timed = min(len(bindings), asked if dims else TIMED)
    return tuple(FeedSource(binding, seed) for binding in bindings), timed
