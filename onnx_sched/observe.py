"""What values inside a model are, at some inputs: the real data that a region sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import ModelProto, ValueInfoProto

from onnx_sched import files
from onnx_sched.judge.runtime import open_session, run


@dataclass(frozen=True, slots=True)
class Observer:
    """Runs the original with some inner values as further outputs."""

    source: files.Source
    provider: str

    def values(self, names: Sequence[str], feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The named values in a run on `feeds`.

        Raises:
            RuntimeRefused: If the model does not load or run.
        """
        found = {name: feeds[name] for name in names if name in feeds}
        inner = [name for name in names if name not in feeds]
        if inner:
            model = ModelProto()
            model.CopyFrom(self.source.model)
            there = {o.name for o in model.graph.output}
            model.graph.output.extend(ValueInfoProto(name=n) for n in inner if n not in there)
            session = open_session(
                model.SerializeToString(), self.provider, optimize=False, folder=self.source.folder
            )
            result = run(session, feeds)
            found |= {name: result[name] for name in inner}
        return found
