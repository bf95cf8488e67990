"""`Given`: what a job says of the layouts of its plan, for the search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rpeg.ir import Kind
from rpeg.job import StageLayout
from rpeg.plan import Assignment, Parallelism

_OPEN = StageLayout()


@dataclass(frozen=True)
class Given:
    """layouts: by stage, the keys that are said. colocated: stages that run on the same devices."""

    layouts: tuple[tuple[str, StageLayout], ...] = ()
    colocated: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.layouts or self.colocated)

    def of(self, stage: str) -> StageLayout:
        """All keys open where nothing is said of a stage."""
        return dict(self.layouts).get(stage, _OPEN)


NOTHING = Given()


def blocks(
    given: Given, kinds: Mapping[str, Kind], free: Mapping[str, tuple[int, ...]], devices: int
) -> dict[str, tuple[int, ...]]:
    """The devices of each stage: as said, else as `free` has them.

    A count is of the cluster's first devices for generation, of its last for other stages. Colocated stages go where
    the first of them that is told goes, else where the first is.
    """
    found = dict(free)
    for name, kind in kinds.items():
        asked = given.of(name).devices
        if isinstance(asked, tuple):
            found[name] = asked
        elif asked is not None:
            first = 0 if kind is Kind.GENERATE else devices - asked
            found[name] = tuple(range(first, first + asked))
    if given.colocated:
        leader = next((n for n in given.colocated if given.of(n).devices is not None), given.colocated[0])
        found.update(dict.fromkeys(given.colocated, found[leader]))
    return found


def cut(wish: StageLayout, free: Parallelism, devices: int, *, generates: bool) -> Parallelism | None:
    """`free` with the degrees that are said, over so many devices; None where they do not make them up."""
    tp, pp, cp = wish.tp or free.tp, wish.pp or free.pp, wish.cp or 1
    dp = wish.dp or max(1, devices // (tp * pp * cp))
    if dp * tp * pp * cp != devices:
        return None
    zero = free.zero if wish.zero is None else wish.zero
    shard = free.shard if free.shard < dp and dp % max(1, free.shard) == 0 and wish.zero is None else 0
    return replace(
        free,
        dp=dp,
        tp=tp,
        pp=pp,
        cp=cp,
        vpp=wish.vpp or 1,
        ep=wish.ep or free.ep,
        zero=zero if dp * cp > 1 else 0,
        shard=shard,
        sequence_parallel=tp > 1 and not generates,
    )


def sized(wish: StageLayout, free: Assignment) -> Assignment:
    """With the sizes and policies that are said."""
    return replace(
        free,
        microbatch=wish.microbatch or free.microbatch,
        backend=wish.backend or free.backend,
        recompute=wish.recompute or free.recompute,
        offload=wish.offload or free.offload,
    )
