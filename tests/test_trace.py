"""Traces: every slice is a measured node, stands on its wire, and says what it comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from itertools import pairwise
from math import fsum
from pathlib import Path
from typing import Any

import jsonschema
import onnx
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import onnx_sched
from onnx_sched import files
from onnx_sched.analysis import Analysis, analyse
from onnx_sched.circuit import node_label
from onnx_sched.cli import cli
from onnx_sched.judge.profiling import NodeTime, Profile, profile_session
from onnx_sched.options import Options
from onnx_sched.report import tracing
from onnx_sched.report.lineage import members
from onnx_sched.report.trace import Ran, Slice, ran, supports, trace
from onnx_sched.wires import Support

MODELS = Path(__file__).parent.parent / "models"
NAMES = ["grouped_mlp", "headlocal_transformer", "conv_towers", "mmoe"]
SCHEMA = json.loads(
    resources.files("onnx_sched.report").joinpath("trace_schema.json").read_text("utf-8")
)
CHECK = jsonschema.Draft202012Validator(SCHEMA)

Event = dict[str, Any]


class Recorded:
    """A trace of a model and all that it was made from."""

    def __init__(self, name: str, folder: Path) -> None:
        self.before: Analysis = analyse(files.read(MODELS / f"{name}.onnx"))
        result = onnx_sched.optimize(MODELS / f"{name}.onnx", choose="always", check=False)
        path = folder / f"{name}.onnx"
        result.save(path)
        self.after = onnx.load(path).graph
        self.profiles: list[Profile] = []

        def spying(*args: Any, **given: Any) -> Profile:
            self.profiles.append(profile_session(*args, **given))
            return self.profiles[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tracing, "profile_session", spying)
            self.trace = tracing.record(self.before, path, Options(provider="cpu"))

    def slices(self, pid: int) -> list[Event]:
        return [e for e in self.trace["traceEvents"] if e["ph"] == "X" and e["pid"] == pid]


@pytest.fixture(scope="module", params=NAMES)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(request.param, tmp_path_factory.mktemp("traces"))


def tracks(events: list[Event]) -> Iterator[list[Event]]:
    """Slices by track, in the order of their beginnings."""
    slices = sorted((e for e in events if e["ph"] == "X"), key=lambda e: (e["ts"], e["dur"]))
    for track in sorted({(e["pid"], e["tid"]) for e in slices}):
        yield [e for e in slices if (e["pid"], e["tid"]) == track]


def never_overlap(events: list[Event]) -> None:
    for track in tracks(events):
        for a, b in pairwise(track):
            assert a["ts"] + a["dur"] <= b["ts"]


def test_schema(recorded: Recorded) -> None:
    """A trace has the documented form, and is JSON."""
    CHECK.validate(json.loads(json.dumps(recorded.trace)))


def test_schema_refuses() -> None:
    """The schema says no to what it does not document."""
    data = trace([Slice(Ran("a", "Relu", "CPU", 1.0, 1), (0,))], None, 1, TOLD)
    CHECK.validate(data)
    data["traceEvents"][-1]["args"]["more"] = 1
    with pytest.raises(jsonschema.ValidationError):
        CHECK.validate(data)


def test_sum_is_the_profile(recorded: Recorded) -> None:
    """One slice for each node of the profile, as long as its time; all slices make up the profile."""
    assert len(recorded.profiles) == 2
    for pid, profile in enumerate(recorded.profiles, 1):
        slices = recorded.slices(pid)
        said = [(s["args"]["runtime_node"], s["name"], s["dur"]) for s in slices]
        measured = [(t.name, t.op_type, t.microseconds) for t in profile.node_times_us]
        assert said == measured
        key = ("before_us", "after_us")[pid - 1]
        total = fsum(t.microseconds for t in profile.node_times_us)
        assert recorded.trace["otherData"][key] == total == fsum(s["dur"] for s in slices)
        assert sum(s["args"]["calls"] for s in slices) == profile.dispatches


def test_end_to_end(recorded: Recorded) -> None:
    """Slices of a process stand end to end, so that none overlap on a track."""
    never_overlap(recorded.trace["traceEvents"])
    for pid in (1, 2):
        slices = recorded.slices(pid)
        assert slices[0]["ts"] == 0
        for a, b in pairwise(slices):
            assert a["ts"] + a["dur"] == b["ts"]


def test_tracks_are_wires(recorded: Recorded) -> None:
    """Every wire of the annotation is a track of both processes; a slice stands on its first wire."""
    events = recorded.trace["traceEvents"]
    for pid in (1, 2):
        names = {
            e["tid"]: e["args"]["name"]
            for e in events
            if e["name"] == "thread_name" and e["pid"] == pid
        }
        wires = range(recorded.before.annotation.lanes)
        assert names == {w + 1: f"wire {w}" for w in wires}
        for piece in recorded.slices(pid):
            assert piece["args"]["wires"]
            assert piece["tid"] == piece["args"]["wires"][0] + 1


def test_wires_of_the_original(recorded: Recorded) -> None:
    """A slice of the original touches the wires that the annotation gives its node."""
    graph, annotation = recorded.before.graph, recorded.before.annotation
    place = {node_label(graph, k): k for k in range(len(graph.nodes))}
    known = [s for s in recorded.slices(1) if s["args"]["node"]]
    assert len(known) >= 0.9 * len(recorded.slices(1))
    for piece in known:
        assert piece["args"]["wires"] == list(annotation.wires[place[piece["args"]["node"]]])


def test_lineage(recorded: Recorded) -> None:
    """A batched slice names what it replaced and touches their wires; and they name it."""
    graph, annotation = recorded.before.graph, recorded.before.annotation
    place = {node_label(graph, k): k for k in range(len(graph.nodes))}
    replaced = {node.name: members(node) for node in recorded.after.node if members(node)}
    batched = [s for s in recorded.slices(2) if s["cat"] == "batched"]
    assert batched
    for piece in batched:
        names = piece["args"]["members"]
        assert tuple(names) == replaced[piece["args"]["node"]]
        wires = {w for name in names for w in annotation.wires[place[name]]}
        assert piece["args"]["wires"] == sorted(wires)
    for piece in recorded.slices(1):
        node = piece["args"]["node"]
        assert piece["args"].get("became", []) == [n for n, old in replaced.items() if node in old]


def test_arrows(recorded: Recorded) -> None:
    """An arrow leaves inside the slice that makes a value and arrives where one begins that reads it."""
    events = recorded.trace["traceEvents"]
    leaving = {e["id"]: e for e in events if e["ph"] == "s"}
    arriving = {e["id"]: e for e in events if e["ph"] == "f"}
    assert leaving.keys() == arriving.keys()
    assert len(leaving) == sum(e["ph"] in "sf" for e in events) / 2
    for key, start in leaving.items():
        pid, maker, reader = map(int, key.split("."))
        slices = recorded.slices(pid)
        a, b = slices[maker], slices[reader]
        assert a["ts"] <= start["ts"] <= a["ts"] + a["dur"] <= b["ts"] == arriving[key]["ts"]
        assert (start["tid"], arriving[key]["tid"]) == (a["tid"], b["tid"])


def test_chain_of_arrows(recorded: Recorded) -> None:
    """A slice at which no arrow arrives reads an input of the model: fusions cut no chain."""
    graph = recorded.before.graph
    inputs = {v.name for v in graph.proto.input}
    place = {node_label(graph, k): k for k in range(len(graph.nodes))}
    ids = [e["id"] for e in recorded.trace["traceEvents"] if e["ph"] == "f" and e["pid"] == 1]
    reached = {int(key.split(".")[2]) for key in ids}
    alone = [s for n, s in enumerate(recorded.slices(1)) if n not in reached]
    assert 0 < len(alone) < len(recorded.slices(1)) / 2
    for piece in alone:
        fused = {place[piece["args"]["node"]]} if piece["args"]["node"] else set()
        for _ in range(3):  # a product, its bias, its activation
            fused |= {
                graph.producer[n] for k in fused for n in graph.reads[k] if n in graph.producer
            }
        assert any(inputs & {*graph.reads[k]} for k in fused)


TOLD = {"model": "m", "provider": "CPUExecutionProvider", "threads": 1, "shapes": {}}
TIMES = st.floats(0, 1e6, allow_nan=False).map(lambda x: round(x * 2) / 2)


@st.composite
def runs(draw: st.DrawFn) -> list[Slice]:
    """Nodes in some order, each reading what some before it make, on some wires or none."""
    found: list[Slice] = []
    for n in range(draw(st.integers(0, 8))):
        reads = tuple(f"v{k}" for k in range(n) if draw(st.booleans()))
        wires = tuple(sorted(draw(st.sets(st.integers(0, 3), max_size=3))))
        name = draw(st.text(max_size=4))
        node = Ran(name, name, "CPU", draw(TIMES), 1, reads, (f"v{n}",))
        found.append(Slice(node, wires))
    return found


@settings(max_examples=50, deadline=None)
@given(runs(), st.one_of(st.none(), runs()))
def test_any_run(before: list[Slice], after: list[Slice] | None) -> None:
    """Whatever ran: the form, no overlaps, one slice a node, one arrow for each pair that hands on."""
    data = trace(before, after, 4, TOLD)
    CHECK.validate(data)
    never_overlap(data["traceEvents"])
    for pid, side in enumerate((before, after or []), 1):
        mine = [e for e in data["traceEvents"] if e["pid"] == pid]
        assert [e["dur"] for e in mine if e["ph"] == "X"] == [s.ran.microseconds for s in side]
        pairs = {f"{pid}.{int(v[1:])}.{n}" for n, piece in enumerate(side) for v in piece.ran.reads}
        assert {e["id"] for e in mine if e["ph"] == "f"} == pairs
    assert ("after_us" in data["otherData"]) == (after is not None)


def test_made_up_nodes_inherit() -> None:
    """A node that the runtime made up stands on the wires of what it reads, or else of its readers."""
    nodes = [
        Ran("reorder", "ReorderInput", "CPU", 1, 1, ("x",), ("a",)),
        Ran("conv", "Conv", "CPU", 1, 1, ("a",), ("b",)),
        Ran("back", "ReorderOutput", "CPU", 1, 1, ("b",), ("c",)),
        Ran("lonely", "Nop", "CPU", 1, 1, ("q",), ("r",)),
    ]
    own: dict[str, Support] = {"conv": (2, 3)}
    assert supports(nodes, lambda n: own.get(n.name, ())) == ((2, 3), (2, 3), (2, 3), ())


def test_without_the_runtimes_graph() -> None:
    """Where the runtime keeps its graph to itself there are slices, but no arrows."""
    times = (NodeTime("a", "Relu", "CPU", 2.0, 1), NodeTime("b", "Add", "CPU", 3.0, 2))
    found = ran(Profile(3, None, "", {}, times), None)
    assert [(r.name, r.microseconds, r.calls, r.reads, r.makes) for r in found] == [
        ("a", 2.0, 1, (), ()),
        ("b", 3.0, 2, (), ()),
    ]
    data = trace([Slice(r, ()) for r in found], None, 2, TOLD)
    CHECK.validate(data)
    assert {e["ph"] for e in data["traceEvents"]} == {"M", "X"}
    assert {e["tid"] for e in data["traceEvents"] if e["ph"] == "X"} == {0}


# -- the runtime's own profile --------------------------------------------------------------------


def test_own_profile(recorded: Recorded) -> None:
    """Beside both models stands one run as the runtime wrote it: every node call, inside the run."""
    for pid, profile in enumerate(recorded.profiles, 1):
        mine = [e for e in recorded.trace["traceEvents"] if e["pid"] == pid + 2]
        title = next(e["args"]["name"] for e in mine if e["name"] == "process_name")
        assert title == f"{('before', 'after')[pid - 1]}, ONNX Runtime's own profile"
        whole, *calls = [e for e in mine if e["ph"] == "X"]
        assert (whole["name"], whole["tid"], whole["ts"]) == ("model_run", 0, 0)
        assert len(calls) == profile.dispatches
        assert {e["tid"] for e in calls} == {1}
        assert all(e["ts"] >= 0 and e["ts"] + e["dur"] <= whole["dur"] for e in calls)
        assert [e["name"].removesuffix("_kernel_time") for e in calls] == [
            t.name for t in profile.node_times_us
        ]


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(cli, [*map(str, arguments)])


def test_command(tmp_path: Path) -> None:
    """`optimize --trace` writes a trace of both models."""
    path = tmp_path / "t.json"
    output = tmp_path / "out.onnx"
    flags = ("--choose", "always", "--provider", "cpu", "--dim", "batch=3", "--trace", path)
    result = run("optimize", MODELS / "mmoe.onnx", "-o", output, *flags)
    assert result.exit_code == 0, result.output
    data = json.loads(path.read_text("utf-8"))
    CHECK.validate(data)
    assert data["otherData"]["shapes"] == {"x": [3, 16]}
    assert {e["pid"] for e in data["traceEvents"]} == {1, 2, 3, 4}


def test_command_unchanged(tmp_path: Path) -> None:
    """A model that is left as it is has a trace of itself, and the runtime's own profile."""
    path = tmp_path / "t.json"
    model = MODELS / "near_dynamic_dims.onnx"
    result = run("optimize", model, "-o", tmp_path / "out.onnx", "--trace", path)
    assert result.exit_code == 0, result.output
    data = json.loads(path.read_text("utf-8"))
    CHECK.validate(data)
    assert {e["pid"] for e in data["traceEvents"]} == {1, 3}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--trace", "t.json", "--no-check"), "--no-check"),
        (("--trace", "t.html"), "Let it end in .json."),
        (("--trace", "no/such/t.json"), "no folder"),
        (("--trace", "t.json", "--report", "t.json"), "another file of this run"),
    ],
)
def test_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], said: str
) -> None:
    """A trace that cannot be made is refused before any work is done, with advice."""
    monkeypatch.chdir(tmp_path)
    result = run("optimize", MODELS / "mmoe.onnx", "-o", "out.onnx", *flags)
    assert result.exit_code == 2
    assert said in result.output
    assert "hint: " in result.output
    assert list(tmp_path.iterdir()) == []
