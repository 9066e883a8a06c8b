"""`--skip-pass`: every part of the work can be left out by its name, and then it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from onnx import ModelProto

import onnx_sched
from onnx_sched.cli import cli
from onnx_sched.errors import UsageError
from onnx_sched.options import BODIES, FUNCTIONS, PASSES, SUMS
from onnx_sched.passes import rules
from tests.nets import COMMITTED, committed, net, numbers
from tests.test_bodies import branches, graph, plain
from tests.test_calls import MODELS as CALLS

FOLDER = Path(rules.__file__).parent


def ops(model: ModelProto, **options: object) -> list[str]:
    """The ops of the main graph when all is batched that is legal."""
    result = onnx_sched.optimize(model, choose="always", check=False, **options)  # type: ignore[arg-type]
    return [node.op_type for node in result.proto.graph.node]


def test_passes_are_the_modules_of_rules() -> None:
    """A pass is called like the module of its rules, and the page on passes lists it."""
    page = (FOLDER / "README.md").read_text("utf-8")
    for name in rules.PASSES:
        assert (FOLDER / f"{name}.py").exists()
        assert f"| `{name}` |" in page
    assert set(PASSES) == {*rules.PASSES, SUMS, BODIES, FUNCTIONS}


def test_the_tables_are_the_rules() -> None:
    """The tables of all passes together are the rules, for both domains."""
    for at, table in enumerate((rules.RULES, rules.CONTRIB)):
        assert {op for tables in rules.PASSES.values() for op in tables[at]} == set(table)


@pytest.mark.parametrize("name", COMMITTED)
def test_rules_left_out(name: str) -> None:
    """Without a pass nothing is batched that its rules serve; what else is may only get less."""
    model = committed(name)
    whole = onnx_sched.optimize(model, choose="always", check=False).plan
    used = {rules.pass_of(u) for g in whole.groups for u in g.units}
    for left_out in used:
        plan = onnx_sched.optimize(model, choose="always", check=False, skip_passes=[left_out]).plan
        assert left_out not in {rules.pass_of(u) for g in plan.groups for u in g.units}
    assert "" not in used


SUM = "(float[N,4] x) => (float[] y) { a = MatMul(x, u) b = MatMul(x, v) y = Add(a, b) }"


@pytest.mark.parametrize(
    "options", [{"skip_passes": [SUMS]}, {"skip_ops": ["Add"]}, {"skip_nodes": ["total"]}]
)
def test_sums_left_out(options: dict[str, object]) -> None:
    """Whoever asks for it keeps the Adds as they are: their order is that of the original."""
    model = net(SUM, {"u": numbers(4, 4), "v": numbers(4, 4, seed=1)})
    model.graph.node[2].name = "total"
    assert "ReduceSum" in ops(model)
    kept = ops(model, **options)
    assert "ReduceSum" not in kept
    assert kept.count("Add") == 1
    assert kept.count("MatMul") == 1


def test_bodies_left_out() -> None:
    """Without `bodies` a body stays as it is."""
    model = branches(plain(), graph("() => (float[N,4] z) { z = Identity(x) }"))
    assert onnx_sched.optimize(model, choose="always", check=False).changed
    assert not onnx_sched.optimize(
        model, choose="always", check=False, skip_passes=[BODIES]
    ).changed


def test_functions_left_out() -> None:
    """Without `functions` calls stay calls."""
    model = CALLS["flat"]
    assert "linear" not in ops(model)
    assert ops(model, skip_passes=[FUNCTIONS]) == [n.op_type for n in model.graph.node]


@pytest.mark.parametrize(("given", "hint"), [("norm", "Did you mean 'norms'?"), ("qq", "sums")])
def test_unknown(given: str, hint: str) -> None:
    """A pass that there is not is an error that names the one that was meant, or all."""
    with pytest.raises(UsageError, match="no such pass") as caught:
        onnx_sched.optimize(committed("mmoe"), check=False, skip_passes=[given])
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("flag", "code"), [("products", "S401"), ("elementwise", "batched:"), ("bodies", "batched:")]
)
def test_explain_obeys(flag: str, code: str) -> None:
    """`explain --node` takes the flag, too."""
    model = FOLDER.parent.parent / "models" / "mmoe.onnx"
    words = ["explain", str(model), "--node", "experts.0.0/Gemm", "--skip-pass", flag]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
    assert code in result.output


def test_explain_in_a_body(tmp_path: Path) -> None:
    """A node of a body that must stay as it is was not to be touched."""
    path = tmp_path / "m.onnx"
    model = branches(plain(), graph("() => (float[N,4] z) { z = Identity(x) }"))
    path.write_bytes(model.SerializeToString())
    words = ["explain", str(path), "--node", "m0"]
    assert "batched:" in CliRunner().invoke(cli, words).output
    assert "S401" in CliRunner().invoke(cli, [*words, "--skip-pass", "bodies"]).output
