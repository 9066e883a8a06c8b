"""Members exported one by one, and batched here, are as good as the same ensemble written with `vmap`."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto

import onnx_sched
from tests.nets import Array, run

pytestmark = [
    pytest.mark.export,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("torch", "onnxscript"))),
        reason="needs torch and onnxscript: extra `export`",
    ),
]

CASES = ("MLP with LayerNorm", "attention", "gated mixture")

BATCHES = (1, 3, 32)
"""Sizes of the batch: open in our model, while torch exports `vmap` for one size only."""

ROOM = 1.3
"""How many nodes we may have for one of the oracle's; it needs none for an open batch."""


@dataclass(frozen=True)
class Case:
    """One ensemble.

    Attributes:
        module: The members in torch, one by one.
        shape: Of an input, behind the batch.
        plain: Their export.
        batched: What is made of it.
        oracles: By batch: the export of the ensemble over stacked weights.
    """

    module: Any
    shape: tuple[int, ...]
    plain: ModelProto
    batched: ModelProto
    oracles: dict[int, ModelProto]


@cache
def case(name: str) -> Case:
    """Export both forms, and batch the first."""
    import torch

    from tests.ensembles import PAIRS, exported

    torch.manual_seed(sum(name.encode()))
    one_by_one, vmapped, shape = PAIRS[name]()
    plain = exported(one_by_one, shape)
    batched = onnx_sched.optimize(plain, choose="always", dims={"batch": [1, 3]})
    oracles = {batch: exported(vmapped, shape, batch) for batch in BATCHES}
    return Case(one_by_one, shape, plain, batched.proto, oracles)


def count(model: ModelProto) -> int:
    """Nodes that are left after constant folding and dead code removal, constants not counted."""
    from onnxscript import optimizer

    folded = ModelProto()
    folded.CopyFrom(model)
    optimizer.fold_constants(folded)
    optimizer.remove_unused_nodes(folded)
    return sum(node.op_type != "Constant" for node in folded.graph.node)


def output(model: ModelProto, x: Array) -> Array:
    """What a model makes of one input."""
    (made,) = run(model, {model.graph.input[0].name: x}).values()
    return made


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("batch", BATCHES)
def test_the_outputs_are_those_of_the_oracle_and_of_torch(name: str, batch: int) -> None:
    """Batched here, exported from `vmap`, and run in torch itself: one function, at every batch."""
    import torch

    found = case(name)
    x = np.random.default_rng(batch).standard_normal((batch, *found.shape)).astype(np.float32)
    with torch.no_grad():
        want = found.module(torch.from_numpy(x)).numpy()
    assert want.std() > 0.1
    for model in (found.plain, found.oracles[batch], found.batched):
        np.testing.assert_allclose(output(model, x), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_the_nodes_are_about_as_few_as_the_oracle_s(name: str) -> None:
    """At most 1.3 times the nodes of the shortest `vmap` export, from many more; all are folded alike."""
    found = case(name)
    onnx.checker.check_model(found.batched, full_check=True)
    plain, batched = count(found.plain), count(found.batched)
    oracle = min(map(count, found.oracles.values()))
    print(f"{name}: {plain} nodes one by one, {batched} batched, {oracle} from vmap")
    assert plain > ROOM * oracle
    assert batched <= ROOM * oracle
