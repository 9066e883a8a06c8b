"""Optimise every test model that the onnx package makes (about 1,900): nothing may be lost.

    python -m scripts.check_lossless [--json FILE]

Each model is optimised as it is (a byte copy, or only what the plan says) and beside two products that
are always batched (all else identical field by field), and where ONNX Runtime runs it, the outputs must
be equal bit for bit.  Prints what is lost and a summary; exits 1 if anything is.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

from tests import backend_cases
from tests.backend_cases import Case
from tests.carrying import beyond_the_plan, lost_beside_a_batch, optimized, same_outputs
from tests.protodiff import differences


def look(case: Case, counts: Counter[str]) -> list[str]:
    """Everything that is wrong with one case; what was tried is counted."""
    result = optimized(case.model)
    counts["changed as it is" if result.changed else "copied"] += 1
    found = beyond_the_plan(case.model, result) if result.changed else []
    if not result.changed:
        found += differences(case.model, result.proto)
    if backend_cases.in_reach(case.model) and not result.changed:
        counts["carried beside a batch"] += 1
        found += lost_beside_a_batch(case.model)
    elif not result.changed:
        counts["operator set out of reach"] += 1
    ran = same_outputs(case)
    counts[f"outputs: {ran}"] += 1
    return found + (["other outputs"] if ran == "different" else [])


def main() -> int:
    """Try all, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    begin, counts = time.monotonic(), Counter[str]()
    cases = backend_cases.collect()
    lost: dict[str, list[str]] = {}
    for case in cases:
        found = look(case, counts)
        if found:
            lost[case.name] = found
            print(f"{case.name}: {'; '.join(found[:5])}")
    took = time.monotonic() - begin
    print(f"{len(cases)} models in {took:.0f} s: {dict(counts)}; {len(lost)} with losses")
    if given.json:
        given.json.write_text(
            json.dumps({"counts": counts, "lost": lost}, indent=1) + "\n", "utf-8"
        )
    return int(bool(lost) or not cases)


if __name__ == "__main__":
    sys.exit(main())
