"""`plan_job`: what is ranked, what is left out, and what is said when nothing fits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from problems import problem

from rpeg.errors import InfeasibleError
from rpeg.plan import check
from rpeg.search import Permissions, plan_job
from rpeg.search.estimator import FINAL_STEPS
from rpeg.search.rank import EQUAL, FINALISTS


def test_all_candidates_can_run_and_the_finalists_are_in_order() -> None:
    ranked = plan_job(problem())
    assert len(ranked.candidates) > 10
    for candidate in ranked.candidates:
        check(candidate.plan)
        assert candidate.estimate.fits
    finals = [c.estimate.step for c in ranked.candidates[:FINALISTS]]
    assert all(step.steps == FINAL_STEPS for step in finals)
    means = [step.mean_seconds for step in finals]
    assert means[1:] == sorted(means[1:])
    assert means[0] <= (1 + EQUAL) * min(means)
    assert ranked.best is ranked.candidates[0]


def test_the_same_problem_has_the_same_answer() -> None:
    assert plan_job(problem("grpo")) == plan_job(problem("grpo"))
    assert plan_job(problem("grpo")) != plan_job(problem("grpo"), seed=1)


def test_candidates_say_what_they_change_in_learning() -> None:
    ranked = plan_job(problem("grpo", permissions=Permissions(staleness=1)))
    for candidate in ranked.candidates:
        stale = tuple(source for source in candidate.plan.applied if source.startswith("async"))
        assert candidate.changes == stale
    assert any(candidate.changes for candidate in ranked.candidates)


def test_what_does_not_divide_is_left_out_with_its_reason() -> None:
    given = problem(devices=3)
    ranked = plan_job(given)
    assert any("do not divide over dp 3" in m.reason for m in ranked.misfits if m.name == "colocated")


def test_smaller_microbatches_are_taken_where_larger_ones_do_not_fit() -> None:
    given = problem(devices=1)
    roomy = plan_job(given).best
    need = max(m.bytes for m in roomy.estimate.memory[0].phases)
    tight = problem(devices=1, memory_bytes=int(need) - 1)
    best = plan_job(tight).best
    assert best.estimate.fits
    assert best.plan.assignment("train_actor").microbatch < roomy.plan.assignment("train_actor").microbatch


def test_nothing_fits_says_where() -> None:
    given = problem("grpo", devices=1, memory_bytes=2**28)
    with pytest.raises(InfeasibleError) as error:
        plan_job(given)
    said = str(error.value)
    assert "no plan for grpo fits on cpu × 1" in said
    assert "GiB in phase" in said


def test_a_model_too_large_for_one_device_says_what_it_lacks() -> None:
    given = problem("grpo", devices=1, memory_bytes=700 * 2**20)
    large = replace(next(iter(given.facts.architectures.values())), vocabulary=200_000)
    facts = replace(given.facts, architectures=dict.fromkeys(given.facts.architectures, large))
    with pytest.raises(InfeasibleError, match=r"lacks \d+\.\d+ GiB in phase \w+ of "):
        plan_job(replace(given, facts=facts))
