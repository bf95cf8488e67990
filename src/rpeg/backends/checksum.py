"""`checksum`: a number of numbers at their places in whole parameters, whatever parts they are held in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from rpeg.backends.boxes import Box, Piece

# Odd constants of splitmix64 (Steele et al. 2014), as signed numbers: products wrap at 64 bits.
_STEP, _MIX, _LAST = -7046029254386353131, -4658895280553007687, -7723592293110705685
_SLAB = 2**15  # what lies in a core's cache while it is mixed


@torch.no_grad()
def checksum(pieces: Iterable[Piece]) -> int:
    """A number below 2^64 of every number's bits, its place in its whole parameter and that one's name and shape.

    It is a sum over all numbers: of parts that do not overlap, on whatever ranks, the sum is that of the whole.
    """
    return sum(_piece_checksum(piece) for piece in pieces) % 2**64


def digest(total: int) -> str:
    """A checksum in hexadecimal."""
    return f"{total % 2**64:016x}"


def _piece_checksum(piece: Piece) -> int:
    key = f"{piece.name} {list(piece.shape)} {piece.tensor.dtype}"
    seed = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little", signed=True)
    tensor = piece.tensor.detach().contiguous()
    bits = tensor.view(_WORDS[tensor.dtype.itemsize])
    total = 0
    for start, places in _slabs(piece.box, piece.shape, bits.device):
        words = bits[start : start + len(places)] if bits.ndim else bits.reshape(1)
        mixed = words.to(torch.int64).reshape(len(places), -1) * _STEP
        mixed += places
        mixed += seed
        mixed ^= mixed >> 30
        mixed *= _MIX
        mixed ^= mixed >> 27
        mixed *= _LAST
        mixed ^= mixed >> 31
        total += int(mixed.sum())
    return total


_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _slabs(box: Box, shape: tuple[int, ...], device: torch.device) -> Iterable[tuple[int, Tensor]]:
    """(first row of the part, flat places in the whole of some rows' numbers, (rows, k)), mixed so that neighbours are
    far apart."""
    if not box.numel:
        return
    dims = box.shape or (1,)
    strides = [int(np.prod(shape[d + 1 :], dtype=np.int64)) for d in range(len(shape))] or [1]
    starts = box.starts or (0,)
    inner = torch.zeros(1, dtype=torch.int64, device=device)
    for size, stride, begin in zip(dims[1:], strides[1:], starts[1:], strict=True):
        along = (torch.arange(size, device=device) + begin) * stride
        inner = (inner[:, None] + along[None]).reshape(-1)
    rows = max(1, _SLAB // max(1, len(inner)))
    for first in range(0, dims[0], rows):
        count = min(rows, dims[0] - first)
        outer = (torch.arange(first, first + count, device=device) + starts[0]) * strides[0]
        yield first, (outer[:, None] + inner[None]) * _MIX
