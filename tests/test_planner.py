"""Plans: what is legal, what pays by the cost model, and what is left when a part is taken back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from onnx import ModelProto

import onnx_sched
from onnx_sched.analysis import Analysis
from onnx_sched.circuit import LINEAR, Unit
from onnx_sched.cost import device
from onnx_sched.find import is_heavy, regions
from onnx_sched.levelling import best_groups, saved
from onnx_sched.passes.rewrite import MEMBERS
from onnx_sched.plan import Group, Plan, Refusal
from onnx_sched.planner import (
    least,
    left_apart,
    legal,
    made,
    modelled_plan,
    of_region,
    refuse,
    region_numbers,
    sites,
    without,
)
from onnx_sched.variants import SEPARATE, Explorer, formed, forms, kind_key
from tests.nets import COMMITTED, analysed, committed, name_nodes, net, numbers
from tests.rule_examples import with_ranks

CPU = device("cpu")
SLOW_LANES = replace(CPU, lane_us=1e6, convolves=False)
"""A device on which every lane of a stacked product takes a second, and there is nothing else."""


def anything(unit: Unit) -> bool:
    """Skip nothing."""
    return False


def two_regions() -> ModelProto:
    """Three lanes of two maps, a Softmax over all, then two lanes of a map."""
    text = (
        "(float[N,12] x) => (float[] y) { p0, p1, p2 = Split<axis=1>(x) "
        + " ".join(f"a{k} = MatMul(p{k}, w{k}) b{k} = MatMul(a{k}, w{k})" for k in range(3))
        + " j = Concat<axis=1>(b0, b1, b2) s = Softmax<axis=1>(j) q0, q1 = Split<axis=1>(s) "
        "c0 = MatMul(q0, v0) c1 = MatMul(q1, v1) y = Concat<axis=1>(c0, c1) }"
    )
    weights = {f"w{k}": numbers(4, 4, seed=k) for k in range(3)}
    weights |= {f"v{k}": numbers(6, 6, seed=k) for k in range(2)}
    return with_ranks(name_nodes(net(text, weights)))


def nodes_of(analysis: Analysis, groups: Sequence[Group]) -> set[str]:
    """The heavy nodes of groups."""
    return {analysis.circuit.label(u) for g in groups for u in g.units if is_heavy(u)}


@pytest.mark.parametrize("name", COMMITTED)
def test_without_a_device_all_that_is_legal_is_planned(name: str) -> None:
    """No device: every group that can be made, and nothing refused for what it costs."""
    analysis = analysed(committed(name))
    draft = modelled_plan(analysis, anything, None)
    _, groups, _ = legal(analysis, anything)
    assert [g.units for g in draft.plan.groups] == [g.units for g in groups]
    assert not [r for r in draft.plan.refusals if r.code in ("S303", "S304", "S900")]
    assert (draft.rewritten is None) == (not groups)


@pytest.mark.parametrize("name", COMMITTED)
def test_the_cost_model_decides_about_every_heavy_node(name: str) -> None:
    """Heavy nodes of what is legal are in a group that pays, or refused, never both; S303 names the rest.

    Within a region the cost model chooses forms, and may leave some groups apart.
    """
    analysis = analysed(committed(name))
    everything = modelled_plan(analysis, anything, None).plan
    paying = modelled_plan(analysis, anything, CPU).plan
    kept = nodes_of(analysis, paying.groups)
    told = [n for r in paying.refusals for n in r.nodes]
    assert len(told) == len(set(told))
    assert not kept & set(told)
    assert nodes_of(analysis, everything.groups) <= kept | set(told)
    dear = {n for r in paying.refusals if r.code == "S303" for n in r.nodes}
    for region in region_numbers(everything.groups):
        members = nodes_of(analysis, of_region(everything.groups, region))
        assert members <= dear | kept


def test_what_would_not_pay_is_told_with_both_times() -> None:
    """The refusal of a region names its heavy nodes, the estimates, the sizes and the profile."""
    analysis = analysed(two_regions())
    draft = modelled_plan(analysis, anything, SLOW_LANES)
    assert draft.rewritten is None
    assert draft.plan.groups == ()
    costs = [r for r in draft.plan.refusals if r.code == "S303"]
    assert sorted(n for r in costs for n in r.nodes) == sorted(
        [f"{v}{k}" for v in "ab" for k in range(3)] + ["c0", "c1"]
    )
    for refusal in costs:
        assert refusal.reason.startswith("would not pay: estimated ")
        assert f"(profile {CPU.name})" in refusal.reason
        assert "us before and" in refusal.reason


def test_a_free_device_takes_everything() -> None:
    """Where only dispatches cost, every region that saves nodes pays."""
    free = replace(CPU, dispatch_us=1.0, lane_us=0.0, image_us=0.0, fuses_linear=False)
    free = replace(free, gflops=1e9, weights_gb_s=1e9, repack_gb_s=1e9, rows_gflops=1e9)
    free = replace(free, stream_gb_s=1e9, move_gb_s=1e9)
    analysis = analysed(committed("grouped_mlp"))
    assert modelled_plan(analysis, anything, free).plan.groups


@pytest.mark.parametrize("name", COMMITTED)
def test_a_plan_numbers_its_regions_from_zero(name: str) -> None:
    """Regions are numbered in the order of their first group; of_region gives them back."""
    groups = modelled_plan(analysed(committed(name)), anything, None).plan.groups
    numbers_ = region_numbers(groups)
    assert numbers_ == list(range(len(numbers_)))
    assert sum(len(of_region(groups, n)) for n in numbers_) == len(groups)
    seen: list[int] = []
    for group in groups:
        if group.region not in seen:
            seen.append(group.region)
    assert seen == numbers_


def test_the_least_region_saves_the_fewest_nodes() -> None:
    """Sites are regions by body and number; the least is the one whose groups save the fewest nodes."""
    plan = modelled_plan(analysed(two_regions()), anything, None).plan
    assert [(g.size, g.region) for g in plan.groups] == [(3, 0), (3, 0), (2, 1)]
    assert {site: len(groups) for site, groups in sites(plan).items()} == {("", 0): 2, ("", 1): 1}
    assert least(plan) == ("", 1)


def test_regions_can_be_taken_back() -> None:
    """What is left is planned as if the others had never been; their heavy nodes are refused."""
    analysis = analysed(two_regions())
    plan = modelled_plan(analysis, anything, None).plan
    first = without(analysis, plan, [("", 1)], "S303", "too slow")
    assert [(g.size, g.region) for g in first.plan.groups] == [(3, 0), (3, 0)]
    assert Refusal("S303", "too slow", ("c0", "c1")) in first.plan.refusals
    assert first.rewritten is not None
    second = without(analysis, first.plan, [least(first.plan)], "S304", "too large")
    assert (second.plan.groups, second.rewritten) == ((), None)
    assert {(r.code, r.reason) for r in second.plan.refusals} == {
        ("S303", "too slow"),
        ("S304", "too large"),
    }
    assert sum(len(r.nodes) for r in second.plan.refusals) == 8
    both = without(analysis, plan, [("", 0), ("", 1)], "S303", "too slow")
    assert (both.plan.groups, both.rewritten) == ((), None)
    assert [len(r.nodes) for r in both.plan.refusals] == [8]


def test_taking_back_keeps_every_refusal() -> None:
    """Reasons that were given before stay; equal ones are put together."""
    analysis = analysed(two_regions())
    before = (Refusal("S303", "too slow", ("z",)),)
    plan = replace(modelled_plan(analysis, anything, None).plan, refusals=before)
    left = without(analysis, plan, [("", 1)], "S303", "too slow").plan
    assert left.refusals == (Refusal("S303", "too slow", ("z", "c0", "c1")),)


def test_a_group_that_cannot_be_made_is_left_out_and_the_rest_made() -> None:
    """A group in an impossible form drops out with its reason; the other groups are still made."""
    text = (
        "(float[N,S,8] x, float[N,4] z) => (float[] y, float[] t) { p0, p1 = Split<axis=2>(x) "
        "a0 = MatMul(p0, w0) a1 = MatMul(p1, w1) y = Concat<axis=2>(a0, a1) c0 = MatMul(z, w0) "
        "c1 = MatMul(z, w1) t = Concat<axis=1>(c0, c1) }"
    )
    weights = {"w0": numbers(4, 4), "w1": numbers(4, 4, seed=1)}
    analysis = analysed(name_nodes(net(text, weights, opset=13)))
    _, groups = best_groups(analysis.circuit, anything)
    planned = tuple(replace(g, form="conv_t") if g.form == "stacked" else g for g in groups)
    refusals: list[Refusal] = []
    rewritten, left = made(analysis, planned, refusals)
    assert rewritten is not None
    assert [g.form for g in left] == ["wide"]
    assert [(r.code, r.nodes) for r in refusals] == [("S201", ("a0", "a1"))]
    assert refusals[0].reason.startswith("MatMul: ")


def test_light_groups_drop_out_in_silence() -> None:
    """A refusal stands for heavy nodes; a region without them has nothing to say."""
    analysis = analysed(two_regions())
    _, groups, _ = legal(analysis, anything)
    light = [g for g in groups if not is_heavy(g.units[0])]
    assert refuse(analysis, light, "S303", "slow") == []
    (refusal,) = refuse(analysis, groups, "S303", "slow")
    assert set(refusal.nodes) == nodes_of(analysis, groups)


def test_more_heavy_units_count_before_more_units() -> None:
    """A level function is better if it saves more heavy units, then more units."""
    _, groups = best_groups(analysed(committed("grouped_mlp")).circuit, anything)
    heavy = [g for g in groups if is_heavy(g.units[0])]
    light = [g for g in groups if not is_heavy(g.units[0])]
    assert saved(groups) == (36, 72)
    assert saved(heavy[:2]) > saved([heavy[0], *light])


def test_new_nodes_are_left_alone_by_the_next_run() -> None:
    """Batched nodes are marked, and a marked node is in no group again."""
    proto = onnx_sched.optimize(two_regions(), choose="always", check=False).proto
    marked = [n for n in proto.graph.node if any(p.key == MEMBERS for p in n.metadata_props)]
    assert {n.op_type for n in marked} >= {"MatMul"}
    again = onnx_sched.optimize(proto, choose="always", check=False)
    assert (again.report.status, again.plan.groups) == ("unchanged", ())


# -- variants ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["grouped_mlp_norm", "critic_ensemble", "mmoe", "conv_towers"])
def test_forms_are_chosen_by_kind(name: str) -> None:
    """The first form is the plainest; groups of one kind take one form; what is separate is left out."""
    circuit = analysed(committed(name)).circuit
    _, groups = best_groups(circuit, anything)
    assert formed(groups, {}, circuit) == groups
    for group in groups:
        assert forms(group, circuit)[0] == group.form
        chosen = {kind_key(group, circuit): forms(group, circuit)[-1]}
        found = formed(groups, chosen, circuit)
        alike = [g for g in groups if kind_key(g, circuit) == kind_key(group, circuit)]
        if forms(group, circuit)[-1] == SEPARATE:
            assert [g.units for g in found] == [g.units for g in groups if g not in alike]
        else:
            assert {g.form for g in found if any(g.units == a.units for a in alike)} == {
                forms(group, circuit)[-1]
            }


def test_a_wide_group_can_fall_into_its_parts() -> None:
    """Parts of one product are groups of equal shapes; single members are none."""
    text = (
        "(float[N,5] x) => (float[] a0, float[] a1, float[] a2, float[] a3, float[] a4) { "
        + " ".join(f"a{k} = MatMul(x, w{k})" for k in range(5))
        + " }"
    )
    widths = (4, 3, 4, 2, 3)
    model = net(text, {f"w{k}": numbers(5, n, seed=k) for k, n in enumerate(widths)})
    circuit = analysed(model).circuit
    _, groups = best_groups(circuit, anything)
    parts = formed(groups, {kind_key(groups[0], circuit): "parts"}, circuit)
    assert sorted(tuple(u.outputs[0] for u in g.units) for g in parts) == [
        ("a0", "a2"),
        ("a1", "a4"),
    ]
    assert {(g.form, g.segments) for g in parts} == {("wide", ())}


@pytest.mark.parametrize("trials", [1, 3, 40])
def test_an_explorer_tries_no_more_than_it_may(trials: int) -> None:
    """Variants are made at most as often as allowed, each once; the best are sorted by their estimates."""
    analysis = analysed(committed("grouped_mlp_norm"))
    _, groups, _ = legal(analysis, anything)
    explorer = Explorer(analysis, groups, CPU, trials)
    plain = explorer.plain()
    assert plain is not None
    assert plain.groups == groups
    best = explorer.best(3)
    assert explorer.best(3) == best
    assert 1 <= len(best) <= min(trials, 6)
    ranked = [v.score for v in best[:3]]
    assert ranked == sorted(ranked)
    seen = {tuple((g.units[0].number, g.form) for g in v.groups) for v in best}
    assert len(seen) == len(best)
    for variant in best:
        assert {g.form for g in variant.groups if g.kind == LINEAR} <= {
            "stacked",
            "conv_t",
            "grouped_conv",
            "grouped_conv_1d",
        }


@pytest.mark.parametrize("name", ["per_feature", "headlocal_transformer"])
def test_the_best_of_each_size_gets_its_chance(name: str) -> None:
    """Among the candidates is what is best at batch 1, and what is best at batch 32."""
    analysis = analysed(committed(name))
    _, groups, _ = legal(analysis, anything)
    explorer = Explorer(analysis, of_region(groups, groups[0].region), CPU, 40)
    every, few = explorer.best(40), explorer.best(1)
    for size in every[0].costs.sizes:
        least = min(v.costs.log_ratio(size) for v in every)
        assert least in [v.costs.log_ratio(size) for v in few]


def test_a_region_of_regions_keeps_its_order() -> None:
    """Numbering regions again changes nothing but the numbers."""
    analysis = analysed(two_regions())
    _, groups = best_groups(analysis.circuit, anything)
    odd = tuple(replace(g, region=7 + g.region) for g in groups)
    assert regions(odd) == groups
    assert Plan(groups).groups == groups


def test_what_a_kept_region_leaves_apart_says_so() -> None:
    """Products that the best form runs one by one are not said to be unlike, or to lie apart."""
    analysis = analysed(committed("grouped_mlp"))
    _, groups = best_groups(analysis.circuit, anything)
    region = of_region(groups, groups[0].region)
    heavy = [g for g in region if g.kind == LINEAR]
    (refusal,) = left_apart(analysis, region, [g for g in region if g is not heavy[0]])
    assert refusal.code == "S303"
    assert refusal.nodes == analysis.circuit.labels(heavy[0].units)
    assert "one by one" in refusal.reason
    assert left_apart(analysis, region, ()) == left_apart(analysis, region, region) == []
