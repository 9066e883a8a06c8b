"""What click says of a command line that it does not understand, in the form of all other errors.

error: --chose: `onnx-sched plan` has no such option
hint: Did you mean --choose? `onnx-sched plan --help` lists all.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

import click


def advice(error: click.UsageError) -> tuple[str, str]:
    """The message, and what to do about it."""
    command = error.ctx.command_path if error.ctx is not None else "onnx-sched"
    more = f"`{command} --help` tells more."
    if isinstance(error, click.NoSuchOption):
        flags = [flag for flag in _flags(error.ctx) if flag.startswith("--")]
        return (
            f"{error.option_name}: `{command}` has no such option",
            f"{meant(error.option_name, flags)}`{command} --help` lists all.",
        )
    if isinstance(error, click.MissingParameter):
        return f"{_name(error)} is missing", _usage(error) or more
    if isinstance(error, click.BadParameter):
        kind = error.param.type if error.param is not None else None
        given = error.message.split("'")[1] if isinstance(kind, click.Choice) else ""
        close = meant(given, map(str, kind.choices)) if isinstance(kind, click.Choice) else ""
        return f"{_name(error)}: {_sentence(error.message)}", close + more
    return _sentence(error.format_message()), more


def unknown(name: str, commands: Iterable[str]) -> tuple[str, str]:
    """The same for a command that there is not."""
    return (
        f"{name}: there is no such command",
        f"{meant(name, commands)}`onnx-sched --help` lists all.",
    )


def meant(name: str, names: Iterable[str]) -> str:
    """A question for whoever mistyped a name; nothing if no name is close.

    >>> meant("optimise", ["optimize", "plan"]), meant("x", ["optimize"])
    ('Did you mean optimize? ', '')
    """
    close = difflib.get_close_matches(name, list(names), n=1)
    return f"Did you mean {close[0]}? " if close else ""


def _flags(ctx: click.Context | None) -> list[str]:
    return [flag for param in ctx.command.params for flag in param.opts] if ctx else []


def _name(error: click.BadParameter) -> str:
    """What the parameter is called on the command line."""
    if error.param is None:
        return str(error.param_hint or "the command line")
    if isinstance(error.param, click.Argument):
        return error.param.make_metavar(error.ctx) if error.ctx else error.param.human_readable_name
    return max(error.param.opts, key=len)


def _usage(error: click.UsageError) -> str:
    """The example that the command's help ends with."""
    epilog = (error.ctx.command.epilog or "") if error.ctx is not None else ""
    example = epilog.replace("\b", "").strip().split("\n\n")[0]
    return example if example.startswith("Example:") else ""


PLAINER = (
    (r"is not in the range x>=(\S+?)\.?$", r"is too little: at least \1"),
    (r"is not in the range x>(\S+?)\.?$", r"is too little: it must be more than \1"),
    (r"is not a valid integer( range)?", "is not a whole number"),
    (r"is not a valid float( range)?", "is not a number"),
)
"""Words of click, and what people say."""


def _sentence(text: str) -> str:
    """Words that may stand after a colon.

    >>> _sentence("10 is not in the range x>=40."), _sentence("'x' is not a valid integer range.")
    ('10 is too little: at least 40', "'x' is not a whole number")
    """
    for pattern, words in PLAINER:
        text = re.sub(pattern, words, text)
    return (text[:1].lower() + text[1:]).rstrip(".")
