"""The order of a pipeline's passes: what a stage holds, and that no stage waits for ever."""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.architecture import Architecture
from rpeg.backends.training.parallel.pipeline import Pass, _even, one_forward_one_backward
from rpeg.cost.memory.stages import slices
from rpeg.cost.passes.cuts import _stages
from rpeg.plan import Parallelism

COUNTS, STAGES, CHUNKS = st.integers(0, 9), st.integers(2, 4), st.integers(1, 3)


@settings(max_examples=60, deadline=None)
@given(COUNTS, st.integers(1, 5))
def test_a_stage_holds_as_many_microbatches_as_stages_follow_and_one(count: int, stages: int) -> None:
    for stage in range(stages):
        held, most, seen = set[int](), 0, []
        for one in one_forward_one_backward(count, stages, stage):
            if one.kind == "forward":
                held.add(one.number)
            else:
                held.remove(one.number)
                seen.append(one.number)
            most = max(most, len(held))
        assert seen == list(range(count))
        assert not held
        assert most == min(count, stages - stage)


@settings(max_examples=60, deadline=None)
@given(COUNTS, STAGES, CHUNKS)
def test_every_microbatch_passes_every_chunk_once_each_way(count: int, stages: int, chunks: int) -> None:
    for stage in range(stages):
        passes = list(one_forward_one_backward(count, stages, stage, chunks))
        everything = set(product(("forward", "backward"), range(count), range(chunks)))
        assert {(one.kind, one.number, one.chunk) for one in passes} == everything
        assert len(passes) == len(everything)


@settings(max_examples=80, deadline=None)
@given(COUNTS, STAGES, CHUNKS)
def test_a_pipeline_does_not_deadlock_and_messages_come_in_the_order_in_which_they_are_awaited(
    count: int, stages: int, chunks: int
) -> None:
    """Stages one after another, each as far as what it waits for has been sent; each way is a queue."""
    passes = [list(one_forward_one_backward(count, stages, stage, chunks)) for stage in range(stages)]
    queues: defaultdict[tuple[str, int], deque[tuple[int, int]]] = defaultdict(deque)
    at = [0] * stages
    for _ in range(2 * count * chunks * stages + 1):
        for stage in range(stages):
            while at[stage] < len(passes[stage]) and _runs(
                passes[stage][at[stage]], stage, stages, chunks, queues
            ):
                at[stage] += 1
    assert at == [len(p) for p in passes]
    assert not any(queues.values())


def _runs(
    one: Pass,
    stage: int,
    stages: int,
    chunks: int,
    queues: defaultdict[tuple[str, int], deque[tuple[int, int]]],
) -> bool:
    """Takes its message and sends its own; False where there is none yet. Virtual stages are numbered over all."""
    place, last = one.chunk * stages + stage, stages * chunks - 1
    begins = place == 0 if one.kind == "forward" else place == last
    waiting = queues[one.kind, stage]
    if not begins:
        if not waiting:
            return False
        assert waiting.popleft() == (one.number, place)
    following = place + (1 if one.kind == "forward" else -1)
    if 0 <= following <= last:
        queues[one.kind, following % stages].append((one.number, following))
    return True


@pytest.mark.parametrize(("stages", "chunks"), [(2, 2), (4, 2), (4, 3)])
def test_interleaving_shrinks_the_bubble(stages: int, chunks: int) -> None:
    """With as many micro-batches as make whole rounds, by as many as there are chunks (arXiv:2104.04473, section 2.2)."""
    count = 4 * stages
    ideal = 3 * count
    one, interleaved = (_seconds(count, stages, n) / n for n in (1, chunks))
    assert (interleaved - ideal) * chunks == pytest.approx(one - ideal)


def _seconds(count: int, stages: int, chunks: int) -> float:
    """Until all is done, where a chunk takes 1 forward and 2 backward."""
    passes = [list(one_forward_one_backward(count, stages, stage, chunks)) for stage in range(stages)]
    done: dict[tuple[str, int, int], float] = {}
    at, clock, last = [0] * stages, [0.0] * stages, stages * chunks - 1
    while at != [len(p) for p in passes]:
        for stage in range(stages):
            while at[stage] < len(passes[stage]):
                one = passes[stage][at[stage]]
                place, forward = one.chunk * stages + stage, one.kind == "forward"
                before = place - 1 if forward else place + 1
                needs = (
                    (one.kind, one.number, before) if 0 <= before <= last else ("forward", one.number, place)
                )
                if needs not in done and not (forward and place == 0):
                    break
                begins = max(clock[stage], done.get(needs, 0.0))
                clock[stage] = done[one.kind, one.number, place] = begins + (1 if forward else 2)
                at[stage] += 1
    return max(clock)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 3))
def test_predictions_deal_layers_as_stages_do(layers: int, stages: int, chunks: int) -> None:
    if stages * chunks > layers:
        return
    held = []
    for stage in range(stages):
        dealt = [_even(layers, stages * chunks, chunk * stages + stage) for chunk in range(chunks)]
        held.append(sum(stop - start for start, stop in dealt))
    architecture = Architecture("deep", "llama", layers, 64, 4, 4, 16, 128, 64, 128)
    assert [part.layers for part in slices(architecture, stages, chunks)] == held
    assert [count for count, _ in _stages(layers, Parallelism(pp=stages, vpp=chunks))] == held
