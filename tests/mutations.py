"""Damaged models: bytes that were cut, flipped and spliced, and protos with impossible values in them.

Everything follows from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx import ModelProto

NUMBERS = (0, 1, -1, 2, 7, 127, 1 << 20, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63))
TEXTS = ("", "a", "x" * 5000, "../secret", "/etc/passwd", "a\0b", "ü\n", "-1", "99999999999", "1e9")


def mutated(seed: int, models: Sequence[bytes]) -> bytes:
    """A damaged model, made from one or two of the given ones."""
    rng = random.Random(seed)
    data = rng.choice(models)
    how = rng.choice((truncate, flip, splice, impossible, impossible, impossible))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = how(rng, data, models)
    return data


def truncate(rng: random.Random, data: bytes, models: Sequence[bytes]) -> bytes:
    """Cut the end off."""
    return data[: rng.randrange(len(data) + 1)]


def flip(rng: random.Random, data: bytes, models: Sequence[bytes]) -> bytes:
    """Turn up to eight bits."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def splice(rng: random.Random, data: bytes, models: Sequence[bytes]) -> bytes:
    """Put a piece of a model into another one: at any byte, or between fields."""
    other = rng.choice(models)
    if rng.random() < 0.5:
        i, j = sorted(rng.choices(range(len(other) + 1), k=2))
        at = rng.randrange(len(data) + 1)
        return data[:at] + other[i : min(j, i + 4096)] + data[at + rng.choice((0, j - i)) :]
    return data + other  # one message after the other is both merged


def impossible(rng: random.Random, data: bytes, models: Sequence[bytes]) -> bytes:
    """Change one field of one message to something that no exporter writes."""
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return data
    message = rng.choice(list(messages(model)))
    field = rng.choice(message.DESCRIPTOR.fields)
    _change(rng, message, field)
    return bytes(model.SerializeToString())


def messages(root: Message) -> Iterator[Message]:
    """A message and all below it."""
    todo: list[Message] = [root]
    while todo:
        message = todo.pop()
        yield message
        for field, value in message.ListFields():
            if field.message_type is not None:
                todo += list(value) if hasattr(value, "add") else [value]


def _change(rng: random.Random, message: Message, field: FieldDescriptor) -> None:
    held: Any = getattr(message, field.name)
    if hasattr(held, "extend"):
        how = rng.choice(("add", "drop", "double", "clear", "shuffle"))
        if how == "clear" or not held:
            message.ClearField(field.name)
        if how == "drop" and held:
            del held[rng.randrange(len(held))]
        elif how == "double" and held:
            held.extend([rng.choice(list(held))])
        elif how == "shuffle":
            kept = list(held)
            rng.shuffle(kept)
            del held[:]
            held.extend(kept)
        elif how == "add":
            held.add() if field.message_type is not None else held.append(
                _value(rng, field, message)
            )
    elif field.message_type is not None:
        if rng.random() < 0.5:
            message.ClearField(field.name)
        else:
            held.SetInParent()
    else:
        setattr(message, field.name, _value(rng, field, message))


def _value(rng: random.Random, field: FieldDescriptor, message: Message) -> Any:
    """A value that the field can hold, likely one that it should not."""
    if field.enum_type is not None:
        return rng.choice([v.number for v in field.enum_type.values])
    kind = field.type
    if kind in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        names = [t for f, t in message.ListFields() if isinstance(t, str)]
        text = rng.choice([*TEXTS, *names])
        return text if kind == FieldDescriptor.TYPE_STRING else text.encode()
    if kind in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return rng.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
    low, high = (
        (-(2**31), 2**31 - 1) if kind == FieldDescriptor.TYPE_INT32 else (-(2**63), 2**63 - 1)
    )
    if kind == FieldDescriptor.TYPE_UINT64:
        low, high = 0, 2**64 - 1
    return max(low, min(high, rng.choice(NUMBERS)))
