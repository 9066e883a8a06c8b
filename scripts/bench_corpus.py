"""Race original against optimised models of a folder, all in one run.

For every model and condition (batch size, number of threads): the median ratio of interleaved pairs with a
95% bootstrap interval.  In the end the geometric mean per condition, and how many models came out slower.

    python -m scripts.bench_corpus models --batch 1 32 --threads 1 2 --json bench.json --plot bench.svg
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnx
import onnxruntime

import onnx_sched
from onnx_sched.judge.feeds import Binding, input_specs, make_feeds, plan_sizes
from onnx_sched.judge.measure import Race, Speedup, runner


@dataclass(frozen=True, slots=True)
class Row:
    """One model under one condition."""

    model: str
    batch: int | None
    threads: int
    nodes_before: int
    nodes_after: int
    changed: bool
    speedup: Speedup


def bindings(model: onnx.ModelProto, batches: Sequence[int]) -> list[tuple[int | None, Binding]]:
    """One set of sizes for every batch size; a fixed model has just one, without a number."""
    specs = input_specs(model)
    plain = plan_sizes(specs)
    open_axes = [name for name, _ in plain[0].dims]
    if not open_axes:
        return [(None, plain[0])]
    leading = [n for n, size in plain[0].dims if size == 1] or open_axes[:1]
    return [(b, plan_sizes(specs, dict.fromkeys(leading, (b,)))[0]) for b in batches]


def bench(path: Path, options: argparse.Namespace, folder: Path) -> list[Row]:
    """Optimise one model and race it."""
    model = onnx.load(str(path), load_external_data=False)
    out = folder / path.name
    result = onnx_sched.optimize(
        path,
        choose=options.choose,
        provider=options.provider,
        time_limit=options.time_limit,
        threads=tuple(options.threads),
        dims=dims_of(model, options.batch),
    )
    result.save(out)
    rows = []
    for batch, binding in bindings(model, options.batch):
        feeds = make_feeds(model, binding, seed=1)
        for threads in options.threads:
            race = Race([runner(p, feeds, options.provider, threads or None) for p in (path, out)])
            race.run(options.pairs)
            nodes = result.report.nodes
            rows.append(
                Row(
                    path.stem,
                    batch,
                    threads,
                    nodes.before or 0,
                    nodes.after or 0,
                    result.changed,
                    race.speedup(0, 1),
                )
            )
    return rows


def dims_of(model: onnx.ModelProto, batches: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The batch sizes as `--dim` would give them."""
    plain = plan_sizes(input_specs(model))[0].dims
    return {name: tuple(batches) for name, size in plain if size == 1}


def geometric(rows: Sequence[Row]) -> float:
    """Geometric mean of the speed-ups."""
    return float(np.exp(np.mean([np.log(r.speedup.ratio) for r in rows]))) if rows else 1.0


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Per condition: the mean over all models, over the changed ones, and how many are slower."""
    found = []
    conditions = dict.fromkeys((r.batch, r.threads) for r in rows)
    for batch, threads in conditions:
        here = [r for r in rows if (r.batch, r.threads) == (batch, threads)]
        changed = [r for r in here if r.changed]
        found.append(
            {
                "batch": batch,
                "threads": threads,
                "models": len(here),
                "changed": len(changed),
                "geometric_mean": geometric(here),
                "geometric_mean_changed": geometric(changed),
                "slower": [r.model for r in here if r.speedup.high < 0.98],
            }
        )
    return found


def plot(rows: Sequence[Row], path: Path) -> None:
    """Speed-ups with their intervals as a picture (needs matplotlib)."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    models = list(dict.fromkeys(r.model for r in rows))
    conditions = list(dict.fromkeys((r.batch, r.threads) for r in rows))
    figure, axes = pyplot.subplots(figsize=(9, 0.5 + 0.45 * len(models)))
    for n, condition in enumerate(conditions):
        here = [r for r in rows if (r.batch, r.threads) == condition]
        heights = [
            models.index(r.model) + 0.8 * (n - len(conditions) / 2) / len(conditions) for r in here
        ]
        middle = np.array([r.speedup.ratio for r in here])
        whiskers = [
            middle - [r.speedup.low for r in here],
            np.array([r.speedup.high for r in here]) - middle,
        ]
        label = f"batch {condition[0] or 'fixed'}, {condition[1]} thread(s)"
        axes.errorbar(
            middle, heights, xerr=np.maximum(whiskers, 0), fmt="o", capsize=2, label=label
        )
    axes.axvline(1.0, color="gray", linewidth=1)
    axes.set_yticks(range(len(models)), models)
    axes.invert_yaxis()
    axes.set_xlabel("speed-up over the original (median of pairs, 95% interval)")
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("models", nargs="+", type=Path, help="folders or .onnx files")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1], help="0: the runtime's choice"
    )
    parser.add_argument("--provider", default="cpu")
    parser.add_argument("--choose", default="measured", choices=["measured", "model", "always"])
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args(arguments)
    paths = [q for p in options.models for q in (sorted(p.glob("*.onnx")) if p.is_dir() else [p])]
    rows: list[Row] = []
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            for row in bench(path, options, Path(folder)):
                rows.append(row)
                s = row.speedup
                print(
                    f"{row.model:34} batch {row.batch or 'fixed'!s:5} threads {row.threads} "
                    f"nodes {row.nodes_before:4} -> {row.nodes_after:4}  {s.before_us:9.1f} us "
                    f"{s.after_us:9.1f} us  {s.ratio:.2f}x [{s.low:.2f}, {s.high:.2f}]"
                    f"{'' if row.changed else '  unchanged'}",
                    flush=True,
                )
    found = summary(rows)
    for line in found:
        print(
            f"batch {line['batch']}, {line['threads']} thread(s): "
            f"geometric mean {line['geometric_mean']:.2f}x over {line['models']} models, "
            f"{line['geometric_mean_changed']:.2f}x over the {line['changed']} changed; "
            f"slower: {', '.join(line['slower']) or 'none'}"
        )
    print(f"{time.perf_counter() - begin:.0f} s, onnxruntime {onnxruntime.__version__}")
    if options.json:
        data = {
            "provider": options.provider,
            "onnxruntime": onnxruntime.__version__,
            "rows": [asdict(r) for r in rows],
            "summary": found,
        }
        options.json.write_text(json.dumps(data, indent=1) + "\n")
    if options.plot:
        plot(rows, options.plot)
    return 1 if any(line["slower"] for line in found) else 0


if __name__ == "__main__":
    sys.exit(main())
