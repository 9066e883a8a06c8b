"""Tests in this folder need CUDA: elsewhere they are skipped, and say why."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_sched.judge.provider import check_provider

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `gpu` in this folder where CUDA does not run."""
    ours = [item for item in items if HERE in item.path.parents and item.get_closest_marker("gpu")]
    if not ours:
        return
    status = check_provider("cuda")
    if status.usable:
        return
    skip = pytest.mark.skip(reason=f"CUDA cannot be used: {status.reason}")
    for item in ours:
        item.add_marker(skip)
