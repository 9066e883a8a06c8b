"""The refusal codes: what each means, a model that shows it, and what to change in a model.

The examples are models in ONNX's text form, with the shapes of their weights; the tests build each of
them and see the code come out.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from onnx_sched.errors import UsageError

Shapes = tuple[tuple[str, tuple[int, ...]], ...]

FAMILIES: Mapping[str, str] = {
    "1": "cannot: running these nodes as one would compute something else, or nobody knows how",
    "2": "too little is known: the model does not say enough to be sure",
    "3": "would not pay: it can be done, but it would not be faster",
    "4": "asked not to",
    "9": "limits",
}
"""What the first digit says."""


@dataclass(frozen=True, slots=True)
class Code:
    """A refusal code.

    Attributes:
        code: Its name, stable from release to release.
        title: A few words.
        meaning: What it says, and why that stands in the way.
        advice: What to change, in the model or on the command line.
        example: The nodes of a model that shows it, in ONNX's text form; empty where words must do.
        weights: Names and shapes of the example's weights.
        flags: What must be asked for to see it.
    """

    code: str
    title: str
    meaning: str
    advice: str
    example: str = ""
    weights: Shapes = ()
    flags: str = ""

    @property
    def family(self) -> str:
        """What the first digit says."""
        return FAMILIES[self.code[1]]

    def to_dict(self) -> dict[str, object]:
        """As JSON."""
        return {
            "code": self.code,
            "family": self.family,
            "title": self.title,
            "meaning": self.meaning,
            "example": self.example,
            "weights": {name: list(shape) for name, shape in self.weights},
            "flags": self.flags,
            "advice": self.advice,
        }


_TWO = "(float[N,4] x, float[N,4] z)"
_SQUARES: Shapes = (("v", (4, 4)), ("w", (4, 4)))

_ALL = (
    Code(
        "S101",
        "not at one level",
        "Alike nodes wait for each other, or stand at different depths of the graph: when one could "
        "start, the other has run already or still waits. Only nodes of one level are put together, "
        "because that alone keeps the graph free of cycles.",
        "If one feeds the other, they are steps, not lanes: nothing is lost. If branches merely have "
        "different lengths (one has an extra Cast, Reshape or Identity), give all the same steps.",
        "(float[N,4] x) => (float[] y) { a = MatMul(x, v) b = Relu(a) y = MatMul(b, w) }",
        _SQUARES,
    ),
    Code(
        "S102",
        "no rule for this op, or for this use of it",
        "There is no batching rule for the op, or the rule does not cover how it is used here: "
        "computed axes or bounds where constants are needed, a second output that is read, an operand "
        "that is a vector, training mode.",
        "Change what the reason names: make that operand a constant, give a vector a second axis, use "
        "the plainer op, start from the model as it was before ONNX Runtime optimized and saved it. "
        "passes/README.md says how a rule is written.",
        "(float[4] x, float[4] z, float[4,4] u, float[4,4] v) => (float[] y, float[] q) "
        "{ y = MatMul(x, u) q = MatMul(z, v) }",
    ),
    Code(
        "S103",
        "shapes differ",
        "The nodes do the same, but on inputs or weights of different shapes; one batched node has "
        "one shape for all lanes. Sizes with different names count as different, even if they happen "
        "to be equal when the model runs.",
        "Where only the names of open sizes differ (N beside M) and the sizes are always equal, "
        "export with one name for them. Where numbers differ, give all lanes one width: pad "
        "the narrow ones with zeros.",
        f"{_TWO} => (float[] y, float[] q) {{ y = MatMul(x, v) q = MatMul(z, w) }}",
        (("v", (4, 6)), ("w", (4, 8))),
    ),
    Code(
        "S104",
        "element types differ",
        "Some lanes compute in another precision than the others.",
        "Convert all lanes to one element type before you export.",
        "(float[N,4] x, double[N,4] z, float[4,4] v, double[4,4] w) => (float[] y, double[] q) "
        "{ y = MatMul(x, v) q = MatMul(z, w) }",
    ),
    Code(
        "S105",
        "attributes differ",
        "The nodes are of one kind but set up differently: strides, an axis, an epsilon, an "
        "activation's slope. Attributes belong to the node, so that lanes cannot differ in them.",
        "Use one setting in all lanes where the difference is not meant.",
        "(float[N,2,8,8] x, float[N,2,8,8] z) => (float[] y, float[] q) "
        "{ y = Conv<strides = [1, 1]>(x, v) q = Conv<strides = [2, 2]>(z, w) }",
        (("v", (2, 2, 3, 3)), ("w", (2, 2, 3, 3))),
    ),
    Code(
        "S106",
        "weight not constant",
        "In some lanes the weight is a constant, in others it is computed or fed (an initializer "
        "that is also a graph input can be fed). Weights are stacked once, when the model is "
        "rewritten; what is computed would have to be stacked in every run.",
        "Export the weights as initializers that are not graph inputs (in PyTorch: "
        "keep_initializers_as_inputs=False), and fold constants.",
        "(float[N,4] x, float[N,4] z, float[4,4] u) => (float[] y, float[] q) "
        "{ y = MatMul(x, v) q = MatMul(z, u) }",
        (("v", (4, 4)),),
    ),
    Code(
        "S201",
        "a size is known only at run time",
        "Putting lanes together, or taking them apart, needs a Reshape, Split or Expand whose sizes "
        "the model does not tell: they are computed, or two open sizes meet on one axis.",
        "Make the sizes constants, or leave one open size at most (the batch), then export again.",
        "(float[B,S,8] x, float[B,S,8] z, int64[3] s) => (float[] y, float[] q) "
        "{ a = MatMul(x, v) b = MatMul(z, w) y = Expand(a, s) q = Expand(b, s) }",
        (("v", (8, 8)), ("w", (8, 8))),
    ),
    Code(
        "S202",
        "a shape is not known",
        "The shape or the rank of a value that the nodes read or make cannot be inferred, so that "
        "nobody can say whether they are alike.",
        "Give the graph's inputs shapes with their rank (open sizes by name are fine), and avoid "
        "custom ops in front of the nodes; ONNX Runtime's own (FusedGemm, FusedConv) are not there yet in "
        "the model that it optimized.",
        "(float[] x, float[] z) => (float[] y, float[] q) { y = MatMul(x, v) q = MatMul(z, w) }",
        _SQUARES,
    ),
    Code(
        "S204",
        "opset not known",
        "The model uses a version of the ONNX operators whose forms this release has not been tried "
        "with, so that nothing is touched.",
        "Convert the model (onnx.version_converter), export it with an opset in the range that the "
        "reason names, or take a newer release.",
        f"{_TWO} => (float[] y, float[] q) {{ y = MatMul(x, v) q = MatMul(z, w) }}",
        _SQUARES,
        "an opset of 6",
    ),
    Code(
        "S301",
        "inputs come from different places",
        "The node is like others that run as one, but its input comes from elsewhere: bringing it "
        "together with theirs would cost a copy in every run, more than the batched node saves.",
        "Nothing is wrong. If all should read one tensor, let them do so in the model.",
        f"{_TWO} => (float[] a, float[] b, float[] c) "
        "{ a = MatMul(x, u) b = MatMul(x, v) c = MatMul(z, w) }",
        (("u", (4, 4)), *_SQUARES),
    ),
    Code(
        "S302",
        "no one node can run them all",
        "The nodes are alike, but no layout suits all operands (lanes would have to be taken apart and "
        "interleaved, and those copies eat what batching saves), or the op has no form in which lanes "
        "differ in this: a zero point, a scale, packed weights, an old opset. The reason says which.",
        "Give the lanes separate inputs, use ungrouped ops within a lane, quantize all lanes with one scale "
        "and zero point where the reason names these, or export with a newer opset.",
        "(float[N,4,8,8] x) => (float[] a, float[] b) "
        "{ a = ConvTranspose<group = 2>(x, v) b = ConvTranspose<group = 2>(x, w) }",
        (("v", (4, 2, 3, 3)), ("w", (4, 2, 3, 3))),
    ),
    Code(
        "S303",
        "would not pay",
        "It can be done and was tried, in a race on this machine or in the cost model, and it was "
        "not faster under all conditions: sizes, numbers of threads, the whole model. The reason "
        "gives the figures.",
        "Ask for the sizes and threads that you serve (--dim batch=32 --threads 1): then only these "
        "count. --choose always takes it regardless.",
        "(float[N,256] x, float[N,256] z) => (float[] y, float[] q) "
        "{ y = MatMul(x, v) q = MatMul(z, w) }",
        (("v", (256, 256)), ("w", (256, 256))),
        "--choose model",
    ),
    Code(
        "S304",
        "takes too much memory",
        "All lanes of a batched node are alive at once; the peak of activations would grow beyond "
        "what --max-activation allows.",
        "Allow more with --max-activation 2, or serve smaller batches.",
    ),
    Code(
        "S305",
        "would lose a fusion",
        "ONNX Runtime runs a whole attention block as one node where it finds separate products for "
        "query, key and value. With these made one, it did not, and the fused node is worth more. It "
        "runs a product on integers where what it reads is dequantised right before it; with lanes "
        "taken apart or brought together in between it would not, or would round what it did not.",
        "Nothing: the runtime does better by itself here.",
    ),
    Code(
        "S306",
        "weight of blocks",
        "The weight is zero but for blocks along its diagonal. The blocks could run as one batched "
        "node without the zeros, but the zeros carry NaN and infinities from one block to the "
        "others, and that would change.",
        "Where no value is ever NaN or infinite, promise it: --assume-finite.",
    ),
    Code(
        "S401",
        "you asked not to",
        "--skip-op or --skip-node names these nodes, or --skip-pass the rule for them.",
        "Take the flag away.",
        f"{_TWO} => (float[] y, float[] q) {{ y = MatMul(x, v) q = MatMul(z, w) }}",
        _SQUARES,
        "--skip-op MatMul",
    ),
    Code(
        "S402",
        "batched already",
        "The nodes were made by an earlier run (they bear the note onnx_sched.members) and are left "
        "as they are.",
        "To decide anew, start from the original model.",
    ),
    Code(
        "S900",
        "out of time",
        "The time for measuring was over before the turn of these nodes came, or before their race was "
        "decided; what is not measured is not changed.",
        "Give it longer with --time-limit 300, or decide without measuring: --choose model.",
        f"{_TWO} => (float[] y, float[] q) {{ y = MatMul(x, v) q = MatMul(z, w) }}",
        _SQUARES,
        "--time-limit 0",
    ),
    Code(
        "S901",
        "nothing could be measured",
        "ONNX Runtime does not run the original here, or no output had a value to compare (an empty "
        "batch, say). What is neither compared nor raced is not changed.",
        "Give sizes or inputs at which the model runs and computes something (--dim, --shape, "
        "--inputs), mend the model if it does not load, or decide without measuring: --choose model.",
        f"{_TWO} => (float[] y, float[] q, float[] r) {{ y = MatMul(x, v) q = MatMul(z, w) "
        "r = Mull(x, z) }",
        _SQUARES,
        "--choose measured",
    ),
)

CODES: Mapping[str, Code] = {code.code: code for code in _ALL}
"""All codes by name, ascending."""


def looks_like_code(text: str) -> bool:
    """Whether somebody who wrote this meant a code, well or badly spelled.

    >>> looks_like_code("s103"), looks_like_code("S1O3"), looks_like_code("model.onnx")
    (True, True, False)
    """
    return re.fullmatch(r"[A-Za-z]{0,2}[0-9OoIl]{2,4}", text) is not None


def lookup(text: str) -> Code:
    """The code of a name, upper or lower case.

    Raises:
        UsageError: If there is no such code; it says which are close.
    """
    name = text.upper()
    if name in CODES:
        return CODES[name]
    spelled = name.replace("O", "0").replace("I", "1").replace("L", "1")
    swapped = [code for code in CODES if sorted(code) == sorted(spelled)]
    close = swapped or difflib.get_close_matches(spelled, list(CODES), n=3, cutoff=0.7)
    close = [spelled] if spelled in CODES else close
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    raise UsageError(f"{text}: there is no such code", f"{hint}`onnx-sched explain` lists all.")


def short(code: str) -> str:
    """A few words on a code; nothing for one that is not documented."""
    return CODES[code].title if code in CODES else ""
