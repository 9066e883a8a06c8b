"""Ensembles in torch, written twice: member by member, and as `vmap` of one member over stacked weights.

Needs the `export` extra. The second form is what a person would write who knows that the members are
alike; its export is what the first form's is held against.
"""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable, Sequence

import onnx
import torch
from torch import nn
from torch.nn import functional

WIDTH, HIDDEN, MEMBERS = 16, 32, 4


class Mlp(nn.Module):  # type: ignore[misc, unused-ignore]
    """Two maps with a LayerNorm and a Gelu between: `[batch, WIDTH]` to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One member."""
        result: torch.Tensor = self.down(functional.gelu(self.norm(self.up(x))))
        return result


class Attention(nn.Module):  # type: ignore[misc, unused-ignore]
    """A head of attention and a feed-forward: `[batch, seq, WIDTH]` to `[batch, seq, WIDTH / 2]`."""

    def __init__(self) -> None:
        super().__init__()
        size = WIDTH // 2
        self.query, self.key, self.value = (nn.Linear(WIDTH, size) for _ in range(3))
        self.up, self.down = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)
        self.scale = float(size) ** -0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One member."""
        scores = self.query(x) @ self.key(x).transpose(-1, -2) * self.scale
        mixed = torch.softmax(scores, -1) @ self.value(x)
        result: torch.Tensor = mixed + self.down(torch.relu(self.up(mixed)))
        return result


class OneByOne(nn.Module):  # type: ignore[misc, unused-ignore]
    """Members as anybody writes them: a list and a loop; `[MEMBERS, ...]`."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All members on one input."""
        return torch.stack([member(x) for member in self.members])


class Vmapped(nn.Module):  # type: ignore[misc, unused-ignore]
    """The same members as one function over stacked weights."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        weights, _ = torch.func.stack_module_state(list(members))
        self.names = list(weights)
        self.weights = nn.ParameterList([weights[name].detach() for name in self.names])
        self.bare = [copy.deepcopy(members[0]).to("meta")]  # in a list: its weights are not ours

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All members on one input."""

        def member(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = torch.func.functional_call(self.bare[0], weights, (x,))
            return found

        stacked = dict(zip(self.names, self.weights, strict=True))
        result: torch.Tensor = torch.func.vmap(member, (0, None))(stacked, x)
        return result


class Mixture(nn.Module):  # type: ignore[misc, unused-ignore]
    """A gated sum of members, term by term or as one product and one sum."""

    def __init__(self, members: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        self.inner, self.gate = members, gate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Mix what the members say of one input."""
        shares = torch.softmax(self.gate(x), -1)
        if isinstance(self.inner, Vmapped):
            return (self.inner(x) * shares.T.unsqueeze(-1)).sum(0)
        terms = [shares[:, k : k + 1] * m(x) for k, m in enumerate(self.inner.members)]
        result: torch.Tensor = sum(terms[1:], terms[0])
        return result


Pair = tuple[nn.Module, nn.Module, tuple[int, ...]]


def alone(kind: Callable[[], nn.Module], *shape: int) -> Pair:
    """Members of a kind in both forms, and the shape of an input behind the batch."""
    members = [drawn(kind()) for _ in range(MEMBERS)]
    return OneByOne(members), Vmapped(members), shape


def gated() -> Pair:
    """A mixture in both forms."""
    members = [drawn(Mlp()) for _ in range(MEMBERS)]
    gate = drawn(nn.Linear(WIDTH, MEMBERS))
    return Mixture(OneByOne(members), gate), Mixture(Vmapped(members), gate), (WIDTH,)


def drawn(module: nn.Module) -> nn.Module:
    """The module with random weights, those of norms too: no two members scale alike."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(torch.randn_like(weight) * (2.0 / weight.shape[-1]) ** 0.5)
    return module.eval()


PAIRS: dict[str, Callable[[], Pair]] = {
    "MLP with LayerNorm": lambda: alone(Mlp, WIDTH),
    "attention": lambda: alone(Attention, 5, WIDTH),
    "gated mixture": gated,
}


def exported(module: nn.Module, shape: Sequence[int], batch: int | None = None) -> onnx.ModelProto:
    """The module as torch exports it.

    Args:
        module: What to export.
        shape: Of an input, behind the batch.
        batch: Its size; None to leave it open, which torch cannot do with `vmap` in it.
    """
    target = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            (torch.randn(batch or 3, *shape),),
            dynamo=True,
            opset_version=20,
            dynamic_shapes=None if batch else ({0: torch.export.Dim("batch")},),
            verbose=False,
        )
        program.save(target)
    return onnx.load_from_string(target.getvalue())
