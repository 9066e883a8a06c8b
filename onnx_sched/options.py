"""What a user may ask of `optimize`."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from onnx import ModelProto

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.errors import UsageError
from onnx_sched.graph import every_node
from onnx_sched.progress import Progress, nobody

Choose = Literal["measured", "model", "always"]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one run; the command line's flags have the same names.

    Attributes:
        choose: "measured" keeps what a race on the target says is faster; "model" what the cost model
            says pays; "always" whatever is legal.
        provider: "auto", "cpu", "cuda", or an execution provider's name.
        dims: Sizes to check, by dimension name.
        shapes: Whole input shapes to check.
        inputs: Feeds to check with, or a .npz file, or a folder of test data.
        seed: Of the random feeds.
        atol, rtol: Tolerances, for all outputs or "output:value".
        check: Whether to run both models and compare.
        skip_ops, skip_nodes: Op types, and node names (globs), to leave as they are.
        nonempty: A promise that no batch is empty.
        threads: Numbers of threads at which it must not be slower; 0 is what the runtime takes.
        time_limit: Seconds after which nothing more is measured.
        plan: A plan file to carry out instead of deciding.
        target: Device profile to decide by, where the target is not at hand; nothing is raced then.
        max_activation: How much larger the peak of activations may get, as a factor.
        progress: Is told what is being done, step by step.
    """

    choose: Choose = "measured"
    provider: str = "auto"
    dims: Mapping[str, Sequence[int]] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    inputs: Path | str | Sequence[Mapping[str, Any]] | None = None
    seed: int = 0
    atol: Sequence[str] = ()
    rtol: Sequence[str] = ()
    check: bool = True
    skip_ops: Sequence[str] = ()
    skip_nodes: Sequence[str] = ()
    nonempty: bool = False
    threads: Sequence[int] = (1, 0)
    time_limit: float = 60.0
    max_activation: float = 1.25
    plan: Path | None = None
    target: str | None = None
    progress: Progress = nobody


def check_skips(options: Options, model: ModelProto) -> None:
    """See that what must stay as it is exists.

    Raises:
        UsageError: If an op type or a node name of the options is nowhere in the model.
    """
    if not options.skip_ops and not options.skip_nodes:
        return
    nodes = list(every_node(model))
    types, names = {n.op_type for n in nodes}, [n.name for n in nodes]
    for op_type in options.skip_ops:
        _known("--skip-op", op_type, op_type in types, sorted(types), "op type")
    for pattern in options.skip_nodes:
        hit = any(fnmatch.fnmatchcase(n, pattern) for n in names)
        _known("--skip-node", pattern, hit, names, "node")


def skipper(options: Options, circuit: Circuit) -> Callable[[Unit], bool]:
    """The test of whether a unit must stay as it is."""
    skipped = {
        k
        for k, node in enumerate(circuit.graph.nodes)
        if node.op_type in options.skip_ops
        or any(p.key == "onnx_sched.members" for p in node.metadata_props)  # batched already
        or any(fnmatch.fnmatchcase(node.name, p) for p in options.skip_nodes)
    }
    return lambda unit: any(k in skipped for k in unit.nodes)


def _known(flag: str, given: str, found: bool, names: Sequence[str], what: str) -> None:
    if found:
        return
    close = difflib.get_close_matches(given, names, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"The model has no {what} of this name."
    raise UsageError(f"{flag} {given}: no such {what} in the model", hint)
