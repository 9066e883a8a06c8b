"""`doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from onnx_sched.judge.doctor import Check, State

_TOGETHER = {"packages": "packages", "extras": "optional"}
_PROVIDER = "ExecutionProvider"
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

        talk.show(render(checks, well=well))
    if not well:
        click.get_current_context().exit(1)


def render(checks: tuple[Check, ...], *, well: bool) -> RenderableType:
    """One screen: what needs no deed shares a line, all else has its own, and below it what mends it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("", overflow="fold")
    for section in dict.fromkeys(check.section for check in checks):
        rows = [check for check in checks if check.section == section]
        for name, state, group in _lines(section, rows):
            mark, style = _MARKS[state]
            together = ", ".join(f"{check.name} {check.value}" for check in group)
            values = group[0].value if name == group[0].name else together
            what = f"CUDA {name}" if section == "cuda" else name
            table.add_row(Text(mark, style=style), Text(what), Text(values))
            for fix in filter(None, (check.fix for check in group)):
                table.add_row("", "", Text(f"fix: {fix}", style="cyan"))
    return Group(table, Text(), *conclusion(checks, well=well))


def _lines(section: str, rows: list[Check]) -> list[tuple[str, State, list[Check]]]:
    """(name, state, checks) of each line: those of packages that are alike stand together."""
    if section not in _TOGETHER:
        return [(row.name, row.state, [row]) for row in rows]
    lines: list[tuple[str, State, list[Check]]] = []
    for state in dict.fromkeys(row.state for row in rows):
        alike = [row for row in rows if row.state == state and not row.fix]
        if alike:
            lines.append((_TOGETHER[section], state, alike))
    return [*lines, *((row.name, row.state, [row]) for row in rows if row.fix)]


def conclusion(checks: tuple[Check, ...], *, well: bool) -> list[Text]:
    """The answer: who runs models here, and why CUDA does not."""
    from rich.text import Text

    running = [c.name for c in checks if c.name.endswith(_PROVIDER) and c.state == "ok"]
    idle = [c for c in checks if c.name.startswith("CUDA") and c.name not in running]
    if not well:
        return [Text("models cannot run here", style="bold red")]
    lines = [Text(f"models can run here: {', '.join(running)}", style="green")]
    return lines + [Text(f"{c.name} {c.value}", style="yellow") for c in idle]
