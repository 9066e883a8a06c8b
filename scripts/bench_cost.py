"""How well the cost model ranks: estimated against measured speed-ups of the variants of every region.

    python -m scripts.bench_cost models [--target profile.toml] [--json FILE]

Prints Spearman's rank correlation over all variants of all regions, and within regions (mean), which is what
choosing needs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np

from onnx_sched import files
from onnx_sched.analysis import analyse
from onnx_sched.cost import load
from onnx_sched.extract import excerpts
from onnx_sched.judge.measure import Race, runner
from onnx_sched.observe import Observer
from onnx_sched.options import Options
from onnx_sched.planner import legal, of_region, region_numbers
from onnx_sched.trial import Trial
from onnx_sched.variants import Explorer


def ranks(values: Sequence[float]) -> np.ndarray[Any, Any]:
    """Ranks, equal values sharing their mean rank."""
    array = np.asarray(values)
    order = array.argsort()
    found = np.empty(len(array))
    found[order] = np.arange(len(array))
    for value in np.unique(array):
        found[array == value] = found[array == value].mean()
    return found


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Rank correlation."""
    if len(a) < 2 or len(set(a)) < 2 or len(set(b)) < 2:
        return float("nan")
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def rows_of(path: Path, target: str, pairs: int, folder: Path) -> list[dict[str, Any]]:
    """Estimated and measured log speed-up of every variant of every region of a model."""
    source = files.read(path)
    analysis = analyse(source)
    _, groups, _ = legal(analysis, lambda unit: False)
    trial = Trial(folder, source, Options(threads=(1,)), "CPUExecutionProvider")
    observer = Observer(source, "CPUExecutionProvider")
    found = []
    for region in region_numbers(groups):
        explorer = Explorer(analysis, of_region(groups, region), load(target), 30)
        for n, variant in enumerate(explorer.best(8)):
            pair = excerpts(analysis, variant.rewritten)
            if pair is None:
                continue
            for condition in trial.conditions():
                size = next((s for _, s in condition.sizes), 1)
                if size not in variant.costs.sizes:
                    continue
                names = list(dict.fromkeys(i for part in pair for i in part.inputs))
                seen = observer.values(names, condition.feeds)
                race = Race(
                    [
                        runner(
                            part.model.SerializeToString(),
                            {i: seen[i] for i in part.inputs},
                            "CPUExecutionProvider",
                            1,
                        )
                        for part in pair
                    ]
                )
                race.run(pairs)
                found.append(
                    {
                        "model": path.stem,
                        "region": region,
                        "variant": n,
                        "size": size,
                        "estimated": -variant.costs.log_ratio(size),
                        "measured": float(np.log(race.speedup(0, 1).ratio)),
                    }
                )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    paths = [q for p in options.models for q in (sorted(p.glob("*.onnx")) if p.is_dir() else [p])]
    rows: list[dict[str, Any]] = []
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            rows += rows_of(path, options.target, options.pairs, Path(folder))
    overall = spearman([r["estimated"] for r in rows], [r["measured"] for r in rows])
    within = []
    for key in dict.fromkeys((r["model"], r["region"], r["size"]) for r in rows):
        here = [r for r in rows if (r["model"], r["region"], r["size"]) == key]
        if len(here) > 2:
            within.append(spearman([r["estimated"] for r in here], [r["measured"] for r in here]))
    inner = float(np.nanmean(within)) if within else float("nan")
    print(
        f"{len(rows)} variants of {len({(r['model'], r['region']) for r in rows})} regions: "
        f"rank correlation {overall:.2f} over all, {inner:.2f} within regions (mean of {len(within)})"
    )
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "overall": overall, "within": inner}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
