"""Count MatMul, Gemm and Conv before and after `--choose always`, for every model of some folders.

Each model is optimised, checked against the original, and put through onnx's full checker.  A folder may
hold a `targets.json` that says for each model (`heavy_target`) how many a level-wise merge can reach.

    python -m scripts.count_heavy models other/models
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnx

import onnx_sched
from onnx_sched.errors import SchedError
from onnx_sched.graph import every_node

HEAVY = frozenset({"Conv", "Gemm", "MatMul"})


@dataclass(frozen=True, slots=True)
class Row:
    """One model."""

    model: str
    nodes: tuple[int, int]
    heavy: tuple[int, int]
    target: int | None
    verdict: str

    @property
    def fine(self) -> bool:
        """Whether the outputs agree and the target, if there is one, is reached."""
        agrees = self.verdict in ("bitwise", "within_tolerance")
        return agrees and (self.target is None or self.heavy[1] <= self.target)


def count(model: onnx.ModelProto) -> int:
    """Heavy nodes anywhere in a model."""
    return sum(node.op_type in HEAVY and not node.domain for node in every_node(model))


def rows(folder: Path) -> Iterator[Row]:
    """The models of a folder, one after the other."""
    known = folder / "targets.json"
    targets = json.loads(known.read_text("utf-8")) if known.exists() else {}
    with tempfile.TemporaryDirectory() as made:
        for path in sorted(folder.glob("*.onnx")):
            out = Path(made) / path.name
            try:
                result = onnx_sched.optimize(path, choose="always")
                result.save(out)
                onnx.checker.check_model(str(out), full_check=True)
            except (SchedError, onnx.checker.ValidationError) as error:
                print(f"{path}: {error}", file=sys.stderr)
                yield Row(path.stem, (0, 0), (0, 0), None, "failed")
                continue
            before = onnx.load(path, load_external_data=False)
            after = onnx.load(out, load_external_data=False)
            report = result.report
            yield Row(
                path.stem,
                (len(before.graph.node), len(after.graph.node)),
                (count(before), count(after)),
                targets.get(path.stem, {}).get("heavy_target"),
                report.verdict,
            )


def main() -> int:
    """Print the table as Markdown; 1 if a model fails, disagrees or misses its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    fine = True
    print("| model | nodes | MatMul, Gemm, Conv | target | agreement |")
    print("|---|---:|---:|---:|---|")
    for folder in parser.parse_args().folders:
        for row in rows(folder):
            target = "" if row.target is None else str(row.target)
            arrow = f"{row.nodes[0]} → {row.nodes[1]} | {row.heavy[0]} → {row.heavy[1]}"
            print(f"| {row.model} | {arrow} | {target} | {row.verdict} |", flush=True)
            fine = fine and row.fine
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
