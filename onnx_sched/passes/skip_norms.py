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
from onnx_sched.passes.norm_forms import apply
from onnx_sched.passes.norms import check_layer_norm, layer_norm
from onnx_sched.passes.operands import apiece, choose, has, one, own_consts
from onnx_sched.passes.rule import Batch, Rule, Table
from onnx_sched.plan import Refused
from onnx_sched.relayout import steps
from onnx_sched.stacking import LANE, Layout, flat, lead, spare_axis

EPSILON = 1e-12
"""What ONNX Runtime takes where a norm of a sum says nothing."""

LAYER_NORM = 17
"""The opset from which on ONNX has LayerNormalization."""


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
    """One op on rows of all lanes, what differs by lane around it.

    Runtimes take three axes.  Where lanes have more, and sizes known only at run time stand in the way of
    fewer, a sum and a norm do the same.
    """
    norm = _SkipNorm(batch)
    norm.scaled(norm.fused() if norm.fits else norm.apart())


class _SkipNorm:
    """One norm; `layout` is where it works, `fits` whether runtimes take that."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._bias = 4 if batch.unit.kind == "SkipLayerNormalization" else 3
        self._shift = 3 if self._bias == 4 else None
        self._rank = rank = len(batch.shape(0))
        bulk, front = batch.bulk(batch.shape(0)), lead(rank)
        self.fits = steps(bulk, flat(rank), front) is not None

        def suits(layout: Layout) -> bool:
            """Rows innermost, lanes by themselves, and told apart again."""
            clear = (LANE,) in layout and layout[-1] == (rank - 1,) and spare_axis(layout) is None
            few = len(layout) == 3 or not self.fits
            return clear and few and steps(bulk, layout, front) is not None

        self.layout = choose(batch, [0, 1], suits, flat(rank) if self.fits else front)

    def _one(self, k: int | None) -> str:
        """A row that all lanes share; "" if there is none, or each has its own."""
        if k is None or not has(self._batch, k):
            return ""
        return one(self._batch, k) or ""

    def _apply(self, op_type: str, name: str, k: int) -> str:
        """Add or multiply the rows that differ."""
        batch, raised = self._batch, (1,) * (self._rank - 1)
        rows = [c.reshape(raised + c.shape) for c in own_consts(batch, k)]
        return apply(batch, op_type, name, rows, self.layout, batch.bulk(batch.shape(0)))

    def _shared(self) -> bool:
        """Whether scale and shift are the same for all lanes."""
        batch, k = self._batch, self._shift
        equal = len(batch.consts(2)) == 1
        return equal and (k is None or not has(batch, k) or len(batch.consts(k)) == 1)

    def _parameters(self) -> list[str]:
        """Scale and shift where they are the same for all lanes, else a scale that changes nothing."""
        batch = self._batch
        scale = batch.consts(2)[0] if self._shared() else ones_like(batch.consts(2)[0])
        names = [batch.emit.const(scale, f"{batch.hint}_scale")]
        if self._shift is not None:
            names.append(self._one(self._shift) if self._shared() else "")
        return names

    def _summed(self) -> bool:
        """Whether the sum is read, too."""
        return len(self._batch.unit.outputs) > 3 and bool(self._batch.unit.outputs[3])

    def fused(self) -> str:
        """The same op on rows of all lanes."""
        batch, k = self._batch, self._bias
        x, skip = (apiece(batch, n, self.layout) for n in (0, 1))
        common = self._one(k)
        if has(batch, k) and not common:
            x = self._apply("Add", x, k)
        outputs = [batch.emit.name(f"{batch.hint}_out")]
        if self._summed():
            outputs += ["", "", batch.emit.name(f"{batch.hint}_sum")]
            batch.put(self.layout, outputs[3], 3)
        names = _cut([x, skip, *self._parameters(), common])
        kind, attributes = batch.unit.kind, batch.attributes()
        return batch.emit.node(kind, names, batch.hint, outputs, DOMAIN, **attributes)[0]

    def apart(self) -> str:
        """A sum and a norm of any number of axes."""
        batch, k = self._batch, self._bias
        if self._shift is not None and batch.emit.opset < LAYER_NORM:
            raise Refused("S201", "sizes known only at run time stand in the way of a Reshape")
        total = batch.make("Add", [apiece(batch, n, self.layout) for n in (0, 1)])[0]
        common = self._one(k)
        if common:
            total = batch.make("Add", [total, common])[0]
        elif has(batch, k):
            total = self._apply("Add", total, k)
        if self._summed():
            batch.put(self.layout, total, 3)
        kind = "SimplifiedLayerNormalization" if self._shift is None else "LayerNormalization"
        attributes = {"epsilon": EPSILON, **batch.attributes(), "axis": -1}
        return batch.make(kind, _cut([total, *self._parameters()]), **attributes)[0]

    def scaled(self, out: str) -> None:
        """Scales and shifts that differ."""
        batch = self._batch
        if not self._shared():
            out = self._apply("Mul", out, 2)
            if self._shift is not None and has(batch, self._shift):
                out = self._apply("Add", out, self._shift)
        batch.put(self.layout, out)


def _cut(names: list[str]) -> list[str]:
    """Operands without missing ones at the end."""
    last = max(n for n, name in enumerate(names) if name)
    return names[: last + 1]


RULES: Table = {"SimplifiedLayerNormalization": Rule(layer_norm, check_layer_norm)}
"""A norm that stands in ONNX's own domain."""

CONTRIB: Table = dict.fromkeys(
    ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), Rule(skip_norm, check_skip)
)
"""Norms of com.microsoft."""
