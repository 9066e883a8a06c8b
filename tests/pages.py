"""A small kit for tests of reports: pages taken apart, models with names from hell, reports made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from onnx_sched.report.data import AgreementRow, Change, LatencyRow, Report

HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</svg></style><script src=//x></script>",
    "\N{ROCKET}\N{RIGHT-TO-LEFT OVERRIDE}evil",
    "{{7*7}}{% raise %}",
    "|`*_[x](http://x.example)@someone `` <b>",
    "\x1b[31mred\n# head\r\n\x00",
    "&lt;&#60;",
    "a" * 10_000,
)
"""Names that a stranger's model may hold."""

VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})


class Page(HTMLParser):
    """A page taken apart.

    Attributes:
        tags: Every tag with its attributes, in order.
        text: All words, styles left out.
        open: Tags that are not closed when the page ends.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    @property
    def text(self) -> str:
        """All words, with single blanks."""
        return " ".join(" ".join(self.words).split())

    @property
    def skeleton(self) -> list[tuple[str, tuple[str, ...]]]:
        """The tags and the names of their attributes: all but words and numbers."""
        return [(tag, tuple(attributes)) for tag, attributes in self.tags]

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)


def towers(lanes: int, depth: int, names: Sequence[str] = ("n",), odd: bool = False) -> ModelProto:
    """Parallel chains of MatMul and an activation, joined at the end.

    Args:
        lanes: Number of chains.
        depth: Number of steps in each.
        names: What nodes are called, in turn; a number is added.
        odd: Whether some lanes are wider than the others, so that they stay alone.
    """
    rng = np.random.default_rng(0)
    nodes: list[NodeProto] = []
    weights, ends, total = [], [], 0
    for lane in range(lanes):
        value, width = "x", 4
        for step in range(depth):
            name = f"{names[len(nodes) % len(names)]}{step}.{lane}"
            wide = 6 if odd and lane == 1 else 4
            array = rng.standard_normal((width, wide)).astype(np.float32)
            weights.append(numpy_helper.from_array(array, f"w{step}.{lane}"))
            nodes.append(helper.make_node("MatMul", [value, weights[-1].name], [f"{name}:0"], name))
            act = ("Relu", "Tanh", "Sigmoid")[step % 3]
            nodes.append(helper.make_node(act, [f"{name}:0"], [f"{name}:1"], f"{name}/act"))
            value, width = f"{name}:1", wide
        ends.append(value)
        total += width
    nodes.append(helper.make_node("Concat", ends, ["y"], f"{names[0]}/join", axis=1))
    graph = helper.make_graph(
        nodes,
        names[0],
        [helper.make_tensor_value_info("x", 1, ["N", 4])],
        [helper.make_tensor_value_info("y", 1, ["N", total])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


REPORT = Report(
    status="optimized",
    provider="CPUExecutionProvider",
    provider_note="",
    model="m.onnx",
    opset=17,
    ir_version=8,
    nodes=Change(20, 8),
    depth=Change(5, 6),
    lanes=4,
    dispatches=Change(18, 7),
    groups=(),
    refusals=(),
    verdict="within_tolerance",
    verdict_reason="",
    outputs=(AgreementRow("y", 1.5e-6, 2e-6, 3, False),),
    checks=6,
    peak=Change(1024, 2048),
    peak_source="ONNX Runtime profile",
    seconds=1.5,
)
"""A report of a run that never was."""


def raced(*ratios: tuple[float, float, float]) -> Report:
    """The report with races: for each condition low, ratio, high."""
    rows = tuple(
        LatencyRow({"batch": n + 1}, 1, 100.0, 100.0 / ratio, ratio, low, high, 40)
        for n, (low, ratio, high) in enumerate(ratios)
    )
    return replace(REPORT, latency=rows)
