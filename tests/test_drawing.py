"""Drawings of models: from a model to its picture, the command, and drawings that were looked at."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from rich.cells import cell_len

import onnx_sched
from onnx_sched import files
from onnx_sched.analysis import Analysis, analyse
from onnx_sched.cli.drawing import draw
from onnx_sched.errors import UsageError
from onnx_sched.report import circuit_view, folding, harmless
from onnx_sched.report.circuit_view import after, before, lanes_of
from onnx_sched.report.draw_text import to_text
from onnx_sched.report.drawing import Picture

MODELS = Path(__file__).parent.parent / "models"
GOLDEN = Path(__file__).parent / "golden"


# -- from models to pictures -----------------------------------------------------------------------


def chain(blocks: int) -> ModelProto:
    """Blocks of Split, two MatMul and Concat, one after the other."""
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    nodes: list[NodeProto] = []
    value = "x"
    for n in range(blocks):
        a, b, p, q = (f"{letter}{n}" for letter in "abpq")
        nodes += [
            helper.make_node("Split", [value], [a, b], name=f"split{n}", axis=1, num_outputs=2),
            helper.make_node("MatMul", [a, "w"], [p], name=f"left{n}"),
            helper.make_node("MatMul", [b, "w"], [q], name=f"right{n}"),
            helper.make_node("Concat", [p, q], [f"y{n}"], name=f"join{n}", axis=1),
        ]
        value = f"y{n}"
    return whole(nodes, value, [weight])


def whole(nodes: list[NodeProto], output: str, weights: list[TensorProto]) -> ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    y = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["n", 8])
    graph = helper.make_graph(nodes, "tiny", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def rewritten(notes: list[tuple[str, str | None]]) -> ModelProto:
    """A row of nodes, op type and the note of what each stands for."""
    nodes = []
    for n, (op_type, note) in enumerate(notes):
        reads = [f"v{n - 1}" if n else "x"] + ["w"] * (op_type == "MatMul")
        node = helper.make_node(op_type, reads, [f"v{n}"], name=f"n{n}")
        if note is not None:
            node.metadata_props.add(key="onnx_sched.members", value=note)
        nodes.append(node)
    weight = numpy_helper.from_array(np.eye(8, dtype=np.float32), "w")
    return whole(nodes, f"v{len(notes) - 1}", [weight])


def analysed(model: ModelProto) -> Analysis:
    return analyse(files.Source(model, None))


def picture_of(model: ModelProto) -> Picture:
    return before(analysed(model))


def test_before() -> None:
    """Each op is a box on the wires and in the layer of its annotation; a join has several wires."""
    source = files.read(MODELS / "headlocal_transformer.onnx")
    analysis = analyse(source)
    picture = before(analysis)
    annotation = analysis.annotation
    expected = [
        (analysis.graph.nodes[k].name, annotation.wires[k], f"L{annotation.layers[k]}")
        for k in annotation.ops
    ]
    assert [(b.names[0], b.wires, picture.heading(b.layer)) for b in picture.boxes] == expected
    assert {(b.kind, len(b.wires) > 1) for b in picture.boxes} == {("op", False), ("join", True)}


def test_views_stand_between_layers() -> None:
    """A Concat that the next Split undoes is drawn thin, in a column that is no layer."""
    picture = picture_of(chain(2))
    assert [h or "-" for h in picture.headings] == ["L0", "L1", "-", "-", "L2", "L3"]
    assert [(b.label, b.layer) for b in picture.boxes if b.kind == "view"] == [
        ("Concat", 2),
        ("Split", 3),
    ]


def test_constants_are_not_drawn() -> None:
    """What is known before anything runs is not in the circuit."""
    analysis = analyse(files.read(MODELS / "exported_transformer.onnx"))
    working = sorted(n.op_type for n in analysis.graph.nodes if n.op_type != "Constant")
    assert len(working) < len(analysis.graph.nodes)
    assert sorted(box.label for box in before(analysis).boxes) == working
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Shape", ["r"], ["s"], start=1),  # always 8
        helper.make_node("Expand", ["r", "s"], ["y"]),
    ]
    assert [box.label for box in picture_of(whole(nodes, "y", [])).boxes] == ["Relu", "Expand"]


def test_batched_nodes_are_marked() -> None:
    """A node that notes its members is batched; one that only brings the lanes together is not."""
    pairs = json.dumps(["0/MatMul", "0/Add", "1/MatMul", "1/Add", "2/MatMul", "2/Add"])
    moved = json.dumps(["0/Transpose", "1/Transpose"])
    model = rewritten(
        [
            ("Flatten", pairs),
            ("MatMul", pairs),
            ("Relu", '["a", "b"]'),
            ("Transpose", moved),
            ("Neg", None),
        ]
    )
    found = [(b.label, b.kind, b.lanes) for b in after(analysed(model)).boxes]
    assert found == [
        ("Flatten", "op", 1),
        ("MatMul", "batched", 3),
        ("Relu", "batched", 2),
        ("Transpose", "batched", 2),
        ("Neg", "op", 1),
    ]
    assert after(analysed(model)).boxes[2].names == ("n2", "a", "b")


def test_layout_is_no_batch() -> None:
    """What replaces one node is no batch; of several that replace Transposes the Transpose is."""
    model = rewritten([("Relu", '["one"]'), ("Reshape", '["a", "b"]'), ("Transpose", '["a", "b"]')])
    nodes = [helper.make_node("Transpose", ["x"], [name], name) for name in "ab"]
    nodes.append(helper.make_node("Concat", ["a", "b"], ["y"], axis=1))
    found = after(analysed(model), analysed(whole(nodes, "y", []))).boxes
    assert [(b.label, b.kind, b.lanes) for b in found] == [
        ("Relu", "op", 1),
        ("Reshape", "op", 1),
        ("Transpose", "batched", 2),
    ]
    assert [b.names[1:] for b in found] == [("one",), ("a", "b"), ("a", "b")]


@pytest.mark.parametrize("note", ["", "[", "7", '{"a": 1}', "[1, 2]", "[" * 100_000, "[]"])
def test_a_broken_note_marks_nothing(note: str) -> None:
    """A note that is no list of names is somebody else's: the node is drawn as it is."""
    (box,) = after(analysed(rewritten([("Relu", note)]))).boxes
    assert (box.kind, box.lanes) == ("op", 1)


