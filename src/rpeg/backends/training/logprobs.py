"""Log-probabilities (and entropies) of tokens from hidden states, in chunks of the vocabulary projection."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from rpeg.backends.training.parallel.functions import leave

Head = Callable[[Tensor], Tensor]
Vocabulary = tuple[dist.ProcessGroup, int]
"""The ranks that a vocabulary is cut over, and the first token of this one's part."""


def token_logprobs(
    hidden: Tensor,
    targets: Tensor,
    head: Head,
    *,
    temperature: float,
    entropy: bool = False,
    chunk: int | None = None,
    vocabulary: Vocabulary | None = None,
) -> tuple[Tensor, Tensor | None]:
    """log p(target) under softmax(head(hidden) / temperature), and that distribution's entropy, in nats.

    hidden: (k, hidden size). targets: (k,) int64. Results: (k,), float64 for a float64 head, else float32.
    chunk: so many of the k rows of logits exist at a time; the backward pass computes them again.
    vocabulary: where the head gives the logits of a part of it.
    """
    if temperature <= 0:
        raise ValueError(f"temperature must be > 0, got {temperature}: log-probabilities are of sampling")
    if chunk is None or len(targets) <= chunk:
        return _chunk_logprobs(hidden, targets, head, temperature, entropy, vocabulary)
    parts = [
        checkpoint(_chunk_logprobs, h, t, head, temperature, entropy, vocabulary, use_reentrant=False)
        for h, t in zip(torch.split(hidden, chunk), torch.split(targets, chunk), strict=True)
    ]
    entropies = torch.cat([part[1] for part in parts]) if entropy else None
    return torch.cat([part[0] for part in parts]), entropies


def _chunk_logprobs(
    hidden: Tensor,
    targets: Tensor,
    head: Head,
    temperature: float,
    entropy: bool,
    vocabulary: Vocabulary | None,
) -> tuple[Tensor, Tensor | None]:
    logits = head(hidden)
    if logits.dtype is not torch.float64:
        logits = logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    if vocabulary is not None:
        return _cut_logprobs(logits, targets, entropy, *vocabulary)
    if not entropy:
        return -cross_entropy(logits, targets, reduction="none"), None
    everything = logits.log_softmax(-1)
    chosen = everything.gather(-1, targets[:, None])[:, 0]
    return chosen, -(everything.exp() * everything).sum(-1)


def _cut_logprobs(
    logits: Tensor, targets: Tensor, entropy: bool, group: dist.ProcessGroup, start: int
) -> tuple[Tensor, Tensor | None]:
    """logits: (k, part of the vocabulary). The parts meet in sums of one number a row, never as logits."""
    largest = logits.detach().amax(-1)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    logits = logits - largest[:, None]
    local = targets - start
    inside = (local >= 0) & (local < logits.shape[-1])
    chosen = logits.gather(-1, local.masked_fill(~inside, 0)[:, None])[:, 0]
    exponentials = logits.exp()
    sums = [exponentials.sum(-1), torch.where(inside, chosen, 0)]
    sums += [(exponentials * logits).sum(-1)] if entropy else []
    total, reached, *rest = leave(torch.stack(sums), group)
    normaliser = total.log()
    return reached - normaliser, normaliser - rest[0] / total if entropy else None
