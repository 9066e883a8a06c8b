"""Keep ONNX Runtime from taking a Transpose into a product where that goes wrong.

It pushes a Transpose down to the product that reads it, through whatever lies between, and takes it into
the product.  The fused MatMul divides by zero where that Transpose moves a batch axis and the batch is
empty, and it computes something else where the right operand is a vector.  A Gemm takes it from others
that add it.

    Transpose -> ... -> MatMul            ==>   Transpose -> Reshape(0, 0, ...) -> ... -> MatMul
    Transpose -> ... -> MatMul by vector  ==>   Transpose -> Unsqueeze -> Squeeze -> ... -> MatMul
    Transpose -> ... -> Gemm, Add         ==>   Transpose -> Unsqueeze -> Squeeze -> ... -> Gemm, Add

These change nothing and cost no copy, but the Transpose stays above them.  ONNX Runtime drops the Reshape
where all sizes are known, so that it serves for empty batches only, which have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from onnx import NodeProto

from onnx_sched.passes.emit import Emitter

BARRIERS = frozenset(
    "Conv Einsum Gemm MatMul MatMulInteger MatMulNBits QLinearMatMul Reshape".split()
)
"""Ops through which a Transpose is not pushed."""

PRODUCTS = frozenset({"MatMul", "FusedMatMul"})


def read_by_products(nodes: Iterable[NodeProto]) -> list[str]:
    """What the products among some nodes read."""
    return [name for node in nodes if node.op_type in PRODUCTS for name in node.input]


def read_with_vectors(nodes: Iterable[NodeProto], is_vector: Callable[[str], bool]) -> list[str]:
    """What the products among some nodes multiply by a vector."""
    products = [node for node in nodes if node.op_type in PRODUCTS]
    return [node.input[0] for node in products if is_vector(node.input[1])]


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


def exposed(nodes: Sequence[NodeProto], readers: Iterable[str]) -> list[NodeProto]:
    """The Transposes from which there is a way to one of some values without a barrier in between."""
    makers = {o: node for node in nodes for o in node.output if o}
    seen: set[str] = set()
    found: list[NodeProto] = []
    todo = list(readers)
    while todo:
        name = todo.pop()
        maker = makers.get(name)
        if maker is None or name in seen or maker.op_type in BARRIERS:
            continue
        seen.add(name)
        todo += maker.input
        if maker.op_type == "Transpose":
            found.append(maker)
    return found


def moves_batch(transpose: NodeProto) -> bool:
    """Whether a Transpose does more than to swap the last two axes."""
    perm = [p for a in transpose.attribute if a.name == "perm" for p in a.ints]
    return perm[:-2] != list(range(len(perm) - 2))


def guards(
    nodes: Sequence[NodeProto],
    new: set[int],
    is_vector: Callable[[str], bool],
    emit: Emitter,
    *,
    may_be_empty: bool,
) -> dict[int, list[NodeProto]]:
    """What stands in the place of some new Transposes, by their identities.

    Args:
        nodes: The new graph.
        new: Identities of the nodes that the original does not have; its own are its own risk.
        is_vector: Whether a value has one axis.
        emit: Makes the nodes.
        may_be_empty: Whether some size may be zero.
    """
    found = {}
    if may_be_empty:
        for transpose in filter(moves_batch, exposed(nodes, read_by_products(nodes))):
            found[id(transpose)] = (transpose, False)
    wrong = [*read_with_vectors(nodes, is_vector), *read_and_added(nodes)]
    for transpose in exposed(nodes, wrong):
        found[id(transpose)] = (transpose, True)
    return {k: _guarded(t, emit, always) for k, (t, always) in found.items() if k in new}


def _guarded(transpose: NodeProto, emit: Emitter, always: bool) -> list[NodeProto]:
    """A Transpose, and behind it what keeps it there: `always`, or where sizes are not known."""
    out = transpose.output[0]
    moved = NodeProto()
    moved.CopyFrom(transpose)
    moved.output[0] = emit.name(f"{out}_moved")
    begin, hint = len(emit.nodes), f"{transpose.name}_apart"
    if always:
        apart = emit.with_axes("Unsqueeze", moved.output[0], (0,), hint, 13)
        emit.with_axes("Squeeze", apart, (0,), hint, 13, [out])
    else:
        rank = sum(len(a.ints) for a in transpose.attribute if a.name == "perm")
        same = emit.ints([0] * rank, f"{out}_same")
        emit.node("Reshape", [moved.output[0], same], hint, [out])
    views = emit.nodes[begin:]
    del emit.nodes[begin:]
    for view in views:
        view.metadata_props.extend(transpose.metadata_props)
    return [moved, *views]
