"""Golden screens: what commands print on committed models, word for word.

Times, and counts that belong to the runtime or the processor, are replaced by placeholders.  What may well
change when batching gets better (names of new nodes, the steps of a region) is left out of `explain`.
`python -m tests.screens` writes them anew, and the golden drawings, too; look at the difference before you
keep it.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from unittest.mock import patch

from click.testing import CliRunner

from onnx_sched.cli import cli
from onnx_sched.judge.doctor import Check

ROOT = Path(__file__).parent.parent
FOLDER = Path(__file__).parent / "golden" / "screens"

NAMED = ("grouped_mlp", "headlocal_transformer", "mmoe", "exported_transformer")
"""The two models that the tool was made for, a mixture of experts, and one that torch exported."""

ALL = "--choose always --provider cpu"
"""No race, and no look at the machine: the same everywhere."""

SCREENS = {
    **{f"optimize.{m}": f"optimize models/{m}.onnx -o out.onnx {ALL}" for m in NAMED},
    **{f"plan.{m}": f"plan models/{m}.onnx {ALL}" for m in NAMED},
    **{f"draw.{m}": f"draw models/{m}.onnx --width 100" for m in NAMED},
    "optimize.unchanged": f"optimize models/near_dynamic_dims.onnx -o out.onnx {ALL}",
    "plan.unchanged": f"plan models/near_dynamic_dims.onnx {ALL}",
    "plan.model": "plan models/grouped_mlp.onnx --choose model --provider cpu",
    "plan.target": "plan models/mmoe.onnx --target cuda-h100 --provider cpu",
    "draw.ascii": "draw models/mmoe.onnx --width 80 --ascii",
    "doctor": "doctor",
    "explain": "explain",
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
    "help": "--help",
    "help.plan": "plan --help",
    "error.command": "optimise models/mmoe.onnx",
    "error.option": "plan models/mmoe.onnx --chose model",
    "error.choice": "plan models/mmoe.onnx --choose measurd",
    "error.argument": "plan",
    "error.file": "plan models/mmo.onnx",
    "error.op": "plan models/mmoe.onnx --skip-op Gem",
    "error.node": "explain models/mmoe.onnx --node expert/Concat",
    "error.pass": "plan models/mmoe.onnx --skip-pass norm",
    "error.code": "explain S1O3",
}
"""Name of a screen, and the command that shows it, from the root of the repository."""

CHECKS = (
    Check("packages", "python", "ok", "3.12.1 on linux"),
    Check("packages", "onnx-sched", "ok", "1.0.0"),
    Check("packages", "onnx", "ok", "1.20.0"),
    Check("runtime", "onnxruntime", "ok", "onnxruntime-gpu 1.30.0"),
    Check("runtime", "CUDAExecutionProvider", "note", "does not run: no NVIDIA driver"),
    Check("runtime", "CPUExecutionProvider", "ok", "runs"),
    Check("cuda", "build", "ok", "for CUDA 13.0"),
    Check("cuda", "driver", "note", "no NVIDIA driver", "install the NVIDIA driver"),
    Check("cuda", "libraries", "note", "missing: libcudnn.so.9", "pip install 'onnx-sched[cuda]'"),
    Check("extras", "torch", "note", "not installed (counts kernels; exports models)"),
)
"""What `doctor` finds on a machine that is made up."""

VOLATILE = ("becomes", "region")

MASKS = (
    (r"\d+(\.\d+)? us\b", "# us"),
    (r"about \d+\.\d of", "about # of"),
    (r"\(\d+\.\d s\)", "(# s)"),
    (r"max abs \d\.\de[-+]\d\d", "max abs #"),
    (r"(node dispatches per run) .*", r"\1  #  after ORT's own fusions"),
    (r"(peak activations) .*", r"\1  #"),
    (r" +latency  .*", "  latency  #"),
)
"""What differs from run to run, from processor to processor, and from one runtime to the next."""


def screen(command: str) -> str:
    """What a command prints, paths of this machine left out."""
    with tempfile.TemporaryDirectory() as folder:
        places = {"models/": f"{ROOT}/models/", "out.onnx": f"{folder}/out.onnx"}
        words = command.split()
        for word, place in places.items():
            words = [place + w.removeprefix(word) if w.startswith(word) else w for w in words]
        with patch("onnx_sched.judge.doctor.examine", return_value=CHECKS):
            shown = CliRunner().invoke(
                cli, words, prog_name="onnx-sched", env={"COLUMNS": "160", "NO_COLOR": "1"}
            )
        text = shown.output.replace(f"{ROOT}/", "").replace(f"{folder}/", "")
    return masked(text, VOLATILE if words[0] == "explain" else ())


def masked(text: str, volatile: tuple[str, ...] = ()) -> str:
    """The screen with placeholders, and without the rows of volatile labels, further lines included."""
    lines: list[str] = []
    leaving = False
    for line in text.split("\n"):
        label = re.match(r"([a-z ]+?)  ", line)
        leaving = bool(label and label[1] in volatile) or (leaving and line.startswith("  "))
        if not leaving:
            lines.append(line)
    found = "\n".join(lines)
    for pattern, placeholder in MASKS:
        found = re.sub(pattern, placeholder, found)
    return found


def main() -> None:
    """Write all screens anew."""
    FOLDER.mkdir(exist_ok=True)
    for stale in FOLDER.glob("*.txt"):
        stale.unlink()
    for name, command in SCREENS.items():
        (FOLDER / f"{name}.txt").write_text(f"$ onnx-sched {command}\n{screen(command)}", "utf-8")


if __name__ == "__main__":
    from tests.test_drawing import renew

    main()
    renew()
