"""Ours against its peers on one small model: branches of Linear, LayerNorm and Relu, fixed batch, one thread.

All in one run, interleaved: ONNX Runtime on the original and on our output, onnxslim and onnxscript's
optimizer in front of ONNX Runtime, OpenVINO on the original and on our output, and torch.compile with
group_batch_fusion and freezing on a module with the same weights.  Who gives other outputs is not raced; who
is not installed is listed (`pip install 'onnx-sched[peers]'`).  Fails if ours is not faster than all who
were raced, beyond the interval and the noise.

    python -m scripts.bench_peers --json peers.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnx
import onnxruntime

import onnx_sched
from models.mlp import grouped_mlp
from onnx_sched.judge.measure import Runner, Speedup
from onnx_sched.judge.significance import SpeedVerdict
from scripts.contest import AGAIN, ORIGINAL, Contest
from scripts.peers import OURS, PEERS, Array, Peer, Setting, version
from scripts.table_forms import Size

RTOL, ATOL = 1e-3, 1e-4


@dataclass(frozen=True, slots=True)
class Row:
    """How ours fared against one peer.

    Attributes:
        peer: Who.
        versions: Of what it needs.
        note: Why it was not raced; empty if it was.
        ours: How much faster ours is; with the times of both.
        verdict: What that says of ours.
    """

    peer: str
    versions: Mapping[str, str]
    note: str
    ours: Speedup | None = None
    verdict: SpeedVerdict | None = None


def setting(options: argparse.Namespace, folder: Path) -> Setting:
    """Build the model and optimise it."""
    size = Size(options.layers, options.branches, options.width)
    original, ours = folder / "original.onnx", folder / "ours.onnx"
    model = grouped_mlp(
        layers=size.layers,
        groups=size.groups,
        width=size.width,
        norm=True,
        batch=options.batch,
    )
    onnx.save(model, str(original))
    onnx_sched.optimize(
        original, provider="cpu", threads=(options.threads,), time_limit=options.time_limit
    ).save(ours)
    x = np.random.default_rng(0).standard_normal((options.batch, size.features))
    return Setting(original, ours, size, x.astype(np.float32), options.threads)


def entered(given: Setting, peers: Mapping[str, Peer]) -> dict[str, str]:
    """By peer: why it cannot be raced; empty if it can."""
    notes: dict[str, str] = {}
    wanted: Array | None = None
    for name, peer in peers.items():
        if peer.missing:
            notes[name] = f"not installed: {', '.join(peer.missing)}"
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        found = peer.open(given).output()
        wanted = found if wanted is None else wanted
        notes[name] = _difference(wanted, found)
    return notes


def opened(peer: Peer, given: Setting) -> Runner:
    """What runs a peer once."""
    return peer.open(given).once


def _difference(wanted: Array, found: Array) -> str:
    """How outputs differ, beyond rounding."""
    if wanted.shape != found.shape:
        return f"other outputs: shape {found.shape} instead of {wanted.shape}"
    if np.allclose(found, wanted, rtol=RTOL, atol=ATOL):
        return ""
    return f"other outputs: they differ by up to {np.abs(found - wanted).max():.2g}"


def rows_of(contest: Contest, notes: Mapping[str, str]) -> list[Row]:
    """A row for every peer, raced or not."""
    found = []
    for name, note in notes.items():
        if name in (OURS, AGAIN):
            continue
        versions = {m: version(m) for m in PEERS[name].needs if m not in PEERS[name].missing}
        if note:
            found.append(Row(name, versions, note))
            continue
        verdict = contest.verdict(name, OURS)
        found.append(Row(name, versions, "", contest.speedup(name, OURS), verdict))
    return found


def table(rows: Sequence[Row], ours_us: float) -> str:
    """The rows for people."""
    lines = [f"{'peer':18} {'us':>9}  ours is faster by", f"{OURS:18} {ours_us:9.1f}"]
    for row in rows:
        name = "ORT" if row.peer == ORIGINAL else row.peer
        if row.ours is None:
            lines.append(f"{name:18} {'':9}  {row.note}")
            continue
        said = "" if row.verdict == "faster" else f"  {str(row.verdict).replace('_', ' ')}"
        lines.append(f"{name:18} {row.ours.before_us:9.1f}  {row.ours.words}{said}")
    return "\n".join(lines)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--branches", type=int, default=16)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=240)
    parser.add_argument("--openings", type=int, default=6)
    parser.add_argument("--time-limit", type=float, default=60.0, help="of the optimisation")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 1 if a peer that was raced is not slower than ours."""
    options = parsed(arguments)
    with tempfile.TemporaryDirectory(prefix="onnx-sched-") as folder:
        given = setting(options, Path(folder))
        notes = entered(given, PEERS)
        if notes[OURS]:
            raise SystemExit(f"{OURS}: {notes[OURS]}")

        ready = [name for name, note in notes.items() if not note]
        contest = Contest({name: partial(opened, PEERS[name], given) for name in ready})
        contest.run(options.pairs, options.openings)
    rows = rows_of(contest, notes)
    ours_us = contest.gain(OURS).after_us
    print(table(rows, ours_us), f"A/A {contest.floor.words}", sep="\n")
    raced = [row for row in rows if row.ours is not None]
    beaten = [row for row in raced if row.verdict == "faster"]
    print(
        f"faster than {len(beaten)} of {len(raced)} peers that were raced; "
        f"{len(rows) - len(raced)} were not"
    )
    if options.json:
        size = {k: getattr(options, k) for k in ("branches", "layers", "width", "batch", "threads")}
        data = {
            **size,
            "onnxruntime": onnxruntime.__version__,
            "ours_us": ours_us,
            "floor": asdict(contest.floor),
            "peers": [asdict(row) for row in rows],
        }
        options.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0 if len(beaten) == len(raced) else 1


if __name__ == "__main__":
    sys.exit(main())
