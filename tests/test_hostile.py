"""Models that mean harm: an error in words or a right result, in bounded memory, and nothing outside."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnx_sched
from onnx_sched import sound
from onnx_sched.errors import ModelError
from scripts.fuzz_bytes import FINE, Setting, batch, corpus
from tests.backend_cases import grafted
from tests.feature_models import host
from tests.mutations import mutated
from tests.nets import COMMITTED, committed, net, numbers
from tests.stored import beside, layered

LIMIT_MIB = 700
"""What a process may take in all, numpy, onnx and ONNX Runtime included (they need about 120)."""


def test_damaged_models_get_an_error_in_words_or_a_result() -> None:
    """A short run of `scripts/fuzz_bytes.py`: no crash, no hang, no stack trace, nothing outside."""
    setting = Setting(check=False, seconds=60, memory=4 << 30)
    models = corpus()
    found = batch(range(120), models, setting)
    assert [(seed, status) for seed, status in found if status not in FINE] == []
    assert {status for _, status in found} == set(FINE)


def test_mutations_follow_from_the_seed() -> None:
    """The same seed damages in the same way, another one in another."""
    models = [committed(name).SerializeToString() for name in COMMITTED[:3]]
    assert [mutated(k, models) for k in range(40)] == [mutated(k, models) for k in range(40)]
    assert len({mutated(k, models) for k in range(40)}) > 35


# -- models that cannot be ----------------------------------------------------------------------------


def chain(nodes: str, more: str = "") -> ModelProto:
    return net(f"(float[2] x) => (float[2] y) {{ {nodes} }}{more}")


def with_attribute(change: Callable[[ModelProto], object]) -> ModelProto:
    model = net("(float[2,3] x) => (float[] y) { y = Transpose<perm=[1,0]>(x) }")
    change(model)
    return model


def repeated_function() -> ModelProto:
    text = '<domain: "f", opset_import: ["" : 17]> F (a) => (b) { b = Relu(a) }'
    model = net(f"(float[2] x) => (float[] y) {{ y = f.F(x) }} {text}", domains={"f": 1})
    model.functions.append(model.functions[0])
    return model


def set_first(field: str, value: object) -> Callable[[ModelProto], object]:
    return lambda model: setattr(model.graph.node[0].attribute[0], field, value)


BROKEN: dict[str, tuple[Callable[[], ModelProto], str]] = {
    "cycle": (lambda: chain("y = Add(x, b) b = Relu(y)"), "cycle through 2"),
    "itself": (lambda: chain("y = Add(x, y)"), "cycle through 1"),
    "missing value": (lambda: chain("y = Add(x, ghost)"), "'ghost', which nothing makes"),
    "missing output": (lambda: chain("z = Relu(x)"), "output 'y' is made by nothing"),
    "value made twice": (lambda: chain("y = Relu(x) y = Neg(x)"), "'y' is made twice"),
    "input made again": (lambda: chain("x = Relu(x) y = Neg(x)"), "'x' is made twice"),
    "too few inputs": (lambda: chain("y = MatMul(x)"), "has 1 inputs, and takes 2"),
    "too many inputs": (lambda: chain("y = Relu(x, x)"), "has 2 inputs, and takes 1"),
    "an input left out": (lambda: chain('y = Add(x, "")'), "lacks input 1"),
    "attribute of another kind": (
        lambda: chain('y = Transpose<perm="a">(x)'),
        "'perm' that is STRING, not INTS",
    ),
    "attribute left out": (lambda: chain("y = Cast(x)"), "lacks the attribute 'to'"),
    "attribute of no kind": (
        lambda: with_attribute(set_first("type", 0)),
        "says not of what kind it is",
    ),
    "reference outside functions": (
        lambda: with_attribute(set_first("ref_attr_name", "p")),
        "stands in none",
    ),
    "function twice": (repeated_function, "function f::F is there twice"),
    "version": (
        lambda: with_attribute(lambda m: setattr(m.opset_import[0], "version", 2**40)),
        "imports version",
    ),
    "no version": (
        lambda: with_attribute(lambda m: setattr(m.opset_import[0], "domain", "other")),
        "no version is imported",
    ),
    "empty and endless": (
        lambda: with_attribute(
            lambda m: m.graph.initializer.append(
                TensorProto(name="w", data_type=1, dims=[0, 2**62])
            )
        ),
        "larger than any array",
    ),
    "IR version": (lambda: with_attribute(lambda m: setattr(m, "ir_version", -1)), "IR version"),
    "weight of another size": (
        lambda: with_attribute(
            lambda m: m.graph.initializer.append(
                TensorProto(name="w", data_type=1, dims=[3], raw_data=bytes(8))
            )
        ),
        "'w'",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_cannot_be_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    """The error says what is wrong and with which node; nothing is written."""
    make, words = BROKEN[kind]
    path = tmp_path / "m.onnx"
    path.write_bytes(make().SerializeToString())
    with pytest.raises(ModelError, match=words) as caught:
        onnx_sched.optimize(path, choose="always", check=False)
    assert len(str(caught.value)) < 500
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("axis", [7, 2**40, -3])
def test_a_join_along_no_axis_stays_as_it_is(axis: int) -> None:
    """Only ONNX Runtime says what is wrong with it; the lanes before it are batched all the same."""
    model = committed("grouped_mlp")
    joins = [n for n in model.graph.node if n.op_type == "Concat"]
    for node in joins:
        node.attribute[0].i = axis
    result = onnx_sched.optimize(model, choose="always", check=False)
    left = [n.attribute[0].i for n in result.proto.graph.node if n.op_type == "Concat"]
    assert left.count(axis) == len(joins) > 0


def test_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 in the name of a value, of a node, or of an attribute."""
    data = chain("y = Relu(x)").SerializeToString()
    for old, new in (
        (b"\x0a\x01x", b"\x0a\x01\xff"),
        (b"\x22\x04Relu", b"\x22\x04\xfe\xff\xfe\xff"),
    ):
        assert data.count(old)
        path = tmp_path / "m.onnx"
        path.write_bytes(data.replace(old, new))
        with pytest.raises(ModelError, match=r"no text|not an ONNX model"):
            onnx_sched.optimize(path, choose="always", check=False)


