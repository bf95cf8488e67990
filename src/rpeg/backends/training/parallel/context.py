"""Context parallelism: each rank has a part of every sequence, and for `attention` some heads of all of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from rpeg.backends.training.parallel.functions import leave


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
