"""`MicroBatch`: right-padded tokens of some samples, and where their response tokens are predicted.

Attention is causal and padding stands on the right, so no token sees padding and no attention mask is needed.
The response token at position p is predicted at p - 1: its log-probability comes from the logits there, and
its value is that of the state before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rpeg.backends.samples import Ints, Samples


@dataclass(frozen=True)
class MicroBatch:
    """n samples with k response tokens in all, T in the longest response; tensors are on the model's device.

    samples: the n samples with their columns. tokens: (n, S) int64, prompt, response, padding.
    index: (k,) int64 into the n·S positions, where each response token is predicted, sample after sample.
    targets: (k,) int64, the response tokens. mask: (n, T) bool.
    dummy: stands in where only other ranks have something left: it goes through the model and adds nothing.
    """

    samples: Samples
    tokens: Tensor
    index: Tensor
    targets: Tensor
    mask: Tensor
    dummy: bool = False

    @property
    def ends(self) -> Tensor:
        """(n,) tokens of each row, prompt and response."""
        assert self.samples.prompt_lengths is not None
        return torch.from_numpy(self.samples.prompt_lengths + self.samples.lengths).to(self.tokens.device)

    def columns(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """All columns as tensors: token columns (n, T), zero outside the mask, sample columns (n,).

        Floating-point columns are converted to `dtype`.
        """
        token = {name: self.padded(torch.from_numpy(c), dtype) for name, c in self.samples.token.items()}
        sample = {name: self._move(torch.from_numpy(c), dtype) for name, c in self.samples.sample.items()}
        return {**sample, **token}

    def padded(self, flat: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """A flat (k,) column as (n, T), zero outside the mask; differentiable."""
        flat = self._move(flat, dtype)
        out = torch.zeros(self.mask.shape, dtype=flat.dtype, device=self.mask.device)
        return out.masked_scatter(self.mask, flat)

    def _move(self, column: Tensor, dtype: torch.dtype | None) -> Tensor:
        return column.to(self.mask.device, dtype if column.is_floating_point() else None)


def build(samples: Samples, device: torch.device) -> MicroBatch:
    """One micro-batch of all these samples."""
    if samples.prompts is None or samples.prompt_lengths is None or samples.responses is None:
        raise ValueError("this batch carries no tokens")
    if len(samples) and int(samples.prompt_lengths.min()) < 1:
        raise ValueError("a sample has an empty prompt: nothing predicts its first response token")
    starts = samples.prompt_lengths[:, None]
    ends = starts + samples.lengths[:, None]
    position = np.arange(int(ends.max(initial=1)))[None, :]
    in_prompt, in_response = position < starts, (position >= starts) & (position < ends)
    tokens = np.zeros(in_prompt.shape, dtype=np.int64)
    tokens[in_prompt] = samples.prompts
    tokens[in_response] = samples.responses
    return MicroBatch(
        samples,
        torch.from_numpy(tokens).to(device),
        torch.from_numpy(np.flatnonzero(in_response) - 1).to(device),
        torch.from_numpy(samples.responses).to(device),
        torch.from_numpy(samples.mask()).to(device),
    )


def dummy(device: torch.device) -> MicroBatch:
    """The cheapest micro-batch that reaches every parameter."""
    one = np.ones(1, dtype=np.int64)
    samples = Samples(np.full(1, -1), one, prompts=0 * one, prompt_lengths=one, responses=0 * one)
    micro = build(samples, device)
    return MicroBatch(micro.samples, micro.tokens, micro.index, micro.targets, micro.mask, dummy=True)


def split(samples: Samples, microbatch: int) -> list[Ints]:
    """Rows of each micro-batch of at most `microbatch` samples, samples of like length together.

    The longest come first, so that a memory shortage shows at once and not at the end.
    """
    if microbatch < 1:
        raise ValueError(f"microbatch must be ≥ 1 sample, got {microbatch}")
    if not len(samples):
        return []
    prompts = samples.prompt_lengths if samples.prompt_lengths is not None else np.zeros_like(samples.lengths)
    order = np.argsort(-(prompts + samples.lengths), kind="stable")
    return [order[start : start + microbatch] for start in range(0, len(order), microbatch)]
