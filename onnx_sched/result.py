"""What `optimize` gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from onnx_sched import files, plan_file, writing
from onnx_sched.analysis import Analysis, analyse
from onnx_sched.constants import Const
from onnx_sched.errors import ModelError
from onnx_sched.plan import Plan
from onnx_sched.report.data import Report
from onnx_sched.report.scene import Scene
from onnx_sched.targets import check_target, replacing
from onnx_sched.tensors import external_tensors, tensor_bytes

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs


@dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes:
        plan: What was decided.
        report: What there is to tell.
    """

    plan: Plan
    report: Report
    _source: files.Source
    _skeleton: ModelProto
    _fresh: dict[str, Const] = field(repr=False)
    _convert: Callable[[ModelProto], Any] | None = None
    _nonempty: bool = False
    _analysis: Analysis | None = field(default=None, repr=False)
    _shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)

    @property
    def changed(self) -> bool:
        """Whether the model was rewritten."""
        return self.report.status == "optimized"

    @property
    def proto(self) -> ModelProto:
        """The resulting model with all its weights in it.

        Raises:
            ModelError: If it would be larger than a protobuf can be; `save` writes it.
        """
        model = ModelProto()
        model.CopyFrom(self._skeleton)
        external = external_tensors(model)
        total = writing.size_inline(model) + sum(map(tensor_bytes, external))
        if total >= writing.PROTOBUF_LIMIT:
            raise ModelError(
                f"the model takes {total / 2**30:.1f} GiB, more than one protobuf holds",
                "Write it with Result.save(path): the weights go into a file beside it.",
            )
        for tensor in external:
            files.load_external(self._source, tensor)
        writing.fill_all(model, self._fresh)
        return model

    @property
    def model(self) -> ModelProto | gs.Graph:
        """The resulting model, in the form in which the original was given."""
        return self._convert(self.proto) if self._convert else self.proto

    def scene(self) -> Scene:
        """The run as pictures and tables need it: both circuits, and what was decided."""
        before = self._analysis or analyse(self._source, nonempty=self._nonempty)
        after = None
        if self.changed:  # no weight is copied, however large
            after = analyse(files.Source(self._skeleton, self._source.path), fresh=self._fresh)
        return Scene(self.report, self.plan, before, after, self._shapes)

    def save_report(self, path: Path | str) -> None:
        """Write the report in the form that the suffix names: .html, .md, .json or .txt.

        Raises:
            UsageError: If the suffix is another one.
            ModelError: If it cannot be written.
        """
        from onnx_sched.report import saving  # it knows every form: not needed to import onnx_sched

        saving.save(self.scene(), Path(path))

    def save_plan(self, path: Path | str) -> None:
        """Write the plan; `--plan` carries it out again without measuring.

        Raises:
            ModelError: If it cannot be written.
        """
        text = plan_file.to_json(self.plan, self._nonempty)
        with replacing(Path(path)) as temporary:
            temporary.write_text(text, "utf-8", newline="\n")

    def save(self, path: Path | str) -> tuple[Path, ...]:
        """Write the model; it appears whole or not at all.

        Returns:
            The files that were written: the model, and the data files beside it if it has any.

        Raises:
            ModelError: If it cannot be written.
            UsageError: If `path` is the input, or no place for a file.
        """
        target = Path(path)
        check_target(target, self._source.path)
        if not self.changed and self._source.path is not None:
            return writing.copy(self._source, target)
        return writing.save(self._skeleton, self._fresh, self._source, target)
