"""What a changed problem brings over the plan that was chosen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from problems import problem

from rpeg.search import Effect, Permissions, plan_job, sensitivity
from rpeg.search.changes import Devices, ShorterTail, Staleness
from rpeg.workload import constant

GIVEN = problem("grpo", prompts=4, permissions=Permissions(staleness=1))


@pytest.fixture(scope="module")
def effects() -> dict[type, Effect]:
    found = sensitivity(GIVEN, plan_job(GIVEN).best, replan=plan_job)
    return dict(zip((Devices, *(Devices for _ in found[3:]), ShorterTail, Staleness), found, strict=True))


def test_each_usual_change_is_looked_at(effects: dict[type, Effect]) -> None:
    assert len(effects) == 3  # this machine has no faster links
    assert effects[Staleness].words == Staleness(2).words(GIVEN)
    for effect in effects.values():
        assert effect.words
        assert effect.cost


def test_what_is_allowed_more_takes_no_longer(effects: dict[type, Effect]) -> None:
    for kind in (Devices, Staleness):
        assert effects[kind].kept_seconds == pytest.approx(effects[kind].before_seconds)
        assert effects[kind].saved >= 0


def test_a_shorter_tail_makes_the_step_shorter(effects: dict[type, Effect]) -> None:
    effect = effects[ShorterTail]
    again = plan_job(ShorterTail().apply(GIVEN)).best
    assert effect.replanned_seconds == again.estimate.step.mean_seconds
    assert effect.after_seconds is not None
    assert effect.kept_seconds is not None
    assert effect.after_seconds <= effect.kept_seconds < effect.before_seconds
    assert effect.learning


def test_device_hours_count_all_devices(effects: dict[type, Effect]) -> None:
    effect = effects[Devices]
    assert effect.device_hours == pytest.approx((1 - effect.saved) * effect.devices[1] / effect.devices[0])


def test_without_planning_again_the_chosen_plan_is_estimated_again() -> None:
    (effect,) = sensitivity(GIVEN, plan_job(GIVEN).best, replan=None)
    assert effect.words == ShorterTail().words(GIVEN)
    assert (effect.replanned_seconds, effect.after_seconds) == (None, effect.kept_seconds)


def test_changes_that_cannot_be_made_are_left_out() -> None:
    given = replace(GIVEN, workload=replace(GIVEN.workload, response_lengths=constant(8)))
    assert sensitivity(given, plan_job(given).best, replan=None) == ()
