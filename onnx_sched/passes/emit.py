"""Making new nodes: fresh names, and each op in the form that the model's opset has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from onnx_sched.constants import Const, from_array
from onnx_sched.dims import Dim, Shape
from onnx_sched.relayout import Crop, Extend, Reshape, Shaped, Step, Transpose, Unsqueeze


@dataclass(slots=True)
class Emitter:
    """Collects new nodes and weights.

    Attributes:
        opset: Version of the default domain; forms follow it.
        taken: Every name in use; new names avoid them and join them.
        known: Names of constants that the model holds already, by key.
        given: The input, and its axis, that shows a size known only at run time.
        nodes: New nodes, in the order of making.
        shapes: Shapes that were worked out already.
        fresh: New weights by name.
    """

    opset: int
    taken: set[str]
    known: dict[object, str]
    given: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    nodes: list[NodeProto] = field(default_factory=list)
    shapes: dict[Shape, str] = field(default_factory=dict)
    fresh: dict[str, Const] = field(default_factory=dict)

    def name(self, hint: str) -> str:
        """A name that nothing has, close to `hint`."""
        name, n = hint, 1
        while name in self.taken:
            n += 1
            name = f"{hint}_{n}"
        self.taken.add(name)
        return name

    def node(
        self,
        op_type: str,
        inputs: Sequence[str],
        hint: str,
        outputs: Sequence[str] | int = 1,
        domain: str = "",
        **attributes: Any,
    ) -> list[str]:
        """Add a node; returns the names of its outputs (fresh ones where only a number is given)."""
        if isinstance(outputs, int):
            many = outputs > 1
            outputs = [self.name(f"{hint}_out{i if many else ''}") for i in range(outputs)]
        made = helper.make_node(
            op_type, inputs, outputs, name=self.name(hint), domain=domain, **attributes
        )
        self.nodes.append(made)
        return list(outputs)

    def const(self, const: Const, hint: str) -> str:
        """The name of a constant: the one it has in the model, or a fresh one."""
        if const.key not in self.known:
            name = self.name(hint)
            self.known[const.key] = name
            self.fresh[name] = const
        return self.known[const.key]

    def ints(self, numbers: Iterable[int], hint: str) -> str:
        """The name of an int64 vector."""
        array = np.array(list(numbers), np.int64)
        return self.const(from_array(array, TensorProto.INT64), hint)

    def step(self, x: str, step: Step, hint: str, out: str | None = None) -> str:
        """One step of a change of layout."""
        outputs = 1 if out is None else [out]
        if isinstance(step, Reshape):
            shape = self.ints(step.target, f"{hint}_shape")
            return self.node("Reshape", [x, shape], f"{hint}_reshape", outputs)[0]
        if isinstance(step, Shaped):
            inputs = [x, self.shape(step.shape, f"{hint}_shape")]
            zeros: dict[str, Any] = {"allowzero": 1} if self.opset >= 14 else {}
            return self.node("Reshape", inputs, f"{hint}_reshape", outputs, **zeros)[0]
        if isinstance(step, Transpose):
            return self.node("Transpose", [x], f"{hint}_transpose", outputs, perm=step.perm)[0]
        if isinstance(step, Crop):
            return self.slice(x, step.axis, 0, -1, f"{hint}_crop", out)
        if isinstance(step, Extend):
            return self.extend(x, step, f"{hint}_extend", outputs)
        kind = "Unsqueeze" if isinstance(step, Unsqueeze) else "Squeeze"
        return self.with_axes(kind, x, step.axes, f"{hint}_{kind.lower()}", 13, outputs)

    def shape(self, dims: Shape, hint: str) -> str:
        """A shape as an int64 vector; sizes known only at run time are read from graph inputs."""
        if dims not in self.shapes:
            parts: list[str] = []
            for count, run in runs(dims, self.given):
                if isinstance(run, list):
                    parts.append(self.ints(run, hint))
                else:
                    parts.append(self._sizes(*run, count, hint))
            whole = parts[0] if len(parts) == 1 else self.node("Concat", parts, hint, 1, axis=0)[0]
            self.shapes[dims] = whole
        return self.shapes[dims]

    def _sizes(self, value: str, axis: int, count: int, hint: str) -> str:
        """Some successive sizes of a value."""
        if self.opset >= 15:
            return self.node("Shape", [value], hint, 1, start=axis, end=axis + count)[0]
        whole = self.node("Shape", [value], hint)[0]
        return self.gather(whole, 0, list(range(axis, axis + count)), hint)

    def with_axes(
        self,
        op_type: str,
        x: str,
        axes: Sequence[int],
        hint: str,
        since: int,
        outputs: Sequence[str] | int = 1,
        **attributes: Any,
    ) -> str:
        """An op whose axes are an input from opset `since` on and an attribute before."""
        if self.opset >= since:
            inputs = [x, self.ints(axes, f"{hint}_axes")]
            return self.node(op_type, inputs, hint, outputs, **attributes)[0]
        return self.node(op_type, [x], hint, outputs, axes=list(axes), **attributes)[0]

    def reduce(
        self,
        op_type: str,
        x: str,
        axes: Sequence[int],
        keepdims: bool,
        hint: str,
        out: str | None = None,
    ) -> str:
        """A reduction over the given axes."""
        since = 13 if op_type == "ReduceSum" else 18
        outputs = 1 if out is None else [out]
        return self.with_axes(op_type, x, axes, hint, since, outputs, keepdims=int(keepdims))

    def split(
        self, x: str, axis: int, sizes: Sequence[int], hint: str, outputs: Sequence[str] | int
    ) -> list[str]:
        """Split along an axis into pieces of the given sizes."""
        if self.opset >= 13:
            return self.node(
                "Split", [x, self.ints(sizes, f"{hint}_sizes")], hint, outputs, axis=axis
            )
        return self.node("Split", [x], hint, outputs, axis=axis, split=list(sizes))

    def split_evenly(self, x: str, axis: int, outputs: Sequence[str], hint: str) -> list[str]:
        """Split along an axis, of whatever size, into equal pieces."""
        if self.opset >= 18:
            return self.node("Split", [x], hint, outputs, axis=axis, num_outputs=len(outputs))
        return self.node("Split", [x], hint, outputs, axis=axis)

    def slice(
        self, x: str, axis: int, start: int, end: int, hint: str, out: str | None = None
    ) -> str:
        """A range of one axis."""
        outputs = 1 if out is None else [out]
        if self.opset >= 10:
            bounds = [
                self.ints([v], f"{hint}_{k}")
                for k, v in (("start", start), ("end", end), ("axis", axis))
            ]
            return self.node("Slice", [x, *bounds], hint, outputs)[0]
        return self.node("Slice", [x], hint, outputs, starts=[start], ends=[end], axes=[axis])[0]

    def extend(self, x: str, step: Extend, hint: str, outputs: Sequence[str] | int) -> str:
        """Zeros at the end of an axis."""
        pads = [0] * (2 * step.rank)
        pads[step.rank + step.axis] = 1
        if self.opset >= 11:
            return self.node("Pad", [x, self.ints(pads, f"{hint}_pads")], hint, outputs)[0]
        return self.node("Pad", [x], hint, outputs, pads=pads)[0]

    def gather(
        self, x: str, axis: int, index: int | Sequence[int], hint: str, out: str | None = None
    ) -> str:
        """Entries of one axis; a single number drops the axis."""
        array = np.array(index, np.int64)
        where = self.const(from_array(array, TensorProto.INT64), f"{hint}_index")
        return self.node("Gather", [x, where], hint, 1 if out is None else [out], axis=axis)[0]


def runs(
    dims: Shape, given: Mapping[str, tuple[str, int]]
) -> list[tuple[int, list[int] | tuple[str, int]]]:
    """A shape cut into stretches: known numbers, or successive sizes of one value from an axis on.

    >>> runs((4, "B", "S", 3), {"B": ("x", 0), "S": ("x", 1)})
    [(1, [4]), (2, ('x', 0)), (1, [3])]
    """
    found: list[tuple[int, list[int] | tuple[str, int]]] = []
    for dim in dims:
        count, last = found[-1] if found else (0, None)
        if isinstance(dim, int):
            if isinstance(last, list):
                found[-1] = (count + 1, [*last, dim])
            else:
                found.append((1, [dim]))
        else:
            value, axis = given[dim]
            if isinstance(last, tuple) and (last[0], last[1] + count) == (value, axis):
                found[-1] = (count + 1, last)
            else:
                found.append((1, (value, axis)))
    return found


def ints_of(dims: Iterable[Dim]) -> list[int] | None:
    """Sizes as ints; None if one is not known."""
    found = []
    for dim in dims:
        if not isinstance(dim, int):
            return None
        found.append(dim)
    return found
