"""Models written to disk: whole or not at all, and never over the input."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path, PurePath

from onnx import ModelProto, TensorProto

from onnx_sched.constants import Const, Span
from onnx_sched.data_file import DataFile, copy_span
from onnx_sched.errors import ModelError, UsageError
from onnx_sched.files import Source, data_files, locate
from onnx_sched.reading import model_in
from onnx_sched.targets import alone, replacing_all
from onnx_sched.tensors import every_tensor, external_tensors, fill, tensor_bytes

PROTOBUF_LIMIT = 2**31 - 2**26
"""A protobuf file holds less than 2 GiB; the last 64 MiB are kept free for everything but weights."""

INLINE = 1024
"""Tensors of fewer bytes stay in the model file when weights go beside it, as in onnx itself."""


def copy(source: Source, target: Path) -> tuple[Path, ...]:
    """Write the model unchanged: a byte copy, external data files included.

    In the input's own folder the copy shares the data files with it.

    Returns:
        The files that were written, the model first.

    Raises:
        ModelError: If something else stands where a data file must go.
        UsageError: If `target` is a data file of the input, or has the name of one.
    """
    with alone(target.parent):
        return _copy_all(source, target)


def _copy_all(source: Source, target: Path) -> tuple[Path, ...]:
    """As `copy`, while nobody else writes there."""
    assert source.path is not None
    places = {p: target.parent / p.relative_to(source.path.parent) for p in data_files(source)}
    _check_no_data(target, source)
    moves: dict[Path, Path] = {}
    for path, place in places.items():
        if place.resolve() == target.resolve():
            raise UsageError(
                f"-o {target} has the name of a data file of {source.name}", "Name another file."
            )
        if not place.exists():
            moves[path] = place
        elif not place.samefile(path) and not _same_bytes(place, path):
            raise ModelError(
                f"cannot write {target}: its data file {place} exists and holds something else",
                "Write to an empty folder.",
            )
    for place in moves.values():
        place.parent.mkdir(parents=True, exist_ok=True)
    with replacing_all([*moves.values(), target]) as made:
        for path, temporary in zip((*moves, source.path), made, strict=True):
            with temporary.open("wb") as file:
                copy_span(Span(path, 0, path.stat().st_size), file)
    return (target, *moves.values())


def _check_no_data(target: Path, source: Source) -> None:
    """Refuse to write a model over data of the input."""
    if any(_is_file(target, path) for path in data_files(source)):
        raise UsageError(
            f"-o {target} is a data file of the input {source.name}",
            "The input is never overwritten; name another file.",
        )


def _is_file(place: Path, path: Path) -> bool:
    """Whether a place is a file that exists, under whatever name."""
    return place.exists() and place.samefile(path)


def _same_bytes(a: Path, b: Path) -> bool:
    if a.stat().st_size != b.stat().st_size:
        return False
    with a.open("rb") as x, b.open("rb") as y:
        while chunk := x.read(1 << 20):
            if chunk != y.read(1 << 20):
                return False
    return True


def size_inline(model: ModelProto) -> int:
    """Bytes of the weights that stand in the proto itself, placeholders as if they were filled."""
    return sum(
        tensor_bytes(t) for t in every_tensor(model) if t.data_location != TensorProto.EXTERNAL
    )


def needs_data(model: ModelProto, source: Source) -> bool:
    """Whether weights go beside a model: those of the source stood there, or one protobuf is too small."""
    if external_tensors(model) or size_inline(model) >= PROTOBUF_LIMIT:
        return True
    beside = bool(external_tensors(source.model))
    return beside and any(tensor_bytes(t) >= INLINE for t in every_tensor(model))


def write(
    model: ModelProto,
    fresh: Mapping[str, Const],
    source: Source,
    target: Path,
    data: Path | None,
    location: str = "",
) -> None:
    """Write a rewritten model, its large weights into a data file if it needs one.

    Args:
        model: The model; initializers named in `fresh` are placeholders.
        fresh: New weights, computed only while they are written.
        source: Where external tensors of the original are read.
        target: The model file to write.
        data: The data file to write; None if all weights go into the model.
        location: What the model calls the data file; its name if not given.
    """
    out = ModelProto()
    out.CopyFrom(model)
    if data is None:
        fill_all(out, fresh)
    else:
        with data.open("wb") as file:
            _fill_beside(out, fresh, source, DataFile(file, location or data.name))
    target.write_bytes(out.SerializeToString(deterministic=True))


def fill_all(model: ModelProto, fresh: Mapping[str, Const]) -> None:
    """Put all new weights into the proto."""
    for tensor in model.graph.initializer:
        if tensor.name in fresh:
            fill(tensor, fresh[tensor.name])


def _fill_beside(
    model: ModelProto, fresh: Mapping[str, Const], source: Source, data: DataFile
) -> None:
    for tensor in every_tensor(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            data.add_span(tensor, locate(source, tensor))
    for tensor in model.graph.initializer:
        const = fresh.get(tensor.name)
        if const is None:
            if len(tensor.raw_data) >= INLINE:
                data.add_raw(tensor)
        elif const.nbytes >= INLINE:
            data.add_const(tensor, const)
        else:
            fill(tensor, const)


def save(
    model: ModelProto, fresh: Mapping[str, Const], source: Source, target: Path
) -> tuple[Path, ...]:
    """Write a rewritten model and its data file if it needs one: both, or neither.

    The data file is called after the model: `out.onnx.data`, or `out.onnx.2.data` and so on where a file
    of that name belongs to the input or to somebody else.  One that is there is replaced only together
    with an old `out.onnx` that refers to it.  Bytes do not depend on anything else in the folder: with the
    same names free, the same run writes the same files.

    Returns:
        The files that were written, the model first.

    Raises:
        ModelError: If it cannot be written.
        UsageError: If `target` is a data file of the input.
    """
    _check_no_data(target, source)
    with alone(target.parent):
        beside = [_data_place(target, source)] if needs_data(model, source) else []
        with replacing_all([*beside, target]) as made:
            data = made[0] if beside else None
            write(model, fresh, source, made[-1], data, beside[0].name if beside else "")
    return (target, *beside)


def _data_place(target: Path, source: Source) -> Path:
    """Where the data file of a new model goes: beside it, and over no file but the old model's data."""
    taken = [*data_files(source), *([source.path] if source.path is not None else [])]
    names = itertools.chain([target.name], (f"{target.name}.{n}" for n in itertools.count(2)))
    places = (target.with_name(f"{name}.data") for name in names)
    owned = _referred(target)
    return next(
        place
        for place in places
        if not os.path.lexists(place)
        or (PurePath(place.name) in owned and not any(_is_file(place, path) for path in taken))
    )


def _referred(target: Path) -> frozenset[PurePath]:
    """The data files that a model refers to, seen from its folder; none where there is no model."""
    if not target.is_file():
        return frozenset()
    try:
        model = model_in(target)
    except ModelError:
        return frozenset()
    entries = (entry for tensor in external_tensors(model) for entry in tensor.external_data)
    found = [entry.value for entry in entries if entry.key == "location"]
    return frozenset(PurePath(name) for name in found if isinstance(name, str))
