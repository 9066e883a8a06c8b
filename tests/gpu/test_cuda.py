"""Original and optimised models on a CUDA device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from onnx_sched.judge.launches import count_kernels
from onnx_sched.judge.measure import bind
from onnx_sched.judge.opening import Setup, open_for
from onnx_sched.judge.ortlib import CUDA
from onnx_sched.judge.runtime import RuntimeRefused
from tests.gpu import checks

pytestmark = pytest.mark.gpu

EXACT = [name for name in checks.MODELS if name not in checks.RANDOM]


@pytest.mark.parametrize("name", EXACT)
def test_outputs_agree_without_tf32(name: str, tmp_path: Path) -> None:
    """At batch 1, 32 and 7, every output agrees with the original's within the tolerance of its type."""
    before = checks.committed(name)
    found = checks.agreement(before, checks.optimised(before, tmp_path), CUDA)
    assert found.verdict in ("bitwise", "within_tolerance"), found.reason
    assert found.checks


@pytest.mark.parametrize("name", ["grouped_mlp_norm", "mmoe", "critic_ensemble", "conv_towers"])
@pytest.mark.parametrize("kind", ["FLOAT16", "BFLOAT16"])
def test_half_precision_agrees(name: str, kind: str, tmp_path: Path) -> None:
    """The same holds in half precision, where the device runs the original at all."""
    before = tmp_path / "before.onnx"
    model = checks.narrowed(onnx.load(str(checks.committed(name))), getattr(TensorProto, kind))
    onnx.save(model, str(before))
    found = checks.agreement(before, checks.optimised(before, tmp_path), CUDA)
    if found.verdict == "unvalidated":
        pytest.skip(f"the original is not run in {kind}: {found.reason}")
    assert found.verdict in ("bitwise", "within_tolerance"), found.reason


@pytest.mark.parametrize("name", checks.MODELS)
def test_a_cuda_graph_can_be_captured(name: str, tmp_path: Path) -> None:
    """Whatever is captured before can be captured after, and a replay gives what a plain run gives."""
    before = checks.committed(name)
    after = checks.optimised(before, tmp_path)
    feeds = checks.inputs(before)[1]
    setup = Setup(CUDA, cuda_graph=True, tf32=False)
    try:
        checks.replayed(before, setup, feeds)
    except RuntimeRefused as error:
        pytest.skip(f"the original cannot be captured: {error}")
    got = checks.replayed(after, setup, feeds)
    if name in checks.RANDOM:
        return
    for output, wanted in checks.plain(after, setup, feeds).items():
        np.testing.assert_allclose(got[output], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", checks.MODELS)
def test_nothing_moves_to_the_host(name: str, tmp_path: Path) -> None:
    """Rewriting adds no copy between devices and sends no node to the CPU."""
    before = checks.committed(name)
    was = checks.placed(before, CUDA)
    now = checks.placed(checks.optimised(before, tmp_path), CUDA)
    assert now.copies <= was.copies
    assert len(now.cpu_nodes) <= len(was.cpu_nodes), now.cpu_nodes


@pytest.mark.parametrize("name", ["grouped_mlp", "mmoe"])
def test_kernels_become_fewer(name: str, tmp_path: Path) -> None:
    """Where somebody can count them, the optimised model launches fewer real kernels."""
    before = checks.committed(name)
    counts = []
    for path in (before, checks.optimised(before, tmp_path)):
        once = bind(open_for(path, Setup(CUDA)), checks.inputs(before)[1], CUDA)
        once()
        counts.append(count_kernels(once, CUDA))
    if counts[0].count is None or counts[1].count is None:
        pytest.skip(counts[0].source)
    assert counts[1].count < counts[0].count
