"""Large models, and writes that go wrong: memory, time, growth, and what is left behind.

    python -m scripts.check_large [CHECK]... [--folder DIR]

Checks: `big` (3 GB of external data), `sparse` (60 GB, a file full of holes), `nodes` (10,000 to 80,000),
`killed`, `full`, `linked`.  All are run if none is named.  Each prints a line with its numbers and limits;
exits 1 if a limit is broken.  Everything is made in a folder that is removed at the end; `big` takes 7 GB
of disk for a while.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper

from onnx_sched import files
from tests.stored import beside, layered

MIB = 2**20
ANONYMOUS = 1024  # MiB
GROWTH = 1.3
NODES, SECONDS = 50_000, 20.0

RUN = """
import resource, sys, time
import onnx_sched
result = onnx_sched.optimize(sys.argv[1], choose="always", check=False)
result.save(sys.argv[2])
usage = resource.getrusage(resource.RUSAGE_SELF)
print(result.report.status, len(result.report.groups), usage.ru_utime + usage.ru_stime)
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run of the optimiser ended; memory is that which no file stands behind."""

    code: int
    out: str
    err: str
    seconds: float
    anonymous_mib: int


def optimise(model: Path, out: Path, limit: Callable[[], None] | None = None) -> Ended:
    """Optimise and save a model in a process of its own, and watch its memory."""
    command = [sys.executable, "-c", RUN, str(model), str(out)]
    begin, peak = time.monotonic(), 0
    with tempfile.TemporaryFile("w+") as told, tempfile.TemporaryFile("w+") as wrong:
        process = subprocess.Popen(command, stdout=told, stderr=wrong, preexec_fn=limit)
        while process.poll() is None:
            peak = max(peak, _anonymous(process.pid))
            time.sleep(0.01)
        told.seek(0)
        wrong.seek(0)
        took = time.monotonic() - begin
        return Ended(process.returncode, told.read(), wrong.read(), took, peak // 1024)


def _anonymous(pid: int) -> int:
    """Anonymous memory of a process in KiB; 0 once it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [line.split()[1] for line in text.splitlines() if line.startswith("RssAnon")]
    return int(found[0]) if found else 0


def layers(folder: Path, count: int, lanes: int, width: int, *, sparse: bool) -> Path:
    """A model of layers of lanes, its weights in one file beside it."""
    graph = helper.make_graph([], "g", [], [])
    graph.input.append(helper.make_tensor_value_info("x", 1, ["n", width]))
    size, rng, at = 4 * width * width, np.random.default_rng(0), 0
    values = ["x"] * lanes
    with (folder / "m.data").open("wb") as file:
        for k in range(count):
            for lane in range(lanes):
                tensor = TensorProto(name=f"w{k}.{lane}", data_type=1, dims=[width, width])
                tensor.data_location = TensorProto.EXTERNAL
                for key, value in (("location", "m.data"), ("offset", at), ("length", size)):
                    tensor.external_data.add(key=key, value=str(value))
                graph.initializer.append(tensor)
                if not sparse:
                    file.write(rng.bytes(size))
                at += size
                out = f"v{k}.{lane}"
                graph.node.add(op_type="MatMul", input=[values[lane], tensor.name], output=[out])
                graph.node.add(op_type="Relu", input=[out], output=[f"r{k}.{lane}"])
                values[lane] = f"r{k}.{lane}"
        file.truncate(at)
    graph.node.add(op_type="Sum", input=values, output=["sum"])
    # The first weight once more, alone: it stays where it is, so that the result needs a data file.
    graph.node.add(op_type="MatMul", input=["sum", "w0.0"], output=["y"])
    graph.output.append(helper.make_tensor_value_info("y", 1, ["n", width]))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def _data(folder: Path, name: str, count: int, lanes: int, width: int, *, sparse: bool) -> bool:
    model = layers(folder, count, lanes, width, sparse=sparse)
    data = folder / "m.data"
    begin = time.monotonic()
    # A copy of holes would be done at once: there, reading through is what a copy must at least do.
    copy = Path(os.devnull) if sparse else folder / "copy"
    with data.open("rb") as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 24)
    plain = time.monotonic() - begin
    if not sparse:
        copy.unlink()
    done = optimise(model, folder / "out.onnx")
    stacked = lanes * 4 * width * width // MIB
    limit = min(ANONYMOUS, 150 + 2 * stacked)
    fine = done.code == 0 and done.out.startswith("optimized")
    fine &= done.anonymous_mib <= limit and done.seconds <= 2 * plain + 5
    print(
        f"{name}: {data.stat().st_size / 2**30:.1f} GiB, {done.out.strip() or done.err[-300:]}; "
        f"{done.anonymous_mib} MiB anonymous (limit {limit}), {done.seconds:.1f} s, "
        f"{'reading' if sparse else 'a plain copy'} {plain:.1f} s (limit twice that and 5 s)"
    )
    return fine and _complete(folder / "out.onnx")


