"""Differences between models: all of them, by name, and nothing that is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import ModelProto, TensorProto, helper, numpy_helper
from rich.console import Console

import onnx_sched
from onnx_sched import files
from onnx_sched.cli import cli
from onnx_sched.diff import Difference, diff
from onnx_sched.report import diff_text
from onnx_sched.tensors import external_tensors
from tests.nets import committed, name_nodes, net, numbers
from tests.pages import HOSTILE, towers

MODELS = Path(__file__).parent.parent / "models"
NAMES = ["grouped_mlp", "mmoe", "exported_transformer_dynamo", "near_weight_default"]


def between(a: ModelProto, b: ModelProto) -> Difference:
    return diff(files.Source(a, None), files.Source(b, None))


def base() -> ModelProto:
    """A model with something in every corner."""
    model = name_nodes(
        net(
            "(float[N,4] x, float[N,4] u) => (float[] y) "
            "{ a = Gemm<alpha = 0.5>(x, w, b) c = Relu(a) d = Neg(u) y = Concat<axis = 1>(c, d) }",
            {"w": numbers(4, 4), "b": numbers(4)},
        )
    )
    helper.set_model_props(model, {"owner": "me"})
    model.graph.value_info.append(helper.make_tensor_value_info("a", 1, ["N", 4]))
    model.graph.node[0].metadata_props.add(key="from", value="here")
    model.graph.node[1].doc_string = "a rectifier"
    return model


def copy(model: ModelProto) -> ModelProto:
    new = ModelProto()
    new.CopyFrom(model)
    return new


def told(found: Difference) -> list[tuple[str, str, str]]:
    """Section, name, and what differs ("-" removed, "+" added)."""
    rows: list[tuple[str, str, str]] = []
    for section in found.sections:
        rows += [(section.title, item.name, "-") for item in section.removed]
        rows += [(section.title, item.name, "+") for item in section.added]
        rows += [
            (section.title, item.name, aspect.what)
            for item in section.changed
            for aspect in item.aspects
        ]
    return rows


def rename_node(m: ModelProto) -> None:
    m.graph.node[1].name = "other"


def change_weight(m: ModelProto) -> None:
    array = numpy_helper.to_array(m.graph.initializer[0]).copy()
    array[0, 1] += 0.25
    m.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "w"))


def reshape_weight(m: ModelProto) -> None:
    m.graph.initializer[1].CopyFrom(numpy_helper.from_array(numbers(1, 4), "b"))


def change_alpha(m: ModelProto) -> None:
    m.graph.node[0].attribute[0].f = 0.25


def drop_alpha(m: ModelProto) -> None:
    del m.graph.node[0].attribute[:]


def rewire(m: ModelProto) -> None:
    m.graph.node[2].input[0] = "x"


def change_op(m: ModelProto) -> None:
    m.graph.node[1].op_type = "Tanh"


def change_opset(m: ModelProto) -> None:
    m.opset_import[0].version = 16


def change_input(m: ModelProto) -> None:
    m.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 7


def swap_inputs(m: ModelProto) -> None:
    first = copy(m).graph.input[0]
    del m.graph.input[0]
    m.graph.input.append(first)


def note(m: ModelProto) -> None:
    m.metadata_props[0].value = "you"


def node_note(m: ModelProto) -> None:
    m.graph.node[0].metadata_props[0].value = "there"


def doc(m: ModelProto) -> None:
    m.graph.node[1].doc_string = ""


def inner(m: ModelProto) -> None:
    m.graph.value_info[0].type.tensor_type.shape.dim[1].dim_value = 5


def producer(m: ModelProto) -> None:
    m.producer_name = "somebody"


def more(m: ModelProto) -> None:
    m.functions.add(name="f", domain="d", input=["a"], output=["b"])


CHANGES: list[tuple[Callable[[ModelProto], None], list[tuple[str, str, str]]]] = [
    (rename_node, [("nodes", "c", "-"), ("nodes", "other", "+")]),
    (change_weight, [("initializers", "w", "numbers")]),
    (reshape_weight, [("initializers", "b", "type")]),
    (change_alpha, [("nodes", "a", "attribute alpha")]),
    (drop_alpha, [("nodes", "a", "attribute alpha")]),
    (rewire, [("nodes", "d", "input 0")]),
    (change_op, [("nodes", "c", "op")]),
    (change_opset, [("metadata", "opset ai.onnx", "value")]),
    (change_input, [("interface", "input x", "type")]),
    (swap_inputs, [("interface", "input x", "place"), ("interface", "input u", "place")]),
    (note, [("metadata", "model note owner", "value")]),
    (node_note, [("nodes", "a", "note from")]),
    (doc, [("nodes", "c", "doc")]),
    (inner, [("metadata", "value a", "value")]),
    (producer, [("metadata", "model producer_name", "+")]),
    (more, [("functions", "d.f", "+")]),
]


@pytest.mark.parametrize(("change", "rows"), CHANGES, ids=[c.__name__ for c, _ in CHANGES])
def test_one_change(change: Callable[[ModelProto], None], rows: list[tuple[str, str, str]]) -> None:
    """One change is told as exactly this change; the other way round added and removed swap."""
    one, other = base(), base()
    change(other)
    assert told(between(one, other)) == rows
    swapped = {"+": "-", "-": "+"}
    back = [(s, n, swapped.get(w, w)) for s, n, w in told(between(other, one))]
    assert sorted(back) == sorted(rows)


@pytest.mark.parametrize("name", NAMES)
def test_same(name: str) -> None:
    """A model does not differ from itself."""
    found = between(committed(name), committed(name))
    assert found.same
    assert told(found) == []
    assert [s.before for s in found.sections] == [s.after for s in found.sections]


def test_order_is_no_difference() -> None:
    """The order of nodes and weights in the file is no difference."""
    one, other = base(), base()
    nodes, weights = list(one.graph.node), list(one.graph.initializer)
    del other.graph.node[:], other.graph.initializer[:]
    other.graph.node.extend([nodes[2], nodes[0], nodes[1], nodes[3]])
    other.graph.initializer.extend(weights[::-1])
    assert between(one, other).same


def test_encoding_is_no_difference(tmp_path: Path) -> None:
    """Numbers are equal whether they stand in raw bytes, in fields, or in a file of their own."""
    one, typed = base(), base()
    for tensor in typed.graph.initializer:
        array = numpy_helper.to_array(tensor)
        tensor.CopyFrom(helper.make_tensor(tensor.name, 1, array.shape, array.ravel().tolist()))
        assert not tensor.raw_data
    assert between(one, typed).same
    path = tmp_path / "m.onnx"
    onnx.save_model(base(), path, save_as_external_data=True, location="m.data", size_threshold=0)
    outside = files.read(path)
    assert external_tensors(outside.model)
    assert diff(files.Source(one, None), outside).same
    change_weight(one)
    assert told(diff(files.Source(one, None), outside)) == [("initializers", "w", "numbers")]


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.5, 3.0], "1 of 3 differ, by up to 0.5"),
        ([1.0, np.nan], [1.0, np.nan], ""),
        ([0.0], [-0.0], "1 of 1 differ, by up to 0"),
        ([1.0, np.nan], [1.5, np.nan], "1 of 2 differ, by up to 0.5"),
        ([np.nan], [1.0], "1 of 1 differ, by up to 0"),
        ([], [], ""),
    ],
)
def test_numbers(a: list[float], b: list[float], said: str) -> None:
    """Weights differ by their bits; how far, is told in numbers."""
    models = []
    for values in (a, b):
        models.append(
            net("(float[N] x) => (float[] y) { y = Relu(x) }", {"w": np.array(values, np.float32)})
        )
    found = [a.after for s in between(*models).sections for c in s.changed for a in c.aspects]
    assert found == ([said] if said else [])


def test_types_without_numpy() -> None:
    """Weights of types that numpy does not have are compared by their bytes, and words by letters."""
    cases: tuple[tuple[int, Any, Any], ...] = (
        (TensorProto.BFLOAT16, [1.0, 2.0], [1.0, 3.0]),
        (TensorProto.STRING, [b"a", b"bc"], [b"ab", b"c"]),
        (TensorProto.INT4, [1, 2], [1, 3]),
    )
    for kind, one, other in cases:
        models = []
        for values in (one, other):
            model = net("(float[N] x) => (float[] y) { y = Relu(x) }")
            model.graph.initializer.append(helper.make_tensor("w", kind, [2], values))
            models.append(model)
        assert between(models[0], models[0]).same
        assert told(between(*models)) == [("initializers", "w", "numbers")]


def test_names_that_stand_twice() -> None:
    """Nodes without a name, or with the same, are all told."""
    one = net("(float[N] x) => (float[] y) { a = Relu(x) y = Neg(a) }")
    other = copy(one)
    for node in other.graph.node:
        node.name = "twin"
    found = told(between(one, other))
    assert found == [
        ("nodes", "a", "-"),
        ("nodes", "y", "-"),
        ("nodes", "twin", "+"),
        ("nodes", "twin #2", "+"),
    ]


def test_lineage() -> None:
    """A batched node says how many nodes it stands for."""
    model = MODELS / "grouped_mlp.onnx"
    new = onnx_sched.optimize(model, choose="always", check=False).proto
    nodes = next(s for s in between(onnx.load(model), new).sections if s.title == "nodes")
    gone = {item.name for item in nodes.removed}
    batched = [item for item in nodes.added if item.members]
    assert batched
    assert all(set(item.members) <= gone for item in batched)


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:12]))
def test_hostile_names(name: str) -> None:
    """Names from hell print in lines of their width, without control characters."""
    found = between(towers(2, 1, [name]), towers(2, 2, [name]))
    for verbose in (False, True):
        console = Console(width=100, color_system=None)
        with console.capture() as captured:
            console.print(diff_text.render(found, name, name, verbose))
        shown = captured.get()
        assert all(c.isprintable() or c == "\n" for c in shown)
        assert max(map(len, shown.split("\n"))) <= 100


# -- the command ----------------------------------------------------------------------------------


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(cli, ["diff", *map(str, arguments)])


@pytest.fixture(name="pair")
def _pair(tmp_path: Path) -> tuple[Path, Path]:
    one, other = base(), base()
    change_alpha(other)
    onnx.save(one, tmp_path / "a.onnx")
    onnx.save(other, tmp_path / "b.onnx")
    return tmp_path / "a.onnx", tmp_path / "b.onnx"


def test_exit_codes(pair: tuple[Path, Path]) -> None:
    """0 the same, 1 different, 2 trouble; -q says nothing else."""
    assert run(pair[0], pair[0]).exit_code == 0
    assert run(*pair).exit_code == 1
    trouble = run(pair[0], "no.onnx")
    assert trouble.exit_code == 2
    assert "hint: " in trouble.output
    assert (run(*pair, "-q").output, run(*pair, "-q").exit_code) == ("", 1)


def test_json(pair: tuple[Path, Path]) -> None:
    """`--json` gives everything."""
    result = run(*pair, "--json")
    data = json.loads(result.output)
    assert data == json.loads(json.dumps(diff(*map(files.read, pair)).to_dict()))
    assert data["same"] is False
    aspect = {"what": "attribute alpha", "before": "0.5", "after": "0.25"}
    assert data["sections"]["nodes"]["changed"] == [
        {"name": "a", "what": "Gemm", "aspects": [aspect]}
    ]


def test_text(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen says what differs, and names the parts that do not."""
    monkeypatch.chdir(pair[0].parent)  # a long path would wrap the line
    shown = run(*(p.name for p in pair)).output
    lines = [" ".join(line.split()) for line in shown.split("\n")]
    assert lines[0].endswith(": different")
    assert "nodes differs 4: 1 changed" in lines
    assert "attribute alpha: 0.5 -> 0.25" in lines
    for title, count in (("interface", 3), ("initializers", 2)):
        assert f"{title} same {count}" in lines


def test_verbose() -> None:
    """`-v` leaves nothing out."""
    short, long = (
        run(MODELS / "grouped_mlp.onnx", MODELS / "mmoe.onnx", *flags).stdout
        for flags in ((), ("-v",))
    )
    assert "more" in short
    assert "more" not in long
    for node in committed("grouped_mlp").graph.node:
        assert node.name in long
