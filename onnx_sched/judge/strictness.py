"""Who asked for a provider gets that provider, or an error: never the CPU in its place.

ONNX Runtime puts every node that a provider has no kernel for on the CPU, in silence. Some, such as the
arithmetic of shapes, belong there and are listed; a model of which no node runs where it should is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx_sched.errors import ProviderError
from onnx_sched.judge.counts import Side
from onnx_sched.judge.ortlib import CPU, CUDA
from onnx_sched.judge.provider import SelectedProvider


def check_cuda_graph(asked: bool, provider: SelectedProvider) -> None:
    """CUDA graphs need CUDA.

    Raises:
        ProviderError: They were asked for, and the models would run elsewhere.
    """
    if asked and provider.name != CUDA:
        note = f" ({provider.note})" if provider.note else ""
        raise ProviderError(
            f"--cuda-graph needs CUDA, and this would run on {provider.name}{note}",
            "leave --cuda-graph out, or see `onnx-sched doctor` for what CUDA lacks here",
        )


def check_placement(sides: Sequence[Side], provider: SelectedProvider) -> list[str]:
    """Whether any node of each model runs on the provider.

    Returns:
        What a reader should know where `auto` took a provider that runs nothing.

    Raises:
        ProviderError: The provider was named, and a model runs on the CPU alone.
    """
    if provider.name == CPU:
        return []
    found = []
    for side in sides:
        if side.last is None:
            continue
        nodes = side.last.placement.nodes_per_provider
        if not nodes or nodes.get(provider.name):
            continue
        many = sum(nodes.values())
        where = f"{'it runs' if many == 1 else f'all {many} run'} on the CPU"
        what = f"{side.path.name}: no node runs on {provider.name}: {where}"
        if provider.requested.lower() != "auto":
            raise ProviderError(what, "--provider cpu compares them there")
        found.append(what)
    return found
