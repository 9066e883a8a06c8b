"""Time how long wires and layers take on graphs that look like models.

    python scripts/bench_layers.py [--json FILE]

The times are processor seconds of this process (other programs do not count), medians of repeats
that are interleaved over all graphs and sizes. Exits 1 if a graph of 20,000 ops takes longer than
the limit, or if the time from the smallest to the largest size grows faster than linearly, with
some allowance. Growth is the median of the ratios within each repeat, since a machine that slows
down for seconds slows both sizes of a repeat.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from onnx_sched.layers import head_layers
from onnx_sched.wires import lanes

Dag = list[tuple[int, ...]]
Row = dict[str, str | int | float]


def lane_model(ops: int, groups: int = 64, depth: int = 4) -> Dag:
    """Layers of equal lanes: fork to `groups` branches of `depth` ops, join, residual Add."""
    preds: Dag = [()]
    trunk = 0
    while len(preds) < ops:
        ends = [_branch(preds, trunk, depth) for _ in range(groups)]
        preds.append(tuple(ends))
        preds.append((trunk, len(preds) - 1))
        trunk = len(preds) - 1
    return preds


def branch_model(ops: int, seed: int = 7) -> Dag:
    """Blocks of 1 to 16 branches of unequal length, one in five reading a neighbour branch, too."""
    rng = random.Random(seed)
    preds: Dag = [()]
    trunk = 0
    while len(preds) < ops:
        ends: list[int] = []
        for _ in range(rng.randint(1, 16)):
            ends.append(_branch(preds, trunk, rng.randint(1, 6)))
            if len(ends) > 1 and rng.random() < 0.2:
                preds.append((ends[-2], ends[-1]))
                ends[-1] = len(preds) - 1
        preds.append((trunk, *ends))
        trunk = len(preds) - 1
    return preds


def random_dag(ops: int, window: int = 64, seed: int = 7) -> Dag:
    """Each op reads 1 to 3 of the last `window` ops, now and then any op before it."""
    rng = random.Random(seed)
    preds: Dag = [()]
    for op in range(1, ops):
        reads = set()
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
            reads.add(rng.randrange(0 if rng.random() < 0.02 else max(0, op - window), op))
        preds.append(tuple(sorted(reads)))
    return preds


GRAPHS: dict[str, Callable[[int], Dag]] = {
    "lanes": lane_model,
    "branches": branch_model,
    "random": random_dag,
}


def _branch(preds: Dag, start: int, length: int) -> int:
    for _ in range(length):
        preds.append((start,))
        start = len(preds) - 1
    return start


def _timed(preds: Dag) -> tuple[float, float, int, int]:
    """Return the seconds for lanes and for layers, the entries of all supports and the depth."""
    gc.collect()
    begin = time.process_time()
    supports = lanes(preds)
    middle = time.process_time()
    layers = head_layers(supports)
    end = time.process_time()
    return middle - begin, end - middle, sum(map(len, supports)), len(layers)


def measure(sizes: Sequence[int], repeats: int) -> tuple[list[Row], dict[str, float]]:
    """Return a row for each graph and size, and each graph's growth (linear is 1).

    Growth is from the smallest to the largest size: time over time, divided by ops over ops.
    """
    graphs = {(name, size): GRAPHS[name](size) for name in GRAPHS for size in sizes}
    runs: dict[tuple[str, int], list[tuple[float, float, int, int]]] = {key: [] for key in graphs}
    for _ in range(repeats):
        for key, preds in graphs.items():
            runs[key].append(_timed(preds))
    rows: list[Row] = []
    for (name, size), timed in runs.items():
        rows.append(
            {
                "graph": name,
                "size": size,
                "ops": len(graphs[name, size]),
                "edges": sum(map(len, graphs[name, size])),
                "support_entries": timed[0][2],
                "depth": timed[0][3],
                "lanes_seconds": statistics.median(run[0] for run in timed),
                "layers_seconds": statistics.median(run[1] for run in timed),
                "seconds": statistics.median(run[0] + run[1] for run in timed),
            }
        )
    growth: dict[str, float] = {}
    for name in GRAPHS:
        small, large = (name, min(sizes)), (name, max(sizes))
        ratio = statistics.median(
            (long[0] + long[1]) / (short[0] + short[1])
            for short, long in zip(runs[small], runs[large], strict=True)
        )
        growth[name] = ratio * len(graphs[small]) / len(graphs[large])
    return rows, growth


@click.command(help="Time wires and layers on graphs that look like models.")
@click.option("--size", "sizes", multiple=True, type=click.IntRange(2), help="Ops; repeatable.")
@click.option("--repeats", default=7, show_default=True, type=click.IntRange(1))
@click.option("--limit", default=2.0, show_default=True, help="Seconds allowed at --limit-at.")
@click.option("--limit-at", default=20_000, show_default=True, help="Size that has the limit.")
@click.option("--growth", "allowed", default=1.3, show_default=True, help="Times linear allowed.")
@click.option("--json", "out", type=click.Path(path_type=Path), help="Write the figures here.")
def main(
    sizes: tuple[int, ...],
    repeats: int,
    limit: float,
    limit_at: int,
    allowed: float,
    out: Path | None,
) -> None:
    """Print the table, write the JSON file and exit 1 if a bar is missed."""
    rows, growth = measure(sizes or (5_000, 10_000, 20_000, 40_000), repeats)
    click.echo("graph          ops    edges  entries  depth  lanes/s  layers/s   both/s")
    for row in rows:
        click.echo(
            f"{row['graph']:<9} {row['ops']:>8} {row['edges']:>8} {row['support_entries']:>8} "
            f"{row['depth']:>6}  {row['lanes_seconds']:7.3f}  {row['layers_seconds']:8.3f}  "
            f"{row['seconds']:7.3f}"
        )
    missed = [
        f"{row['graph']}: {row['seconds']:.3f} s at {row['ops']} ops, allowed {limit} s"
        for row in rows
        if row["size"] == limit_at and float(row["seconds"]) > limit
    ]
    for name, factor in growth.items():
        click.echo(f"{name}: grows {factor:.2f} times linear (allowed {allowed})")
        if factor > allowed:
            missed.append(f"{name}: grows {factor:.2f} times linear, allowed {allowed}")
    for line in missed:
        click.echo(f"missed: {line}", err=True)
    if out is not None:
        report = {"rows": rows, "growth": growth, "missed": missed, "passed": not missed}
        out.write_text(json.dumps(report, indent=2) + "\n")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
