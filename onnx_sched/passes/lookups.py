"""Embeddings: rows of constant tables, one table a lane.

    Gather(T_i, n_i)  ==>  GatherND(Stack(T), Unsqueeze(Stack(n)), batch_dims=1)     own indices
    Gather(T_i, n)    ==>  Gather(Concat(T, axis=1), n)                              one index for all
    Gather(T, n_i)    ==>  Gather(T, Stack(n))                                       one table for all

GatherND refuses the same indices that Gather refuses: no lane can read another lane's rows.
"""

from __future__ import annotations

from onnx import TensorProto

from onnx_sched.circuit import EMBEDDING, Circuit, Unit
from onnx_sched.constants import Const, concat, stack
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.stacking import lead, packed


def check(unit: Unit, circuit: Circuit) -> str | None:
    """Indices of known rank, and an opset with batches in GatherND."""
    if circuit.graph.opset < 12:
        return "GatherND has no batches before opset 12"
    if circuit.shape(unit.operands[1]) is None:
        return "the shape of the indices is not known"
    return None


def embedding(batch: Batch) -> None:
    """Look up all lanes at once."""
    rank = len(batch.shape(1))
    lanes, single = batch.lanes(1), batch.single(1)
    tables = [t for t in batch.operands(0) if isinstance(t, Const)]
    if single is not None:
        table = batch.emit.const(concat(tables, 1), f"{batch.hint}_tables")
        out = batch.make("Gather", [table, batch.store.value(single)])[0]
        batch.put(packed(rank + 1, rank), out)
        return
    assert lanes is not None
    if len(batch.consts(0)) == 1:
        layout = next((la for la in batch.store.placed(lanes) if len(la) == rank + 1), lead(rank))
        table = batch.emit.const(tables[0], f"{batch.hint}_table")
        out = batch.make("Gather", [table, batch.store.get(lanes, layout)])[0]
        batch.put((*layout, (rank,)), out)
        return
    index = batch.store.get(lanes, lead(rank))
    if batch.circuit.elem_type(batch.unit.operands[1]) != TensorProto.INT64:
        index = batch.make("Cast", [index], to=TensorProto.INT64)[0]
    raised = batch.emit.with_axes("Unsqueeze", index, [rank + 1], f"{batch.hint}_index", 13)
    table = batch.emit.const(stack(tables), f"{batch.hint}_tables")
    batch.put(lead(rank + 1), batch.make("GatherND", [table, raised], batch_dims=1)[0])


RULES: Table = {EMBEDDING: Rule(embedding, check, heavy=True)}
