"""A trainer's item: all minibatches and epochs of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rpeg import algorithms
from rpeg.algorithms import mismatch
from rpeg.algorithms.aggregation import token_weights
from rpeg.backends.samples import Array, Samples
from rpeg.backends.training.trainer import Trainer
from rpeg.errors import RunError
from rpeg.job import Job
from rpeg.plan import membership
from rpeg.runtime.inputs import padded_columns
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
    trained = dict(zip(samples.ids.tolist(), trained_lengths(samples).tolist(), strict=True))
    lengths = dict(zip(samples.ids.tolist(), samples.lengths.tolist(), strict=True))
    minibatches: list[Samples] = []
    weights: list[Array] = []
    mine: list[int] = []
    for number, ids in enumerate(membership(samples.ids.tolist(), workload, job.seed, step)):
        own = share(ids, [lengths[i] for i in ids], ranks)[rank]
        by_id = dict(zip(ids, _weights([trained[i] for i in ids], hyper), strict=True))
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
    if rank == 0 and "lm" in trainer.model.heads:
        metrics.update(mismatch_of(samples, step))
    return metrics, mine


def trained_lengths(samples: Samples) -> Array:
    """(n,) response tokens that the loss is of: all, or those that the column `loss_mask` keeps."""
    return samples.padded("loss_mask").sum(1) if "loss_mask" in samples.token else samples.lengths


def mismatch_of(samples: Samples, step: int) -> dict[str, float]:
    """How far the policy that responded is from the one that the step began with, where both are known."""
    columns, mask = padded_columns(samples, torch.float64)
    metrics: dict[str, float] = {}
    if "versions" in columns:
        metrics.update(mismatch.staleness_histogram(step - columns["versions"], mask))
    if {"old_logprobs", "behaviour_logprobs"} <= columns.keys() and len(samples):
        found = mismatch.policy_metrics(columns["old_logprobs"], columns["behaviour_logprobs"], mask)
        metrics.update({name: float(value) for name, value in found.items()})
    return metrics


def _weights(lengths: Sequence[int], hyper: Any) -> Array:
    epsilon = hyper.preset.mean_epsilon
    return token_weights(np.asarray(lengths), hyper.loss_aggregation, hyper.fixed_length, epsilon)


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
