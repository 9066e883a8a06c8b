"""`compare`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnx_sched.cli.numbers import SEED, THREADS, Amount

if TYPE_CHECKING:
    from onnx_sched.judge.comparison import Comparison
    from onnx_sched.judge.gates import GateResult

MISMATCH, GATE_FAILED = 3, 4

_CLEAR = "\r\x1b[K"


@click.command(
    epilog="Example: onnx-sched compare model.onnx out.onnx --dim batch=1,32 --fail-on slower:5%"
)
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option(
    "--provider",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="auto, cpu, cuda, or an execution provider's name; a named one never falls back.",
)
@click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=N[,N]",
    help="Sizes to compare at, e.g. batch=1,32; if not given, batch 1 and 32 are timed.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="INPUT:D,D,...",
    help="A whole input shape, e.g. x:1,3,224,224.",
)
@click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    help="Inputs: a .npz file, or a folder with test_data_set_* in it.",
)
@click.option(
    "--seed", type=SEED, default=0, show_default=True, help="Seed of inputs and sampling order."
)
@click.option(
    "--atol", multiple=True, metavar="[OUT:]V", help="Absolute tolerance, of all or of one output."
)
@click.option(
    "--rtol", multiple=True, metavar="[OUT:]V", help="Relative tolerance, of all or of one output."
)
@click.option(
    "--threads",
    multiple=True,
    type=THREADS,
    default=(1,),
    show_default=True,
    help="Threads within a node; 0: the runtime's choice. Repeatable.",
)
@click.option(
    "--pairs",
    type=click.IntRange(10),
    default=240,
    show_default=True,
    help="Paired samples under each condition.",
)
@click.option(
    "--budget",
    type=Amount(0, min_open=True),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for all sampling together.",
)
@click.option(
    "--launches",
    "processes",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Process launches to spread the samples over; 1 measures in this process.",
)
@click.option("--cuda-graph", is_flag=True, help="Time with CUDA graphs on both sides, too.")
@click.option(
    "--tf32/--no-tf32",
    default=True,
    show_default=True,
    help="TF32 while timing on CUDA; outputs are always compared without.",
)
@click.option(
    "--fail-on",
    "fail_on",
    multiple=True,
    metavar="GATE,...",
    help="Exit 4 if a gate fails: cpu-nodes, slower[:5%], launches[:5%], memory[:5%], mismatch.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors and failed gates.")
def compare(
    before: Path,
    after: Path,
    fail_on: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Compare BEFORE with AFTER: outputs, latency, kernels, memory and depth of any two models.

    Latencies are taken in interleaved pairs; the original is raced against itself, too. Nothing is called
    faster or slower unless its 95% interval lies clear of 1 and of that noise.

    Exit codes: 0 compared, 1 a file cannot be read, 2 usage, 3 the outputs disagree, 4 a gate of --fail-on
    failed, 5 the provider cannot be used.
    """
    from onnx_sched.judge.gates import check_gates, parse_gates

    gates = parse_gates(fail_on)
    found = _run(before, after, given, show=not quiet)
    results = check_gates(gates, found)
    if as_json:
        _print_json(found, results)
    elif not quiet:
        _print(found, results)
    for result in results:
        if result.failed:
            _complain(f"gate failed: {result.gate}: {result.message}")
    if found.agreement.verdict == "mismatch" and "mismatch" not in {g.name for g in gates}:
        _complain(f"error: the outputs disagree: {found.agreement.reason}")
        click.get_current_context().exit(MISMATCH)
    if any(result.failed for result in results):
        click.get_current_context().exit(GATE_FAILED)


def _run(before: Path, after: Path, given: dict[str, Any], *, show: bool) -> Comparison:
    from onnx_sched.judge.compare import CompareOptions
    from onnx_sched.judge.compare import compare as compared
    from onnx_sched.judge.feeds import parse_dims, parse_shape

    given["dims"] = parse_dims(given["dims"])
    given["shapes"] = dict(map(parse_shape, given["shapes"]))
    options = CompareOptions(**given)
    if not (show and sys.stderr.isatty()):
        return compared(before, after, options)
    try:
        return compared(before, after, options, _tell)
    finally:
        click.echo(_CLEAR, nl=False, err=True)


def _tell(text: str) -> None:
    """One line that the next one writes over; no spinner, which would run beside the measurement."""
    from onnx_sched.report.harmless import harmless

    click.echo(_CLEAR + harmless(text, 78), nl=False, err=True)


def _print_json(found: Comparison, results: tuple[GateResult, ...]) -> None:
    import json

    rows = [
        {"gate": str(r.gate), "failed": r.failed, "message": r.message or None} for r in results
    ]
    click.echo(json.dumps({**found.to_dict(), "gates": rows}, indent=2))


def _print(found: Comparison, results: tuple[GateResult, ...]) -> None:
    """The report, with the gates that held; those that failed are said on stderr, in every mode."""
    from onnx_sched.cli import talk
    from onnx_sched.report.compare_text import render

    talk.show(render(found, [result for result in results if not result.failed]))


def _complain(text: str) -> None:
    """A line on stderr; names out of a model file are made harmless."""
    from onnx_sched.report.harmless import harmless

    click.echo(harmless(text, 2000), err=True)
