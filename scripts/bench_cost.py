"""How well the cost model ranks: estimated against measured times of regions, before and after.

Every region is cut out of its model and raced in its best variants, at every size and with one thread, as
`optimize` does.  Prints Spearman's rank correlation of the times over all regions and variants, of the
speed-ups over all variants, and of the times within regions (mean), which is what choosing needs.

    python -m scripts.bench_cost models [--target profile.toml] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import isnan, log, nan
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np

from onnx_sched.analysis import analyse
from onnx_sched.cost import load
from onnx_sched.errors import SchedError
from onnx_sched.extract import Excerpt, excerpts
from onnx_sched.files import read
from onnx_sched.judge.measure import Runner, runner
from onnx_sched.judge.ortlib import CPU
from onnx_sched.judge.runtime import RuntimeRefused
from onnx_sched.observe import Observer
from onnx_sched.options import Options
from onnx_sched.planner import legal, of_region, region_numbers
from onnx_sched.trial import Trial
from onnx_sched.variants import Explorer, Variant
from scripts.compare_latency import complain, files
from scripts.contest import ORIGINAL, Contest

VARIANTS, TRIALS = 8, 30
VARIANT = "variant"


@dataclass(frozen=True, slots=True)
class Row:
    """One variant of a region at one size; times in microseconds.

    Attributes:
        model, region, variant, size: Which.
        forms: The forms in it.
        before, after: What the region took, and what the variant took: estimated, measured.
    """

    model: str
    region: int
    variant: int
    size: int
    forms: tuple[str, ...]
    before: tuple[float, float]
    after: tuple[float, float]


def ranks(values: Sequence[float]) -> np.ndarray[Any, Any]:
    """Ranks, equal values sharing their mean rank.

    >>> ranks([30, 10, 30]).tolist()
    [1.5, 0.0, 1.5]
    """
    array = np.asarray(values)
    order = array.argsort()
    found = np.empty(len(array))
    found[order] = np.arange(len(array))
    for value in np.unique(array):
        found[array == value] = found[array == value].mean()
    return found


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Rank correlation; not a number where one side has no two values.

    >>> spearman([(1, 10), (2, 30), (3, 20)])
    0.5
    """
    if any(len({pair[side] for pair in pairs}) < 2 for side in (0, 1)):
        return nan
    one, other = (ranks([pair[side] for pair in pairs]) for side in (0, 1))
    return round(float(np.corrcoef(one, other)[0, 1]), 4)


def rows_of(path: Path, options: argparse.Namespace, folder: Path) -> list[Row]:
    """All regions of a model in their best variants.

    Raises:
        SchedError: The model cannot be read or run.
    """
    source = read(path)
    analysis = analyse(source)
    _, groups, _ = legal(analysis, lambda unit: False)
    trial = Trial(folder, source, Options(threads=(1,)), CPU)
    observer = Observer(source, CPU)
    found: list[Row] = []
    for region in region_numbers(groups):
        members = of_region(groups, region)
        explorer = Explorer(analysis, members, load(options.target), TRIALS)
        for n, variant in enumerate(explorer.best(VARIANTS)):
            pair = excerpts(analysis, variant.rewritten, variant.base)
            if pair is None:
                continue
            for condition in trial.conditions():
                size = next((s for _, s in condition.sizes), 1)
                if size not in variant.costs.sizes:
                    continue
                names = list(dict.fromkeys(i for part in pair for i in part.inputs))
                seen = observer.values(names, condition.feeds)
                try:
                    before, after = times(pair, seen, options)
                except RuntimeRefused:
                    continue  # a form that does not run by itself is not chosen either
                costs = variant.costs
                found.append(
                    Row(
                        path.stem,
                        region,
                        n,
                        size,
                        forms_of(variant),
                        (costs.before[size], before),
                        (costs.after[size], after),
                    )
                )
    return found


def forms_of(variant: Variant) -> tuple[str, ...]:
    """The forms of a variant's groups, each once."""
    return tuple(dict.fromkeys(group.form for group in variant.groups))


def times(
    pair: tuple[Excerpt, Excerpt], seen: Mapping[str, Any], options: argparse.Namespace
) -> tuple[float, float]:
    """What a region takes, as it was and in a variant."""

    def maker(part: Excerpt) -> Callable[[], Runner]:
        feeds = {name: seen[name] for name in part.inputs}
        return partial(runner, part.model.SerializeToString(), feeds, CPU, 1)

    contest = Contest({ORIGINAL: maker(pair[0]), VARIANT: maker(pair[1])})
    contest.run(options.pairs, options.openings)
    found = contest.gain(VARIANT)
    return found.before_us, found.after_us


def correlations(rows: Sequence[Row]) -> dict[str, float | int | None]:
    """The rank correlations; None where there is too little to rank."""
    alike: dict[tuple[str, int, int], list[Row]] = {}
    for row in rows:
        alike.setdefault((row.model, row.region, row.size), []).append(row)
    befores = [here[0].before for here in alike.values()]
    inner = [spearman([r.after for r in here]) for here in alike.values() if len(here) > 2]
    inner = [value for value in inner if not isnan(value)]
    speedups = [(log(r.before[0] / r.after[0]), log(r.before[1] / r.after[1])) for r in rows]
    found = {
        "times": spearman([*befores, *(r.after for r in rows)]),
        "speedups": spearman(speedups),
        "within_regions": round(float(np.mean(inner)), 4) if inner else nan,
    }
    return {
        "variants": len(rows),
        "regions": len({(r.model, r.region) for r in rows}),
        "ranked_within": len(inner),
        **{name: None if isnan(value) else value for name, value in found.items()},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("models", nargs="+", type=Path, help="folders or .onnx files")
    parser.add_argument("--target", default="cpu", help="device profile that estimates")
    parser.add_argument("--pairs", type=int, default=20, help="of each race")
    parser.add_argument("--openings", type=int, default=2, help="of all sessions, in each race")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    errors: dict[str, SchedError] = {}
    try:
        load(options.target)
        paths = files(options.models)
    except SchedError as error:
        return complain("error", error)
    for count, path in enumerate(paths, 1):
        print(f"{count} of {len(paths)}: {path.stem}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="onnx-sched-") as folder:
            try:
                rows += rows_of(path, options, Path(folder))
            except SchedError as error:
                errors[path.stem] = error
    found = correlations(rows)
    print(
        "{variants} variants of {regions} regions: rank correlation of times {times}, "
        "of speed-ups {speedups}; of times within regions {within_regions} "
        "(mean of {ranked_within})".format(**found)
    )
    if options.json:
        data = {"target": options.target, **found, "rows": [asdict(r) for r in rows]}
        options.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    codes = [complain(name, error) for name, error in errors.items()]
    return codes[0] if codes else 0


if __name__ == "__main__":
    sys.exit(main())
