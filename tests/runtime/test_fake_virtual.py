"""Fake devices under a virtual clock: the driver comes to the times that the simulator predicts, and to no others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plans import keeping, resting, selecting
from random_plans import FixedCosts, timed_plans
from rpeg.plan import Item, Plan
from rpeg.runtime.fake.costs import FakeCosts
from rpeg.runtime.fake.injection import Injection
from rpeg.runtime.fake.virtual import VirtualLoop, until
from rpeg.sim import simulate
from rpeg.trace import Trace, What
from rpeg.verify import prove
from runtime.pretended import pretended
from samples_of_plans import TableCosts

STEPS = 4
FEW = settings(max_examples=25, deadline=None)


def _moments(trace: Trace) -> dict[tuple[What, Item, int | None], float]:
    return {(e.what, e.item, e.part): e.seconds for e in trace.entries}


def _spans(trace: Trace) -> dict[tuple[Item, str], tuple[float, float]]:
    return {(s.item, s.lane): (s.start_seconds, s.end_seconds) for s in trace.spans}


@FEW
@given(timed_plans())
def test_a_virtual_run_has_the_times_of_the_simulation(timed: tuple[Plan, FixedCosts]) -> None:
    plan, costs = timed
    ran, predicted = pretended(plan, costs, STEPS), simulate(plan, costs, STEPS)
    assert _moments(ran) == pytest.approx(_moments(predicted), abs=1e-9)
    assert _spans(ran).keys() == _spans(predicted).keys()
    for key, seconds in _spans(predicted).items():
        assert _spans(ran)[key] == pytest.approx(seconds, abs=1e-9)
    assert prove(ran).broken == ()


@FEW
@given(timed_plans(), st.integers(0, 2**16))
def test_what_is_injected_is_what_is_simulated(timed: tuple[Plan, FixedCosts], seed: int) -> None:
    plan, costs = timed
    injection = Injection(seed, noise=0.2, delayed=0.3, delay_seconds=5.0)
    ran = pretended(plan, costs, STEPS, injection)
    predicted = simulate(plan, FakeCosts(costs, injection, 1.0, costs.dispatch_seconds), STEPS)
    assert _moments(ran) == pytest.approx(_moments(predicted), abs=1e-9)
    assert prove(ran).broken == ()


@pytest.mark.parametrize("make", [selecting, keeping], ids=["rounds", "kept for the next step"])
def test_selection_is_that_of_the_simulation(make: Callable[[], Plan]) -> None:
    plan = make()
    ran, predicted = pretended(plan, TableCosts({}), 6), simulate(plan, TableCosts({}), 6)
    assert _moments(ran) == pytest.approx(_moments(predicted), abs=1e-9)
    assert {e.what for e in ran.entries} >= {What.REJECTED, What.PRODUCED}
    assert prove(ran).broken == ()


def test_what_rests_on_the_host_comes_and_goes_as_simulated() -> None:
    plan = resting()
    ran, predicted = pretended(plan, TableCosts({}), 4), simulate(plan, TableCosts({}), 4)
    assert _moments(ran) == pytest.approx(_moments(predicted), abs=1e-9)
    assert {e.what for e in ran.entries} >= {What.RELOAD, What.OFFLOAD}
    assert prove(ran).broken == ()


@FEW
@given(timed_plans(), st.integers(0, 2**16))
def test_no_delay_lets_anything_end_earlier(timed: tuple[Plan, FixedCosts], seed: int) -> None:
    """Lanes keep their order: there is no anomaly by which a late item helps another."""
    plan, costs = timed
    late = pretended(plan, costs, STEPS, Injection(seed, delayed=0.3, delay_seconds=5.0))
    on_time = _moments(pretended(plan, costs, STEPS))
    for key, seconds in _moments(late).items():
        assert seconds >= on_time[key] - 1e-9


def test_virtual_hours_take_no_time_and_timers_keep_their_order() -> None:
    came: list[tuple[str, float]] = []

    async def sleeper(name: str, moment: float) -> None:
        await until(moment)
        came.append((name, asyncio.get_running_loop().time()))

    async def all_of_them() -> None:
        await asyncio.gather(
            sleeper("last", 7200.1), sleeper("a", 3600.0), sleeper("b", 3600.0), sleeper("now", 0.0)
        )

    before = time.monotonic()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(all_of_them())
    assert came == [("now", 0.0), ("a", 3600.0), ("b", 3600.0), ("last", 7200.1)]
    assert time.monotonic() - before < 3600


def test_a_cancelled_timer_does_not_move_the_clock() -> None:
    async def impatient() -> float:
        try:
            async with asyncio.timeout(5.0):
                await until(100.0)
        except TimeoutError:
            pass
        await until(6.0)
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(impatient()) == 6.0