def test_lanes_of() -> None:
    """The original tells how many lanes the members are; else alternating names do; else all count."""
    qkv = [f"{h}/{p}" for h in "01" for p in ("q", "k", "v")]
    assert lanes_of(qkv) == 6
    assert lanes_of(qkv, dict(zip(qkv, (1, 1, 2, 3, 3, 4), strict=True))) == 4
    assert lanes_of(qkv, {"0/q": 1}) == 6
    assert lanes_of(["0/MatMul_1", "0/Add_1", "1/MatMul_2", "1/Add_2"]) == 2
    assert lanes_of(["0/Relu", "1/Relu", "2/Relu", "3/Relu"]) == 4


def test_lanes_with_and_without_the_original() -> None:
    """In the grouped MLP every batched node stands for its 4 groups, whether or not the original is there."""
    path = MODELS / "grouped_mlp.onnx"
    model = onnx_sched.optimize(path, choose="always", check=False).proto
    seen = analysed(model)
    for picture in (after(seen), after(seen, analyse(files.read(path)))):
        assert {b.lanes for b in picture.boxes if b.kind == "batched"} == {4}


# -- the command -----------------------------------------------------------------------------------


def command(output: Path | None, *, width: int | None = None, after: bool = False) -> str:
    return draw(MODELS / "mmoe.onnx", output=output, ascii_only=False, width=width, after=after)


@pytest.mark.parametrize(
    ("name", "begin"), [("a.txt", "mmoe.onnx: "), ("a.SVG", "<svg "), ("a.html", "<!DOCTYPE html>")]
)
def test_the_suffix_decides(tmp_path: Path, name: str, begin: str) -> None:
    """The file holds what the function returns, in the form that the suffix names."""
    drawing = command(tmp_path / name)
    assert drawing.startswith(begin)
    assert (tmp_path / name).read_text(encoding="utf-8") == drawing
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a.png", "a", "a.onnx"])
def test_other_suffixes_are_refused(tmp_path: Path, name: str) -> None:
    """A form that is not there is a usage error, before the model is read."""
    with pytest.raises(UsageError, match="a drawing has no form"):
        draw(Path("none.onnx"), output=tmp_path / name, ascii_only=False, width=None, after=False)
    assert not list(tmp_path.iterdir())


