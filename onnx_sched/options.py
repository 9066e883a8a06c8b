"""What a user may ask of `optimize`."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from onnx import ModelProto, NodeProto

from onnx_sched import option_checks as forms
from onnx_sched.circuit import Circuit, Keep, Unit
from onnx_sched.errors import UsageError
from onnx_sched.exact.solver import cp_sat
from onnx_sched.graph import every_node
from onnx_sched.passes import rules
from onnx_sched.progress import Progress, nobody

Choose = Literal["measured", "model", "always"]

SUMS, BODIES, FUNCTIONS = "sums", "bodies", "functions"

PASSES = (*rules.PASSES, SUMS, BODIES, FUNCTIONS)
"""What may be left out: the batching rules of a module, sums over lanes, graphs in nodes, calls."""

FORMS: Mapping[str, forms.Form] = {
    "choose": partial(forms.one_of, allowed=get_args(Choose)),
    "provider": forms.text,
    "dims": forms.sizes,
    "shapes": forms.shapes,
    "inputs": forms.feeds,
    "seed": forms.SEED,
    "atol": forms.tolerances,
    "rtol": forms.tolerances,
    "check": forms.flag,
    "skip_ops": forms.texts,
    "skip_nodes": forms.texts,
    "skip_passes": forms.texts,
    "nonempty": forms.flag,
    "assume_finite": forms.flag,
    "threads": forms.WHOLE_THREADS,
    "time_limit": partial(forms.amount, least=0),
    "max_activation": partial(forms.amount, least=1),
    "exact": forms.flag,
    "plan": forms.path_or_none,
    "target": forms.word_or_path,
    "progress": partial(forms.listener, nobody=nobody),
}
"""What each option may be."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one run; the command line's flags have the same names.

    Whatever a field is given, it holds what is declared here: a single number or text is one entry.

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
        skip_passes: Parts of the work to leave out, of `PASSES`.
        nonempty: A promise that no batch is empty.
        assume_finite: A promise that no value is NaN or infinite.
        threads: Numbers of threads at which it must not be slower; 0 is what the runtime takes.
        time_limit: Seconds after which nothing more is measured.
        exact: Whether to search for the level function with the fewest launches, too; half of the time
            limit is for that.
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
    skip_passes: Sequence[str] = ()
    nonempty: bool = False
    assume_finite: bool = False
    threads: Sequence[int] = (1, 0)
    time_limit: float = 60.0
    max_activation: float = 1.25
    exact: bool = False
    plan: Path | None = None
    target: str | None = None
    progress: Progress = nobody

    def __post_init__(self) -> None:
        """See that all options make sense and an exact search can be made, before any work is done.

        Raises:
            UsageError: If an option is not what it may be, OR-tools is not installed, or a saved plan
                leaves nothing to search for.
        """
        forms.put_in_form(self, FORMS)
        if self.exact and self.plan is not None:
            raise UsageError(
                "--plan carries out a saved plan as it is, --exact would search for levels",
                "Take one of the two away: what --exact found is in the plan that it saved.",
            )
        if self.exact:
            cp_sat()

    @property
    def search(self) -> float | None:
        """Seconds for an exact search; None if none is asked for."""
        return self.time_limit / 2 if self.exact else None


def check_skips(options: Options, model: ModelProto) -> None:
    """See that what must stay as it is exists.

    Raises:
        UsageError: If there is no such pass, or an op type or a node name is nowhere in the model.
    """
    for name in options.skip_passes:
        if name not in PASSES:
            close = difflib.get_close_matches(name, PASSES, n=1)
            all_of_them = f"The passes are {', '.join(PASSES)}."
            hint = f"Did you mean {close[0]!r}?" if close else all_of_them
            raise UsageError(f"--skip-pass {name}: there is no such pass", hint)
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
        if any(p.key == "onnx_sched.members" for p in node.metadata_props)  # batched already
        or any(_named(options, n) for n in circuit.values.spellings(node))
    }
    passes = frozenset(options.skip_passes)

    def skips(unit: Unit) -> bool:
        return rules.pass_of(unit) in passes or any(k in skipped for k in unit.nodes)

    return skips


def unsummed(options: Options) -> Keep:
    """The test of whether a node must not become part of a sum over lanes."""
    return lambda node: SUMS in options.skip_passes or _named(options, node)


def _named(options: Options, node: NodeProto) -> bool:
    """Whether a flag names a node, or its op type."""
    if node.op_type in options.skip_ops:
        return True
    return any(fnmatch.fnmatchcase(node.name, p) for p in options.skip_nodes)


def _known(flag: str, given: str, found: bool, names: Sequence[str], what: str) -> None:
    if found:
        return
    close = difflib.get_close_matches(given, names, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"The model has no {what} of this name."
    raise UsageError(f"{flag} {given}: no such {what} in the model", hint)
