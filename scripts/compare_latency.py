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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

from rich.console import Console
from rich.table import Table
from rich.text import Text

import onnx_sched
from onnx_sched.errors import SchedError, UsageError
from onnx_sched.judge.compare import CompareOptions, compare, read_model
from onnx_sched.judge.comparison import Comparison
from onnx_sched.judge.feeds import input_specs, plan_sizes
from onnx_sched.judge.provider import select_provider
from onnx_sched.report.compare_parts import SPEEDS, VERDICTS, noise_text, ratio_text, time_text


@dataclass(frozen=True, slots=True)
class Outcome:
    """One model: what `optimize` made of it, beside what it was."""

    model: str
    changed: bool
    comparison: Comparison


def dims_of(path: Path, batches: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The batch sizes as `--dim` would give them; nothing for a model of fixed sizes."""
    plain = plan_sizes(input_specs(read_model(path)))[0].dims
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
            shown.add_row(
                Text("  " + row.label),
                time_text(row.before.p50_us),
                time_text(row.after.p50_us),
                Text(f"{ratio_text(row)}\n{noise_text(row)}"),
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
    """All models of the folders and files given.

    Raises:
        UsageError: A folder holds none.
    """
    found: list[Path] = []
    for path in given:
        inside = sorted(path.glob("*.onnx")) if path.is_dir() else [path]
        if not inside:
            raise UsageError(f"{path} holds no .onnx file")
        found += inside
    return found


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
    """Command line; 0, 3 if outputs disagree, 5 if the provider cannot be used, or the first error's code."""
    options = parsed(arguments)
    outcomes: list[Outcome] = []
    errors: dict[str, SchedError] = {}
    try:
        select_provider(options.provider)
        paths = files(options.models)
    except SchedError as error:
        return complain("error", error)
    with tempfile.TemporaryDirectory(prefix="onnx-sched-") as folder:
        for count, path in enumerate(paths, 1):
            print(f"{count} of {len(paths)}: {path.stem}", file=sys.stderr, flush=True)
            try:
                outcomes.append(compare_one(path, options, Path(folder)))
            except SchedError as error:
                # One model that is none must not cost the numbers of all others.
                errors[path.stem] = error
            if options.json:
                write(options.json, outcomes, errors)
    if outcomes:
        Console(highlight=False).print(table(outcomes), *notes(outcomes), sep="\n")
    codes = [complain(name, error) for name, error in errors.items()]
    disagree = any(o.comparison.agreement.verdict == "mismatch" for o in outcomes)
    return codes[0] if codes else 3 if disagree else 0


def complain(what: str, error: SchedError) -> int:
    """Say on stderr what went wrong; returns the exit code."""
    print(f"{what}: {error}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
    return error.exit_code


def write(path: Path, outcomes: Sequence[Outcome], errors: Mapping[str, SchedError]) -> None:
    """Write what is known so far: a run that is cut short leaves what it had."""
    rows = [
        {"model": o.model, "changed": o.changed, "comparison": o.comparison.to_dict()}
        for o in outcomes
    ]
    failed = [{"model": name, "error": str(error)} for name, error in errors.items()]
    data = {"schema_version": "1", "models": rows, "failed": failed}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
