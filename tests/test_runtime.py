"""Sessions that do not print, do not fall back, and fail with one sentence."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

from onnx_sched.errors import ProviderError
from onnx_sched.judge.capture import captured_output
from onnx_sched.judge.provider import check_provider
from onnx_sched.judge.runtime import RuntimeRefused, open_session, run


def text_model(text: str) -> bytes:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "own" : 1]> {text}')
    return bytes(model.SerializeToString())


RELU = text_model("g (float[N] x) => (float[N] y) { y = Relu(x) }")


def test_bytes_and_paths_give_the_same_session(tmp_path: Path) -> None:
    """A model is run from memory or from its file alike."""
    file = tmp_path / "relu.onnx"
    file.write_bytes(RELU)
    feeds = {"x": np.array([-1, 2], np.float32)}
    for model in (RELU, file, str(file)):
        np.testing.assert_array_equal(run(open_session(model, "cpu"), feeds)["y"], [0, 2])


def test_a_model_that_does_not_load_is_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    """The first line of ONNX Runtime, without its prefix; nothing is printed."""
    with pytest.raises(RuntimeRefused) as caught:
        open_session(text_model("g (float[N] x) => (float[N] y) { y = own.Foo(x) }"), "cpu")
    assert "own:Foo" in str(caught.value)
    assert "[ONNXRuntimeError]" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("model", [b"not a model", Path("nowhere.onnx")])
def test_broken_and_missing_files_are_refused(model: bytes | Path) -> None:
    """What is no model at all raises the same error as one that ONNX Runtime does not know."""
    with pytest.raises(RuntimeRefused):
        open_session(model, "cpu")


@pytest.mark.parametrize(
    "feeds",
    [{}, {"x": np.ones(2)}, {"x": np.ones((2, 2), np.float32)}],
    ids=["missing", "type", "rank"],
)
def test_wrong_inputs_are_refused(
    feeds: dict[str, np.ndarray], capfd: pytest.CaptureFixture[str]
) -> None:
    """A missing input, a wrong type and a wrong rank raise the same error, in silence."""
    session = open_session(RELU, "cpu")
    with pytest.raises(RuntimeRefused):
        run(session, feeds)
    assert capfd.readouterr() == ("", "")


def test_a_session_on_another_provider_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    """CUDA without a device is an error, not a session on the CPU."""
    if check_provider("cuda").usable:
        pytest.skip("there is a CUDA device")
    with pytest.raises(ProviderError) as caught:
        open_session(RELU, "cuda")
    assert caught.value.exit_code == 5
    assert capfd.readouterr() == ("", "")


def test_optimize_is_all_or_nothing(tmp_path: Path) -> None:
    """Without optimization the nodes stay as they are; with it, identities vanish."""
    model = text_model("g (float[N] x) => (float[N] y) { a = Identity(x) y = Relu(a) }")
    counts = []
    for optimize in (False, True):
        session = open_session(
            model, "cpu", optimize=optimize, profile_prefix=tmp_path / f"{optimize}"
        )
        run(session, {"x": np.ones(1, np.float32)})
        counts.append(Path(session.end_profiling()).read_text().count("_kernel_time"))
    assert counts == [2, 1]


def test_exact_keeps_activations_in_float() -> None:
    """A quantized weight must not make ONNX Runtime round the activations behind our back."""
    rng = np.random.default_rng(0)
    weights = helper.make_tensor("q", TensorProto.INT8, [64, 64], rng.integers(-127, 127, 64 * 64))
    scale = helper.make_tensor("s", TensorProto.FLOAT, [64], [0.01] * 64)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=1),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, 64]) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], [weights, scale])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data = model.SerializeToString()
    feeds = {"x": rng.standard_normal((4, 64)).astype(np.float32)}
    plain = run(open_session(data, "cpu", optimize=False), feeds)["y"]
    exact = run(open_session(data, "cpu", exact=True), feeds)["y"]
    loose = run(open_session(data, "cpu"), feeds)["y"]
    np.testing.assert_allclose(exact, plain, rtol=1e-5, atol=1e-5)
    assert np.abs(loose - plain).max() > 10 * np.abs(exact - plain).max()


def test_types_that_numpy_lacks_go_in_and_out() -> None:
    """bfloat16 and 8-bit floats are read and given as ml_dtypes, empty arrays as well."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    nodes = [
        helper.make_node("Identity", ["x"], ["y"]),
        helper.make_node("Cast", ["x"], ["z"], to=TensorProto.FLOAT8E5M2),
    ]
    values = {
        name: helper.make_tensor_value_info(name, kind, ["N"])
        for name, kind in [("x", 16), ("y", 16), ("z", TensorProto.FLOAT8E5M2)]
    }
    graph = helper.make_graph(nodes, "g", [values["x"]], [values["y"], values["z"]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = open_session(model.SerializeToString(), "cpu")
    for numbers in ([1.0, -2.0, 0.5], []):
        given = np.array(numbers, ml_dtypes.bfloat16)
        outputs = run(session, {"x": given})
        assert outputs["y"].dtype == ml_dtypes.bfloat16
        assert outputs["z"].dtype == ml_dtypes.float8_e5m2
        np.testing.assert_array_equal(outputs["y"], given)
        np.testing.assert_array_equal(outputs["z"].astype(np.float32), numbers)


def test_such_types_may_stand_beside_others() -> None:
    """One bfloat16 among floats does not disturb the floats."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    model = text_model(
        "g (float[N] x) => (float[N] y, bfloat16[N] z) { y = Neg(x) z = Cast<to=16>(x) }"
    )
    outputs = run(open_session(model, "cpu"), {"x": np.array([1.5], np.float32)})
    assert {name: value.dtype for name, value in outputs.items()} == {
        "y": np.float32,
        "z": ml_dtypes.bfloat16,
    }
    assert (outputs["y"].tolist(), outputs["z"].tolist()) == ([-1.5], [1.5])


def test_sequences_and_empty_optionals_come_out() -> None:
    """A sequence is a list of arrays, an empty optional is None."""
    split = text_model("g (float[2] x) => (seq(float[1]) y) { y = SplitToSequence<axis=0>(x) }")
    outputs = run(open_session(split, "cpu"), {"x": np.array([1, 2], np.float32)})
    assert [part.tolist() for part in outputs["y"]] == [[1.0], [2.0]]
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [1])
    node = helper.make_node("Optional", [], ["y"], type=kind)
    value = helper.make_value_info("y", helper.make_optional_type_proto(kind))
    graph = helper.make_graph([node], "g", [], [value])
    empty = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert run(open_session(empty.SerializeToString(), "cpu"), {}) == {"y": None}


def test_external_data_is_found_beside_the_file(tmp_path: Path) -> None:
    """A path brings the weights that lie in a file of their own."""
    weights = np.arange(2000, dtype=np.float32)
    tensor = onnx.numpy_helper.from_array(weights, "w")
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2000])
    graph = helper.make_graph([helper.make_node("Neg", ["w"], ["y"])], "g", [], [value], [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data")
    outputs = run(open_session(tmp_path / "m.onnx", "cpu"), {})
    np.testing.assert_array_equal(outputs["y"], -weights)


def test_captured_output_holds_python_and_c_and_the_descriptor(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Whatever way a line is written, it ends up in the text and not on the screen."""
    print("before")
    with captured_output() as said:
        print("from python")
        os.write(1, b"from the descriptor\n")
        os.write(2, b"from stderr\n")
        if os.name == "posix":
            ctypes.CDLL(None).puts(b"from c")
    print("after")
    os.write(1, b"also after\n")
    assert {"from python", "from the descriptor", "from stderr"} <= set(said.text.splitlines())
    assert os.name != "posix" or "from c" in said.text
    assert capfd.readouterr() == ("before\nafter\nalso after\n", "")


def test_captured_output_ends_with_an_exception(capfd: pytest.CaptureFixture[str]) -> None:
    """An error inside the block gives stdout back and keeps the text."""
    held = captured_output()
    said = held.__enter__()
    print("inside")
    assert not held.__exit__(KeyError, KeyError(), None)  # the error goes on
    print("outside")
    assert said.text == "inside\n"
    assert capfd.readouterr().out == "outside\n"


@pytest.mark.parametrize("threads", [2, None])
def test_threads_of_one_session_do_not_spin_into_the_run_of_another(threads: int | None) -> None:
    """Sessions are raced in turn: the threads of the one that rests must leave the cores."""
    options = open_session(RELU, "cpu", threads=threads).get_session_options()
    assert options.get_session_config_entry("session.force_spinning_stop") == "1"
