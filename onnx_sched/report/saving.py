"""`--report FILE`: the report in the form that the file's suffix names."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from onnx_sched.errors import UsageError
from onnx_sched.report.scene import Scene
from onnx_sched.targets import SPECIAL, is_special, replacing

SUFFIXES = (".html", ".md", ".json", ".txt")


def check(paths: Sequence[Path], flag: str, taken: Sequence[Path], suffixes: Sequence[str]) -> None:
    """Refuse files that cannot be written, before any work is done.

    Args:
        paths: The files.
        flag: What asked for them, for messages.
        taken: Files that must not be overwritten: the model, and what else is written.
        suffixes: What a file's name may end in.

    Raises:
        UsageError: If a suffix is not known, a name is no file's, two files are one, or a folder is
            missing or read-only.
    """
    seen = {path.resolve() for path in taken}
    for path in paths:
        if path.is_dir():
            raise UsageError(f"{flag} {path} is a directory", f"Name a file in it: {path / 'x'}...")
        if is_special(path):
            raise UsageError(f"{flag} {path}: {SPECIAL}", "Name a file.")
        if path.resolve() in seen:
            raise UsageError(
                f"{flag} {path} would overwrite another file of this run", "Rename it."
            )
        if path.suffix.lower() not in suffixes:
            given = f"ends in {path.suffix}" if path.suffix else "has no suffix"
            known = (
                ", ".join(suffixes[:-1]) + f" or {suffixes[-1]}" if suffixes[1:] else suffixes[0]
            )
            raise UsageError(f"{flag} {path}: the name {given}", f"Let it end in {known}.")
        if not path.parent.is_dir():
            raise UsageError(
                f"{flag} {path}: there is no folder {path.parent}",
                "Make it first, or name another.",
            )
        if not os.access(path.parent, os.W_OK):
            raise UsageError(
                f"{flag} {path}: no permission to write in {path.parent}", "Name another place."
            )
        seen.add(path.resolve())


def save(scene: Scene, path: Path, command: str = "") -> None:
    """Write a report; it appears whole or not at all.

    Args:
        scene: The run.
        path: The file; its suffix says which form.
        command: How the run was asked for.

    Raises:
        UsageError: If the suffix is not known.
        ModelError: If the file cannot be written.
    """
    text = _writer(path)(scene, command)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace", newline="\n")


def _writer(path: Path) -> Callable[[Scene, str], str]:
    match path.suffix.lower():
        case ".html":
            from onnx_sched.report.html import to_html

            return to_html
        case ".md":
            from onnx_sched.report.markdown import to_markdown

            return lambda scene, command: to_markdown(scene.report, command)
        case ".json":
            return lambda scene, _: json.dumps(scene.report.to_dict(), indent=2) + "\n"
        case ".txt":
            from onnx_sched.report.merge_text import to_text

            return lambda scene, _: to_text(scene.report)
    raise UsageError(f"{path}: a report has no such form", f"Forms: {', '.join(SUFFIXES)}.")
