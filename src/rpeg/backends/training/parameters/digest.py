"""The checksum of parameters that several ranks hold together."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rpeg.backends.boxes import Piece
from rpeg.backends.checksum import checksum
from rpeg.backends.training import collectives
from rpeg.backends.training.grid import Grid
from rpeg.backends.training.parallel.placed import Layout


def replica_checksum(
    pieces: Sequence[Piece], layout: Layout, grid: Grid, device: torch.device, *, sharded: bool
) -> int:
    """Of one replica, each number once; each rank gives the pieces that it holds. Collective over those that hold it.

    sharded: a rank has only its shard of what model parallelism leaves it.
    """
    dense = checksum(p for p in pieces if layout[p.name].owned and not layout[p.name].expert)
    experts = checksum(p for p in pieces if layout[p.name].expert)
    total = _summed(dense, ["shard"] if sharded else [], grid, device) + _summed(
        experts, ["ep"], grid, device
    )
    return _summed(total, ["model"], grid, device)


def _summed(number: int, axes: list[str], grid: Grid, device: torch.device) -> int:
    """Over the ranks along some axes: as whole numbers, which a sum of floats would round."""
    for axis in axes:
        number = sum(collectives.gather_json(number, grid.group(axis), device))
    return number
