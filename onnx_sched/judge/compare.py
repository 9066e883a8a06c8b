"""Compare two models: outputs, latency, kernels, memory, depth; what a sceptic needs to believe it.

Nothing here knows how the second model came to be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from onnx import ModelProto

from onnx_sched import option_checks as forms
from onnx_sched.errors import ModelError, UsageError
from onnx_sched.judge.agree import Agreement, parse_tolerances, validate
from onnx_sched.judge.comparison import Comparison, LatencyRow, ModelFacts, PathRow
from onnx_sched.judge.counts import Side, count, try_inspect
from onnx_sched.judge.critical_path import depth
from onnx_sched.judge.environment import environment
from onnx_sched.judge.feed_source import FeedSource, feed_sources
from onnx_sched.judge.interface import check_inputs
from onnx_sched.judge.latency import Plan, latency_rows
from onnx_sched.judge.opening import Setup
from onnx_sched.judge.ortlib import CUDA
from onnx_sched.judge.provider import SelectedProvider, select_provider
from onnx_sched.judge.randomness import randomness
from onnx_sched.judge.ranking import rankings
from onnx_sched.judge.strictness import check_cuda_graph, check_placement
from onnx_sched.reading import model_in

Progress = Callable[[str], None]

FORMS: Mapping[str, forms.Form] = {
    "provider": forms.text,
    "dims": forms.sizes,
    "shapes": forms.shapes,
    "inputs": forms.path_or_none,
    "seed": forms.SEED,
    "atol": forms.tolerances,
    "rtol": forms.tolerances,
    "threads": forms.WHOLE_THREADS,
    "pairs": partial(forms.whole, least=10),
    "budget": partial(forms.amount, least=0, above=True),
    "processes": partial(forms.whole, least=1),
    "cuda_graph": forms.flag,
    "tf32": forms.flag,
}
"""What each option may be."""


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """What the user asked for.

    Whatever a field is given, it holds what is declared here: a single number or text is one entry.

    Attributes:
        provider: `auto`, `cpu`, `cuda` or a full name.
        dims, shapes: Sizes; from `--dim` and `--shape`.
        inputs: Inputs that the user gives.
        seed: Of the inputs and of the order of the samples.
        atol, rtol: Tolerances as on the command line.
        threads: Threads within a node, each a condition of its own; 0 is the runtime's choice.
        pairs: Paired samples under each condition.
        budget: Seconds for all timing; what is not done by then is cut short.
        processes: Processes to measure in; 1 is this one.
        cuda_graph: Also time with CUDA graphs on both sides.
        tf32: Whether timing on CUDA may use TF32; comparing outputs never does.
    """

    provider: str = "auto"
    dims: Mapping[str, Sequence[int]] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    inputs: Path | None = None
    seed: int = 0
    atol: tuple[str, ...] = ()
    rtol: tuple[str, ...] = ()
    threads: tuple[int, ...] = (1,)
    pairs: int = 240
    budget: float = 10.0
    processes: int = 1
    cuda_graph: bool = False
    tf32: bool = True

    def __post_init__(self) -> None:
        """See that all options make sense.

        Raises:
            UsageError: If one is not what it may be.
        """
        forms.put_in_form(self, FORMS)


def compare(
    before: Path | str,
    after: Path | str,
    options: CompareOptions | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two models on the same inputs.

    Args:
        before: The reference.
        after: The other model.
        options: What to do.
        progress: Is told what is being done.

    Raises:
        ModelError: A file cannot be read.
        UsageError: Sizes, inputs or tolerances do not fit the model, or the models take different inputs.
        ProviderError: The provider that was asked for cannot run here, or runs no node of a model.
    """
    start = time.monotonic()
    options = CompareOptions() if options is None else options
    if not isinstance(options, CompareOptions):
        raise UsageError(f"options: {forms.shown(options)} is no CompareOptions")
    say = progress or (lambda _text: None)
    before, after = forms.path("before", before), forms.path("after", after)
    protos = (read_model(before), read_model(after))
    check_inputs(before, protos[0], after, protos[1])
    provider = select_provider(options.provider)
    check_cuda_graph(options.cuda_graph, provider)
    outputs = [output.name for output in protos[0].graph.output]
    tolerances = parse_tolerances(options.rtol, options.atol, outputs)
    sources, timed = feed_sources(
        protos[0],
        dims=options.dims,
        shapes=options.shapes,
        inputs=options.inputs,
        seed=options.seed,
    )
    feeds = [source.load(protos[0]) for source in sources]

    say("comparing outputs")
    agreement = validate(before, after, feeds, provider.name, tolerances=tolerances)
    unseeded = randomness(protos[0]).unseeded
    ranked = rankings(before, after, feeds, provider.name, unseeded)
    say("counting nodes, kernels and bytes")
    setup = Setup(provider.name, options.threads[0], tf32=options.tf32)
    sides = [
        Side(path, proto, [try_inspect(path, fed, setup) for fed in feeds[:timed]])
        for path, proto in zip((before, after), protos, strict=True)
    ]
    strays = check_placement(sides, provider)
    counts = count(sides, feeds[timed - 1], setup)
    plan = Plan(before, after, sources[:timed], options.threads, setup, options.cuda_graph)
    rows, notes = latency_rows(
        plan,
        pairs=options.pairs,
        budget=options.budget,
        processes=options.processes,
        seed=options.seed,
        say=say,
    )
    return Comparison(
        before=facts(before, protos[0]),
        after=facts(after, protos[1]),
        provider=provider,
        environment=environment(provider.name),
        settings=_settings(options, provider),
        agreement=agreement,
        rankings=ranked,
        dispatches=counts.dispatches,
        kernels_before=counts.kernels[0],
        kernels_after=counts.kernels[1],
        peak_profile=counts.peak_profile,
        peak_estimate=counts.peak_estimate,
        peak_device=counts.peak_device,
        counted_at=sources[timed - 1].binding.dims,
        placement_before=sides[0].last.placement if sides[0].last else None,
        placement_after=sides[1].last.placement if sides[1].last else None,
        latency=rows,
        paths=_paths(sides, sources[:timed], rows, setup.threads),
        notes=(*strays, *notes, *_remarks(agreement, rows)),
        seconds=round(time.monotonic() - start, 3),
    )


