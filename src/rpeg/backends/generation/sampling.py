"""Drawing tokens with randomness that is a pure function of (seed, sample, position).

The uniforms are SplitMix64 streams (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
OOPSLA 2014), one per (seed, sample id), indexed by the token's position in the response. Nothing depends on
the order in which samples are drawn, so the batch a sample shares its forward with cannot change it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rpeg.backends.generation.protocol import Floats, Sampling
from rpeg.backends.samples import Ints

Words = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MASK64 = (1 << 64) - 1


def mix(words: Words) -> Words:
    """SplitMix64's finaliser, a bijection of 64-bit words."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def stream_keys(seed: int, ids: Ints) -> Words:
    """(n,) the state at which the stream of each sample starts."""
    root = mix(np.asarray([seed & _MASK64], dtype=np.uint64) + _GOLDEN)
    return mix((root ^ ids.astype(np.uint64)) + _GOLDEN)


def uniforms(keys: Words, positions: Ints) -> Floats:
    """(n,) the number in [0, 1), a multiple of 2^-53, of each stream at each position."""
    words = mix(keys + (positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
    return np.asarray((words >> np.uint64(11)).astype(np.float64) * 2.0**-53, dtype=np.float64)


def draw(logits: Tensor, sampling: Sampling, uniform: Floats) -> tuple[Ints, Floats]:
    """One token a row and its log-probability.

    logits: (n, vocabulary) of any float dtype; uniform: (n,) in [0, 1). Everything is computed in float64.
    The token is the inverse of the cumulative distribution at `uniform`, after truncation; the log-
    probability is that of the distribution *before* truncation, at the temperature, which is what a trainer
    can recompute from the weights alone. Greedy takes the argmax, with the same log-probability.
    """
    scores = logits.double()
    if sampling.temperature != 1.0:
        scores = scores / sampling.temperature
    scores = scores - scores.amax(-1, keepdim=True)
    weights = scores.exp()
    total = weights.sum(-1, keepdim=True)
    if sampling.greedy:
        tokens = scores.argmax(-1, keepdim=True)
    else:
        tokens = _invert(truncate(weights, sampling), torch.from_numpy(uniform).to(logits.device))
    logprobs = scores.gather(-1, tokens) - total.log()
    return tokens.squeeze(-1).cpu().numpy(), logprobs.squeeze(-1).cpu().numpy()


def logprobs_of(logits: Tensor, tokens: Tensor) -> Floats:
    """(n,) the log-probability of one token a row, at temperature 1, in float64. logits: (n, vocabulary)."""
    found = logits.double().log_softmax(-1).gather(-1, tokens[:, None])
    return np.asarray(found[:, 0].cpu().numpy())


def truncate(weights: Tensor, sampling: Sampling) -> Tensor:
    """Unnormalised probabilities (n, vocabulary) with zeros outside the top-k and then the top-p nucleus.

    The nucleus is the smallest set of most likely tokens whose probability, among those that top-k left,
    reaches top_p. Equal probabilities are ranked by token id.
    """
    vocabulary = weights.shape[-1]
    cuts_k = 0 < sampling.top_k < vocabulary
    if not cuts_k and sampling.top_p == 1.0:
        return weights
    ranked, order = torch.sort(weights, dim=-1, descending=True, stable=True)
    if cuts_k:
        ranked[..., sampling.top_k :] = 0.0
    if sampling.top_p < 1.0:
        before = ranked.cumsum(-1) - ranked
        ranked = ranked.masked_fill(before >= sampling.top_p * ranked.sum(-1, keepdim=True), 0.0)
    return torch.zeros_like(weights).scatter_(-1, order, ranked)


def _invert(weights: Tensor, uniform: Tensor) -> Tensor:
    """(n, 1) the first token whose cumulative weight exceeds uniform · total: never one of weight zero."""
    cumulative = weights.cumsum(-1)
    target = uniform.unsqueeze(-1) * cumulative[..., -1:]
    return torch.searchsorted(cumulative, target, right=True).clamp_(max=weights.shape[-1] - 1)
