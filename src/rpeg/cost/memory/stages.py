"""`Slice`: the layers, embedding and head that one pipeline rank holds, and how many micro-batches it keeps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from rpeg.architecture import Architecture
from rpeg.architecture.model import Layer
from rpeg.errors import InputError
from rpeg.plan import Parallelism


@dataclass(frozen=True)
class Slice:
    """One pipeline rank's part of a model.

    groups: kinds of layers with counts. embedding: it embeds the tokens. head: it has the head and the loss.
    tied: it holds a second copy of the embedding, as its head (first and last rank differ).
    """

    rank: int
    groups: tuple[tuple[Layer, int], ...]
    embedding: bool
    head: bool
    tied: bool

    @property
    def layers(self) -> int:
        """Number of layers."""
        return sum(count for _, count in self.groups)


@lru_cache(maxsize=4096)
def slices(architecture: Architecture, pp: int, vpp: int = 1, balanced: bool = False) -> tuple[Slice, ...]:
    """Each pipeline rank's slice; all together they hold every layer once.

    balanced: layers are dealt so that the head counts like the layers that have as many parameters; else every
    virtual stage has as many layers as any other, or one less. InputError where there are fewer layers than stages.
    """
    layers = architecture.pattern or (architecture.layer,) * architecture.layers
    balanced = balanced and vpp == 1
    if pp * vpp > len(layers) + 4 * balanced:  # embedding, norm, head and loss are blocks of their own
        raise InputError(
            f"{architecture.name} has {len(layers)} layers, pp = {pp} with vpp = {vpp} needs {pp * vpp};"
            f" the nearest legal choice is pp = {max(1, len(layers) // vpp)}"
        )
    owners = _balanced(architecture, layers, pp) if balanced else _even(len(layers), pp, vpp)
    held: list[list[Layer]] = [[] for _ in range(pp)]
    for layer, owner in zip(layers, owners, strict=True):
        held[owner].append(layer)
    last = pp - 1
    return tuple(
        Slice(
            rank,
            tuple(Counter(mine).items()),
            embedding=rank == 0,
            head=rank == last,
            tied=rank == last and last > 0 and architecture.tied_embeddings,
        )
        for rank, mine in enumerate(held)
    )


def kept_microbatches(parallelism: Parallelism, rank: int, microbatches: int | None) -> float:
    """Micro-batches whose activations a rank keeps at once under 1F1B, in whole passes through its layers.

    Rank r of p starts p − r forwards before its first backward (Narayanan et al. 2021, arXiv:2104.04473, section
    2.2). Interleaved with v virtual stages it holds up to 2(p − r − 1) + (v − 1)p + 1 virtual stages (Korthikanti
    et al. 2022, arXiv:2205.05198, section 4.2.3). None: as many micro-batches as the pipeline wants.
    """
    p, v = parallelism.pp, parallelism.vpp
    if p == 1:
        return 1.0
    if v == 1:
        return float(min(p - rank, microbatches or p))
    stages = 2 * (p - rank - 1) + (v - 1) * p + 1
    return min(stages, microbatches * v if microbatches else stages) / v


def _even(layers: int, pp: int, vpp: int) -> list[int]:
    """The owner of each layer: pp·vpp stages, the remainder one layer each to the first."""
    stages = pp * vpp
    least, more = divmod(layers, stages)
    sizes = [least + (stage < more) for stage in range(stages)]
    return [stage % pp for stage, size in enumerate(sizes) for _ in range(size)]


def _balanced(architecture: Architecture, layers: tuple[Layer, ...], pp: int) -> list[int]:
    """Layers go to a rank until it has its share of all parameters that are multiplied with, head included."""
    weights = [float(sum(architecture.layer_parts(layer).values())) for layer in layers]
    head = float(architecture.hidden * architecture.vocabulary)
    share = (sum(weights) + head) / pp
    owners, owner = [], 0
    for total in accumulate(weights):
        owners.append(owner)
        if owner < pp - 1 and total > share * (owner + 1):
            owner += 1
    return owners
