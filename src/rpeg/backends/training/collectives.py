"""Small collectives over a data-parallel group; with no group they are the identity."""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Group = dist.ProcessGroup | None

_SHORT_BYTES = 1016


def size(group: Group) -> int:
    """Ranks in the group."""
    return 1 if group is None else dist.get_world_size(group)


def rank(group: Group) -> int:
    """This process's place in the group."""
    return 0 if group is None else dist.get_rank(group)


def gather_json(value: Any, group: Group, device: torch.device) -> list[Any]:
    """The JSON values of all ranks, in rank order, on every rank. Nothing is unpickled.

    One collective where all are short, as they nearly always are: each row begins with the length of what follows.
    """
    if group is None or size(group) == 1:
        return [value]
    data = json.dumps(value).encode()
    rows = _gather_bytes(data, _SHORT_BYTES, group, device)
    longest = max(length for length, _ in rows)
    if longest > _SHORT_BYTES:
        rows = _gather_bytes(data, longest, group, device)
    return [json.loads(content[:length]) for length, content in rows]


def _gather_bytes(
    data: bytes, room: int, group: dist.ProcessGroup, device: torch.device
) -> list[tuple[int, bytes]]:
    """(length, the first `room` bytes) of every rank's data."""
    framed = len(data).to_bytes(8, "little") + data[:room].ljust(room, b"\0")
    row = torch.frombuffer(bytearray(framed), dtype=torch.uint8).to(device)
    gathered = [bytes(r) for r in all_gather(row, group).cpu().numpy()]
    return [(int.from_bytes(r[:8], "little"), r[8:]) for r in gathered]


def all_gather(row: Tensor, group: dist.ProcessGroup) -> Tensor:
    """(ranks, k) of every rank's (k,)."""
    out = row.new_empty(size(group) * row.numel())
    dist.all_gather_into_tensor(out, row.contiguous(), group=group)
    return out.view(size(group), -1)


def all_reduce_sum(tensor: Tensor, group: Group) -> Tensor:
    """Sums in place over the group."""
    if group is not None and size(group) > 1:
        dist.all_reduce(tensor, op=dist.ReduceOp.SUM, group=group)
    return tensor
