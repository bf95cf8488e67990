"""Passes over prompts: before decoding starts, and of samples that enter later."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rpeg.cost.generating.forward import Forward, Leaf
from rpeg.cost.generating.load import Load
from rpeg.cost.kernels import Amount

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Prompts:
    """Tokens to prefill, pairs of tokens that attend, and prompts; numbers or (replicas,) arrays."""

    tokens: Amount
    pairs: Amount
    count: Amount


def together(forward: Forward, prompts: Prompts, crowding: Amount = 1.0) -> list[Leaf]:
    """Prompts one budget of tokens after another, with no sequence running beside them.

    crowding: tokens of the busiest attention group over the mean.
    """
    budget = forward.serving.prompt_budget * forward.layout.attention_dp / crowding
    if isinstance(prompts.tokens, float) and isinstance(budget, float | int):
        passes: Any = max(1.0, float(math.ceil(prompts.tokens / budget)))
        some: Any = passes if prompts.tokens > 0 else 0.0
    else:
        passes = np.maximum(1.0, np.ceil(np.asarray(prompts.tokens) / budget))
        some = np.where(np.asarray(prompts.tokens) > 0, passes, 0.0)
    load = Load(
        prompt_tokens=prompts.tokens / passes,
        pairs=prompts.pairs / passes,
        outputs=prompts.count / passes,
        crowding=crowding,
    )
    return [leaf.times(some) for leaf in forward.leaves(load)]


def between(
    forward: Forward, length: float, rows: Amount, context: float, a_step: Amount
) -> tuple[list[Leaf], Amount]:
    """What prompts of `length` tokens add while `rows` sequences run, and how often.

    a_step: prompts that come in a step on average. Returns leaves of the time that one addition takes, and how many
    additions each prompt makes: prompts that come to several attention groups in one step are processed together,
    by each group its own, and the step takes as long as the busiest group; some engines wait until every group has one.
    rows, a_step: numbers or arrays alike.
    """
    groups = forward.layout.attention_dp
    came = np.maximum(a_step, 1e-9)
    at_once = 1.0 if groups == 1 else came / -np.expm1(-came)
    if forward.serving.balanced:
        at_once = np.maximum(at_once, groups)
    tokens, crowding = length * at_once, np.maximum(1.0, groups / at_once)
    if not forward.serving.mixed:
        return together(forward, Prompts(tokens, tokens * length / 2, at_once), crowding), 1 / at_once
    room = np.maximum(1.0, forward.serving.prompt_budget - rows / groups) * np.minimum(groups, at_once)
    passes = np.ceil(tokens / room)
    chunk = tokens / passes
    mixed = Load(rows, context, chunk, chunk * length / 2, rows + at_once / passes, crowding)
    alone = {leaf.name: leaf for leaf in forward.leaves(Load(rows, context, 0.0, 0.0, rows))}
    return [_minus(leaf, alone.get(leaf.name), passes) for leaf in forward.leaves(mixed)], 1 / at_once


def _minus(leaf: Leaf, other: Leaf | None, factor: Amount) -> Leaf:
    if other is None:
        return leaf.times(factor)
    return Leaf(
        leaf.name,
        leaf.bound,
        np.maximum(0.0, leaf.seconds - other.seconds) * factor,
        np.maximum(0.0, leaf.flops - other.flops) * factor,
        np.maximum(0.0, leaf.bytes - other.bytes) * factor,
        leaf.measured,
        leaf.balance,
    )
