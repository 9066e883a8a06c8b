"""Time two models in a process of its own.

Where memory lies and how the clock ticks is settled anew for every process; a few of them tell a speed-up
from the luck of one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx

from onnx_sched.errors import ProviderError, SchedError
from onnx_sched.judge.feed_source import FeedSource
from onnx_sched.judge.opening import Setup
from onnx_sched.judge.probe import probe
from onnx_sched.judge.runtime import RuntimeRefused
from onnx_sched.judge.timing import Samples, time_models


@dataclass(frozen=True, slots=True)
class Job:
    """What to time.

    Attributes:
        before, after: Files of the models.
        source: Their inputs.
        setup: How to run them.
        pairs, seconds, seed: As for `time_models`.
    """

    before: Path
    after: Path
    source: FeedSource
    setup: Setup
    pairs: int
    seconds: float
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "before": str(self.before.absolute()),
            "after": str(self.after.absolute()),
            "source": self.source.to_dict(),
            "setup": asdict(self.setup),
            "pairs": self.pairs,
            "seconds": self.seconds,
            "seed": self.seed,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Job:
        """From JSON."""
        return cls(
            Path(data["before"]),
            Path(data["after"]),
            FeedSource.from_dict(data["source"]),
            Setup(**data["setup"]),
            data["pairs"],
            data["seconds"],
            data["seed"],
        )


def run_here(job: Job) -> tuple[Samples, ...]:
    """Do the job in this process.

    Raises:
        RuntimeRefused: A model does not load or run so.
        ProviderError: A model would run elsewhere.
    """
    model = onnx.load(str(job.before), load_external_data=False)
    return time_models(
        job.before,
        job.after,
        job.source.load(model),
        job.setup,
        pairs=job.pairs,
        seconds=job.seconds,
        seed=job.seed,
    )


def run_apart(job: Job) -> tuple[Samples, ...]:
    """Do the job in a new process.

    Raises:
        RuntimeRefused: A model does not load or run so, or the process died.
        ProviderError: A model would run elsewhere.
    """
    with tempfile.TemporaryDirectory(prefix="onnx-sched-") as folder:
        asked, answer = Path(folder) / "job.json", Path(folder) / "answer.json"
        asked.write_text(json.dumps(job.to_dict()), encoding="utf-8")
        command = [sys.executable, "-m", "onnx_sched.judge.worker", str(asked), str(answer)]
        ended = subprocess.run(
            command,
            env={**os.environ, "ORT_DISABLE_TELEMETRY": "1"},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if not answer.exists():
            last = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
            raise RuntimeRefused(f"the process that timed the models died: {last}")
        data = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in data:
        kind = ProviderError if data["error"] == "ProviderError" else RuntimeRefused
        raise kind(data["message"], data["hint"])
    return tuple(Samples.from_dict(row) for row in data["openings"])


def main(asked: str, answer: str) -> None:
    """What the new process does: read a job, write samples or an error."""
    job = Job.from_dict(json.loads(Path(asked).read_text(encoding="utf-8")))
    try:
        # The first session of a process also wakes the provider up; that is no part of a cold start.
        probe(job.setup.provider)
        data: dict[str, Any] = {"openings": [part.to_dict() for part in run_here(job)]}
    except SchedError as error:
        data = {"error": type(error).__name__, "message": str(error), "hint": error.hint}
    Path(answer).write_text(json.dumps(data), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:3])
