"""Which part of a model lies on which device: boxes of layers × experts × a slice of each matrix.

A device holds, of each class of parameters, the layers of its pipeline stage, its experts, and its slice of every
matrix. Slices of two layouts overlap as intervals do, so that what they share is a product of small matrices, however
many parameters and devices there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from rpeg.architecture import Architecture, Head
from rpeg.plan import Parallelism

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CLASSES = ("matrices", "whole", "experts")
"""matrices: cut by tensor parallelism. whole: norms and routers, which it leaves whole. experts: of a mixture."""

_CUT = ("attention", "ffn", "shared_expert", "recurrent")


@dataclass(frozen=True)
class Held:
    """A model as a stage holds it: ranks `first` … of the fabric, in the order of `Parallelism`.

    Serving engines with ep = 1 cut each expert by tp, as they do other matrices.
    """

    parallelism: Parallelism
    first: int = 0
    dtype: str = "bfloat16"

    @property
    def last(self) -> int:
        """One past the last device."""
        return self.first + self.parallelism.devices


@dataclass(frozen=True)
class Grid:
    """Where one class of parameters lies in one layout.

    stages: (pp, layers + 2) which layers a stage holds, the embedding and the head as the last two.
    pieces: (n, 4) the slices that the class is cut in: [first, end) of the experts, [first, end) of each matrix.
    stage, piece: (devices,) which a device holds. holders: (pp, n) devices that hold the same.
    """

    stages: Floats
    pieces: Floats
    stage: Ints
    piece: Ints

    @cached_property
    def holders(self) -> Floats:
        """Of each stage's part of each slice."""
        shape = len(self.stages), len(self.pieces)
        counted = np.bincount(self.stage * shape[1] + self.piece, minlength=shape[0] * shape[1])
        return np.asarray(counted.reshape(shape), dtype=np.float64)


@lru_cache(maxsize=256)
def layer_weights(architecture: Architecture, head: Head) -> dict[str, Floats]:
    """Parameters of each class in each layer, (layers + 2,): the embedding and the head as the last two."""
    kinds = {layer: architecture.layer_parts(layer) for layer, _ in architecture.groups}
    layers = architecture.pattern or (architecture.groups[0][0],) * architecture.layers
    out = {name: np.zeros(len(layers) + 2) for name in CLASSES}
    for index, layer in enumerate(layers):
        for part, parameters in kinds[layer].items():
            name = "experts" if part == "experts" else "matrices" if part in _CUT else "whole"
            out[name][index] += parameters
    out["matrices"][-2] = architecture.embedding_parameters
    out["matrices"][-1] = architecture.head_parameters(head)
    out["whole"][-1] += architecture.norm_parameters
    return out


@lru_cache(maxsize=1024)
def grid(name: str, layers: int, parallelism: Parallelism) -> Grid:
    """The grid of a class: `layers` without embedding and head."""
    p = parallelism
    rank = np.arange(p.devices)
    tensor, data = rank % p.tp, rank // (p.tp * p.cp) % p.dp
    stage = rank // (p.tp * p.cp * p.dp)
    shards = p.shards if p.zero == 3 else 1
    if name == "experts" and p.ep > 1:
        within = rank % (p.tp * p.cp * p.dp)
        spread = max(1, p.tp * p.cp * p.dp // p.ep)
        shards = min(shards, spread)
        piece = within % p.ep * shards + within // p.ep % shards
        return Grid(_stages(layers, p), _cut(p.ep * shards, experts=True), stage, piece)
    cut = 1 if name == "whole" else p.tp
    piece = (tensor if cut > 1 else 0) * shards + data % shards
    return Grid(_stages(layers, p), _cut(cut * shards, experts=False), stage, piece)


def overlap(a: Floats, b: Floats) -> Floats:
    """Share of a layer that two slices have in common: (n, m) for (n, 4) and (m, 4) of them."""
    low = np.maximum(a[:, None, 0::2], b[None, :, 0::2])
    high = np.minimum(a[:, None, 1::2], b[None, :, 1::2])
    return np.asarray(np.prod(np.maximum(high - low, 0.0), axis=2), dtype=np.float64)


def volume(pieces: Floats) -> Floats:
    """Share of a layer that each slice is: (n,) for (n, 4)."""
    return np.asarray((pieces[:, 1] - pieces[:, 0]) * (pieces[:, 3] - pieces[:, 2]), dtype=np.float64)


def _cut(parts: int, *, experts: bool) -> Floats:
    edges = np.arange(parts + 1) / parts
    out = np.tile(np.array([0.0, 1.0, 0.0, 1.0]), (parts, 1))
    at = 0 if experts else 2
    out[:, at], out[:, at + 1] = edges[:-1], edges[1:]
    return out


def _stages(layers: int, p: Parallelism) -> Floats:
    """Interleaved chunks of layers, as equal as they can be; the first ones have one more."""
    chunks = p.pp * p.vpp
    chunk = np.repeat(np.arange(chunks), [layers // chunks + (c < layers % chunks) for c in range(chunks)])
    out = np.zeros((p.pp, layers + 2))
    out[chunk % p.pp, np.arange(layers)] = 1.0
    out[0, layers] = out[-1, layers + 1] = 1.0
    return out
