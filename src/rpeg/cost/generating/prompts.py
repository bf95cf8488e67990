"""Passes over prompts: before decoding starts, and of samples that enter later."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rpeg.cost.generating.forward import Forward, Leaf
from rpeg.cost.generating.load import Load, prefill
from rpeg.cost.kernels import Amount

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Prompts:
    """Tokens to prefill, pairs of tokens that attend, and prompts; numbers or (replicas,) arrays."""

    tokens: Amount
    pairs: Amount
    count: Amount


def together(forward: Forward, prompts: Prompts) -> list[Leaf]:
    """Prompts one budget of tokens after another, with no sequence running beside them."""
    budget = forward.serving.prompt_budget * forward.layout.attention_dp
    passes = np.maximum(1.0, np.ceil(np.asarray(prompts.tokens) / budget))
    load = prefill(prompts.tokens / passes, prompts.pairs / passes, prompts.count / passes)
    some = np.asarray(prompts.tokens) > 0
    return [_times(leaf, np.where(some, passes, 0.0)) for leaf in forward.leaves(load)]


def between(forward: Forward, length: float, rows: float, context: float) -> list[Leaf]:
    """What one prompt of `length` tokens adds while `rows` sequences run: to their steps, or as passes of its own."""
    if length <= 0:
        return []
    pairs = length * length / 2
    if not forward.serving.mixed or rows <= 0:
        return together(forward, Prompts(length, pairs, 1.0))
    dp = forward.layout.attention_dp
    room = max(1.0, forward.serving.prompt_budget - rows / dp)
    passes = float(np.ceil(length / room))
    # A prompt runs on one attention group; the pass takes as long as that group does.
    mixed = Load(rows, context, length / passes * dp, pairs / passes * dp, rows + dp / passes)
    alone = {leaf.name: leaf for leaf in forward.leaves(Load(rows, context, 0.0, 0.0, rows))}
    return [_minus(leaf, alone.get(leaf.name), passes) for leaf in forward.leaves(mixed)]


def _times(leaf: Leaf, factor: Amount) -> Leaf:
    return Leaf(
        leaf.name, leaf.bound, leaf.seconds * factor, leaf.flops * factor, leaf.bytes * factor, leaf.measured
    )


def _minus(leaf: Leaf, other: Leaf | None, factor: float) -> Leaf:
    if other is None:
        return _times(leaf, factor)
    return Leaf(
        leaf.name,
        leaf.bound,
        np.maximum(0.0, leaf.seconds - other.seconds) * factor,
        np.maximum(0.0, leaf.flops - other.flops) * factor,
        np.maximum(0.0, leaf.bytes - other.bytes) * factor,
        leaf.measured,
    )
