"""What is installed: every file of the package, and nothing that stands beside it."""

from __future__ import annotations

import fnmatch
import tomllib
from pathlib import Path

import onnx_sched
from tests.nets import FOLDER

ROOT = FOLDER.parent
PACKAGE = Path(onnx_sched.__file__).parent
SETUP = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
FIND = SETUP["tool"]["setuptools"]["packages"]["find"]["include"]


def files() -> list[Path]:
    """The package's files, relative to it; what Python itself makes left out."""
    found = (p.relative_to(PACKAGE) for p in sorted(PACKAGE.rglob("*")) if p.is_file())
    return [p for p in found if "__pycache__" not in p.parts and not p.name.startswith(".")]


def test_every_file_that_is_no_module_is_declared() -> None:
    """Profiles, schemas, templates, texts: each lies where `package-data` looks, and each entry finds one."""
    patterns = SETUP["tool"]["setuptools"]["package-data"]["onnx_sched"]
    found = [{p.relative_to(PACKAGE) for p in PACKAGE.glob(pattern)} for pattern in patterns]
    assert all(found)
    assert set().union(*found) == {p for p in files() if p.suffix != ".py"}


def test_every_folder_with_modules_is_a_package() -> None:
    """A folder without `__init__.py` would be left out of the wheel."""
    folders = {p.parent for p in files() if p.suffix == ".py"}
    assert {f for f in folders if not (PACKAGE / f / "__init__.py").is_file()} == set()


def test_nothing_else_is_taken_along() -> None:
    """Tests, models, scripts and the link at the top match no pattern; the package does."""
    beside = [p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith(".")]
    taken = [name for name in beside if any(fnmatch.fnmatchcase(name, x) for x in FIND)]
    assert [name for name in taken if not name.endswith("egg-info")] == ["onnx_sched"]
    assert {"tests", "models", "scripts"} <= set(beside)


def test_the_link_at_the_top_leads_to_the_passes() -> None:
    """`passes` is a link, not a second copy."""
    link = ROOT / "passes"
    assert link.is_symlink()
    assert link.resolve() == PACKAGE.resolve() / "passes"
