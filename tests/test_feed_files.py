"""Inputs that the user gives: what fits is read, what does not is named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper, parser

from onnx_sched.errors import UsageError
from onnx_sched.judge.feeds import load_feeds
from onnx_sched.judge.runtime import open_session, run

TWO = "g (float[N,2] x, int64[N] ids) => (float[N,2] y) { a = Cast<to=1>(ids) y = Identity(x) }"
FEED = {"x": np.array([[1, 2]], np.float32), "ids": np.array([3])}


def parse(text: str) -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')


def write_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    np.savez(path, **arrays)


def write_set(folder: Path, *values: object, names: tuple[str, ...] = ()) -> Path:
    folder.mkdir(parents=True)
    for place, value in enumerate(values):
        name = names[place] if names else ""
        if isinstance(value, list):
            proto = numpy_helper.from_list(value, name)
        else:
            proto = numpy_helper.from_array(np.asarray(value), name)
        (folder / f"input_{place}.pb").write_bytes(proto.SerializeToString())
    return folder


def assert_feed(got: dict[str, object], wanted: dict[str, np.ndarray]) -> None:
    assert list(got) == list(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(np.asarray(got[name]), array, strict=True)


def test_npz_is_one_feed(tmp_path: Path) -> None:
    """The keys are the names of the inputs."""
    write_npz(tmp_path / "f.npz", FEED)
    (feed,) = load_feeds(tmp_path / "f.npz", parse(TWO))
    assert_feed(feed, FEED)


def test_npz_holds_strings_and_bfloat16(tmp_path: Path) -> None:
    """What numpy's files cannot say is put right: text becomes objects, raw bytes bfloat16."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    model = parse("g (string[N] s, bfloat16[N] b) => (string[N] y) { y = Identity(s) }")
    halves = np.array([1.5, -2], ml_dtypes.bfloat16)
    np.savez(tmp_path / "f.npz", s=np.array(["ä", "bc"]), b=halves)
    (feed,) = load_feeds(tmp_path / "f.npz", model)
    assert_feed(feed, {"s": np.array(["ä", "bc"], object), "b": halves})


def test_strings_reach_the_model(tmp_path: Path) -> None:
    """Text from a file runs as it is."""
    model = parse("g (string[N] s) => (string[N] y) { y = Identity(s) }")
    write_npz(tmp_path / "f.npz", {"s": np.array([b"a", b"bc"])})
    (feed,) = load_feeds(tmp_path / "f.npz", model)
    assert run(open_session(model.SerializeToString(), "cpu"), feed)["y"].tolist() == ["a", "bc"]
    folder = write_set(tmp_path / "set", np.array(["ä"], object))
    (feed,) = load_feeds(folder, model)
    assert run(open_session(model.SerializeToString(), "cpu"), feed)["y"].tolist() == ["ä"]


def test_a_test_data_set_is_one_feed_in_order(tmp_path: Path) -> None:
    """input_0, input_1, ... go to the inputs in the order of the model, unless they bear its names."""
    by_order = write_set(tmp_path / "a", FEED["x"], FEED["ids"], names=("other", "names"))
    by_name = write_set(tmp_path / "b", FEED["ids"], FEED["x"], names=("ids", "x"))
    assert_feed(load_feeds(by_order, parse(TWO))[0], FEED)
    assert_feed(load_feeds(by_name, parse(TWO))[0], dict(reversed(FEED.items())))


def test_several_sets_come_in_numerical_order(tmp_path: Path) -> None:
    """test_data_set_10 comes after test_data_set_2."""
    model = parse("g (float x) => (float y) { y = Identity(x) }")
    for number in (10, 2, 0):
        write_set(tmp_path / f"test_data_set_{number}", np.float32(number))
    assert [float(feed["x"]) for feed in load_feeds(tmp_path, model)] == [0, 2, 10]


def test_many_inputs_come_in_numerical_order(tmp_path: Path) -> None:
    """input_10.pb comes after input_9.pb."""
    names = [f"x{i}" for i in range(12)]
    inputs = ", ".join(f"float {name}" for name in names)
    model = parse(f"g ({inputs}) => (float y) {{ y = Identity(x0) }}")
    folder = write_set(tmp_path / "set", *(np.float32(i) for i in range(12)))
    assert [float(v) for v in load_feeds(folder, model)[0].values()] == list(range(12))


def test_sequences_are_read(tmp_path: Path) -> None:
    """A sequence input is a list of arrays, and the model runs on it."""
    model = parse(
        "g (seq(float[N]) s) => (float[N] y) { i = Constant<value=int64 {1}>() y = SequenceAt(s, i) }"
    )
    parts = [np.array([1], np.float32), np.array([2, 3], np.float32)]
    (feed,) = load_feeds(write_set(tmp_path / "set", parts), model)
    assert run(open_session(model.SerializeToString(), "cpu"), feed)["y"].tolist() == [2, 3]


def test_defaults_may_be_overridden(tmp_path: Path) -> None:
    """An input with a default value may be given, but need not."""
    model = parse("g (float[1] x, float[1] w) => (float[1] y) { y = Add(x, w) }")
    model.graph.initializer.append(helper.make_tensor("w", 1, [1], [1.0]))
    one = np.ones(1, np.float32)
    for feed in ({"x": one}, {"x": one, "w": 2 * one}):
        write_npz(tmp_path / "f.npz", feed)
        assert_feed(load_feeds(tmp_path / "f.npz", model)[0], feed)


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        ({"x": None}, "x missing", ""),
        ({"idz": np.array([1])}, "the model has no input idz", "did you mean ids?"),
        ({"qqqq": np.array([1])}, "the model has no input qqqq", "the model has x, ids"),
        ({"x": np.zeros((1, 2))}, "x is float64, not float32", "save it as float32"),
        ({"x": np.zeros(2, np.float32)}, "x is 2, not Nx2", ""),
        ({"x": np.zeros((1, 3), np.float32)}, "x is 1x3, not Nx2", ""),
        ({"x": np.float32(0)}, "x is a scalar, not Nx2", ""),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, change: dict[str, np.ndarray | None], message: str, hint: str
) -> None:
    """Missing and unknown names, another type, rank or size: the message says which."""
    feed = {name: array for name, array in {**FEED, **change}.items() if array is not None}
    write_npz(tmp_path / "f.npz", feed)
    with pytest.raises(UsageError, match=message) as caught:
        load_feeds(tmp_path / "f.npz", parse(TWO))
    assert caught.value.hint == hint
    assert "f.npz" in str(caught.value)


def test_broken_files_are_named(tmp_path: Path) -> None:
    """No file, no archive, a lone array, pickled objects, an empty folder, garbage, too many files."""
    (tmp_path / "garbage.npz").write_bytes(b"garbage")
    np.save(tmp_path / "lone.npy", FEED["x"])
    np.savez(tmp_path / "pickled.npz", x=np.array([None], object))
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "input_0.pb").write_bytes(b"\xff\xff\xff")
    write_set(tmp_path / "many", *[FEED["x"]] * 3)
    messages = {
        "none": "no such file or folder",
        "garbage.npz": "not a .npz file, or cut off",
        "lone.npy": "one array without a name",
        "pickled.npz": "it holds Python objects, which are not loaded",
        "empty": "no input_[*].pb in it",
        "bad/input_0.pb": "not a value of ONNX",
        "many": "3 files for 2 inputs",
    }
    for name, message in messages.items():
        with pytest.raises(UsageError, match=f"--inputs .*{name}: .*{message}"):
            load_feeds(tmp_path / name.split("/", maxsplit=1)[0], parse(TWO))
