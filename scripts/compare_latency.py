"""Optimise models and compare each result with its original: latency, kernels, memory, outputs.

Takes folders or .onnx files.  Every model is optimised for the provider and the batch sizes given, then
compared as `onnx-sched compare` compares any two models.

    python -m scripts.compare_latency models --provider cuda --batch 1 32 --json out/compare.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnx
from rich.console import Console
from rich.table import Table
from rich.text import Text

import onnx_sched
from onnx_sched.errors import SchedError
from onnx_sched.judge.compare import CompareOptions, compare
from onnx_sched.judge.comparison import Comparison
from onnx_sched.judge.feeds import input_specs, plan_sizes
from onnx_sched.judge.latency import condition_label
from onnx_sched.judge.provider import select_provider
from onnx_sched.report.compare_text import SPEEDS, VERDICTS, time_text


@dataclass(frozen=True, slots=True)
class Outcome:
    """One model: what `optimize` made of it, beside what it was."""

    model: str
    changed: bool
    comparison: Comparison


def dims_of(path: Path, batches: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The batch sizes as `--dim` would give them; nothing for a model of fixed sizes."""
    plain = plan_sizes(input_specs(onnx.load(str(path), load_external_data=False)))[0].dims
    leading = [name for name, size in plain if size == 1] or [name for name, _ in plain][:1]
    return {name: tuple(batches) for name in leading}


def compare_one(path: Path, options: argparse.Namespace, folder: Path) -> Outcome:
    """Optimise one model and compare it with its original."""
    dims = dims_of(path, options.batch)
    result = onnx_sched.optimize(
        path,
        choose=options.choose,
        provider=options.provider,
        dims=dims,
        threads=tuple(options.threads),
        time_limit=options.time_limit,
    )
    out = folder / path.name
    result.save(out)
    asked = CompareOptions(
        provider=options.provider,
        dims=dims,
        threads=tuple(options.threads),
        pairs=options.pairs,
        budget=options.budget,
        processes=options.launches,
        cuda_graph=options.cuda_graph,
        tf32=not options.no_tf32,
    )
    return Outcome(path.stem, result.changed, compare(path, out, asked))


def table(outcomes: Sequence[Outcome]) -> Table:
    """A row for each model under each condition."""
    shown = Table(box=None, pad_edge=False, header_style="dim")
    shown.add_column("model", overflow="fold")
    for title in ("before", "after"):
        shown.add_column(title, justify="right", no_wrap=True)
    shown.add_column("speed-up [95%]")
    shown.add_column("", overflow="fold")
    for outcome in outcomes:
        found = outcome.comparison
        words, style = VERDICTS[found.agreement.verdict]
        runs = f"{found.dispatches.before} -> {found.dispatches.after} dispatches"
        kernels = (found.kernels_before.count, found.kernels_after.count)
        if None not in kernels:
            runs += f", {kernels[0]} -> {kernels[1]} kernels"
        same = "" if outcome.changed else "unchanged"
        shown.add_row(
            Text(outcome.model, style="bold"), "", "", runs, Text(same or words, style=style)
        )
        for row in found.latency:
            word, style = SPEEDS[row.verdict]
            ratio, floor = row.speedup, row.floor
            shown.add_row(
                Text("  " + condition_label(row.dims, row.threads, row.cuda_graph)),
                time_text(row.before.p50_us),
                time_text(row.after.p50_us),
                Text(
                    f"{ratio.ratio:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}]\n"
                    f"A/A   [{floor.low:.2f}, {floor.high:.2f}]"
                ),
                Text(word, style=style),
            )
    return shown


def notes(outcomes: Sequence[Outcome]) -> list[Text]:
    """What readers should know, once each."""
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        for note in outcome.comparison.notes:
            found.setdefault(note, []).append(outcome.model)
    return [Text(f"{', '.join(models)}: {note}", style="yellow") for note, models in found.items()]


def files(given: Sequence[Path]) -> list[Path]:
    """All models of the folders and files given."""
    return [q for p in given for q in (sorted(p.glob("*.onnx")) if p.is_dir() else [p])]


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("models", nargs="+", type=Path, help="folders or .onnx files")
    parser.add_argument("--provider", default="auto")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1], help="0: the runtime's choice"
    )
    parser.add_argument("--choose", default="measured", choices=["measured", "model", "always"])
    parser.add_argument("--time-limit", type=float, default=60.0, help="of optimising, per model")
    parser.add_argument("--pairs", type=int, default=240)
    parser.add_argument("--budget", type=float, default=10.0, help="seconds of timing, per model")
    parser.add_argument("--launches", type=int, default=1, help="processes to measure in")
    parser.add_argument("--cuda-graph", action="store_true")
    parser.add_argument("--no-tf32", action="store_true")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0, 3 if outputs disagree, 5 if the provider cannot be used."""
    options = parsed(arguments)
    console = Console(highlight=False)
    try:
        select_provider(options.provider)
        outcomes = []
        with tempfile.TemporaryDirectory() as folder:
            for path in files(options.models):
                print(f"{path.stem} ...", file=sys.stderr, flush=True)
                outcomes.append(compare_one(path, options, Path(folder)))
    except SchedError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    console.print(table(outcomes), *notes(outcomes), sep="\n")
    if options.json:
        rows = [
            {"model": o.model, "changed": o.changed, "comparison": o.comparison.to_dict()}
            for o in outcomes
        ]
        data = {"schema_version": "1", "models": rows}
        options.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 3 if any(o.comparison.agreement.verdict == "mismatch" for o in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
