"""A trainer's item: all minibatches and epochs of a step, or those minibatches that an item is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from rpeg import algorithms
from rpeg.algorithms.aggregation import token_weights
from rpeg.algorithms.loss import TokenLoss, weighted_sum
from rpeg.backends.samples import Array, Ints, Samples
from rpeg.backends.training.trainer import Trainer
from rpeg.errors import RunError
from rpeg.ir import Op
from rpeg.job import Job
from rpeg.job.rewards import masks_truncated
from rpeg.plan import Members, Minibatches, ids_of_members, membership
from rpeg.runtime.mismatch import behaviour_kl
from rpeg.schedule import share
from rpeg.workload import Workload

Loss = Callable[[Mapping[str, Tensor], Tensor], TokenLoss]


@dataclass(frozen=True)
class Updates:
    """Which updates of which step an item is for, and this rank's place among the trainer's.

    members: the minibatches, where they come as they are ready; None for all of them, in every epoch.
    """

    step: int
    rank: int
    ranks: int
    members: Members | None = None


def train(
    trainer: Trainer,
    samples: Samples,
    ops: Sequence[Op],
    *,
    job: Job,
    workload: Workload,
    updates: Updates,
    microbatch: int,
) -> tuple[dict[str, float], list[int]]:
    """Runs the item's updates on this rank's share; (metrics, ids that it trained in the first epoch).

    samples: all of the item's, with the columns that the ops need. ops: of the model's call; those that give something
    are scores of the weights that the step begins with, which losses take from the forward of the only update.
    """
    hyper = job.algorithm.hyper
    masked = _masked(samples) if masks_truncated(job.reward) else frozenset()
    minibatches: list[Samples] = []
    weights: list[Array] = []
    mine: list[int] = []
    drawn = list(_minibatches(samples, workload, job.seed, updates))
    for number, ids in enumerate(drawn):
        own = share(ids, samples.take(ids).lengths.tolist(), updates.ranks)[updates.rank]
        counted = [i for i in ids if i not in masked]
        by_id = dict.fromkeys(ids, 0.0)
        by_id.update(zip(counted, _weights(samples.take(counted), hyper), strict=True))
        minibatches.append(samples.take(own))
        weights.append(np.array([by_id[i] for i in own], dtype=np.float64))
        if number < _of_an_epoch(len(drawn), workload, updates):
            mine += own
    metrics = trainer.train(
        minibatches,
        weights,
        loss_of(ops, job),
        temperature=job.sampling.temperature,
        microbatch=microbatch,
        entropy=bool(hyper.uses_entropy) and "lm" in trainer.model.heads,
        value_gradient_scale=getattr(hyper, "value_gradient_scale", 1.0) if _is_shared(ops) else 1.0,
    )
    if masks_truncated(job.reward):
        metrics["masked"] = float(len(masked))
    return metrics, mine


def _masked(samples: Samples) -> frozenset[int]:
    """Truncated responses: they weigh nothing in any loss, and no mean over a minibatch counts them."""
    return frozenset(samples.ids[samples.sample["finish"] == 0].tolist())


def loss_of(ops: Sequence[Op], job: Job) -> Loss:
    """One loss of all loss ops of a model's call, weighted as the algorithm says where there are several."""
    functions, hyper = algorithms.load(job.algorithm.name).OPS, job.algorithm.hyper
    names = _losses(ops)

    def loss(columns: Mapping[str, Tensor], mask: Tensor) -> TokenLoss:
        found = [(hyper.loss_weights.get(name, 1.0), functions[name](columns, mask, hyper)) for name in names]
        total = weighted_sum(found)
        return TokenLoss(total.loss, {**total.metrics, **behaviour_kl(columns, mask)})

    return loss


