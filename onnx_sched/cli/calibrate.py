"""`calibrate`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(epilog="Example: onnx-sched calibrate -o profile.toml --provider cpu")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="Profile to write."
)
@click.option(
    "--provider", default="auto", show_default=True, metavar="NAME", help="Whose speed to measure."
)
@click.option(
    "--threads", default=1, show_default=True, type=click.IntRange(1), help="Threads in a node."
)
def calibrate(output: Path, provider: str, threads: int) -> None:
    """Measure this machine and write a device profile, for `--target` (about ten seconds)."""
    import platform

    import onnxruntime

    from onnx_sched.calibrate import calibrate as measured
    from onnx_sched.calibrate import to_toml
    from onnx_sched.judge.provider import select_provider
    from onnx_sched.targets import check_target, replacing

    if output.suffix != ".toml":
        raise click.UsageError(f"-o {output}: a profile is a .toml file")
    check_target(output, None)
    chosen = select_provider(provider)
    device = measured(chosen.name, output.stem, threads)
    comment = (
        f"{platform.machine()}, {chosen.name}, ONNX Runtime {onnxruntime.__version__}, "
        f"{threads} thread(s).\nEvery number was measured by onnx-sched calibrate."
    )
    text = to_toml(device, comment)
    with replacing(output) as temporary:
        temporary.write_text(text, "utf-8", newline="\n")
    click.echo(text, nl=False)
