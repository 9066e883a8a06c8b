"""Models on disk for tests: with all their weights in a file beside them, and what is in a folder."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnx_sched.tensors import every_tensor, external_tensors
from tests.nets import net, numbers

BIG = (64, 64)  # 16 KiB of float32: beside the model when anything is
SMALL = (4, 4)


def layered() -> ModelProto:
    """Two weights in the main graph, one in a Constant, one in a body, one in a function."""
    model = net(
        """(float[N,64] x, bool c) => (float[N,2] y)
        {
            p = MatMul(x, w)
            q = Add(p, k)
            r = If (c) <
                then_branch = t () => (float[] s) { s = Mul(q, inner) },
                else_branch = e () => (float[] s2) { s2 = f.Shift(q) }
            >
            y = MatMul(r, v)
        }
        <domain: "f", opset_import: ["" : 17]> Shift (a) => (b) { g = Constant() b = Add(a, g) }""",
        {"w": numbers(*BIG), "v": numbers(64, 2)},
        domains={"f": 1},
    )
    constant = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(numbers(64)))
    model.graph.node.insert(0, constant)
    body = next(n for n in model.graph.node if n.op_type == "If").attribute[0].g
    body.initializer.append(numpy_helper.from_array(numbers(*BIG, seed=1)[:1], "inner"))
    attribute = model.functions[0].node[0].attribute.add()
    attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(numbers(64, seed=2))))
    return model


def beside(folder: Path, model: ModelProto, location: str = "m.data", name: str = "m.onnx") -> Path:
    """Save a model with all tensors of raw bytes in one file beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / location).parent.mkdir(parents=True, exist_ok=True)
    written = ModelProto()
    written.CopyFrom(model)
    with (folder / location).open("wb") as file:
        for tensor in every_tensor(written):
            if tensor.raw_data:
                file.write(b"\xff" * 3)  # offsets need not be aligned
                values = {"location": location, "offset": file.tell(), "length": 0}
                values["length"] = file.write(tensor.raw_data)
                tensor.ClearField("raw_data")
                tensor.data_location = TensorProto.EXTERNAL
                for key, value in values.items():
                    tensor.external_data.add(key=key, value=str(value))
    path = folder / name
    path.write_bytes(written.SerializeToString())
    return path


def external(path: Path) -> ModelProto:
    """A model file as it stands, external data left out."""
    return onnx.load(path, load_external_data=False)


def loaded(path: Path) -> ModelProto:
    """A model file with its external data."""
    model = onnx.load(path)
    for tensor in every_tensor(model):
        tensor.ClearField("data_location")  # onnx writes down the default
    return model


def set_entry(path: Path, key: str, value: str | None) -> None:
    """Change an entry of the first external tensor of a model file."""
    model = external(path)
    tensor = external_tensors(model)[0]
    kept = [(e.key, e.value) for e in tensor.external_data if e.key != key]
    tensor.ClearField("external_data")
    for k, v in [*kept, *([(key, value)] if value is not None else [])]:
        tensor.external_data.add(key=k, value=v)
    path.write_bytes(model.SerializeToString())


def listing(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }
