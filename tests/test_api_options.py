"""Arguments of the functions for other programs: each is what it may be, or is named, before any work."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import click
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import onnx_sched
from onnx_sched import CompareOptions, Options, option_checks, pipeline
from onnx_sched.cli import cli
from onnx_sched.errors import UsageError
from onnx_sched.judge import compare as comparing
from onnx_sched.merge import merge
from onnx_sched.options import FORMS, Choose
from tests.nets import committed, numbers


class Odd:
    """Something that no option is."""

    def __repr__(self) -> str:
        return "an odd\nthing " + "x" * 1000


NO_THREADS = "no whole number from 0 to 4096"
NO_TEXT = "no text, and no list of such"

REFUSED: list[tuple[str, Any, str]] = [
    ("choose", "alwayz", "'alwayz' is none of 'measured', 'model', 'always'"),
    ("choose", None, "None is none of 'measured', 'model', 'always'"),
    ("choose", ["always"], "['always'] is none of"),
    ("provider", 3, "3 is no text"),
    ("provider", None, "None is no text"),
    ("dims", ["batch=1"], "['batch=1'] is no mapping of sizes by dimension"),
    ("dims", "batch=1", "'batch=1' is no mapping"),
    ("dims", {"batch": ["x"]}, "'x' is no whole number of 0 or more"),
    ("dims", {"batch": "1,32"}, "'1,32' is no whole number of 0 or more, and no list of such"),
    ("dims", {"batch": []}, "nothing is given"),
    ("dims", {"batch": -1}, "-1 is no whole number of 0 or more"),
    ("dims", {"batch": (1, 2.0)}, "2.0 is no whole number"),
    ("dims", {"batch": None}, "None is no whole number"),
    ("dims", {"batch": True}, "True is no whole number"),
    ("dims", {3: 1}, "3 is no text"),
    ("shapes", ["x:1,2"], "['x:1,2'] is no mapping of shapes by input"),
    ("shapes", {"x": "1,32"}, "'1,32' is no list"),
    ("shapes", {"x": 3}, "3 is no list"),
    ("shapes", {"x": (1, -32)}, "-32 is no whole number of 0 or more"),
    ("shapes", {"x": ("batch", 32)}, "'batch' is no whole number"),
    ("inputs", 3, "3 is no path or mapping of input names to arrays"),
    ("inputs", [], "no set is given"),
    ("inputs", numbers(1, 32), "is no mapping of values by input"),
    ("inputs", ["x.npz"], "'x.npz' is no mapping of values by input"),
    ("inputs", {0: numbers(1, 32)}, "0 is no text"),
    ("inputs", b"x.npz", "is no path"),
    ("seed", -1, "-1 is no whole number of 0 or more"),
    ("seed", 1.5, "1.5 is no whole number"),
    ("seed", None, "None is no whole number"),
    ("atol", -1e-3, "-0.001 is no number of 0 or more"),
    ("atol", math.nan, "nan is no number"),
    ("atol", [None], "None is no number"),
    ("atol", Odd(), "is no number or text, and no list of such"),
    ("rtol", (1e-3, True), "True is no number"),
    ("rtol", {"y": 1e-3}, "{'y': 0.001} is no number or text"),
    ("check", "no", "'no' is neither True nor False"),
    ("check", None, "None is neither True nor False"),
    ("skip_ops", 3, f"3 is {NO_TEXT}"),
    ("skip_ops", None, f"None is {NO_TEXT}"),
    ("skip_ops", {"MatMul": True}, NO_TEXT),
    ("skip_nodes", ["a", 3], "3 is no text"),
    ("skip_passes", b"sums", f"b'sums' is {NO_TEXT}"),
    ("nonempty", 1, "1 is neither True nor False"),
    ("assume_finite", "False", "'False' is neither True nor False"),
    ("threads", (-5,), f"-5 is {NO_THREADS}"),
    ("threads", -5, f"-5 is {NO_THREADS}"),
    ("threads", 4097, f"4097 is {NO_THREADS}"),
    ("threads", ("1",), f"'1' is {NO_THREADS}"),
    ("threads", "12", f"'12' is {NO_THREADS}"),
    ("threads", 1.0, f"1.0 is {NO_THREADS}"),
    ("threads", None, f"None is {NO_THREADS}"),
    ("threads", True, f"True is {NO_THREADS}"),
    ("threads", (), "nothing is given"),
    ("threads", Odd(), f"is {NO_THREADS}"),
    ("time_limit", -1, "-1 is no number of 0 or more"),
    ("time_limit", math.nan, "nan is no number of 0 or more"),
    ("time_limit", None, "None is no number of 0 or more"),
    ("time_limit", "60", "'60' is no number of 0 or more"),
    ("time_limit", True, "True is no number of 0 or more"),
    ("max_activation", 0, "0 is no number of 1 or more"),
    ("max_activation", 0.99, "0.99 is no number of 1 or more"),
    ("max_activation", math.nan, "nan is no number of 1 or more"),
    ("max_activation", -(10**400), "is no number of 1 or more"),
    ("exact", "yes", "'yes' is neither True nor False"),
    ("plan", 3, "3 is no path"),
    ("target", 3, "3 is no path"),
    ("progress", 3, "3 is no function"),
]
"""Arguments, what they must not be, and what is said of it."""

COMPARED: list[tuple[str, Any, str]] = [
    *(row for row in REFUSED if row[0] in comparing.FORMS and row[0] != "inputs"),
    ("inputs", 3, "3 is no path"),
    ("inputs", [{"x": numbers(1, 32)}], "is no path"),
    ("pairs", 9, "9 is no whole number of 10 or more"),
    ("budget", 0, "0 is no number above 0"),
    ("budget", math.nan, "nan is no number above 0"),
    ("processes", 0, "0 is no whole number of 1 or more"),
    ("cuda_graph", "no", "'no' is neither True nor False"),
    ("tf32", 0, "0 is neither True nor False"),
]
"""Likewise those of `compare`."""


def named(refused: pytest.ExceptionInfo[UsageError], name: str, words: str) -> None:
    """The error begins with the argument and says what was wrong, in one short line."""
    text = str(refused.value)
    assert re.match(rf"(a key of )?{name}(\[.*\])?: ", text)
    assert words in text
    assert "\n" not in text
    assert len(text) < 200
    assert "--" not in text + refused.value.hint


def labels(rows: list[tuple[str, Any, Any]]) -> list[str]:
    """Short names of rows."""
    return [f"{name} {place}" for place, (name, _, _) in enumerate(rows)]


@pytest.mark.parametrize(("name", "value", "words"), REFUSED, ids=labels(REFUSED))
def test_an_argument_that_makes_no_sense_is_named(
    name: str, value: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`optimize` names the argument, what was given and what is allowed; the model is not even read."""
    monkeypatch.setattr(pipeline, "take", None)
    with pytest.raises(UsageError) as refused:
        onnx_sched.optimize("gone.onnx", **{name: value})
    named(refused, name, words)


