"""The digest of a model that several ranks hold together."""

from __future__ import annotations

import torch

from rpeg.backends.training import collectives
from rpeg.backends.training.grid import Grid
from rpeg.backends.training.parameters.protocol import Parameters
from rpeg.backends.weights import checksum, digest


def replica_digest(parameters: Parameters, grid: Grid, device: torch.device, *, sharded: bool) -> str:
    """Of one replica, each number once. Collective over those that hold it.

    sharded: a rank has only its shard of what model parallelism leaves it.
    """
    layout, pieces = parameters.layout, parameters.weights()
    dense = checksum(p for p in pieces if layout[p.name].owned and not layout[p.name].expert)
    experts = checksum(p for p in pieces if layout[p.name].expert)
    total = _summed(dense, ["shard"] if sharded else [], grid, device) + _summed(
        experts, ["ep"], grid, device
    )
    return digest(_summed(total, ["model"], grid, device))


def _summed(number: int, axes: list[str], grid: Grid, device: torch.device) -> int:
    """Over the ranks along some axes: as whole numbers, which a sum of floats would round."""
    for axis in axes:
        number = sum(collectives.gather_json(number, grid.group(axis), device))
    return number
