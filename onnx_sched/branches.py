"""An If whose condition is known, seen as the one op that its branch comes to; a CastLike as its Cast.

Older exporters leave such an If behind for every `squeeze` of an axis whose size they could not tell; often
the shapes of the graph can.  The newest leave a CastLike behind for every number of a formula, unless told
to tidy up.
"""

from __future__ import annotations

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper

from onnx_sched.constants import Const
from onnx_sched.nodes import domain_of, subgraphs


def taken(
    node: NodeProto, condition: Const | None
) -> tuple[NodeProto, dict[str, NodeProto]] | None:
    """The one op of the branch that an If always takes, and the Constants that it reads there.

    Args:
        node: The If.
        condition: Its condition, if that is constant.

    Returns:
        The op under the If's own output and name, what it reads of the branch renamed; and by new name
        the Constant nodes that make that.  None if the branch is not known, or is more than one op.
    """
    if node.op_type != "If" or domain_of(node) or condition is None or len(node.output) != 1:
        return None
    if condition.elem_type != TensorProto.BOOL or condition.shape not in ((), (1,)):
        return None
    branch = _branch(node, "then_branch" if condition.load().all() else "else_branch")
    if branch is None or branch.sparse_initializer or branch.initializer or len(branch.output) != 1:
        return None
    constants = {
        n.output[0]: n for n in branch.node if n.op_type == "Constant" and not domain_of(n)
    }
    rest = [n for n in branch.node if n.op_type != "Constant" or domain_of(n)]
    if len(rest) != 1 or next(subgraphs(rest[0]), None) is not None:
        return None
    if list(rest[0].output[:1]) != [branch.output[0].name] or any(rest[0].output[1:]):
        return None  # such as the second output of an op: the If has but one
    renamed = {name: f"%{node.output[0]}.{name}" for name in constants}
    copy = NodeProto()
    copy.CopyFrom(rest[0])
    del copy.input[:], copy.output[:]
    copy.input.extend(renamed.get(name, name) for name in rest[0].input)
    copy.output.append(node.output[0])
    copy.name = node.name
    return copy, {renamed[name]: made for name, made in constants.items()}


def cast_to(node: NodeProto, elem_type: int) -> NodeProto:
    """The Cast that a CastLike comes to, where it is known to which type."""
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.op_type = "Cast"
    del copy.input[1:]
    copy.attribute.append(helper.make_attribute("to", elem_type))
    return copy


def _branch(node: NodeProto, name: str) -> GraphProto | None:
    """One of the graphs in a node's attributes."""
    found = (a.g for a in node.attribute if a.name == name and a.type == AttributeProto.GRAPH)
    return next(found, None)