def _complete(path: Path) -> bool:
    """Whether a model and its data are there and fit."""
    files.read(path)
    return True


def big(folder: Path) -> bool:
    """3 GB of random weights."""
    return _data(folder, "big", 48, 4, 2048, sparse=False)


def sparse(folder: Path) -> bool:
    """60 GB of holes."""
    return _data(folder, "sparse", 240, 4, 4096, sparse=True)


def many(count: int) -> ModelProto:
    """About so many nodes: 16 lanes of bias, activation and norm-like arithmetic between joins."""
    graph = helper.make_graph([], "g", [], [])
    graph.input.append(helper.make_tensor_value_info("x", 1, ["n", 8]))
    weights = np.random.default_rng(0).standard_normal((16, 8, 8)).astype(np.float32)
    for lane in range(16):
        graph.initializer.append(helper.make_tensor(f"w{lane}", 1, [8, 8], weights[lane].ravel()))
    value, k = "x", 0
    while len(graph.node) < count:
        ends = []
        for lane in range(16):
            names = [f"{k}.{lane}.{op}" for op in ("matmul", "relu", "tanh")]
            graph.node.add(op_type="MatMul", input=[value, f"w{lane}"], output=names[:1])
            graph.node.add(op_type="Relu", input=names[:1], output=names[1:2])
            graph.node.add(op_type="Tanh", input=names[1:2], output=names[2:])
            ends.append(names[2])
        value, k = f"{k}.sum", k + 1
        graph.node.add(op_type="Sum", input=ends, output=[value])
    graph.output.append(helper.make_tensor_value_info(value, 1, ["n", 8]))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def nodes(folder: Path) -> bool:
    """50,000 nodes in 20 s of one core, and no more than linear growth."""
    seconds: dict[int, float] = {}
    fine = True
    for count in (10_000, NODES, 80_000):
        path = folder / f"{count}.onnx"
        path.write_bytes(many(count).SerializeToString())
        done = optimise(path, folder / "out.onnx")
        fine &= done.code == 0 and done.out.startswith("optimized")
        seconds[count] = float(done.out.split()[2]) if fine else 0.0
        print(
            f"nodes: {count}: {done.out.strip() or done.err[-300:]}, {done.anonymous_mib} MiB, "
            f"{done.seconds:.1f} s by the clock"
        )
    grown = seconds[80_000] / (8 * seconds[10_000]) if fine else 0.0
    print(
        f"nodes: {NODES} in {seconds[NODES]:.1f} s of a core (limit {SECONDS}); "
        f"from 10,000 to 80,000 {grown:.2f} times linear (limit {GROWTH})"
    )
    return fine and seconds[NODES] <= SECONDS and grown <= GROWTH


def _pair(folder: Path) -> Path:
    """A model with data beside it, and an older result at its target."""
    inner = folder / "in"
    shutil.rmtree(inner, ignore_errors=True)
    inner.mkdir()
    return layers(inner, 2, 4, 512, sparse=False)


