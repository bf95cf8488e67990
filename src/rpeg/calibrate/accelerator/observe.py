"""What else a device does: launches, copies to the host and back, a layer forward and backward."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu

from rpeg.calibrate.accelerator.clock import Clock
from rpeg.calibrate.accelerator.grids import Grids

_COPY_BYTES = (1 << 16, 1 << 20, 1 << 24, 1 << 27)


def launch_seconds(device: torch.device, clock: Clock) -> float:
    """Host time to launch one small kernel."""
    x = torch.ones(16, device=device)
    return clock.host_seconds(partial(torch.add, x, 1.0))


def copies(device: torch.device, clock: Clock) -> list[dict[str, float]]:
    """Seconds from pinned host memory to the device and back by bytes; on a CPU from memory to memory."""
    pinned = device.type == "cuda"
    out = []
    for size in _COPY_BYTES:
        host = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        there = torch.empty(size, dtype=torch.uint8, device=device)
        up = clock.seconds([partial(there.copy_, host, non_blocking=True)])
        down = clock.seconds([partial(host.copy_, there, non_blocking=True)])
        out.append({"bytes": size, "to_device_seconds": up, "to_host_seconds": down})
    return out


class Layer(nn.Module):
    """A decoder layer with RMS norms, grouped-query attention and a gated feed-forward."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, inner: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, hidden // heads
        self.before, self.between = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * self.head_dim, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.up, self.down = nn.Linear(hidden, 2 * inner, bias=False), nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(sequences, tokens, hidden) to the same."""
        batch, tokens, _ = x.shape
        packed = self.qkv(self.before(x)).view(batch, tokens, -1, self.head_dim).transpose(1, 2)
        q, k, v = packed.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        seen = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, -1))
        gate, value = self.up(self.between(x)).chunk(2, dim=-1)
        return x + self.down(silu(gate) * value)  # type: ignore[no-any-return]


def layer(grids: Grids, device: torch.device, dtype: str, clock: Clock) -> dict[str, Any]:
    """Seconds of a whole layer on one sequence, forward alone and forward with backward."""
    hidden, heads, kv_heads, inner, tokens = grids.layer
    made = Layer(hidden, heads, kv_heads, inner).to(device, getattr(torch, dtype))
    x = torch.randn(1, tokens, hidden, device=device, dtype=getattr(torch, dtype))

    def forward() -> None:
        with torch.no_grad():
            made(x)

    def both() -> None:
        made.zero_grad(set_to_none=False)
        made(x).sum().backward()

    both()
    names = ("hidden", "heads", "kv_heads", "inner", "tokens")
    return {
        **dict(zip(names, grids.layer, strict=True)),
        "dtype": dtype,
        "forward_seconds": clock.seconds([forward]),
        "forward_backward_seconds": clock.seconds([both]),
    }
