"""`optimize` and `plan`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onnx_sched.cli import talk
from onnx_sched.cli.numbers import SEED, THREADS, Amount

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnx_sched.options import Options
    from onnx_sched.result import Result

F = TypeVar("F", bound=Callable[..., Any])


def choices(command: F) -> F:
    """The options that `optimize` and `plan` share."""
    options = (
        click.option(
            "--choose",
            type=click.Choice(["measured", "model", "always"]),
            default="measured",
            show_default=True,
            help="Keep what a race here says is faster, what the cost model says pays, or all.",
        ),
        click.option(
            "--provider",
            default="auto",
            show_default=True,
            metavar="NAME",
            help="auto, cpu, cuda, or an execution provider's name; a named one never falls back.",
        ),
        click.option(
            "--dim",
            "dims",
            multiple=True,
            metavar="NAME=N[,N]",
            help="Sizes to check, e.g. batch=1,32; the model stays dynamic.",
        ),
        click.option(
            "--shape",
            "shapes",
            multiple=True,
            metavar="INPUT:D,D,...",
            help="A whole input shape to check, e.g. x:1,3,224,224.",
        ),
        click.option(
            "--inputs",
            type=click.Path(path_type=Path),
            help="Inputs to check with: a .npz file, or a folder with test_data_set_* in it.",
        ),
        click.option(
            "--seed", type=SEED, default=0, show_default=True, help="Seed of the random inputs."
        ),
        click.option(
            "--atol",
            multiple=True,
            metavar="[OUT:]V",
            help="Absolute tolerance, of all or of one output.",
        ),
        click.option(
            "--rtol",
            multiple=True,
            metavar="[OUT:]V",
            help="Relative tolerance, of all or of one output.",
        ),
        click.option("--no-check", is_flag=True, help="Do not run the models and compare."),
        click.option("--nonempty", is_flag=True, help="Promise that no batch is empty."),
        click.option(
            "--assume-finite",
            is_flag=True,
            help="Promise that no value is NaN or infinite: block-diagonal weights are then cut.",
        ),
        click.option(
            "--skip-op",
            "skip_ops",
            multiple=True,
            metavar="TYPE",
            help="Leave an op type alone, e.g. Softmax. Repeatable.",
        ),
        click.option(
            "--skip-node",
            "skip_nodes",
            multiple=True,
            metavar="GLOB",
            help="Leave nodes alone, by name, e.g. 'decoder/*'. Repeatable.",
        ),
        click.option(
            "--skip-pass",
            "skip_passes",
            multiple=True,
            metavar="NAME",
            help="Leave a part of the work out: sums (they add in another order), bodies (of If, Loop, "
            "Scan), functions (calls stay), or the rules of a module in passes/. Repeatable.",
        ),
        click.option(
            "--threads",
            multiple=True,
            type=THREADS,
            default=(1, 0),
            show_default=True,
            help="Threads at which it must not be slower; 0: the runtime's choice. Repeatable.",
        ),
        click.option(
            "--time-limit",
            type=Amount(0),
            default=60.0,
            show_default=True,
            metavar="SECONDS",
            help="Measure no longer than this.",
        ),
        click.option(
            "--target",
            metavar="PROFILE",
            help="Decide by a device profile (cuda-a100, ..., or a .toml of `calibrate`); no race.",
        ),
        click.option(
            "--max-activation",
            type=Amount(1),
            default=1.25,
            show_default=True,
            metavar="FACTOR",
            help="Largest growth of the activations' peak (16 MiB are always allowed).",
        ),
        click.option(
            "--exact",
            is_flag=True,
            help="Also search for the levels with the fewest launches, for half of --time-limit; "
            "needs OR-tools (pip install 'onnx-sched[exact]').",
        ),
        click.option(
            "--plan",
            type=click.Path(path_type=Path),
            help="Carry out a saved plan; nothing is measured.",
        ),
        click.option(
            "--save-plan", type=click.Path(path_type=Path), help="Write the plan to a file."
        ),
        click.option(
            "--report",
            "reports",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Write the report, too: .html, .md, .json or .txt, by suffix. Repeatable.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print the report as JSON."),
        click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(epilog="Example: onnx-sched optimize model.onnx -o out.onnx --dim batch=1,32")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="Where to write the new model.",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a .json trace of both models, node by node on their wires, for ui.perfetto.dev.",
)
@choices
def optimize(
    model: Path, output: Path, trace: Path | None, as_json: bool, quiet: bool, **given: Any
) -> None:
    """Rewrite MODEL so that independent, alike nodes run as one, check it, and write it to OUTPUT.

    Where there is nothing to do, OUTPUT is a byte copy of MODEL.
    """
    from onnx_sched.targets import check_target

    check_target(output, model)
    _check_trace(trace, given)
    result = run(model, given)
    save(result, output)
    if trace is not None:
        from onnx_sched.report import tracing

        scene = result.scene()
        rewritten = output if result.changed else None
        tracing.write(tracing.record(scene.before, rewritten, _options(given)), trace)
        talk.wrote(trace)
    finish(result, output, as_json, quiet)


@click.command(epilog="Example: onnx-sched plan model.onnx --choose always")
@click.argument("model", type=click.Path(path_type=Path))
@choices
def plan(model: Path, as_json: bool, quiet: bool, **given: Any) -> None:
    """Say what `optimize` would do with MODEL, and why not more; nothing is written."""
    finish(run(model, given), None, as_json, quiet)


def _check_trace(trace: Path | None, given: dict[str, Any]) -> None:
    """Refuse a trace that cannot be made, before any work is done."""
    from onnx_sched.errors import UsageError
    from onnx_sched.report import saving

    if trace is None:
        return
    if given["no_check"]:
        raise UsageError(
            "--trace runs both models, --no-check forbids to", "Take one of the two flags away."
        )
    params = click.get_current_context().params
    taken = [params["model"], params["output"], *given["reports"]]
    saving.check([trace], "--trace", taken, (".json",))


def run(model: Path | ModelProto, given: dict[str, Any]) -> Result:
    """Check the names of reports, turn flags into options, and run."""
    from onnx_sched import pipeline
    from onnx_sched.report import saving

    params = click.get_current_context().params
    others = (model, params.get("output"), params.get("trace"), *params.get("models", ()))
    taken = [path for path in others if isinstance(path, Path)]
    saving.check(given["reports"], "--report", taken, saving.SUFFIXES)
    if given["save_plan"] is not None:
        saving.check([given["save_plan"]], "--save-plan", [*taken, *given["reports"]])
    return pipeline.optimize(model, _options(given))


def save(result: Result, output: Path) -> None:
    """Write the model."""
    from onnx_sched.progress import Step

    talk.progress()(Step("write"))
    result.save(output)
    talk.wrote(output)


def _options(given: dict[str, Any]) -> Options:
    """The options that flags ask for."""
    from onnx_sched.judge.feeds import parse_dims, parse_shape
    from onnx_sched.options import Options

    return Options(
        choose=given["choose"],
        provider=given["provider"],
        dims=parse_dims(given["dims"]),
        shapes=dict(map(parse_shape, given["shapes"])),
        inputs=given["inputs"],
        seed=given["seed"],
        atol=given["atol"],
        rtol=given["rtol"],
        check=not given["no_check"],
        skip_ops=given["skip_ops"],
        skip_nodes=given["skip_nodes"],
        skip_passes=given["skip_passes"],
        nonempty=given["nonempty"],
        assume_finite=given["assume_finite"],
        threads=given["threads"],
        time_limit=given["time_limit"],
        max_activation=given["max_activation"],
        exact=given["exact"],
        plan=given["plan"],
        target=given["target"],
        progress=talk.progress(),
    )


def finish(result: Result, output: Path | None, as_json: bool, quiet: bool) -> None:
    """Write the plan and the reports; print the report on stdout, and what was written on stderr."""
    params = click.get_current_context().params
    saved: Path | None = params["save_plan"]
    reports: tuple[Path, ...] = params["reports"]
    if saved is not None:
        result.save_plan(saved)
        talk.wrote(saved)
    if reports:
        from onnx_sched.report import saving

        scene = result.scene()
        for path in reports:
            saving.save(scene, path, talk.command())
            talk.wrote(path)
    talk.done()
    if as_json:
        _print_json(result)
    elif not quiet:
        _print(result, planned=output is None)
        for name in talk.written():
            took = f" ({result.report.seconds:.1f} s)" if name == str(output) else ""
            click.echo(f"wrote {name}{took}", err=True)


def _print_json(result: Result) -> None:
    import json

    click.echo(json.dumps(result.report.to_dict(), indent=2))


def _print(result: Result, planned: bool) -> None:
    from onnx_sched.report import plan_text, text

    render = plan_text.render if planned else text.render
    talk.show(render(result.report, talk.verbose() > 0))