def killed(folder: Path) -> bool:
    """Kill the process at random moments: the target is the old one, the new one, or not there."""
    model, out = _pair(folder), folder / "out.onnx"
    old = beside(folder / "old", layered(), "out.onnx.data", "out.onnx")
    done = optimise(model, out)
    new, whole = _contents(folder), done.seconds
    seen: dict[str, int] = {"old": 0, "new": 0, "missing": 0}
    rng = random.Random(0)
    for _ in range(40):
        _clear(folder)
        for path in old.parent.iterdir():
            shutil.copy(path, folder)
        before = _contents(folder)
        command = [sys.executable, "-c", RUN, str(model), str(out)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.3, 1.0) * whole)
        process.send_signal(signal.SIGKILL)
        process.wait()
        after = _contents(folder)
        state = "old" if after == before else "new" if after == new else "missing"
        if state == "missing" and "out.onnx" in after:
            what = {n: "old" if after.get(n) == before[n] else len(d) for n, d in after.items()}
            print(f"killed: a model stands beside data of another one: {what}")
            return False
        seen[state] += 1
    print(f"killed: 40 times at random moments: {seen}")
    return True


def _contents(folder: Path) -> dict[str, bytes]:
    names = ("out.onnx", "out.onnx.data")
    return {n: (folder / n).read_bytes() for n in names if (folder / n).exists()}


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()


def full(folder: Path) -> bool:
    """A disk that is full at any point of the write: an error in words, and the old file."""
    model, out = _pair(folder), folder / "out.onnx"
    out.write_bytes(b"old")
    total = (model.parent / "m.data").stat().st_size
    for limit in (1000, 10_000, total // 2, total - 1):
        done = optimise(model, out, partial(_no_more_than, limit))
        said = "ModelError: cannot write" in done.err
        left = sorted(p.name for p in folder.iterdir())
        if not said or out.read_bytes() != b"old" or left != ["in", "out.onnx"]:
            print(f"full: at {limit} bytes: {left}, {done.err[-300:]}")
            return False
    print(
        "full: no space after 1,000 bytes, 10,000, half, all but one: refused in words, old file there"
    )
    return True


def _no_more_than(size: int) -> None:
    """Let no file of this process grow beyond a size, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def linked(folder: Path) -> bool:
    """A cache of links: refused with the way out, and the way out works."""
    beside(folder / "blobs", layered(), "m.data", "m.onnx")
    shot = folder / "snapshots" / "1"
    shot.mkdir(parents=True)
    for name in ("m.onnx", "m.data"):
        (shot / name).symlink_to(f"../../blobs/{name}")
    done = optimise(shot / "m.onnx", folder / "out.onnx")
    shutil.copytree(shot, folder / "plain")  # follows links, as cp -L does
    again = optimise(folder / "plain" / "m.onnx", folder / "out.onnx")
    print(f"linked: {done.err.strip().splitlines()[-1][:200]}; copied: {again.out.strip()}")
    return "it was not followed" in done.err and again.code == 0


CHECKS = {f.__name__: f for f in (nodes, killed, full, linked, big, sparse)}


def chosen(names: list[str]) -> Iterator[Callable[[Path], bool]]:
    """The checks of these names, or all."""
    yield from (CHECKS[name] for name in names or CHECKS)


def main() -> int:
    """Run the checks one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("checks", nargs="*", choices=[*CHECKS, []], metavar="CHECK")
    parser.add_argument("--folder", type=Path, help="where to make the models")
    given = parser.parse_args()
    failed = []
    for check in chosen(given.checks):
        with tempfile.TemporaryDirectory(dir=given.folder, prefix="check_large_") as folder:
            if not check(Path(folder)):
                failed.append(check.__name__)
    print(f"failed: {', '.join(failed)}" if failed else "all within their limits")
    return int(bool(failed))


if __name__ == "__main__":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    sys.exit(main())
