"""`Places`: how many sequences a replica runs at once, by the engine's limit and by the cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpeg.cost.generating.batch import Batch
from rpeg.cost.generating.capacity import Pool
from rpeg.errors import InfeasibleError
from rpeg.units import bytes_text

_NODES = 64


@dataclass(frozen=True)
class Places:
    """count: sequences at once.

    preempted: of each replica, samples that are admitted at first and lose their cache when it runs full.
    preempted_tokens: tokens that each of them has to be prefilled again with.
    """

    count: int
    preempted: int = 0
    preempted_tokens: float = 0.0


def places(batch: Batch, pool: Pool, sharing: int, limit: int, groups: int) -> Places:
    """Places of each replica.

    sharing: samples that hold one prompt together. limit: of the engine. groups: of ranks with a pool of their own.
    An engine admits while prompts fit. As sequences grow the cache runs full: the youngest are preempted and
    prefilled again later, and from then on it holds as many sequences as their mean holding lets it.
    InfeasibleError where not even the longest sample fits.
    """
    longest = int((batch.prompts + batch.responses).max())
    _fits(pool, longest, groups)
    limit = min(limit, batch.most)
    if limit * pool.held(longest) <= pool.size_bytes:
        return Places(limit)
    lengths = batch.responses[batch.responses > 0].astype(np.float64)
    prompts = batch.prompts[batch.responses > 0] / sharing
    if len(lengths) == 0:
        return Places(limit)
    prompt = float(prompts.mean())
    if batch.most <= limit and _peak(lengths, prompt, pool, batch) <= pool.size_bytes:
        return Places(limit)
    held = float(np.average(pool.held(prompts + lengths / 2), weights=lengths))
    count = max(1, min(limit, int(pool.size_bytes / held)))
    admitted = max(count, min(limit, int(pool.size_bytes / pool.held(prompt))))
    grown = max(0.0, (pool.size_bytes / admitted - pool.held(prompt)) / max(pool.token_bytes, 1.0))
    return Places(count, admitted - count, prompt + grown)


def _peak(lengths: np.ndarray, prompt: float, pool: Pool, batch: Batch) -> float:
    """Most bytes that samples which all start at once hold together, of a replica with its mean share of them."""
    at = np.sort(lengths)
    running = 1.0 - np.arange(_NODES) / _NODES
    when = at[(np.arange(_NODES) * len(at)) // _NODES]
    return float(np.max(running * pool.held(prompt + when))) * batch.most


def _fits(pool: Pool, longest: int, groups: int) -> None:
    own = pool.size_bytes / groups
    if pool.held(longest) > own:
        raise InfeasibleError(
            f"generate: a sample of {longest} tokens holds {bytes_text(pool.held(longest))} of cache on each device,"
            f" {bytes_text(own)} are there: raise tp or pp, or shorten prompts or responses"
        )
