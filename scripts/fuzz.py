"""Optimize random models and see whether the results are right.

    python -m scripts.fuzz --count 20000 --seed 0 [--jobs 2] [--json FILE]

Prints one line for each failure and a summary; exits 1 if anything failed.
"""

from __future__ import annotations

import json
import multiprocessing as mp
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path

import click
import numpy as np

from scripts.fuzz_judge import Case, Outcome, judge
from scripts.fuzz_laws import ORIGINAL
from scripts.fuzz_limits import where

PATIENCE = 120.0
"""Seconds after which a model counts as hung."""


def _work(pipe: Connection) -> None:
    """Judge the cases that come in until None comes."""
    while (case := pipe.recv()) is not None:
        try:
            pipe.send(judge(case, pipe.send))
        except Exception as error:  # a mistake of the generator or of the judge
            pipe.send(Outcome(case, "failed", f"the judge raises {where(error)}"))


class _Worker:
    """A process that judges one case after another."""

    def __init__(self) -> None:
        context = mp.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.case: Case = -1
        self.stage = ""
        self.since = 0.0

    def give(self, case: Case) -> None:
        """Hand over a case."""
        self.case, self.stage, self.since = case, "", time.monotonic()
        self.pipe.send(case)

    def take(self) -> Outcome | None:
        """What the worker says next; None if it only says whose turn it is, or is still at work."""
        late = time.monotonic() - self.since > PATIENCE
        if not late and not self.pipe.poll():
            return None
        try:
            said = self.pipe.recv() if self.pipe.poll() else None
        except EOFError:
            self.process.join()
            said = None
        if isinstance(said, str):
            self.stage = said
            return None
        if isinstance(said, Outcome):
            return said
        what = "hangs" if late else f"crashes the process, exit code {self.process.exitcode}"
        status = "skipped" if self.stage.startswith(ORIGINAL) else "failed"
        return Outcome(self.case, status, f"{self.stage or 'the generator'} {what}")

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def outcomes(cases: Iterable[Case], jobs: int) -> Iterator[Outcome]:
    """Judge cases in processes of their own, so that a crash is an outcome, too."""
    left = iter(cases)
    workers: list[_Worker] = []
    for _ in range(jobs):
        if (case := next(left, None)) is not None:
            workers.append(_Worker())
            workers[-1].give(case)
    while workers:
        wait([w.pipe for w in workers], timeout=1.0)
        for worker in list(workers):
            if (outcome := worker.take()) is None:
                continue
            yield outcome
            case = next(left, None)
            if case is None or not worker.process.is_alive() or "hangs" in outcome.reason:
                worker.stop()
                workers.remove(worker)
            if case is not None:
                if worker not in workers:
                    workers.append(worker := _Worker())
                worker.give(case)


@click.command(help=(__doc__ or "").split("\n", 1)[0])
@click.option("--count", default=20000, show_default=True, help="Number of models.")
@click.option("--seed", default=0, show_default=True, help="The first seed.")
@click.option("--jobs", default=2, show_default=True, help="Worker processes.")
@click.option("--json", "target", type=click.Path(path_type=Path), help="Write the summary here.")
def main(count: int, seed: int, jobs: int, target: Path | None) -> None:
    """Judge many models and sum up."""
    begin = time.monotonic()
    status, groups, refusals, skipped = (Counter[str]() for _ in range(4))
    failures: list[Outcome] = []
    compared = np.zeros(2, int)
    batched = 0
    for outcome in outcomes(range(seed, seed + count), jobs):
        status[outcome.status] += 1
        groups.update(outcome.groups)
        refusals.update(outcome.refusals)
        compared += outcome.compared
        batched += bool(outcome.groups)
        if outcome.status == "skipped":
            skipped[outcome.reason[:60]] += 1
        if outcome.status == "failed":
            failures.append(outcome)
            print(f"{outcome.case}: {outcome.reason}", flush=True)
    summary = {
        "models": count,
        "status": dict(status),
        "batched": batched,
        "outputs_compared": int(compared[0]),
        "outputs_too_sensitive": int(compared[1]),
        "groups": dict(groups.most_common()),
        "refusals": dict(sorted(refusals.items())),
        "skipped": dict(skipped.most_common(20)),
        "failures": [{"case": f.case, "reason": f.reason} for f in failures],
        "seconds": round(time.monotonic() - begin, 1),
    }
    shown = {k: v for k, v in summary.items() if k != "failures"}
    print(json.dumps(shown, indent=2))
    if target is not None:
        target.write_text(json.dumps(summary, indent=2) + "\n")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
