"""Mutation check of the carrying layer: lose one field at a time and see that a test goes red.

    python -m scripts.mutate_carry

For every field of every message of the installed onnx, and for fields of the future in every kind of
message, the rewritten model loses that field wherever it stands, just before it is handed on.  The tests
of `tests/test_lossless.py` that set the field must notice.  Prints the fields whose loss went unnoticed;
exits 1 if there are any.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from onnx import ModelProto

from onnx_sched import pipeline
from onnx_sched.assemble import assemble
from onnx_sched.errors import SchedError
from tests.feature_models import Path, field_paths, message_paths
from tests.mutations import messages
from tests.test_lossless import test_every_field_is_carried as field_is_carried
from tests.test_lossless import test_fields_of_the_future_are_carried as future_is_carried

FUTURE = "(a field of the future)"
NEVER_LOST = {
    ("ModelProto", "graph"): "nothing would be left",
    ("ModelProto", "ir_version"): "set in every model, and read by every test",
    ("AttributeProto", "type"): "set together with the value",
    ("TensorProto", "data_type"): "set together with the numbers",
    ("TensorProto", "segment"): "refused when read",
    ("Segment", "begin"): "refused when read",
    ("Segment", "end"): "refused when read",
}
"""Fields that no model of its own is made for, and why."""


def end(path: Path) -> tuple[Descriptor, str]:
    """The message and the field at the end of a path."""
    message: Descriptor = ModelProto.DESCRIPTOR
    for name in path[:-1]:
        message = message.fields_by_name[name].message_type
    return message, path[-1]


def kind_at(path: Path) -> str:
    """The kind of message at the end of a path."""
    if not path:
        return "ModelProto"
    message, name = end(path)
    return str(message.fields_by_name[name].message_type.name)


def lose(model: ModelProto, kind: str, field: str) -> None:
    """Take a field away wherever it stands, but for what the host of every test needs."""
    for message in messages(model):
        if message.DESCRIPTOR.name != kind:
            continue
        if field == FUTURE:
            _forget(message)
        else:
            message.ClearField(field)


def _forget(message: Message) -> None:
    """Lose what the schema does not know, in this message alone."""
    if len(UnknownFieldSet(message)):
        kept = type(message)()
        for field, value in message.ListFields():
            held: Any = getattr(kept, field.name)
            if hasattr(held, "extend"):
                held.extend(value)
            elif hasattr(held, "CopyFrom"):
                held.CopyFrom(value)
            else:
                setattr(kept, field.name, value)
        message.CopyFrom(kept)


@contextmanager
def losing(kind: str, field: str) -> Iterator[None]:
    """Make every rewritten model lose a field."""

    def lossy(*args: Any) -> ModelProto:
        model = assemble(*args)
        lose(model, kind, field)
        return model

    with mock.patch.object(pipeline, "assemble", lossy):
        yield


def noticed(kind: str, field: str, tests: list[Callable[[], None]]) -> bool:
    """Whether any of the tests goes red while a field is lost."""
    with losing(kind, field):
        for test in tests:
            try:
                test()
            except (AssertionError, SchedError):
                return True
    return False


def mutants() -> Iterator[tuple[str, str, list[Callable[[], None]]]]:
    """Every field with the tests that set it."""
    tests: dict[tuple[str, str], list[Callable[[], None]]] = {}
    for path in field_paths():
        message, name = end(path)
        tests.setdefault((message.name, name), []).append(partial(field_is_carried, path))
    for path in message_paths():
        key = (kind_at(path), FUTURE)
        tests.setdefault(key, []).append(partial(future_is_carried, path))
    todo, kinds = [ModelProto.DESCRIPTOR], set[str]()
    while todo:
        message = todo.pop()
        if message.name not in kinds:
            kinds.add(message.name)
            todo += [f.message_type for f in message.fields if f.message_type is not None]
            for name in (*(f.name for f in message.fields), FUTURE):
                if message.name != "Segment" and (message.name, name) not in NEVER_LOST:
                    yield message.name, name, tests.get((message.name, name), [])


def main() -> int:
    """Try all, and tell."""
    begin, tried, missed = time.monotonic(), 0, []
    for kind, field, tests in sorted(mutants(), key=lambda m: m[:2]):
        tried += 1
        if not noticed(kind, field, tests):
            missed.append(f"{kind}.{field} ({len(tests)} tests)")
            print(f"unnoticed: {missed[-1]}", flush=True)
    took = time.monotonic() - begin
    print(f"{tried} fields lost one at a time in {took:.0f} s, {len(missed)} losses unnoticed")
    return int(bool(missed) or not tried)


if __name__ == "__main__":
    sys.exit(main())
