"""How large the integers fed to a model may be: below the number of rows of every table they index.

ONNX Runtime refuses an index out of range on the CPU, and reads whatever is there on CUDA.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

# Ops whose output holds elements of these operands, unchanged or moved (None: of all operands).
_MOVES: dict[str, tuple[int, ...] | None] = {
    "Cast": (0,),
    "Concat": None,
    "Expand": (0,),
    "Flatten": (0,),
    "Gather": (0,),
    "Identity": (0,),
    "Reshape": (0,),
    "Slice": (0,),
    "Split": (0,),
    "Squeeze": (0,),
    "Sub": (0,),  # what falls below 0 counts from the end
    "Tile": (0,),
    "Transpose": (0,),
    "Unsqueeze": (0,),
    "Where": (1, 2),
}
# Ops that read rows: operand of the index -> operands of the tables.
_READS: dict[tuple[str, str], dict[int, tuple[int, ...]]] = {
    ("", "Gather"): {1: (0,)},
    ("", "GatherElements"): {1: (0,)},
    ("", "GatherND"): {1: (0,)},
    ("", "ScatterElements"): {1: (0,)},
    ("", "ScatterND"): {1: (0,)},
    ("com.microsoft", "GatherBlockQuantized"): {1: (0,)},
    ("com.microsoft", "EmbedLayerNormalization"): {0: (2,), 1: (4,)},
}
_KEEP_SHAPE = ("Cast", "DequantizeLinear", "Identity")
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)


def index_limits(model: ModelProto) -> dict[str, int]:
    """For every input that ends up as an index: the number of rows it may count.

    Follows each input through ops that only move its elements (and through the addition of a
    constant, as position ids have it), into the bodies of If, Loop and Scan as well. Where the
    number of rows is not written in the model, the limit is 1: row 0 alone is sure to exist.
    """
    facts = _Facts(model)
    limits = {}
    for value in model.graph.input:
        rows = facts.rows_reached_from(value.name)
        if rows is not None:
            limits[value.name] = max(rows, 1)
    return limits


class _Facts:
    """Readers, makers and shapes of the values in all graphs of a model, by name."""

    def __init__(self, model: ModelProto) -> None:
        self.readers: dict[str, list[NodeProto]] = {}
        self.makers: dict[str, NodeProto] = {}
        self.weights: dict[str, TensorProto] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for graph in all_graphs(model.graph):
            for value in (*graph.input, *graph.value_info):
                dims = value.type.tensor_type.shape.dim
                self.shapes[value.name] = tuple(d.dim_value or -1 for d in dims)
            for tensor in graph.initializer:
                self._add_weight(tensor.name, tensor)
            for node in graph.node:
                for name in node.output:
                    self.makers[name] = node
                for name in dict.fromkeys(node.input):
                    self.readers.setdefault(name, []).append(node)
                if node.op_type == "Constant":
                    for attribute in node.attribute:
                        if attribute.name == "value":
                            self._add_weight(node.output[0], attribute.t)

    def _add_weight(self, name: str, tensor: TensorProto) -> None:
        self.weights[name] = tensor
        self.shapes[name] = tuple(tensor.dims)

    def rows_reached_from(self, start: str) -> int | None:
        """The smallest number of rows that the elements of `start` may count; None if no index."""
        best: int | None = None
        offsets = {start: 0}  # value -> the most that was added to the elements of `start`
        waiting = [start]
        while waiting:
            name = waiting.pop()
            for node in self.readers.get(name, ()):
                for rows in self._rows_read(node, name):
                    found = rows - offsets[name]
                    best = found if best is None else min(best, found)
                shift = self._shift(node, name)
                if shift is None:
                    continue
                for output in node.output:
                    if offsets[name] + shift > offsets.get(output, -1):
                        offsets[output] = offsets[name] + shift
                        waiting.append(output)
        return best

    def _shift(self, node: NodeProto, name: str) -> int | None:
        """What the node adds to the elements of `name` at most; None if it makes something else."""
        positions = [place for place, operand in enumerate(node.input) if operand == name]
        if node.domain not in ("", "ai.onnx"):
            return None
        if node.op_type == "Add":
            others = [operand for operand in node.input if operand != name]
            return self._largest(others[0]) if others else None
        if node.op_type not in _MOVES:
            return None
        moved = _MOVES[node.op_type]
        return 0 if moved is None or any(place in moved for place in positions) else None

    def _largest(self, name: str) -> int | None:
        tensor = self.weights.get(name)
        if tensor is None or tensor.data_type not in _INTEGERS:
            return None
        if tensor.data_location == TensorProto.EXTERNAL:
            return None
        return max(int(numpy_helper.to_array(tensor).max(initial=0)), 0)

    def _rows_read(self, node: NodeProto, name: str) -> Iterator[int]:
        """The number of rows of each table that the node indexes by `name`."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        for place, tables in _READS.get((domain, node.op_type), {}).items():
            if place >= len(node.input) or node.input[place] != name:
                continue
            for table in tables:
                shape = self._shape(node.input[table]) if table < len(node.input) else ()
                yield _rows(node, shape)

    def _shape(self, name: str) -> tuple[int, ...]:
        """The shape of a table; looks through ops that keep it."""
        while name not in self.shapes and name in self.makers:
            maker = self.makers[name]
            if maker.op_type not in _KEEP_SHAPE:
                break
            name = maker.input[0]
        return self.shapes.get(name, ())


def _rows(node: NodeProto, shape: tuple[int, ...]) -> int:
    """How many rows an index may count in a table; 1 or less if unknown."""
    if node.op_type in ("GatherND", "ScatterND"):
        return min(shape, default=1)
    axis = next((int(a.i) for a in node.attribute if a.name in ("axis", "gather_axis")), 0)
    inside = -len(shape) <= axis < len(shape)
    return shape[axis] if inside else 1


def all_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """The graph and all graphs inside it: the bodies of If, Loop and Scan."""
    waiting = [graph]
    while waiting:
        current = waiting.pop()
        yield current
        for node in current.node:
            for attribute in node.attribute:
                waiting.extend([attribute.g] if attribute.HasField("g") else [])
                waiting.extend(attribute.graphs)
