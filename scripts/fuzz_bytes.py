"""Feed damaged models to the optimiser: each gets an error in words or a result, and nothing else.

    python -m scripts.fuzz_bytes --count 50000 --seed 0 [--check] [--jobs 2] [--keep DIR]

Models are cut, flipped, spliced, and given impossible values (`tests/mutations.py`), then optimised and
saved in processes of limited memory; `--check` has ONNX Runtime run both, too.  A fault is any exception
but the tool's own, a crash, a hang, too much memory, disagreement, a file outside the output folder, or a
secret from beside the model's folder in the output.  Prints each fault and a summary; exits 1 on faults.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

from onnx import ModelProto

import onnx_sched
from onnx_sched.errors import MismatchError, SchedError
from tests import feature_models
from tests.backend_cases import grafted
from tests.mutations import mutated
from tests.nets import FOLDER
from tests.stored import beside, layered

SECRET = b"what stands beside the model is nobody's business"
FINE = ("optimized", "unchanged", "refused")


@dataclass(frozen=True, slots=True)
class Setting:
    """How inputs are tried: with ONNX Runtime or without, seconds for each, bytes for a process."""

    check: bool
    seconds: float
    memory: int


def corpus() -> list[bytes]:
    """Small sound models with all that a model can have."""
    small = [p.read_bytes() for p in sorted(FOLDER.glob("*.onnx")) if p.stat().st_size < 40_000]
    rich = [feature_models.with_field(p) for p in feature_models.field_paths()[::7]]
    made = [layered(), *map(grafted, rich), feature_models.with_body()]
    with tempfile.TemporaryDirectory() as folder:
        external = beside(Path(folder), layered()).read_bytes()
    return [*small, *(m.SerializeToString() for m in made), *[external] * 8]


def attempt(seed: int, models: Sequence[bytes], folder: Path, setting: Setting) -> str:
    """Optimise one damaged model; says what became of it."""
    inner, out = folder / "in", folder / "out"
    for made in (inner, out):
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
    (folder / "secret").write_bytes(SECRET * 3000)
    beside(inner, layered())
    (inner / "m.onnx").write_bytes(mutated(seed, models))
    before = sorted(p for p in folder.rglob("*") if out not in p.parents)
    try:
        result = onnx_sched.optimize(
            inner / "m.onnx", choose="always", check=setting.check, provider="cpu"
        )
        result.save(out / "m.onnx")
        ModelProto.FromString((out / "m.onnx").read_bytes())
        status = str(result.report.status)
    except MismatchError as error:
        return f"mismatch: {error}"
    except SchedError:
        status = "refused"
    except RecursionError:
        return f"RecursionError: {traceback.format_exc(limit=-2)}"
    if sorted(p for p in folder.rglob("*") if out not in p.parents) != before:
        return "something was written outside the output folder"
    if any(SECRET in p.read_bytes() for p in out.rglob("*") if p.is_file()):
        return "the output holds a secret"
    return status


def worker(seeds: range, models: Sequence[bytes], setting: Setting, pipe: int) -> None:
    """Try seeds one by one, and tell each before and after, so that a crash has a name."""
    resource.setrlimit(resource.RLIMIT_AS, (setting.memory, setting.memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory(prefix="fuzz_bytes_") as folder, os.fdopen(pipe, "w") as told:
        os.chdir(folder)
        for seed in seeds:
            print(json.dumps([seed, "begun"]), file=told, flush=True)
            try:
                status = attempt(seed, models, Path(folder), setting)
            except BaseException:  # whatever it is, it is what this script looks for
                status = traceback.format_exc(limit=-3)
            print(json.dumps([seed, status]), file=told, flush=True)


def batch(seeds: range, models: Sequence[bytes], setting: Setting) -> list[tuple[int, str]]:
    """Try seeds in processes of their own; after a crash or a hang a new one goes on."""
    found: list[tuple[int, str]] = []
    while len(found) < len(seeds):
        rest = seeds[len(found) :]
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reader)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
            os.dup2(sys.stdout.fileno(), 1)
            os.dup2(sys.stdout.fileno(), 2)
            worker(rest, models, setting, writer)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as told:
            late = _listen(told.fileno(), found, setting.seconds)
        if late:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if len(found) < len(seeds):
            why = f"took more than {setting.seconds:.0f} s" if late else f"died: status {status}"
            found.append((seeds[len(found)], why))
    return found


def _listen(pipe: int, found: list[tuple[int, str]], seconds: float) -> bool:
    """Collect what a worker tells until it ends; whether it fell silent for too long."""
    text = b""
    while True:
        if not select.select([pipe], [], [], seconds)[0]:
            return True
        data = os.read(pipe, 1 << 16)
        if not data:
            return False
        *lines, text = (text + data).split(b"\n")
        for line in lines:
            seed, status = json.loads(line)
            if status != "begun":
                found.append((seed, status))


def main() -> int:
    """Try all seeds, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--check", action="store_true", help="let ONNX Runtime run both models")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--time", type=float, default=60.0, help="seconds for one input")
    parser.add_argument("--memory", type=float, default=4.0, help="GiB of address space")
    parser.add_argument("--keep", type=Path, help="where inputs that made faults are written")
    given = parser.parse_args()
    setting = Setting(given.check, given.time, int(given.memory * 2**30))
    begin, models = time.monotonic(), corpus()
    onnx_sched.optimize(
        ModelProto.FromString(models[0]), check=False
    )  # imports all, before any fork
    seeds = range(given.seed, given.seed + given.count)
    size = max(1, min(500, -(-given.count // given.jobs)))
    parts = [seeds[k : k + size] for k in range(0, len(seeds), size)]
    counts = Counter[str]()
    with ThreadPoolExecutor(given.jobs) as pool:
        for found in pool.map(lambda part: batch(part, models, setting), parts):
            for seed, status in found:
                counts[status if status in FINE else "fault"] += 1
                if status not in FINE:
                    print(f"seed {seed}: {status.strip()}", flush=True)
                    if given.keep:
                        given.keep.mkdir(parents=True, exist_ok=True)
                        (given.keep / f"{seed}.onnx").write_bytes(mutated(seed, models))
    took = time.monotonic() - begin
    print(f"{given.count} inputs in {took:.0f} s: {dict(counts)}")
    return int(bool(counts["fault"]) or not given.count)


if __name__ == "__main__":
    sys.exit(main())