def read_model(path: Path) -> ModelProto:
    """Read a model without its external data.

    Raises:
        ModelError: There is no such file, or it holds no model.
    """
    model = model_in(path)
    if not model.graph.node and not model.graph.output:
        raise ModelError(f"{path} holds no graph: it is not an ONNX model", "Check the file.")
    return model


def facts(path: Path, model: ModelProto) -> ModelFacts:
    """What the file says."""
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    nodes = sum(1 for node in model.graph.node if node.op_type != "Constant")
    return ModelFacts(path.name, nodes, depth(model), opset, model.ir_version)


def _settings(options: CompareOptions, provider: SelectedProvider) -> dict[str, Any]:
    cuda = provider.name == CUDA
    return {
        "seed": options.seed,
        "pairs": options.pairs,
        "budget_seconds": options.budget,
        "processes": options.processes,
        "threads": list(options.threads),
        "cuda_graph": options.cuda_graph,
        "tf32_latency": options.tf32 if cuda else None,
        "tf32_agreement": False if cuda else None,
        "optimization": "all",
    }


def _paths(
    sides: Sequence[Side],
    sources: Sequence[FeedSource],
    rows: Sequence[LatencyRow],
    threads: int,
) -> tuple[PathRow, ...]:
    """The critical paths at every size, beside the wall time where it was taken."""
    walls = {
        (row.dims, row.input_set, row.threads): (row.before.p50_us, row.after.p50_us)
        for row in rows
        if not row.cuda_graph
    }
    found = []
    for place, source in enumerate(sources):
        before, after = (side.seen[place] for side in sides)
        if isinstance(before, str) or isinstance(after, str):
            continue
        dims, given = source.binding.dims, source.input_set
        first, second = walls.get((dims, given, threads), (None, None))
        found.append(PathRow(dims, threads, before.path, after.path, first, second, given))
    return tuple(found)


def _remarks(agreement: Agreement, rows: Sequence[LatencyRow]) -> list[str]:
    """What a reader should know before trusting the numbers."""
    found = []
    if agreement.verdict == "mismatch" and rows:
        found.append("the outputs disagree: the speed-up compares different computations")
    if any(not row.settled for row in rows):
        found.append("warm-up ended before times stood still: give more --budget, or less load")
    return found
