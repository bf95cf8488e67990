"""`Box`: a part of a tensor, cut out along its dimensions; and `Piece`, a tensor that is such a part of a parameter."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor


@dataclass(frozen=True)
class Box:
    """From `starts` up to `stops` in each dimension of the whole tensor."""

    starts: tuple[int, ...]
    stops: tuple[int, ...]

    @classmethod
    def whole(cls, shape: torch.Size | tuple[int, ...]) -> Box:
        return cls((0,) * len(shape), tuple(shape))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(b - a for a, b in zip(self.starts, self.stops, strict=True))

    @property
    def numel(self) -> int:
        return prod(self.shape)

    def cut(self, dim: int, start: int, stop: int) -> Box:
        """What lies between `start` and `stop`, counted from this box's own start, along one dimension."""
        origin = self.starts[dim]
        starts, stops = list(self.starts), list(self.stops)
        starts[dim], stops[dim] = origin + start, origin + stop
        return Box(tuple(starts), tuple(stops))

    def chunk(self, dim: int, parts: int, index: int) -> Box:
        """One of `parts` along a dimension, as `torch.chunk` cuts: the last ones may be shorter, or empty."""
        return self.cut(dim, *chunk(self.shape[dim], parts, index))

    def overlap(self, other: Box) -> Box | None:
        """What both hold; None where that is nothing."""
        starts = tuple(map(max, self.starts, other.starts))
        stops = tuple(map(min, self.stops, other.stops))
        return Box(starts, stops) if all(a < b for a, b in zip(starts, stops, strict=True)) else None

    def within(self, outer: Box) -> tuple[slice, ...]:
        """Where this box lies in a tensor that holds `outer`."""
        return tuple(
            slice(a - o, b - o) for a, b, o in zip(self.starts, self.stops, outer.starts, strict=True)
        )


@dataclass(frozen=True)
class Piece:
    """What one rank holds of a parameter (or of its moments).

    shape: of the whole parameter. owned: whether this rank is the first of those that hold the same: owned pieces of
    all ranks together are the model, each number once.
    """

    name: str
    shape: tuple[int, ...]
    box: Box
    tensor: Tensor
    owned: bool = True


def chunk(size: int, parts: int, index: int) -> tuple[int, int]:
    """(start, stop) of one of `parts` chunks of `size`, as `torch.chunk` cuts."""
    each = -(-size // parts)
    return min(size, index * each), min(size, (index + 1) * each)
