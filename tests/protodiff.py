"""Where two protos differ: field by field, presence, order and unknown fields included."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

Pair = tuple[str, Any, Any]


def differences(one: Message, other: Message) -> list[str]:
    """Say for every difference where it is; nothing if the protos say the same in the same order."""
    if one.DESCRIPTOR.full_name != other.DESCRIPTOR.full_name:
        return [f": {one.DESCRIPTOR.full_name} is not {other.DESCRIPTOR.full_name}"]
    found: list[str] = []
    todo: list[Pair] = [("", one, other)]
    while todo:
        path, a, b = todo.pop()
        if isinstance(a, Message):
            inner = list(_fields(path, a, b, found))
            todo += reversed(inner)
        elif _bits(a) != _bits(b):
            found.append(f"{path}: {a!r:.60} became {b!r:.60}")
    return found


def _fields(path: str, a: Any, b: Any, found: list[str]) -> Iterator[Pair]:
    """The parts of two messages of one type that have to be equal."""
    left = {field.name: value for field, value in a.ListFields()}
    right = {field.name: value for field, value in b.ListFields()}
    for field in a.DESCRIPTOR.fields:
        name = f"{path}.{field.name}" if path else field.name
        if field.name not in left and field.name not in right:
            continue
        if field.name not in right or field.name not in left:
            found.append(f"{name}: {'lost' if field.name in left else 'added'}")
            continue
        x, y = left[field.name], right[field.name]
        if not hasattr(x, "extend"):  # one value, not a repeated field
            yield name, x, y
            continue
        if len(x) != len(y):
            found.append(f"{name}: {len(x)} became {len(y)}")
        yield from ((f"{name}[{_label(e, k)}]", e, y[k]) for k, e in enumerate(x[: len(y)]))
    if _unknown(a) != _unknown(b):
        found.append(f"{path or 'top'}: {len(_unknown(a))} unknown fields, then {len(_unknown(b))}")


def _label(element: Any, place: int) -> str:
    """What a reader would look for: the element's name, else its place."""
    return getattr(element, "name", "") or str(place)


def _bits(value: Any) -> Any:
    return struct.pack("d", value) if isinstance(value, float) else (type(value), value)


def _unknown(message: Message) -> list[tuple[int, int, Any]]:
    """Fields that the schema does not have, groups unfolded."""
    found: list[tuple[int, int, Any]] = []
    todo = list(UnknownFieldSet(message))[::-1]
    while todo:
        field = todo.pop()
        if isinstance(field.data, UnknownFieldSet):
            inner = list(field.data)
            found.append((field.field_number, field.wire_type, len(inner)))
            todo += inner[::-1]
        else:
            found.append((field.field_number, field.wire_type, field.data))
    return found
