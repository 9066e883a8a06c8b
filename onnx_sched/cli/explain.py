"""`explain`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from onnx_sched.cli import talk

if TYPE_CHECKING:
    from onnx_sched.options import Options

EPILOG = """\b
Examples:
  onnx-sched explain                                 list the codes
  onnx-sched explain S103                            what a code means, and what to change
  onnx-sched explain model.onnx --node /head/MatMul  why this node was batched or not
"""


def _targets(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    """What the shell may complete: codes, or else files."""
    from onnx_sched.report.codes import CODES

    codes = [c for c in CODES.values() if begun and c.code.startswith(begun.upper())]
    found = [CompletionItem(c.code, help=c.title) for c in codes]
    return found or [CompletionItem(begun, type="file")]


@click.command(epilog=EPILOG)
@click.argument("target", required=False, metavar="[CODE|MODEL]", shell_complete=_targets)
@click.option(
    "--node",
    metavar="NAME",
    help="The node to explain: its name, or a value that it makes.",
)
@click.option(
    "--skip-op",
    "skip_ops",
    multiple=True,
    metavar="TYPE",
    help="Explain as if `optimize` were given the same flag. Repeatable.",
)
@click.option(
    "--skip-node",
    "skip_nodes",
    multiple=True,
    metavar="GLOB",
    help="Explain as if `optimize` were given the same flag. Repeatable.",
)
@click.option(
    "--skip-pass",
    "skip_passes",
    multiple=True,
    metavar="NAME",
    help="Explain as if `optimize` were given the same flag. Repeatable.",
)
@click.option("--nonempty", is_flag=True, help="Promise that no batch is empty, as in `optimize`.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def explain(
    target: str | None,
    node: str | None,
    skip_ops: tuple[str, ...],
    skip_nodes: tuple[str, ...],
    skip_passes: tuple[str, ...],
    nonempty: bool,
    as_json: bool,
) -> None:
    """Explain a refusal CODE, or why a node of MODEL was or was not batched.

    A node is explained as under `--choose always`: by what is legal. Nothing is run. With -v every name
    is listed.
    """
    from onnx_sched.errors import UsageError
    from onnx_sched.report.codes import CODES, looks_like_code, lookup

    if target is None:
        if node is not None:
            raise UsageError("--node needs a model", "onnx-sched explain model.onnx --node NAME")
        _show_codes(list(CODES), as_json)
    elif node is None and looks_like_code(target) and not Path(target).exists():
        _show_codes([lookup(target).code], as_json)
    elif node is None and not Path(target).exists():
        raise UsageError(
            f"explain {target}: neither a code nor a file", "`onnx-sched explain` lists the codes."
        )
    elif node is None:
        raise UsageError(
            f"explain {target}: which node?",
            f"onnx-sched explain {target} --node NAME; `onnx-sched plan {target}` tells about all.",
        )
    else:
        from onnx_sched.options import Options

        options = Options(
            skip_ops=skip_ops, skip_nodes=skip_nodes, skip_passes=skip_passes, nonempty=nonempty
        )
        _show_node(Path(target), node, options, as_json)


def _show_codes(names: list[str], as_json: bool) -> None:
    from onnx_sched.report import explain_text
    from onnx_sched.report.codes import CODES

    if as_json:
        _print_json([CODES[name].to_dict() for name in names])
    elif len(names) == 1:
        talk.show(explain_text.one_code(CODES[names[0]]))
    else:
        talk.show(explain_text.all_codes())


def _show_node(model: Path, name: str, options: Options, as_json: bool) -> None:
    from onnx_sched import files
    from onnx_sched.analysis import analyse
    from onnx_sched.explain import explain as explained
    from onnx_sched.naming import check_patterns
    from onnx_sched.options import check_skips, skipper, unsummed
    from onnx_sched.progress import Step
    from onnx_sched.report import explain_text

    progress = talk.progress()
    progress(Step("read"))
    source = files.read(model)
    check_patterns(options.skip_nodes, source.model)
    check_skips(options, source.model)
    progress(Step("analyse"))
    analysis = analyse(source, nonempty=options.nonempty, unsummed=unsummed(options))
    progress(Step("plan"))
    found = explained(analysis, name, partial(skipper, options), options.skip_passes)
    talk.done()
    if as_json:
        _print_json(found.to_dict())
    else:
        talk.show(explain_text.node(found, talk.verbose() > 0))


def _print_json(data: object) -> None:
    import json

    click.echo(json.dumps(data, indent=2))
