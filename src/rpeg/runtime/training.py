"""A trainer's item: all minibatches and epochs of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from rpeg import algorithms
from rpeg.algorithms.loss import token_weights
from rpeg.backends.samples import Array, Samples
from rpeg.backends.training.trainer import Trainer
from rpeg.errors import RunError
from rpeg.job import Job
from rpeg.job.rewards import masks_truncated
from rpeg.plan import membership
from rpeg.schedule import share
from rpeg.workload import Workload


def train(
    trainer: Trainer,
    samples: Samples,
    op: str,
    *,
    job: Job,
    workload: Workload,
    step: int,
    rank: int,
    ranks: int,
    microbatch: int,
) -> tuple[dict[str, float], list[int]]:
    """Runs the step's updates on this rank's share; (metrics, ids that it trained in the first epoch).

    samples: all of the step's, with the columns that the loss op `op` needs.
    """
    module = algorithms.load(job.algorithm.name)
    hyper = job.algorithm.hyper
    lengths = dict(zip(samples.ids.tolist(), samples.lengths.tolist(), strict=True))
    masked = _masked(samples) if masks_truncated(job.reward) else frozenset()
    minibatches: list[Samples] = []
    weights: list[Array] = []
    mine: list[int] = []
    for number, ids in enumerate(membership(samples.ids.tolist(), workload, job.seed, step)):
        own = share(ids, [lengths[i] for i in ids], ranks)[rank]
        counted = [i for i in ids if i not in masked]
        by_id = dict.fromkeys(ids, 0.0)
        by_id.update(zip(counted, _weights([lengths[i] for i in counted], hyper), strict=True))
        minibatches.append(samples.take(own))
        weights.append(np.array([by_id[i] for i in own], dtype=np.float64))
        if number < workload.minibatches:
            mine += own

    def loss(columns: Mapping[str, Tensor], mask: Tensor) -> Any:
        return module.OPS[op](columns, mask, hyper)

    entropy = bool(getattr(hyper, "uses_entropy", False)) and "lm" in trainer.model.heads
    temperature = job.sampling.temperature
    metrics = trainer.train(
        minibatches, weights, loss, temperature=temperature, microbatch=microbatch, entropy=entropy
    )
    if masks_truncated(job.reward):
        metrics["masked"] = float(len(masked))
    return metrics, mine


def _masked(samples: Samples) -> frozenset[int]:
    """Truncated responses: they weigh nothing in any loss, and no mean over a minibatch counts them."""
    return frozenset(samples.ids[samples.sample["finish"] == 0].tolist())


def _weights(lengths: Sequence[int], hyper: Any) -> Array:
    return token_weights(np.asarray(lengths), hyper.loss_aggregation, hyper.fixed_length)


def check_staleness(samples: Samples, oldest: int, newest: int, step: int) -> dict[str, float]:
    """Refuses tokens from outside the bound; the mean and the largest staleness otherwise (in publications)."""
    versions = samples.token["versions"]
    if versions.min(initial=newest) < oldest or versions.max(initial=oldest) > newest:
        raise RunError(
            f"step {step} was given tokens of versions {versions.min()} to {versions.max()}; "
            f"the plan allows {oldest} to {newest}"
        )
    staleness = step - versions
    return {"staleness": float(staleness.mean()), "staleness_max": float(staleness.max())}
