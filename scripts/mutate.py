"""Mutation check: switch off one precaution at a time and see that a test fails.

    python -m scripts.mutate [--only NAME]... [--jobs 2] [--limit 300] [--tree DIR] [--json FILE]

The rows are in scripts/mutants.toml: a piece of text that stands once in a file, what to put in its place,
and the tests that must notice.  Nothing is changed in the tree: every worker has a copy of it.  First the
tests run with the tree as it is, for a test that fails anyway shows nothing.

    killed    a test failed, or the process that ran the tests died
    survived  all tests passed: a test is missing
    stale     the text does not stand exactly once in the file: the row must follow the code
    broken    the tests could not run, took too long, or fail anyway: nothing is shown

Exits 1 if any mutant is not killed.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROWS = Path(__file__).resolve().parent / "mutants.toml"
PYTEST = "-m pytest -x -q -p no:cacheprovider --tb=line --hypothesis-seed=0".split()
LISTED = "ls-files -z --cached --others --exclude-standard".split()
PACKAGE = "onnx_sched"
WHERE = f"import {PACKAGE}; print({PACKAGE}.__file__)"
PASSED, FAILED = 0, 1
"""What pytest exits with; other numbers say that it could not run the tests."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One precaution, and how to switch it off.

    Attributes:
        name: What the precaution is.
        file: Where it is.
        old: The text that is it.
        new: The text without it.
        tests: What must fail then: test files, or single tests as pytest names them.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def fault(self, tree: Path) -> str:
        """Why the mutant cannot be made of a tree; empty if it can."""
        path = tree / self.file
        if not path.is_file():
            return f"there is no file {self.file}"
        found = path.read_text("utf-8").count(self.old)
        return "" if found == 1 else f"its text stands {found} times in {self.file}"

    def text(self, tree: Path) -> str:
        """The file with the precaution switched off."""
        return (tree / self.file).read_text("utf-8").replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant: `by` is the test that failed, or how its process died."""

    name: str
    status: str
    by: str = ""
    reason: str = ""
    seconds: float = 0.0


def read(path: Path) -> tuple[Mutant, ...]:
    """The rows of a file.

    Raises:
        ValueError: If two have one name.
    """
    rows = tomllib.loads(path.read_text("utf-8"))["mutant"]
    found = tuple(Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows)
    names = [m.name for m in found]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ValueError(f"{path.name} has two rows called {twice[0]!r}")
    return found


def files_of(tree: Path) -> list[Path]:
    """The files of a tree that git knows or would take, relative to it."""
    command = ("git", "-C", str(tree), *LISTED)
    listed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    paths = [Path(name) for name in dict.fromkeys(listed.split("\0")) if name]
    return [p for p in paths if (tree / p).is_symlink() or (tree / p).is_file()]


def copy(tree: Path, folder: Path) -> None:
    """Copy a tree, links as links."""
    for path in files_of(tree):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / path, folder / path, follow_symlinks=False)


def _environment(folder: Path) -> dict[str, str]:
    """Python finds the copy first.  No bytecode is kept: a file of equal size and time would stay in use."""
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


def check_copy(folder: Path) -> None:
    """See that the package comes from a copy, wherever else it is installed.

    Raises:
        RuntimeError: If it comes from somewhere else.
    """
    command, environment = (sys.executable, "-c", WHERE), _environment(folder)
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    found = Path(ran.stdout.strip() or ".")
    if folder.resolve() not in found.resolve().parents:
        raise RuntimeError(f"{PACKAGE} comes from {found}, not from the copy: {ran.stderr[-300:]}")


def run_tests(folder: Path, tests: Sequence[str], limit: float) -> tuple[int | None, str]:
    """Run tests in a copy: what pytest exits with (None if it ran out of time), and what it said."""
    process = subprocess.Popen(
        (sys.executable, *PYTEST, *tests),
        cwd=folder,
        env=_environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        return None, said
    return process.returncode, said


def judged(name: str, code: int | None, said: str, seconds: float) -> Outcome:
    """What an end of the tests says about a mutant."""
    lines = [line for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    first, _, reason = (lines[0] if lines else "").partition(" - ")
    by = first.partition(" ")[2]
    if code == PASSED:
        return Outcome(name, "survived", "", "all tests passed", seconds)
    if code == FAILED:
        return Outcome(name, "killed", by, reason, seconds)
    if code is not None and code < 0:
        died = f"signal {signal.Signals(-code).name}"
        return Outcome(name, "killed", died, "the process died", seconds)
    why = "out of time" if code is None else f"pytest exited with {code}"
    tail = " | ".join(said.strip().splitlines()[-2:])
    return Outcome(name, "broken", by, f"{why}: {reason or tail}", seconds)


def tested(name: str, folder: Path, tests: Sequence[str], limit: float) -> Outcome:
    """Run tests in a copy as it is now, and say what that shows."""
    begin = time.monotonic()
    code, said = run_tests(folder, tests, limit)
    return judged(name, code, said, round(time.monotonic() - begin, 1))


def tried(mutant: Mutant, folder: Path, limit: float) -> Outcome:
    """Run a mutant's tests against it, in a copy that is put right again afterwards."""
    wrong = mutant.fault(folder)
    if wrong:
        return Outcome(mutant.name, "stale", "", wrong)
    path = folder / mutant.file
    right = path.read_bytes()
    path.write_text(mutant.text(folder), "utf-8")
    try:
        return tested(mutant.name, folder, mutant.tests, limit)
    finally:
        path.write_bytes(right)


