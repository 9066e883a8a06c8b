"""Files to be written: refused early where that cannot be, and there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from onnx_sched.errors import ModelError, UsageError

SPECIAL = "that is a pipe or a device, which a file must not replace"


def is_special(target: Path) -> bool:
    """Whether something stands there that is neither a file nor a directory, such as /dev/null."""
    return target.exists() and not target.is_file() and not target.is_dir()


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A temporary file beside `target` that takes its place if all goes well, and else vanishes.

    Raises:
        ModelError: If the folder cannot be written.
    """
    with replacing_all([target]) as (temporary,):
        yield temporary


@contextlib.contextmanager
def replacing_all(targets: Sequence[Path]) -> Iterator[list[Path]]:
    """Temporary files that take the places of `targets`: all if all goes well, and else none.

    Raises:
        ModelError: If a folder cannot be written.
    """
    made: list[Path] = []
    target = targets[0]
    try:
        for target in targets:
            if target.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            made.append(_temporary(target))
        yield made
        for temporary in made:
            temporary.chmod(0o666 & ~_umask())
        _exchange(made, targets)
    except OSError as error:
        raise ModelError(
            f"cannot write {target}: {error.strerror or error}", "Choose another place."
        ) from None
    finally:
        for temporary in made:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until no other run writes models into a folder, and keep others waiting.

    Two runs with one target could otherwise leave the model of one beside the data of the other.  The
    lock is on the folder itself: nothing is left behind, whatever becomes of this process.
    """
    if sys.platform == "win32":  # where what is open cannot be replaced in the first place
        yield
        return
    import fcntl

    with contextlib.ExitStack() as held:
        # Some file systems have no locks, and some folders may be written but not read; where there is no
        # folder, the write itself says so.
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            held.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _temporary(target: Path) -> Path:
    """An empty file beside `target`; of a long name it has the beginning only."""
    if is_special(target):
        raise OSError(errno.EINVAL, SPECIAL)
    name = target.name[:64]
    handle, path = tempfile.mkstemp(dir=target.parent, prefix=f".{name}.", suffix=".tmp")
    os.close(handle)
    return Path(path)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _exchange(made: Sequence[Path], targets: Sequence[Path]) -> None:
    """Put new files in their places; if one cannot be, those before it are taken back.

    Of several files the last one, the model, is the first to go and the last to come: whenever the process
    is killed, no model stands beside the data of another one.
    """
    with contextlib.ExitStack() as undo:
        old: list[Path] = []
        for temporary, target in reversed(list(zip(made, targets, strict=True))[len(made) == 1 :]):
            if target.exists():
                aside = temporary.with_suffix(".old")
                target.replace(aside)
                undo.callback(aside.replace, target)
                old.append(aside)
            else:
                undo.callback(partial(target.unlink, missing_ok=True))
        for temporary, target in zip(made, targets, strict=True):
            temporary.replace(target)
        undo.pop_all()
    for aside in old:
        aside.unlink(missing_ok=True)


def check_target(target: Path, source: Path | None) -> None:
    """Refuse an output that cannot be written, before any work is done.

    Raises:
        UsageError: If it is the input, a directory, a pipe or a device, if its folder is missing or
            read-only, or if no file can have its name.
    """
    try:
        folder_there, is_folder, there = target.parent.is_dir(), target.is_dir(), target.exists()
    except OSError as error:
        raise UsageError(
            f"cannot write {target}: {error.strerror}", "Choose another name with -o."
        ) from None
    if is_folder:
        raise UsageError(f"-o {target} is a directory", f"Name a file: -o {target / 'out.onnx'}")
    if str(target) == "-" or is_special(target):
        raise UsageError(f"-o {target}: {SPECIAL}", "Name a file: -o out.onnx")
    if source is not None and there and source.exists() and target.samefile(source):
        raise UsageError(
            f"-o {target} is the input itself", "The input is never overwritten; name another file."
        )
    if not folder_there:
        raise UsageError(
            f"cannot write {target}: there is no folder {target.parent}", "Make it first."
        )
    if not os.access(target.parent, os.W_OK):
        raise UsageError(
            f"cannot write {target}: no permission to write in {target.parent}",
            "Choose another place with -o.",
        )
