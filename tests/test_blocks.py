"""Cutting apart what Concat put together gives the lanes back, and nothing else does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper, numpy_helper

from onnx_sched.analysis import Analysis
from onnx_sched.blocks import Block, Blocks, Look, regroup
from onnx_sched.dims import Dim, Shape, product, quotient
from onnx_sched.nodes import attributes
from onnx_sched.stacking import LANE, Atom, Bulk, Layout, packed
from onnx_sched.values import Values
from tests.nets import (
    Array,
    analysed,
    evaluate,
    every_value,
    feeds,
    ints,
    net,
    physical,
    symbols_of,
)
from tests.zoo import MODELS, RANDOM, sightings, studied


def walk(analysis: Analysis) -> tuple[Values, dict[str, Block]]:
    """What is known about a model's values, and its block values."""
    values, blocks = analysis.values, Blocks()
    for node in analysis.graph.nodes:
        if node.domain or not node.output or not node.input:
            continue
        names = [values.first(i) for i in node.input]
        numbers: list[tuple[int, ...] | None] = []
        for name in names:
            sizes = values.ints.get(name, None if name else ())
            known = None if sizes is None else tuple(d for d in sizes if isinstance(d, int))
            numbers.append(known if sizes is not None and len(known or ()) == len(sizes) else None)
        shapes = [values.shape(n) if n else None for n in names]
        made = [values.shape(o) for o in node.output]
        looks = attributes(node), numbers, shapes, made, analysis.graph.opset
        blocks.visit(Look(node.op_type, names, list(node.output), *looks))
    return values, blocks.found


def check(analysis: Analysis, runs: Sequence[dict[str, Array]]) -> int:
    """Hold all block values and all lanes that came back against runs; returns how many came back."""
    values, blocks = walk(analysis)
    for seen in runs:
        for output, lane in values.undone.items():
            assert seen[output].shape == seen[lane].shape
            np.testing.assert_array_equal(seen[output], seen[lane])
        for name, block in blocks.items():
            stack = np.stack([seen[lane] for lane in block.lanes])
            np.testing.assert_array_equal(physical(stack, block.layout), seen[name])
            assert block.bulk.lanes == len(block.lanes)
    return len(values.undone)


@pytest.mark.parametrize("name", sorted({*MODELS} - RANDOM))
def test_block_values_are_what_their_layout_says(name: str) -> None:
    """In every run, the tensor of a block value is that of its lanes in its layout."""
    check(studied(name), [seen for _, seen in sightings(name)])


