"""Small collectives over a data-parallel group; with no group they are the identity."""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Group = dist.ProcessGroup | None


def size(group: Group) -> int:
    """Ranks in the group."""
    return 1 if group is None else dist.get_world_size(group)


def rank(group: Group) -> int:
    """This process's place in the group."""
    return 0 if group is None else dist.get_rank(group)


def gather_json(value: Any, group: Group, device: torch.device) -> list[Any]:
    """The JSON values of all ranks, in rank order, on every rank. Nothing is unpickled."""
    if group is None or size(group) == 1:
        return [value]
    data = json.dumps(value).encode()
    lengths = [int(n) for n in all_gather(torch.tensor([len(data)], device=device), group)]
    row = torch.zeros(max(lengths), dtype=torch.uint8, device=device)
    row[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)
    rows = all_gather(row, group).cpu().numpy()
    return [json.loads(rows[i, :n].tobytes()) for i, n in enumerate(lengths)]


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
