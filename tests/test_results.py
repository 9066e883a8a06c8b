"""What README says was measured stands among the results."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
SPEED_UP = re.compile(r"\d+\.\d\dx")


def test_every_speed_up_of_the_readme_was_measured() -> None:
    """A number that is quoted there is one of models/RESULTS.md: measured anew, both change."""
    quoted = set(SPEED_UP.findall((ROOT / "README.md").read_text("utf-8")))
    measured = set(SPEED_UP.findall((ROOT / "models" / "RESULTS.md").read_text("utf-8")))
    assert quoted
    assert quoted <= measured
