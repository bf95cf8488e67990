"""What would make a problem fit does, and the next smaller change does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from problems import TINY, problem

from rpeg import algorithms, architecture
from rpeg.cluster import system
from rpeg.search import Infeasible, Problem, can_fit, plan_job, ways_out
from rpeg.search.changes import Change, Devices, MaxResponse, Memory, OfKind, Prompts
from rpeg.search.ways_out import PARTS, Ladder, larger_kinds, smallest
from rpeg.sim import Facts
from rpeg.workload import Workload, constant, lognormal


def rented(devices: int, actor: str, longest: int = 2000) -> Problem:
    """GRPO on a part of a node of H100."""
    module = algorithms.load("grpo")
    graph = module.graph(module.Hyper())
    shapes = {m.name: architecture.named(actor) for m in graph.models}
    work = Workload(16, 2, constant(200), lognormal(longest / 4, longest), minibatches=2)
    return Problem(graph, system("dgx-h100", devices=devices), work, Facts(shapes, "bfloat16"), 4)


def refused(given: Problem) -> Infeasible:
    with pytest.raises(Infeasible) as error:
        plan_job(given)
    return error.value


def smaller(change: Change, given: Problem) -> Change | None:
    """The next smaller change of its kind; None where that is no change at all."""
    match change:
        case Devices(count):
            own, whole = len(given.cluster), 1 if given.is_local else 8
            if given.is_local:
                return Devices(count + 1) if count + 1 < own else None
            below = count - whole if count > whole else max(n for n in range(1, count) if whole % n == 0)
            return Devices(below) if below > own else None
        case Memory(size):
            step = given.cluster.nodes[0].host_memory_bytes // PARTS
            return Memory(size - step) if size - step > given.cluster.nodes[0].host_memory_bytes else None
        case MaxResponse(tokens):
            longest = given.workload.response_lengths.maximum
            step = max(1, longest // PARTS)
            return MaxResponse(tokens + step) if tokens + step < longest else None
        case OfKind(name):
            known = larger_kinds(given)
            return OfKind(known[known.index(name) - 1]) if known.index(name) else None
    return None


def check_ways(given: Problem) -> set[type[Change]]:
    error = refused(given)
    assert error.shortage is not None
    assert error.shortage.short_bytes > 0
    found = list(ways_out(error, can_fit))
    for change in found:
        assert plan_job(change.apply(given)).best.estimate.fits
        less = smaller(change, given)
        if less is not None:
            refused(less.apply(given))
        assert change.words(given) in str(error.with_ways(found))
    return {type(change) for change in found}


@settings(max_examples=1, deadline=None)
@given(st.integers(2**27, 560 * 2**20))
@example(2**28)
def test_on_this_machine_it_is_the_smallest_change(memory_bytes: int) -> None:
    assert Memory in check_ways(problem("grpo", devices=2, memory_bytes=memory_bytes, prompts=4))


@pytest.mark.parametrize(("devices", "actor"), [(1, "Qwen2.5-7B"), (2, "Qwen2.5-14B")])
def test_on_rented_devices_it_is_the_smallest_change(devices: int, actor: str) -> None:
    assert {Devices, OfKind} <= check_ways(rented(devices, actor))


def test_batches_that_do_not_divide_are_offered_others() -> None:
    given = rented(8, "Qwen2.5-1.5B")
    odd = replace(TINY, layers=3, heads=3, kv_heads=3)
    given = replace(
        given,
        cluster=system("dgx-h100", 2),
        facts=replace(given.facts, architectures=dict.fromkeys(given.facts.architectures, odd)),
        workload=Workload(3, 1, constant(200), constant(300)),
    )
    error = refused(given)
    assert error.shortage is None
    found = list(ways_out(error, can_fit))
    assert any(isinstance(change, Prompts) for change in found)
    assert all(can_fit(change.apply(given)) for change in found)


def test_nothing_that_helps_is_said() -> None:
    error = refused(rented(1, "Qwen2.5-7B"))
    assert "It would fit" not in str(error)
    assert "No single change" in str(error.with_ways(()))


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 9))
def test_the_smallest_works_and_the_one_before_does_not(works: list[bool], step: int) -> None:
    every = [MaxResponse(n) for n in range(len(works))]
    rungs = every[step - 1 :: step]

    def between(rung: int) -> list[MaxResponse]:
        return every[rung * step : (rung + 1) * step - 1]

    found = smallest(Ladder(rungs, between, rising=False), lambda change: works[change.tokens])
    tried = [works[rung.tokens] for rung in rungs]
    assert (found is None) == (not any(tried))
    if found is not None:
        assert works[found.tokens]
        first = tried.index(True) * step
        assert found.tokens == first or not works[found.tokens - 1]


def test_where_the_largest_does_not_help_no_other_is_tried() -> None:
    tried = []
    assert (
        smallest(Ladder([MaxResponse(n) for n in range(9)]), lambda change: bool(tried.append(change)))
        is None
    )
    assert tried == [MaxResponse(8)]
