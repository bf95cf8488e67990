"""Probes of weights on their way: publishing, loading, collectives."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
import torch.distributed as dist

from rpeg.backends.models import PolicyModel
from rpeg.backends.training.trainer import Trainer
from rpeg.backends.weights import canary_logprobs, canary_tokens
from rpeg.calibrate.probe import Probe
from rpeg.calibrate.shapes import Points

# The same on every rank, else one waits for another that has gone on.
_CALLS = 8
# About 10 ms on a core: what lies between two collectives of small models.
_BUSY_SIZE, _BUSY_PRODUCTS = 384, 8


def probes(model: PolicyModel) -> list[Probe]:
    """`publish` and `load` of the whole model, `canary` on one side."""
    trainer = Trainer(model)
    published = trainer.publish(0)
    tokens = canary_tokens(model.vocab_size)
    return [
        Probe("publish", (published.size_bytes,), lambda: trainer.publish(0)),
        Probe("load", (published.size_bytes,), lambda: published.load_into(model.hf)),
        Probe("canary", (), lambda: canary_logprobs(model.hf, tokens)),
    ]


def collective_probes(points: Points, dtype: torch.dtype) -> Iterator[Probe]:
    """All-reduce, all-gather and reduce-scatter over all workers; every rank makes the same calls in step.

    Each follows some computing, as in a run: ranks then arrive apart and find the network asleep.
    """
    ranks = dist.get_world_size()
    block = torch.randn(_BUSY_SIZE, _BUSY_SIZE, dtype=dtype)

    def busy() -> None:
        for _ in range(_BUSY_PRODUCTS):
            torch.mm(block, block)

    for size in points.sizes:
        whole = torch.ones(max(ranks, size // dtype.itemsize // ranks * ranks), dtype=dtype)
        part = whole[: len(whole) // ranks].clone()
        yield Probe("all_reduce", (ranks, size), partial(dist.all_reduce, whole), busy, _CALLS)
        yield Probe(
            "all_gather",
            (ranks, size),
            partial(dist.all_gather_into_tensor, whole, part),
            busy,
            _CALLS,
        )
        yield Probe(
            "reduce_scatter",
            (ranks, size),
            partial(dist.reduce_scatter_tensor, part, whole),
            busy,
            _CALLS,
        )
