"""Optimise every .onnx under some folders, each in a process of its own, and tell what became of it.

    python -m scripts.sweep DIR... [--choose always] [--time 300] [--memory 8] [--json FILE]

`optimized` models are compared once more with other inputs, through onnx's full checker, and must not
lose a node that no group took; `unchanged` ones must be byte copies.  A `refused` model got an error in
words; a `failed` one crashed, hung, took too much memory, or left a wrong file.  Exits 1 if any model
failed or any output was a `mismatch`.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

TOOL = (sys.executable, "-m", "onnx_sched")
CHECK = "import sys, onnx; onnx.checker.check_model(sys.argv[1], full_check=True)"
COMPARE = """
import sys
from pathlib import Path
import onnx
from onnx_sched.judge import agree, feeds
before, after = map(Path, sys.argv[1:])
model = onnx.load(before, load_external_data=False)
specs = feeds.input_specs(model)
names = {d for s in specs for d in s.shape if isinstance(d, str)}
# Some models run at no small size: windows of audio, for one.
for dims in ({}, dict.fromkeys(names, [640]), {n: [512 if "batch" not in n else 2] for n in names}):
    sizes = feeds.plan_sizes(specs, dims, {})[:1]
    fed = [feeds.make_feeds(model, size, seed) for size in sizes for seed in (7, 8)]
    found = agree.validate(before, after, fed, "CPUExecutionProvider")
    if found.verdict != "unvalidated":
        break
print(found.verdict, found.reason)
"""
BAD = ("failed", "mismatch")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one process may take: seconds of the clock, and bytes of address space."""

    seconds: float
    memory: int


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended; `code` is negative for a signal, None if it ran out of time."""

    code: int | None
    out: str
    err: str
    seconds: float
    peak_mib: int


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one model."""

    model: str
    status: str
    nodes: tuple[int, int] | None
    verdict: str
    seconds: float
    peak_mib: int
    reason: str = ""


def run(command: Sequence[str], limits: Limits) -> Ended:
    """Run a command within its limits and see how it ends."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_AS, (limits.memory, limits.memory)
            ),
        )
        late = False
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if not late and time.monotonic() - begin > limits.seconds:
                late = True
                os.killpg(process.pid, 9)
            time.sleep(0.02)
        process.returncode = os.waitstatus_to_exitcode(status)
        code = None if late else process.returncode
        took = round(time.monotonic() - begin, 2)
        return Ended(code, _text(out), _text(err), took, usage.ru_maxrss // 1024)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def crashed(ended: Ended) -> str:
    """Why a process counts as crashed; empty if it ended on purpose, with or without an error."""
    if ended.code is None:
        return f"took longer than {ended.seconds:.0f} s"
    if ended.code < 0:
        return f"died of signal {-ended.code}"
    if "Traceback (most recent call last)" in ended.err:
        return ended.err.strip().splitlines()[-1][:300]
    return (
        "" if ended.code == 0 or "error:" in ended.err.lower() else f"exit {ended.code}, no words"
    )


def sweep(model: Path, choose: str, limits: Limits) -> Row:
    """Optimise one model and look at the result."""
    with tempfile.TemporaryDirectory(prefix="sweep_") as folder:
        out = Path(folder) / "out.onnx"
        command = [*TOOL, "optimize", str(model), "-o", str(out), "--json", "--choose", choose]
        ended = run(command, limits)
        took = (ended.seconds, ended.peak_mib)
        fault = crashed(ended)
        if fault:
            return Row(str(model), "failed", None, "", *took, fault)
        if ended.code:
            words = next((x for x in ended.err.splitlines() if "error:" in x.lower()), ended.err)
            status = "mismatch" if ended.code == 3 else "refused"
            return Row(str(model), status, None, "", *took, words[:300])
        report = json.loads(ended.out)
        nodes = (report["nodes"]["before"], report["nodes"]["after"])
        verdict = report["agreement"]["verdict"]
        if report["status"] == "unchanged":
            same = filecmp.cmp(model, out, shallow=False)
            status, reason = ("unchanged", "") if same else ("failed", "the output is no byte copy")
        else:
            status, reason = second_look(model, out, limits)
        return Row(str(model), status, nodes, verdict, *took, reason)


def second_look(model: Path, out: Path, limits: Limits) -> tuple[str, str]:
    """Check a rewritten model without trusting the run that made it."""
    checked = run([sys.executable, "-c", CHECK, str(out)], limits)
    if checked.code and not run([sys.executable, "-c", CHECK, str(model)], limits).code:
        return "failed", f"the checker refuses the result only: {checked.err.strip()[-200:]}"
    compared = run([sys.executable, "-c", COMPARE, str(model), str(out)], limits)
    fault = crashed(compared) if compared.code else ""
    if fault:
        return "failed", f"comparing: {fault}"
    verdict, _, reason = compared.out.strip().partition(" ")
    if verdict == "mismatch":
        return "mismatch", reason
    return "optimized", f"second look: {verdict} {reason[:120]}".strip()


def table(rows: Sequence[Row]) -> str:
    """The rows for a person, and how many there are of each kind."""
    width = max((len(_short(r.model)) for r in rows), default=5)
    lines = [f"{'model':{width}}  {'status':9}  {'nodes':>13}  {'verdict':16} {'s':>6} {'MiB':>6}"]
    for r in rows:
        nodes = f"{r.nodes[0]} -> {r.nodes[1]}" if r.nodes else ""
        lines.append(
            f"{_short(r.model):{width}}  {r.status:9}  {nodes:>13}  {r.verdict:16} "
            f"{r.seconds:6.1f} {r.peak_mib:6d}  {r.reason}".rstrip()
        )
    counts = Counter(r.status for r in rows)
    kinds = ("optimized", "unchanged", "refused", *BAD)
    lines.append(f"{len(rows)} models: " + ", ".join(f"{counts[k]} {k}" for k in kinds))
    return "\n".join(lines)


def _short(path: str) -> str:
    return "/".join(Path(path).parts[-2:])


def main() -> int:
    """Sweep, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--choose", default="always", choices=("always", "model", "measured"))
    parser.add_argument("--time", type=float, default=300.0, help="seconds for each process")
    parser.add_argument("--memory", type=float, default=16.0, help="GiB for each process")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    limits = Limits(given.time, int(given.memory * 2**30))
    models = sorted(p for folder in given.folders for p in folder.rglob("*.onnx"))
    with ThreadPoolExecutor(given.jobs) as pool:
        rows: list[Row] = []
        for row in pool.map(lambda m: sweep(m, given.choose, limits), models):
            print(f"{len(rows) + 1}/{len(models)} {row.status} {row.model}", file=sys.stderr)
            rows.append(row)
    print(table(rows))
    if given.json:
        given.json.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n", "utf-8")
    return int(any(r.status in BAD for r in rows) or not rows)


if __name__ == "__main__":
    sys.exit(main())
