"""Race original against optimised models of some folders, all in one run.

For every model and condition (batch size, number of threads): the ratio of interleaved pairs with a 95%
interval, the noise (the original against itself), and what bounds the result: weights read, dispatches or
the runtime's kernels.  In the end, per condition: geometric means over all models, over those with an
opportunity (something could legally be batched) and over those that changed, and how many are slower.

A model counts as slower where the interval of its speed-up reaches below 0.98; what is unchanged is a byte
copy and only gives the noise.

    python -m scripts.bench_corpus models --batch 1 32 --threads 1 2 --json bench.json --plot bench.svg
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np

import onnx_sched
from onnx_sched.calibrate import calibrate
from onnx_sched.cost import Device, load
from onnx_sched.errors import SchedError
from onnx_sched.judge.compare import read_model
from onnx_sched.judge.environment import environment
from onnx_sched.judge.feeds import Binding, input_specs, make_feeds, plan_sizes
from onnx_sched.judge.measure import Runner, Speedup, runner
from onnx_sched.judge.provider import select_provider
from scripts.bounds import Bound, bound
from scripts.compare_latency import complain, dims_of, files
from scripts.contest import AGAIN, ORIGINAL, Contest

OPTIMISED = "optimised"

SLOWEST = 0.98
"""The interval of a speed-up must not reach below."""

LOOKS = 4
"""How often more pairs are taken, at most, while an interval holds `SLOWEST`."""

LEGAL = frozenset({"S303", "S304", "S305", "S900", "S901"})
"""Refusals of what could legally be batched."""


@dataclass(frozen=True, slots=True)
class Row:
    """One model under one condition.

    Attributes:
        model, batch, threads: What and where; no batch for a model of fixed sizes.
        nodes_before, nodes_after: Of the files.
        changed: Whether it was rewritten.
        opportunity: Whether something could legally be batched.
        speedup: Over the original; of the original over itself if nothing changed.
        floor: The original against itself.
        bound: What keeps the result from being faster.
    """

    model: str
    batch: int | None
    threads: int
    nodes_before: int
    nodes_after: int
    changed: bool
    opportunity: bool
    speedup: Speedup
    floor: Speedup
    bound: Bound

    @property
    def ratio(self) -> float:
        """The speed-up; a copy is as fast as what it is copied from."""
        return self.speedup.ratio if self.changed else 1.0

    @property
    def slower(self) -> bool:
        """Whether it may be slower than allowed."""
        return self.changed and self.speedup.low < SLOWEST

    def line(self) -> str:
        """For people."""
        s = self.speedup
        if self.changed:
            said = f"{s.before_us:9.1f} us {s.after_us:9.1f} us  {s.words}"
        else:
            said = f"{s.before_us:9.1f} us  unchanged"
        return (
            f"{self.model:34} batch {self.batch or 'fixed'!s:5} threads {self.threads} "
            f"nodes {self.nodes_before:4} -> {self.nodes_after:4}  {said}"
            f"  A/A [{self.floor.low:.2f}, {self.floor.high:.2f}]"
            f"{'  SLOWER' if self.slower else ''}\n    {self.bound.words()}"
        )


def bindings(path: Path, batches: Sequence[int]) -> list[tuple[int | None, Binding]]:
    """One set of sizes for every batch size; a fixed model has just one, without a number."""
    specs, dims = input_specs(read_model(path)), dims_of(path, batches)
    if not dims:
        return [(None, plan_sizes(specs)[0])]
    return [(b, plan_sizes(specs, dict.fromkeys(dims, (b,)))[0]) for b in batches]


def bench(
    path: Path, options: argparse.Namespace, folder: Path, devices: Mapping[int, Device]
) -> list[Row]:
    """Optimise one model and race it.

    Raises:
        SchedError: The model cannot be optimised or run.
    """
    result = onnx_sched.optimize(
        path,
        choose=options.choose,
        provider=options.provider,
        time_limit=options.time_limit,
        threads=tuple(options.threads),
        dims=dims_of(path, options.batch),
    )
    out = folder / path.name
    result.save(out)
    report = result.report
    opportunity = result.changed or any(r.code in LEGAL for r in report.refusals)
    rows = []
    for batch, binding in bindings(path, options.batch):
        feeds = make_feeds(read_model(path), binding, seed=1)
        for threads in options.threads:
            speedup, floor = raced(path, out if result.changed else None, feeds, threads, options)
            limit = bound(
                out, feeds, options.provider, threads or None, devices[threads], speedup.after_us
            )
            rows.append(
                Row(
                    path.stem,
                    batch,
                    threads,
                    report.nodes.before or 0,
                    report.nodes.after or 0,
                    result.changed,
                    opportunity,
                    speedup,
                    floor,
                    limit,
                )
            )
    return rows


def raced(
    before: Path,
    after: Path | None,
    feeds: Mapping[str, Any],
    threads: int,
    options: argparse.Namespace,
) -> tuple[Speedup, Speedup]:
    """The speed-up, and the original against itself, which is all if there is no other model."""

    def maker(path: Path) -> Callable[[], Runner]:
        return partial(runner, path, feeds, options.provider, threads or None)

    makers = {ORIGINAL: maker(before), AGAIN: maker(before)}
    if after is not None:
        makers[OPTIMISED] = maker(after)
    contest = Contest(makers)
    judged = OPTIMISED if after is not None else AGAIN
    for _ in range(LOOKS if after is not None else 1):
        contest.run(options.pairs, options.openings)
        found = contest.gain(judged)
        if not found.low < SLOWEST < found.high:
            break
    return found, contest.floor


def geometric(rows: Sequence[Row]) -> float:
    """Geometric mean of the speed-ups; 1 for none."""
    return float(np.exp(np.mean([np.log(r.ratio) for r in rows]))) if rows else 1.0


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Per condition: geometric means, and which models are slower."""
    found = []
    for batch, threads in dict.fromkeys((r.batch, r.threads) for r in rows):
        here = [r for r in rows if (r.batch, r.threads) == (batch, threads)]
        open_to = [r for r in here if r.opportunity]
        changed = [r for r in here if r.changed]
        slower = [r.model for r in here if r.slower]
        found.append(
            {
                "batch": batch,
                "threads": threads,
                "models": len(here),
                "opportunity": len(open_to),
                "changed": len(changed),
                "geometric_mean": round(geometric(here), 4),
                "geometric_mean_opportunity": round(geometric(open_to), 4),
                "geometric_mean_changed": round(geometric(changed), 4),
                "number_slower": len(slower),
                "slower": slower,
            }
        )
    return found


