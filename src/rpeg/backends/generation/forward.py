"""`Forward`: prompt passes and decode steps through an unchanged Hugging Face causal language model."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from rpeg.backends.generation.cache import SlotCache
from rpeg.errors import InputError

_FULL, _SLIDING = "full_attention", "sliding_attention"


class Forward:
    """Logits of the next token for prompts and for slots.

    module: any causal LM of transformers whose forward takes `position_ids`, a 4-D mask and a cache, with
    full or sliding-window attention. It may be the module that a trainer updates; its training mode is
    switched off here. FSDP is to be applied before; over several ranks the parameters are to be unsharded
    while generating, since ranks take different numbers of steps and a sharded forward is a collective.
    max_length: the longest sequence that will be asked for; the module's own limit holds too.
    """

    def __init__(self, module: nn.Module, device: torch.device, max_length: int) -> None:
        config: Any = module.config
        self.config = config.get_text_config() if hasattr(config, "get_text_config") else config
        self.module = module
        self.device = device
        self.max_length = min(max_length, getattr(self.config, "max_position_embeddings", max_length))
        self.vocabulary = int(self.config.vocab_size)
        self.cache = SlotCache()
        parameters = inspect.signature(module.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        if "position_ids" not in parameters:
            raise InputError(
                f"{type(module).__name__}.forward takes no position_ids, which slots need; "
                "use another backend"
            )
        self._kinds, self._window = _attention_kinds(self.config, self.max_length)
        self._columns = torch.arange(self.max_length, device=device)
        self._sharded = any(isinstance(part, FSDPModule) for part in module.modules())

    def mode(self) -> AbstractContextManager[None]:
        """What all work on the cache and the module happens under: no gradients.

        Inference mode saves an eighth with a small model, but FSDP cannot train on what it gathers in it.
        """
        return torch.no_grad() if self._sharded else torch.inference_mode()

    def prefill(self, tokens: Tensor, lengths: Tensor, source: Tensor, slot: Tensor) -> Tensor:
        """Logits (p, vocabulary) after each of p prompts; keys and values go to the slots.

        tokens: (p, max(lengths)) right-padded; lengths: (p,); prompt source[i] is written to slot[i].
        Padding needs no mask of its own: it comes after every token of its prompt, where causality hides it.
        """
        columns = self._columns[: tokens.shape[1]]
        self.cache.fill(source, slot)
        with _only_last(self.module, lengths - 1):
            logits = self._call(tokens, columns.expand(tokens.shape), columns.unsqueeze(0), len(columns))
        if logits.shape[1] > 1:
            logits = logits[torch.arange(len(lengths), device=self.device), lengths - 1].unsqueeze(1)
        return logits[:, 0]

    def decode(self, tokens: Tensor, positions: Tensor, width: int) -> Tensor:
        """Logits (n, vocabulary) after one more token in each of slots 0 … n - 1.

        tokens, positions: (n,); width: max(positions) + 1.
        """
        self.cache.append(positions, width)
        positions = positions.unsqueeze(1)
        return self._call(tokens.unsqueeze(1), positions, positions, width)[:, -1]

    def _call(self, tokens: Tensor, positions: Tensor, queries: Tensor, width: int) -> Tensor:
        if self.module.training:
            self.module.eval()
        output = self.module(
            input_ids=tokens,
            position_ids=positions,
            attention_mask=self._mask(queries, width),
            use_cache=True,
            **{self._cache_name: self.cache},
        )
        logits: Tensor = output.logits
        return logits

    def _mask(self, queries: Tensor, width: int) -> Tensor | dict[str, Tensor]:
        """(rows or 1, 1, queries, width) from the position of each query (rows or 1, queries)."""
        columns, queries = self._columns[:width], queries[:, None, :, None]
        causal = columns <= queries
        if self._window is None:
            return self._encode(causal)
        near = self._encode(causal & (columns > queries - self._window))
        return near if self._kinds == {_SLIDING} else {_FULL: self._encode(causal), _SLIDING: near}

    def _encode(self, visible: Tensor) -> Tensor:
        """Boolean for torch's fused attention; additive for eager attention, which adds what it is given."""
        if self.config._attn_implementation == "sdpa":
            return visible
        dtype = next(self.module.parameters()).dtype
        return torch.zeros(visible.shape, dtype=dtype, device=self.device).masked_fill_(
            ~visible, torch.finfo(dtype).min
        )


def _attention_kinds(config: Any, max_length: int) -> tuple[set[str], int | None]:
    """The kinds of attention among the layers, and the sliding window if one is short enough to matter."""
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or [_SLIDING if window else _FULL])
    if kinds - {_FULL, _SLIDING}:
        raise InputError(
            f"{config.model_type} has layers of kind {', '.join(sorted(kinds - {_FULL, _SLIDING}))}; "
            f"slots serve {_FULL} and {_SLIDING}; use another backend"
        )
    if _SLIDING not in kinds or window is None or window >= max_length:
        window = None
    return kinds, window


@contextmanager
def _only_last(module: nn.Module, last: Tensor) -> Iterator[None]:
    """Lets the LM head see only position `last` (rows,) of each row: no logits of whole prompts are made."""
    find: Any = getattr(module, "get_output_embeddings", lambda: None)
    head = find()
    if not isinstance(head, nn.Module):
        yield
        return
    rows = torch.arange(len(last), device=last.device)

    def select(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (inputs[0][rows, last].unsqueeze(1), *inputs[1:])

    hook = head.register_forward_pre_hook(select)
    try:
        yield
    finally:
        hook.remove()
