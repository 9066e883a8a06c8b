"""The runtime's own profile in a trace: as it was written, one run, and no two calls on one spot."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onnx_sched.report.own_profile import own_profile
from onnx_sched.report.trace import trace
from tests.test_trace import CHECK, TOLD, Event, never_overlap


def row(name: str, begin: int, end: int, cat: str = "Node") -> Event:
    return {"cat": cat, "name": name, "ts": begin, "dur": end - begin, "args": {"op_name": name}}


def test_bodies_stand_below() -> None:
    """The last of several runs; nodes in the body of a node have a track of their own below it."""
    rows = [
        row("early", 1, 2),
        row("model_run", 0, 10, "Session"),
        row("a", 21, 22),
        row("inner", 24, 26),
        row("inner", 26, 28),
        row("loop", 23, 29),
        row("b", 29, 30),
        row("model_run", 20, 31, "Session"),
        row("late", 40, 41),
    ]
    events = own_profile(rows, 3, "before, ONNX Runtime's own profile")
    assert [(e["name"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"] == [
        ("model_run", 0, 0),
        ("a", 1, 1),
        ("loop", 1, 3),
        ("inner", 2, 4),
        ("inner", 2, 6),
        ("b", 1, 9),
    ]
    never_overlap(events)
    CHECK.validate({**trace([], None, 0, TOLD), "traceEvents": events})
    assert own_profile([row("a", 1, 2)], 3, "t") == []


CALLS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=8)


@given(CALLS)
def test_own_profiles_never_overlap(calls: list[tuple[int, int]]) -> None:
    """Calls that lie in each other, as those of one thread do, overlap on no track."""
    nested: list[tuple[int, int]] = []
    for begin, length in calls:
        end = begin + length
        if end <= 20 and all(
            end <= b or e <= begin or (b <= begin and end <= e) or (begin <= b and e <= end)
            for b, e in nested
        ):
            nested.append((begin, end))
    rows = [row("n", *call) for call in nested] + [row("model_run", 0, 20, "Session")]
    events = own_profile(rows, 3, "t")
    never_overlap(events)
    assert sum(e["ph"] == "X" for e in events) == len(rows)
