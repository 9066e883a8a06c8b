"""Plans as files: what was decided once is done again, byte for byte, without measuring."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from onnx_sched import plan_rows
from onnx_sched.analysis import Analysis
from onnx_sched.bodies import bodies
from onnx_sched.circuit import Circuit, Keep, Unit
from onnx_sched.errors import UsageError
from onnx_sched.options import BODIES, FUNCTIONS
from onnx_sched.plan import Group, Plan, Refusal
from onnx_sched.plan_check import check, check_sums
from onnx_sched.plan_rows import Part, short
from onnx_sched.sums import reductions

VERSION = "1"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the flags beside a plan ask to be left alone.

    Attributes:
        skips: Gives the test of whether a unit of a graph must stay as it is.
        unsummed: Which nodes must not become part of a sum over lanes.
        passes: Parts of the work that must be left out.
    """

    skips: Callable[[Circuit], Callable[[Unit], bool]]
    unsummed: Keep
    passes: Collection[str] = ()


def to_json(plan: Plan, nonempty: bool) -> str:
    """A plan as text.  Units are known by the first value that they make."""
    data: dict[str, Any] = {
        "schema_version": VERSION,
        "nonempty": nonempty,
        "inlined": [list(function) for function in plan.inlined],
        "cut": list(plan.cut),
        **_rows(plan),
        "bodies": [{"body": label, **_rows(body)} for label, body in plan.bodies],
        "refusals": [
            {"code": r.code, "reason": r.reason, "nodes": list(r.nodes)} for r in plan.refusals
        ],
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _rows(plan: Plan) -> dict[str, Any]:
    """The groups of one graph, the values of its sums over lanes, those in between, too, and the search."""
    sums = [name for r in plan.reductions for name in r.values]
    found = {} if plan.optimum is None else {"optimum": asdict(plan.optimum)}
    return {"groups": [_row(group) for group in plan.groups], "sums": sums, **found}


def _row(group: Group) -> dict[str, Any]:
    return {
        "members": [name_of(u) for u in group.units],
        "kind": group.kind,
        "form": group.form,
        "level": group.level,
        "region": group.region,
        "segments": list(group.segments),
        "summed": group.summed,
    }


def name_of(unit: Unit) -> str:
    """What identifies a unit in a model: the first value that it makes."""
    return next(o for o in unit.outputs if o)


def read(path: Path) -> dict[str, Any]:
    """Read a plan file.

    Raises:
        UsageError: If it cannot be read, is no plan, or holds a group that no model could have.
    """
    hint = "Name a file that --save-plan wrote."
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"--plan {path}: {error.strerror}", hint) from None
    except (ValueError, RecursionError):
        raise UsageError(f"--plan {path} is not JSON", hint) from None
    if not isinstance(data, dict) or data.get("schema_version") != VERSION or "groups" not in data:
        raise UsageError(
            f"--plan {path} is no plan of this version", "Make it anew with --save-plan."
        )
    plan_rows.check(data, path)
    return data


def unsummed(data: dict[str, Any]) -> Keep | None:
    """Which nodes are in no sum over lanes, as a file has it; None if it says nothing about sums."""
    if "sums" not in data:
        return None
    rows = (data, *data.get("bodies", ()))
    sums = frozenset(name for row in rows for name in row.get("sums", ()))
    return lambda node: sums.isdisjoint(node.output)


def inlined(data: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The functions whose calls give way to their nodes before the plan applies."""
    return tuple((domain, name) for domain, name in data.get("inlined", ()))


def to_plan(data: dict[str, Any], analysis: Analysis, path: Path, asked: Asked) -> Plan:
    """The plan of a file, for a model.

    Args:
        data: What `read` gave.
        analysis: The model, with the sums of the file.
        path: The file, for messages.
        asked: What must stay as it is.

    Raises:
        UsageError: If the plan was made for another model, or makes no sense for this one.
    """
    for key, name in (("inlined", FUNCTIONS), ("bodies", BODIES)):
        if data.get(key) and name in asked.passes:
            raise Part(path).wrong(f"has {key!r}, which --skip-pass {name} leaves alone")
    main = _graph_plan(data, analysis.circuit, Part(path), asked)
    rows = data.get("bodies", ())
    circuits = {b.label: b.analysis.circuit for b in bodies(analysis)} if rows else {}
    inner = []
    for row in rows:
        label = row["body"]
        if label not in circuits:
            raise Part(path, label).wrong("was made for another model: this one has no such body")
        inner.append((label, _graph_plan(row, circuits[label], Part(path, label), asked)))
    refusals = tuple(
        Refusal(r["code"], r["reason"], tuple(r["nodes"])) for r in data.get("refusals", ())
    )
    return replace(main, refusals=refusals, bodies=tuple(inner), inlined=inlined(data))


def _graph_plan(row: dict[str, Any], circuit: Circuit, part: Part, asked: Asked) -> Plan:
    """The groups and sums of one graph."""
    groups = tuple(_group(n, r, circuit, part) for n, r in enumerate(row["groups"]))
    check(circuit, groups, part, asked.skips(circuit))
    plan = Plan(groups, reductions(circuit, groups), optimum=plan_rows.optimum(row.get("optimum")))
    check_sums(circuit, plan, row.get("sums"), part, asked.unsummed)
    return plan


def _group(n: int, row: dict[str, Any], circuit: Circuit, part: Part) -> Group:
    """A group of a file, its members looked up in the model."""
    units = []
    for name in row["members"]:
        unit = circuit.maker.get(name)
        if unit is None or name_of(unit) != name or unit.kind != row["kind"]:
            what = f"was made for another model: no {short(row['kind'])} here makes {short(name)}"
            raise part.error(n, row["kind"], row["members"][0], what)
        units.append(unit)
    return Group(
        tuple(units),
        row["form"],
        row["level"],
        row["region"],
        tuple(row["segments"]),
        row.get("summed", False),
    )
