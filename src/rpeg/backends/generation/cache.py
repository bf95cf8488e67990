"""`SlotCache`: a Hugging Face cache whose rows are slots, each with its own length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

_CHUNK = 32


@dataclass(frozen=True)
class _Fill:
    """A prompt pass: row `source[i]` of the new states goes to slot `slot[i]`, from column 0 on."""

    source: Tensor
    slot: Tensor


@dataclass(frozen=True)
class _Append:
    """A decode step: row i of the new states goes to `flat[i]` = (slot, column); columns < width are read."""

    flat: Tensor
    width: int


class SlotCache(Cache):  # type: ignore[misc]
    """Keys and values of all layers, column = position, grown on demand and reused between calls.

    Buffers are (slots, columns, heads, head_dim), so that one token of one slot is contiguous and is written
    by one `index_copy_`. Columns beyond a slot's length hold stale but finite numbers: the attention mask
    hides them. Call `fill` or `append` before each forward: it says where the states that the layers pass to
    `update` go.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._slots = self._columns = 0
        self._pass: _Fill | _Append | None = None

    @property
    def bytes(self) -> int:
        """Memory of the buffers."""
        return sum(b.numel() * b.element_size() for b in (*self._keys.values(), *self._values.values()))

    def reserve(self, slots: int, columns: int) -> None:
        """Makes room for at least so many slots and columns; what is there stays."""
        if slots <= self._slots and columns <= self._columns:
            return
        self._slots = max(slots, self._slots)
        if columns > self._columns:
            # A half more each time: copying stays linear in the final length.
            self._columns = -(-max(columns, self._columns * 3 // 2) // _CHUNK) * _CHUNK
        for buffers in (self._keys, self._values):
            for layer, old in buffers.items():
                buffers[layer] = new = old.new_zeros(self._slots, self._columns, *old.shape[2:])
                new[: old.shape[0], : old.shape[1]] = old

    def drop(self) -> None:
        """Frees all buffers."""
        self._keys.clear()
        self._values.clear()
        self._slots = self._columns = 0

    def fill(self, source: Tensor, slot: Tensor) -> None:
        """The next forward is a prompt pass: `source`, `slot`: (m,) int64; a row may go to several slots."""
        self._pass = _Fill(source, slot)

    def append(self, positions: Tensor, width: int) -> None:
        """The next forward is one token for each of slots 0 … n - 1, at `positions` (n,), all < width."""
        starts = torch.arange(len(positions), device=positions.device) * self._columns
        self._pass = _Append(starts + positions, width)

    def copy(self, source: Tensor, target: Tensor, width: int) -> None:
        """Copies the first `width` columns of slots `source` (m,) to `target` (m,), none of them a source."""
        for buffers in (self._keys, self._values):
            for buffer in buffers.values():
                rows = _flat(buffer, width)
                rows.index_copy_(0, target, rows.index_select(0, source))

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Stores states (rows, heads, tokens, head_dim); returns those to attend to, laid out likewise."""
        return (
            self._store(self._keys, layer_idx, key_states),
            self._store(self._values, layer_idx, value_states),
        )

    def _store(self, buffers: dict[int, Tensor], layer: int, states: Tensor) -> Tensor:
        rows, heads, tokens, width = states.shape
        buffer = buffers.get(layer)
        if buffer is None:
            buffer = buffers[layer] = states.new_zeros(self._slots, self._columns, heads, width)
        match self._pass:
            case _Append(flat, columns):
                buffer.view(-1, heads * width).index_copy_(0, flat, states.reshape(rows, heads * width))
                return buffer[:rows, :columns].transpose(1, 2)
            case _Fill(source, slot):
                flat = states.transpose(1, 2).reshape(rows, tokens * heads * width)
                _flat(buffer, tokens).index_copy_(0, slot, flat.index_select(0, source))
                return states
            case None:
                raise RuntimeError("SlotCache.update without fill() or append() before the forward")

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Zero: positions are given to each forward, never derived from the cache."""
        return 0


def _flat(buffer: Tensor, columns: int) -> Tensor:
    """(slots, columns · heads · head_dim): whole rows move twice as fast as a slice by fancy indexing."""
    return buffer.flatten(1)[:, : columns * buffer.shape[2] * buffer.shape[3]]
