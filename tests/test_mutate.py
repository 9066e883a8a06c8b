"""The mutation check: its rows follow the code, and it tells what it sees."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import pytest

from scripts import mutate
from scripts.mutate import ROOT, ROWS, Mutant, Outcome

MUTANTS = mutate.read(ROWS)
EVERY = [m for path in sorted(ROWS.parent.glob("*mutants.toml")) for m in mutate.read(path)]
"""The rows of all tables."""


def test_there_are_enough_of_them() -> None:
    """Precautions of every part of the engine, each under a name of its own."""
    assert len(MUTANTS) >= 45
    assert len({(m.file, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)
    assert all(m.file.startswith("onnx_sched/") and m.tests and m.old != m.new for m in MUTANTS)


@pytest.mark.parametrize("mutant", EVERY, ids=lambda m: m.name)
def test_a_row_follows_the_code(mutant: Mutant) -> None:
    """Its text stands once in its file, the file is still Python without it, and its tests are there."""
    assert mutant.fault(ROOT) == ""
    changed = mutant.text(ROOT)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse((ROOT / mutant.file).read_text()))
    for test in mutant.tests:
        file, _, function = test.partition("::")
        text = (ROOT / file).read_text()
        assert not function or f"def {function.partition('[')[0]}(" in text


# -- the check itself, on a package of one line ----------------------------------------------------------

CODE = "def price(age):\n    return 5 if age < 18 else 9\n"
TESTS = "import onnx_sched\ndef test_price():\n    assert onnx_sched.price(17) == 5\n"
LESS, CHILD = ("age < 18", "age < 0"), ("age < 18", "age < 65")
TABLE = """[[mutant]]
name = '{name}'
file = 'onnx_sched/__init__.py'
old = '{old}'
new = '{new}'
tests = ['{tests}']
"""


def small_tree(folder: Path, tests: str = TESTS) -> Path:
    """A repository with a package that is called like ours, and one test."""
    tree = folder / "tree"
    (tree / "onnx_sched").mkdir(parents=True)
    (tree / "tests").mkdir()
    (tree / "onnx_sched" / "__init__.py").write_text(CODE)
    (tree / "tests" / "test_price.py").write_text(tests)
    (tree / ".gitignore").write_text("*.log\n")
    (tree / "noise.log").write_text("not ours\n")
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    return tree


def row(name: str, old: str, new: str, tests: str = "tests/test_price.py") -> str:
    return TABLE.format(name=name, old=old, new=new, tests=tests)


def checked(
    folder: Path, tree: Path, *rows: str, more: tuple[str, ...] = ()
) -> tuple[int, list[Outcome]]:
    """What the check exits with, and what it writes."""
    (folder / "rows.toml").write_text("\n".join(rows))
    given = ("--tree", str(tree), "--rows", str(folder / "rows.toml"))
    code = mutate.main([*given, "--json", str(folder / "out.json"), "--limit", "60", *more])
    written = folder / "out.json"
    listed = json.loads(written.read_text()) if written.exists() else []
    return code, [Outcome(**o) for o in listed]


def test_what_tests_see_is_killed_and_what_they_do_not_survives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each mutant runs in a copy of the tree, which stays as it is; stale rows are told."""
    tree = small_tree(tmp_path)
    rows = (row("children", *LESS), row("the old", *CHILD), row("gone", "age > 18", "True"))
    code, found = checked(tmp_path, tree, *rows, more=("--jobs", "2"))
    assert code == 1
    assert [(o.name, o.status) for o in found] == [
        ("children", "killed"),
        ("the old", "survived"),
        ("gone", "stale"),
    ]
    assert found[0].by == "tests/test_price.py::test_price"
    assert "1 of 3 mutants killed" in capsys.readouterr().out
    assert (tree / "onnx_sched" / "__init__.py").read_text() == CODE


def test_a_clean_table_is_no_failure(tmp_path: Path) -> None:
    """All killed: exit 0; `--only` leaves the other rows out."""
    tree = small_tree(tmp_path)
    rows = (row("children", *LESS), row("the old", *CHILD))
    code, found = checked(tmp_path, tree, *rows, more=("--only", "children"))
    assert (code, [o.name for o in found]) == (0, ["children"])
    with pytest.raises(SystemExit):
        checked(tmp_path, tree, *rows, more=("--only", "nobody"))


def test_a_test_that_fails_anyway_shows_nothing(tmp_path: Path) -> None:
    """The tests run once without any mutant: a row whose test fails then has nothing to show."""
    tree = small_tree(tmp_path, TESTS.replace("== 5", "== 6"))
    code, (found,) = checked(tmp_path, tree, row("children", *LESS))
    assert (code, found.status, found.by) == (1, "broken", "tests/test_price.py::test_price")
    assert "without any mutant" in found.reason


def test_what_cannot_run_is_not_killed(tmp_path: Path) -> None:
    """A mutant that cannot be imported, or that never ends, shows nothing about the tests."""
    tree = small_tree(tmp_path)
    code, found = checked(tmp_path, tree, row("no Python", "def price", "def ("))
    assert (code, found[0].status) == (1, "broken")
    endless = row("endless", "return 5", "while True: pass #")
    code, found = checked(tmp_path, tree, endless, more=("--limit", "15"))
    assert (code, found[0].status, found[0].reason[:11]) == (1, "broken", "out of time")


def test_a_process_that_dies_is_a_test_that_failed() -> None:
    """A crash of the runtime ends pytest itself: that is seen, too."""
    assert mutate.judged("x", -8, "", 1.0) == Outcome(
        "x", "killed", "signal SIGFPE", "the process died", 1.0
    )


def test_copies_hold_what_git_would_take(tmp_path: Path) -> None:
    """Files that git ignores stay behind; links stay links; deleted files are not missed."""
    tree = small_tree(tmp_path)
    (tree / "link").symlink_to("onnx_sched")
    subprocess.run(["git", "-C", str(tree), "add", "-A"], check=True)
    (tree / "tests" / "test_price.py").unlink()
    copy = tmp_path / "copy"
    mutate.copy(tree, copy)
    assert sorted(p.name for p in copy.iterdir()) == [".gitignore", "link", "onnx_sched"]
    assert (copy / "link").is_symlink()


def test_a_package_from_elsewhere_is_refused(tmp_path: Path) -> None:
    """A copy without the package would test what is installed."""
    tmp_path.joinpath("sitecustomize.py").write_text("")
    with pytest.raises(RuntimeError, match="not from the copy"):
        mutate.check_copy(tmp_path)


def test_names_stand_once(tmp_path: Path) -> None:
    """Two rows of one name cannot be told apart."""
    path = tmp_path / "rows.toml"
    path.write_text(row("twice", *LESS) + row("twice", *CHILD))
    with pytest.raises(ValueError, match="twice"):
        mutate.read(path)