# -- random chains ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Chain:
    """A model under construction: one value after another, and the shape of the last.

    At most one axis is open: a multiple of N.
    """

    shape: list[Dim]
    nodes: list[Any] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)
    last: str = ""

    def weight(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(array, np.int64)
        return name

    def add(
        self, op: str, inputs: Sequence[str], shape: Sequence[Dim], outputs: int = 1, **given: Any
    ) -> list[str]:
        names = [f"v{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **given))
        self.last, self.shape = names[0], list(shape)
        return names

    def reshape(self, shape: Sequence[Dim]) -> None:
        target = [d if isinstance(d, int) else -1 for d in shape]
        self.add("Reshape", [self.last, self.weight(target)], shape)

    def proto(self, lanes: Sequence[str], lane: Shape) -> ModelProto:
        inputs = [helper.make_tensor_value_info(n, 1, lane) for n in lanes]
        read = {i for node in self.nodes for i in node.input}
        ends = [o for node in self.nodes for o in node.output if o not in read]
        outputs = [helper.make_empty_tensor_value_info(o) for o in ends]
        weights = [numpy_helper.from_array(a, n) for n, a in self.weights.items()]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, weights)
        imports = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


LANES: list[Shape] = [
    ("N", 4),
    ("N", 2, 3),
    (2, 6),
    ("N", 1, 4),
    (3, "N"),
    (4,),
    ("N",),
    (1, "N", 2),
]


def join(draw: st.DrawFn, lanes: Sequence[str], lane: Shape) -> Chain:
    """Concat along an axis of the lanes, or along a new one."""
    chain = Chain(list(lane))
    fresh = draw(st.booleans())
    axis = draw(st.integers(0, len(lane) - (not fresh)))
    parts = list(lanes)
    whole = list(lane)
    if fresh:
        at = chain.weight([axis - draw(st.sampled_from([0, len(lane) + 1]))])
        parts = [chain.add("Unsqueeze", [n, at], [])[0] for n in lanes]
        whole.insert(axis, 1)
    written = axis - draw(st.sampled_from([0, len(whole)]))
    shape = [product([d, len(lanes)]) if k == axis else d for k, d in enumerate(whole)]
    chain.add("Concat", parts, shape, axis=written)
    return chain


def move(draw: st.DrawFn, chain: Chain) -> None:
    """Transpose, Unsqueeze, Squeeze, or a Reshape that joins two axes or splits one."""
    shape, rank = chain.shape, len(chain.shape)
    kind = draw(
        st.sampled_from(["turn", "raise", "lower", "merge", "split", "turn", "merge", "split"])
    )
    units = [k for k, d in enumerate(shape) if d == 1]
    if kind == "turn":
        perm = draw(st.permutations(range(rank)))
        chain.add("Transpose", [chain.last], [shape[p] for p in perm], perm=perm)
    elif kind == "raise" and rank < 5:
        axis = draw(st.integers(0, rank))
        operands = [chain.last, chain.weight([axis])]
        chain.add("Unsqueeze", operands, [*shape[:axis], 1, *shape[axis:]])
    elif kind == "lower" and units and rank > 1:
        axis = draw(st.sampled_from(units))
        operands = [chain.last, chain.weight([axis - draw(st.sampled_from([0, rank]))])]
        chain.add("Squeeze", operands, [*shape[:axis], *shape[axis + 1 :]])
    elif kind == "merge" and rank > 1:
        axis = draw(st.integers(0, rank - 2))
        both = product(shape[axis : axis + 2])
        chain.reshape([*shape[:axis], both, *shape[axis + 2 :]])
    elif kind == "split" and rank < 5:
        axis = draw(st.integers(0, rank - 1))
        part = draw(st.sampled_from([2, 3, 4]))
        rest = quotient(shape[axis], part)
        if rest is not None:
            pair = draw(st.permutations([part, rest]))
            chain.reshape([*shape[:axis], *pair, *shape[axis + 1 :]])


def cut(draw: st.DrawFn, chain: Chain) -> None:
    """A Split, a Slice, or a Gather, aligned or not; nothing where the axis allows none."""
    shape, rank = chain.shape, len(chain.shape)
    axis = draw(st.integers(0, rank - 1))
    kind = draw(st.sampled_from(["Split", "sizes", "Slice", "Gather"]))
    pieces = draw(st.sampled_from([2, 3, 4]))
    part, size = quotient(shape[axis], pieces), shape[axis]
    source = chain.last
    written = axis - draw(st.sampled_from([0, rank]))
    if kind == "Split" and part is not None:
        chain.add("Split", [source], shape, pieces, axis=written)
    elif not isinstance(size, int):
        return
    elif kind == "sizes" and size > 1:
        first = draw(st.integers(1, size - 1))
        sizes = chain.weight([first, size - first])
        chain.add("Split", [source, sizes], shape, 2, axis=written)
    elif kind == "Slice":
        width = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
        start = draw(st.integers(0, size // width - 1)) * width + draw(st.sampled_from([0, 0, 1]))
        bounds = [chain.weight([b]) for b in (start, start + width, written)]
        chain.add("Slice", [source, *bounds], shape)
    elif kind == "Gather":
        where = draw(st.integers(0, size - 1))
        chain.add("Gather", [source, chain.weight(where)], shape, axis=written)


@st.composite
def chains(draw: st.DrawFn) -> ModelProto:
    """Lanes are joined, moved about, and cut apart in a few ways."""
    lane = draw(st.sampled_from(LANES))
    lanes = ["a", "b", "c", "d"][: draw(st.integers(2, 4))]
    chain = join(draw, lanes, lane)
    for _ in range(draw(st.sampled_from([0, 0, 1, 2, 3]))):
        move(draw, chain)
    trunk, shape = chain.last, list(chain.shape)
    for _ in range(draw(st.integers(1, 4))):
        chain.last, chain.shape = trunk, list(shape)
        cut(draw, chain)
    return chain.proto(lanes, lane)


@settings(max_examples=150, deadline=None)
@given(chains())
def test_what_comes_back_is_the_lane(proto: ModelProto) -> None:
    """However the joined lanes are moved and cut: an output that is called a lane is that lane.

    And every block value on the way is what its layout says, whatever the open size is.
    """
    check(analysed(proto), [every_value(proto, feeds(proto, N=n)) for n in (3, 4)])


# -- what must come back, and what must not ---------------------------------------------------------

JOINED = "c = Concat<axis=1>(p, q, r) "
STACKED = "p1 = Unsqueeze(p, i1) q1 = Unsqueeze(q, i1) r1 = Unsqueeze(r, i1) "

ALIGNED = {
    "split": (JOINED + "a, b, d = Split<axis=1>(c)", "p q r"),
    "split from the end": (JOINED + "a, b, d = Split<axis=-1>(c)", "p q r"),
    "split by sizes": (JOINED + "a, b, d = Split<axis=1>(c, sizes)", "p q r"),
    "slices": (JOINED + "a = Slice(c, i0, i4, i1) d = Slice(c, i8, far, i1, i1)", "p - r"),
    "slice from the end": (JOINED + "d = Slice(c, m4, far, m1)", "- - r"),
    "new axis": (
        STACKED + "c = Concat<axis=1>(p1, q1, r1) a = Gather<axis=1>(c, g0) "
        "d = Gather<axis=-2>(c, g2)",
        "p - r",
    ),
    "new axis, split": (
        STACKED + "c = Concat<axis=1>(p1, q1, r1) s, t, u = Split<axis=1>(c) a = Squeeze(s, i1)",
        "- - -",
    ),
    "reshape and back": (
        JOINED + "e = Reshape(c, to) f = Reshape(e, back) a, b, d = Split<axis=1>(f)",
        "p q r",
    ),
    "head by head": (
        JOINED + "e = Reshape(c, to) f = Transpose<perm=[1,0,2]>(e) a = Gather<axis=0>(f, g0) "
        "b = Gather<axis=0>(f, g1) d = Gather<axis=0>(f, g2)",
        "p q r",
    ),
    "flattened": (
        JOINED + "e = Transpose(c) f = Unsqueeze(e, i0) g = Squeeze(f, i0) h = Transpose(g) "
        "a, b, d = Split<axis=1>(h)",
        "p q r",
    ),
    "turned round": (
        STACKED + "c = Concat<axis=1>(p1, q1, r1) e = Transpose<perm=[1,2,0]>(c) "
        "f = Transpose<perm=[0,2,1]>(e) a = Gather<axis=0>(f, g0) d = Gather<axis=0>(f, g2)",
        "p - r",
    ),
    "raised from the end": (
        JOINED + "e = Unsqueeze(c, m1) f = Squeeze(e, m1) a, b, d = Split<axis=1>(f)",
        "p q r",
    ),
    "raised elsewhere": (
        "p1 = Unsqueeze(p, i0) q1 = Unsqueeze(q, i0) r1 = Unsqueeze(r, i0) "
        "c = Concat<axis=2>(p1, q1, r1) a, b, d = Split<axis=2>(c)",
        "p1 q1 r1",
    ),
    "other names": (JOINED + "e = Identity(c) a, b, d = Split<axis=1>(e)", "p q r"),
    "one lane twice": ("c = Concat<axis=1>(p, q, p) a, b, d = Split<axis=1>(c)", "p q p"),
    "another order": ("c = Concat<axis=1>(r, p, q) a, b, d = Split<axis=1>(c)", "r p q"),
    "twice over": (
        JOINED + "s, t, u = Split<axis=1>(c) v = Concat<axis=1>(u, s, t) "
        "a, b, d = Split<axis=1>(v)",
        "r p q",
    ),
}

MISALIGNED = {
    "other pieces": JOINED + "a, b = Split<axis=1>(c, halves)",
    "six pieces": JOINED + "a, b, d, e, f, g = Split<axis=1>(c)",
    "other axis": "c = Concat<axis=0>(p, q, r) a, b = Split<axis=1>(c)",
    "shifted": JOINED + "a = Slice(c, i1, i5, i1)",
    "two lanes": JOINED + "a = Slice(c, i0, i8, i1)",
    "half a lane": JOINED + "a = Slice(c, i4, i6, i1)",
    "every other": JOINED + "a = Slice(c, i0, i8, i1, i2)",
    "backwards": JOINED + "a = Slice(c, i4, i0, i1, m1)",
    "rows": JOINED + "a = Slice(c, i0, i4, i0)",
    "unequal lanes": "w = Concat<axis=1>(p, q) c = Concat<axis=1>(w, r) a, b, d = Split<axis=1>(c)",
    "across lanes": JOINED + "e = Reshape(c, across) f = Transpose<perm=[1,0,2]>(e) "
    "a = Gather<axis=0>(f, g0)",
    "column of a lane": JOINED + "e = Reshape(c, to) a = Gather<axis=2>(e, g0)",
    "several of them": JOINED + "e = Reshape(c, to) a = Gather<axis=1>(e, i0)",
    "turned lane": JOINED + "e = Transpose(c) a, b, d = Split<axis=0>(e)",
    "raised lane": JOINED + "e = Unsqueeze(c, i0) a, b, d = Split<axis=2>(e)",
    "by an input": JOINED + "a = Slice(c, n, far, i1)",
    "computed between": JOINED + "e = Relu(c) a, b, d = Split<axis=1>(e)",
    "rows between": "c = Concat<axis=0>(p, q, r) e = Reshape(c, mixed) f = Transpose<perm=[1,0,2]>(e) "
    "g = Reshape(f, back4) a, b, d = Split<axis=0>(g)",
}

BOUNDS: dict[str, Any] = {
    **{f"i{k}": ints(k) for k in (0, 1, 2, 4, 5, 6, 8)},
    **{f"g{k}": np.int64(k) for k in (0, 1, 2)},
    "m1": ints(-1),
    "m4": ints(-4),
    "far": ints(2**63 - 1),
    "sizes": ints(4, 4, 4),
    "halves": ints(6, 6),
    "to": ints(0, 3, 4),
    "back": ints(0, 12),
    "across": ints(0, 2, 6),
    "mixed": ints(-1, 3, 4),
    "back4": ints(-1, 4),
}


def three_lanes(text: str) -> ModelProto:
    return net(
        "(float[N,4] p, float[N,4] q, float[N,4] r, int64[1] n) => (float[] y) "
        f"{{ {text} y = Sum(p, q, r) }}",
        BOUNDS,
    )


@pytest.mark.parametrize("kind", ALIGNED)
def test_an_aligned_cut_gives_the_lanes(kind: str) -> None:
    """Whole lanes in their own shape are seen for what they are, and numerically are so."""
    text, lanes = ALIGNED[kind]
    proto = three_lanes(text)
    found = check(analysed(proto), [every_value(proto, feeds(proto, N=n)) for n in (3, 6)])
    values, _ = walk(analysed(proto))
    expected = {o: lane for o, lane in zip("abd", lanes.split(), strict=True) if lane != "-"}
    assert {o: values.first(o) for o in expected} == expected
    assert found >= len(expected)


@pytest.mark.parametrize("kind", MISALIGNED)
def test_a_misaligned_cut_gives_nothing(kind: str) -> None:
    """What is no whole lane, or a lane in another shape, or changed, is a value of its own."""
    proto = three_lanes(MISALIGNED[kind])
    fed = feeds(proto, N=6) | {"n": ints(4)}
    seen = every_value(proto, fed)
    assert check(analysed(proto), [seen]) == 0


def test_interleaved_lanes_do_not_come_back() -> None:
    """As many lanes as each is wide, entry by entry: pieces of the right size, but of all lanes."""
    proto = net(
        "(float[3] p, float[3] q, float[3] r) => (float[] y) "
        "{ p1 = Unsqueeze(p, i1) q1 = Unsqueeze(q, i1) r1 = Unsqueeze(r, i1) "
        "c = Concat<axis=1>(p1, q1, r1) e = Reshape(c, all) a, b, d = Split<axis=0>(e) "
        "y = Sum(a, b, d) }",
        {"i1": ints(1), "all": ints(-1)},
    )
    assert check(analysed(proto), [every_value(proto, feeds(proto))]) == 0


def test_old_opsets_spell_cuts_with_attributes() -> None:
    """Slice, Squeeze and Unsqueeze of opset 9 undo a Concat as well."""
    proto = net(
        "(float[N,4] p, float[N,4] q) => (float[] y) "
        "{ c = Concat<axis=1>(p, q) a = Slice<starts=[0],ends=[4],axes=[1]>(c) "
        "b = Slice<starts=[4],ends=[8],axes=[1]>(c) "
        "p1 = Unsqueeze<axes=[0]>(p) q1 = Unsqueeze<axes=[0]>(q) s = Concat<axis=0>(p1, q1) "
        "d = Gather<axis=0>(s, g) e = Unsqueeze<axes=[0]>(s) f = Squeeze<axes=[0]>(e) "
        "h = Gather<axis=0>(f, g) y = Sum(a, b, d, h) }",
        {"g": np.int64(1)},
        opset=9,
    )
    assert check(analysed(proto), [every_value(proto, feeds(proto, N=n)) for n in (1, 3)]) == 4
    values, _ = walk(analysed(proto))
    assert values.undone == {"a": "p", "b": "q", "d": "q", "h": "q"}


# -- regroup ------------------------------------------------------------------------------------------


@st.composite
def regroupings(draw: st.DrawFn) -> tuple[Bulk, Layout, Shape]:
    """A layout, and a shape of as many elements: axes joined, split, or cut otherwise."""
    shape: Shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, "B"]), max_size=3)))
    bulk = Bulk(draw(st.integers(2, 4)), shape)
    every: list[Atom] = [LANE, *range(len(shape))]
    atoms = draw(st.permutations(every))
    row = [bulk.dim(a) for a in atoms]
    cuts = sorted(draw(st.sets(st.integers(0, len(row)), max_size=3)))
    edges = [0, *cuts, len(row)]
    target = [product(row[a:b]) for a, b in pairwise(edges)]
    if draw(st.booleans()):
        k = draw(st.integers(0, len(target) - 1))
        rest = quotient(target[k], 2)
        target[k : k + 1] = [target[k]] if rest is None else [rest, 2]
    return bulk, tuple((a,) for a in atoms), tuple(target)


