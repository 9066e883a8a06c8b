"""Export a small transformer with torch: `python -m scripts.export_models [--out FOLDER]`.

Needs the `export` extra. Writes `exported_transformer.onnx` (TorchScript-based exporter, opset 17)
and, if onnxscript is installed, `exported_transformer_dynamo.onnx` (dynamo exporter, opset 20). The
weights come from `models.weights`, by parameter name: they are the same with every torch.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path

import onnx
import torch
from torch import nn

from models.weights import kernel, uniform

MODEL, HEADS, BLOCKS, SEQ, EXPANSION = 32, 4, 2, 8, 4
ROWS_OF_SAMPLE = 2  # Not 1: the dynamo exporter would freeze a batch of one.
KEPT_METADATA = {"namespace", "pkg.torch.onnx.name_scopes"}


class Head(nn.Module):  # type: ignore[misc, unused-ignore]
    """Attention and feed-forward of one head: `[batch, seq, model] -> [batch, seq, size]`."""

    def __init__(self, model: int, size: int, expansion: int) -> None:
        super().__init__()
        self.query = nn.Linear(model, size, bias=False)
        self.key = nn.Linear(model, size, bias=False)
        self.value = nn.Linear(model, size)
        self.norm = nn.LayerNorm(size)
        self.up = nn.Linear(size, size * expansion)
        self.gelu = nn.GELU()
        self.down = nn.Linear(size * expansion, size)
        self.scale = float(size) ** -0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend, then add the feed-forward of the result to it."""
        scores = torch.matmul(self.query(x), self.key(x).transpose(-2, -1)) * self.scale
        mixed = torch.matmul(torch.softmax(scores, dim=-1), self.value(x))
        result: torch.Tensor = mixed + self.down(self.gelu(self.up(self.norm(mixed))))
        return result


class Block(nn.Module):  # type: ignore[misc, unused-ignore]
    """Heads side by side on one normalised input, an output projection, a residual."""

    def __init__(self, model: int, heads: int, expansion: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(model)
        self.heads = nn.ModuleList(Head(model, model // heads, expansion) for _ in range(heads))
        self.out = nn.Linear(model, model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map `[batch, seq, model]` to the same shape."""
        shared = self.norm(x)
        joined = torch.cat([head(shared) for head in self.heads], dim=-1)
        result: torch.Tensor = x + self.out(joined)
        return result


class HeadLocalTransformer(nn.Module):  # type: ignore[misc, unused-ignore]
    """Blocks, then a final normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(MODEL, HEADS, EXPANSION) for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(MODEL)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map `[batch, seq, model]` to the same shape."""
        for block in self.blocks:
            x = block(x)
        result: torch.Tensor = self.norm(x)
        return result


def build() -> HeadLocalTransformer:
    """Build the transformer with its weights: spread scales and biases, none at its default."""
    module = HeadLocalTransformer()
    module.eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            shape = tuple(parameter.shape)
            if len(shape) == 2:
                gain = 1.5 if ".query." in name or ".key." in name else 1.0
                values = kernel(name, shape, shape[1], gain=gain)
            elif name.endswith("norm.weight"):
                values = uniform(name, shape, 0.5, 1.5)
            else:
                values = uniform(name, shape, -0.3, 0.3)
            parameter.copy_(torch.from_numpy(values))
    return module


def export_torchscript(module: nn.Module, sample: torch.Tensor) -> onnx.ModelProto:
    """Export by the TorchScript-based exporter, opset 17, dynamic batch."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # torch announces at length that this exporter is the older one; that is why it is here.
        warnings.simplefilter("ignore", DeprecationWarning)
        path = Path(folder, "model.onnx")
        torch.onnx.export(
            module,
            (sample,),
            str(path),
            dynamo=False,
            opset_version=17,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
        )
        return onnx.load(path)


def export_dynamo(module: nn.Module, sample: torch.Tensor) -> onnx.ModelProto:
    """Export by the dynamo exporter, opset 20, dynamic batch."""
    program = torch.onnx.export(
        module,
        (sample,),
        dynamo=True,
        verbose=False,
        opset_version=20,
        input_names=["x"],
        output_names=["y"],
        dynamic_shapes={"x": {0: "batch"}},
    )
    assert program is not None  # None comes with a file name only.
    model: onnx.ModelProto = program.model_proto
    return model


def strip(model: onnx.ModelProto) -> None:
    """Remove, in place, what names the machine of the export: doc strings and stack traces.

    Node metadata that names the module a node came from stays.
    """
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.initializer, *_infos(graph)):
        part.ClearField("doc_string")
        kept = [entry for entry in part.metadata_props if entry.key in KEPT_METADATA]
        del part.metadata_props[:]
        part.metadata_props.extend(kept)


def _infos(graph: onnx.GraphProto) -> Iterable[onnx.ValueInfoProto]:
    yield from graph.input
    yield from graph.output
    yield from graph.value_info


def main() -> None:
    """Export and write."""
    parser = argparse.ArgumentParser(description="Export a small transformer with torch.")
    here = Path(__file__).resolve().parent.parent / "models"
    parser.add_argument("--out", type=Path, default=here, help="folder to write to")
    out: Path = parser.parse_args().out
    exporters = {"exported_transformer": export_torchscript}
    if importlib.util.find_spec("onnxscript") is None:
        print("onnxscript is not installed: no dynamo export")
    else:
        exporters["exported_transformer_dynamo"] = export_dynamo
    module = build()
    sample = torch.from_numpy(uniform("sample", (ROWS_OF_SAMPLE, SEQ, MODEL), -1.0, 1.0))
    for name, export in exporters.items():
        model = export(module, sample)
        strip(model)
        size = (out / f"{name}.onnx").write_bytes(model.SerializeToString(deterministic=True))
        print(f"{name}.onnx\t{size}")


if __name__ == "__main__":
    main()
