"""Logits at the loss: one line a copy, each with its dtype, as they are often what peaks."""

from __future__ import annotations

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution
from rpeg.cost.memory.breakdown import Line
from rpeg.cost.precision import BYTES_OF
from rpeg.cost.traits import MemoryTraits


def logit_lines(
    architecture: Architecture,
    execution: Execution,
    traits: MemoryTraits,
    scored: float,
    heads: tuple[str, ...] = ("lm",),
    *,
    gradient: bool = True,
) -> list[Line]:
    """Copies of the logits of a micro-batch that live at once. Shape: scored tokens × vocabulary / tp.

    scored: tokens of a micro-batch on this device whose logits are needed. Chunked, only those of a chunk live at
    once (what the backward pass needs is computed with them). A value head has one float32 a token.
    """
    if "lm" not in heads:
        return [Line("values float32", scored * 4 * (2 if gradient else 1))]
    tokens = min(scored, traits.chunk_tokens) if execution.logits == "chunked" else scored
    numbers = tokens * architecture.vocabulary / execution.parallelism.tp
    names = ("logits", "logits", "log-probabilities", "gradient of logits")
    dtypes = traits.logit_copies.split()[: len(names) if gradient else len(names) - 1]
    return [
        Line(f"{name} {dtype}", numbers * BYTES_OF[dtype], "block")
        for name, dtype in zip(names[: len(dtypes)], dtypes, strict=True)
    ]
