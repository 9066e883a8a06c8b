"""Golden screens: what commands print on committed models, word for word.

What may well change when batching gets better (names of new nodes, the steps of a region) is left out.
`python -m tests.screens` writes them anew; look at the difference before you keep it.
"""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from onnx_sched.cli import cli

ROOT = Path(__file__).parent.parent
FOLDER = Path(__file__).parent / "golden" / "screens"

SCREENS = {
    "explain.S103": "explain S103",
    "explain.grouped_mlp": "explain models/grouped_mlp.onnx --node layers.3.groups.1/MatMul",
    "explain.headlocal": "explain models/headlocal_transformer.onnx --node blocks.0.out/MatMul",
    "explain.mmoe": "explain models/mmoe.onnx --node experts/Concat",
    "explain.exported": "explain models/exported_transformer.onnx --node /blocks.0/heads.1/gelu/Erf",
    "explain.widths": "explain models/near_unequal_widths.onnx --node lanes.2.0/MatMul",
    "diff.same": "diff models/grouped_mlp.onnx models/grouped_mlp.onnx",
    "diff.grouped_mlp": "diff models/grouped_mlp.onnx models/grouped_mlp_norm.onnx",
    "diff.mmoe": "diff models/mmoe.onnx models/mmoe_norm.onnx",
    "diff.exported": "diff models/headlocal_transformer.onnx models/exported_transformer.onnx",
    "diff.default": "diff models/near_weight_input.onnx models/near_weight_default.onnx",
}
"""Name of a screen, and the command that shows it, from the root of the repository."""

VOLATILE = ("becomes", "region")


def screen(command: str) -> str:
    """What a command prints, paths of this machine left out."""
    words = [str(ROOT / w) if w.startswith("models/") else w for w in command.split()]
    result = CliRunner().invoke(cli, words, env={"COLUMNS": "160", "NO_COLOR": "1"})
    return masked(result.output.replace(f"{ROOT}/", ""))


def masked(text: str) -> str:
    """The screen without what may well change: the rows of volatile labels, with their further lines."""
    lines: list[str] = []
    leaving = False
    for line in text.split("\n"):
        label = re.match(r"([a-z ]+?)  ", line)
        leaving = bool(label and label[1] in VOLATILE) or (leaving and line.startswith("  "))
        if not leaving:
            lines.append(line)
    return "\n".join(lines)


def main() -> None:
    """Write all screens anew."""
    FOLDER.mkdir(exist_ok=True)
    for stale in FOLDER.glob("*.txt"):
        stale.unlink()
    for name, command in SCREENS.items():
        (FOLDER / f"{name}.txt").write_text(f"$ onnx-sched {command}\n{screen(command)}", "utf-8")


if __name__ == "__main__":
    main()
