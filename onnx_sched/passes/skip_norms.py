"""Norms that ONNX Runtime has beside ONNX's: of a sum, and of the root mean square.

    SkipNorm(x_i, s_i, g_i, h_i, b_i)  ==>  SkipNorm(Stack(x) + Stack(b), Stack(s), 1) * Stack(g) + Stack(h)
    SimplifiedNorm(x_i, g_i)           ==>  as RMSNormalization

What is equal in all lanes stays inside the op; scales, shifts and biases that differ stand around it.
"""

from __future__ import annotations

from onnx_sched.circuit import Circuit, Unit
from onnx_sched.constants import Const
from onnx_sched.passes.contrib import DOMAIN
from onnx_sched.passes.fold import ones_like
from onnx_sched.passes.norms import apply, check_layer_norm, layer_norm
from onnx_sched.passes.operands import apiece, choose, has, one, own_consts
from onnx_sched.passes.rule import Batch, Rule, Table, laid_const
from onnx_sched.stacking import Bulk, Layout, at, flat, lead, packed, spare_axis, steps


def check_skip(unit: Unit, circuit: Circuit) -> str | None:
    """Two inputs of one shape, constant parameters, no statistics read."""
    if any(unit.outputs[1:3]):
        return "its mean or deviation is read"
    if not all(isinstance(o, Const) or o is None for o in unit.operands[2:]):
        return "its scale or bias is computed"
    first, second = (circuit.shape(unit.operands[k]) for k in (0, 1))
    if first is None or circuit.values.shape(unit.outputs[0]) is None:
        return "the shape of its input is not known"
    if first != second or len(first) not in (2, 3):
        return "its inputs are not of one shape, or not rows"
    return None


def skip_norm(batch: Batch) -> None:
    """SkipLayerNormalization and its kin on rows of all lanes; what differs by lane stands around it."""
    norm = _SkipNorm(batch)
    x = norm.biased()
    out = norm.normalised(x)
    norm.scaled(out)


class _SkipNorm:
    """One norm in two layouts: `inner` is what runtimes take, in `outer` each lane has its own row."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._bias = 4 if batch.unit.kind == "SkipLayerNormalization" else 3
        self._shift = 3 if self._bias == 4 else None
        shape = batch.shape(0)
        self._rank = rank = len(shape)
        self._bulk = bulk = Bulk(batch.size, shape)
        front = lead(rank)
        default = next(la for la in (flat(rank), packed(rank, 1), front) if _free(bulk, la, front))

        def suits(layout: Layout) -> bool:
            """Two or three axes, the last one normalised, and lanes that can be told apart again."""
            whole = 2 <= len(layout) <= 3 and layout[-1] == (rank - 1,)
            return whole and _free(bulk, layout, front)

        self._inner = choose(batch, [0, 1], suits, default)
        mixed = laid_const(self._rows(2), self._inner, bulk) is None
        self._outer = at(rank, 1) if mixed else self._inner

    def _rows(self, k: int) -> list[Const]:
        """Constant rows of the lanes, in the rank of what they meet."""
        raised = (1,) * (self._rank - 1)
        return [c.reshape(raised + c.shape) for c in own_consts(self._batch, k)]

    def _one(self, k: int | None) -> str:
        """A row that all lanes share; "" if there is none, or each has its own."""
        if k is None or not has(self._batch, k):
            return ""
        return one(self._batch, k) or ""

    def _apply(self, op_type: str, name: str, k: int) -> str:
        return apply(self._batch, op_type, name, self._rows(k), self._outer, self._bulk)

    def _moved(self, name: str, source: Layout, target: Layout) -> str:
        route = steps(self._bulk, source, target)
        assert route is not None
        for step in route:
            name = self._batch.emit.step(name, step, self._batch.hint)
        return name

    def biased(self) -> str:
        """The first input with the biases that differ added."""
        batch, k = self._batch, self._bias
        if not has(batch, k) or self._one(k):
            return apiece(batch, 0, self._inner)
        x = self._apply("Add", apiece(batch, 0, self._outer), k)
        return self._moved(x, self._outer, self._inner)

    def _shared(self) -> bool:
        """Whether scale and shift are the same for all lanes."""
        batch, k = self._batch, self._shift
        equal = len(batch.consts(2)) == 1
        return equal and (k is None or not has(batch, k) or len(batch.consts(k)) == 1)

    def normalised(self, x: str) -> str:
        """The norm, with the parameters that are the same for all lanes."""
        batch = self._batch
        scale = batch.consts(2)[0] if self._shared() else ones_like(batch.consts(2)[0])
        names = [x, apiece(batch, 1, self._inner), batch.emit.const(scale, f"{batch.hint}_scale")]
        if self._shift is not None:
            names.append(self._one(self._shift) if self._shared() else "")
        names.append(self._one(self._bias))
        while not names[-1]:
            names.pop()
        outputs = [batch.emit.name(f"{batch.hint}_out")]
        if len(batch.unit.outputs) > 3 and batch.unit.outputs[3]:
            outputs += ["", "", batch.emit.name(f"{batch.hint}_sum")]
            batch.put(self._inner, outputs[3], 3)
        kind, attributes = batch.unit.kind, batch.attributes()
        return batch.emit.node(kind, names, batch.hint, outputs, DOMAIN, **attributes)[0]

    def scaled(self, out: str) -> None:
        """Scales and shifts that differ."""
        batch = self._batch
        if self._shared():
            batch.put(self._inner, out)
            return
        out = self._apply("Mul", self._moved(out, self._inner, self._outer), 2)
        if self._shift is not None and has(batch, self._shift):
            out = self._apply("Add", out, self._shift)
        batch.put(self._outer, out)


def _free(bulk: Bulk, layout: Layout, target: Layout) -> bool:
    """Whether lanes in a layout can be told apart again."""
    return spare_axis(layout) is None and steps(bulk, layout, target) is not None


RULES: Table = {"SimplifiedLayerNormalization": Rule(layer_norm, check_layer_norm)}
"""A norm that stands in ONNX's own domain."""

CONTRIB: Table = dict.fromkeys(
    ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), Rule(skip_norm, check_skip)
)
"""Norms of com.microsoft."""
