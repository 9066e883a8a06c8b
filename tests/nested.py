"""Nodes in few words, and a model with bodies in bodies whose names shadow each other."""

from __future__ import annotations

from typing import Any

from onnx import NodeProto, helper

# Value names that a body makes, takes as input, or reads from outside; some shadow others.
NESTED = """
    (bool c, float[2] a, float[2] b, float[2] d, float[2] e, float[2] t, int64 n) => (float[] y)
    {
        y = If (c) <
            then_branch = then () => (float[] r) {
                p = Add(a, b)
                q = If (c) <
                    then_branch = inner () => (float[] s) { s = Mul(p, d) },
                    else_branch = other () => (float[] s2) { s2 = Identity(p) }
                >
                r = Add(p, q)
            },
            else_branch = else () => (float[] u) {
                u, w = Loop (n, c, e) <body = step (int64 i, bool k, float[] t) =>
                    (bool k2, float[] t2, float[] z) {
                        k2 = Identity(k)
                        t2 = Add(t, a)
                        z = Identity(t2)
                    }
                >
            }
        >
    }
"""


def node(op: str, reads: str, makes: str, domain: str = "", **attributes: Any) -> NodeProto:
    """A node; names are separated by blanks, `-` is an empty slot."""
    inputs, outputs = ([n.replace("-", "") for n in text.split()] for text in (reads, makes))
    return helper.make_node(op, inputs, outputs, domain=domain, **attributes)
