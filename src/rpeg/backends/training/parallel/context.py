"""Context parallelism: each rank has a part of every sequence, and for attention some heads of all of it.

All-to-all before and after attention (Jacobs et al. 2023, arXiv:2309.14509) leaves attention itself unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rpeg.backends.training.parallel.functions import exchange, leave

ATTENTION = "rpeg_exchanged_heads"
HEADS, SEQUENCE = 1, 2


@dataclass(frozen=True)
class Context:
    """The ranks that share each sequence."""

    group: dist.ProcessGroup

    @property
    def ranks(self) -> int:
        return dist.get_world_size(self.group)

    @property
    def rank(self) -> int:
        return dist.get_rank(self.group)

    def own(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """This rank's columns of (n, S) tokens, and their positions, (1, S / ranks)."""
        each = tokens.shape[1] // self.ranks
        start = self.rank * each
        positions = torch.arange(start, start + each, device=tokens.device)
        return tokens[:, start : start + each], positions[None]

    def own_rows(self, index: Tensor, length: int, each: int) -> tuple[Tensor, Tensor]:
        """Of (k,) positions in rows of `length`: (those in this rank's rows of `each`, which of the k they are)."""
        row, column = index // length, index % length - self.rank * each
        (mine,) = ((column >= 0) & (column < each)).nonzero(as_tuple=True)
        return (row * each + column)[mine], mine

    def joined(self, own: Tensor, mine: Tensor, count: int) -> Tensor:
        """(count,) with every rank's numbers at their places, the same on all."""
        return leave(own.new_zeros(count).index_put((mine,), own), self.group)


def exchange_heads(hf: Any, group: dist.ProcessGroup) -> None:
    """Makes a Hugging Face module attend with all-to-all over the group."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, _attend)
    for module in hf.modules():
        if hasattr(module, "num_key_value_groups"):
            module.context_group = group
    hf.config._attn_implementation = ATTENTION
    hf.config.get_text_config()._attn_implementation = ATTENTION


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, _mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """query: (n, heads, S / ranks, head size); the result (n, S / ranks, heads, head size)."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    group: dist.ProcessGroup = module.context_group
    q, k, v = (exchange(x, group, HEADS, SEQUENCE) for x in (query, key, value))
    options["is_causal"] = True
    out, _ = sdpa_attention_forward(module, q, k, v, None, **options)
    return exchange(out, group, 1, 2), None
