"""What goes wrong on purpose among fake devices surfaces as it does among real ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plans import make_plan, ppo_graph
from random_plans import FixedCosts
from rpeg.errors import RunError
from rpeg.plan import Item, ItemKind, Plan, lower
from rpeg.runtime.fake.costs import FakeCosts
from rpeg.runtime.fake.injection import NOTHING, Failure, Injection, Pressure
from rpeg.sim import simulate
from runtime.pretended import pretended

SPLIT = {
    **dict.fromkeys(("generate", "reference", "evaluate"), (0,)),
    **dict.fromkeys(("old_logprob", "value", "train_actor", "train_critic"), (1,)),
}
PLAN = make_plan(ppo_graph(), SPLIT)


def _costs(plan: Plan = PLAN) -> FixedCosts:
    return FixedCosts.draw(lower(plan.graph, plan.assignments, plan.workload), 1)


def test_a_worker_that_raises_is_named_with_its_item() -> None:
    injection = Injection(failures=(Failure("raise", "value", 2),))
    with pytest.raises(RunError, match=r"value\[step 2, .*worker device1: RuntimeError: injected"):
        pretended(PLAN, _costs(), 5, injection)


def test_a_process_that_dies_is_told_as_such() -> None:
    injection = Injection(failures=(Failure("die", "train_actor", 1),))
    with pytest.raises(RunError, match=r"train_actor\[step 1, .*the process has died"):
        pretended(PLAN, _costs(), 5, injection)


def test_a_hang_is_noticed_after_the_virtual_time_that_was_set() -> None:
    injection = Injection(failures=(Failure("hang", "reference", 1),))
    with pytest.raises(RunError, match=r"nothing has happened for 3600 s.\n.*running: reference\[step 1"):
        pretended(PLAN, _costs(), 5, injection, stall_seconds=3600)


def test_memory_pressure_names_stage_lane_and_what_is_missing() -> None:
    """The lane holds half of what it has; more than the other half is beyond."""
    lane = PLAN.assignment("train_actor").all_lanes()[0]
    has = PLAN.cluster.device(1).kind.usable_memory_bytes

    class Holding(FixedCosts):
        def memory_bytes(self, item: Item, lane: str) -> int:
            return has // 2

    held = Holding(**vars(_costs()))
    enough = Injection(pressures=(Pressure(lane, 1, has // 2),))
    assert pretended(PLAN, held, 3, enough).complete
    beyond = Injection(pressures=(Pressure(lane, 1, has // 2 + 2**28),))
    with pytest.raises(RunError, match=r"\[step 1.*on device1 ran out of memory.*0\.25 GiB more than"):
        pretended(PLAN, held, 3, beyond)


def test_what_is_injected_depends_on_seed_and_item_alone() -> None:
    injection = Injection(7, noise=0.1, delayed=0.5, delay_seconds=2.0)
    items = [Item(ItemKind.RUN, "generate", step) for step in range(200)]
    drawn = [(injection.factor(i), injection.delay(i)) for i in items]
    again = [(injection.factor(i), injection.delay(i)) for i in reversed(items)]
    assert drawn == again[::-1]
    assert drawn != [(replace(injection, seed=8).factor(i), injection.delay(i)) for i in items]
    late = [delay for _, delay in drawn if delay]
    assert 60 < len(late) < 140
    assert max(late) <= 2.0
    assert all(0.5 < factor < 2.0 for factor, _ in drawn)


def test_a_scale_stretches_all_times_alike() -> None:
    """So a prediction of a scaled run is that of the real one, scaled."""
    costs = replace(_costs(), dispatch_seconds=0.0)
    one, thousandth = (simulate(PLAN, FakeCosts(costs, NOTHING, s, 0.0), 3) for s in (1.0, 0.001))
    for before, after in zip(one.spans, thousandth.spans, strict=True):
        assert after.seconds == pytest.approx(before.seconds / 1000)