def test_a_data_file_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    """A location that is no UTF-8 comes as bytes; it is no path."""
    path = beside(tmp_path, layered())
    data = path.read_bytes()
    assert data.count(b"m.data")
    path.write_bytes(data.replace(b"m.data", b"m.d\xca\xfea"))
    with pytest.raises(ModelError, match="no text"):
        onnx_sched.optimize(path, choose="always", check=False)


@pytest.mark.parametrize("name", COMMITTED)
def test_sound_models_pass(name: str) -> None:
    """The rules refuse none of the models that run."""
    assert list(sound.faults(committed(name))) == []


# -- models that are too much -------------------------------------------------------------------------


def long_names() -> ModelProto:
    """Ten names of a megabyte each, in front of a batch."""
    model = grafted(host())
    for k in range(10):
        name = str(k) * 2**20
        model.graph.node.add(op_type="Relu", input=["host_x"], output=[name], name=f"n{name}")
    return model


def huge_sparse() -> ModelProto:
    """A sparse weight of 10^12 numbers, two of them stored."""
    model = grafted(host())
    values = numpy_helper.from_array(numbers(2), "s")
    indices = numpy_helper.from_array(np.array([0, 10**12 - 1]), "i")
    sparse = helper.make_sparse_tensor(values, indices, [10**6, 10**6])
    model.graph.sparse_initializer.append(sparse)
    model.graph.node.add(op_type="MatMul", input=["host_x", "s"], output=["out"])
    return model


def huge_constants() -> ModelProto:
    """Constants that are small in the file and large when computed."""
    model = grafted(host())
    shape = numpy_helper.from_array(np.array([10**6, 10**6]), "shape")
    model.graph.initializer.append(shape)
    model.graph.node.add(op_type="ConstantOfShape", input=["shape"], output=["big"])
    model.graph.node.add(op_type="Add", input=["big", "big"], output=["bigger"])
    model.graph.node.add(op_type="Transpose", input=["bigger"], output=["turned"])
    return model


def huge_dims() -> ModelProto:
    """Declared sizes of a million, in eight axes."""
    return net(
        f"(float[{','.join(['1000000'] * 8)}] x) => (float[] y) "
        "{ a, b = Split<axis=0>(x) c = Relu(a) d = Relu(b) y = Concat<axis=0>(c, d) }"
    )


def wrong_shapes() -> ModelProto:
    """A batch between values whose declared sizes are not theirs."""
    model = grafted(host())
    for k in range(2):
        model.graph.value_info.append(helper.make_tensor_value_info(f"graft_y{k}", 1, [9, 9, 9]))
        model.graph.value_info.append(helper.make_tensor_value_info(f"graft_w{k}", 7, [1]))
    return model


def wide() -> ModelProto:
    """Ten thousand lanes of one node each."""
    names = [f"y{k}" for k in range(10_000)]
    model = host()
    for name in names:
        model.graph.node.add(op_type="Neg", input=["host_x"], output=[f"a{name}"])
        model.graph.node.add(op_type="Relu", input=[f"a{name}"], output=[name])
    model.graph.node.add(op_type="Sum", input=names, output=["sum"])
    return model


TOO_MUCH = {
    f.__name__: f for f in (long_names, huge_sparse, huge_constants, huge_dims, wrong_shapes, wide)
}

MEASURED = """
import resource, sys
import onnx_sched
from onnx_sched.errors import SchedError
try:
    onnx_sched.optimize(sys.argv[1], choose="always", check=False).save(sys.argv[2])
except SchedError as error:
    print(str(error)[:300])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.parametrize("kind", TOO_MUCH)
def test_memory_is_bounded(kind: str, tmp_path: Path) -> None:
    """What is small in the file stays small in memory, and ends in time."""
    path = tmp_path / "m.onnx"
    path.write_bytes(TOO_MUCH[kind]().SerializeToString())
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path), str(tmp_path / "out.onnx")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)),
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < LIMIT_MIB
