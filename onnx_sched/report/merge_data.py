"""The report of a merge: several models became one, and the one is held against each of them.

Everything that a report says of before and after is meant so: before, the models, one session each, run one
after another; after, the one that was written.  What only batching bought has a place of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from onnx_sched.report.data import LatencyRow, Report, Verdict


@dataclass(frozen=True, slots=True)
class MergedFile:
    """One of the models: its file, and how many nodes it has."""

    file: str
    nodes: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"file": self.file, "nodes": self.nodes}


@dataclass(frozen=True, slots=True)
class Origin:
    """An output of the merged model, what it was held against (`of`, in words), and how it came out."""

    name: str
    of: str
    verdict: Verdict

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"name": self.name, "of": self.of, "verdict": self.verdict}


@dataclass(frozen=True, slots=True)
class Merge:
    """How several models became one.

    Attributes:
        inputs: The models.
        output: The file of the one; empty where none is written.
        join: What became of their outputs: outputs, mean or stack.
        separate_inputs: Whether each got inputs of its own.
        nodes: Of the one, after sharing and before batching.
        weights_once, nodes_once: Weights, and nodes, that stand for several equal ones.
        bytes_saved: Bytes of the copies of weights that are gone.
        batched: Whether anything was batched then.
        batching: What batching alone bought: the one before against the one after it.
        outputs: What each output was held against.
    """

    inputs: tuple[MergedFile, ...]
    output: str
    join: str
    separate_inputs: bool
    nodes: int
    weights_once: int
    nodes_once: int
    bytes_saved: int
    batched: bool
    batching: tuple[LatencyRow, ...] = ()
    outputs: tuple[Origin, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "inputs": [row.to_dict() for row in self.inputs],
            "output": self.output,
            "join": self.join,
            "separate_inputs": self.separate_inputs,
            "nodes": self.nodes,
            "weights_stored_once": self.weights_once,
            "weight_bytes_saved": self.bytes_saved,
            "nodes_run_once": self.nodes_once,
            "batched": self.batched,
            "batching_latency": [row.to_dict() for row in self.batching],
            "outputs": [row.to_dict() for row in self.outputs],
        }


@dataclass(frozen=True, slots=True)
class MergeReport(Report):
    """All that one run of `merge` has to tell; `merge` says what became of what."""

    merge: Merge = field(kw_only=True)

    def to_dict(self) -> dict[str, Any]:
        """As JSON, with the documented keys."""
        # Not super(): a class with slots is made twice, and super() knows the first one only.
        return {**Report.to_dict(self), "merge": self.merge.to_dict()}
