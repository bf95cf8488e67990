"""Groups of a grid and the order of a pipeline's passes: pure functions of the parallelism."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.backends.training.grid import partitions
from rpeg.plan import Parallelism

DEGREES = st.integers(1, 3)


@st.composite
def parallelisms(draw: st.DrawFn) -> Parallelism:
    shard, replicas = draw(DEGREES), draw(DEGREES)
    tp, cp, pp = draw(DEGREES), draw(DEGREES), draw(DEGREES)
    dp = shard * replicas
    ep = draw(st.sampled_from([n for n in range(1, dp * cp + 1) if dp * cp % n == 0]))
    return Parallelism(dp=dp, tp=tp, pp=pp, cp=cp, ep=ep, zero=draw(st.integers(0, 3)), shard=shard)


@settings(max_examples=60, deadline=None)
@given(parallelisms())
def test_every_rank_is_in_one_group_of_each_axis(p: Parallelism) -> None:
    sizes = {
        "tp": p.tp,
        "cp": p.cp,
        "pp": p.pp,
        "dp": p.dp,
        "data": p.dp * p.cp,
        "model": p.tp * p.pp,
        "block": p.devices,
        "ep": p.ep,
        "expert_data": p.dp * p.cp // p.ep,
        **({"shard": p.shards * p.cp, "replica": p.dp // p.shards} if p.zero else {}),
    }
    found = list(partitions(p))
    for axis, size in sizes.items():
        groups = [members for name, members in found if name == axis]
        assert all(len(members) == size for members in groups)
        seen = Counter(place for members in groups for place in members)
        assert seen == (Counter(range(p.devices)) if size > 1 else Counter())


@settings(max_examples=60, deadline=None)
@given(parallelisms())
def test_ranks_of_a_replica_share_its_samples(p: Parallelism) -> None:
    """Data-parallel groups have every replica once; all other axes but those of ZeRO and experts stay within one."""
    for axis, members in partitions(p):
        replicas = [p.replica_of(place) for place in members]
        if axis == "dp":
            assert sorted(replicas) == list(range(p.dp))
        if axis in ("tp", "cp", "pp", "model", "tied"):
            assert len(set(replicas)) == 1
