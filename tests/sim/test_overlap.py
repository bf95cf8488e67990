"""Generation ahead in predictions: what it saves where the longest responses are the floor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpeg.architecture import named
from rpeg.cluster import system
from rpeg.cost.passes.slots import schedule
from rpeg.ir import Graph
from rpeg.plan import Assignment, Devices, Host, Item, ItemKind, Parallelism, Plan
from rpeg.sim import Draws, Facts, StageCosts, simulate, step_time
from rpeg.sim.overlap import InARow, overlaps
from rpeg.transforms import parse_all
from rpeg.workload import Lengths, Workload
from samples_of_plans import grpo, plan_of

# Most responses are short; a few are the floor of a step that waits for them.
WORK = Workload(128, 2, Lengths((200,), (1.0,)), Lengths((500, 8000), (15 / 16, 1 / 16)))
FACTS = Facts(dict.fromkeys(("actor", "reference"), named("Qwen2.5-7B")), "bfloat16")
ASYNC = "async{stage=generate,staleness=2,freshness=latest}"
AHEAD = "ahead{stage=generate,how=reprefill}"
LATER = dict.fromkeys(("reward", "reference", "old_logprobs", "advantages", "train_actor"), 1)
GENERATE = Item(ItemKind.RUN, "generate", 3)


def plan(*transforms: str, later: bool = True, bundles: int = 1) -> Plan:
    """Generation on one node of H100s, all else on another; `later`: it runs for the step before."""
    graph = grpo()
    trainer = Parallelism(dp=4, tp=2, zero=3, sequence_parallel=True)
    assignments = tuple(
        Assignment(s.name, Host())
        if not s.models
        else Assignment(s.name, Devices(tuple(range(8))), Parallelism(dp=4, tp=2), 32, bundles=bundles)
        if s.name == "generate"
        else Assignment(s.name, Devices(tuple(range(8, 16))), trainer, 4, recompute="full")
        for s in graph.stages
    )
    found = plan_of(graph, assignments, WORK, shifts=LATER if later else {}, applied=parse_all(transforms))
    return replace(found, cluster=system("dgx-h100", nodes=2))


def graph_of(*transforms: str) -> Graph:
    graph = grpo()
    for transform in parse_all(transforms):
        graph = transform.apply(graph)
    return graph


def test_it_counts_where_the_bound_leaves_room_for_it() -> None:
    def counts(*transforms: str) -> bool:
        graph = graph_of(*transforms)
        return overlaps(graph, graph.stage("generate"))

    assert counts(ASYNC, AHEAD)
    assert not counts(ASYNC)
    assert not counts(AHEAD)
    assert not counts("async{stage=generate,staleness=1,freshness=latest}", AHEAD)


@given(groups=st.integers(1, 9), each=st.integers(1, 3), replicas=st.integers(1, 4))
def test_every_sample_of_every_step_has_a_place_on_its_replica(groups: int, each: int, replicas: int) -> None:
    row = InARow(groups * each, replicas, each)
    places = row.places
    assert sorted(places.ravel().tolist()) == list(range(3 * groups * each))
    own = np.arange(groups * each)
    assert row.lengths(own)[places[1]].tolist() == own.tolist()
    if groups % replicas == 0:  # contiguous blocks, as replicas are dealt them
        size = groups * each // replicas
        assert (places // (3 * size) == own // size).all()


def test_the_steady_step_is_what_slots_do_over_many_steps() -> None:
    """Of an engine that goes from step to step without a pause, over steps of other draws; no less than it takes."""
    prompts, slots, steps = np.full(48, 8), 16, 40
    rng = np.random.default_rng(1)
    drawn = [np.where(rng.random(48) < 1 / 16, 200, 20) for _ in range(steps)]
    many = schedule(np.tile(prompts, steps), np.concatenate(drawn), np.arange(48 * steps), slots)
    measured = many.steps / steps
    row = InARow(48)
    each = [
        row.last(schedule(row.lengths(prompts), row.lengths(d), np.arange(144), slots).finish.astype(float))[
            0
        ]
        for d in drawn
    ]
    alone = np.mean([schedule(prompts, d, np.arange(48), slots).steps for d in drawn])
    assert 0.95 * measured < float(np.mean(each)) < 1.3 * measured
    assert measured < 0.6 * alone


def test_a_step_takes_no_less_than_half_a_longest_response() -> None:
    """However many slots there are: no step is begun before the last but one has ended."""
    row = InARow(4)
    lengths = np.array([5, 5, 5, 100])
    alone = schedule(np.ones(4, np.int64), lengths, np.arange(4), 64)
    seconds, offsets = row.last(
        schedule(np.ones(12, np.int64), row.lengths(lengths), np.arange(12), 64).finish.astype(float)
    )
    assert seconds == alone.steps / 2
    assert (offsets <= seconds).all()


def test_overlap_alone_gains_little_where_generation_is_the_floor_and_ahead_gains_more() -> None:
    """Overlap can save no more than what it overlaps with; the tail of long responses is a lever of its own."""
    seconds, generation = {}, {}
    for name, found in (
        ("whole", plan(later=False)),
        ("overlap", plan(ASYNC)),
        ("ahead", plan(ASYNC, AHEAD)),
    ):
        costs = StageCosts(found, FACTS)
        seconds[name] = step_time(simulate(found, costs, steps=12)).mean_seconds
        drawn = [costs.generation(GENERATE, Draws(WORK, 0).whole(step)).seconds for step in range(12)]
        generation[name] = float(np.mean(drawn))
    other = seconds["whole"] - generation["whole"]
    overlap, ahead = (seconds["whole"] - seconds[name] for name in ("overlap", "ahead"))
    assert other < 0.25 * seconds["whole"]
    assert 0 < overlap <= 1.1 * other
    assert generation["ahead"] < 0.7 * generation["whole"] == pytest.approx(0.7 * generation["overlap"])
    assert ahead > 1.5 * overlap


@pytest.mark.parametrize("bundles", [0, 1])
def test_replicas_apart_and_together(bundles: int) -> None:
    batch = Draws(WORK, 0).whole(3)
    share = batch.take(range(len(batch.ids) // (1 if bundles else 4)))
    alone, ahead = (
        StageCosts(plan(*transforms, bundles=bundles), FACTS).generation(GENERATE, share)
        for transforms in ((ASYNC,), (ASYNC, AHEAD))
    )
    assert 0 <= min(ahead.offset_seconds) <= max(ahead.offset_seconds) <= ahead.seconds * (1 + 1e-9)
    assert 0.45 * alone.seconds < ahead.seconds < 0.8 * alone.seconds
