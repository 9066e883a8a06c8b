"""Does `compare` tell noise from a difference, on this machine, today?  A check by hand: it takes real time.

A model is compared with itself: at most 1 in 20 runs may claim a difference.  Then with a copy that has
50 nodes more: every run must say slower.

    python -m scripts.check_compare models/mmoe.onnx --runs 20 --repeat 50
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnx
from onnx import ModelProto, helper

from onnx_sched.judge.compare import CompareOptions, compare


def repeated(model: ModelProto, times: int) -> ModelProto:
    """A copy with a chain of `times` more nodes in front of its first output.

    An even number of Neg gives the same bits, and ONNX Runtime leaves none of them out.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    output = copy.graph.output[0].name
    names = [f"{output}/again/{count}" for count in range(times)] + [output]
    for node in copy.graph.node:
        for own in (node.input, node.output):
            for place, name in enumerate(own):
                if name == output:
                    own[place] = names[0]
    for before, after in itertools.pairwise(names):
        copy.graph.node.append(helper.make_node("Neg", [before], [after], name=after))
    return copy


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 1 if `compare` was wrong too often."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=50, help="nodes more in the slower copy")
    parser.add_argument("--pairs", type=int, default=240)
    parser.add_argument("--budget", type=float, default=6.0)
    parser.add_argument("--launches", type=int, default=1)
    parser.add_argument("--provider", default="cpu")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        slow = Path(folder) / "slow.onnx"
        model = onnx.load(str(given.model))
        onnx.save(repeated(model, given.repeat - given.repeat % 2), str(slow))
        wrong = [_race(given, slow if late else given.model, late) for late in (False, True)]
    print(f"claimed of equal models: {wrong[0]} of {given.runs}; missed of slower ones: {wrong[1]}")
    return 1 if wrong[0] > given.runs / 20 or wrong[1] else 0


def _race(given: argparse.Namespace, other: Path, late: bool) -> int:
    """Compare several times; how many runs got it wrong."""
    wrong = 0
    for seed in range(given.runs if not late else min(given.runs, 3)):
        options = CompareOptions(
            given.provider,
            seed=seed,
            pairs=given.pairs,
            budget=given.budget,
            processes=given.launches,
        )
        found = compare(given.model, other, options)
        for row in found.latency:
            said, floor = row.speedup, row.floor
            print(
                f"{found.before.name} -> {other.name}, "
                f"{row.label}: "
                f"{said.ratio:.3f}x [{said.low:.3f}, {said.high:.3f}] {row.verdict}, "
                f"A/A [{floor.low:.3f}, {floor.high:.3f}], {said.pairs} pairs",
                flush=True,
            )
        wanted = "slower" if late else "not_significant"
        wrong += any(row.verdict != wanted for row in found.latency)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
