"""Weights between workers: each rank of a trainer publishes its part, and a receiver takes of each what it holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from rpeg.backends.weights import Published, canary_tokens, check_canary
from rpeg.errors import RunError
from rpeg.runtime.holdings import Holding


@dataclass(frozen=True)
class Broadcast:
    """A rank's contribution to a version, with the trainer's log-probabilities of the canary prompt."""

    published: Published
    canary: Any


def publish(holding: Holding, version: int, *, fed: bool) -> Broadcast | None:
    """Notes the digest of a holding's weights; what to send, where copies are `fed` and this rank has a part to give.

    Collective over the trainer's block.
    """
    if not fed:
        holding.digest = holding.trainer.digest()
        return None
    published = holding.trainer.publish(version)
    holding.digest = published.digest
    canary = holding.trainer.canary(canary_tokens(holding.trainer.model.vocab_size))
    return Broadcast(published, canary) if published.manifest.entries else None


def receive(holding: Holding, broadcasts: Iterable[Broadcast], dtype: torch.dtype) -> None:
    """Takes a version in place. RunError where the bytes or what is computed with them differ from the trainer's.

    Collective over those that hold parts of the copy. One broadcast is held at a time.
    """
    last: list[Broadcast] = []

    def contributions() -> Iterator[Published]:
        for broadcast in broadcasts:
            last[:] = [broadcast]
            yield broadcast.published

    holding.digest = holding.trainer.receive(contributions())
    published, canary = last[0].published, last[0].canary
    if holding.digest != published.digest:
        raise RunError(
            f"{holding.model}@{published.version} arrived as {holding.digest}, was published as {published.digest}"
        )
    seen = holding.trainer.canary(canary_tokens(holding.trainer.model.vocab_size))
    check_canary(canary, seen, dtype)
    holding.version = published.version
