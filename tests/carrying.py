"""What a rewritten model must have in common with its original, apart from what the plan says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

import onnx_sched
from onnx_sched.judge.runtime import RuntimeRefused, open_session, run
from onnx_sched.result import Result
from tests.backend_cases import GRAFT, Case, grafted, pruned
from tests.nets import analysed
from tests.protodiff import differences

LAYOUT = frozenset(
    "Cast Concat Constant Expand Flatten Gather Identity Pad ReduceMean ReduceSum Reshape Slice Split "
    "Squeeze Sum Transpose Unsqueeze Add Mul".split()
)
"""Nodes that may go at the borders of a group without being members of one."""


def optimized(model: ModelProto | Path) -> Result:
    """All that is legal, without running anything."""
    return onnx_sched.optimize(model, choose="always", check=False)


def lost_beside_a_batch(model: ModelProto) -> list[str]:
    """What differs in a rewritten model, apart from two products beside it that became one."""
    before = grafted(model)
    kept = before.SerializeToString(deterministic=True)
    result = optimized(before)
    found = differences(pruned(before), pruned(result.proto))
    if before.SerializeToString(deterministic=True) != kept:
        found.append("the model that was given has changed")
    if (f"{GRAFT}_0", f"{GRAFT}_1") not in [g.members for g in result.report.groups]:
        found.append("the two products are no group: nothing was tried")
    return found


def beyond_the_plan(before: ModelProto, result: Result) -> list[str]:
    """What a rewritten model has lost, gained or moved that its plan does not tell of."""
    after = result.proto
    found = []
    for field in before.graph.DESCRIPTOR.fields:
        if field.name not in ("node", "initializer", "value_info"):
            found += _field(before.graph, after.graph, field.name)
    for field in before.DESCRIPTOR.fields:
        if field.name not in ("graph", "functions"):
            found += _field(before, after, field.name)
    old, new = (Counter(n.SerializeToString() for n in m.graph.node) for m in (before, after))
    members = {name for g in result.report.groups for name in g.members}
    sizes = analysed(before).values.ints  # nobody asks for them where batched nodes know them
    for node in before.graph.node:
        label = node.name or next((o for o in node.output if o), "")
        gone = node.SerializeToString() not in new and sizes.keys().isdisjoint(node.output)
        if gone and label not in members and node.op_type not in LAYOUT:
            found.append(f"{node.op_type} {label!r} changed, but is no member of a group")
    for node in after.graph.node:
        told = any(p.key == "onnx_sched.members" for p in node.metadata_props)
        if node.SerializeToString() not in old and not told:
            found.append(f"{node.op_type} {node.name!r} is new, but does not say for what")
    return found


def _field(before: Any, after: Any, name: str) -> list[str]:
    """Differences in one field of two messages."""
    bare = []
    for message in (before, after):
        copy = type(message)()
        copy.CopyFrom(message)
        for field, _ in message.ListFields():
            if field.name != name:
                copy.ClearField(field.name)
        bare.append(copy)
    return differences(bare[0], bare[1])


Ran = Literal["same", "not run", "different"]


def same_outputs(case: Case) -> Ran:
    """Whether a case gives the same bits with a batch beside it, before and after."""
    before = grafted(case.model)
    names = [v.name for v in case.model.graph.input]
    feeds = dict(zip(names, map(_fed, case.inputs), strict=False))
    feeds[f"{GRAFT}_x"] = np.ones((3, 4), np.float32)
    try:
        expected = _outputs(before, feeds)
    except (RuntimeRefused, RuntimeError, AttributeError, TypeError, ValueError, KeyError):
        return "not run"  # an operator, a type or an IR version that this build has not
    found = _outputs(optimized(before).proto, feeds)
    wanted = [o.name for o in case.model.graph.output]
    same = all(_bits(expected[n]) == _bits(found[n]) for n in wanted if n)
    return "same" if same else "different"


def _outputs(model: ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    session = open_session(model.SerializeToString(), "cpu", optimize=False, exact=True)
    return run(session, feeds)


def _fed(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def _bits(value: Any) -> Any:
    """A value such that equal means equal bits."""
    if isinstance(value, list):
        return [_bits(v) for v in value]
    if isinstance(value, dict):
        return {k: _bits(v) for k, v in value.items()}
    array = np.asarray(value)
    data = array.tolist() if array.dtype == object else array.tobytes()
    return (str(array.dtype), array.shape, data)
