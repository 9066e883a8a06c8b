"""A condition under which two models are timed, in words."""

from __future__ import annotations

from collections.abc import Sequence


def condition_label(
    dims: Sequence[tuple[str, int]],
    threads: int,
    cuda_graph: bool = False,
    input_set: int | None = None,
) -> str:
    """For people: `batch=1, 2 threads, CUDA graph`.

    >>> condition_label((("batch", 1),), 0, True), condition_label((), 1, input_set=3)
    ('batch=1, all threads, CUDA graph', 'input set 3, 1 thread')
    """
    sizes = [f"{name}={size}" for name, size in dims]
    if input_set is not None:
        sizes = [f"input set {input_set}"]
    count = f"{threads} thread{'' if threads == 1 else 's'}" if threads else "all threads"
    return ", ".join([*sizes, count, *(["CUDA graph"] if cuda_graph else [])])