class Reports:
    """What the items of each trainer's step have reported so far."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[str, list[Mapping[str, float]]]] = {}

    def add(self, stage: str, prefix: str, metrics: Mapping[str, float]) -> None:
        self._parts.setdefault(stage, {}).setdefault(prefix, []).append(metrics)

    def take(self, stage: str) -> dict[str, float]:
        """All of a stage together, each name after its prefix; nothing of it is kept."""
        return {
            f"{prefix}{name}": value
            for prefix, parts in self._parts.pop(stage).items()
            for name, value in combine(parts).items()
        }


def combine(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The metrics of a step from those of its items, as if it had been one item.

    Of all of them `tokens`, and where they are of updates how many were `applied` and `skipped`.
    """
    if len(parts) == 1:
        return dict(parts[0])
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: _combined(name, parts) for name in names}


def _combined(name: str, parts: Sequence[Mapping[str, float]]) -> float:
    values = [part.get(name, 0.0) for part in parts]
    if name.endswith("_max"):
        return max(values)
    if name in ("tokens", "applied", "skipped", "masked"):
        return sum(values)
    by_update = name in ("loss", "grad_norm", "lr")
    weights = [part["applied"] + part["skipped"] if by_update else part["tokens"] for part in parts]
    return float(np.average(values, weights=weights)) if sum(weights) else 0.0


def _minibatches(samples: Samples, workload: Workload, seed: int, updates: Updates) -> Iterator[list[int]]:
    if not isinstance(updates.members, Minibatches):
        yield from membership(samples.ids.tolist(), workload, seed, updates.step)
        return
    for number in range(updates.members.first, updates.members.end):
        one = Minibatches(number, number + 1)
        yield list(ids_of_members(one, workload, seed, updates.step))


def _of_an_epoch(minibatches: int, workload: Workload, updates: Updates) -> int:
    """How many of an item's minibatches the first epoch has."""
    return minibatches if isinstance(updates.members, Minibatches) else minibatches // workload.epochs


def _losses(ops: Sequence[Op]) -> list[str]:
    return [op.name for op in ops if not op.gives]


def _is_shared(ops: Sequence[Op]) -> bool:
    return len(_losses(ops)) > 1


def _weights(samples: Samples, hyper: Any) -> Array:
    """(n,) what each token of a response weighs; a correction may leave out some of its tokens."""
    epsilon = hyper.preset.mean_epsilon
    return token_weights(trained_lengths(samples), hyper.loss_aggregation, hyper.fixed_length, epsilon)


def trained_lengths(samples: Samples) -> Ints:
    """(n,) response tokens that the loss is of: all, or those that the column `loss_mask` keeps."""
    if "loss_mask" not in samples.token:
        return samples.lengths
    kept = np.cumsum(np.concatenate([[0], samples.token["loss_mask"] > 0]))
    return np.asarray(np.diff(kept[samples.offsets]), dtype=np.int64)


def check_staleness(samples: Samples, oldest: int, newest: int, step: int) -> None:
    """Refuses tokens that versions outside the bound have sampled."""
    versions = samples.token["versions"]
    if versions.min(initial=newest) < oldest or versions.max(initial=oldest) > newest:
        raise RunError(
            f"step {step} was given tokens of versions {versions.min()} to {versions.max()}; "
            f"the plan allows {oldest} to {newest}"
        )


def check_whole(samples: Samples, step: int) -> None:
    """Refuses a response whose tokens are of several versions, where none may go on under new weights."""
    versions, starts = samples.token["versions"], samples.offsets[:-1][samples.lengths > 0]
    if not len(starts):
        return
    oldest, newest = np.minimum.reduceat(versions, starts), np.maximum.reduceat(versions, starts)
    if (oldest != newest).any():
        row = int(np.flatnonzero(oldest != newest)[0])
        sample = int(samples.ids[samples.lengths > 0][row])
        raise RunError(
            f"step {step} was given sample {sample} with tokens of versions {oldest[row]} to {newest[row]}; the plan "
            "drains generators before new weights: a response is of one"
        )
