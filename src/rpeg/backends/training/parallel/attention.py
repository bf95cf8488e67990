"""Attention as context parallelism and selective recomputation have it: around the unchanged scaled dot product."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rpeg.backends.training.parallel.functions import exchange

NAME = "rpeg"
HEADS, SEQUENCE = 1, 2


def exchange_heads(hf: nn.Module, group: dist.ProcessGroup) -> None:
    """Attention is over whole sequences with some of the heads, where each rank has a part of every sequence with all of
    them: all-to-all before and after (Jacobs et al. 2023, arXiv:2309.14509)."""
    _install(hf, "exchange_over", group)


def recompute_attention(hf: nn.Module) -> None:
    """What lies between queries, keys, values and the result is not kept for the backward pass but computed again
    (selective recomputation, Korthikanti et al. 2022, arXiv:2205.05198, section 5)."""
    _install(hf, "recomputes", True)


def _install(hf: Any, attribute: str, value: object) -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    for module in hf.modules():
        if hasattr(module, "num_key_value_groups"):
            setattr(module, attribute, value)
    for config in (hf.config, hf.config.get_text_config()):
        config._attn_implementation = NAME


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """query: (n, heads, S, head size), of a part of the sequence where heads are exchanged; the result (n, S, heads,
    head size)."""
    group: dist.ProcessGroup | None = getattr(module, "exchange_over", None)
    if group is None:
        return _product(module, query, key, value, mask, options), None
    q, k, v = (exchange(x, group, HEADS, SEQUENCE) for x in (query, key, value))
    out = _product(module, q, k, v, None, {**options, "is_causal": True})
    return exchange(out, group, 1, 2), None


def _product(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: dict[str, Any]
) -> Tensor:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    def product(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = sdpa_attention_forward(module, q, k, v, mask, **options)[0]
        return out

    if getattr(module, "recomputes", False) and torch.is_grad_enabled():
        again: Tensor = checkpoint(product, query, key, value, use_reentrant=False)
        return again
    return product(query, key, value)
