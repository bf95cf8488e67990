"""`Grid`: this rank's place among those that share a model, and the process groups along each axis.

Ranks are numbered as `Parallelism` says, tp fastest, then cp, dp and pp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import torch.distributed as dist

from rpeg.backends.training.collectives import Group
from rpeg.plan import Parallelism

AXES: Mapping[str, tuple[str, ...]] = {
    "tp": ("tp",),
    "cp": ("cp",),
    "pp": ("pp",),
    "pp_back": ("pp",),
    "pp_around": ("pp",),
    "pp_around_back": ("pp",),
    "dp": ("shard", "replica"),
    "data": ("cp", "shard", "replica"),
    "block": ("tp", "cp", "shard", "replica", "pp"),
    "shard": ("cp", "shard"),
    "replica": ("replica",),
    "model": ("tp", "pp"),
    "ep": ("ep",),
    "expert_data": ("expert_data",),
}
"""The coordinates along which the ranks of each group differ.

block: all of them. dp: ranks with different samples. data: ranks whose gradients are summed. shard: ranks over which
ZeRO cuts; replica:
ranks with the same shards. model: ranks that hold different parts of one model before ZeRO. ep: ranks with different
experts, expert_data: ranks with the same ones.
"""
EXPERT_AXES = ("ep", "expert_data")
WAYS = ("pp_back", "pp_around", "pp_around_back")
"""Of a pipeline, beside `pp`: each way of its messages has a group of its own; around, where stages are interleaved."""

Groups = dict[tuple[tuple[int, ...], str], "dist.ProcessGroup | None"]


@dataclass(frozen=True)
class Grid:
    """groups: by axis, of those axes that have more than one rank."""

    parallelism: Parallelism = field(default_factory=Parallelism)
    rank: int = 0
    groups: Mapping[str, dist.ProcessGroup] = field(default_factory=dict)

    def group(self, axis: str) -> Group:
        return self.groups.get(axis)

    def size(self, axis: str) -> int:
        """Ranks along an axis."""
        group = self.groups.get(axis)
        return 1 if group is None else dist.get_world_size(group)

    def index(self, axis: str) -> int:
        """This rank's place along an axis."""
        group = self.groups.get(axis)
        return 0 if group is None else dist.get_rank(group)

    @property
    def block(self) -> Group:
        """All ranks that share the model."""
        return self.group("block")

    @property
    def devices(self) -> int:
        return self.parallelism.devices

    @property
    def cuts(self) -> bool:
        """Whether a rank holds less than the model."""
        p = self.parallelism
        return self.size("model") > 1 or self.size("ep") > 1 or (p.zero == 3 and self.size("shard") > 1)

    @property
    def speaks(self) -> bool:
        """Whether this is the first of the ranks that compute the same results."""
        last = self.parallelism.pp - 1
        return self.index("tp") == self.index("cp") == 0 and self.index("pp") == last


def make_grid(
    parallelism: Parallelism,
    ranks: Sequence[int],
    made: Groups,
    new_group: Callable[[list[int]], object] = dist.new_group,
) -> Grid | None:
    """The grid of this process over these global ranks; None where it is not among them.

    Collective over the whole world: every process makes the same groups in the same order. made: groups so far, by
    their ranks; one is made only once, but for the ways of a pipeline.
    """
    mine: dict[str, dist.ProcessGroup] = {}
    me = dist.get_rank()
    for axis, members in partitions(parallelism):
        chosen = tuple(ranks[i] for i in members)
        key = (chosen, axis if axis in WAYS else "")
        if key not in made:
            group = new_group(list(chosen))
            made[key] = group if isinstance(group, dist.ProcessGroup) else None
        group = made[key]
        if me in chosen and group is not None:
            mine[axis] = group
    return Grid(parallelism, list(ranks).index(me), mine) if me in ranks else None


def partitions(parallelism: Parallelism) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(axis, places in the block) of every group of more than one rank."""
    for axis, varying in AXES.items():
        if axis in ("shard", "replica") and not parallelism.zero:
            continue
        if axis.startswith("pp_around") and parallelism.vpp == 1:
            continue
        places = _expert_places(parallelism) if axis in EXPERT_AXES else _places(parallelism)
        together: dict[tuple[int, ...], list[int]] = {}
        for place, at in enumerate(places):
            fixed = tuple(i for name, i in at.items() if name not in varying)
            together.setdefault(fixed, []).append(place)
        yield from ((axis, tuple(members)) for members in together.values() if len(members) > 1)
    if parallelism.pp > 1:
        last = parallelism.devices // parallelism.pp * (parallelism.pp - 1)
        yield from (("tied", (place, last + place)) for place in range(parallelism.devices // parallelism.pp))


def _places(p: Parallelism) -> list[dict[str, int]]:
    """The coordinates of each rank of the block, in order."""
    return [
        {"tp": tp, "cp": cp, "shard": dp % p.shards, "replica": dp // p.shards, "pp": pp}
        for pp, dp, cp, tp in product(range(p.pp), range(p.dp), range(p.cp), range(p.tp))
    ]


def _expert_places(p: Parallelism) -> list[dict[str, int]]:
    """Experts are dealt over the data- and context-parallel ranks."""
    found = []
    for at in _places(p):
        data = (at["replica"] * p.shards + at["shard"]) * p.cp + at["cp"]
        found.append({"tp": at["tp"], "ep": data % p.ep, "expert_data": data // p.ep, "pp": at["pp"]})
    return found
