"""`doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

    from onnx_sched.judge.doctor import Check

_MARKS = {"ok": ("ok", "green"), "note": ("--", "yellow"), "bad": ("!!", "bold red")}


@click.command(epilog="Example: onnx-sched doctor")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def doctor(as_json: bool) -> None:
    """Say what is installed, which execution providers really run, and what mends the rest.

    Exit code 0 if models can run on the CPU, 1 if not.
    """
    from onnx_sched.judge.doctor import examine, healthy

    checks = examine()
    well = healthy(checks)
    if as_json:
        import json

        rows = [check.to_dict() for check in checks]
        click.echo(json.dumps({"schema_version": "1", "ok": well, "checks": rows}, indent=2))
    else:
        from onnx_sched.cli import talk

        talk.console().print(render(checks, well=well))
    if not well:
        click.get_current_context().exit(1)


def render(checks: tuple[Check, ...], *, well: bool) -> RenderableType:
    """One screen: a line for each thing, and below it what mends it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("", overflow="fold")
    section = ""
    for check in checks:
        if check.section != section:
            section = check.section
            table.add_row("", Text(section, style="dim"), "")
        mark, style = _MARKS[check.state]
        table.add_row(Text(mark, style=style), Text(check.name), Text(check.value))
        if check.fix:
            table.add_row("", "", Text(f"fix: {check.fix}", style="cyan"))
    good = Text("models can run", style="green")
    return Group(table, Text(), good if well else Text("models cannot run here", style="bold red"))
