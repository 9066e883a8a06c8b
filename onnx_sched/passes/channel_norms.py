"""Norms over the places of an image, channel by channel or group by group: lanes side by side.

    InstanceNormalization(x_i, g_i, h_i)   ==>  InstanceNormalization(Concat(x, 1), Concat(g), Concat(h))
    GroupNormalization(x_i, g_i, h_i, n)   ==>  GroupNormalization(Concat(x, 1), Concat(g), Concat(h), G*n)

Groups of channels stay whole, for every lane has as many channels as the others.
"""

from __future__ import annotations

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Const, concat
from onnx_sched.passes.axes import known
from onnx_sched.passes.operands import apiece, own_consts
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.stacking import packed


def check(unit: Unit, circuit: Circuit) -> str | None:
    """Constant parameters, known shapes."""
    if not all(isinstance(o, Const) for o in unit.operands[1:]):
        return "its scale or bias is computed"
    return known(unit, circuit)


def channel_norm(batch: Batch) -> None:
    """One norm on the channels of all lanes; parameters by channel or by group follow each other alike."""
    layout = packed(len(batch.shape(0)), 1)
    names = [apiece(batch, 0, layout)]
    for k in (1, 2):
        parameters = concat(own_consts(batch, k), 0)
        names.append(batch.emit.const(parameters, f"{batch.hint}_{'scale' if k == 1 else 'bias'}"))
    attributes = batch.attributes()
    if batch.unit.kind == "GroupNormalization":
        attributes["num_groups"] = batch.unit.integer("num_groups") * batch.size
    batch.put(layout, batch.make(batch.unit.kind, names, **attributes)[0])


RULES: Table = dict.fromkeys(
    ("GroupNormalization", "InstanceNormalization"), Rule(channel_norm, check)
)
