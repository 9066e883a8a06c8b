"""Plans as files: what was decided once is done again, byte for byte, without measuring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onnx_sched.analysis import Analysis
from onnx_sched.bodies import bodies
from onnx_sched.circuit import Circuit, Unit
from onnx_sched.errors import UsageError
from onnx_sched.plan import Group, Plan, Refusal

VERSION = "1"


def to_json(plan: Plan, nonempty: bool) -> str:
    """A plan as text.  Units are known by the first value that they make."""
    data: dict[str, Any] = {
        "schema_version": VERSION,
        "nonempty": nonempty,
        "inlined": [list(function) for function in plan.inlined],
        "groups": [_row(group) for group in plan.groups],
        "bodies": [
            {"body": label, "groups": [_row(group) for group in body.groups]}
            for label, body in plan.bodies
        ],
        "refusals": [
            {"code": r.code, "reason": r.reason, "nodes": list(r.nodes)} for r in plan.refusals
        ],
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _row(group: Group) -> dict[str, Any]:
    return {
        "members": [name_of(u) for u in group.units],
        "kind": group.kind,
        "form": group.form,
        "level": group.level,
        "region": group.region,
        "segments": list(group.segments),
    }


def name_of(unit: Unit) -> str:
    """What identifies a unit in a model: the first value that it makes."""
    return next(o for o in unit.outputs if o)


def read(path: Path) -> dict[str, Any]:
    """Read a plan file.

    Raises:
        UsageError: If it cannot be read, or is no plan.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(
            f"--plan {path}: {error.strerror}", "Name a file that --save-plan wrote."
        ) from None
    except ValueError:
        raise UsageError(
            f"--plan {path} is not JSON", "Name a file that --save-plan wrote."
        ) from None
    if not isinstance(data, dict) or data.get("schema_version") != VERSION or "groups" not in data:
        raise UsageError(
            f"--plan {path} is no plan of this version", "Make it anew with --save-plan."
        )
    return data


def to_plan(data: dict[str, Any], analysis: Analysis, path: Path) -> Plan:
    """The plan of a file, for a model.

    Raises:
        UsageError: If the plan was made for another model.
    """
    try:
        groups = _groups(data, analysis.circuit)
        rows = data.get("bodies", ())
        circuits = {b.label: b.analysis.circuit for b in bodies(analysis)} if rows else {}
        inner = tuple((row["body"], Plan(_groups(row, circuits[row["body"]]))) for row in rows)
        refusals = tuple(
            Refusal(r["code"], r["reason"], tuple(r["nodes"])) for r in data["refusals"]
        )
    except (KeyError, TypeError, IndexError) as error:
        raise UsageError(
            f"--plan {path} was made for another model: it has no group of {error}",
            "Make a plan for this model with --save-plan.",
        ) from None
    return Plan(groups, (), refusals, inner, inlined(data))


def inlined(data: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The functions whose calls give way to their nodes before the plan applies."""
    return tuple((str(domain), str(name)) for domain, name in data.get("inlined", ()))


def _groups(data: dict[str, Any], circuit: Circuit) -> tuple[Group, ...]:
    return tuple(_group(row, circuit) for row in data["groups"])


def _group(row: dict[str, Any], circuit: Circuit) -> Group:
    """A group of a file; KeyError if the model has no such units."""
    units = tuple(circuit.maker[name] for name in row["members"])
    distinct = len({u.number for u in units}) == len(units)
    if not distinct or any(u.kind != row["kind"] for u in units):
        raise KeyError(row["members"][0])
    return Group(units, row["form"], row["level"], row["region"], tuple(row["segments"]))
