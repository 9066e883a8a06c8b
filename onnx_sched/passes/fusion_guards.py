"""Keep ONNX Runtime from fusions that go wrong: most take a Transpose into a product.

It pushes a Transpose down to the product that reads it, through whatever lies between, and takes it into
the product.  Where the batch is empty, the fused MatMul divides by zero if that Transpose moves a batch
axis, and refuses a matrix as right operand.  With half floats and a matrix a moved batch axis kills it in
any case.  It computes something else where the right operand is a vector.  A Gemm takes the Transpose from
others that add what it makes.  A norm that is spelled out, its mean taken elsewhere, becomes one node with
the default epsilon where its own is no single float32 number.  Behind a Cast it may kill the fusion itself,
and comes there through a Reshape, too.  Ops between what dequantises and what quantises it runs on integers,
with one scale for all lanes.

    Transpose -> ... -> MatMul            ==>   Transpose -> Reshape(0, 0, ...) -> ... -> MatMul
    Transpose -> ... -> MatMul by vector  ==>   Transpose -> Unsqueeze -> Squeeze -> ... -> MatMul
    Transpose -> ... -> Gemm, Add         ==>   Transpose -> Unsqueeze -> Squeeze -> ... -> Gemm, Add
    Add(epsilon) -> Sqrt                  ==>   Add(epsilon) -> Unsqueeze -> Squeeze -> Sqrt
    Sigmoid -> QuantizeLinear             ==>   Sigmoid -> Unsqueeze -> Squeeze -> QuantizeLinear

These change nothing and cost no copy, but the Transpose stays above them.  ONNX Runtime drops the Reshape
where all sizes are known, so that it serves for empty batches only, which have none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from onnx import NodeProto, TensorProto

from onnx_sched.passes.emit import Emitter
from onnx_sched.passes.quantized_fusions import QuantizedFusions

BARRIERS = frozenset(
    "Conv Einsum Gemm MatMul MatMulInteger MatMulNBits QLinearMatMul Reshape".split()
)
"""Ops through which a Transpose is not pushed."""

PRODUCTS = frozenset({"MatMul", "FusedMatMul"})

Types = Callable[[str], tuple[int | None, int]]
"""Says how many axes a value has, None if that is not known, and its element type."""


def read_by_products(nodes: Iterable[NodeProto]) -> list[str]:
    """What the products among some nodes read."""
    return [name for node in nodes if node.op_type in PRODUCTS for name in node.input]


def read_with(
    rank: int, nodes: Iterable[NodeProto], types: Types, kind: int | None = None
) -> list[str]:
    """What the products among some nodes multiply by something of so many axes (and a type)."""
    found = []
    for node in nodes:
        if node.op_type in PRODUCTS:
            axes, elem_type = types(node.input[1])
            if axes == rank and kind in (None, elem_type):
                found.append(node.input[0])
    return found


def read_and_added(nodes: Iterable[NodeProto]) -> list[str]:
    """What a Gemm among some nodes multiplies and another node adds."""
    factors, added = set[str](), set[str]()
    for node in nodes:
        if node.op_type == "Gemm":
            factors.update(node.input[:2])
            added.update(node.input[2:])
        elif node.op_type == "Add":  # may become a Gemm with the product that it adds to
            added.update(node.input)
    return sorted(factors & added)


def read_by_casts(nodes: Sequence[NodeProto]) -> list[str]:
    """What is cast for the products among some nodes."""
    multiplied = set(read_by_products(nodes))
    return [n.input[0] for n in nodes if n.op_type == "Cast" and n.output[0] in multiplied]


def exposed(
    nodes: Sequence[NodeProto], readers: Iterable[str], barriers: Collection[str] = BARRIERS
) -> list[NodeProto]:
    """The Transposes from which there is a way to one of some values without a barrier in between."""
    makers = {o: node for node in nodes for o in node.output if o}
    seen: set[str] = set()
    found: list[NodeProto] = []
    todo = list(readers)
    while todo:
        name = todo.pop()
        maker = makers.get(name)
        if maker is None or name in seen or maker.op_type in barriers:
            continue
        seen.add(name)
        todo += maker.input
        if maker.op_type == "Transpose":
            found.append(maker)
    return found


def perm_of(transpose: NodeProto) -> list[int]:
    """The order of axes that a Transpose asks for; empty if it turns all of them round."""
    return [p for a in transpose.attribute if a.name == "perm" for p in a.ints]


def moves_batch(transpose: NodeProto) -> bool:
    """Whether a Transpose does more than to swap the last two axes."""
    perm = perm_of(transpose)
    return perm[:-2] != list(range(len(perm) - 2))


def guards(
    nodes: Sequence[NodeProto],
    new: set[int],
    types: Types,
    emit: Emitter,
    *,
    may_be_empty: bool,
) -> dict[int, list[NodeProto]]:
    """What stands in the place of some new nodes, by their identities.

    A new Transpose is kept from all products; one of the original only from new products, for what the
    original does with it is its own risk.

    Args:
        nodes: The new graph.
        new: Identities of the nodes that the original does not have.
        types: Numbers of axes and element types.
        emit: Makes the nodes.
        may_be_empty: Whether some size may be zero.
    """
    wrong = [*read_with(1, nodes, types), *read_and_added(nodes)]
    always = {id(t): t for t in exposed(nodes, wrong)}
    deadly = exposed(nodes, read_with(2, nodes, types, TensorProto.FLOAT16))
    always |= {id(t): t for t in deadly if moves_batch(t)}
    always |= {id(t): t for t in exposed(nodes, read_by_casts(nodes), BARRIERS - {"Reshape"})}
    empty = {id(t): t for t in _broken_by_nothing(nodes, types)} if may_be_empty else {}
    made = {k: _kept_by_reshape(t, emit) for k, t in empty.items() if k in new}
    made |= {k: _kept(t, emit, k in empty) for k, t in always.items() if k in new}
    own = {k: t for k, t in (always | empty).items() if k not in new}
    moved = reached(nodes, [t.output[0] for t in own.values()])
    misread = misread_epsilons(nodes, types)
    for node in nodes:
        if id(node) in new and node.op_type in PRODUCTS and not moved.isdisjoint(node.input):
            made[id(node)] = _fenced(node, moved, emit)
        elif id(node) in new and node.op_type == "Sqrt" and node.input[0] in misread:
            made[id(node)] = _fenced(node, misread, emit)
    quantised = QuantizedFusions(nodes, new, lambda name: types(name)[0])
    made |= {k: _kept(node, emit, False) for k, node in quantised.before.items()}
    return made | {k: _fenced(q, {q.input[0]}, emit) for k, q in quantised.behind.items()}


def misread_epsilons(nodes: Sequence[NodeProto], types: Types) -> set[str]:
    """Sums of a mean and what may be its epsilon, where a fusion would take another one."""
    means = {n.output[0] for n in nodes if n.op_type == "ReduceMean"}
    found = set[str]()
    for node in nodes:
        if node.op_type == "Add" and not means.isdisjoint(node.input):
            kinds = [types(name) for name in node.input if name not in means]
            if any(rank not in (0, 1) or kind == TensorProto.DOUBLE for rank, kind in kinds):
                found.add(node.output[0])
    return found


def _broken_by_nothing(nodes: Sequence[NodeProto], types: Types) -> list[NodeProto]:
    """The Transposes that must not come into a product whose batch is empty."""
    moving = [t for t in exposed(nodes, read_by_products(nodes)) if moves_batch(t)]
    by_matrices = exposed(nodes, read_with(2, nodes, types))
    return moving + [t for t in by_matrices if len(perm_of(t)) > 2]


def reached(nodes: Sequence[NodeProto], names: Iterable[str]) -> set[str]:
    """Some values, and those to which there is a way from them without a barrier in between."""
    found = set(names)
    for node in nodes if found else ():
        if node.op_type not in BARRIERS and not found.isdisjoint(node.input):
            found.update(node.output)
    return found


def _kept(node: NodeProto, emit: Emitter, empty: bool) -> list[NodeProto]:
    """A node, and what keeps it there whatever the sizes; by both means where a Transpose may be empty.

    An axis that comes and goes is no barrier where the Transpose meets another one behind it.
    """
    hint = f"{node.name}_apart"
    before = _kept_by_reshape(node, emit) if empty else [_under_another_name(node, emit)]
    if empty:
        before[-1].output[0] = emit.name(f"{node.output[0]}_same_out")
    views = _apart(before[-1].output[0], emit, hint, node.output[0])
    return [*before, *_signed(views, node)]


def _kept_by_reshape(transpose: NodeProto, emit: Emitter) -> list[NodeProto]:
    """A Transpose, and one node that keeps it there where sizes are not known."""
    out, hint = transpose.output[0], f"{transpose.name}_apart"
    moved = _under_another_name(transpose, emit)
    same = emit.ints([0] * len(perm_of(transpose)), f"{out}_same")
    emit.node("Reshape", [moved.output[0], same], hint, [out])
    return [moved, *_signed([emit.nodes.pop()], transpose)]


def _fenced(node: NodeProto, values: set[str], emit: Emitter) -> list[NodeProto]:
    """A node, and before it what keeps some of the values that it reads at a distance."""
    fenced, before = NodeProto(), []
    fenced.CopyFrom(node)
    for k, name in enumerate(node.input):
        if name in values:
            hint = f"{node.name}_apart"
            fenced.input[k] = emit.name(f"{hint}_in")
            before += _apart(name, emit, hint, fenced.input[k])
    return [*_signed(before, node), fenced]


def _under_another_name(node: NodeProto, emit: Emitter) -> NodeProto:
    """A node that leaves the name of its result to what comes behind it."""
    moved = NodeProto()
    moved.CopyFrom(node)
    moved.output[0] = emit.name(f"{node.output[0]}_moved")
    return moved


def _apart(name: str, emit: Emitter, hint: str, out: str) -> list[NodeProto]:
    """An axis comes and goes."""
    begin = len(emit.nodes)
    emit.with_axes(
        "Squeeze", emit.with_axes("Unsqueeze", name, (0,), hint, 13), (0,), hint, 13, [out]
    )
    views = emit.nodes[begin:]
    del emit.nodes[begin:]
    return views


def _signed(views: list[NodeProto], like: NodeProto) -> list[NodeProto]:
    """The nodes with the notes of the one that they serve."""
    for view in views:
        view.metadata_props.extend(like.metadata_props)
    return views