Job = Callable[[Path], Outcome]


@contextmanager
def copies(tree: Path, count: int) -> Iterator[queue.Queue[Path]]:
    """Some copies of a tree, each with the package in it."""
    with tempfile.TemporaryDirectory(prefix="mutants_") as base:
        free: queue.Queue[Path] = queue.Queue()
        for k in range(count):
            folder = Path(base) / f"copy{k}"
            copy(tree, folder)
            check_copy(folder)
            free.put(folder)
        yield free


def each(jobs: Sequence[Job], free: queue.Queue[Path]) -> Iterator[Outcome]:
    """Do jobs, each in a copy of its own, as many at a time as there are copies."""

    def do(job: Job) -> Outcome:
        folder = free.get()
        try:
            return job(folder)
        finally:
            free.put(folder)

    pool = ThreadPoolExecutor(free.qsize())
    try:
        for done in as_completed([pool.submit(do, job) for job in jobs]):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def check(
    mutants: Sequence[Mutant], tree: Path, jobs: int, limit: float, tell: Callable[[Outcome], None]
) -> list[Outcome]:
    """Try mutants; their outcomes in the order of the rows."""
    found: dict[str, Outcome] = {}
    with copies(tree, jobs) as free:
        tests = dict.fromkeys(t for m in mutants for t in m.tests)
        plain = each([partial(tested, t, tests=(t,), limit=limit) for t in tests], free)
        failing = {o.name: o for o in plain if o.status != "survived"}
        work: list[Job] = []
        for mutant in mutants:
            wrong = [failing[t] for t in mutant.tests if t in failing]
            if wrong:
                why = f"fails without any mutant: {wrong[0].reason}"
                found[mutant.name] = Outcome(mutant.name, "broken", wrong[0].by, why)
                tell(found[mutant.name])
            else:
                work.append(partial(tried, mutant, limit=limit))
        for outcome in each(work, free):
            tell(outcome)
            found[outcome.name] = outcome
    return [found[m.name] for m in mutants]


def shown(outcome: Outcome) -> str:
    """An outcome as a line of a table."""
    by = f"{outcome.by}  {outcome.reason}".strip()
    return f"{outcome.status:<9} {outcome.name:<44} {outcome.seconds:>6.1f} s  {by}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the rows asked for; returns what to exit with."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="just this row")
    parser.add_argument("--jobs", type=int, default=1, help="how many to try at a time")
    parser.add_argument("--limit", type=float, default=600, help="seconds for the tests of a row")
    parser.add_argument("--tree", type=Path, default=ROOT, help="what to try them on")
    parser.add_argument("--rows", type=Path, default=ROWS, help="the table")
    parser.add_argument("--json", type=Path, help="where to write the outcomes")
    asked = parser.parse_args(arguments)
    mutants = read(asked.rows)
    missing = sorted(set(asked.only) - {m.name for m in mutants})
    if missing:
        parser.error(f"no row is called {missing[0]!r}")
    chosen = [m for m in mutants if not asked.only or m.name in asked.only]

    def tell(outcome: Outcome) -> None:
        print(shown(outcome), flush=True)

    found = check(chosen, asked.tree.resolve(), max(1, asked.jobs), asked.limit, tell)
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(o) for o in found], indent=1) + "\n", "utf-8")
    killed = sum(o.status == "killed" for o in found)
    print(f"{killed} of {len(found)} mutants killed")
    return int(killed < len(found))


if __name__ == "__main__":
    sys.exit(main())