def told(line: Mapping[str, Any]) -> str:
    """A line of the summary for people."""
    return (
        f"batch {line['batch'] or 'fixed'}, {line['threads']} thread(s): geometric mean "
        f"{line['geometric_mean']:.2f}x over {line['models']} models, "
        f"{line['geometric_mean_opportunity']:.2f}x over {line['opportunity']} with an opportunity, "
        f"{line['geometric_mean_changed']:.2f}x over {line['changed']} that changed; "
        f"slower: {line['number_slower']} {' '.join(line['slower'])}".rstrip()
    )


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("models", nargs="+", type=Path, help="folders or .onnx files")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1, 2], help="0: the runtime's choice"
    )
    parser.add_argument("--provider", default="cpu")
    parser.add_argument("--choose", default="measured", choices=["measured", "model", "always"])
    parser.add_argument("--time-limit", type=float, default=60.0, help="of optimising, per model")
    parser.add_argument("--pairs", type=int, default=60, help="of each race")
    parser.add_argument("--openings", type=int, default=6, help="of all sessions, in each race")
    parser.add_argument("--target", help="device profile for the bounds; measured now if not given")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help=".png or .svg (needs matplotlib)")
    options = parser.parse_args(arguments)
    if options.plot and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install 'onnx-sched[dev]'")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 1 if a model is slower, or else the code of the first model's error."""
    options = parsed(arguments)
    rows: list[Row] = []
    errors: dict[str, SchedError] = {}
    begin = time.perf_counter()
    try:
        provider = select_provider(options.provider).name
        paths = files(options.models)
        devices = {
            n: load(options.target) if options.target else calibrate(provider, "this machine", n)
            for n in options.threads
        }
    except SchedError as error:
        return complain("error", error)
    with tempfile.TemporaryDirectory(prefix="onnx-sched-") as folder:
        for path in paths:
            try:
                found = bench(path, options, Path(folder), devices)
            except SchedError as error:
                # One model that does not run must not cost the numbers of all others.
                errors[path.stem] = error
                continue
            rows += found
            print(*(row.line() for row in found), sep="\n", flush=True)
            if options.json:
                write(options.json, rows, errors, provider, devices)
    print(*map(told, summary(rows)), f"{time.perf_counter() - begin:.0f} s", sep="\n")
    if options.plot and rows:
        from scripts.corpus_plot import plot

        plot(rows, options.plot)
    codes = [complain(name, error) for name, error in errors.items()]
    return codes[0] if codes else int(any(row.slower for row in rows))


def write(
    path: Path,
    rows: Sequence[Row],
    errors: Mapping[str, SchedError],
    provider: str,
    devices: Mapping[int, Device],
) -> None:
    """Write what is known so far: a run that is cut short leaves what it had."""
    data = {
        "provider": provider,
        "environment": environment(provider),
        "profiles": {str(threads): asdict(device) for threads, device in devices.items()},
        "rows": [{**asdict(r), "slower": r.slower, "bound_by": r.bound.name} for r in rows],
        "summary": summary(rows),
        "failed": [{"model": name, "error": str(error)} for name, error in errors.items()],
    }
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
