"""The functions for other programs: they never print, never exit, never change their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from onnx_sched import option_checks, pipeline
from onnx_sched.analysis import analyse
from onnx_sched.judge import provider as providers
from onnx_sched.judge.provider import ProviderStatus
from onnx_sched.options import Choose, Options
from onnx_sched.progress import Progress
from onnx_sched.result import Result

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs


def optimize(
    model: ModelProto | Path | str | gs.Graph,
    *,
    choose: Choose = "measured",
    provider: str = "auto",
    dims: Mapping[str, int | Sequence[int]] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Path | str | Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    seed: int = 0,
    atol: float | str | Sequence[float | str] | None = None,
    rtol: float | str | Sequence[float | str] | None = None,
    check: bool = True,
    skip_ops: str | Sequence[str] = (),
    skip_nodes: str | Sequence[str] = (),
    skip_passes: str | Sequence[str] = (),
    nonempty: bool = False,
    assume_finite: bool = False,
    threads: int | Sequence[int] = (1, 0),
    time_limit: float = 60.0,
    max_activation: float = 1.25,
    exact: bool = False,
    plan: Path | str | None = None,
    target: Path | str | None = None,
    progress: Progress | None = None,
) -> Result:
    """Rewrite a model so that independent, alike nodes run as one, and check the result.

    Args:
        model: A path, a ModelProto, or an onnx_graphsurgeon.Graph; it is not changed.
        choose: "measured" keeps what a race on this machine says is faster, "model" what the cost
            model says pays, "always" all that is legal.
        provider: "auto", "cpu", "cuda", or an execution provider's name; a named one never falls back.
        dims: Sizes to check, by dimension name, one or several each; the model stays dynamic.
        shapes: Whole input shapes to check, by input name.
        inputs: Feeds to check with: values by input name, or several such sets; or a .npz file, or a
            folder with test_data_set_* in it.
        seed: Of random feeds.
        atol: Absolute tolerance: a number, a text "output:number", or several of them.
        rtol: Relative tolerance, likewise.
        check: Whether to run both models and compare.
        skip_ops: Op type or types to leave as they are.
        skip_nodes: Node name or names, with wildcards, to leave as they are.
        skip_passes: Part or parts of the work to leave out, of `onnx_sched.options.PASSES`, such as
            "sums".
        nonempty: Promise that no batch is empty.
        assume_finite: Promise that no value is NaN or infinite: block-diagonal weights are then cut.
        threads: Number or numbers of threads at which it must not be slower, 0 to 4096; 0 is what the
            runtime takes.
        time_limit: Seconds after which nothing more is measured; 0 or more.
        max_activation: How much larger the peak of activations may get, as a factor; 1 or more.
        exact: Whether to search for the level function with the fewest launches, too (extra `exact`);
            half of the time limit is for that.
        plan: A plan file (`Result.save_plan`) to carry out, without measuring.
        target: Device profile to decide by instead of a race ("cuda-a100", ..., or a .toml file).
        progress: Is told what is being done (`onnx_sched.progress.Step`), step by step.

    Returns:
        The new model, the plan and the report.

    Raises:
        ModelError: If the model cannot be read or understood.
        MismatchError: If the rewritten model gave other outputs.
        ProviderError: If the provider that was asked for cannot run here.
        UsageError: If an option makes no sense, or none for this model; it names the argument.
    """
    given: dict[str, Any] = {
        "choose": choose,
        "provider": provider,
        "dims": dims,
        "shapes": shapes,
        "inputs": inputs,
        "seed": seed,
        "atol": atol,
        "rtol": rtol,
        "check": check,
        "skip_ops": skip_ops,
        "skip_nodes": skip_nodes,
        "skip_passes": skip_passes,
        "nonempty": nonempty,
        "assume_finite": assume_finite,
        "threads": threads,
        "time_limit": time_limit,
        "max_activation": max_activation,
        "exact": exact,
        "plan": plan,
        "target": target,
        "progress": progress,
    }
    with option_checks.in_arguments():
        return pipeline.optimize(model, Options(**given))


def annotate(model: ModelProto | Path | str | gs.Graph) -> ModelProto:
    """Note on every node which wires it touches and in which parallel layer it runs.

    The notes are node metadata, `onnx_sched.wires` (numbers, comma-separated) and `onnx_sched.layer`;
    constants have no wires and layer -1.  Nothing else changes.

    Args:
        model: A path, a ModelProto, or an onnx_graphsurgeon.Graph; it is not changed.

    Returns:
        The annotated model (always a ModelProto: graphsurgeon has no room for node metadata).
        Weights in other files stay there.
    """
    source, _ = pipeline.take(model)
    analysis = analyse(source)
    noted = ModelProto()
    noted.CopyFrom(source.model)
    for k, place in enumerate(analysis.graph.places):
        new = noted.graph.node[place]
        wires = ",".join(map(str, analysis.annotation.wires[k]))
        notes = {"onnx_sched.wires": wires, "onnx_sched.layer": str(analysis.annotation.layers[k])}
        kept = [p for p in new.metadata_props if p.key not in notes]
        del new.metadata_props[:]
        new.metadata_props.extend(kept)
        for key, value in notes.items():
            new.metadata_props.add(key=key, value=value)
    return noted


def check_provider(name: str = "auto") -> ProviderStatus:
    """Whether an execution provider can really run here, and if not, why.

    Raises:
        UsageError: If the name is no text.
    """
    name = option_checks.text("name", name)
    return providers.check_provider("cuda" if name == "auto" else name)
