"""`MicroBatch`: tokens of some samples, and where their response tokens are predicted.

Samples are rows, padded on the right, or packed one behind another into one row, where `positions` begin anew with
each. Attention is causal and, of packed samples, within each: no token sees padding or another sample. The response
token at position p is predicted at p - 1: its log-probability comes from the logits there, and its value is that of the
state before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from rpeg.backends.samples import Ints, Samples


@dataclass(frozen=True)
class MicroBatch:
    """n samples with k response tokens in all, T in the longest response; tensors are on the model's device.

    samples: the n samples with their columns. tokens: (n, S) int64, prompt, response, padding; (1, S) where packed, and
    then positions: (1, S) int64, of each token within its sample.
    index: (k,) int64 into the n·S places, where each drawn response token is predicted, sample after sample.
    targets: (k,) int64, these tokens. mask: (n, T) bool.
    dummy: stands in where only other ranks have something left: it goes through the model and adds nothing.
    """

    samples: Samples
    tokens: Tensor
    index: Tensor
    targets: Tensor
    mask: Tensor
    positions: Tensor | None = None
    dummy: bool = False

    @property
    def ends(self) -> Tensor:
        """(n,) tokens of each row, prompt and response."""
        return torch.from_numpy(self.samples.sequence_lengths).to(self.tokens.device)

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


def build(samples: Samples, device: torch.device, *, packed: bool = False) -> MicroBatch:
    """One micro-batch of all these samples."""
    if samples.prompts is None or samples.prompt_lengths is None or samples.responses is None:
        raise ValueError("this batch carries no tokens")
    if len(samples) and int(samples.prompt_lengths.min()) < 1:
        raise ValueError("a sample has an empty prompt: nothing predicts its first response token")
    starts = samples.prompt_lengths[:, None]
    ends = samples.sequence_lengths[:, None]
    position = np.arange(int(ends.max(initial=1)))[None, :]
    in_prompt, in_response = position < starts, (position >= starts) & (position < ends)
    tokens = np.zeros(in_prompt.shape, dtype=np.int64)
    tokens[in_prompt] = samples.prompts
    tokens[in_response] = samples.responses
    index, positions = np.flatnonzero(in_response) - 1, None
    if samples.drawn is not None:  # what a tool has written is read, and predicted nowhere
        index = index[samples.drawn]
    if packed:
        inside = in_prompt | in_response
        places = np.cumsum(inside) - 1
        index = places[index]
        positions = torch.from_numpy(np.broadcast_to(position, inside.shape)[inside][None]).to(device)
        tokens = tokens[inside][None]
    return MicroBatch(
        samples,
        torch.from_numpy(tokens).to(device),
        torch.from_numpy(index).to(device),
        torch.from_numpy(samples.targets).to(device),
        torch.from_numpy(samples.mask()).to(device),
        positions,
    )


def dummy(device: torch.device) -> MicroBatch:
    """The cheapest micro-batch that reaches every parameter."""
    one = np.ones(1, dtype=np.int64)
    samples = Samples(np.full(1, -1), one, prompts=0 * one, prompt_lengths=one, responses=0 * one)
    return replace(build(samples, device), dummy=True)


def split(samples: Samples, microbatch: int) -> list[Ints]:
    """Rows of each micro-batch of at most `microbatch` samples, samples of like length together.

    The longest come first, so that a memory shortage shows at once and not at the end.
    """
    if microbatch < 1:
        raise ValueError(f"microbatch must be ≥ 1 sample, got {microbatch}")
    if not len(samples):
        return []
    order = np.argsort(-samples.sequence_lengths, kind="stable")
    return [order[start : start + microbatch] for start in range(0, len(order), microbatch)]


def pack(samples: Samples, tokens: int) -> list[Ints]:
    """Rows of each micro-batch of at most so many tokens, prompts included; one that is longer is alone.

    Each sample, the longest first, goes into the first micro-batch that has room (first fit, decreasing).
    """
    if tokens < 1:
        raise ValueError(f"the token budget must be ≥ 1, got {tokens}")
    sizes = samples.sequence_lengths
    parts: list[list[int]] = []
    room: list[int] = []
    for row in np.argsort(-sizes, kind="stable").tolist():
        place = next((i for i, free in enumerate(room) if free >= sizes[row]), len(parts))
        if place == len(parts):
            parts.append([])
            room.append(tokens)
        parts[place].append(row)
        room[place] -= int(sizes[row])
    return [np.array(part, dtype=np.int64) for part in parts]