@pytest.mark.parametrize(("name", "value", "words"), COMPARED, ids=labels(COMPARED))
def test_an_option_of_compare_that_makes_no_sense_is_named(
    name: str, value: Any, words: str
) -> None:
    """`CompareOptions` likewise, by the same forms."""
    with pytest.raises(UsageError) as refused:
        CompareOptions(**{name: value})
    named(refused, name, words)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("alwayz", "always"), ("Always", "always"), ("measure", "measured"), ("models", "model")],
)
def test_a_misspelt_choice_is_asked_about(given: str, meant: str) -> None:
    """Did you mean."""
    with pytest.raises(UsageError) as refused:
        Options(choose=given)  # type: ignore[arg-type]
    assert refused.value.hint == f"Did you mean {meant!r}?"


def test_every_option_has_a_form() -> None:
    """No field is left unchecked, and the defaults are in their forms."""
    for options, forms in ((Options(), FORMS), (CompareOptions(), comparing.FORMS)):
        assert {f.name for f in fields(options)} == set(forms)
        for name, form in forms.items():
            assert form(name, getattr(options, name)) == getattr(options, name)


# -- one stands for itself -----------------------------------------------------------------------------

FED = {"x": numbers(2, 32)}

ALIKE: list[tuple[str, Any, Any]] = [
    ("threads", 1, (1,)),
    ("threads", np.int64(4), (4,)),
    ("threads", [0, 2], (0, 2)),
    ("threads", range(1, 3), (1, 2)),
    ("threads", np.array([1, 0]), (1, 0)),
    ("dims", {"batch": 1}, {"batch": (1,)}),
    ("dims", {"batch": [1, 32]}, {"batch": (1, 32)}),
    ("dims", {"batch": 0}, {"batch": (0,)}),
    ("dims", None, {}),
    ("shapes", {"x": [1, 32]}, {"x": (1, 32)}),
    ("shapes", {"x": []}, {"x": ()}),
    ("shapes", {"x": numbers(2, 32).shape}, {"x": (2, 32)}),
    ("skip_ops", "MatMul", ("MatMul",)),
    ("skip_nodes", "e1/*", ("e1/*",)),
    ("skip_passes", "sums", ("sums",)),
    ("skip_passes", ["sums", "bodies"], ("sums", "bodies")),
    ("atol", "y:1e-3", ("y:1e-3",)),
    ("atol", 1e-3, ("0.001",)),
    ("atol", [1e-3, "y:1e-2"], ("0.001", "y:1e-2")),
    ("rtol", np.float64(0.5), ("0.5",)),
    ("rtol", 0, ("0.0",)),
    ("rtol", None, ()),
    ("time_limit", 5, 5.0),
    ("max_activation", np.float32(2), 2.0),
    ("check", np.bool_(False), False),
    ("inputs", FED, (FED,)),
    ("inputs", [FED, FED], (FED, FED)),
    ("inputs", "x.npz", Path("x.npz")),
    ("plan", "plan.json", Path("plan.json")),
    ("target", Path("here.toml"), "here.toml"),
]