@given(regroupings(), st.integers(2, 3))
def test_regroup_finds_the_layout_after_a_reshape(
    case: tuple[Bulk, Layout, Shape], size: int
) -> None:
    """The reshaped tensor is the bundle in the layout that is found; none is missed.

    There is one exactly if the edges of the new axes are edges between atoms.
    """
    bulk, layout, shape = case
    binding = {"B": size}
    found = regroup(bulk, layout, shape)
    extent = [bulk.lanes, *(evaluate(d, binding) for d in bulk.shape)]
    stack = np.arange(np.prod(extent)).reshape(extent)
    target = [evaluate(d, binding) for d in shape]
    if found is not None:
        reshaped = physical(stack, layout).reshape(target)
        np.testing.assert_array_equal(physical(stack, found), reshaped)
    atoms = [a for axis in layout for a in axis if bulk.dim(a) != 1]
    edges = {product(bulk.dim(a) for a in atoms[:k]) for k in range(len(atoms) + 1)}
    wanted = {product(shape[:k]) for k in range(len(shape) + 1)}
    assert (found is not None) == (wanted <= edges)


def test_a_regrouping_keeps_symbols_apart() -> None:
    """(B, 4*8) to (B, 4, 8) opens the lanes, to (B, 8, 4) it does not, nor to (4, B, 8)."""
    bulk = Bulk(4, ("B", 8))
    assert regroup(bulk, packed(2, 1), ("B", 4, 8)) == ((0,), (LANE,), (1,))
    assert regroup(bulk, packed(2, 1), ("B", 8, 4)) is None
    assert regroup(bulk, packed(2, 1), (4, "B", 8)) is None
    assert regroup(bulk, packed(2, 1), ("32*B",)) == ((0, LANE, 1),)
    assert symbols_of("32*B") == ["B"]
