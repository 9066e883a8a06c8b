"""The form of a plan file: every key that there must be, none that nobody reads, every value of its type."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx_sched.errors import UsageError
from onnx_sched.plan import Launches, Optimum

AGAIN = "Make a plan for this model with --save-plan."

SHOWN = 60
"""Characters of a name that an error gives."""


@dataclass(frozen=True, slots=True)
class Part:
    """The main graph or a body, as a plan file has it.

    Attributes:
        path: The file.
        body: The body's label; "" for the main graph.
    """

    path: Path
    body: str = ""

    def error(self, number: int, kind: object, first: object, what: str) -> UsageError:
        """The error that a group of the file is: which one, and what is wrong with it.

        Args:
            number: The group's place in the file, from 0.
            kind: What its members are.
            first: Its first member.
            what: What is wrong with it.
        """
        inside = f" of body {short(self.body)}" if self.body else ""
        named = f" ({short(kind)} {short(first)}, ...)" if first else ""
        return UsageError(f"--plan {self.path}: group {number + 1}{inside}{named} {what}", AGAIN)

    def wrong(self, what: str) -> UsageError:
        """The error that the file, or its part about the body, is."""
        inside = f": body {short(self.body)}" if self.body else ""
        return UsageError(f"--plan {self.path}{inside} {what}", AGAIN)


def short(name: object) -> str:
    """A name of any length, as an error gives it."""
    text = str(name)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


Test = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(_count(v) and v > 0 for v in value)


def _members(value: Any) -> bool:
    return _texts(value) and len(value) > 1 and len({*value}) == len(value)


def _code(value: Any) -> bool:
    return _text(value) and re.fullmatch(r"S\d{3}", value) is not None


def _pairs(value: Any) -> bool:
    return isinstance(value, list) and all(_texts(v) and len(v) == 2 for v in value)


def _list(value: Any) -> bool:
    return isinstance(value, list)


def _launches(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_count, value))


def _search(value: Any) -> bool:
    keys = {"before", "cost", "bound", "stopped", "taken"}
    return (
        isinstance(value, dict)
        and value.keys() == keys
        and all(_launches(value[key]) for key in ("before", "cost", "bound"))
        and value["stopped"] in ("", "time", "clock", "size")
        and isinstance(value["taken"], bool)
    )


Form = Mapping[str, tuple[Test, str]]
"""By key: the test of its value, and what the value must be, in words."""

GROUP: Form = {
    "members": (_members, "a list of at least two names, all different"),
    "kind": (_text, "text"),
    "form": (_text, "text"),
    "level": (_count, "a whole number from 0"),
    "region": (_count, "a whole number from 0"),
    "segments": (_sizes, "a list of whole numbers from 1"),
    "summed": (_flag, "true or false"),
}
OPTIMUM = (_search, "what --exact came to, as --save-plan writes it")
BODY: Form = {
    "body": (_text, "text"),
    "groups": (_list, "a list"),
    "sums": (_texts, "a list of names"),
    "optimum": OPTIMUM,
}
REFUSAL: Form = {
    "code": (_code, "a code such as S103"),
    "reason": (_text, "text"),
    "nodes": (_texts, "a list of names"),
}
TOP: Form = {
    "schema_version": (_text, "text"),
    "groups": (_list, "a list"),
    "sums": (_texts, "a list of names"),
    "nonempty": (_flag, "true or false"),
    "cut": (_texts, "a list of names"),
    "inlined": (_pairs, "a list of pairs of a domain and a name"),
    "optimum": OPTIMUM,
    "bodies": (_list, "a list"),
    "refusals": (_list, "a list"),
}
LATER = frozenset({"nonempty", "inlined", "cut", "bodies", "refusals", "sums", "optimum", "summed"})
"""Keys that may be missing."""


def check(data: dict[str, Any], path: Path) -> None:
    """Refuse a file that no model could have.

    Raises:
        UsageError: It names the file, and the group or whatever else is wrong.
    """
    for what in _faults(data, TOP):
        raise UsageError(f"--plan {path} {what}", AGAIN)
    _check_groups(data["groups"], Part(path))
    labels: set[str] = set()
    for n, row in enumerate(data.get("bodies", ())):
        for what in _faults(row, BODY):
            raise UsageError(f"--plan {path}: body {n + 1} {what}", AGAIN)
        part = Part(path, row["body"])
        if part.body in labels or not row["groups"]:
            raise part.wrong("stands twice" if part.body in labels else "holds no group")
        labels.add(part.body)
        _check_groups(row["groups"], part)
    for n, row in enumerate(data.get("refusals", ())):
        for what in _faults(row, REFUSAL):
            raise UsageError(f"--plan {path}: refusal {n + 1} {what}", AGAIN)


def optimum(row: Mapping[str, Any] | None) -> Optimum | None:
    """What an exact search came to, as a file has it; None if it has none."""
    if row is None:
        return None
    before, cost, bound = (Launches(*row[key]) for key in ("before", "cost", "bound"))
    return Optimum(before, cost, bound, row["stopped"], row["taken"])


def _check_groups(rows: list[Any], part: Part) -> None:
    for n, row in enumerate(rows):
        given = row if isinstance(row, dict) else {}
        kind, members = given.get("kind", ""), given.get("members")
        first = members[0] if isinstance(members, list) and members else ""
        for what in _faults(row, GROUP):
            raise part.error(n, kind, first, what)
        if row["segments"] and sum(row["segments"]) != len(members or ()):
            what = f"has segments {short(row['segments'])}, but {len(members or ())} members"
            raise part.error(n, kind, first, what)


def _faults(row: Any, form: Form) -> Iterator[str]:
    """What is wrong with a row, in words that follow its name."""
    if not isinstance(row, dict):
        yield "is not an object with keys"
        return
    for key, (fits, words) in form.items():
        if key not in row and key not in LATER:
            yield f"has no {key!r}"
        elif key in row and not fits(row[key]):
            yield f"has {key} {short(json.dumps(row[key]))}, which must be {words}"
    for key in row:
        if key not in form:
            yield f"has {short(key)!r}, which is not known"
