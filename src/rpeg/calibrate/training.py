"""Probes of the training backend: micro-batches forward, forward and backward, the lm head, the optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from rpeg.backends.models import PolicyModel, Wanted
from rpeg.backends.samples import Samples
from rpeg.backends.training.adamw import AdamW
from rpeg.backends.training.logprobs import token_logprobs
from rpeg.backends.training.microbatch import build
from rpeg.backends.training.optimizer import OptimizerConfig
from rpeg.backends.training.passes import TOKEN_WEIGHT
from rpeg.backends.training.tally import Tally
from rpeg.backends.training.trainer import Trainer
from rpeg.calibrate.probe import Probe
from rpeg.calibrate.shapes import Points, response_tokens


@dataclass(frozen=True)
class _Loss:
    loss: Tensor
    metrics: Mapping[str, Tensor]


def probes(model: PolicyModel, points: Points, hidden: int) -> list[Probe]:
    """Probes named `scored`, `trained` (with the head over half of the tokens), `head`, `head_backward`, `optimizer`."""
    trainer = Trainer(model, optimizer=OptimizerConfig())
    return [
        *_scoring(trainer, points),
        *_training(trainer, points),
        *_head(model, points, hidden),
        *_optimizer(points, trainer),
    ]


def _scoring(trainer: Trainer, points: Points) -> Iterator[Probe]:
    for rows in points.forward[0]:
        for length in points.forward[1]:
            samples = policy_samples(rows, length, trainer.model.vocab_size)

            def run(samples: Samples = samples, rows: int = rows) -> object:
                return trainer.logprobs(samples, temperature=1.0, microbatch=rows)

            yield Probe("scored", (rows, length), run)


def _training(trainer: Trainer, points: Points) -> Iterator[Probe]:
    wanted = Wanted(logprobs=True)
    for rows in points.forward_backward[0]:
        for length in points.forward_backward[1]:
            samples = policy_samples(rows, length, trainer.model.vocab_size)

            def run(samples: Samples = samples) -> None:
                trainer.passes.train([build(samples, trainer.device)], policy_loss, wanted, Tally())

            yield Probe("trained", (rows, length), run)


def _head(model: PolicyModel, points: Points, hidden: int) -> Iterator[Probe]:
    like = next(model.parameters())
    for tokens in points.head:
        states = torch.randn(tokens, hidden, dtype=like.dtype, device=like.device)
        targets = torch.zeros(tokens, dtype=torch.int64, device=like.device)

        def run(states: Tensor = states, targets: Tensor = targets) -> Tensor:
            return token_logprobs(states, targets, model.logits, temperature=1.0)[0]

        def run_backward(states: Tensor = states, targets: Tensor = targets) -> None:
            out = token_logprobs(states.requires_grad_(), targets, model.logits, temperature=1.0)[0]
            out.sum().backward()  # type: ignore[no-untyped-call]

        yield Probe("head", (tokens,), run, context=torch.no_grad)
        yield Probe("head_backward", (tokens,), run_backward, context=nullcontext)


def _optimizer(points: Points, trainer: Trainer) -> Iterator[Probe]:
    """What an update does besides its reduction: norm, clipping, AdamW, gradients back to zero."""
    like = trainer.parameters.local[0]
    for count in points.parameters:
        weights, gradient = (torch.rand(count, dtype=like.dtype, device=like.device) for _ in range(2))
        optimizer = AdamW(OptimizerConfig(), [weights])

        def run(optimizer: AdamW = optimizer, gradient: Tensor = gradient) -> None:
            float(torch._foreach_norm([gradient])[0].square())
            torch._foreach_mul_([gradient], 0.5)
            optimizer.step([gradient], lr=1e-4, update=1)
            gradient.zero_()

        yield Probe("optimizer", (count,), run, before=partial(gradient.fill_, 0.1))


def policy_samples(rows: int, length: int, vocabulary: int) -> Samples:
    """`rows` sequences of `length` tokens, half prompt and half response, with the columns of a policy update."""
    prompt, response = length - length // 2, length // 2
    generator = np.random.default_rng(rows * 1000003 + length)
    tokens = response_tokens(rows, length)
    names = ("behaviour_logprobs", "old_logprobs", "ref_logprobs", "advantages")
    return Samples(
        np.arange(rows),
        np.full(rows, response),
        {name: generator.normal(size=tokens) for name in names},
        {"rewards": np.zeros(rows), TOKEN_WEIGHT: np.ones(rows)},
        generator.integers(0, vocabulary, rows * prompt),
        np.full(rows, prompt),
        generator.integers(0, vocabulary, tokens),
    )


def policy_loss(columns: Mapping[str, Tensor], mask: Tensor) -> _Loss:
    """A clipped policy loss with the metrics that algorithms keep: about the element-wise work of any of them."""
    difference = torch.where(mask, columns["logprobs"] - columns["old_logprobs"], 0)
    ratio = difference.exp()
    advantages = torch.where(mask, columns["advantages"], 0)
    clipped = ratio.clamp(0.8, 1.2)
    loss = torch.maximum(-advantages * ratio, -advantages * clipped)
    kl = ratio - 1 - difference
    return _Loss(loss, {"ratio": ratio, "kl": kl, "clipped": (ratio != clipped).to(loss.dtype)})
