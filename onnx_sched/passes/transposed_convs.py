"""Transposed convolutions: channels of all lanes side by side.

    ConvTranspose(x, W_i, b_i)    ==>  ConvTranspose(x, Concat(W, 1), Concat(b))           one input for all
    ConvTranspose(x_i, W_i, b_i)  ==>  ConvTranspose(Concat(x), Concat(W, 0), Concat(b), group=G*g)

Weights are [C, M/g, ...]: groups follow each other along C, the filters of one group along the other axis.
"""

from __future__ import annotations

from onnx_sched.constants import concat
from onnx_sched.passes.convs import check_conv
from onnx_sched.passes.operands import own_consts
from onnx_sched.passes.products import biases_like
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.plan import Refused
from onnx_sched.stacking import packed


def conv_transpose(batch: Batch) -> None:
    """One transposed convolution; lanes with inputs of their own become groups."""
    rank = len(batch.shape(0))
    group = batch.unit.integer("group", 1)
    single, lanes = batch.single(0), batch.lanes(0)
    weights = own_consts(batch, 1)
    if single is not None:
        if group != 1:
            raise Refused("S302", "grouped convolutions on one input would have to be interleaved")
        x, groups, axis = batch.store.value(single), 1, 1
    else:
        assert lanes is not None
        x, groups, axis = batch.store.get(lanes, packed(rank, 1)), batch.size * group, 0
    names = [x, batch.emit.const(concat(weights, axis), f"{batch.hint}_weight")]
    filters = weights[0].shape[1] * group
    rows = biases_like(batch, 2, [(filters,)] * batch.size)
    if rows:
        names.append(batch.emit.const(concat(rows, 0), f"{batch.hint}_bias"))
    attributes = batch.attributes()
    if groups != group or "group" in attributes:
        attributes["group"] = groups
    batch.put_side_by_side(1, batch.make("ConvTranspose", names, **attributes)[0])


RULES: Table = {"ConvTranspose": Rule(conv_transpose, check_conv, heavy=True)}
