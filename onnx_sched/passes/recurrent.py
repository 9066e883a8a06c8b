"""Recurrences: lanes that share all weights are more entries of one batch.

    LSTM(x_i, W, R, B, P)  ==>  LSTM(Concat(x, batch axis), W, R, B, P)       GRU and RNN likewise

Weights that differ by lane would have to lie on the diagonal of one larger recurrence, and zeros beside
them let a NaN of one lane into the others; two alike lanes are no bidirectional layer either, for that
reads one sequence in both directions, and lanes have sequences of their own.
"""

from __future__ import annotations

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.passes.operands import apiece, has
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.stacking import packed

BATCH_AXIS = {0: 1, 4: 0, 5: 1, 6: 1}
"""By operand that has a batch: which axis that is (input, lengths, first hidden and cell state)."""

WEIGHTS = (1, 2, 3, 7)


def check(unit: Unit, circuit: Circuit) -> str | None:
    """Constant weights that another one reads, too; a batch in the middle, known shapes."""
    if unit.attribute("layout", 0):
        return "its batch comes first (layout=1), which runtimes do not run"
    name = circuit.values.op(circuit.graph.nodes[unit.nodes[-1]]).input[2]
    if len(circuit.graph.readers.get(name, ())) < 2:
        return "its weights are its own, and two recurrences have no exact batched form"
    weights = [unit.operands[k] for k in WEIGHTS if len(unit.operands) > k]
    if any(isinstance(w, str) for w in weights):
        return "its weights are computed"
    if circuit.shape(unit.operands[0]) is None:
        return "the shape of its input is not known"
    if any(o and circuit.values.shape(o) is None for o in unit.outputs):
        return "the shape of its result is not known"
    return None


def recurrence(batch: Batch) -> None:
    """One recurrence over the batches of all lanes, one after the other."""
    names: list[str] = []
    for k in range(batch.slots):
        if not has(batch, k):
            names.append("")
        elif k in BATCH_AXIS:
            rank = len(batch.shape(k))
            names.append(apiece(batch, k, packed(rank, BATCH_AXIS[k])))
        else:
            names.append(batch.emit.const(batch.consts(k)[0], f"{batch.hint}_const{k}"))
    outputs = batch.make(batch.unit.kind, names, len(batch.unit.outputs), **batch.attributes())
    for j, out in enumerate(outputs):
        if batch.unit.outputs[j]:
            rank = len(batch.out_bulk(j).shape)
            batch.put(packed(rank, rank - 2), out, j)


RULES: Table = dict.fromkeys(
    ("LSTM", "GRU", "RNN"), Rule(recurrence, check, static=WEIGHTS, heavy=True)
)