@pytest.mark.parametrize(("name", "given", "held"), ALIKE, ids=labels(ALIKE))
def test_one_stands_for_itself(name: str, given: Any, held: Any) -> None:
    """A single entry is a list of one; whatever the form, options hold the same, of the same type."""
    value = getattr(Options(**{name: given}), name)
    assert value == held
    assert type(value) is type(held)
    again = getattr(Options(**{name: value}), name)
    assert again == held


def test_options_are_their_own() -> None:
    """What a caller does to its lists afterwards does not reach the options, nor the other way."""
    dims, skipped, fed = {"batch": [1]}, ["Relu"], {"x": numbers(1, 32)}
    options = Options(dims=dims, skip_ops=skipped, inputs=[fed])
    dims["batch"].append(7)
    skipped.append("Add")
    fed.clear()
    assert (options.dims, options.skip_ops) == ({"batch": (1,)}, ("Relu",))
    assert isinstance(options.inputs, tuple)
    assert list(options.inputs[0]) == ["x"]


def test_a_single_text_is_obeyed() -> None:
    """A text is not taken for its letters: the op is left alone."""
    model = committed("mmoe")
    result = onnx_sched.optimize(model, choose="always", check=False, skip_ops="Relu")
    given = sum(n.op_type == "Relu" for n in model.graph.node)
    assert sum(n.op_type == "Relu" for n in result.proto.graph.node) == given > 1
    assert result.changed


# -- the command line's bounds ---------------------------------------------------------------------------

BOUNDED = {
    "optimize": (Options, ("seed", "threads", "time_limit", "max_activation")),
    "compare": (CompareOptions, ("seed", "threads", "pairs", "budget", "processes")),
}

NUMBERS = st.one_of(
    st.integers(-3, 12),
    st.sampled_from([4095, 4096, 4097, 10**30]),
    st.floats(),
    st.sampled_from([0.5, 1.0, 1.25, -0.0]),
)


def flags(command: str) -> dict[str, click.Parameter]:
    """The flags of a command, by the names of their arguments."""
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    return {p.name: p for p in found.params if p.name is not None}


def taken(make: Any, *errors: type[Exception]) -> bool:
    """Whether a value is accepted."""
    try:
        make()
    except errors:
        return False
    return True


@pytest.mark.parametrize(
    ("command", "name"),
    [(command, name) for command, (_, all_) in BOUNDED.items() for name in all_],
)
@given(value=NUMBERS)
def test_bounds_are_the_command_lines(command: str, name: str, value: float) -> None:
    """A number is allowed in Python if and only if the flag takes it."""
    flag = flags(command)[name]
    by_flag = taken(lambda: flag.type.convert(str(value), flag, None), click.BadParameter)
    kind, _ = BOUNDED[command]
    assert taken(lambda: kind(**{name: value}), UsageError) == by_flag


def test_choices_are_the_command_lines() -> None:
    """And so are the words of --choose."""
    choice = flags("optimize")["choose"].type
    assert isinstance(choice, click.Choice)
    assert tuple(choice.choices) == get_args(Choose)
    for word in get_args(Choose):
        assert Options(choose=word).choose == word


def test_every_flag_has_an_argument() -> None:
    """The table of flags is that of the command line, as far as `optimize` takes them."""
    found = {opt: name for name, p in flags("optimize").items() for opt in p.opts}
    named = {opt[2:]: name for opt, name in found.items() if opt.startswith("--")}
    own = {"output", "trace", "report", "json", "quiet", "verbose", "color"}
    assert set(option_checks.FLAGS) == set(named) - own
    for flag, name in option_checks.FLAGS.items():
        assert name in (named[flag], "check=False", "Result.save_plan")


# -- other functions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((3, "b.onnx"), "before: 3 is no path"),
        (("a.onnx", None), "after: None is no path"),
        (("a.onnx", "b.onnx", {"pairs": 10}), "options: {'pairs': 10} is no CompareOptions"),
        (("a.onnx", "b.onnx", {}), "options: {} is no CompareOptions"),
    ],
)
def test_compare_takes_two_paths_and_options(arguments: tuple[Any, ...], words: str) -> None:
    """Anything else is named before a file is read."""
    with pytest.raises(UsageError, match=re.escape(words)):
        onnx_sched.compare(*arguments)


def test_a_provider_is_a_text() -> None:
    """`check_provider` never raises for a name; what is none is a mistake of the program."""
    assert onnx_sched.check_provider("nobody").usable is False
    with pytest.raises(UsageError, match="name: 3 is no text"):
        onnx_sched.check_provider(3)  # type: ignore[arg-type]


def test_ways_to_join_are_named() -> None:
    """`merge` takes no unknown word for a stack."""
    with pytest.raises(UsageError, match=r"^join: 'men' is none of 'outputs', 'mean'") as refused:
        merge([Path("a.onnx"), Path("b.onnx")], "men")  # type: ignore[arg-type]
    assert refused.value.hint == "Did you mean 'mean'?"


def test_all_names_can_be_found() -> None:
    """`dir` lists what can be had, loaded or not."""
    assert set(onnx_sched.__all__) <= set(dir(onnx_sched))
    assert dir(onnx_sched) == sorted(dir(onnx_sched))
