"""Whether two models agree: what must be noticed, and what must not be blamed on the rewriting."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper, parser

from onnx_sched.errors import ModelError
from onnx_sched.judge.agree import Agreement, Tolerances, validate
from onnx_sched.judge.feeds import input_specs, make_feeds, plan_sizes


def parse(text: str) -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "own" : 1]> {text}')


def check(before: ModelProto, after: ModelProto, seeds: int = 1, **options: Any) -> Agreement:
    """Validate on random inputs of all planned sizes."""
    feeds = [
        make_feeds(before, binding, seed)
        for binding in plan_sizes(input_specs(before))
        for seed in range(seeds)
    ]
    return validate(before.SerializeToString(), after.SerializeToString(), feeds, "cpu", **options)


def heads(*order: int, bias: tuple[int, ...] = (0, 1, 2)) -> ModelProto:
    """Three heads Relu(x W_i + b_i), concatenated; the orders are those of weights and biases."""
    rng = np.random.default_rng(0)
    body, parts = [], []
    model = ModelProto()
    tensors = []
    for head in range(3):
        tensors += [
            numpy_helper.from_array(rng.standard_normal((16, 8)).astype(np.float32), f"w{head}"),
            numpy_helper.from_array(rng.standard_normal(8).astype(np.float32) / 10, f"b{head}"),
        ]
        weight, shift = (order or (0, 1, 2))[head], bias[head]
        body.append(
            f"m{head} = MatMul(x, w{weight}) a{head} = Add(m{head}, b{shift}) r{head} = Relu(a{head})"
        )
        parts.append(f"r{head}")
    text = " ".join(body) + f" y = Concat<axis=1>({', '.join(parts)})"
    model = parse(f"g (float[N,16] x) => (float[N,24] y) {{ {text} }}")
    model.graph.initializer.extend(tensors)
    return model


def test_a_model_agrees_with_itself() -> None:
    """Bitwise, at every size, with and without the optimizations of ONNX Runtime."""
    result = check(heads(), heads())
    assert (result.verdict, result.checks, result.reason) == ("bitwise", 3 * 2, "")
    (output,) = result.outputs
    assert (output.name, output.bitwise, output.max_abs, output.max_ulp) == ("y", True, 0.0, 0)
    assert output.total == 24 * (1 + 32 + 7) * 2
    assert output.noise_abs is not None
    assert 0 <= output.noise_abs < 1e-5


@pytest.mark.parametrize("bias", [(1, 0, 2), (0, 2, 1), (0, 1, 1)])
def test_swapped_biases_are_noticed(bias: tuple[int, ...]) -> None:
    """The likeliest fault of stacking: the right parameters in the wrong lanes."""
    result = check(heads(), heads(bias=bias))
    assert result.verdict == "mismatch"
    assert result.outputs[0].mismatched > 0
    assert result.reason.startswith("y: ")


def test_swapped_weights_are_noticed() -> None:
    """As with biases, in the other operand."""
    assert check(heads(), heads(1, 0, 2)).verdict == "mismatch"


def test_swapped_axes_are_noticed() -> None:
    """A transposed result of the right shape, which nobody sees at batch 1, is found at another size."""
    shape = "s = Shape(x) z = Reshape(x, s)"
    before = parse(f"g (float[A,B] x) => (float[A,B] y) {{ {shape} y = Neg(z) }}")
    after = parse(
        "g (float[A,B] x) => (float[A,B] y) { t = Transpose(x) s = Shape(x) u = Neg(t) y = Reshape(u, s) }"
    )
    assert check(before, after).verdict == "mismatch"


def test_another_order_of_sums_is_within_tolerance() -> None:
    """An honest rewriting differs in the last bits: it agrees, and the numbers say how closely."""
    before = parse("g (float[N,256] x) => (float[N,1] y) { y = ReduceSum<keepdims=1>(x, axes) }")
    before.graph.initializer.append(numpy_helper.from_array(np.array([1]), "axes"))
    after = parse("g (float[N,256] x) => (float[N,1] y) { y = MatMul(x, ones) }")
    after.graph.initializer.append(numpy_helper.from_array(np.ones((256, 1), np.float32), "ones"))
    result = check(before, after)
    assert result.verdict == "within_tolerance"
    output = result.outputs[0]
    assert output.max_abs is not None
    assert output.max_ulp is not None
    assert 0 < output.max_abs < 1e-4
    assert output.max_ulp > 0
    strict = check(before, after, tolerances=Tolerances(rtol=0.0, atol=0.0))
    assert strict.verdict == "mismatch"


def test_a_division_by_zero_in_another_place_is_noticed() -> None:
    """NaN and infinity are values: where they stand matters."""
    before = parse("g (float[N] x) => (float[N] y) { z = Sub(x, x) y = Div(x, z) }")
    after = parse("g (float[N] x) => (float[N] y) { z = Sub(x, x) n = Neg(x) y = Div(n, z) }")
    assert check(before, before).verdict == "bitwise"
    assert check(before, after).verdict == "mismatch"


def test_strings_and_sequences_are_compared() -> None:
    """Outputs without numbers, and lists of arrays."""
    text = parse("g (string[N] x) => (string[N] y) { y = Identity(x) }")
    other = parse("g (string[N] x) => (string[N] y) { y = Concat<axis=0>(x) }")
    assert check(text, other).verdict == "bitwise"
    swapped = parse(
        "g (string[N] x) => (string[N] y) { i = Shape(x) k = Neg(i) y = Slice(x, m, k, m) }"
    )
    swapped.graph.initializer.append(numpy_helper.from_array(np.array([-1]), "m"))
    assert check(text, swapped).verdict == "mismatch"
    split = "g (float[4,N] x) => (seq(float[2,N]) y) { %s y = SplitToSequence<axis=0>(%s, s) }"
    two = numpy_helper.from_array(np.array(2), "s")
    ref, neg = parse(split % ("", "x")), parse(split % ("n = Neg(x)", "n"))
    for model in (ref, neg):
        model.graph.initializer.append(two)
    assert check(ref, ref).verdict == "bitwise"
    assert check(ref, neg).verdict == "mismatch"


def test_an_unknown_operator_leaves_it_unvalidated() -> None:
    """What ONNX Runtime cannot load is neither right nor wrong; the reason is its own."""
    model = parse("g (float[N] x) => (float[N] y) { y = own.Foo(x) }")
    result = check(model, model)
    assert (result.verdict, result.outputs, result.checks) == ("unvalidated", (), 0)
    assert "own:Foo" in result.reason


def test_bfloat16_on_the_cpu_is_unvalidated() -> None:
    """There is no such kernel: the tool must not say that the models agree."""
    pytest.importorskip("ml_dtypes")
    model = parse("g (bfloat16[N,4] x, bfloat16[4,4] w) => (bfloat16[N,4] y) { y = MatMul(x, w) }")
    result = check(model, model)
    assert result.verdict == "unvalidated"
    assert "MatMul" in result.reason


def test_without_inputs_it_is_unvalidated() -> None:
    """No feed, no statement."""
    data = heads().SerializeToString()
    assert validate(data, data, [], "cpu").verdict == "unvalidated"


def test_inputs_that_the_original_refuses_are_left_out() -> None:
    """They are counted with the reason; the others decide."""
    data = heads().SerializeToString()
    good, bad = {"x": np.ones((2, 16), np.float32)}, {"x": np.ones((2, 15), np.float32)}
    result = validate(data, data, [bad, good], "cpu")
    assert (result.verdict, result.checks) == ("bitwise", 2)
    assert result.reason.startswith("1 of 2 inputs left out: ONNX Runtime does not run")
    none = validate(data, data, [bad], "cpu")
    assert (none.verdict, none.checks) == ("unvalidated", 0)
    assert "the original does not run" in none.reason


def test_a_rewritten_model_that_fails_is_a_mismatch() -> None:
    """Where the original runs, the rewritten one must load and run, at every size."""
    broken = parse("g (float[N,16] x) => (float[N,24] y) { y = own.Foo(x) }")
    result = check(heads(), broken)
    assert result.verdict == "mismatch"
    assert "the other model fails where the original runs" in result.reason
    frozen = heads()  # right at batch 1 alone
    frozen.graph.node[-1].output[0] = "cat"
    frozen.graph.node.append(helper.make_node("Reshape", ["cat", "s"], ["y"]))
    frozen.graph.initializer.append(numpy_helper.from_array(np.array([1, 24]), "s"))
    assert check(heads(), frozen).verdict == "mismatch"


def test_outputs_must_keep_name_and_order() -> None:
    """A missing, an extra or a moved output is a mismatch, whatever the values."""
    two = "g (float[N] x) => (float[N] a, float[N] b) { a = Neg(x) b = Neg(x) }"
    moved = "g (float[N] x) => (float[N] b, float[N] a) { a = Neg(x) b = Neg(x) }"
    one = "g (float[N] x) => (float[N] a) { a = Neg(x) b = Neg(x) }"
    for before, after in [(two, moved), (two, one), (one, two)]:
        result = check(parse(before), parse(after))
        assert result.verdict == "mismatch"
        assert "instead of" in result.reason


def test_each_output_has_its_own_verdict() -> None:
    """One wrong output does not blacken the others, but decides the whole."""
    before = parse("g (float[N] x) => (float[N] a, float[N] b) { a = Neg(x) b = Abs(x) }")
    after = parse("g (float[N] x) => (float[N] a, float[N] b) { a = Neg(x) b = Identity(x) }")
    result = check(before, after)
    assert [part.verdict for part in result.outputs] == ["bitwise", "mismatch"]
    assert result.verdict == "mismatch"


@pytest.mark.parametrize(
    "text",
    [
        "g (float[N] x) => (int64[1,M] y) { z = Sub(x, x) y = NonZero(z) }",
        "g (float[N] x) => (float[N] y) { z = Sub(x, x) y = Div(z, z) }",
    ],
    ids=["empty", "nan"],
)
def test_what_is_empty_or_nan_throughout_proves_nothing(text: str) -> None:
    """Such outputs are unvalidated, with a note: nothing was compared."""
    result = check(parse(text), parse(text))
    assert (result.verdict, result.outputs[0].verdict) == ("unvalidated", "unvalidated")
    assert "nothing was compared" in result.reason


def test_paths_with_external_data(tmp_path: Path) -> None:
    """Models above the limit of protobuf come as paths."""
    import onnx

    model = heads()
    onnx.save_model(
        model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0
    )
    feeds = [{"x": np.ones((2, 16), np.float32)}]
    path = tmp_path / "m.onnx"
    assert validate(path, heads().SerializeToString(), feeds, "cpu").verdict == "bitwise"
    assert (
        validate(path, heads(bias=(1, 0, 2)).SerializeToString(), feeds, "cpu").verdict
        == "mismatch"
    )


def test_what_is_no_model_is_an_error(tmp_path: Path) -> None:
    """A missing file and garbage are named, not unvalidated."""
    with pytest.raises(ModelError, match="nowhere"):
        validate(tmp_path / "nowhere.onnx", b"", [{}], "cpu")
    with pytest.raises(ModelError, match="cannot be read"):
        validate(b"\xff\xff", b"", [{}], "cpu")


def test_the_judge_does_not_know_the_judged() -> None:
    """The modules that judge import nothing of the optimizer, and ONNX Runtime only when needed."""
    modules = "agree profiling feeds provider runtime measure".split()
    script = (
        f"import sys\nfor name in {modules!r}: __import__('onnx_sched.judge.' + name)\n"
        "print(*sorted(m for m in sys.modules if m.startswith('onnx_sched.')))\n"
        "print('onnxruntime' in sys.modules)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded, runtime = done.stdout.splitlines()
    strangers = [m for m in loaded.split() if not m.startswith("onnx_sched.judge")]
    assert strangers == ["onnx_sched.errors"]
    assert runtime == "False"
