"""Does the measured choice find the best form of a grouped MLP without being told?

For every width and batch size, all in one run: the original; what `optimize` makes of it by default, asked
for this batch size, also with the promise that no batch is empty, and asked for all sizes at once; every
single form, written by hand; and the forms that the engine makes of a plan.  Then the choice is raced once
more against the best single form alone: fails if it is slower beyond the interval and the noise.  Without
the promise it is held against the forms that an empty batch does not break.

    python -m scripts.bench_forms --json forms.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnx
import onnxruntime

import onnx_sched
from models.mlp import grouped_mlp
from onnx_sched.judge.agree import validate
from onnx_sched.judge.measure import Runner, Speedup, runner
from onnx_sched.judge.significance import SpeedVerdict
from scripts.contest import AGAIN, ORIGINAL, Contest
from scripts.table_forms import EMPTY, PLANNED, Size, by_hand, planned

OURS, PROMISED, TOGETHER = "ours", "ours, not empty", "ours, all sizes"
PLAN = "plan: "
"""In front of the forms that the engine makes of a plan."""

Models = dict[str, Path]


@dataclass(frozen=True, slots=True)
class Duel:
    """Our choice against the best single form, by themselves.

    Attributes:
        ours, best: Who.
        same: Whether both are one model to the byte.
        found: How much faster ours is.
        floor: The best form against its twin.
        verdict: What that says of ours.
    """

    ours: str
    best: str
    same: bool
    found: Speedup
    floor: Speedup
    verdict: SpeedVerdict

    @property
    def lost(self) -> bool:
        """Whether ours is slower."""
        return self.verdict == "slower" and not self.same


@dataclass(frozen=True, slots=True)
class Cell:
    """All that was measured at one size."""

    width: int
    batch: int
    floor: Speedup
    gains: Mapping[str, Speedup]
    duels: tuple[Duel, ...]


class Bench:
    """Makes the models of one width, and races them."""

    def __init__(self, size: Size, options: argparse.Namespace, folder: Path) -> None:
        self._size = size
        self._options = options
        self._folder = folder
        self._model = grouped_mlp(layers=size.layers, groups=size.groups, width=size.width)
        self._forms = {ORIGINAL: self._write(ORIGINAL, self._model)}
        self._together: Path | None = None

    def cell(self, batch: int) -> Cell:
        """Race everything at one batch size."""
        shape = (batch, self._size.features)
        feeds = {"x": np.random.default_rng(batch).standard_normal(shape).astype(np.float32)}
        models = {**self._single_forms(), **self._ours(batch)}
        self._agree(models, feeds)
        makers = {name: self._maker(path, feeds) for name, path in models.items()}
        contest = Contest({**makers, AGAIN: makers[ORIGINAL]})
        contest.run(self._options.pairs, self._options.openings)
        gains = {name: contest.gain(name) for name in models if name != ORIGINAL}
        duels = (
            self._duel(OURS, best_of(rivals(self._forms), gains), models, makers),
            self._duel(PROMISED, best_of(self._forms, gains), models, makers),
        )
        return Cell(self._size.width, batch, contest.floor, gains, duels)

    def _duel(
        self, ours: str, best: str, models: Models, makers: Mapping[str, Callable[[], Runner]]
    ) -> Duel:
        """Race two alone: who was the best of many was lucky, too."""
        contest = Contest({ORIGINAL: makers[best], AGAIN: makers[best], ours: makers[ours]}, seed=1)
        contest.run(self._options.pairs, self._options.openings)
        same = models[ours].read_bytes() == models[best].read_bytes()
        found, said = contest.gain(ours), contest.verdict(ORIGINAL, ours)
        return Duel(ours, best, same, found, contest.floor, said)

    def _maker(self, path: Path, feeds: Mapping[str, Any]) -> Callable[[], Runner]:
        return partial(runner, path, feeds, self._options.provider, self._options.threads)

    def _single_forms(self) -> Models:
        """The original, and every single form; made once."""
        if len(self._forms) == 1:
            for name, model in by_hand(self._model, self._size).items():
                self._forms[name] = self._write(name, model)
            for form in PLANNED:
                made = planned(self._model, form, self._options.provider)
                self._forms[PLAN + form] = self._write(f"planned_{form}", made)
        return self._forms

    def _ours(self, batch: int) -> Models:
        """What `optimize` makes of the original: asked for this size, and once for all sizes."""
        if self._together is None:
            self._together = self._optimized("together", self._options.batches)
        return {
            OURS: self._optimized("ours", [batch]),
            PROMISED: self._optimized("promised", [batch], nonempty=True),
            TOGETHER: self._together,
        }

    def _optimized(self, stem: str, batches: Sequence[int], nonempty: bool = False) -> Path:
        result = onnx_sched.optimize(
            self._model,
            provider=self._options.provider,
            dims={"batch": tuple(batches)},
            threads=(self._options.threads,),
            time_limit=self._options.time_limit,
            nonempty=nonempty,
        )
        return self._write(stem, result.proto)

    def _write(self, stem: str, model: onnx.ModelProto) -> Path:
        path = self._folder / f"{stem}.onnx"
        path.write_bytes(model.SerializeToString(deterministic=True))
        return path

    def _agree(self, models: Models, feeds: Mapping[str, Any]) -> None:
        for name, path in models.items():
            found = validate(models[ORIGINAL], path, [feeds], self._options.provider)
            if found.verdict not in ("bitwise", "within_tolerance"):
                raise SystemExit(f"{name}, width {self._size.width}: {found.reason}")


def rivals(names: Iterable[str]) -> list[str]:
    """Those that an empty batch does not break."""
    return [n for n in names if n in (ORIGINAL, *EMPTY) or n.startswith(PLAN)]


def best_of(names: Iterable[str], gains: Mapping[str, Speedup]) -> str:
    """Who gains the most; the original gains nothing."""
    return max(names, key=lambda n: 1.0 if n == ORIGINAL else gains[n].ratio)


def lines(cell: Cell) -> list[str]:
    """A cell for people."""
    before = next(iter(cell.gains.values())).before_us
    yields = [
        f"width {cell.width}, batch {cell.batch}: original {before:.1f} us, A/A {cell.floor.words}"
    ]
    yields += [f"  {name:24} {gain.words}" for name, gain in cell.gains.items()]
    for duel in cell.duels:
        said = "the same model" if duel.same else duel.verdict.replace("_", " ")
        yields.append(
            f"  {duel.ours} against {duel.best}: {duel.found.words}, A/A {duel.floor.words}: {said}"
        )
    return yields


def table(cells: Sequence[Cell]) -> str:
    """All ratios as Markdown."""
    names = list(cells[0].gains)
    rows = [["width, batch", *names], ["---"] * (len(names) + 1)]
    for cell in cells:
        rows.append([f"{cell.width}, {cell.batch}", *(cell.gains[n].words for n in names)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--provider", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=120, help="of each race")
    parser.add_argument("--openings", type=int, default=6, help="of all sessions, in each race")
    parser.add_argument("--time-limit", type=float, default=60.0, help="of one optimisation")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 1 if our choice is slower than the best single form anywhere."""
    options = parsed(arguments)
    cells: list[Cell] = []
    for width in options.widths:
        with tempfile.TemporaryDirectory(prefix="onnx-sched-") as folder:
            size = Size(options.layers, options.groups, width)
            bench = Bench(size, options, Path(folder))
            for batch in options.batches:
                cells.append(bench.cell(batch))
                print(*lines(cells[-1]), sep="\n", flush=True)
                if options.json:
                    write(options, cells)
    print(table(cells))
    lost = [(c, d) for c in cells for d in c.duels if d.lost]
    for cell, duel in lost:
        print(f"slower: {duel.ours} than {duel.best} at width {cell.width}, batch {cell.batch}")
    won = sum(len(c.duels) for c in cells) - len(lost)
    print(f"at least as fast as the best single form in {won} of {won + len(lost)} duels")
    return 1 if lost else 0


def write(options: argparse.Namespace, cells: Sequence[Cell]) -> None:
    """Write what is known so far."""
    data = {
        "layers": options.layers,
        "groups": options.groups,
        "provider": options.provider,
        "threads": options.threads,
        "onnxruntime": onnxruntime.__version__,
        "cells": [asdict(cell) for cell in cells],
    }
    options.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
