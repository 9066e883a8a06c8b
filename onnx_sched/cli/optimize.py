"""`optimize` and `plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnx_sched.cli import talk
from onnx_sched.cli.choices import choices

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnx_sched.options import Options
    from onnx_sched.result import Result


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
    check_files(given)
    result = run(model, given)
    save(result, output)
    if trace is not None:
        from onnx_sched.report import tracing

        scene = result.scene()
        rewritten = output if result.changed else None
        tracing.write(tracing.record(scene.before, rewritten, options(given)), trace)
        talk.wrote(trace)
    finish(result, output, as_json, quiet)


@click.command(epilog="Example: onnx-sched plan model.onnx --choose always")
@click.argument("model", type=click.Path(path_type=Path))
@choices
def plan(model: Path, as_json: bool, quiet: bool, **given: Any) -> None:
    """Say what `optimize` would do with MODEL, and why not more; nothing is written."""
    check_files(given)
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


def check_files(given: dict[str, Any]) -> None:
    """Refuse reports and a plan that cannot be written, before any work is done."""
    from onnx_sched.report import saving

    params = click.get_current_context().params
    single = (params.get(name) for name in ("model", "output", "trace"))
    taken = [path for path in (*single, *params.get("models", ())) if path is not None]
    saving.check(given["reports"], "--report", taken, saving.SUFFIXES)
    if given["save_plan"] is not None:
        saving.check([given["save_plan"]], "--save-plan", [*taken, *given["reports"]], (".json",))


def run(model: Path | ModelProto, given: dict[str, Any]) -> Result:
    """Turn flags into options, and run."""
    from onnx_sched import pipeline

    if given["skip_nodes"]:
        from onnx_sched.naming import check_patterns
        from onnx_sched.reading import model_in

        proto = model_in(model) if isinstance(model, Path) else model
        check_patterns(given["skip_nodes"], proto)
    return pipeline.optimize(model, options(given))


def save(result: Result, output: Path) -> None:
    """Write the model, and take note of all files that it is in."""
    from onnx_sched.progress import Step

    talk.progress()(Step("write"))
    for path in result.save(output):
        talk.wrote(path)


def options(given: dict[str, Any]) -> Options:
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
    from onnx_sched.report import merge_text, plan_text

    render = plan_text.render if planned else merge_text.shown
    talk.show(render(result.report, talk.verbose() > 0))
