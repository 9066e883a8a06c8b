"""Files that are written: refused early where that cannot be, and there whole or not at all."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnx_sched.errors import ModelError, UsageError
from onnx_sched.targets import check_target, replacing, replacing_all
from tests.stored import listing


class Stop(Exception):  # noqa: N818 - an interruption, not an error
    """What a test raises in the middle of a write."""


@pytest.mark.parametrize("error", [Stop(), OSError(28, "No space left on device")])
def test_a_broken_write_leaves_the_old_file(tmp_path: Path, error: Exception) -> None:
    """Whatever goes wrong inside, the target is as it was, and no temporary file stays."""
    target = tmp_path / "out.onnx"
    target.write_bytes(b"old")

    def interrupted() -> None:
        with replacing(target) as temporary:
            temporary.write_bytes(b"half")
            raise error

    with pytest.raises((Stop, ModelError)) as caught:
        interrupted()
    assert listing(tmp_path) == {"out.onnx": b"old"}
    if isinstance(error, OSError):
        assert "No space left" in str(caught.value)
        assert str(target) in str(caught.value)


def test_a_write_takes_effect_at_its_end(tmp_path: Path) -> None:
    """Until the block ends there is the old file; then the new one, readable as others are."""
    target = tmp_path / "out.onnx"
    target.write_bytes(b"old")
    mask = os.umask(0o027)
    try:
        with replacing(target) as temporary:
            temporary.write_bytes(b"new")
            assert target.read_bytes() == b"old"
            assert temporary.parent == tmp_path
    finally:
        os.umask(mask)
    assert listing(tmp_path) == {"out.onnx": b"new"}
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_long_name_is_written_like_a_short_one(tmp_path: Path) -> None:
    """The temporary file has a name that is no longer, so that every name that a file can have is one."""
    target = tmp_path / ("x" * 255)
    with replacing(target) as temporary:
        temporary.write_bytes(b"new")
    assert listing(tmp_path) == {"x" * 255: b"new"}


@pytest.mark.parametrize("old", ["", "a", "bc", "abc"])
@pytest.mark.parametrize("fails", [None, 1, 2, 3, 4, 5])
def test_several_files_change_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, fails: int | None
) -> None:
    """If the system refuses any of the moves, all files are as they were; else all are new."""
    for name in old:
        (tmp_path / name).write_text(f"old {name}")
    before = listing(tmp_path)
    move, calls = Path.replace, itertools.count(1)

    def refusing(path: Path, target: Path) -> Path:
        if next(calls) == fails:
            raise OSError(13, "Permission denied")
        return move(path, target)

    monkeypatch.setattr(Path, "replace", refusing)
    targets = [tmp_path / name for name in "abc"]

    def write() -> None:
        with replacing_all(targets) as made:
            for temporary, target in zip(made, targets, strict=True):
                temporary.write_text(f"new {target.name}")
            assert {n: d for n, d in listing(tmp_path).items() if n in "abc"} == before

    moves = 3 + len(old)  # the old files step aside
    if fails is None or fails > moves:
        write()
        assert listing(tmp_path) == {name: f"new {name}".encode() for name in "abc"}
    else:
        with pytest.raises(ModelError, match="Permission denied"):
            write()
        assert listing(tmp_path) == before


@pytest.mark.parametrize("killed", range(1, 7))
def test_a_kill_between_two_moves_leaves_no_mixture(tmp_path: Path, killed: int) -> None:
    """Whenever the process ends, the last file is missing, or all are old, or all are new."""
    for name in "abc":
        (tmp_path / name).write_text("old")
    code = f"""
import itertools, os
from pathlib import Path
from onnx_sched.targets import replacing_all
move, calls = Path.replace, itertools.count(1)
def killing(path, target):
    move(path, target)
    if next(calls) == {killed}:
        os.kill(os.getpid(), 9)
Path.replace = killing
with replacing_all([Path(n) for n in "abc"]) as made:
    for temporary in made:
        temporary.write_text("new")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False)
    assert done.returncode == -9
    there = {n: (tmp_path / n).read_text() for n in "abc" if (tmp_path / n).exists()}
    assert "c" not in there or len(set(there.values())) == 1
    assert ("c" in there) == (killed == 6)


def test_writing_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    """A missing folder is named; so is a target that turns out to be a folder."""
    with (
        pytest.raises(ModelError, match="cannot write"),
        replacing(tmp_path / "missing" / "out.onnx"),
    ):
        pass
    (tmp_path / "folder").mkdir()
    with (
        pytest.raises(ModelError, match="cannot write"),
        replacing(tmp_path / "folder"),
    ):
        pass
    with (
        pytest.raises(ModelError, match=r"cannot write .*folder: Is a directory"),
        replacing_all([tmp_path / "folder", tmp_path / "out.onnx"]),
    ):
        pass
    assert listing(tmp_path) == {}


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A folder that says it cannot be written."""
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o500)
    yield folder
    folder.chmod(0o700)


def test_a_target_that_cannot_be_is_refused_early(
    tmp_path: Path, locked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The input itself under any name, a folder, a missing folder, one without permission."""
    source = tmp_path / "in.onnx"
    source.write_bytes(b"model")
    (tmp_path / "link.onnx").symlink_to(source)
    os.link(source, tmp_path / "hard.onnx")
    (tmp_path / "sub").mkdir()
    for name in ("in.onnx", "link.onnx", "hard.onnx", "sub/../in.onnx"):
        with pytest.raises(UsageError, match="is the input itself"):
            check_target(tmp_path / name, source)
    with pytest.raises(UsageError, match="is a directory") as caught:
        check_target(tmp_path, source)
    assert str(tmp_path / "out.onnx") in caught.value.hint
    with pytest.raises(UsageError, match="no folder"):
        check_target(tmp_path / "missing" / "out.onnx", source)
    if os.access(locked, os.W_OK):  # a superuser may write anywhere
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UsageError, match="no permission"):
        check_target(locked / "out.onnx", source)
    monkeypatch.undo()
    with pytest.raises(UsageError, match="cannot write"):
        check_target(tmp_path / ("x" * 300), source)
    check_target(tmp_path / "out.onnx", source)
    check_target(tmp_path / "in.onnx", None)
    assert source.read_bytes() == b"model"
