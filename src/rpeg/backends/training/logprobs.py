"""Log-probabilities (and entropies) of tokens from hidden states, in chunks of the vocabulary projection."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

Head = Callable[[Tensor], Tensor]


def token_logprobs(
    hidden: Tensor,
    targets: Tensor,
    head: Head,
    *,
    temperature: float,
    entropy: bool = False,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """log p(target) under softmax(head(hidden) / temperature), and that distribution's entropy, in nats.

    hidden: (k, hidden size). targets: (k,) int64. Results: (k,), float64 for a float64 head, else float32.
    chunk: so many of the k rows of logits exist at a time; the backward pass computes them again.
    """
    if temperature <= 0:
        raise ValueError(f"temperature must be > 0, got {temperature}: log-probabilities are of sampling")
    if chunk is None or len(targets) <= chunk:
        return _chunk_logprobs(hidden, targets, head, temperature, entropy)
    parts = [
        checkpoint(_chunk_logprobs, h, t, head, temperature, entropy, use_reentrant=False)
        for h, t in zip(torch.split(hidden, chunk), torch.split(targets, chunk), strict=True)
    ]
    entropies = torch.cat([part[1] for part in parts]) if entropy else None
    return torch.cat([part[0] for part in parts]), entropies


def _chunk_logprobs(
    hidden: Tensor, targets: Tensor, head: Head, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    logits = head(hidden)
    if logits.dtype is not torch.float64:
        logits = logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    if not entropy:
        return -cross_entropy(logits, targets, reduction="none"), None
    everything = logits.log_softmax(-1)
    chosen = everything.gather(-1, targets[:, None])[:, 0]
    return chosen, -(everything.exp() * everything).sum(-1)
