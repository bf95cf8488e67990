"""Groups of a grid and the order of a pipeline's passes: pure functions of the parallelism."""

from __future__ import annotations

from collections import Counter
from math import prod

from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.backends.training.grid import partitions
from rpeg.backends.training.parallel.pipeline import one_forward_one_backward
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


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 9), st.integers(1, 5))
def test_a_stage_holds_as_many_microbatches_as_stages_follow_and_one(count: int, stages: int) -> None:
    for stage in range(stages):
        held, most, seen = set[int](), 0, []
        for kind, number in one_forward_one_backward(count, stages, stage):
            if kind == "forward":
                held.add(number)
            else:
                held.remove(number)
                seen.append(number)
            most = max(most, len(held))
        assert seen == list(range(count))
        assert not held
        assert most == min(count, stages - stage)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9), st.integers(1, 4))
def test_a_pipeline_does_not_deadlock(count: int, stages: int) -> None:
    """Stages one after another, each as far as what it waits for has been sent."""
    passes = [list(one_forward_one_backward(count, stages, stage)) for stage in range(stages)]
    done: set[tuple[int, str, int]] = set()
    at = [0] * stages
    for _ in range(prod((2 * count + 1, stages))):
        for stage in range(stages):
            while at[stage] < len(passes[stage]):
                kind, number = passes[stage][at[stage]]
                before = (stage - 1, kind, number) if kind == "forward" else (stage + 1, kind, number)
                if 0 <= before[0] < stages and before not in done:
                    break
                done.add((stage, kind, number))
                at[stage] += 1
    assert at == [len(p) for p in passes]