def test_too_narrow() -> None:
    """A width that no label fits into is a usage error."""
    with pytest.raises(UsageError, match="--width 39"):
        command(None, width=39)


def test_the_terminal_gives_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a width the lines are as wide as the terminal allows."""
    monkeypatch.setenv("COLUMNS", "90")
    narrow = max(map(cell_len, command(None).split("\n")))
    monkeypatch.setenv("COLUMNS", "130")
    assert narrow <= 90 < max(map(cell_len, command(None).split("\n"))) <= 130


def test_after_draws_what_would_be_written(tmp_path: Path) -> None:
    """`after` shows batched nodes where something is batched, and says so where nothing is."""
    path = MODELS / "grouped_mlp.onnx"
    drawing = draw(path, output=None, ascii_only=False, width=120, after=True, choose="always")
    assert "▐MatMul x4▌" in drawing
    plain = tmp_path / "plain.onnx"
    plain.write_bytes(rewritten([("Relu", None)]).SerializeToString())
    unchanged = draw(plain, output=None, ascii_only=False, width=120, after=True, choose="always")
    assert unchanged.startswith("plain.onnx: 1 op, 1 wire, 1 layer (left as it is)\n")


def test_the_input_is_never_overwritten(tmp_path: Path) -> None:
    """A drawing over its own model is refused, even where the model's name asks for it."""
    model = tmp_path / "model.svg"
    model.write_bytes(rewritten([("Relu", None)]).SerializeToString())
    with pytest.raises(UsageError, match="the input itself"):
        draw(model, output=model, ascii_only=False, width=None, after=False)


# -- golden drawings -------------------------------------------------------------------------------


def golden() -> dict[str, str]:
    """File name and drawing; `python -m tests.test_drawing` writes them anew."""
    drawings = {}
    for name in ("grouped_mlp", "headlocal_transformer", "mmoe"):
        path = MODELS / f"{name}.onnx"
        analysis = analyse(files.read(path))
        model = onnx_sched.optimize(path, choose="always", check=False).proto
        for when, picture in (
            ("before", before(analysis)),
            ("after", after(analysed(model), analysis)),
        ):
            drawings[f"{name}.{when}.txt"] = to_text(picture, width=140)
            drawings[f"{name}.{when}.80.txt"] = to_text(picture, width=80)
            drawings[f"{name}.{when}.ascii.txt"] = to_text(picture, width=140, ascii_only=True)
    for name, blocks in (("split_matmul_concat", 1), ("views", 2)):
        drawings[f"{name}.txt"] = to_text(picture_of(chain(blocks)))
        drawings[f"{name}.ascii.txt"] = to_text(picture_of(chain(blocks)), ascii_only=True)
    return drawings


@pytest.fixture(scope="module", name="drawings")
def _drawings() -> dict[str, str]:
    return golden()


def test_golden_files(drawings: dict[str, str]) -> None:
    """There is one file for each drawing, and no other."""
    assert sorted(p.name for p in GOLDEN.glob("*.txt")) == sorted(drawings)


@pytest.mark.parametrize("name", sorted(p.name for p in GOLDEN.glob("*.txt")))
def test_golden(drawings: dict[str, str], name: str) -> None:
    """Drawings are as they were looked at and found right (`python -m tests.test_drawing` renews them)."""
    assert drawings[name] == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("module", [circuit_view, folding, harmless])
def test_docstrings(module: object) -> None:
    """Examples in docstrings are true."""
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted
    assert not result.failed


def renew() -> None:
    """Write all drawings anew."""
    for stale in GOLDEN.glob("*.txt"):
        stale.unlink()
    for file_name, text in golden().items():
        (GOLDEN / file_name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    renew()
