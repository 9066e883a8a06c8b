"""Gates of --fail-on: exact where numbers are, deaf to noise where they are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onnx_sched.errors import UsageError
from onnx_sched.judge.agree import Agreement
from onnx_sched.judge.comparison import (
    Cold,
    Comparison,
    Counted,
    LatencyRow,
    ModelFacts,
    Placement,
    Steady,
)
from onnx_sched.judge.gates import NAMES, Gate, check_gates, parse_gates
from onnx_sched.judge.launches import KernelCount
from onnx_sched.judge.measure import Speedup
from onnx_sched.judge.ortlib import CPU, CUDA
from onnx_sched.judge.provider import SelectedProvider
from onnx_sched.judge.significance import verdict

EVEN = Speedup(10.0, 10.0, 1.0, 0.99, 1.01, 200)


def latency(ratio: float, low: float, high: float, floor: Speedup = EVEN) -> LatencyRow:
    """A row with this speed-up."""
    found = Speedup(10.0, 10.0 / ratio, ratio, low, high, 200)
    steady, cold = Steady(10.0, 11.0, 12.0, 1000), Cold(5.0, 1.0, 5)
    return LatencyRow(
        (("batch", 1),),
        1,
        False,
        None,
        steady,
        steady,
        found,
        floor,
        verdict(found, floor),
        cold,
        cold,
        1,
        6,
        True,
    )


def comparison(provider: str = CUDA, **changes: Any) -> Comparison:
    """Two equal models on CUDA, but for the changes."""
    model = ModelFacts("a.onnx", 10, 5, 17, 8)
    kernels = KernelCount(12, (("gemm", 12),), "CUPTI, kernel activities")
    place = Placement({CUDA: 10}, (), 0)
    found = Comparison(
        before=model,
        after=model,
        provider=SelectedProvider(provider, "auto", "auto: said so"),
        environment={"packages": {}, "processor": "", "device": None},
        settings={"tf32_latency": True},
        agreement=Agreement("bitwise", (), 6, ""),
        rankings=(),
        dispatches=Counted(10, 10, "profile"),
        kernels_before=kernels,
        kernels_after=kernels,
        peak_profile=Counted(1000, 1000, "profile"),
        peak_estimate=Counted(1100, 1100, "estimate"),
        peak_device=Counted(5000, 5000, "arena"),
        counted_at=(("batch", 1),),
        placement_before=place,
        placement_after=place,
        latency=(latency(1.0, 0.99, 1.01),),
        paths=(),
    )
    return replace(found, **changes)


def message(gate: str, found: Comparison) -> str:
    """What one gate says; empty where it holds."""
    (result,) = check_gates(parse_gates([gate]), found)
    assert result.failed == bool(result.message)
    return result.message


def test_two_equal_models_pass_every_gate() -> None:
    """Nothing fails where nothing changed."""
    results = check_gates(parse_gates([",".join(NAMES)]), comparison())
    assert [str(result.gate) for result in results] == list(NAMES)
    assert not any(result.failed for result in results)


def test_gates_may_come_together_or_one_by_one() -> None:
    """Commas and repetition are one; the last limit of a gate wins."""
    together = parse_gates(["slower:5%, cpu-nodes", "slower:2.5%"])
    assert together == (Gate("slower", 2.5), Gate("cpu-nodes", 0.0))
    assert [str(gate) for gate in together] == ["slower:2.5%", "cpu-nodes"]


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("slow", "did you mean slower?"),
        ("lunches", "did you mean launches?"),
        ("cpu_nodes", "did you mean cpu-nodes?"),
        ("zzz", "there are cpu-nodes, slower, launches, memory, mismatch"),
        ("", "there are cpu-nodes, slower, launches, memory, mismatch"),
        ("slower:5", "slower:5%"),
        ("slower:", "slower:5%"),
        ("mismatch:5%", "slower:5%"),
    ],
)
def test_what_is_no_gate_is_refused_with_a_hint(word: str, hint: str) -> None:
    """A typo would be a gate that never fails: it is a usage error that names the nearest gate."""
    with pytest.raises(UsageError, match="--fail-on") as caught:
        parse_gates([word])
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("gate", "ratio", "low", "high", "fails"),
    [
        ("slower", 0.90, 0.88, 0.92, True),
        ("slower", 1.10, 1.08, 1.12, False),  # faster
        ("slower", 0.98, 0.95, 1.01, False),  # holds 1
        ("slower", 0.985, 0.98, 0.995, False),  # reaches into the noise floor
        ("slower:5%", 0.90, 0.88, 0.92, True),
        ("slower:5%", 0.94, 0.92, 0.96, False),  # slower, but perhaps by less than 5%
        ("slower:20%", 0.90, 0.88, 0.92, False),
    ],
)
def test_slower_fails_only_if_the_whole_interval_says_so(
    gate: str, ratio: float, low: float, high: float, fails: bool
) -> None:
    """Noise never trips it: the interval must lie beyond the limit, 1 and the A/A interval."""
    said = message(gate, comparison(latency=(latency(ratio, low, high),)))
    assert bool(said) == fails
    if fails:
        assert said == f"batch=1, 1 thread: {ratio:.2f}x [{low:.2f}, {high:.2f}]"


def test_slower_fails_where_nothing_was_timed() -> None:
    """A gate on what was not measured does not hold."""
    assert "does not load" in message("slower", comparison(latency=(), notes=("does not load",)))


def test_launches_counts_kernels_where_they_are_known() -> None:
    """Real kernels decide; one more is too many."""
    more = KernelCount(13, (("gemm", 13),), "CUPTI, kernel activities")
    found = comparison(kernels_after=more, dispatches=Counted(10, 3, "profile"))
    assert message("launches", found) == "12 -> 13 kernel launches"
    assert message("launches:10%", found) == ""


def test_launches_never_calls_a_dispatch_a_launch() -> None:
    """Without a count of kernels, node dispatches decide, and the message says so."""
    none = KernelCount(None, (), "not available: runs on the CPU")
    found = comparison(kernels_after=none, dispatches=Counted(10, 11, "profile"))
    said = message("launches", found)
    assert said == "10 -> 11 node dispatches (kernel launches are not available)"
    assert message("launches", replace(found, dispatches=Counted(10, 10, "profile"))) == ""
    unknown = replace(found, dispatches=Counted(10, None, "not available: it fails"))
    assert "not known" in message("launches", unknown)


def test_memory_falls_back_from_the_profile_to_the_estimate() -> None:
    """The profile decides; where it says nothing, the estimate does, under its own name."""
    grown = comparison(peak_profile=Counted(1000, 1001, "profile"))
    assert message("memory", grown) == "1000 -> 1001 bytes of activations at the peak"
    assert message("memory:1%", grown) == ""
    silent = comparison(
        peak_profile=Counted(None, None, "old"), peak_estimate=Counted(1, 2, "estimate")
    )
    assert "(estimate)" in message("memory", silent)
    nothing = replace(silent, peak_estimate=Counted(None, None, "no shapes"))
    assert "not known" in message("memory", nothing)


def test_memory_looks_at_the_device_too() -> None:
    """Activations may fit while the device's peak grows."""
    said = message("memory", comparison(peak_device=Counted(5000, 6000, "arena")))
    assert said == "5000 -> 6000 bytes of device memory at the peak"


def test_cpu_nodes_are_named() -> None:
    """Under CUDA, what ran on the CPU is listed, a few by name."""
    strays = tuple((f"n{k}", "Shape") for k in range(5))
    found = comparison(placement_after=Placement({CPU: 5, CUDA: 5}, strays, 2))
    said = message("cpu-nodes", found)
    assert said == "5 on the CPU: n0 (Shape), n1 (Shape), n2 (Shape) and 2 more"
    assert message("cpu-nodes", comparison(placement_after=None)) != ""


def test_cpu_nodes_fails_where_everything_fell_to_the_cpu() -> None:
    """`auto` without a device is no way around the gate; the message says why it took the CPU."""
    assert "auto: said so" in message("cpu-nodes", comparison(provider=CPU))


@pytest.mark.parametrize("verdict_word", ["mismatch", "unvalidated"])
def test_mismatch_fails_unless_outputs_were_compared_and_agree(verdict_word: Any) -> None:
    """Outputs that could not be compared are no agreement."""
    found = comparison(agreement=Agreement(verdict_word, (), 1, "because"))
    assert "because" in message("mismatch", found)
    assert message("mismatch", comparison()) == ""
